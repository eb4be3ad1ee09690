"""Models of this library in skpro."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import gentle
from budgets import OWN, make, table

skpro = pytest.importorskip("skpro", reason="the adapter needs skpro, which is not installed")


@pytest.fixture(scope="module")
def regressor():
    from gentle.skpro import SkproRegressor

    return SkproRegressor


def frames(n=60):
    X, y = table(n)
    index = [f"row {i}" for i in range(n)]
    return pd.DataFrame(X, index, ["age", "income", "married"]), pd.DataFrame({"wage": y}, index)


@pytest.fixture
def fitted(regressor):
    return regressor(make("QuantileForest")).fit(*frames())


@pytest.mark.filterwarnings("ignore")
def test_skpros_own_checks_pass(regressor):
    from skpro.utils import check_estimator

    results = check_estimator(regressor, verbose=False)
    assert len(results) > 80
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OWN)
def test_skpros_checks_of_regressors_pass_around_every_model(regressor, name):
    from skpro.utils import check_estimator

    tests = ["test_input_output_contract", "test_predict_proba_no_param_mutation"]
    results = check_estimator(regressor(make(name)), tests_to_run=tests, verbose=False)
    assert set(results.values()) == {"PASSED"}
    assert len(results) == 2


def test_answers_are_those_of_the_wrapped_model_with_skpros_labels(fitted):
    X, y = frames()
    model, new = make("QuantileForest").fit(X, y["wage"]), X.iloc[5:14]
    assert fitted.model_ is not fitted.model
    dist = model.predict_dist(new)
    np.testing.assert_array_equal(fitted.predict(new)["wage"], model.predict(new))
    np.testing.assert_array_equal(fitted.predict_var(new)["wage"], dist.std() ** 2)
    quantiles = fitted.predict_quantiles(new, alpha=[0.9, 0.1])
    assert list(quantiles.columns) == [("wage", 0.9), ("wage", 0.1)]
    np.testing.assert_array_equal(quantiles, model.predict_quantiles(new, [0.9, 0.1]))
    interval = fitted.predict_interval(new, coverage=0.8)
    assert list(interval.columns) == [("wage", 0.8, "lower"), ("wage", 0.8, "upper")]
    np.testing.assert_allclose(interval, model.predict_interval(new, 0.8))
    assert list(interval.index) == list(new.index)


def test_the_distribution_answers_like_this_librarys(fitted):
    X, y = frames()
    new, at = X.iloc[:20], y.iloc[:20]
    found, own = fitted.predict_proba(new), fitted.model_.predict_dist(new)
    np.testing.assert_array_equal(found.cdf(at)["wage"], own.cdf(at["wage"]))
    np.testing.assert_array_equal(found.log_pdf(at)["wage"], own.log_prob(at["wage"]))
    np.testing.assert_array_equal(found.pdf(at)["wage"], np.exp(own.log_prob(at["wage"])))
    np.testing.assert_array_equal(found.ppf(0.3)["wage"], own.quantile(0.3))
    np.testing.assert_array_equal(found.mean()["wage"], own.mean())
    crps = found.energy(at) - 0.5 * found.energy()
    np.testing.assert_allclose(crps["energy"], own.crps(at["wage"]), atol=1e-12)
    draws = own.sample(4000, random_state=0)
    by_draws = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(axis=1)  # E|Y - Y'|
    np.testing.assert_allclose(found.energy()["energy"], by_draws, rtol=0.1)


def test_the_distribution_can_be_cut_to_rows_and_cells(fitted):
    X, y = frames()
    X, y = X.iloc[:20], y.iloc[:20]
    found = fitted.predict_proba(X)
    whole = found.cdf(y)
    for part in (found.iloc[[3, 7]], found.loc[["row 3", "row 7"]]):
        assert part.shape == (2, 1)
        np.testing.assert_array_equal(part.cdf(y.iloc[[3, 7]]), whole.iloc[[3, 7]])
    np.testing.assert_array_equal(found.cdf(y.iloc[::-1]), whole.iloc[::-1])
    np.testing.assert_array_equal(found.iloc[2:4, 0].mean(), found.mean().iloc[2:4])
    one = found.iat[3, 0]
    assert one.shape == ()
    assert one.cdf(y.iloc[3, 0]) == whole.iloc[3, 0]
    assert one.ppf(0.5) == found.ppf(0.5).iloc[3, 0]
    assert np.ndim(one.mean()) == np.ndim(one.sample()) == 0
    assert found.loc["row 3", "wage"].mean() == one.mean()


def test_draws_come_from_the_distribution_and_leave_the_global_generator_alone(fitted):
    found = fitted.predict_proba(frames()[0].iloc[:5])
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draws = found.sample(3000)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert draws.shape == (15_000, 1)
    by_row = draws["wage"].groupby(level=1, sort=False).mean()
    assert list(by_row.index) == list(found.index)
    error = found.var()["wage"] ** 0.5 / np.sqrt(3000)
    assert np.all(np.abs(by_row - found.mean()["wage"]) < 5 * error)
    assert found.sample().shape == (5, 1)


def test_repeated_row_labels_categories_and_gaps_are_no_trouble(regressor):
    X, y = frames()
    X["town"] = pd.Categorical(np.random.default_rng(0).choice(["Rome", "Oslo", None], len(X)))
    X.index = y.index = [0] * len(X)
    fitted = regressor(make("KNN")).fit(X, y)
    assert fitted.predict_quantiles(X, [0.5]).shape == (60, 1)
    assert fitted.predict_interval(X).shape == (60, 2)
    assert fitted.predict_proba(X).mean().shape == (60, 1)


def test_without_skpro_the_error_names_the_extra():
    code = "import sys; sys.modules['skpro'] = None; import gentle.skpro"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'ImportError: gentle.skpro needs skpro: pip install "gentle-ot[skpro]"' in found.stderr
    assert gentle.GENTLE is not None
