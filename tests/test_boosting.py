"""Boosted trees as a column: honest while models learn, exact, saved, and dropped if not needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

import gentle
from gentle.data import row_hashes
from gentle.models import averaging, boosting
from gentle.models.boosting import Boosting
from gentle.models.evaluation import Kind
from gentle.models.inputs import Inputs


def rows(n=600, d=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.sign(x[:, 0] * x[:, 1]) + 0.1 * rng.normal(size=n), np.ones(n)


def test_honest_values_know_nothing_of_their_own_response():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(1000, 3)), rng.normal(size=1000)  # there is nothing to expect
    made = Boosting.of(x, z, np.ones(1000), seed=0)
    honest, of_all = (made.extended(x, honest=honest)[:, -1] for honest in (True, False))
    assert abs(np.corrcoef(honest, z)[0, 1]) < 0.15
    assert np.corrcoef(of_all, z)[0, 1] > 0.2


def test_what_to_expect_is_what_scikit_learn_expects():
    x, z, weight = rows()
    made = Boosting.of(x, z, weight, seed=3)
    part = row_hashes(x) % np.uint64(len(made.baseline))
    column = made.extended(x, honest=True)[:, -1]
    for number, n_trees in enumerate(np.diff(made.start)):
        own = part == number
        oracle = HistGradientBoostingRegressor(
            learning_rate=boosting._RATE,
            max_iter=int(n_trees),
            max_leaf_nodes=boosting._MAX_LEAVES,
            max_bins=boosting._sizes(*x.shape)[2],
            min_samples_leaf=boosting._MIN_LEAF,
            max_features=boosting._MAX_FEATURES,
            l2_regularization=boosting._SHRINKAGE,
            early_stopping=False,
            random_state=3,
        ).fit(x[~own], z[~own], weight[~own])
        np.testing.assert_allclose(column[own], oracle.predict(x[own]), rtol=0, atol=1e-9)


def test_new_rows_get_the_mean_of_the_parts():
    x, z, weight = rows()
    made = Boosting.of(x, z, weight, seed=0)
    alone = [
        Boosting(made.trees, made.values, np.array([first, last]), np.array([start]))
        for first, last, start in zip(made.start, made.start[1:], made.baseline)
    ]
    new = np.random.default_rng(1).normal(size=(50, 4))
    mean = np.mean([one.extended(new)[:, -1] for one in alone], axis=0)
    np.testing.assert_allclose(made.extended(new)[:, -1], mean, atol=1e-12)
    np.testing.assert_array_equal(made.extended(new)[:, :-1], new)


def test_equal_covariates_are_in_one_part():
    x, _, _ = rows(50)
    part = boosting._part(np.concatenate([x, x + 0.0]), 5)
    np.testing.assert_array_equal(part[:50], part[50:])
    assert len(set(part.tolist())) == 5


def test_a_row_has_its_value_in_any_company():
    x, z, weight = rows()
    made = Boosting.of(x, z, weight, seed=0)
    for honest in (False, True):
        together = made.extended(x, honest=honest)
        alone = np.concatenate([made.extended(x[i : i + 1], honest=honest) for i in range(40)])
        np.testing.assert_array_equal(together[:40], alone)


@given(
    name=st.sampled_from(["values", "start", "baseline", "feature", "children", "root"]),
    damage=st.sampled_from(["cut", "nan", "huge", "float"]),
)
def test_damaged_arrays_end_in_a_value_error_or_in_trees_that_answer(name, damage):
    x, z, weight = rows(120)
    arrays = _MADE.setdefault("arrays", Boosting.of(x, z, weight, seed=0).arrays())
    broken = np.array(arrays[name])
    if damage == "cut":
        broken = broken[:-1]
    elif damage == "float":
        broken = broken.astype(np.float64) + 0.5
    else:
        broken = broken.copy()
        broken.flat[0] = np.nan if damage == "nan" and broken.dtype.kind == "f" else 2**40
    try:
        made = Boosting.restored(arrays | {name: broken}, 4)
    except ValueError:
        return
    assert np.isfinite(made.extended(x)).all()


_MADE: dict = {}


def test_inputs_without_the_further_column_are_those_of_a_table_that_never_had_it():
    x, z, weight = rows()
    made = Inputs.of(np.column_stack([x, z]), weight, n_boosted=1)
    plain = Inputs.of(x, weight)
    assert len(made) == len(plain) + 2
    stripped = made.without_boosted()
    np.testing.assert_array_equal(stripped.encode(x), plain.encode(x))
    encoded = made.encode(np.column_stack([x, z]))
    for view in ("straight", "scores", "pieces"):
        np.testing.assert_array_equal(
            encoded[:, made.view(view)], plain.encode(x, [view])[:, plain.view(view)]
        )
    far = np.abs(z) > 2.5
    np.testing.assert_array_equal(encoded[~far, made.view("boosted")][:, 0], z[~far])


@pytest.fixture(scope="module")
def rough():
    """A law of many steps and interactions, which trees find and smooth networks do not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 8))
    cell = (np.floor(6 * X[:, :2]) @ [6, 1]).astype(int)
    centre = rng.normal(0, 3, 36)[cell]
    return X, centre + 0.3 * rng.normal(size=1500)


@pytest.fixture(scope="module")
def fitted(rough):
    X, y = rough
    return gentle.GENTLE(n_steps=600, random_state=0, verbose=0).fit(X[:1000], y[:1000])


def test_a_rough_law_is_learned_with_boosted_trees_and_better_for_it(rough, fitted):
    X, y = rough
    assert fitted.ensemble_.boosting is not None
    assert "boosted trees" in fitted.summary()
    settings = {"boosting": False, "n_steps": 600, "random_state": 0, "verbose": 0}
    without = gentle.GENTLE(**settings).fit(X[:1000], y[:1000])
    assert without.ensemble_.boosting is None
    crps = [model.predict_dist(X[1000:]).crps(y[1000:]).mean() for model in (fitted, without)]
    assert crps[0] < 0.95 * crps[1]


def test_it_comes_back_from_a_file_and_answers_row_by_row(rough, fitted, tmp_path):
    X, _ = rough
    fitted.save(tmp_path / "model")
    again = gentle.load(tmp_path / "model")
    new, levels = X[1000:], [0.05, 0.5, 0.95]
    answers = again.predict_quantiles(new, levels)
    np.testing.assert_array_equal(answers, fitted.predict_quantiles(new, levels))
    alone = np.concatenate([again.predict_quantiles(new[i : i + 1], levels) for i in range(10)])
    np.testing.assert_array_equal(alone, answers[:10])
    quick = again.distilled(X, n_steps=50, random_state=0)
    assert quick.ensemble_.boosting is None  # one network answers by itself


def test_trees_that_nobody_needs_are_not_kept():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (600, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.02 * rng.normal(size=600)  # smooth, hardly any noise
    model = gentle.GENTLE(n_trees=0, random_state=0, verbose=0).fit(X, y)
    views = {view for kind in model.ensemble_.kinds for view in kind.views}
    assert (model.ensemble_.boosting is not None) == ("boosted" in views)
    assert model.ensemble_.inputs.n_boosted == int("boosted" in views)


@pytest.mark.parametrize(("gain", "stays"), [(0.5, True), (0.999, False)])
def test_boosted_trees_stay_if_they_are_worth_it(gain, stays, monkeypatch):
    kinds = [Kind(0, ("boosted", "scores")), Kind(0, ("straight",))]

    def scores(parts, *rest):
        there = np.array([part is not None for part in parts], float)
        return there / there.sum(), 1.0, gain if parts[0] is not None else 1.0

    monkeypatch.setattr(averaging, "best_average", scores)
    monkeypatch.setattr(averaging, "on_unseen", lambda *_: ([1, 2, None], None, None, None))
    weights = averaging.useful_weights(None, kinds, None, None, None)
    assert weights.tolist() == ([0.5, 0.5] if stays else [0.0, 1.0])


def test_whether_to_boost_is_a_yes_or_no():
    with pytest.raises(ValueError, match="boosting must be True or False"):
        gentle.GENTLE(boosting="auto").fit(np.eye(5), np.arange(5.0))


def test_small_tables_have_no_boosted_trees():
    X = np.random.default_rng(0).normal(size=(150, 2))
    model = gentle.GENTLE(n_steps=50, random_state=0, verbose=0).fit(X, X[:, 0])
    assert model.ensemble_.boosting is None


def test_hardly_any_noise_is_no_reason_to_stop_early():
    """A restart of the learning rate shakes precise networks; that is no overfitting."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1200, 4))
    law = np.exp(X[:, 0]) * (1 + X[:, 1]) + X[:, 2] * X[:, 3]
    y = law + 0.02 * rng.normal(size=1200)
    model = gentle.GENTLE(random_state=0, verbose=0).fit(X[:800], y[:800])
    floor = 0.02 / np.sqrt(np.pi)  # the CRPS of a normal law that is known
    assert model.predict_dist(X[800:]).crps(y[800:]).mean() < 1.8 * floor
