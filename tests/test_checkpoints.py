"""Interruptions of every kind, after which training must go on as if nothing had happened."""

import errno
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import gentle
from gentle import CDSB, CWGAN, GENTLE, KNN, MGAN, QRGMM, WGANGP, checkpoints
from gentle.cli import app
from gentle.models import school
from gentle.models.bridge import Bridge
from gentle.models.duel import Duel
from gentle.models.game import Game
from gentle.models.quantile import _Regressions
from gentle.models.school import School
from gentle.training import watching

LEARNERS = (School, Game, Duel, Bridge, _Regressions)
SMALL = {"hidden_widths": (8, 8), "random_state": 3, "verbose": 0, "device": "cpu"}
PAPER = SMALL | {"n_draws": 8, "n_levels": 51, "batch_size": 20}
MAKERS = {
    "GENTLE": lambda: GENTLE(n_steps=60, n_trees=6, **SMALL),
    "GENTLE auto": lambda: GENTLE(n_steps=20, n_trees=0, reg_weight="auto", **SMALL),
    "the paper's": lambda: GENTLE.from_paper("ecm", **PAPER | {"n_epochs": 6}),
    "early stopping": lambda: GENTLE(map="mlp", n_epochs=12, patience=2, **PAPER),
    "CWGAN": lambda: CWGAN(n_epochs=6, batch_size=32, n_critic=2, **SMALL),
    "WGANGP": lambda: WGANGP(n_epochs=6, batch_size=32, n_critic=2, **SMALL),
    "MGAN": lambda: MGAN(n_epochs=6, batch_size=32, **SMALL),
    "CDSB": lambda: CDSB(n_iterations=3, n_updates=30, batch_size=100, n_paths=32, **SMALL),
    "QRGMM": lambda: QRGMM(regression="neural", n_epochs=8, patience=3, **SMALL),
}


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2)).round(1)
    return X, (X[:, 0] + rng.normal(0, 0.3, n)).round(1)


class Killed(BaseException):
    """Stands for a death of the process: nothing may catch it."""


def contents(model):
    """All that a fitted model is: its arrays, its answers, its history without times."""
    X, _ = data(seed=1)
    history = [{k: v for k, v in one.items() if k != "seconds"} for one in model.history_]
    arrays = model._get_state()[0]
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()} | {
        "answers": model.predict_quantiles(X[:9], [0.1, 0.5, 0.9]).tobytes(),
        "history": history,
    }


@pytest.fixture(scope="module")
def whole():
    """The models that uninterrupted fits without checkpoints give, by name."""
    found = {}

    def get(name):
        if name not in found:
            found[name] = contents(MAKERS[name]().fit(*data()))
        return found[name]

    return get


@pytest.fixture(autouse=True)
def at_every_epoch(monkeypatch):
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)


@pytest.fixture
def steps(monkeypatch):
    """Counts the steps of all trainings; calls `before` with the number of each."""

    class Steps:
        n = 0
        before = staticmethod(lambda number: None)

    def counted(step):
        def wrapped(self, batch):
            Steps.n += 1
            Steps.before(Steps.n)
            return step(self, batch)

        return wrapped

    for learner in LEARNERS:
        monkeypatch.setattr(learner, "step", counted(learner.step))
    return Steps


def killer(number, error=Killed):
    def before(n):
        if n == number:
            raise error

    return before


def test_networks_that_joined_later_come_back(steps, tmp_path, monkeypatch):
    monkeypatch.setattr(school, "_LARGE", 50)
    kinds = []
    drop = School._drop_useless_kinds

    def noted(self):
        drop(self)
        kinds.append(self.kinds)

    monkeypatch.setattr(School, "_drop_useless_kinds", noted)
    make, rows = lambda: GENTLE(n_steps=400, n_trees=0, **SMALL), data(300)
    expected = contents(make().fit(*rows))
    n_steps, n_dealt = steps.n, len(kinds)
    assert any(len(set(now)) < len(now) for now in kinds), kinds
    for number in (n_steps // 2, n_steps // 4):  # of the steps that are left
        steps.n, steps.before = 0, killer(number)
        with pytest.raises(Killed):
            make().fit(*rows, checkpoint_dir=tmp_path)
    steps.n, steps.before = 0, killer(0)
    assert contents(make().fit(*rows, checkpoint_dir=tmp_path)) == expected
    assert len(kinds) > n_dealt


@pytest.mark.parametrize("name", MAKERS)
def test_death_at_a_random_step_changes_nothing(name, whole, steps, tmp_path):
    rng = np.random.default_rng(sum(name.encode()))
    expected, steps.n = whole(name), 0
    MAKERS[name]().fit(*data())
    n_steps = steps.n
    for _ in range(3):
        steps.n, steps.before = 0, killer(int(rng.integers(n_steps // 5 + 1, n_steps // 3 + 1)))
        with pytest.raises(Killed):
            MAKERS[name]().fit(*data(), checkpoint_dir=tmp_path)
    steps.n, steps.before = 0, killer(0)
    assert contents(MAKERS[name]().fit(*data(), checkpoint_dir=tmp_path)) == expected
    print(f"{name}: died 3 times, then {steps.n} of {n_steps} steps were left")
    steps.n = 0
    assert contents(MAKERS[name]().fit(*data(), checkpoint_dir=tmp_path)) == expected
    assert steps.n == 0  # it is known already


@pytest.mark.parametrize("what", ["fsync", "replace"])
def test_death_while_a_checkpoint_is_written_changes_nothing(
    what, whole, steps, tmp_path, monkeypatch
):
    call, calls = getattr(os, what), itertools.count(1)

    def deadly(*arguments):
        if next(calls) % 3 == 0:  # the two renames of a checkpoint by turns
            raise Killed
        call(*arguments)

    monkeypatch.setattr(os, what, deadly)
    found, n_deaths = None, 0
    while found is None:
        try:
            found = MAKERS["the paper's"]().fit(*data(), checkpoint_dir=tmp_path)
        except Killed:
            n_deaths += 1
    assert n_deaths >= 2
    assert contents(found) == whole("the paper's")


def _child(name, folder, out, changes):
    checkpoints.EVERY = 0.0
    X, y = data()
    if changes.pop("small_files", False):
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    model = MAKERS[name]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, checkpoint_dir=folder)
    out.send((contents(model), [str(one.message) for one in caught]))


@pytest.fixture(scope="module")
def processes():
    """Processes that are born with everything imported, so that they train at once."""
    context = multiprocessing.get_context("forkserver")
    homes = [f"gentle.models.{home}" for home in ("gentle", "adversarial", "bridge", "reference")]
    others = ["pytest", "typer.testing", "gentle.cli.app", "torch._dynamo"]  # Adam wants the last
    context.set_forkserver_preload(homes + others)
    return context


def born(processes, name, folder, **changes):
    result, out = processes.Pipe(duplex=False)
    child = processes.Process(target=_child, args=(name, folder, out, changes))
    child.start()
    out.close()
    return child, result


def killed_at_random(processes, name, folder, expected, n_kills, rng):
    """Kill fits with SIGKILL until one has to be let alone; the number killed while at work."""
    times, n_killed = [], 0
    for trial in ("first", "second"):  # the first may have to wait for imports
        started = time.monotonic()
        _, result = born(processes, name, folder / trial)
        assert result.recv()[0] == expected
        times.append(time.monotonic() - started)
    for attempt in range(n_kills):
        child, result = born(processes, name, folder / f"try-{attempt // 3}")
        if result.poll(rng.uniform(0, 0.9) * times[1]):
            assert result.recv()[0] == expected
        else:
            child.kill()
            n_killed += 1
        child.join()
    for attempt in range(0, n_kills, 3):
        _, result = born(processes, name, folder / f"try-{attempt // 3}")
        assert result.recv()[0] == expected
    return n_killed


def test_kill_9_at_random_moments(processes, whole, tmp_path):
    rng = np.random.default_rng(0)
    n = killed_at_random(processes, "CWGAN", tmp_path, whole("CWGAN"), 6, rng)
    print(f"{n} kill points tried, all resumed to equal bits")
    assert n >= 2


@pytest.mark.slow
def test_kill_9_at_many_random_moments(processes, whole, tmp_path):
    rng, n_killed = np.random.default_rng(1), 0
    for name in MAKERS:
        folder = tmp_path / name.replace(" ", "-")
        n = killed_at_random(processes, name, folder, whole(name), 9, rng)
        print(f"{name}: {n} kill points tried, all resumed to equal bits")
        n_killed += n
    print(f"{n_killed} kill points in total")
    assert n_killed >= 20


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_keeps_the_last_epoch_and_the_earlier_model(
    error, whole, steps, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoints, "EVERY", 1e9)
    model = MAKERS["QRGMM"]().fit(*data(seed=2))
    before, steps.n, steps.before = contents(model), 0, killer(6, error)
    with pytest.raises(error):
        model.fit(*data(), checkpoint_dir=tmp_path)
    assert contents(model) == before
    assert os.listdir(tmp_path) == ["training-0.checkpoint"]
    steps.before = killer(0)
    shown = []
    with watching(shown.append):
        assert contents(model.fit(*data(), checkpoint_dir=tmp_path)) == whole("QRGMM")
    assert shown[0]["epoch"] == 6  # with one step each


def test_checkpoints_are_written_now_and_then(tmp_path, monkeypatch):
    written = []
    write = checkpoints._write
    monkeypatch.setattr(checkpoints, "_write", lambda *a: (written.append(a[0].name), write(*a)))
    monkeypatch.setattr(checkpoints, "EVERY", 1e9)
    MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)
    assert written == ["training-0.checkpoint"]  # the end, always
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path / "other")
    assert len(written) == 1 + 6 + 1


@pytest.mark.parametrize("first", [1, 3])
def test_a_full_disk_does_not_stop_training(first, whole, tmp_path, monkeypatch):
    fsync, calls = os.fsync, itertools.count(1)

    def full(descriptor):
        if next(calls) >= first:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="cannot be written to .*No space left") as caught:
        model = MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)
    assert len(caught) == 1
    assert contents(model) == whole("CWGAN")
    left = [] if first == 1 else ["training-0.checkpoint", "training-0.previous"]
    assert sorted(os.listdir(tmp_path)) == left
    monkeypatch.setattr(os, "fsync", fsync)  # there is room again
    model = MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)
    assert contents(model) == whole("CWGAN")


def test_a_file_that_the_system_cuts_short_is_no_checkpoint(processes, whole, tmp_path):
    _, result = born(processes, "CWGAN", tmp_path, small_files=True)
    found, told = result.recv()
    assert found == whole("CWGAN")
    assert len(told) == 1
    assert "File too large" in told[0]
    assert os.listdir(tmp_path) == []


def interrupted(name, folder, steps, number=10):
    """Leave two generations of checkpoints in a folder."""
    steps.n, steps.before = 0, killer(number)
    with pytest.raises(Killed):
        MAKERS[name]().fit(*data(), checkpoint_dir=folder)
    steps.before = killer(0)
    files = sorted(file.name for file in folder.iterdir())
    assert files == ["training-0.checkpoint", "training-0.previous"]


def truncated(content, rng):
    return content[: int(rng.integers(len(content)))]


def flipped(content, rng):
    at = int(rng.integers(len(content)))
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :]


def noise(content, rng):
    return rng.bytes(len(content))


@pytest.mark.parametrize("damage", [truncated, flipped, noise, lambda content, rng: b""])
def test_damage_costs_an_epoch_or_a_start_but_never_the_model(damage, whole, steps, tmp_path):
    undisturbed = whole("WGANGP")  # trains if no test has asked for it yet
    interrupted("WGANGP", tmp_path, steps)
    rng, n_left = np.random.default_rng(0), []
    last, previous = tmp_path / "training-0.checkpoint", tmp_path / "training-0.previous"
    kept = last.read_bytes(), previous.read_bytes()
    for of_both, expected in [(False, "the one before it is used"), (True, "starts anew")]:
        last.write_bytes(damage(kept[0], rng))
        previous.write_bytes(damage(kept[1], rng) if of_both else kept[1])
        steps.n = 0
        with pytest.warns(UserWarning, match=expected):
            model = MAKERS["WGANGP"]().fit(*data(), checkpoint_dir=tmp_path)
        assert contents(model) == undisturbed
        n_left.append(steps.n)
    assert 0 < n_left[0] < n_left[1]


OTHERS = [
    ({"n_epochs": 7}, {}, "n_epochs was 6, now it is 7"),
    ({"random_state": 4}, {}, "the seed was 3, now it is 4"),
    ({}, {"X": data(seed=1)[0]}, "the data are others"),
    ({}, {"y": data(seed=1)[1]}, "the data are others"),
    ({}, {"sample_weight": np.arange(1, 121)}, "the data are others"),
    ({}, {"eval_set": data(seed=1)}, "the data are others"),
]


@pytest.mark.parametrize(("settings", "arguments", "told"), OTHERS)
def test_the_checkpoints_of_another_fit_are_refused_and_left_alone(
    settings, arguments, told, steps, tmp_path
):
    interrupted("CWGAN", tmp_path, steps)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    arguments = dict(zip("Xy", data())) | arguments | {"checkpoint_dir": tmp_path}
    with pytest.raises(ValueError, match=f": {told}. Choose another folder, or delete"):
        MAKERS["CWGAN"]().set_params(**settings).fit(**arguments)
    with pytest.raises(ValueError, match=": a CWGAN, in format 1"):
        MAKERS["MGAN"]().fit(**arguments)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_makes_no_difference_to_a_fit_is_none(whole, steps, tmp_path, capsys):
    interrupted("CWGAN", tmp_path, steps)
    (X, y), order = data(), np.random.default_rng(0).permutation(120)
    model = MAKERS["CWGAN"]().set_params(verbose=2)
    model.fit(pd.DataFrame(X[order]), y[order], np.full(120, 8.0), checkpoint_dir=tmp_path)
    assert contents(model) == whole("CWGAN")
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "CWGAN: resuming after epoch 2 of at most 6"
    assert shown[1].startswith("CWGAN: epoch 3, ")
    model.fit(*data(), checkpoint_dir=tmp_path)
    assert capsys.readouterr().err == "CWGAN: was already trained, 6 epochs\n"


def test_without_a_seed_the_one_that_was_drawn_is_kept(steps, tmp_path):
    def fit(folder):
        return MAKERS["CWGAN"]().set_params(random_state=None).fit(*data(), checkpoint_dir=folder)

    steps.before = killer(10)
    with pytest.raises(Killed):
        fit(tmp_path)
    seed = checkpoints.seed_in(tmp_path)
    found = contents(fit(tmp_path))
    assert found == contents(MAKERS["CWGAN"]().set_params(random_state=seed).fit(*data()))
    assert found != contents(fit(tmp_path / "other"))


def test_models_that_are_not_trained_leave_no_trace(tmp_path):
    KNN().fit(*data(), checkpoint_dir=tmp_path / "new")
    QRGMM(random_state=0).fit(*data(), checkpoint_dir=tmp_path)
    assert os.listdir(tmp_path) == []
    assert checkpoints.seed_in(tmp_path) is None


def test_a_folder_has_room_for_one_fit_at_a_time(tmp_path):
    def fit_there(record):
        MAKERS["MGAN"]().fit(*data(), checkpoint_dir=tmp_path)

    with watching(fit_there), pytest.raises(RuntimeError, match="another fit is at work"):
        MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)


def test_a_fit_within_a_fit_keeps_to_itself(whole, tmp_path):
    def fit_another(record):
        with watching(lambda record: None):
            MAKERS["MGAN"]().fit(*data())

    with watching(fit_another):
        model = MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)
    assert contents(model) == whole("CWGAN")
    assert {file.stem for file in tmp_path.iterdir()} == {"training-0"}


def test_a_checkpoint_for_another_kind_of_learner_is_refused(steps, tmp_path, monkeypatch):
    interrupted("CWGAN", tmp_path, steps)
    monkeypatch.setattr(Duel, "_changing", (*Duel._changing, "n_batches"))  # of a later version
    with pytest.raises(ValueError, match=r"cannot be used here.*Delete it to start anew"):
        MAKERS["CWGAN"]().fit(*data(), checkpoint_dir=tmp_path)


def test_removing_spares_other_files(steps, tmp_path):
    interrupted("CWGAN", tmp_path, steps)
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.remove(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]
    checkpoints.remove(tmp_path / "nowhere")


TOO_FAST = {
    "GENTLE": lambda rate: GENTLE(n_steps=60, n_trees=0, lr_generator=rate, **SMALL),
    "the paper's": lambda rate: GENTLE.from_paper(
        "ecm", **PAPER | {"n_epochs": 6, "lr_generator": rate, "lr_potential": rate}
    ),
    "plain steps": lambda rate: GENTLE.from_paper(
        "ecm", **PAPER | {"n_epochs": 6, "lr_generator": rate, "inner": "sgd", "fit_loss": "w2"}
    ),
    "CWGAN": lambda rate: CWGAN(n_epochs=6, batch_size=32, n_critic=2, learning_rate=rate, **SMALL),
    "CDSB": lambda rate: CDSB(
        n_iterations=3, n_updates=30, batch_size=100, n_paths=32, learning_rate=rate, **SMALL
    ),
    "QRGMM": lambda rate: QRGMM(regression="neural", n_epochs=8, learning_rate=rate, **SMALL),
}


@pytest.mark.parametrize("name", TOO_FAST)
def test_hopeless_rates_are_an_error(name):
    model = TOO_FAST[name](1e-3).fit(*data())
    before = contents(model)
    with pytest.warns(ConvergenceWarning), pytest.raises(FloatingPointError, match="diverged"):
        model.set_params(**vars(TOO_FAST[name](1e12))).fit(*data())
    assert contents(model.set_params(**vars(TOO_FAST[name](1e-3)))) == before


@pytest.mark.parametrize("name", TOO_FAST)
def test_rates_that_are_too_large_give_a_sound_model_and_a_warning(name, steps, tmp_path):
    with pytest.warns(ConvergenceWarning, match="steps a quarter as large"):
        model = TOO_FAST[name](100).fit(*data())
    answers = model.predict_quantiles(data()[0], [0.05, 0.5, 0.95])
    assert np.abs(answers).max() < 20
    assert model.history_[-1]["rollbacks"] >= 1
    steps.n, steps.before = 0, killer(steps.n - 5)  # a resumed fit remembers its smaller steps
    with pytest.warns(ConvergenceWarning), pytest.raises(Killed):
        TOO_FAST[name](100).fit(*data(), checkpoint_dir=tmp_path)
    steps.before = killer(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = TOO_FAST[name](100).fit(*data(), checkpoint_dir=tmp_path)
    assert contents(again) == contents(model)


def test_a_model_that_has_not_learned_says_so():
    with pytest.warns(ConvergenceWarning, match=r"typically \S+ standard deviations off"):
        model = TOO_FAST["the paper's"](3).fit(*data())
    assert "rollbacks" not in model.history_[-1]
    assert np.median(np.abs(model.predict(data()[0]))) > 3


FIT = "fit d.csv -t y -o m --set n_epochs=6 --set batch_size=32 --set hidden_widths=(8,8) -m CWGAN"
HIDDEN = Path(".m-checkpoints")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = data()
    pd.DataFrame(X, columns=["a", "b"]).assign(y=y).to_csv("d.csv", index=False)
    return tmp_path


def command(text, code=0):
    result = CliRunner().invoke(app, text.split())
    assert result.exit_code == code, result.stderr
    return result.stderr.splitlines()


def test_the_command_goes_on_after_ctrl_c(here, steps):
    command(f"{FIT} --seed 5")
    expected = contents(gentle.load("m"))
    assert sorted(os.listdir()) == ["d.csv", "m"]  # no checkpoints are left
    steps.n, steps.before = 0, killer(10, KeyboardInterrupt)
    told = command(f"{FIT} --overwrite --seed 5", code=130)
    assert told[-1] == (
        "Interrupted. To go on from the last finished epoch, give the same command again."
    )
    assert contents(gentle.load("m")) == expected  # as it was
    steps.before = killer(0)
    assert "CWGAN: resuming after epoch 2 of at most 6" in command(f"{FIT} --overwrite --seed 5")
    assert contents(gentle.load("m")) == expected
    assert sorted(os.listdir()) == ["d.csv", "m"]


def test_the_command_keeps_the_seed_that_it_drew(here, steps):
    steps.before = killer(10, KeyboardInterrupt)
    command(FIT, code=130)
    seed, steps.before = checkpoints.seed_in(HIDDEN), killer(0)
    assert f"with seed {seed}." in " ".join(command(FIT))
    found = contents(gentle.load("m"))
    command(f"{FIT} --overwrite --seed {seed}")
    assert contents(gentle.load("m")) == found


def test_the_command_drops_another_fits_checkpoints_only_if_told_to(here, steps):
    steps.before = killer(10, KeyboardInterrupt)
    command(f"{FIT} --seed 5", code=130)
    steps.before = killer(0)
    (told,) = [line for line in command(f"{FIT} --seed 6", code=1) if line.startswith("Error")]
    assert "another fit that was interrupted: the seed was 5, now it is 6. Give its" in told
    assert checkpoints.seed_in(HIDDEN) == 5
    command(f"{FIT} --seed 6 --overwrite")
    assert not HIDDEN.exists()


def test_a_model_that_cannot_be_saved_needs_no_second_training(here, steps, monkeypatch):
    def full(model, folder, overwrite=False):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(CWGAN, "save", full)
        patch.setattr("tempfile.tempdir", str(here))
        told = command(f"{FIT} --checkpoint-dir kept", code=1)[-1]
    assert "No space left on device" in told
    assert told.endswith("give the same command again: it goes on from the last checkpoint.")
    assert sorted(os.listdir()) == ["d.csv", "kept"]
    steps.n = 0
    assert "CWGAN: was already trained, 6 epochs" in command(f"{FIT} --checkpoint-dir kept")
    assert steps.n == 0
    assert sorted(os.listdir()) == ["d.csv", "m"]


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_the_command_survives_signals(sent, here, monkeypatch):
    program = (
        "from gentle import checkpoints as c; c.EVERY = 0; from gentle.cli import main; main()"
    )
    words = [sys.executable, "-c", program, *FIT.split(" "), "--seed", "5"]
    words = [word.replace("n_epochs=6", "n_epochs=40") for word in words]
    process = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores SIGINT and hands that down to its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list(HIDDEN.glob("*.previous")):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(sent)
    _, told = process.communicate()
    assert process.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[sent]
    assert not Path("m").exists()
    assert told.count("Interrupted. To go on") == (sent == signal.SIGINT)
    assert "Traceback" not in told
    monkeypatch.setattr(checkpoints, "EVERY", 10.0)
    long = f"{FIT} --seed 5".replace("n_epochs=6", "n_epochs=40")
    assert any("resuming after epoch" in line for line in command(long))
    found = contents(gentle.load("m"))
    command(f"{long} --overwrite")
    assert contents(gentle.load("m")) == found
    assert not HIDDEN.exists()
