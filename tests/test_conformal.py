import json
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score

import gentle
from gentle import GENTLE, KNN, ConformalGenerator, Marginal, QuantileTable
from gentle.diagnostics import calibration, pit


def draw(n, rng, atoms=False):
    """Noise whose size depends on x; with atoms nearly half of the responses are 0."""
    X = rng.normal(size=(n, 1))
    y = X[:, 0] + (0.5 + np.abs(X[:, 0])) * rng.normal(size=n)
    return X, np.maximum(y, 0) if atoms else y


class Narrow(Marginal):
    """Too low, too narrow and of the wrong shape, but continuous."""

    def _conditional(self, x):
        return QuantileTable([0.0, 0.9, 1.0], x + np.array([-1.0, -0.2, 0.5]))


def bad_model(name, atoms):
    """Far too narrow, or ignorant of x, or simply wrong."""
    X, y = draw(300, np.random.default_rng(5), atoms)
    if name == "KNN":
        return KNN(n_neighbors=5).fit(X, y)
    if name == "Marginal":
        return Marginal().fit(X, y)
    return Narrow().fit(X, y)


def simulated(model, n, coverage, atoms, n_repeats=150, n_new=80):
    """Over calibration sets and new rows: shares in intervals, below and up to quantiles."""
    rng = np.random.default_rng(n)
    found = []
    for seed in range(n_repeats):
        conformal = ConformalGenerator(FrozenEstimator(model), random_state=seed)
        conformal.fit(*draw(n, rng, atoms))
        X, y = draw(n_new, rng, atoms)
        low, high = conformal.predict_interval(X, coverage).T
        q = conformal.predict_quantiles(X, [0.1, 0.5, 0.9])
        inside, below, upto = (low <= y) & (y <= high), y[:, None] < q, y[:, None] <= q
        found.append([inside.mean(), *below.mean(axis=0), *upto.mean(axis=0)])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(n_repeats)
    return mean[0], mean[1:4], mean[4:], 4 * error.max()


@pytest.mark.filterwarnings("ignore::gentle.diagnostics.OutOfSupportWarning")
@pytest.mark.parametrize("atoms", [False, True])
@pytest.mark.parametrize(
    ("name", "n"), [("KNN", 19), ("KNN", 150), ("Marginal", 37), ("Narrow", 60)]
)
def test_intervals_and_quantiles_are_right_on_new_rows_for_bad_models_and_few_rows(name, n, atoms):
    inside, below, upto, noise = simulated(bad_model(name, atoms), n, 0.9, atoms)
    k_low, k_high = np.floor(0.05 * (n + 1) + 1e-9), np.ceil(0.95 * (n + 1) - 1e-9)
    exact = (k_high - k_low) / (n + 1)  # of a new row's rank among n
    assert 0.9 <= exact <= 0.9 + 2 / (n + 1)
    assert inside > exact - noise
    if not atoms:
        assert inside < exact + noise
    alpha = np.array([0.1, 0.5, 0.9])
    slack = 1 / (n + 1) + 2 / 301 + noise  # 300 training responses
    assert np.all(below < alpha + slack)
    assert np.all(upto > alpha - slack)


def test_the_bad_models_are_bad_without_it():
    X, y = draw(4000, np.random.default_rng(0))
    for name in ("KNN", "Narrow"):
        low, high = bad_model(name, atoms=False).predict_interval(X, 0.9).T
        assert np.mean((low <= y) & (y <= high)) < 0.75


def test_too_few_rows_for_a_coverage_give_infinite_ends():
    X, y = draw(19, np.random.default_rng(0))
    model = ConformalGenerator(FrozenEstimator(bad_model("KNN", False)), random_state=0).fit(X, y)
    assert np.isfinite(model.predict_interval(X, 0.9)).all()  # 1 and 19 of 20
    assert np.isinf(model.predict_interval(X, 0.95)).all()
    assert np.isfinite(model.predict_dist(X).interval(0.95)).all()
    assert np.isfinite(model.sample(X, 100, 0)).all()
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        model.predict_interval(X, 1.5)


@pytest.fixture(scope="module")
def fitted():
    X, y = draw(1200, np.random.default_rng(1), atoms=True)
    settings = {"n_steps": 150, "n_trees": 10, "hidden_widths": (16,), "random_state": 0}
    return ConformalGenerator(GENTLE(verbose=0, **settings), random_state=0).fit(X, y)


def test_draws_cdf_quantiles_atoms_and_mean_agree(fitted):
    X = np.array([[-1.0], [0.0], [1.5]])
    dist = fitted.predict_dist(X)
    draws = fitted.sample(X, 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), dist.mean(), atol=0.05)
    at = np.array([[0.0, 0.3, 1.0, 2.5]] * 3)
    share = (draws[:, None, :] <= at[:, :, None]).mean(axis=2)
    np.testing.assert_allclose(dist.cdf(at), share, atol=0.015)
    for i, (values, mass) in enumerate(dist.atoms(0.01)):
        assert values.tolist() == [0.0]  # it stays where it is
        assert np.mean(draws[i] == 0) == pytest.approx(mass[0], abs=0.015)
        before = fitted.model_.predict_dist(X[i : i + 1]).atoms(0.01)[0][1]
        assert abs(mass - before).max() > 1e-3  # but not as probable as it was
    assert (draws >= 0).all()
    assert np.all(dist.spread() > 0)
    u = np.linspace(0, 1, 301)
    assert np.all(np.diff(fitted.predict_quantiles(X, u), axis=1) >= 0)


def test_a_map_of_levels_is_all_that_changes(fitted):
    """F'(y | x) = G(F(y | x)): rows with one old level have one new level."""
    rng = np.random.default_rng(3)
    X, y = draw(400, rng)
    X, y = X[y > 0], y[y > 0]
    old, new = fitted.model_.cdf(X, y), fitted.cdf(X, y)
    order = np.argsort(old)
    assert np.all(np.diff(new[order]) >= -1e-9)


def test_a_model_that_is_right_stays_nearly_as_it_is():
    class Right(Marginal):
        def _conditional(self, x):
            levels = np.linspace(0, 1, 401)
            values = stats.norm.ppf(np.clip(levels, 1e-4, 1 - 1e-4))
            return QuantileTable(levels, x[:, :1] + values)

    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 1))
    X = (X - X.mean()) / X.std()
    y = X[:, 0] + rng.normal(size=4000)
    model = ConformalGenerator(FrozenEstimator(Right().fit(X, y)), random_state=0).fit(X, y)
    u = np.linspace(0.02, 0.98, 49)
    truth = X[:5] + stats.norm.ppf(u)
    np.testing.assert_allclose(model.predict_quantiles(X[:5], u), truth, atol=0.12)
    draws = model.sample(X[:2000], 20, 0)
    assert abs((draws - X[:2000]).std() - 1) < 0.03
    assert np.abs(draws - X[:2000]).max() < 4.5  # no mass at the extremes of the table


def test_whole_numbers_stay_whole():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1))
    y = np.minimum(rng.poisson(np.exp(X[:, 0])), 6).astype(float)
    model = ConformalGenerator(KNN(n_neighbors=300), random_state=0).fit(X, y)
    assert np.isin(model.sample(X, 20, random_state=0), np.arange(7)).all()
    tables = model.predict_dist(X[:9]).atoms()
    assert all(mass.sum() == pytest.approx(1) for _, mass in tables)


def test_it_repairs_calibration_on_unseen_rows():
    rng = np.random.default_rng(0)
    (X, y), (new, response) = draw(3000, rng), draw(3000, rng)
    narrow = KNN(n_neighbors=5)
    before = calibration(narrow.fit(X, y), new, response)["verdict"]
    assert set(before) == {"too narrow"}
    model = ConformalGenerator(narrow, random_state=0).fit(X, y)
    u = pit(model, new, response)
    # Of 600 rows the recalibration itself is known to about 0.02.
    assert stats.kstest(u, "uniform").statistic < 0.06


def test_rows_to_fit_and_rows_to_calibrate_are_disjoint():
    X, y = draw(200, np.random.default_rng(0))
    model = ConformalGenerator(KNN(n_neighbors=5), calibration_fraction=0.25, random_state=0)
    model.fit(X, y)
    assert model.model_.training_.n_rows == 150
    assert len(model.recalibration_.scores) == 50
    np.testing.assert_allclose(model.recalibration_.levels, np.arange(1, 51) / 51)


@pytest.mark.filterwarnings("ignore::gentle.diagnostics.OutOfSupportWarning")
def test_covariates_can_be_held_out_whole_with_one_row_each():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 2)), 10, axis=0)
    effect = np.repeat(rng.normal(size=60), 10)  # of the covariate: rows of one are no news
    y = effect + 0.1 * rng.normal(size=600)
    rows = ConformalGenerator(KNN(n_neighbors=9), random_state=0).fit(X, y)
    whole = ConformalGenerator(KNN(n_neighbors=9), split="covariates", random_state=0).fit(X, y)
    assert rows.model_.training_.n_covariates == 60
    assert whole.model_.training_.n_covariates == 48
    assert len(whole.recalibration_.scores) == 12
    new = rng.normal(size=(500, 2))
    response = rng.normal(size=500)

    def covered(model):
        low, high = model.predict_interval(new, 0.8).T
        return np.mean((low <= response) & (response <= high))

    assert covered(rows) < 0.6  # it thinks that it has seen the covariates
    assert covered(whole) > 0.75


def test_an_eval_set_calibrates_and_takes_no_part_in_the_fit():
    rng = np.random.default_rng(0)
    (X, y), (other, response) = draw(200, rng), draw(50, rng)
    w = np.append(np.ones(40), np.zeros(10))
    model = ConformalGenerator(KNN(n_neighbors=5), random_state=0)
    model.fit(X, y, eval_set=(other, response, w))
    assert model.model_.training_.n_rows == 200
    assert len(model.recalibration_.scores) == 40
    np.testing.assert_array_equal(model.model_.predict(X), KNN(n_neighbors=5).fit(X, y).predict(X))


def test_weights_move_the_levels():
    rng = np.random.default_rng(0)
    X, y = draw(400, rng)
    model = Marginal().fit(X, y)
    w = np.where(y > 0, 3.0, 1.0)
    heavy = ConformalGenerator(FrozenEstimator(model), random_state=0).fit(X, y, w)
    expected = np.average(y > 0, weights=w)
    assert 1 - heavy.cdf(X[:1], [0.0])[0] == pytest.approx(expected, abs=0.02)
    none = ConformalGenerator(FrozenEstimator(model), random_state=0).fit(X, y, (y > 0) * 1.0)
    assert len(none.recalibration_.scores) == np.sum(y > 0)


def test_saved_and_pickled_models_answer_bit_for_bit(fitted, tmp_path):
    X, y = draw(50, np.random.default_rng(2), atoms=True)
    fitted.save(tmp_path / "model")
    loaded = gentle.load(tmp_path / "model")
    assert type(loaded) is ConformalGenerator
    assert repr(loaded.model) == repr(clone(fitted.model_))
    for other in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.sample(X, 5, 1), fitted.sample(X, 5, 1))
        np.testing.assert_array_equal(other.predict_interval(X), fitted.predict_interval(X))
        assert other.score(X, y) == fitted.score(X, y)
        assert other.summary() == fitted.summary()
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(gentle.load(tmp_path / "again").predict(X), fitted.predict(X))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        fitted.save(tmp_path / "model")
    assert fitted.model is not None


def test_frames_names_and_the_summary(tmp_path):
    X, y = draw(300, np.random.default_rng(0))
    frame = pd.DataFrame({"dose": X[:, 0], "town": np.where(X[:, 0] > 1, "Rome", "Oslo")})
    model = ConformalGenerator(KNN(n_neighbors=9), random_state=0)
    model.fit(frame, pd.Series(y, name="effect"))
    assert list(model.feature_names_in_) == ["dose", "town"]
    assert model.response_name_ == "effect"
    assert "corrected by 60 rows that KNN has not seen" in model.summary()
    assert "holds" in model.summary()  # its KNN holds rows
    model.save(tmp_path / "m")
    loaded = gentle.load(tmp_path / "m")
    assert loaded.response_name_ == "effect"
    np.testing.assert_array_equal(loaded.sample(frame, 3, 0), model.sample(frame, 3, 0))
    with pytest.raises(ValueError, match="order must be"):
        model.predict(frame[["town", "dose"]])


def test_it_is_a_scikit_learn_meta_estimator():
    X, y = draw(300, np.random.default_rng(0))
    model = ConformalGenerator(KNN(n_neighbors=9), random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.get_params()["model__n_neighbors"] == 9
    assert np.isfinite(cross_val_score(model, X, y, cv=3)).all()
    search = GridSearchCV(model, {"model__n_neighbors": [5, 50]}, cv=2).fit(X, y)
    assert search.best_estimator_.model_.n_neighbors == search.best_params_["model__n_neighbors"]
    one, two = model.fit(X, y), clone(model).fit(X, y)
    np.testing.assert_array_equal(one.sample(X, 3, 0), two.sample(X, 3, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "KNN"}, "model must be one of this library's models"),
        ({"model": KNN(), "calibration_fraction": 0}, "calibration_fraction must be between 0 and"),
        ({"model": KNN(), "split": "x"}, "split must be 'rows' or 'covariates'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    X, y = draw(30, np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        ConformalGenerator(**settings).fit(X, y)


def test_what_cannot_be_calibrated_is_refused_and_an_earlier_fit_survives():
    X, y = draw(60, np.random.default_rng(0))
    with pytest.raises(NotFittedError):
        ConformalGenerator(FrozenEstimator(KNN())).fit(X, y)
    frozen = ConformalGenerator(FrozenEstimator(KNN(n_neighbors=5).fit(X, y)), random_state=0)
    before = frozen.fit(X, y).predict(X)
    with pytest.raises(ValueError, match="pass no eval_set"):
        frozen.fit(X, y, eval_set=(X, y))
    with pytest.raises(ValueError, match="at least 2 rows to calibrate on, got 1"):
        frozen.fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="first in row 3"):
        frozen.fit(X, np.where(np.arange(60) == 3, np.nan, y))
    with pytest.raises(ValueError, match="wants a random_state"):
        ConformalGenerator(KNN()).fit(X, y, checkpoint_dir="somewhere")
    np.testing.assert_array_equal(frozen.predict(X), before)


def test_a_damaged_recalibration_is_refused(tmp_path):
    from gentle.models.recalibration import Recalibration

    X, y = draw(60, np.random.default_rng(0))
    model = ConformalGenerator(KNN(n_neighbors=5), random_state=0).fit(X, y)
    arrays, facts = model.recalibration_.state()
    assert Recalibration.restored(arrays, facts).gaps == model.recalibration_.gaps
    for change in ({"scores": arrays["scores"][::-1]}, {"levels": arrays["levels"] + 1}):
        with pytest.raises(ValueError, match="recalibration is damaged"):
            Recalibration.restored(arrays | change, facts)
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())["facts"]["model"]
    assert described["class"] == "KNN"
    arrays, facts = model._get_state()
    for change in ({"class": "os.system"}, {"columns": []}, {"facts": None}):
        with pytest.raises((ValueError, KeyError)):
            model._set_state(arrays, facts | {"model": facts["model"] | change})
