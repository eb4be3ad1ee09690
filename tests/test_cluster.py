"""A team of processes learns like one process; a cluster does the work of one, and survives deaths.

Most tests here run on a real local Ray cluster of two workers, and are slow.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gentle import GENTLE, KNN, checkpoints, cluster, streaming, tuning
from gentle.cluster import connection
from gentle.cluster.fitting import _use_gpu
from gentle.support import OutOfSupportWarning
from gentle.teams import Team, together

SMALL = {"n_steps": 12, "hidden_widths": (8,), "n_trees": 6}
GAME = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic", "n_levels": 51}
GAME |= {"n_epochs": 3, "hidden_widths": (16, 16)}
BOTH = pytest.mark.parametrize("settings", [SMALL, {**SMALL, "reg_weight": 0.1}, GAME])


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    return X, X["a"] + rng.normal(size=n) * np.exp(X["b"] / 3), rng.exponential(size=n) ** 3


def model(**settings):
    return GENTLE(**({"random_state": 0, "verbose": 0, "device": "cpu"} | settings))


# Without Ray


@pytest.mark.parametrize(("n_refusals", "joins"), [(0, True), (2, True), (3, False)])
def test_a_busy_cluster_is_asked_three_times(n_refusals, joins, monkeypatch):
    monkeypatch.setattr(connection, "_PAUSE", 0.0)
    calls = []

    def init():
        calls.append(1)
        if len(calls) <= n_refusals:
            raise ConnectionAbortedError("too busy")

    if joins:
        connection._join(init)
    else:
        with pytest.raises(ConnectionAbortedError, match="too busy"):
            connection._join(init)
    assert len(calls) == min(n_refusals + 1, 3)


class Threads(Team):
    """A team of threads, with sums of its own; it remembers the first gradient of each player."""

    def __init__(self, rank, size, barrier, desk):
        super().__init__(rank, size)
        for name, value in {"barrier": barrier, "desk": desk, "gradients": []}.items():
            object.__setattr__(self, name, value)

    def add_up(self, tensors):
        self.desk[self.rank] = [tensor.clone() for tensor in tensors]
        self.barrier.wait(60)
        totals = [sum(parts) for parts in zip(*self.desk.values())]
        self.barrier.wait(60)
        for tensor, total in zip(tensors, totals):
            tensor.copy_(total)

    def add_up_gradients(self, parameters, *others):
        parameters = list(parameters)
        super().add_up_gradients(parameters, *others)
        self.gradients.append([p.grad.clone() for p in parameters] + [o.clone() for o in others])

    def of_first(self, value):
        return value


def fitted_by(size, settings, rows):
    """Models that a team of threads has fitted, and the gradients that it has added up."""
    barrier, desk, found = threading.Barrier(size), {}, {}

    def work(rank):
        team = Threads(rank, size, barrier, desk)
        with together(team):
            found[rank] = (model(**settings).fit(*rows), team.gradients)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3])
@BOTH
def test_the_shares_of_a_team_add_up_to_the_gradient_of_the_whole_batch(settings, size):
    rows = table(241)  # batches of 60 leave one row, of which some processes get no share
    settings = {**settings, "batch_size": 60}
    ((alone, expected),), found = fitted_by(1, settings, rows), fitted_by(size, settings, rows)
    for one, gradients in found:
        assert len(gradients) == len(expected)
        for mine, theirs in zip(gradients[0], expected[0]):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(one.predict(rows[0]), alone.predict(rows[0]), atol=2e-3)
        np.testing.assert_array_equal(one.predict(rows[0]), found[0][0].predict(rows[0]))
    plain = model(**settings).fit(*rows)  # a team of one is no team at all
    np.testing.assert_array_equal(plain.predict(rows[0]), alone.predict(rows[0]))


def test_a_team_reads_its_shares_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("gentle.models.larger.MAX_CELLS", 1000)
    monkeypatch.setattr("gentle.models.larger.SAMPLE_CELLS", 1000)
    monkeypatch.setattr("gentle.models.lessons._BLOCK", 16)
    X, y, weight = table(1000)
    X.assign(y=y, w=weight).to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    settings, rows = {**SMALL, "batch_size": 72}, (tmp_path / "rows.parquet", "y", "w")
    ((alone, _),), found = fitted_by(1, settings, rows), fitted_by(3, settings, rows)
    for one, _ in found:
        np.testing.assert_allclose(one.predict(X), alone.predict(X), atol=2e-3)


@pytest.mark.parametrize("settings", [SMALL, GAME])
def test_over_many_draws_a_team_learns_what_one_process_learns(settings):
    """In expectation: over several seeds, the mean difference of held-out scores is no trend."""
    rows, (X, y, _) = table(), table(300, seed=9)
    differences = []
    for seed in range(3):
        own = {**settings, "batch_size": 64, "random_state": seed}
        ((one, _),), (two, _) = fitted_by(1, own, rows), fitted_by(2, own, rows)[1]
        scores = [found.predict_dist(X).crps(y).mean() for found in (one, two)]
        differences.append(scores[1] - scores[0])
    assert abs(np.mean(differences)) < 1e-3 * float(np.std(y))


def _in_process(rank, rendezvous, folder, results):
    torch.set_num_threads(1)
    from torch import distributed

    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    X, y, weight = table()
    with together(Team(rank, 2)):
        for _ in range(2):  # the second time, nothing is left to train
            kept = folder if rank == 0 else None  # the others are told
            found = model(**SMALL).fit(X, y, weight, checkpoint_dir=kept)
            results.put(found.predict(X))
    distributed.destroy_process_group()


def test_processes_learn_together_and_go_on_from_one_checkpoint(tmp_path):
    X, y, weight = table()
    alone = model(**SMALL).fit(X, y, weight).predict(X)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    arguments = ((tmp_path / "rendezvous").as_uri(), tmp_path / "kept", results)
    started = [context.Process(target=_in_process, args=(r, *arguments)) for r in range(2)]
    for process in started:
        process.start()
    answers = [results.get(timeout=300) for _ in range(4)]
    for process in started:
        process.join(60)
    for answer in answers:
        np.testing.assert_array_equal(answer, answers[0])
    np.testing.assert_allclose(answers[0], alone, atol=2e-3)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'gentle-ot\[ray\]'"):
        cluster.fit(GENTLE(), [[0.0], [1.0]], [0.0, 1.0])


def test_models_that_do_not_train_in_batches_are_told_where_to_go():
    with pytest.raises(ValueError, match="a cluster trains GENTLE; fit KNN in one process"):
        cluster.fit(KNN(), [[0.0], [1.0]], [0.0, 1.0])


def test_a_gpu_for_each_worker_or_none():
    assert _use_gpu("cuda", 2, 2)
    assert _use_gpu("auto", 2, 4)
    assert not _use_gpu("auto", 2, 1)
    assert not _use_gpu("cpu", 2, 8)
    with pytest.raises(
        ValueError, match="wants a GPU for each of 4 workers, but the cluster has 2"
    ):
        _use_gpu("cuda", 4, 2)


def test_an_error_about_a_folder_survives_the_way_between_processes(tmp_path):
    import pickle

    error = pickle.loads(pickle.dumps(checkpoints.OtherFitError(tmp_path, "the seed")))
    assert error.difference == "the seed"
    assert str(tmp_path) in str(error)


# With Ray


@pytest.fixture(scope="module")
def local():
    pytest.importorskip("ray", reason="ray is not installed (the extra 'ray')")
    with cluster.connect("local", 2) as call:
        yield call


def descendants():
    """Worker processes of the local cluster by their id, with their titles."""
    parent, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            titles[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:  # gone meanwhile
            continue

    def is_ours(pid):
        while pid in parent:
            if pid == os.getpid():
                return True
            pid = parent[pid]
        return False

    return {
        pid: title for pid, title in titles.items() if title.startswith("ray::") and is_ours(pid)
    }


def kill_when(ready, title, killed):
    """A thread that kills a worker of that title once something is the case."""

    def watch():
        for _ in range(3000):
            time.sleep(0.1)
            found = [pid for pid, name in descendants().items() if title in name]
            if found and ready():
                try:
                    os.kill(found[-1], signal.SIGKILL)
                except ProcessLookupError:  # one of an earlier search, which has just ended
                    continue
                killed.append(found[-1])
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL, GAME])
def test_training_on_a_cluster_is_that_of_one_process(local, settings):
    X, y, weight = table()
    expected = model(**settings).fit(X, y, weight)
    one = cluster.fit(model(**settings), X, y, weight, n_workers=1)
    np.testing.assert_array_equal(one.predict(X), expected.predict(X))
    two = model(**settings)
    assert cluster.fit(two, X, y, weight, n_workers=2) is two
    np.testing.assert_allclose(two.predict(X), expected.predict(X), atol=2e-3)
    assert len(two.history_) == len(expected.history_)
    assert list(two.feature_names_in_) == ["a", "b", "c"]
    assert two.get_params() == model(**settings).get_params()


@pytest.mark.slow
def test_workers_read_a_parquet_file_themselves(local, tmp_path, monkeypatch):
    X, y, _ = table(5000)
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    settings = SMALL | {"batch_size": 512}
    expected = model(**settings).fit("rows.parquet", "y")
    found = cluster.fit(model(**settings), "rows.parquet", "y")
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=5e-3)


@pytest.mark.slow
def test_a_worker_killed_in_training_changes_nothing(local, tmp_path):
    X, y, weight = table(4000)
    settings = {"n_steps": 2500, "batch_size": 1024, "hidden_widths": (64, 64), "n_trees": 4}
    undisturbed = cluster.fit(model(**settings), X, y, weight)
    folder, killed = tmp_path / "kept", []
    thread = kill_when(lambda: any(folder.glob("*.checkpoint")), "TrainWorker", killed)
    found = cluster.fit(model(**settings), X, y, weight, checkpoint_dir=folder)
    thread.join(1)
    assert killed, "the training was over before a worker could be killed"
    assert [r["loss"] for r in found.history_] == [r["loss"] for r in undisturbed.history_]
    np.testing.assert_array_equal(found.predict(X), undisturbed.predict(X))


@pytest.mark.slow
def test_what_is_wrong_with_a_table_or_a_folder_is_said_as_in_one_process(local, tmp_path):
    X, y, _ = table()
    with pytest.raises(ValueError, match="Input y contains NaN or infinity: the first in row 3"):
        cluster.fit(model(**SMALL), X, np.where(np.arange(len(y)) == 3, np.nan, y))
    model(**SMALL).fit(X[:100], y[:100], checkpoint_dir=tmp_path)
    with pytest.raises(checkpoints.OtherFitError, match="the data are others"):
        cluster.fit(model(**SMALL), X, y, checkpoint_dir=tmp_path)
    with pytest.warns(UserWarning, match="constant column"):
        cluster.fit(model(**SMALL), X.assign(d=1.0), y)
    with pytest.raises(ValueError, match=r"9 worker\(s\) .* more than the 2 of the cluster"):
        cluster.fit(model(**SMALL), X, y, n_workers=9)
    with pytest.raises(ValueError, match="cluster must be 'local', 'auto' or"):
        cluster.fit(model(**SMALL), X, y, cluster="here")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "layout", "out"),
    [
        ("frame", "long", "draws.parquet"),
        ("file", "long", "draws"),
        ("file", "list", "draws.parquet"),
        ("folder", "list", "draws"),
    ],
)
def test_draws_of_a_cluster_are_those_of_one_process(local, tmp_path, source, layout, out):
    X, y, _ = table()
    fitted, (new, _, _) = KNN(n_neighbors=20).fit(X, y), table(5000, seed=1)
    new.to_parquet(tmp_path / "file", row_group_size=1999)
    (tmp_path / "folder").mkdir()
    for part in range(3):
        rows = new.iloc[2000 * part : 2000 * (part + 1), ::-1]
        rows.assign(more=1).to_parquet(tmp_path / f"folder/{part}.parquet")
    options = {"random_state": 7, "layout": layout}
    streaming.sample_to_parquet(fitted, new, tmp_path / "expected.parquet", 30, **options)
    given = new if source == "frame" else tmp_path / source
    assert cluster.sample_to_parquet(fitted, given, tmp_path / out, 30, **options) == 5000
    expected = pd.read_parquet(tmp_path / "expected.parquet")
    found = pd.read_parquet(tmp_path / out)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        cluster.sample_to_parquet(fitted, given, tmp_path / out, 30, **options)


@pytest.mark.slow
def test_predictions_of_a_cluster_are_those_of_one_process(local, tmp_path):
    X, y, _ = table()
    fitted = model(**SMALL).fit(X, y)
    new = table(1000, seed=1)[0]
    new.loc[5, "a"] = 1e3
    cluster_file, file = tmp_path / "cluster.parquet", tmp_path / "here.parquet"
    with pytest.warns(OutOfSupportWarning, match="1 of 1,000 rows lie far"):
        assert cluster.predict_to_parquet(fitted, new, cluster_file, (0.1, 0.9)) == 1000
    with pytest.warns(OutOfSupportWarning):
        streaming.predict_to_parquet(fitted, new, file, (0.1, 0.9))
    found, expected = pd.read_parquet(cluster_file), pd.read_parquet(file)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    new.loc[700, "b"] = np.inf
    with pytest.raises(ValueError, match=r"rows from 625 on.*column 'b'.*row 75"):
        cluster.predict_to_parquet(fitted, new, tmp_path / "bad.parquet")
    assert not (tmp_path / "bad.parquet").exists()


@pytest.mark.slow
def test_a_worker_killed_while_it_draws_changes_nothing(local, tmp_path):
    X, y, _ = table(2000)
    fitted, new = model(**(SMALL | {"n_trees": 60})).fit(X, y), table(60_000, seed=1)[0]
    streaming.sample_to_parquet(fitted, new, tmp_path / "expected.parquet", 20, random_state=3)
    killed = []
    thread = kill_when(lambda: True, "MapBatches", killed)
    cluster.sample_to_parquet(fitted, new, tmp_path / "found.parquet", 20, random_state=3)
    thread.join(1)
    assert killed, "the draws were made before a worker could be killed"
    files = [pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("expected", "found")]
    pd.testing.assert_frame_equal(*files, check_exact=True)


def trials_of(found):
    return found.trials[["number", "settings", "score", "state"]]


@pytest.mark.slow
def test_with_one_worker_a_search_is_that_of_one_process(local, tmp_path):
    X, y, _ = table()
    options = {"random_state": 0, "n_trials": 12, "space": {**GENTLE.search_space}}
    game = model(**(GAME | {"n_epochs": 10}))
    expected = tuning.search(game, X, y, **options)
    found = cluster.search(game, X, y, n_workers=1, folder=tmp_path / "study", **options)
    pd.testing.assert_frame_equal(trials_of(found), trials_of(expected))
    assert set(found.trials["state"]) == {"finished", "stopped early"}
    assert found.own_score == expected.own_score
    np.testing.assert_array_equal(found.model.predict(X), expected.model.predict(X))
    again = tuning.search(game, X, y, folder=tmp_path / "study", **options)  # nothing is left to do
    pd.testing.assert_frame_equal(trials_of(again), trials_of(expected))


@pytest.mark.slow
def test_a_grid_on_two_workers_is_that_of_one_process(local, tmp_path):
    X, y, _ = table()
    grid, options = {"n_neighbors": (3, 30, -1)}, {"criterion": "crps", "random_state": 0}
    with pytest.warns(UserWarning, match="n_neighbors must be an integer"):
        expected = tuning.grid_search("KNN", grid, X, y, **options)
    with pytest.warns(UserWarning, match="n_neighbors must be an integer"):
        found = cluster.grid_search("KNN", grid, X, y, folder=tmp_path / "study", **options)
    pd.testing.assert_frame_equal(trials_of(found), trials_of(expected))


@pytest.mark.slow
def test_a_worker_killed_in_a_search_costs_no_trial(local):
    X, y, _ = table(1500)
    slow = model(n_steps=400, n_trees=4, hidden_widths=(64, 64))
    space = {"lr_generator": GENTLE.search_space["lr_generator"]}
    killed = []
    thread = kill_when(lambda: time.sleep(1) is None, "ImplicitFunc", killed)
    found = cluster.search(slow, X, y, space=space, n_trials=4, random_state=0)
    thread.join(1)
    assert killed, "the search was over before a worker could be killed"
    assert len(found.trials) == 4
    assert set(found.trials["state"]) <= {"finished", "stopped early"}


@pytest.mark.slow
def test_the_command_line_works_on_a_cluster(local, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from gentle.cli.app import app

    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done

    monkeypatch.chdir(tmp_path)
    X, y, _ = table()
    X.assign(y=y).to_csv("rows.csv", index=False)
    on = ("--cluster", "local", "--workers", 2)
    settings = ("--set", "n_steps=12", "--set", "hidden_widths=(8,)", "--set", "n_trees=6")
    for out, where in (("here", ()), ("there", on)):
        run("fit", "rows.csv", "-t", "y", "-o", out, "--seed", 1, *settings, "--threads", 1, *where)
        run("sample", "here", "rows.csv", "-n", 5, "-o", f"{out}.parquet", "--seed", 1, *where)
        run("predict", "here", "rows.csv", "-o", f"{out}.pq", *where)
    for ending in (".parquet", ".pq"):
        files = [pd.read_parquet(f"{name}{ending}") for name in ("here", "there")]
        pd.testing.assert_frame_equal(*files, check_exact=True)
    from gentle import load

    answers = [load(name).predict(X) for name in ("here", "there")]
    np.testing.assert_allclose(*answers, atol=2e-3)
    tune = ("tune", "rows.csv", "-t", "y", "-o", "knn", "-m", "KNN", "--trials", 3, "--seed", 1)
    assert "3 of 3 trials done" in run(*tune, *on).stderr
    refused = CliRunner().invoke(app, ["sample", "here", "rows.csv", "--cluster", "local"])
    assert refused.exit_code == 2
    assert "it writes Parquet" in refused.stderr
