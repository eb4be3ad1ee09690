"""Metamodels: designs fill their space, simulators' faults are named, known laws come back."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator

import gentle
from gentle.datasets.ecm import simulate_ecm
from gentle.distribution import QuantileTable
from gentle.metamodel import contrast, design, replicate, risk, speed_up, validate

SPACE = {"a": (0.0, 1.0), "s": (0.5, 2.0)}
Z = np.linspace(-6, 6, 4001)
GRID = norm.cdf(Z)
GRID[[0, -1]] = 0, 1
EXAMPLES = Path(__file__).parent.parent / "examples"


def simulator(X, rng):
    return rng.normal(X["a"], X["s"])


class Law(BaseEstimator):
    """The law of the simulator, off by ``shift`` where a < 1/2."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, X, y, sample_weight=None):
        return self

    def predict_dist(self, X):
        a, s = np.asarray(X, float).T[:, :, None]
        return QuantileTable(GRID, a + self.shift * (a < 0.5) + s * Z)

    def sample(self, X, n_samples=1, random_state=None, u=None):
        return self.predict_dist(X).sample(n_samples, random_state, u)

    def predict_quantiles(self, X, alpha):
        return self.predict_dist(X).quantile(alpha)


class Normal(Law):
    """A normal distribution with the responses' mean and deviation, at all inputs."""

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.mean_ = np.average(y, weights=weight)
        self.std_ = np.sqrt(np.average((y - self.mean_) ** 2, weights=weight))
        return self

    def predict_dist(self, X):
        return QuantileTable(GRID, np.tile(self.mean_ + self.std_ * Z, (len(X), 1)))


@pytest.mark.parametrize("method", ["sobol", "lhs", "uniform"])
def test_designs_keep_to_their_space_and_seed(method):
    space = {"x": (-2.0, 3.0), "n": range(55, 81), "kind": ["a", "b", "c"], "flag": [True, False]}
    X = design(space, 300, method, random_state=3)
    assert list(X) == list(space)
    assert X["x"].between(-2, 3).all()
    assert X["n"].min() == 55
    assert X["n"].max() == 80
    assert set(X["kind"]) == {"a", "b", "c"}
    assert X["n"].dtype.kind == "i"
    assert X["flag"].dtype == bool
    pd.testing.assert_frame_equal(X, design(space, 300, method, random_state=3))
    assert not X.equals(design(space, 300, method, random_state=4))
    worst = {"sobol": 5, "lhs": 1, "uniform": 30}[method]
    assert (X["kind"].value_counts() - 100).abs().max() <= worst


def test_designs_fill_better_than_chance():
    n, sides = 256, {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    for method in ("sobol", "lhs"):
        for column in sides:  # one point in each n-th of every side
            u = (design(sides, n, method)[column] * n) % n
            gap = np.diff(np.sort(u))
            assert gap.max() < 2 + 1e-9, (method, column)
    cells = {
        m: np.unique((design(sides, n, m) * 16).astype(int), axis=0) for m in ("sobol", "uniform")
    }
    # Of 256 squares, a share of e⁻¹ stays empty by chance.
    assert len(cells["sobol"]) > 1.2 * len(cells["uniform"])


def test_a_design_that_cannot_be_is_refused():
    for space, message in (
        ({"x": (1.0, 1.0)}, "'x' must run from low to high"),
        ({"x": 3}, "a range or a list"),
        ({"x": "abc"}, "a range or a list"),
        ({}, "needs inputs"),
    ):
        with pytest.raises(ValueError, match=message):
            design(space, 5)
    with pytest.raises(ValueError, match="'sobol', 'lhs' or 'uniform'"):
        design(SPACE, 5, "grid")


def test_replications_of_an_input_stand_together_and_differ():
    X = design(SPACE, 50)
    table = replicate(simulator, X, 400, random_state=1)
    assert len(table) == 20_000
    pd.testing.assert_frame_equal(table.X[::400].reset_index(drop=True), X)
    y = table.y.reshape(50, 400)
    assert len(np.unique(y)) == 20_000
    assert np.abs((y.mean(axis=1) - X["a"]) / X["s"]).max() < 4.5 / 20
    assert (table.y == replicate(simulator, X, 400, random_state=1).y).all()


def test_a_simulators_faults_are_told_with_the_row():
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0], "s": 1.0})

    def raises(X, rng):
        if (X["a"] == 2).any():
            raise ZeroDivisionError("no patients")
        return X["a"]

    with pytest.raises(RuntimeError, match=r"row 2, {'a': 2.0, 's': 1.0}: ZeroDivisionError"):
        replicate(raises, X)
    with pytest.raises(ValueError, match=r"gave nan at row 1, {'a': 1.0"):
        replicate(lambda X, rng: X["a"].where(X["a"] != 1), X)
    with pytest.raises(ValueError, match=r"shape \(3, 2\) for 3 rows"):
        replicate(lambda X, rng: rng.random((len(X), 2)), X)


def test_a_perfect_model_scores_as_the_noise_does():
    found = validate(Law(), simulator, design(SPACE, 30, random_state=5), 1000, random_state=6)
    assert found.summary.loc["wd", "score"] < 1.3 * found.summary.loc["wd", "noise"]
    assert found.summary.loc["rmse", "score"] < 1.5 * found.summary.loc["rmse", "noise"]
    assert found.summary.loc["coverage", "score"] == pytest.approx(0.9, abs=0.01)
    assert (found.points["z"].abs() < 4).all()
    assert "beyond chance (more than 3 standard errors) at 0 inputs" in found.verdict()


def test_validation_finds_where_a_model_is_wrong():
    X = design(SPACE, 20, random_state=5)
    found = validate(Law(shift=0.5), simulator, X, 1000, random_state=6)
    wrong = found.points["a"] < 0.5
    assert (found.points["z"].abs() > 4).eq(wrong).all()
    assert (found.worst()["a"] < 0.5).all()
    np.testing.assert_allclose(found.points["wd"][wrong], 0.5, atol=0.25)
    assert found.summary.loc["wd", "score"] > 2 * found.summary.loc["wd", "noise"]
    assert f"at {wrong.sum()} inputs" in found.verdict()
    pd.testing.assert_frame_equal(found.points[["a", "s"]], X)


def test_common_random_numbers_couple_as_closely_as_can_be():
    first, second = pd.DataFrame({"a": [0.0], "s": 1.0}), pd.DataFrame({"a": [1.0], "s": 1.5})
    found = contrast(Law(), first, second, n_draws=4000, random_state=0)
    # On one u the difference is 1 + Z/2; independent draws have variance 1 + 1.5².
    assert found.standard_error[0] == pytest.approx(0.5 / np.sqrt(4000), rel=0.05)
    assert found.independent_error[0] == pytest.approx(np.sqrt(3.25 / 4000), rel=0.05)
    assert found.variance_reduction[0] == pytest.approx(13, rel=0.15)
    assert abs(found.difference[0] - 1) < 4 * found.standard_error[0]
    assert found.larger[0] == pytest.approx(norm.cdf(2), abs=0.02)
    u = np.array([0.1, 0.5, 0.9])
    fixed = contrast(Law(), first, second, u=u)
    np.testing.assert_allclose(fixed.first[0], norm.ppf(u), atol=1e-4)
    np.testing.assert_allclose(fixed.second[0] - fixed.first[0], 1 + norm.ppf(u) / 2, atol=1e-4)
    with pytest.raises(ValueError, match="1 first and 2 second inputs"):
        contrast(Law(), first, pd.concat([second, second]))


@pytest.mark.parametrize("tail", ["upper", "lower"])
def test_risk_is_that_of_the_normal_law(tail):
    X = pd.DataFrame({"a": [0.0, 1.0], "s": [1.0, 2.0]})
    found = risk(Law(), X, level=0.9, tail=tail, thresholds=[0.5])
    z, sign = norm.ppf(0.9), 1 if tail == "upper" else -1
    beyond = norm.pdf(z) / 0.1  # mean of a standard normal variable above z
    expected = [
        [sign * z, sign * beyond, norm.sf(0.5)],
        [1 + 2 * sign * z, 1 + 2 * sign * beyond, norm.sf(-0.25)],
    ]
    np.testing.assert_allclose(found["value"], np.ravel(expected), atol=2e-3)
    assert found["row"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found["measure"].tolist()[:3] == ["VaR 90%", "CVaR 90%", "P(> 0.5)"]


def test_the_risk_of_a_population_is_that_of_the_mixture():
    X = pd.DataFrame({"a": [0.0, 4.0], "s": [1.0, 2.0]})
    found = risk(Law(), X, level=0.8, thresholds=[1.0], mixed=True).set_index("measure")["value"]
    draws = Law().sample(X, 400_000, 0).ravel()
    var = np.quantile(draws, 0.8)
    assert found["VaR 80%"] == pytest.approx(var, abs=0.02)
    assert found["CVaR 80%"] == pytest.approx(draws[draws > var].mean(), abs=0.02)
    assert found["P(> 1)"] == pytest.approx((norm.sf(1) + norm.sf(-1.5)) / 2, abs=1e-5)


def test_intervals_of_risk_are_as_wide_as_theory_has_them():
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"a": rng.random(400), "s": 1.0}), rng.normal(size=400)
    model = Normal().fit(X, y)
    found = risk(model, X[:1], level=0.9, data=(X, y), n_boot=200).iloc[0]
    # The delta method for mean + z · sd of n normal numbers.
    expected = 2 * norm.ppf(0.975) * np.sqrt((1 + norm.ppf(0.9) ** 2 / 2) / 400)
    assert found["upper"] - found["lower"] == pytest.approx(expected, rel=0.25)
    assert found["lower"] < norm.ppf(0.9) < found["upper"]
    grouped = risk(
        model,
        X[:1],
        level=0.9,
        data=(np.repeat(X, 4, axis=0), np.repeat(y, 4)),
        groups=np.repeat(np.arange(400), 4),
        n_boot=100,
    ).iloc[0]
    assert grouped["upper"] - grouped["lower"] == pytest.approx(expected, rel=0.35)


def test_risk_refuses_what_makes_no_sense():
    X = pd.DataFrame({"a": [0.0], "s": 1.0})
    for options, message in (
        ({"level": 95}, "must lie in"),
        ({"tail": "left"}, "'upper' or 'lower'"),
        ({"uncertainty": "ensemble"}, "no average of several parts"),
    ):
        with pytest.raises(ValueError, match=message):
            risk(Law(), X, **options)
    assert "lower" not in risk(Law(), X)  # without data there is nothing to refit


def test_speed_is_measured():
    def slow(X, rng):
        time.sleep(0.2)
        return simulator(X, rng)

    found = speed_up(Law(), slow, pd.DataFrame({"a": [0.0, 1.0], "s": 1.0}), n_draws=50)
    assert 20 < found.simulator < 500  # 100 outputs in at least 0.2 s
    assert found.factor == found.model / found.simulator > 1
    assert found.answers > 1
    assert "50 outputs at each of 2 inputs" in str(found)


def test_the_way_from_a_simulator_to_its_model():
    """ECM: what a forest of few runs says about a patient is about what the simulator says."""
    space = {
        "Barrett": (0.0, 0.1),
        "aspirinEffect": (0.0, 1.0),
        "statinEffect": (0.0, 1.0),
        "drugIndex": [1, 2],
        "initialAge": range(55, 81),
    }

    def ecm(X, rng):
        return simulate_ecm(X, random_state=rng)[:, 0]

    table = replicate(ecm, design(space, 4096), random_state=1)
    model = gentle.KNN(n_neighbors=100).fit(*table)
    found = validate(model, ecm, design(space, 20, random_state=2), 500, random_state=3)
    assert found.summary.loc["wd", "score"] < 0.4 * found.points["mean"].std()
    means = np.corrcoef(found.points["mean"], found.points["predicted_mean"])[0, 1]
    assert means > 0.9


@pytest.mark.slow
def test_the_example_replaces_the_simulator(tmp_path):
    command = [sys.executable, str(EXAMPLES / "replace_a_simulator.py")]
    command += ["--quick", "--out", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    for words in ("aspirin", "statin", "VaR", "per second", "common random numbers"):
        assert words in shown.stdout
    assert (tmp_path / "patient.png").stat().st_size > 10_000
