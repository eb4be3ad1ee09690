"""Effects: what is asked of known laws comes back, intervals hold, assumptions are always said."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.base import BaseEstimator

import gentle
from gentle.distribution import QuantileTable
from gentle.effects import policy_effects, propensity, treatment_effects
from gentle.populations import Population
from gentle.resampling import Replicates
from gentle.support import OutOfSupportWarning

LEVELS = np.arange(1, 10) / 10
GRID = norm.cdf(np.linspace(-6, 6, 2001))
GRID[[0, -1]] = 0, 1
Z = np.linspace(-6, 6, 2001)
EXAMPLES = Path(__file__).parent.parent / "examples"


class Law(BaseEstimator):
    """The truth: N(x + t (1 + x), (1 + t / 2)²), whatever it is fitted to."""

    def fit(self, X, y, sample_weight=None):
        return self

    def predict_dist(self, X):
        t, x = np.asarray(X, float)[:, :2].T[:, :, None]
        return QuantileTable(GRID, x + t * (1 + x) + (1 + t / 2) * Z)


class Zeros(Law):
    """0 with probability x / (1 + t), otherwise uniform on (0, 1 + t)."""

    def predict_dist(self, X):
        t, x = np.asarray(X, float)[:, :2].T[:, :, None]
        levels = np.concatenate([0 * x, x / (1 + t), 1 + 0 * x], axis=1)
        return QuantileTable(levels, np.concatenate([0 * x, 0 * x, 1 + t], axis=1))


class Line(BaseEstimator):
    """Weighted least squares of y on t, x and a constant, with normal residuals."""

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        A, root = np.column_stack([X, np.ones(len(y))]), np.sqrt(weight)[:, None]
        self.coef_ = np.linalg.lstsq(root * A, root[:, 0] * np.asarray(y), rcond=None)[0]
        gap = np.asarray(y) - A @ self.coef_
        self.scale_ = np.sqrt(np.average(gap**2, weights=weight))
        return self

    def predict_dist(self, X):
        mean = np.column_stack([X, np.ones(len(X))]) @ self.coef_
        return QuantileTable(GRID, mean[:, None] + self.scale_ * Z)


def confounded(n=600, seed=0, effect=2.0):
    """Those with large x are treated more often and have larger responses anyway."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    t = (rng.random(n) < norm.cdf(x)).astype(float)
    X = pd.DataFrame({"t": t, "x": x})
    return X, pd.Series(effect * t + 3 * x + rng.normal(size=n), name="wage")


def mixture_quantile(level, mean, scale):
    def gap(y):
        return norm.cdf((y - mean) / scale).mean() - level

    return brentq(gap, -50, 50, xtol=1e-10)


def quiet(*args, **options):
    return treatment_effects(*args, **{"uncertainty": None, "trim": None} | options)


def test_population_effects_are_differences_of_the_mixtures_quantiles():
    X, y = confounded()
    found = quiet(Law(), X, y, "t", levels=LEVELS, thresholds=[0.0, 2.0])
    x = X["x"].to_numpy()
    control = [mixture_quantile(level, x, 1.0) for level in LEVELS]
    treated = [mixture_quantile(level, 1 + 2 * x, 1.5) for level in LEVELS]
    np.testing.assert_allclose(found.quantiles["control"], control, atol=5e-3)
    np.testing.assert_allclose(found.quantiles["treated"], treated, atol=5e-3)
    np.testing.assert_allclose(found.quantiles["effect"], np.subtract(treated, control), atol=1e-2)
    above = [np.mean(norm.sf((t - 1 - 2 * x) / 1.5) - norm.sf(t - x)) for t in (0.0, 2.0)]
    np.testing.assert_allclose(found.thresholds["effect"], above, atol=1e-5)
    np.testing.assert_allclose(found.mean["effect"], 1 + x.mean(), atol=1e-6)


def test_conditional_effects_are_means_of_differences_of_the_rows_quantiles():
    X, y = confounded()
    found = quiet(Law(), X, y, "t", levels=LEVELS, estimand="conditional").quantiles["effect"]
    np.testing.assert_allclose(found, 1 + X["x"].mean() + 0.5 * norm.ppf(LEVELS), atol=1e-4)
    other = quiet(Law(), X, y, "t", levels=LEVELS).quantiles["effect"]
    assert np.abs(found - other).max() > 0.5  # the two are not the same question


def test_an_effect_that_turns_everybody_round_has_no_quantile_effects():
    """Y(1) = -Y(0), symmetric: individual effects are large, the distribution stays as it is."""

    class Turned(Law):
        def predict_dist(self, X):
            return QuantileTable(GRID, np.tile(Z, (len(X), 1)))  # of Y(0) and of Y(1)

    rng = np.random.default_rng(0)
    y0 = rng.normal(size=4000)
    individual = -y0 - y0
    X = pd.DataFrame({"t": np.arange(4000) % 2, "x": rng.normal(size=4000)})
    found = quiet(Turned(), X, np.where(X["t"] == 1, -y0, y0), "t", levels=LEVELS)
    assert np.abs(found.quantiles["effect"]).max() == 0
    assert np.quantile(individual, 0.9) > 2
    assert "not quantiles of differences" in str(found)


def test_atoms_are_exact():
    X = pd.DataFrame({"t": [0, 1] * 50, "x": np.linspace(0.2, 0.8, 100)})
    found = quiet(Zeros(), X, np.arange(100.0), "t", levels=[0.2, 0.4], thresholds=[0.0])
    assert found.quantiles["control"].tolist() == [0.0, 0.0]
    # P(Y = 0) is 1/4 on average under treatment; from there the mixture has density 3/8.
    np.testing.assert_allclose(found.quantiles["treated"], [0.0, 0.15 / 0.375], atol=1e-3)
    np.testing.assert_allclose(found.thresholds["control"], [0.5], atol=1e-12)
    np.testing.assert_allclose(found.thresholds["treated"], [0.75], atol=1e-12)


def test_the_mixture_of_discrete_rows_is_their_pooled_sample():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 5, (200, 1)).astype(float), rng.poisson(3, 200).astype(float)
    model = gentle.KNN(n_neighbors=30).fit(X, y)
    weight = rng.random(200)
    levels, values = np.linspace(0.005, 0.995, 100), np.arange(-1.0, 12)
    mixture = Population.of(X, weight).mixture(model.predict_dist)
    cdf = np.average(model.cdf(X, np.tile(values, (200, 1))), axis=0, weights=weight)
    np.testing.assert_allclose(mixture.cdf(values[None])[0], cdf, atol=1e-12)
    first = np.searchsorted(cdf, levels)
    assert mixture.quantile(levels)[0].tolist() == values[first].tolist()


def test_confounding_that_is_measured_is_undone():
    X, y = confounded(n=4000)
    naive = y[X["t"] == 1].mean() - y[X["t"] == 0].mean()
    assert naive > 4  # the truth is 2
    found = quiet(gentle.QRGMM(verbose=0, random_state=0).fit(X, y), X, y, "t", levels=LEVELS)
    np.testing.assert_allclose(found.mean["effect"], 2, atol=0.2)
    np.testing.assert_allclose(found.quantiles["effect"], 2, atol=0.35)


def test_weights_are_copies():
    X, y = confounded(n=200)
    times = np.random.default_rng(1).integers(0, 4, 200)
    copies = np.repeat(np.arange(200), times)
    more, again = X.iloc[copies].reset_index(drop=True), y.iloc[copies].reset_index(drop=True)
    one = Line().fit(X, y, times)
    # The mixture picks its points from the rows, so that its quantiles agree nearly, not exactly.
    weighted = quiet(one, X, y, "t", sample_weight=times)
    repeated = quiet(one, more, again, "t")
    for name in ("mean", "thresholds", "quantiles"):
        pd.testing.assert_frame_equal(
            getattr(weighted, name), getattr(repeated, name), rtol=1e-3, atol=1e-3
        )


def test_the_standard_error_of_the_bootstrap_is_that_of_least_squares():
    X, y = confounded(n=500)
    model = Line().fit(X, y)
    found = treatment_effects(model, X, y, "t", n_boot=200, trim=None, population=X[:5])
    A = np.column_stack([X, np.ones(500)])
    expected = model.scale_ * np.sqrt(np.linalg.inv(A.T @ A)[0, 0])
    error = (found.mean["upper"] - found.mean["lower"])[0] / 2 / norm.ppf(0.975)
    assert 0.8 * expected < error < 1.25 * expected


def test_the_bootstrap_by_group_knows_that_copies_tell_nothing_new():
    X, y = confounded(n=150)
    X, y = (table.loc[table.index.repeat(9)].reset_index(drop=True) for table in (X, y))
    model, width = Line().fit(X, y), {}
    for name, groups in {"row": None, "group": np.arange(1350) // 9}.items():
        found = treatment_effects(
            model, X, y, "t", groups=groups, n_boot=80, trim=None, population=X[:5]
        )
        width[name] = float((found.mean["upper"] - found.mean["lower"]).iloc[0])
    assert 2.2 < width["group"] / width["row"] < 4  # 3 = √9
    assert "whole groups (150)" in found.uncertainty


def test_uniform_bands_are_those_of_the_largest_of_m_deviations():
    values = np.random.default_rng(0).normal(size=(20_000, 10))
    bands = Replicates(values, np.full(20_000, 1 / 20_000), "bootstrap", "").bands(
        np.zeros(10), 0.9
    )
    one, all_ = norm.ppf(0.95), norm.ppf((1 + 0.9**0.1) / 2)
    np.testing.assert_allclose(bands["upper"], one, rtol=0.02)
    np.testing.assert_allclose(bands["uniform_lower"], -all_, rtol=0.03)


def test_a_band_where_nothing_varies_has_no_width():
    values = np.column_stack([np.zeros(50), np.arange(50.0)])
    bands = Replicates(values, np.full(50, 0.02), "bootstrap", "").bands(np.zeros(2), 0.9)
    assert bands["uniform_upper"][0] == 0 < bands["uniform_upper"][1] < np.inf


@pytest.mark.slow
def test_bands_hold_the_truth_as_often_as_they_say():
    """Location and scale shift at once would break `Line`; a location shift is its own law."""
    held = {"uniform": 0, "pointwise": 0}
    n_worlds, people = 60, pd.DataFrame({"t": 0.0, "x": [-1.0, 0.0, 1.0]})
    for seed in range(n_worlds):
        X, y = confounded(n=150, seed=seed)
        found = treatment_effects(
            Line().fit(X, y), X, y, "t", levels=LEVELS, n_boot=40, confidence=0.9, trim=None,
            population=people, random_state=seed,
        ).quantiles  # fmt: skip
        for kind, prefix in (("uniform", "uniform_"), ("pointwise", "")):
            low, high = found[f"{prefix}lower"], found[f"{prefix}upper"]
            held[kind] += bool(((low <= 2) & (high >= 2)).all())
    # All effects are one number here, so that one interval would do for all levels.
    assert all(0.78 * n_worlds <= times < n_worlds for times in held.values()), held


@pytest.mark.slow
def test_uniform_bands_hold_a_whole_curve_where_intervals_for_each_level_do_not():
    """Treated and controls are two samples, so that the levels vary nearly for themselves."""
    truth = norm.ppf(LEVELS)  # the treated have twice the spread of the controls
    held = {"uniform_": 0, "": 0}
    n_worlds, people = 50, np.array([[0.0, 0.0]])
    for seed in range(n_worlds):
        rng = np.random.default_rng(seed)
        X = np.column_stack([np.arange(400) % 2, np.zeros(400)]).astype(float)
        y = (1 + X[:, 0]) * rng.normal(size=400)
        found = treatment_effects(
            TwoSamples().fit(X, y), X, y, 0, levels=LEVELS, n_boot=100, confidence=0.9,
            trim=None, population=people, random_state=seed,
        ).quantiles  # fmt: skip
        for prefix in held:
            low, high = found[f"{prefix}lower"], found[f"{prefix}upper"]
            held[prefix] += bool(((low <= truth) & (truth <= high)).all())
    assert 0.78 * n_worlds <= held["uniform_"]
    assert held[""] < 0.8 * n_worlds


class TwoSamples(BaseEstimator):
    """The empirical distributions of the treated and of the controls, the latter for everything."""

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.arms_ = [
            QuantileTable.of_sample(y[X[:, 0] == t], weight[X[:, 0] == t]) for t in (0, 1)
        ]
        return self

    def predict_dist(self, X):
        assert len(set(X[:, 0])) == 1
        return self.arms_[int(X[0, 0])].repeat(len(X))


def separated(n=900, seed=0):
    """Below x = 1/3 nobody is treated, above 2/3 everybody."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    t = np.where(x < 1 / 3, 0, np.where(x > 2 / 3, 1, rng.integers(0, 2, n)))
    return pd.DataFrame({"t": t, "x": x}), rng.normal(size=n)


def test_rows_without_counterparts_are_left_out_and_counted():
    X, y = separated()
    for population, expected in (
        ("all", X["x"].between(1 / 3, 2 / 3)),
        ("treated", (X["t"] == 1) & (X["x"] < 2 / 3)),
        ("control", (X["t"] == 0) & (X["x"] > 1 / 3)),
    ):
        found = treatment_effects(Law(), X, y, "t", population=population, uncertainty=None)
        n_before = {"all": 900}.get(population, int((X["t"] == (population == "treated")).sum()))
        assert abs(found.overlap.kept.sum() - expected.sum()) < 15
        assert found.overlap.n_trimmed == n_before - found.overlap.kept.sum() > 0
        assert f"{found.overlap.n_trimmed:,} more have no overlap" in str(found)
        kept = X.loc[
            {"all": X["t"] >= 0, "treated": X["t"] == 1, "control": X["t"] == 0}[population]
        ]
        kept = kept["x"][found.overlap.kept]
        np.testing.assert_allclose(found.mean["effect"], 1 + kept.mean())  # of the rows kept
    given = treatment_effects(Law(), X, y, "t", population=X.drop_duplicates(), uncertainty=None)
    assert 0 < given.overlap.n_trimmed < 900
    whole = quiet(Law(), X, y, "t")
    assert whole.overlap.n_trimmed == 0
    np.testing.assert_allclose(whole.mean["effect"], 1 + X["x"].mean())


def test_no_overlap_at_all_is_an_error_that_says_so():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"t": np.arange(400) % 2, "x": np.arange(400) % 2 + 0.1 * rng.random(400)})
    with pytest.raises(ValueError, match="no row of the population has both"):
        treatment_effects(Law(), X, rng.normal(size=400), "t", uncertainty=None)


def test_propensity_is_the_probability_of_treatment():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    truth = norm.cdf(x[:, 0])
    treated = rng.random(3000) < truth
    found = propensity(x, treated)
    assert np.abs(found - truth).mean() < 0.03
    steps = np.where(np.abs(x[:, 1]) < 1, 0.9, 0.1)  # what no straight line can tell
    found = propensity(x, rng.random(3000) < steps, groups=np.arange(3000) // 3)
    assert np.abs(found - steps).mean() < 0.06


def test_assumptions_are_printed_with_every_effect():
    X, y = confounded(n=100)
    shown = treatment_effects(Line().fit(X, y), X, y, "t", n_boot=5)
    changed = policy_effects(Fitted(X), X, y, {"x": 0.0}, uncertainty=None)
    for text in (str(shown), repr(shown), str(changed), repr(changed)):
        assert "Assumptions, without which these are no effects" in text
        assert "No interference" in text
        assert "not quantiles of differences" in text
    assert "with equal x, who is treated" in str(shown)
    assert "5 refits to rows drawn with replacement" in str(shown)
    assert "cause and effect, not people's choice" in str(changed)


def test_any_two_values_of_any_column_can_be_compared():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "dose": pd.Categorical(rng.choice(["none", "low", "high"], 900)),
            "x": rng.integers(0, 2, 900),
        }
    )
    y = X["dose"].map({"none": 0.0, "low": 1.0, "high": 3.0}).astype(float) + rng.random(900) / 10
    model = gentle.KNN(n_neighbors=100).fit(X, y)
    found = quiet(model, X, y, "dose", treated="high", control="low", trim=0.1)
    np.testing.assert_allclose(found.mean["effect"], 2, atol=0.01)
    assert found.overlap.n_treated == (X["dose"] == "high").sum()
    with pytest.raises(ValueError, match="has the levels"):
        quiet(model, X, y, "dose", treated="huge", control="low")
    X, y = confounded()
    array = quiet(Law(), X.to_numpy(), y, 0, treated=0.5, control=0)
    np.testing.assert_allclose(array.mean["effect"], (1 + X["x"].mean()) / 2)
    assert array.overlap is None
    assert "Overlap could not be checked" in str(array)


def test_a_treatment_without_covariates_compares_all_rows():
    X = np.arange(100.0)[:, None] % 2
    model = gentle.KNN(n_neighbors=50).fit(X, np.arange(100.0) + 5 * X[:, 0])
    found = quiet(model, X, np.arange(100.0), 0, trim=0.1)
    np.testing.assert_allclose(found.mean["effect"], 6)
    assert "among all rows, who is treated" in str(found)
    assert "Overlap could not" not in str(found)


def test_errors_say_what_is_wrong():
    X, y = confounded(n=50)
    for options, message in (
        ({"treatment": "drug"}, "no column 'drug'"),
        ({"population": "everyone"}, "'all', 'treated', 'control' or a table"),
        ({"population": "treated", "treated": 7}, "no row of X is treated"),
        ({"estimand": "both"}, "'population' or 'conditional'"),
        ({"levels": [0.5, 1.0]}, "levels must lie between 0 and 1"),
        ({"trim": 0.7}, "trim must be"),
        ({"confidence": 95}, "confidence must lie"),
        ({"uncertainty": "magic"}, "'bootstrap', 'ensemble' or None"),
        ({"uncertainty": "bootstrap", "n_boot": 1}, "n_boot must be at least 2"),
        ({"uncertainty": "bootstrap", "groups": [1, 2]}, "it has 2 entries"),
        ({"uncertainty": "ensemble"}, "no average of several parts"),
    ):
        with pytest.raises(ValueError, match=message):
            quiet(Law(), X, y, **{"treatment": "t"} | options)


class Fitted(Law):
    """The law of `Law`, with the memory of the training ranges that fitted models have."""

    def __init__(self, X):
        model = gentle.KNN(n_neighbors=2).fit(X, np.arange(len(X)))
        self.covariate_encoder_ = model.covariate_encoder_
        self._encoded_covariates = model._encoded_covariates


@pytest.mark.filterwarnings("ignore::gentle.support.OutOfSupportWarning")
def test_a_policy_is_a_function_or_new_values_of_columns():
    X, y = confounded()
    x, t = X["x"], X["t"]
    by_dict = policy_effects(
        Fitted(X), X, y, {"t": lambda t: 0 * t, "x": lambda x: x.clip(lower=0)}, uncertainty=None
    )
    np.testing.assert_allclose(
        by_dict.mean["effect"], (x.clip(lower=0) - (x + t * (1 + x))).mean(), atol=1e-6
    )

    def policy(table):
        table["t"], table["x"] = 0, table["x"].clip(lower=0)
        return table

    before = X.copy()
    by_function = policy_effects(Fitted(X), X, y, policy, uncertainty=None)
    pd.testing.assert_frame_equal(X, before)
    pd.testing.assert_frame_equal(by_dict.quantiles, by_function.quantiles)
    assert f"changes {((x < 0) | (t == 1)).sum():,} of them" in by_dict.population
    nothing = policy_effects(Fitted(X), X, y, {}, uncertainty=None)
    assert (nothing.quantiles["effect"] == 0).all()
    with pytest.raises(ValueError, match="rows and columns of X"):
        policy_effects(Fitted(X), X, y, lambda table: table[:3], uncertainty=None)


def test_a_policy_beyond_the_data_is_said_to_be_a_guess():
    X, y = confounded()
    with pytest.warns(OutOfSupportWarning, match="is a guess"):
        found = policy_effects(Fitted(X), X, y, {"x": lambda x: x + 20}, uncertainty=None)
    assert "100% of the rows under the policy" in str(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        within = policy_effects(Fitted(X), X, y, {"x": lambda x: 0.99 * x}, uncertainty=None)
    assert within.caution == ""


def test_the_parts_of_an_average_give_intervals_without_refits():
    X, y = confounded(n=150)
    model = gentle.GENTLE(n_steps=20, hidden_widths=(8,), n_trees=0, verbose=0, random_state=0)
    found = quiet(model.fit(X, y), X, y, "t", levels=[0.25, 0.75], uncertainty="ensemble")
    table = found.quantiles
    assert (table["lower"] < table["effect"]).all()
    assert (table["uniform_upper"] > table["upper"]).all()
    assert "disagreement of" in found.uncertainty


def test_parts_of_an_average_average_to_it():
    X, y = confounded(n=150)
    model = gentle.GENTLE(n_steps=20, hidden_widths=(8,), n_trees=0, verbose=0, random_state=0)
    x = model.fit(X, y)._encoded_covariates(X[:4])
    parts = model.ensemble_.parts(x)
    assert sum(share for share, _ in parts) == pytest.approx(1)
    assert [share for share, _ in parts] == model.ensemble_.shares()
    centre = sum(share * table.quantile(0.5) for share, table in parts)
    np.testing.assert_allclose(centre, model.predict_quantiles(X[:4], 0.5), rtol=0.2, atol=0.2)


def test_a_seed_gives_the_same_intervals_and_leaves_global_ones_alone():
    X, y = confounded(n=100)
    model, state = Line().fit(X, y), np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = (
        treatment_effects(model, X, y, "t", n_boot=5, random_state=seed).quantiles
        for seed in (0, 0, 1)
    )
    pd.testing.assert_frame_equal(one, same)
    assert (one["lower"] != other["lower"]).all()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing():
    X, y = confounded(n=100)
    model = gentle.KNN(n_neighbors=20).fit(X, y)
    one, two = (
        treatment_effects(model, X, y, "t", n_boot=4, n_workers=workers) for workers in (1, 2)
    )
    pd.testing.assert_frame_equal(one.quantiles, two.quantiles)


def test_a_refit_that_fails_is_named():
    class Once(Line):
        def fit(self, X, y, sample_weight=None):
            if sample_weight is not None:
                raise ValueError("not again")
            return super().fit(X, y)

    X, y = confounded(n=50)
    with pytest.raises(RuntimeError, match="refit 1 of 3 failed: not again"):
        treatment_effects(Once().fit(X, y), X, y, "t", n_boot=3)


def test_the_picture_shows_effect_interval_and_band():
    X, y = confounded(n=100)
    axis = treatment_effects(Line().fit(X, y), X, y, "t", n_boot=5).plot(unit="dollars")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        "95 %, all levels at once",
        "95 %, each level alone",
        "quantile effect",
        "mean effect",
    ]
    assert axis.get_ylabel() == "effect (dollars)"


@pytest.mark.slow
def test_the_example_sets_the_estimate_beside_the_experiment(tmp_path):
    command = [sys.executable, str(EXAMPLES / "treatment_effects.py"), "--quick", "--out", tmp_path]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    for words in ("1,794", "Assumptions", "185 treated", "16,177", "experiment"):
        assert words in shown.stdout
    assert (tmp_path / "effects.png").stat().st_size > 10_000
