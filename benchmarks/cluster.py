"""What a cluster gains, and what grows with the rows: writes benchmarks/cluster.md.

Seconds per epoch of `GENTLE` with one and with two Ray workers (large batches, one thread
each), taken in turns in one run; the message that workers add up after each step, and how long that
takes; seconds per step, memory and scratch space as rows and batches grow; draws a second.

python benchmarks/cluster.py            # about 15 minutes on two idle cores
python benchmarks/cluster.py --quick    # about 5
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gentle import GENTLE, cluster, streaming
from gentle.models import lessons
from gentle.teams import Team, together

BATCHES = (8192, 16_384)
N_COLUMNS = 10
HERE = Path(__file__).with_suffix(".md")

# Fits to a file of some rows, as to one that is larger than memory, and tells its peak memory.
_CHILD = """
import json, resource, sys
from pathlib import Path
from gentle import GENTLE
from gentle.models import larger, lessons
larger.MAX_CELLS, larger.SAMPLE_CELLS = 10**6, 4 * 10**5
made, sizes = lessons.OnDisk.__init__, []
def init(self, *args):
    made(self, *args)
    sizes.append(self.size)
lessons.OnDisk.__init__ = init
settings = {"hidden_widths": (8,), "n_trees": 0, "n_steps": 1, "batch_size": 8192}
GENTLE(**settings, random_state=0, verbose=0, device="cpu").fit(sys.argv[1], "y")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
print(json.dumps({"peak": peak, "row": sizes[0]}))
"""


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_COLUMNS))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(N_COLUMNS)])
    return frame.assign(y=X[:, 0] + np.exp(X[:, 1] / 3) * rng.normal(size=n))


def model(n_steps: int, batch_size: int = BATCHES[0]) -> GENTLE:
    settings = {"n_steps": n_steps, "batch_size": batch_size, "n_trees": 0}
    return GENTLE(**settings, random_state=0, verbose=0, device="cpu")


def n_steps_of_epoch(n_rows: int, batch: int) -> int:
    """Of a table in memory, of whose covariates some are held out."""
    n_seen = n_rows - min(n_rows // 8, round(0.05 * n_rows) + 250, 2500)
    return max(lessons._MIN_STEPS, math.ceil(n_seen / batch))


def per_epoch(fitted: GENTLE) -> float:
    """Median seconds of an epoch, validation included; the first warms up."""
    return statistics.median(np.diff([record["seconds"] for record in fitted.history_]))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def speed(n_rows: int, repeats: int, batch: int) -> list[str]:
    frame, n_epochs = table(n_rows), 4
    X, y = frame.drop(columns="y"), frame["y"]
    each = n_steps_of_epoch(n_rows, batch)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(repeats):
        for n_workers in (1, 2)[:: 1 - 2 * (turn % 2)]:
            fitted = cluster.fit(model(n_epochs * each, batch), X, y, n_workers=n_workers)
            seconds[n_workers].append(per_epoch(fitted))
            print(f"{n_workers} worker(s): {seconds[n_workers][-1]:.2f} s", flush=True)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2])]
    return [
        f"{n_rows:,} rows of {N_COLUMNS} columns, {each} batches of {batch:,} an epoch, one thread "
        f"per worker, {repeats} fits each in turns; medians with the smallest and the largest.\n",
        "| workers | seconds per epoch |\n|---|---|",
        *(f"| {n} | {spread(found)} |" for n, found in seconds.items()),
        f"\nTwo workers are {spread(ratios)} times as fast as one.",
    ]


class Counting(Team):
    """Takes down the sizes of the messages that a team would send."""

    numbers: list[int] = []  # noqa: RUF012

    def add_up_gradients(self, parameters, *others):
        self.numbers.append(sum(one.numel() for one in [*parameters, *others]))


def _exchange(rank: int, rendezvous: str, n_numbers: int, results) -> None:
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    numbers, times = torch.zeros(n_numbers), []
    for _ in range(200):
        begin = time.perf_counter()
        Team(rank, 2).add_up([numbers])
        times.append(time.perf_counter() - begin)
    if rank == 0:
        results.put(statistics.median(times))
    distributed.barrier()
    distributed.destroy_process_group()


def message() -> list[str]:
    frame = table(51_000)  # enough to be divided as the largest tables are, into two parts
    with together(Counting()):
        model(1, batch_size=len(frame)).fit(frame.drop(columns="y"), frame["y"])
    most = max(Counting.numbers)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ((Path(folder) / "meet").as_uri(), most, results)
        pair = [context.Process(target=_exchange, args=(rank, *arguments)) for rank in range(2)]
        for process in pair:
            process.start()
        seconds = results.get()
        for process in pair:
            process.join()
    return [
        f"After each step the workers add up {most:,} numbers, {4 * most / 2**20:.2f} MiB in "
        f"single precision, whatever the batch; two processes of one machine do so in "
        f"{1000 * seconds:.1f} ms (median of 200).",
    ]


def growth(quick: bool) -> list[str]:
    lines, frame = (
        ["| batch | seconds per step |", "|---|---|"],
        table(65_536 if quick else 131_072),
    )
    X, y = frame.drop(columns="y"), frame["y"]
    found = []
    for batch in (2048, 4096, 8192, 16_384):
        steps = n_steps_of_epoch(len(y), batch)
        fitted = model(3 * steps, batch).fit(X, y)
        found.append((batch, per_epoch(fitted) / steps))
        lines.append(f"| {batch:,} | {found[-1][1]:.3f} |")
        print(lines[-1], flush=True)
    (few, short), (many, long) = found[0], found[2]
    slope = 1e6 * (long - short) / (many - few)
    lines.append(
        f"\nThat is {slope:.1f} µs for each row more, up to {many:,}; beyond, arrays outgrow the "
        "caches.\n"
    )
    lines += [
        "| rows in the file | peak memory, MiB | scratch file, bytes a row |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in (250_000, 500_000) if quick else (250_000, 500_000, 1_000_000):
            file = Path(folder) / "rows.parquet"
            table(n_rows).to_parquet(file, row_group_size=2**16)
            words = [sys.executable, "-c", _CHILD, str(file)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            told = json.loads(done.stdout)
            lines.append(f"| {n_rows:,} | {told['peak']:,.0f} | {told['row']} |")
            print(lines[-1], flush=True)
    return lines


def sampling(n_rows: int, repeats: int) -> list[str]:
    frame, n_draws = table(2000), 100
    fitted = GENTLE(n_steps=100, random_state=0, verbose=0, device="cpu")
    fitted.fit(frame.drop(columns="y"), frame["y"])
    rates: dict[str, list[float]] = {"one process": [], "1 worker": [], "2 workers": []}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "rows.parquet", Path(folder) / "draws"
        table(n_rows, 1).drop(columns="y").to_parquet(file)
        options = {"random_state": 0, "overwrite": True}
        for _ in range(repeats):
            for number, name in enumerate(rates):
                begin = time.perf_counter()
                if number:
                    cluster.sample_to_parquet(
                        fitted, file, out, n_draws, n_workers=number, **options
                    )
                else:
                    here = Path(folder) / "draws.parquet"
                    streaming.sample_to_parquet(fitted, file, here, n_draws, **options)
                rates[name].append(n_rows * n_draws / (time.perf_counter() - begin) / 1e6)
                print(f"{name}: {rates[name][-1]:.2f} million draws a second", flush=True)
    return [
        f"The default GENTLE, {n_rows:,} rows × {n_draws} draws from a Parquet file into one, or "
        f"into a folder of them, {repeats} times in turns; starting the tasks is included.\n",
        "| | million draws a second |\n|---|---|",
        *(f"| {name} | {spread(found)} |" for name, found in rates.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and repetitions")
    parser.add_argument("--note", default="", help="a sentence about the machine")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, repeats = (65_536, 3) if given.quick else (131_072, 3)
    with cluster.connect("local", 2):
        parts = {
            **{f"Training, batch {batch:,}": speed(rows, repeats, batch) for batch in BATCHES},
            "Draws": sampling(50_000 if given.quick else 200_000, repeats),
        }
    parts["The message"] = message()
    parts["Growth, in one process with one thread"] = growth(given.quick)
    lines = [
        "# What a cluster gains\n",
        f"`python benchmarks/cluster.py{' --quick' * given.quick}`, {date.today()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}. "
        f"{given.note}".strip(),
    ]
    for name, part in parts.items():
        lines += [f"\n## {name}\n", *part]
    HERE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(HERE.read_text())


if __name__ == "__main__":
    main()
