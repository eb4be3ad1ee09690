import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import QuantileRegressor

import gentle
from gentle import QRGMM, datasets
from gentle.models.pinball import quantile_regressions

QUICK = {"hidden_widths": (16,), "n_epochs": 3, "batch_size": 50, "verbose": 0, "device": "cpu"}


def pinball(y, fitted, level, weight):
    r = y - fitted
    return weight @ np.where(r > 0, level * r, (level - 1) * r)


def rows(n, p, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, p)).astype(float) if ties else rng.normal(size=(n, p))
    y = X @ rng.normal(size=p) + (1 + X[:, 0] ** 2) * rng.standard_t(3, n)
    return X, np.round(y) if ties else y, rng.integers(1, 4, n) * rng.choice([0.5, 1.0], n)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_quantile_regressions_are_the_optima_of_the_linear_programmes(ties, weighted):
    X, y, w = rows(300, 3, ties=ties)
    w = w if weighted else np.ones(300)
    features = np.column_stack([np.ones(300), X, X[:, 0] + 2, X[:, 1] * 0])  # two depend
    levels = np.array([0.02, 0.3, 0.31, 0.5, 0.97])
    found = quantile_regressions(features, y, w, levels)
    assert found.shape == (6, 5)
    assert np.all(found[4:] == 0)
    for level, beta in zip(levels, found.T):
        exact = QuantileRegressor(quantile=level, alpha=0, solver="highs").fit(X, y, w)
        expected = pinball(y, exact.predict(X), level, w)
        assert pinball(y, features @ beta, level, w) == pytest.approx(expected, rel=1e-6)


def test_many_levels_solved_in_sequence_are_as_exact_as_one():
    """Most rows are added up to two here; a coarse start makes some of them change sides."""
    X, y, w = rows(2500, 2)
    features = np.column_stack([np.ones(len(y)), X])
    levels = np.array([0.05, 0.5, 0.52, 0.54, 0.9])
    found = quantile_regressions(features, y, w, levels)
    for level, beta in zip(levels, found.T):
        alone = quantile_regressions(features, y, w, np.array([level]))[:, 0]
        best = pinball(y, features @ alone, level, w)
        assert pinball(y, features @ beta, level, w) == pytest.approx(best, rel=1e-9)
    exact = QuantileRegressor(quantile=0.54, alpha=0, solver="highs").fit(X, y, w)
    best = pinball(y, exact.predict(X), 0.54, w)
    assert pinball(y, features @ found[:, 3], 0.54, w) == pytest.approx(best, rel=1e-6)


def test_fits_without_residuals_are_found_too():
    X, _, w = rows(6, 2)
    y = X @ [1.0, -2.0] + 3
    beta = quantile_regressions(np.column_stack([np.ones(6), X]), y, w, np.array([0.1, 0.8]))
    np.testing.assert_allclose(beta, np.array([[3.0, 1, -2]] * 2).T, atol=1e-6)


def test_it_recovers_quantiles_that_are_linear():
    """Hong et al.'s own problem; the choice of the degree must not cost much."""
    data = datasets.load("linear-normal", n_train=4000)
    X, alpha = data.test.X[:300], np.linspace(0.1, 0.9, 9)
    exact = data.truth.quantile(X, alpha)
    for degree in (1, None):
        model = QRGMM(degree=degree, random_state=0).fit(*data.train)
        error = np.abs(model.predict_quantiles(X, alpha) - exact).mean()
        assert error < 0.15  # one standard deviation is 1.6 on average
        assert len(model.levels_) == 64
    assert model.score(*data.test) > 0.74


def test_held_out_covariates_choose_the_degree():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1000, 2))
    noise = 0.1 * rng.normal(size=1000)
    square = QRGMM(random_state=0).fit(X, X[:, 0] * X[:, 1] + noise)
    assert square.degree_ > 1  # cubes bring nothing, but hardly any loss either
    cubic = QRGMM(random_state=0).fit(X, 4 * X[:, 0] ** 3 + noise)
    assert cubic.degree_ == 3
    # An eval_set chooses in place of held-out rows: there the lines are best.
    line = QRGMM().fit(X, 4 * X[:, 0] ** 3 + noise, eval_set=(X, 2.4 * X[:, 0] + noise))
    assert line.degree_ == 1


def test_between_levels_it_is_linear_and_beyond_them_constant():
    X, y, _ = rows(100, 2)
    model = QRGMM(n_levels=4, degree=1).fit(X, y)
    q = model.predict_quantiles(X, np.linspace(0, 1, 11))  # levels .2, .4, .6, .8
    np.testing.assert_allclose(q[:, 5], (q[:, 4] + q[:, 6]) / 2)
    np.testing.assert_allclose(q[:, 0], q[:, 2])
    np.testing.assert_allclose(q[:, 10], q[:, 8])
    design = np.column_stack([np.ones(100), X])
    beta = quantile_regressions(design, y, np.ones(100), model.levels_)
    np.testing.assert_allclose(q[:, [2, 4, 6, 8]], np.sort(design @ beta, axis=1), atol=1e-5)


def test_levels_that_cross_are_rearranged():
    X, y, _ = rows(60, 1)
    model = QRGMM(degree=3).fit(X, y)
    far = np.array([[-6.0], [6.0]])
    raw = np.vander((far[:, 0] - X.mean()) / X.std(), 4, increasing=True) @ model.coefficients_
    assert np.any(np.diff(raw, axis=1) < 0)
    found = model.predict_quantiles(far, model.levels_)
    np.testing.assert_allclose(found, np.sort(raw, axis=1) * y.std() + y.mean(), atol=1e-5)


def test_weights_are_replications():
    X, y, _ = rows(150, 2)
    w = np.random.default_rng(1).integers(0, 4, 150)
    new = np.random.default_rng(2).normal(size=(20, 2))
    weighted = QRGMM(n_levels=9, degree=2).fit(X, y, w)
    repeated = QRGMM(n_levels=9, degree=2).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    for alpha in weighted.levels_:
        found = [m.predict_quantiles(new, alpha) for m in (weighted, repeated)]
        np.testing.assert_allclose(*found, atol=1e-4)


def test_the_network_tells_conditional_distributions_from_the_marginal():
    data = datasets.load("sine-laplace", n_train=5000)
    X, alpha = data.test.X[:400], np.linspace(0.05, 0.95, 19)
    exact = data.truth.quantile(X, alpha)
    model = QRGMM(regression="neural", random_state=0, verbose=0).fit(*data.train)
    marginal = gentle.Marginal().fit(*data.train)
    errors = [np.abs(m.predict_quantiles(X, alpha) - exact).mean() for m in (model, marginal)]
    assert errors[0] < 0.93 * errors[1]
    assert model.score(*data.test) > 0
    assert model.history_[-1]["validation"] < model.history_[0]["validation"]


def test_the_network_is_trained_on_the_pinball_loss_of_all_levels():
    """Two covariates, many responses each: its outputs are their weighted quantiles."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [1.0]], 500, axis=0)
    y = rng.exponential(1 + X[:, 0])
    w = np.where(y > 1, 3.0, 1.0)
    settings = QUICK | {"n_epochs": 150, "learning_rate": 1e-2, "early_stopping": False}
    model = QRGMM(regression="neural", n_levels=9, random_state=0, **settings).fit(X, y, w)
    found = model.predict_quantiles([[0.0], [1.0]], model.levels_)
    for side in (0, 1):
        of = X[:, 0] == side
        table = gentle.QuantileTable.of_sample(y[of], w[of])
        np.testing.assert_allclose(found[side], table.quantile(model.levels_)[0], atol=0.15)


def test_a_network_is_saved_and_answers_row_by_row(tmp_path):
    X, y, w = rows(120, 3)
    model = QRGMM(regression="neural", random_state=0, **QUICK).fit(X, y, w)
    model.save(tmp_path / "model")
    whole = model.predict_quantiles(X, [0.1, 0.5])
    np.testing.assert_array_equal(
        gentle.load(tmp_path / "model").predict_quantiles(X, [0.1, 0.5]), whole
    )
    np.testing.assert_array_equal(model.predict_quantiles(X[5:8], [0.1, 0.5]), whole[5:8])
    again = QRGMM(regression="neural", random_state=0, **QUICK).fit(X, y, w)
    np.testing.assert_array_equal(again.predict_quantiles(X, [0.1, 0.5]), whole)
    assert "validation" in model.history_[0]
    linear = model.set_params(regression="linear", degree=1).fit(
        X, y, w
    )  # a fit replaces the other
    expected = QRGMM(degree=1, random_state=0).fit(X, y, w).predict(X)
    np.testing.assert_array_equal(linear.predict(X), expected)


def test_too_many_monomials_are_a_clear_error_and_never_chosen():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 30)))
    y = rng.normal(size=60)
    with pytest.raises(ValueError, match="degree=2 makes 496 monomials of 30 covariates"):
        QRGMM(degree=2).fit(X, y)
    assert QRGMM(random_state=0).fit(X, y).degree_ == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"regression": "forest"}, "regression must be 'linear' or 'neural'"),
        ({"n_levels": 0}, "n_levels must be an integer of at least 1, or None"),
        ({"degree": 0}, "degree must be an integer from 1 to 5, or None"),
        ({"degree": 2.0}, "degree must be an integer from 1 to 5, or None"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
        ({"hidden_widths": 5}, "hidden_widths must be a sequence"),
        ({"validation_fraction": 0}, "validation_fraction must be between 0 and 1"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    X, y, _ = rows(20, 2)
    with pytest.raises(ValueError, match=message):
        QRGMM(**QUICK | setting).fit(X, y)
