import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gentle.workers import by_threads, finished, n_cores


def fail_or_double(number):
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number


def die_or_report(number):
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number, os.environ["OMP_NUM_THREADS"], os.getpid()


@pytest.mark.parametrize("n_workers", [1, 2])
def test_every_item_is_done_and_a_failure_does_not_stop_the_others(n_workers):
    before = os.environ.get("OMP_NUM_THREADS")
    found = dict(finished(fail_or_double, [(3,), (-1,), (5,)], n_workers))
    assert found[(3,)] == 6
    assert found[(5,)] == 10
    assert str(found[(-1,)]) == "-1 is negative"
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_a_worker_that_dies_takes_nothing_else_with_it():
    items = [(number,) for number in range(6)]
    found = dict(finished(die_or_report, items, n_workers=2))
    assert set(found) == set(items)
    assert "a worker process died" in str(found[(0,)])
    done = [result for result in found.values() if not isinstance(result, Exception)]
    assert len(done) >= 4  # at most the neighbour at work was given up with it
    assert {threads for _, threads, _ in done} == {"1"}
    assert os.getpid() not in {process for *_, process in done}


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom pathlib import Path\nfrom gentle.workers import finished\n"
        f"def note(i):\n    Path({str(tmp_path)!r}, str(os.getpid())).touch()\n    time.sleep(60)\n"
        "if __name__ == '__main__':\n    list(finished(note, [(1,), (2,)], 2))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    workers = lambda: [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]  # noqa: E731
    wait_until(lambda: len(workers()) == 2)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(is_running(worker) for worker in workers()))


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]


def test_there_is_a_core():
    assert n_cores() >= 1


@pytest.fixture
def two_torch_threads(monkeypatch):
    monkeypatch.setattr("gentle.workers.n_cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_bring_no_threads_of_their_own(two_torch_threads):
    assert by_threads(lambda _: torch.get_num_threads(), 8, 2) == [1, 1, 1, 1]
    assert torch.get_num_threads() == 2


def test_libraries_get_their_threads_back_after_a_fault(two_torch_threads):
    with pytest.raises(ZeroDivisionError):
        by_threads(lambda some: 1 / some.start, 8, 2)
    assert torch.get_num_threads() == 2


def test_threads_within_threads_are_none(two_torch_threads):
    def names(some):
        return by_threads(lambda _: threading.get_ident(), 4, 1)

    for found in by_threads(names, 4, 1):
        assert len(set(found)) == 1


@given(
    n=st.integers(0, 5000),
    step=st.integers(1, 700),
    multiple=st.integers(1, 64),
    n_threads=st.integers(1, 6),
)
def test_slices_are_a_partition_that_keeps_all_threads_busy(n, step, multiple, n_threads):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gentle.workers.n_cores", lambda: n_threads)
        patched.delenv("OMP_NUM_THREADS", raising=False)
        found = by_threads(lambda some: some, n, step * multiple, multiple)
    assert [i for some in found for i in range(some.start, some.stop)] == list(range(n))
    sizes = [some.stop - some.start for some in found]
    assert all(0 < size <= step * multiple for size in sizes)
    if len(sizes) > 1 and n_threads > 1:
        assert all(size % multiple == 0 for size in sizes[:-1])
        at_work = min(n_threads, math.ceil(n / (step * multiple)))
        rounds = math.ceil(len(sizes) / at_work)
        assert rounds * max(sizes) < n / at_work + rounds * multiple  # nobody has more than a share
