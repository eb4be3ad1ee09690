"""Scores agree with their definitions, weights with copies, perfect models with the noise floor."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.metrics import crps_of_draws, evaluate, interval_score, noise_floor, pinball
from gentle.models.gentle import GENTLE

LEVELS = np.concatenate([[0], np.linspace(0.0005, 0.9995, 401), [1]])
NORMAL = stats.norm.ppf(np.clip(LEVELS, 1e-5, 1 - 1e-5))
SCORES = ["mean", "predicted_mean", "squared_error", "crps", "pinball", "interval_score"]
SCORES += ["covered", "wd", "ks"]


class Normal:
    """Y ~ N(x₁ + shift, spread²), as a table of quantiles."""

    def __init__(self, spread=1.0, shift=0.0):
        self.spread, self.shift = spread, shift

    def predict_dist(self, X):
        centre = np.asarray(X, float)[:, :1] + self.shift
        return QuantileTable(LEVELS, centre + self.spread * NORMAL)

    def sample(self, X, n_samples=1, random_state=None):
        return self.predict_dist(X).sample(n_samples, random_state)


class NormalSimulator:
    """Y ~ N(x₁, 1), known by its draws only."""

    def sample(self, X, n_samples, random_state):
        centre = np.asarray(X, float)[:, :1]
        return np.random.default_rng(random_state).normal(centre, 1.0, (len(X), n_samples))


def table(counts, seed=0, columns=2):
    """A shuffled table in which covariate i has counts[i] responses from N(x₁, 1)."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(len(counts), columns)), counts, axis=0)
    X = X[rng.permutation(len(X))]
    return X, X[:, 0] + rng.normal(size=len(X))


def rows_like(x, X):
    return np.all(np.equal(X, x), axis=1)


def numbers(shape, bound=1e3):
    return hnp.arrays(np.float64, shape, elements=st.floats(-bound, bound, width=32))


# Elementary scores


@given(st.data(), st.integers(1, 4), st.integers(1, 30))
def test_crps_of_draws_is_the_double_sum(data, n, m):
    draws, y = data.draw(numbers((n, m))), data.draw(numbers((n,)))
    spread = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    oracle = np.abs(draws - y[:, None]).mean(axis=1) - spread / 2
    np.testing.assert_allclose(crps_of_draws(draws, y), oracle, atol=1e-9)


def normal_crps(y, mean, sd):
    z = (y - mean) / sd
    inner = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    return sd * inner


def test_crps_of_many_draws_tends_to_the_closed_form_of_a_normal():
    mean, sd, y = np.array([0.0, 5.0]), np.array([1.0, 3.0]), np.array([[-1.0, 0.2], [4.0, 15.0]])
    draws = np.random.default_rng(0).normal(mean[:, None], sd[:, None], (2, 200_000))
    oracle = normal_crps(y, mean[:, None], sd[:, None])
    np.testing.assert_allclose(crps_of_draws(draws, y), oracle, atol=0.03)


def test_integral_of_the_pinball_loss_is_half_the_crps():
    dist, y = Normal(2.0).predict_dist([[1.0], [3.0]]), np.array([0.3, 9.0])
    alpha = (np.arange(20_000) + 0.5) / 20_000
    losses = pinball(dist.quantile(alpha), y, alpha)
    assert losses.shape == (2, 20_000)
    np.testing.assert_allclose(2 * losses.mean(axis=1), dist.crps(y), rtol=1e-4)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.8])
def test_expected_pinball_loss_is_smallest_at_the_quantile(alpha):
    y, grid = np.random.default_rng(0).gamma(2.0, size=5000), np.linspace(0, 8, 801)
    losses = [pinball([q], y, [alpha]).mean() for q in grid]
    assert grid[np.argmin(losses)] == pytest.approx(np.quantile(y, alpha), abs=0.011)


def test_interval_score_is_the_pinball_losses_of_its_ends():
    rng = np.random.default_rng(0)
    lower, upper, y = rng.normal(-1, 0.3, 50), rng.normal(1, 0.3, 50), rng.normal(size=50)
    losses = pinball(np.stack([lower, upper], axis=1), y, [0.1, 0.9])
    np.testing.assert_allclose(interval_score(lower, upper, y, 0.8), losses.sum(axis=1) * 2 / 0.2)
    with pytest.raises(ValueError, match="coverage"):
        interval_score(0.0, 1.0, 0.5, coverage=1.0)


# Records


def test_records_are_the_definitions_written_out():
    X, y = table([40, 25, 60], seed=1)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    model, alpha = Normal(1.5, 0.2), np.arange(1, 10) / 10
    scores = evaluate(model, X, y, weight, n_samples=5000)
    for _, record in scores.records.iterrows():
        x = X[int(record["first_row"])]
        own = rows_like(x, X)
        z, w = y[own], weight[own]
        dist = model.predict_dist([x] * len(z))
        lower, upper = dist.interval(0.9).T
        oracle = {
            "n_responses": len(z),
            "weight": w.sum(),
            "mean": np.average(z, weights=w),
            "predicted_mean": x[0] + 0.2,
            "squared_error": (np.average(z, weights=w) - x[0] - 0.2) ** 2,
            "crps": np.average(normal_crps(z, x[0] + 0.2, 1.5), weights=w),
            "pinball": np.average(
                pinball(dist.quantile(alpha), z, alpha), axis=0, weights=w
            ).mean(),
            "interval_score": np.average(interval_score(lower, upper, z, 0.9), weights=w),
            "covered": np.average((lower <= z) & (z <= upper), weights=w),
        }
        found = record[list(oracle)].to_dict()
        assert found == pytest.approx(oracle, rel=1e-3)
        # The draws are not known here, but 5,000 of them are nearly the law itself.
        grid = model.predict_dist([x]).quantile((np.arange(20_000) + 0.5) / 20_000)[0]
        distance = stats.wasserstein_distance(grid, z, v_weights=w)
        assert record["wd"] == pytest.approx(distance, abs=0.06)
        order = np.argsort(z)
        after = np.cumsum(w[order]) / w.sum()
        law = stats.norm.cdf(z[order], x[0] + 0.2, 1.5)
        gap = max(np.abs(after - law).max(), np.abs(after - w[order] / w.sum() - law).max())
        assert record["ks"] == pytest.approx(gap, abs=0.03)


class Fixed:
    """A simulator that gives the same draws every time."""

    def __init__(self, sample):
        self.drawn = sample

    def sample(self, X, n_samples, random_state):
        return np.tile(self.drawn, (len(X), 1))


@settings(deadline=None, max_examples=50)
@given(numbers((30,)), hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-50, 50)))
def test_distances_are_those_of_scipy(draws, y):
    X = np.zeros((len(y), 1))
    scores = evaluate(Fixed(draws), X, y, n_samples=30, min_responses=1).summary()
    assert scores["wd"] == pytest.approx(stats.wasserstein_distance(draws, y), abs=1e-8)
    assert scores["ks"] == pytest.approx(stats.ks_2samp(draws, y).statistic, abs=1e-9)
    assert scores["crps"] == pytest.approx(crps_of_draws([draws] * len(y), y).mean(), abs=1e-8)
    assert scores["mse"] == pytest.approx((draws.mean() - y.mean()) ** 2, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 12))
def test_a_weight_of_k_scores_like_k_copies(data, n):
    X = data.draw(hnp.arrays(np.float64, (n, 2), elements=st.sampled_from([0.0, -0.0, 1.5])))
    y = data.draw(numbers((n,), 20))
    copies = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, 4)))
    assume(copies.any())
    options = {"n_samples": 50, "min_responses": 1}
    weighted = evaluate(Normal(), X, y, copies, **options).records
    copied = evaluate(Normal(), np.repeat(X, copies, 0), np.repeat(y, copies), **options).records
    np.testing.assert_allclose(weighted[SCORES], copied[SCORES], atol=1e-9)
    np.testing.assert_allclose(weighted["weight"], copied["n_responses"])


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 15))
def test_the_order_of_rows_does_not_matter(data, n):
    X = data.draw(hnp.arrays(np.float64, (n, 1), elements=st.integers(0, 3).map(float)))
    y, order = data.draw(numbers((n,), 20)), data.draw(st.permutations(range(n)))
    options = {"n_samples": 50, "min_responses": 2}
    one = evaluate(Normal(), X, y, **options)
    other = evaluate(Normal(), X[order], y[order], **options)
    assert one.summary() == pytest.approx(other.summary(), nan_ok=True, rel=1e-9, abs=1e-9)


def test_a_record_does_not_depend_on_the_other_covariates():
    X, y = table([30, 30, 30])
    whole = evaluate(Normal(), X, y, n_samples=100).records
    own = rows_like(X[0], X)
    alone = evaluate(Normal(), X[own], y[own], n_samples=100).records
    np.testing.assert_allclose(
        alone.loc[0, SCORES].astype(float), whole.loc[0, SCORES].astype(float)
    )


def test_memory_bounds_do_not_change_the_scores(monkeypatch):
    X, y = table([3, 25, 40, 1, 200, 31])
    whole = evaluate(Normal(), X, y, n_samples=100).records
    chunks = Grouped.chunks  # one covariate at a time
    monkeypatch.setattr(Grouped, "chunks", lambda self, extra_cells: chunks(self, max_cells=1))
    pd.testing.assert_frame_equal(evaluate(Normal(), X, y, n_samples=100).records, whole)


def test_covariates_with_few_responses_have_no_distances():
    X, y = table([5, 19, 20, 1, 100])
    scores = evaluate(Normal(), X, y, n_samples=200)
    few = scores.records["n_responses"] < 20
    assert few.sum() == 3
    assert scores.records.loc[few, ["wd", "ks"]].isna().all(axis=None)
    assert scores.records.loc[~few].notna().all(axis=None)
    assert scores.records.drop(columns=["wd", "ks"]).notna().all(axis=None)
    summary = scores.summary()
    assert summary["n_repeated"] == 2
    assert summary["wd"] == pytest.approx(scores.records.loc[~few, "wd"].mean())
    single = evaluate(Normal(), *table([1] * 10), n_samples=10).summary()
    assert np.isnan([single["wd"], single["ks"]]).all()


def test_summary_counts_covariates_once_and_responses_by_weight():
    X, y = np.array([[0.0]] * 3 + [[1.0]]), np.array([0.0, 1.0, 2.0, 5.0])
    weight = np.array([1.0, 2.0, 1.0, 6.0])
    model = Normal()
    scores = evaluate(model, X, y, weight, n_samples=10).summary()
    assert scores["mse"] == pytest.approx((1.0 + 16.0) / 2)  # means 1 and 5 against 0 and 1
    assert scores["r2"] == pytest.approx(1 - 17.0 / 8.0)
    crps = np.average(model.predict_dist(X).crps(y), weights=weight)
    assert scores["crps"] == pytest.approx(crps)
    assert scores["coverage"] == pytest.approx((1 + 2) / 10)  # 2 and 5 lie beyond 1.64 and 2.64
    assert np.isnan(evaluate(model, X[:3], y[:3], n_samples=10).summary()["r2"])


def test_with_one_response_each_mse_and_r2_are_those_of_regression():
    X, y = table([1] * 200)
    scores = evaluate(Normal(), X, y).summary()
    residual = ((y - X[:, 0]) ** 2).sum()
    assert scores["mse"] == pytest.approx(residual / 200)
    assert scores["r2"] == pytest.approx(1 - residual / ((y - y.mean()) ** 2).sum())


def test_ragged_counts_are_scored_like_each_covariate_alone():
    X, y = table([20, 3000, 21, 20, 1, 20], columns=3)
    scores = evaluate(Normal(), X, y, n_samples=400).records
    for i, start in enumerate(scores["first_row"]):
        own = rows_like(X[start], X)
        alone = evaluate(Normal(), X[own], y[own], n_samples=400).records
        np.testing.assert_allclose(scores.loc[[i], SCORES], alone[SCORES], rtol=1e-9)


def test_one_long_list_of_responses_does_not_pad_all_others():
    X, y = table([100_000] + [25] * 1000)
    tracemalloc.start()
    evaluate(Normal(), X, y, n_samples=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6  # 1,001 covariates of 100,000 cells: 800 MB for a single array


def test_the_same_seed_gives_the_same_scores_and_another_seed_others():
    X, y = table([30] * 3)
    one, same, other = (evaluate(Normal(), X, y, n_samples=50, random_state=s) for s in (1, 1, 2))
    assert one.summary() == same.summary()
    assert one.summary()["wd"] != other.summary()["wd"]
    assert "interval_score" in str(one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1.0]}, "y has shape"),
        ({"y": [1.0, np.nan]}, "y is nan in row 1"),
        ({"X": [1.0, 2.0]}, "X must be a table"),
        ({"X": np.empty((0, 1)), "y": []}, "X must be a table"),
        ({"X": pd.DataFrame({"a": [1.0, np.inf]})}, "column 'a'"),
        ({"sample_weight": [1.0, -1.0]}, "negative"),
        ({"sample_weight": [0.0, 0.0]}, "positive"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"min_responses": 0}, "min_responses must be at least 1"),
    ],
)
def test_input_that_cannot_be_scored_is_refused_with_the_reason(change, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Normal(), **({"X": [[0.0], [1.0]], "y": [0.0, 1.0]} | change))


def test_a_fitted_model_is_scored_on_frames_with_its_column_names():
    X, y = table([30] * 8)
    frame = pd.DataFrame({"dose": X[:, 0], "age": X[:, 1]})
    model = GENTLE(n_steps=5, n_trees=6, random_state=0, verbose=0).fit(frame, y)
    scores = evaluate(model, frame, y, n_samples=500)
    np.testing.assert_allclose(
        scores.records["predicted_mean"], model.predict(frame)[scores.records["first_row"]]
    )
    assert scores.summary()["crps"] == pytest.approx(model.predict_dist(frame).crps(y).mean())
    with pytest.raises(ValueError, match="dose"):
        evaluate(model, frame.rename(columns={"dose": "other"}), y)


# The noise floor


COUNTS = np.array([30, 80, 50])


@pytest.fixture(scope="module")
def direct():
    """Average distances between 300 and COUNTS fresh draws of a standard normal, by scipy."""
    rng = np.random.default_rng(9)

    def distances(n):
        a, b = rng.normal(size=300), rng.normal(size=n)
        return stats.wasserstein_distance(a, b), stats.ks_2samp(a, b, method="asymp").statistic

    runs = np.mean([[distances(n) for n in COUNTS] for _ in range(200)], axis=1)
    return pd.DataFrame(runs, columns=["wd", "ks"]).agg(["mean", "std"])


@pytest.mark.parametrize("truth", [Normal(), NormalSimulator()], ids=["model", "simulator"])
def test_noise_floor_of_a_normal_is_that_of_direct_simulation(truth, direct):
    floor = noise_floor(truth, table(COUNTS)[0], n_repeats=200, n_samples=300)
    for name in ("wd", "ks"):
        mean, sd = direct[name]
        error = sd * np.sqrt(2 / 200)
        assert floor.loc[name, "mean"] == pytest.approx(mean, abs=4 * error)
        assert floor.loc[name, "sd"] == pytest.approx(sd, rel=0.25)
    # In closed form: E(mean of n responses - truth)² = 1/n, E CRPS = 1/√π, 90 % lie inside.
    assert floor.loc["mse", "mean"] == pytest.approx(np.mean(1 / COUNTS), rel=0.25)
    assert floor.loc["crps", "mean"] == pytest.approx(1 / np.sqrt(np.pi), abs=0.015)
    assert floor.loc["coverage", "mean"] == pytest.approx(0.9, abs=0.01)


def test_mse_floor_of_a_simulator_is_that_of_its_exact_mean():
    X, _ = table([100] * 50)
    floor = noise_floor(NormalSimulator(), X, n_repeats=30, n_samples=100)
    assert floor.loc["mse", "mean"] == pytest.approx(1 / 100, rel=0.15)  # one set of draws: 2 / 100


def test_a_perfect_model_scores_at_the_noise_floor_and_a_wrong_one_above():
    X, y = table([200] * 60)
    floor = noise_floor(NormalSimulator(), X, n_repeats=20, n_samples=1000)
    proper = ["wd", "ks", "crps", "pinball", "interval_score"]

    def excess(model):
        score = pd.Series(evaluate(model, X, y, n_samples=1000).summary())
        return ((score - floor["mean"]) / floor["sd"])[proper]

    assert (np.abs(excess(Normal())) < 4.5).all()  # of five scores, with an estimated sd
    for spread in (0.5, 2.0):
        assert (excess(Normal(spread)) > 4.5).all(), spread


def test_bootstrap_floor_is_close_to_the_true_one_and_leaves_out_rare_covariates():
    X, y = table([100] * 40 + [3] * 5)
    own = noise_floor(None, X, y, n_repeats=20, n_samples=1000)
    true = noise_floor(Normal(), table([100] * 40)[0], n_repeats=20, n_samples=1000)
    assert own.loc["n_covariates", "mean"] == 40
    names = ["wd", "ks", "mse", "crps", "interval_score"]
    np.testing.assert_allclose(own["mean"].loc[names], true["mean"].loc[names], rtol=0.15)


def test_floor_follows_the_weights():
    X, y = table([40] * 40)
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=len(X)) ** 2  # a few responses count for most
    for truth in (Normal(), None):
        plain = noise_floor(truth, X, y, n_repeats=4, n_samples=200)
        weighted = noise_floor(truth, X, y, weight, n_repeats=4, n_samples=200)
        assert weighted.loc["wd", "mean"] > 1.3 * plain.loc["wd", "mean"]


def test_noise_floor_is_reproducible_and_keeps_frames():
    class Named(Normal):
        def predict_dist(self, X):
            assert list(X.columns) == ["dose", "age"]
            return super().predict_dist(X)

    X = pd.DataFrame(table([25, 30])[0], columns=["dose", "age"])
    one, same = (noise_floor(Named(), X, n_repeats=2, n_samples=50) for _ in range(2))
    pd.testing.assert_frame_equal(one, same)
    other = noise_floor(Named(), X, n_repeats=2, n_samples=50, random_state=1)
    assert one.loc["wd", "mean"] != other.loc["wd", "mean"]


def test_noise_floor_refuses_what_it_cannot_simulate():
    X, y = table([5, 6])
    with pytest.raises(ValueError, match="both None"):
        noise_floor(None, X)
    with pytest.raises(ValueError, match="no covariate has 20 responses"):
        noise_floor(None, X, y)
    with pytest.raises(ValueError, match="n_repeats"):
        noise_floor(Normal(), X, n_repeats=1)
    with pytest.raises(ValueError, match=r"shape \(2, 7\)"):
        noise_floor(Fixed(np.zeros(7)), X)


def test_against_single_responses_wd_prefers_a_too_narrow_model_and_crps_does_not():
    X, y = table([1] * 300)
    narrow, true = (
        evaluate(Normal(spread), X, y, n_samples=500, min_responses=1).summary()
        for spread in (0.05, 1.0)
    )
    assert narrow["wd"] < true["wd"]
    assert narrow["crps"] > true["crps"]
