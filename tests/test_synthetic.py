"""The nine synthetic problems: formula, sampler, quantiles, distribution function, mean agree."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from gentle.datasets import PROBLEMS, ExactTruth, load

NAMES = list(PROBLEMS)
LEVELS = np.array([0.001, 0.02, 0.1, 0.3, 0.5, 0.77, 0.95, 0.999])

# The law of each problem written down a second time, at one covariate, as scipy knows it.
ORACLES = {
    "tanh-plus-gamma": lambda x: stats.gamma(1, loc=np.tanh(x), scale=0.3).cdf,
    "tanh-of-normal": lambda x: lambda y: stats.norm(x, 0.05**0.5).cdf(np.arctanh(y)),
    "tanh-times-gamma": lambda x: (
        lambda y: (
            stats.gamma(1, scale=0.3).cdf(y / np.tanh(x))
            if x > 0
            else stats.gamma(1, scale=0.3).sf(y / np.tanh(x))
        )
    ),
    "constant-spread": lambda a, b, c, d, e: (
        stats.norm(a * a + np.exp(b + c / 3) + np.sin(d + e), 1).cdf
    ),
    "varying-spread": lambda a, b, c, d, e: (
        stats.norm(a * a + np.exp(b + c / 3) + d - e, 0.5 + b * b / 2 + e * e / 2).cdf
    ),
    "log-mixture": lambda a, b, c, d, e: (
        lambda y: np.mean(
            [
                stats.norm(m, 1).cdf(2 * np.log(y / (5 + a * a / 3 + b * b + c * c + d + e)))
                for m in (-2, 2)
            ],
            axis=0,
        )
    ),
    "two-branches": lambda a, *_: (
        lambda y: (stats.norm(-a, 0.25).cdf(y) + stats.norm(a, 0.25).cdf(y)) / 2
    ),
    "linear-normal": lambda a, b, c: (
        stats.norm(5 + a + 2 * b + 0.5 * c, 1 + 0.1 * a + 0.2 * b + 0.05 * c).cdf
    ),
    "sine-laplace": lambda a, b: stats.laplace(0.05 * a * b, 5 * np.sin(a + b) ** 2 + 5).cdf,
}


@pytest.mark.parametrize("name", NAMES)
def test_distribution_function_is_that_of_the_formula(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(6, 0)
    y = problem.quantile(X, LEVELS)
    for row, points, levels in zip(X.to_numpy(), y, problem.cdf(X, y)):
        np.testing.assert_allclose(levels, ORACLES[name](*row)(points), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_quantile_and_distribution_function_are_inverse(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(200, 1)
    y = problem.quantile(X, LEVELS)
    assert y.shape == (200, len(LEVELS))
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(
        problem.cdf(X, y), np.broadcast_to(LEVELS, y.shape), rtol=0, atol=1e-10
    )
    np.testing.assert_array_equal(problem.cdf(X, y[:, 2]), problem.cdf(X, y)[:, 2])


@pytest.mark.parametrize("name", NAMES)
def test_samples_follow_the_distribution_function(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(20, 2)
    y = problem.sample(X, 1_000, random_state=3)
    assert y.shape == (20, 1_000)
    assert stats.kstest(problem.cdf(X, y).ravel(), "uniform").pvalue > 1e-3
    for row in problem.cdf(X, y):
        assert stats.kstest(row, "uniform").pvalue > 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_mean_is_that_of_the_samples(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(5, 4)
    y = problem.sample(X, 40_000, random_state=5)
    assert problem.mean(X).shape == (5,)
    assert (np.abs(y.mean(axis=1) - problem.mean(X)) < 4 * y.std(axis=1) / 200).all()


@pytest.mark.parametrize("name", NAMES)
def test_mean_is_the_integral_of_the_quantile_function(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(1, 6)
    t = np.linspace(-8, 8, 4_001)  # u = Φ(t) spreads the tails out
    integrand = problem.quantile(X, stats.norm.cdf(t))[0] * stats.norm.pdf(t)
    assert problem.mean(X)[0] == pytest.approx(integrate.simpson(integrand, x=t), abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_support_ends_where_the_levels_end(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(30, 7)
    ends = problem.quantile(X, [0, 1])
    assert not np.isnan(ends).any()
    inner = problem.quantile(X, LEVELS)
    assert (ends[:, :1] <= inner).all()
    assert (inner <= ends[:, 1:]).all()
    beyond = np.tile([-np.inf, np.inf], (30, 1))
    np.testing.assert_array_equal(problem.cdf(X, beyond), np.tile([0.0, 1.0], (30, 1)))


def test_product_with_tanh_flips_for_negative_x_and_is_an_atom_at_zero():
    problem = PROBLEMS["tanh-times-gamma"]
    X = pd.DataFrame({"x1": [-1.3, 0.0, 1.3]})
    quantiles = problem.quantile(X, [0.2, 0.8])
    np.testing.assert_allclose(quantiles[0], -quantiles[2, ::-1])
    np.testing.assert_array_equal(problem.quantile(X, [0, 0.5, 1])[1], 0)
    np.testing.assert_array_equal(problem.cdf(X, np.tile([-1e-9, 0, 1e-9], (3, 1)))[1], [0, 1, 1])
    np.testing.assert_array_equal(problem.sample(X, 10, random_state=0)[1], 0)
    np.testing.assert_array_equal(
        np.sign(problem.sample(X, 50, random_state=0)[[0, 2], 0]), [-1, 1]
    )


def test_log_mixture_turns_round_where_its_factor_is_negative():
    problem = PROBLEMS["log-mixture"]
    X = pd.DataFrame([[0, 0, 0, -3, -3]], columns=problem.columns)  # factor -1
    y = problem.quantile(X, LEVELS)
    assert (y < 0).all()
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(problem.cdf(X, y)[0], LEVELS, atol=1e-10)
    assert (
        stats.kstest(problem.sample(X, 5_000, 0)[0], lambda y: problem.cdf(X, y[None])[0])[1] > 1e-3
    )


def test_squashed_response_stays_inside_the_unit_interval():
    problem = PROBLEMS["tanh-of-normal"]
    X = problem.sample_x(3, 0)
    np.testing.assert_array_equal(problem.cdf(X, [-2, -1, -1.0]), 0)
    np.testing.assert_array_equal(problem.cdf(X, [1, 1.0, 5]), 1)
    np.testing.assert_array_equal(problem.quantile(X, [0, 1]), np.tile([-1, 1], (3, 1)))


def test_two_branches_have_two_modes_and_median_zero():
    problem = PROBLEMS["two-branches"]
    X = pd.DataFrame([[2.0, 0, 0, 0, 0], [-2.0, 9, 9, 9, 9]], columns=problem.columns)
    quantiles = problem.quantile(X, [0.25, 0.75])
    np.testing.assert_allclose(quantiles, [[-2, 2], [-2, 2]], atol=1e-9)
    np.testing.assert_allclose(problem.quantile(X[:0], 0.5), np.empty((0, 1)))
    np.testing.assert_array_equal(problem.mean(X), 0)


@pytest.mark.parametrize("name", NAMES)
def test_covariates_have_their_stated_law(name):
    problem = PROBLEMS[name]
    X = problem.sample_x(4_000, 8)
    assert list(X) == [f"x{i}" for i in range(1, X.shape[1] + 1)]
    for column, (low, high) in zip(X, problem.bounds):
        law = stats.uniform(low, high - low) if np.isfinite(high) else stats.norm()
        assert stats.kstest(X[column], law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_is_reproducible_and_varies_with_the_seed(name):
    sizes = {"n_train": 300, "n_val": 20, "n_test": 30}
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = load(name, **sizes), load(name, **sizes)
    other = load(name, **sizes, random_state=1)
    assert (len(first.train), len(first.val), len(first.test)) == (300, 20, 30)
    for part in ("train", "val", "test"):
        pd.testing.assert_frame_equal(getattr(first, part).X, getattr(again, part).X)
        np.testing.assert_array_equal(getattr(first, part).y, getattr(again, part).y)
        assert not np.array_equal(getattr(first, part).y, getattr(other, part).y)
    longer = load(name, **sizes | {"n_train": 400})
    np.testing.assert_array_equal(first.test.y, longer.test.y)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_responses_of_the_benchmark_follow_its_truth(name):
    benchmark = load(name)
    assert isinstance(benchmark.truth, ExactTruth)
    X, y = benchmark.train
    assert (len(X), len(benchmark.val), len(benchmark.test)) == (10_000, 2_000, 2_000)
    assert stats.kstest(benchmark.truth.cdf(X, y), "uniform").pvalue > 1e-3


def test_generators_are_accepted_and_advance():
    problem = PROBLEMS["sine-laplace"]
    X = problem.sample_x(5, np.random.default_rng(0))
    pd.testing.assert_frame_equal(X, problem.sample_x(5, 0))
    rng = np.random.default_rng(1)
    assert not np.array_equal(problem.sample(X, 2, rng), problem.sample(X, 2, rng))


def test_wrong_questions_are_answered_with_what_to_do():
    problem = PROBLEMS["linear-normal"]
    X = problem.sample_x(4, 0)
    with pytest.raises(ValueError, match="X lacks x2"):
        problem.mean(X.drop(columns="x2"))
    with pytest.raises(ValueError, match="from 0 to 1"):
        problem.quantile(X, [0.5, 1.2])
    with pytest.raises(ValueError, match=r"\(3,\), but X has 4 rows"):
        problem.cdf(X, [1.0, 2.0, 3.0])
