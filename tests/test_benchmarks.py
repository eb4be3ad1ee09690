"""The benchmarks: nothing is done twice, test rows stay unseen, errors are what they claim."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import gentle

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
harness = pytest.importorskip("harness")
import synthetic  # noqa: E402
import tables  # noqa: E402

pytest.importorskip("optuna")


def keys(X):
    return set(X.astype(object).where(X.notna(), None).itertuples(index=False, name=None))


@pytest.fixture
def run(monkeypatch, tmp_path):
    def run(benchmark, *args):
        argv = ["benchmark", "--workers", "1", "--out", str(tmp_path), *map(str, args)]
        monkeypatch.setattr(sys, "argv", argv)
        harness.main(benchmark, "")
        return tmp_path

    return run


def test_a_run_that_goes_on_does_only_what_is_missing(run):
    args = ("--tables", "engel", "--methods", "KNN,Marginal", "--splits", "0-1", "--max-rows", 60)
    folder = run(tables.Tables(), *args, "--trials", 2)
    cells = {path: path.stat().st_mtime_ns for path in folder.glob("cells/engel/*.json")}
    search = folder / "tuning" / "engel" / "knn.json"
    trials = json.loads(search.read_text())["trials"]
    assert len(cells) == 4
    assert len(trials) == 2
    assert trials[0]["settings"] == {}  # as it comes
    gone = folder / "cells" / "engel" / "marginal-1.json"
    gone.unlink()
    run(tables.Tables(), *args, "--trials", 2)
    assert gone.exists()
    assert all(path == gone or path.stat().st_mtime_ns == time for path, time in cells.items())
    run(tables.Tables(), *args, "--trials", 4)
    assert json.loads(search.read_text())["trials"][:2] == trials
    report = (folder / "report.md").read_text()
    assert "| engel |" in report
    assert len(pd.read_csv(folder / "cells.csv")) == 4


def test_a_cell_holds_the_scores_of_its_rows(run):
    args = ("--tables", "wage1", "--methods", "KNN", "--splits", 1, "--max-rows", 80)
    folder = run(tables.Tables(), *args, "--trials", 0)
    facts = json.loads((folder / "cells" / "wage1" / "knn-1.json").read_text())
    data = gentle.datasets.load("wage1", n_train=80, random_state=1)
    model = gentle.KNN(random_state=1).fit(*data.train, eval_set=tuple(data.val))
    crps = model.predict_dist(data.test.X).crps(data.test.y)
    assert facts["crps"] == pytest.approx(crps.mean())
    assert (facts["n_train"], facts["n_val"], facts["n_test"]) == (80, 40, len(data.test))
    assert facts["coverage_50"] < facts["coverage_80"] < facts["coverage_90"] <= 1
    assert facts["versions"]["gentle-ot"] == gentle.__version__
    with np.load(folder / "cells" / "wage1" / "knn-1.npz") as arrays:
        np.testing.assert_allclose(arrays["crps"], crps, rtol=1e-6)
        assert arrays["crps"].dtype == np.float32


def test_redoing_a_method_leaves_the_others_alone(run):
    args = ("--tables", "engel", "--methods", "KNN,Marginal", "--splits", 0, "--max-rows", 60)
    folder = run(tables.Tables(), *args, "--trials", 1) / "cells" / "engel"
    before = {name: (folder / f"{name}-0.json").stat().st_mtime_ns for name in ("knn", "marginal")}
    run(tables.Tables(), *args, "--trials", 1, "--redo", "KNN")
    assert (folder / "knn-0.json").stat().st_mtime_ns > before["knn"]
    assert (folder / "marginal-0.json").stat().st_mtime_ns == before["marginal"]


def test_what_has_failed_gets_another_chance(run, monkeypatch):
    args = ("--tables", "engel", "--methods", "KNN", "--splits", 0, "--max-rows", 60)
    fit = gentle.KNN.fit

    def fail(*args, **kwargs):
        raise ValueError("no columns of this kind yet")

    monkeypatch.setattr(gentle.KNN, "fit", fail)
    folder = run(tables.Tables(), *args, "--trials", 5)
    assert not list(folder.glob("cells/**/*.json"))
    assert "Nothing has been run yet" in (folder / "report.md").read_text()
    trials = json.loads((folder / "tuning" / "engel" / "knn.json").read_text())["trials"]
    assert [trial["error"] for trial in trials] == ["ValueError: no columns of this kind yet"] * 3
    monkeypatch.setattr(gentle.KNN, "fit", fit)
    run(tables.Tables(), *args, "--trials", 5)
    assert (folder / "cells" / "engel" / "knn-0.json").exists()


def test_a_cell_of_gentle_with_other_defaults_is_done_anew():
    plan = harness.Plan(tables.Tables(), Path(), ["engel"], ["GENTLE"], [0], {}, 0)
    for method, tolerant in (("GENTLE", False), ("KNN", True)):
        cell = plan.cell("engel", method, 0, {})
        facts = json.loads(json.dumps(cell.facts()))
        assert cell.agrees(facts)
        assert cell.agrees(facts | {"settings": facts["settings"] | {"new": 1}}) is tolerant
        assert not cell.agrees(facts | {"settings": facts["settings"] | {"random_state": 7}})


def test_validation_mode_sees_no_test_row():
    benchmark = tables.Tables()
    for split in (0, 1):
        test = keys(gentle.datasets.load("charity", random_state=split).test.X)
        options = benchmark.options(None, validation=True)
        seen = [keys(part.X) for part in benchmark.parts("charity", split, options)]
        assert len(test.union(*seen)) == len(test) + sum(map(len, seen))


class Fixed:
    """A benchmark whose test rows are given."""

    def __init__(self, X):
        self.X = X

    def parts(self, dataset, split, options):
        return None, None, SimpleNamespace(X=self.X)


@pytest.mark.parametrize("copies", [1, 3])
def test_the_paired_error_counts_equal_covariates_once(copies):
    rng = np.random.default_rng(0)
    ours, theirs = rng.random((2, 40)).astype(np.float32)
    X = pd.DataFrame({"x": np.repeat(np.arange(40), copies), "kind": "a"})
    plan: object = SimpleNamespace(splits=[0, 1], options={}, benchmark=Fixed(X))

    def cells(crps):
        return dict.fromkeys([0, 1], ({}, {"crps": np.repeat(crps, copies)}))

    difference = ours.astype(float) - theirs
    mean, error = tables.paired(plan, "", cells(ours), cells(theirs))
    assert mean == pytest.approx(difference.mean())
    # Both splits score the same rows, so they tell no more than one.
    assert error == pytest.approx(difference.std(ddof=1) / math.sqrt(40))


def test_verdicts_and_losses_are_told_as_they_are():
    crps = pd.Series({"GENTLE": 1.2, "KNN": 1.0, "CatBoost": 1.1})
    X = pd.DataFrame({"x": np.arange(50)})
    plan: object = SimpleNamespace(splits=[0], options={}, benchmark=Fixed(X))
    rng = np.random.default_rng(0)
    rows = {m: {0: ({}, {"crps": value + 0.01 * rng.random(50)})} for m, value in crps.items()}
    complete = {("t", method): cells for method, cells in rows.items()}
    worse = tables.verdict(plan, "t", crps, complete)
    assert (worse["verdict"], worse["best"], worse["rival"]) == ("worse", "KNN", "KNN")
    assert worse["ratio"] == pytest.approx(1.2)
    assert "KNN is better by 20.0 %" in tables._losses(pd.DataFrame([worse]))
    complete["t", "GENTLE"] = {0: ({}, {"crps": np.full(50, 0.5)})}
    best = tables.verdict(plan, "t", crps.replace(1.2, 0.5), complete)
    assert (best["verdict"], best["best"]) == ("best", "GENTLE")


class Shifted:
    """The truth, moved up."""

    def predict_quantiles(self, X, alpha):
        return gentle.datasets.PROBLEMS["linear-normal"].quantile(X, alpha) + 0.5


def test_a_shift_is_measured_exactly():
    benchmark = synthetic.Synthetic()
    _, _, test = benchmark.parts("linear-normal", 0, benchmark.options(100, False))
    scores, arrays = benchmark.measured(Shifted(), "linear-normal", test, 0)
    errors = [scores[name] * scores["spread"] for name in synthetic._SCORES]
    np.testing.assert_allclose(errors, 0.5)
    np.testing.assert_allclose(arrays["w1"], 0.5, rtol=1e-6)


def test_fine_levels_integrate_quantile_functions():
    levels, weights = synthetic.fine_levels()
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(levels) > 0).all()
    exponential = -np.log1p(-levels)
    assert exponential @ weights == pytest.approx(1, rel=1e-4)
    tail = levels > 0.99
    assert weights[tail].sum() == pytest.approx(0.01)
    assert exponential[tail] @ weights[tail] / 0.01 == pytest.approx(math.log(100) + 1, rel=1e-4)


def test_the_synthetic_report_has_every_score(run):
    args = ("--problems", "tanh-plus-gamma", "--methods", "KNN,Marginal", "--splits", 0)
    folder = run(synthetic.Synthetic(), *args, "--max-rows", 200, "--trials", 0)
    report = (folder / "report.md").read_text()
    assert all(f"## {label}\n" in report for label in synthetic._SCORES.values())
    scores = pd.read_csv(folder / "cells.csv").set_index("method")
    assert scores.loc["KNN", "w1"] < scores.loc["Marginal", "w1"]
