"""One contract, every model."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gentle
from budgets import BUDGETS, TINY, kind, make, missing_package, table
from gentle.models.registry import MODULES, model_class

COLUMNS = ["age", "income", "married"]


@pytest.fixture(scope="module", params=sorted(BUDGETS))
def name(request):
    if package := missing_package(request.param):
        pytest.skip(f"{request.param} needs the package {package!r}, which is not installed")
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    X, y = table()
    return make(name).fit(X, y)


def test_every_model_has_a_budget_and_can_be_imported_from_both_places():
    assert {name.split(" (")[0] for name in BUDGETS} == set(MODULES)
    for name in MODULES:
        assert getattr(gentle, name) is getattr(gentle.models, name) is model_class(name)


def test_answers_have_the_promised_shapes_and_dtype(fitted):
    X, y = table()
    X, y = X[:7], y[:7]
    answers = {
        (7,): [
            fitted.predict(X),
            fitted.predict_quantiles(X, 0.3),
            fitted.cdf(X, y),
            fitted.log_prob(X, y),
        ],
        (7, 5): [
            fitted.sample(X, n_samples=5),
            fitted.sample(X, u=np.linspace(0, 1, 5)),
            fitted.cdf(X, np.tile(y[:, None], 5)),
            fitted.log_prob(X, np.tile(y[:, None], 5)),
        ],
        (7, 1): [fitted.sample(X), fitted.predict_quantiles(X, [0.5])],
        (7, 2): [fitted.predict_interval(X)],
    }
    for shape, arrays in answers.items():
        for array in arrays:
            assert array.shape == shape
            assert array.dtype == np.float64
    assert np.isfinite(fitted.sample(X, n_samples=100)).all()
    assert fitted.predict_dist(X).event_shape == ()
    assert isinstance(fitted.predict_dist(X), gentle.ConditionalDistribution)
    assert isinstance(fitted.score(X, y), float)


def test_quantiles_never_cross_and_intervals_are_quantiles(fitted):
    X, _ = table()
    q = fitted.predict_quantiles(X, np.linspace(0, 1, 101))
    assert np.all(np.diff(q, axis=1) >= 0)
    expected = fitted.predict_quantiles(X, [(1 - 0.8) / 2, (1 + 0.8) / 2])
    np.testing.assert_array_equal(fitted.predict_interval(X, 0.8), expected)


def test_sample_quantile_cdf_density_and_mean_agree(fitted):
    X, _ = table()
    X = X[:4]
    draws = fitted.sample(X, n_samples=20_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), fitted.predict(X), atol=0.05)
    at = fitted.predict_quantiles(X, [0.05, 0.25, 0.5, 0.75, 0.95]) + 1e-9
    share = (draws[:, None, :] <= at[:, :, None]).mean(axis=2)
    np.testing.assert_allclose(fitted.cdf(X, at), share, atol=0.02)
    # Density and atoms integrate to the increments of the cdf.
    knots = np.sort(np.unique(fitted.predict_quantiles(X[:1], np.linspace(0, 1, 2001))))
    middles = (knots[1:] + knots[:-1]) / 2
    density = np.exp(fitted.log_prob(X[:1], middles[None])[0]) * np.diff(knots)
    at_knots = np.exp(fitted.log_prob(X[:1], knots[None])[0])
    before = fitted.cdf(X[:1], knots[None] - 1e-9)[0]
    atom = fitted.cdf(X[:1], knots[None])[0] - before > 1e-4
    assert density.sum() + at_knots[atom].sum() == pytest.approx(1, abs=0.02)


def test_atoms_have_the_probabilities_of_the_density_and_only_averages_a_spread(name, fitted):
    X, _ = table()
    dist = fitted.predict_dist(X[:9])
    found = dist.atoms(0.01)
    assert len(found) == 9
    for i, (values, mass) in enumerate(found):
        one = fitted.predict_dist(X[i : i + 1])
        assert np.all(np.diff(values) > 0)
        np.testing.assert_allclose(np.exp(one.log_prob(values[None])[0]), mass, rtol=1e-9)
        assert np.all(mass > 0.01)
        assert mass.sum() < 1 + 1e-9
    if name == "GENTLE":
        assert np.all(dist.spread() > 0)
    else:
        with pytest.raises(ValueError, match="so it has no spread"):
            dist.spread()


def test_the_same_u_gives_quantiles_and_common_random_numbers(fitted):
    X, _ = table()
    u = np.array([0.2, 0.5, 0.9])
    np.testing.assert_array_equal(fitted.sample(X, u=u), fitted.predict_quantiles(X, u))
    rows = np.random.default_rng(0).random((len(X), 2))
    both = fitted.sample(X, u=rows)
    np.testing.assert_array_equal(both[3], fitted.predict_quantiles(X[3:4], rows[3])[0])


def test_a_rows_draws_depend_on_seed_position_and_covariates_only(fitted):
    X, _ = table()
    whole = fitted.sample(X, n_samples=70, random_state=4)
    np.testing.assert_array_equal(fitted.sample(X[:13], 70, random_state=4), whole[:13])
    np.testing.assert_array_equal(fitted.sample(X, 9, random_state=4), whole[:, :9])
    others = X.copy()
    others[:20] += 1.0
    np.testing.assert_array_equal(fitted.sample(others, 70, random_state=4)[20:], whole[20:])
    assert not np.array_equal(fitted.sample(X, 70, random_state=5), whole)
    assert not np.array_equal(fitted.sample(X), fitted.sample(X))


def test_equal_covariates_get_independent_draws(fitted):
    X, _ = table()
    draws = fitted.sample(np.repeat(X[:1], 40, axis=0), n_samples=2000, random_state=0)
    correlation = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)


def test_score_is_crps_skill_over_the_training_marginal(fitted):
    X, y = table(seed=3)
    w = np.random.default_rng(0).random(len(y))
    _, y_train = table()
    marginal = gentle.Marginal().fit(np.arange(len(y_train))[:, None], y_train)
    baseline = marginal.predict_dist(np.zeros((len(y), 1))).crps(y)
    expected = 1 - np.average(fitted.predict_dist(X).crps(y), weights=w) / np.average(
        baseline, weights=w
    )
    assert fitted.score(X, y, sample_weight=w) == pytest.approx(expected)


def test_the_same_seed_gives_the_same_model_and_clones_are_unfitted(name):
    X, y = table()
    one, two = make(name).fit(X, y), make(name).fit(X, y)
    np.testing.assert_array_equal(one.sample(X, 3, 0), two.sample(X, 3, 0))
    fresh = clone(one)
    assert fresh.get_params() == one.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_rows_of_weight_zero_do_not_exist_and_only_relative_weights_matter(name):
    X, y = table()
    w = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    weighted = make(name).fit(X, y, sample_weight=w)
    dropped = make(name).fit(X[w > 0], y[w > 0], sample_weight=w[w > 0])
    np.testing.assert_array_equal(weighted.predict(X), dropped.predict(X))
    scaled = make(name).fit(X, y, sample_weight=w * 1024)
    np.testing.assert_allclose(scaled.predict(X), weighted.predict(X), rtol=1e-6)


def test_a_row_of_weight_k_is_k_copies_of_it_bit_for_bit(name):
    X, y = table(60)
    w = np.random.default_rng(2).integers(1, 4, len(y))
    held_out = (X[:20] + 0.5, y[:20] + 0.1)
    copies = make(name).fit(
        np.repeat(X, w, axis=0),
        np.repeat(y, w),
        eval_set=tuple(np.repeat(a, w[:20], axis=0) for a in held_out),
    )
    weighted = make(name).fit(X, y, w, (*held_out, w[:20]))
    np.testing.assert_array_equal(copies.sample(X, 5, 0), weighted.sample(X, 5, 0))
    scaled = make(name).fit(X, y, 1000 * w, (*held_out, 3 * w[:20]))
    np.testing.assert_array_equal(scaled.sample(X, 5, 0), weighted.sample(X, 5, 0))
    shuffled = make(name).fit(
        np.vstack([X, X]), np.tile(y, 2), np.append(w - 0.5, np.full(60, 0.5))
    )
    plain = make(name).fit(X, y, w)
    np.testing.assert_array_equal(shuffled.sample(X, 5, 0), plain.sample(X, 5, 0))
    assert shuffled.score(X, y) == plain.score(X, y)


def people(n=120, seed=0):
    """A table as it comes: text, truth values, dates, an order, gaps."""
    X, y = table(n, seed)
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(X, columns=COLUMNS).astype({"married": bool})
    frame["town"] = rng.choice(["Rome", "Oslo", "Bern"], n)
    frame["grade"] = pd.Categorical(
        rng.choice(["low", "high"], n), ["low", "middle", "high"], ordered=True
    )
    frame["since"] = pd.Timestamp("2015-05-01") + pd.to_timedelta(rng.integers(0, 2000, n), "D")
    frame.loc[rng.random(n) < 0.2, ["income", "town", "since"]] = None
    return frame, y + 2.0 * (frame["town"] == "Rome")


def test_tables_of_all_kinds_with_gaps_are_learned_saved_and_summarised(name, tmp_path):
    frame, y = people()
    model = make(name).fit(frame, y, eval_set=people(seed=1))
    assert model.n_features_in_ == 6
    assert list(model.feature_names_in_) == list(frame)
    new, _ = people(seed=2)
    answer = model.sample(new, 5, 1)
    assert np.isfinite(answer).all()
    assert all(
        label in model.summary()
        for label in [kind(name).__name__, *frame, "ordered", "category", "date"]
    )
    if not hasattr(model, "_package"):
        model.save(tmp_path / "model")
        loaded = gentle.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.sample(new, 5, 1), answer)
        assert loaded.summary() == model.summary()
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).sample(new.iloc[:9], 5, 1), answer[:9]
    )


def test_frames_are_remembered_by_their_columns(name):
    X, y = table()
    frame = pd.DataFrame(X, columns=COLUMNS)
    model = make(name).fit(frame, pd.Series(y, name="wage"))
    assert list(model.feature_names_in_) == COLUMNS
    assert model.response_name_ == "wage"
    np.testing.assert_array_equal(model.predict(frame), make(name).fit(X, y).predict(X))
    with pytest.raises(ValueError, match=r"order must be 'age', 'income', 'married'"):
        model.predict(frame[COLUMNS[::-1]])
    with pytest.raises(ValueError, match=r"missing: \['age'\], not seen in fit\(\): \['years'\]"):
        model.predict(frame.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match=r"X has 2 features, but \w+ is expecting 3 features"):
        model.predict(frame[COLUMNS[:2]])


def test_saved_models_answer_bit_for_bit(fitted, tmp_path):
    X, y = table()
    if hasattr(fitted, "_package"):  # it holds an object of another package
        with pytest.raises(ValueError, match="cannot be saved without pickle; use joblib"):
            fitted.save(tmp_path / "model")
        assert not list(tmp_path.iterdir())
        return
    fitted.save(tmp_path / "model")
    loaded = gentle.load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.sample(X, 5, 1), fitted.sample(X, 5, 1))
    assert loaded.score(X, y) == fitted.score(X, y)


def test_pickled_models_answer_bit_for_bit(fitted):
    X, _ = table()
    pickled = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(pickled.sample(X, 5, 1), fitted.sample(X, 5, 1))


def test_models_fit_into_scikit_learn(name):
    X, y = table()
    pipeline = make_pipeline(StandardScaler(), make(name))
    assert np.isfinite(cross_val_score(pipeline, X, y, cv=3)).all()
    search = GridSearchCV(make(name), {"random_state": [0, 1]}, cv=2).fit(X, y)
    assert search.best_estimator_.sample(X).shape == (len(X), 1)


BAD_TABLES = {
    "infinity": (lambda X, y: (np.where(X[3, 1] == X, np.inf, X), y), "X contains infinity"),
    "NaN in y": (lambda X, y: (X, np.where(y == y[5], np.nan, y)), "first in row 5"),
    "one row": (lambda X, y: (X[:1], y[:1]), "at least 2 rows"),
    "no row": (lambda X, y: (X[:0], y[:0]), "minimum of 1 is required"),
    "lengths": (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    "two responses": (lambda X, y: (X, np.column_stack([y, y])), "y has 2 columns"),
    "a name twice": (
        lambda X, y: (pd.DataFrame(X, columns=["a", "b", "a"]), y),
        "more than one column named 'a'",
    ),
    "text in y": (lambda X, y: (X, ["much"] * len(y)), "y must hold numbers"),
    "flat X": (lambda X, y: (X[:, 0], y), "Expected 2D array"),
}


@pytest.mark.parametrize("case", sorted(BAD_TABLES))
def test_bad_tables_are_refused_and_the_earlier_fit_survives(name, case):
    X, y = table()
    spoil, message = BAD_TABLES[case]
    model = make(name).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=message):
        model.fit(*spoil(X, y))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda n: -np.ones(n), "must not be negative, but row 0"),
        (lambda n: np.zeros(n), "zero for every row"),
        (lambda n: np.full(n, np.nan), "NaN"),
        (lambda n: np.ones(n - 1), "sample_weight"),
    ],
)
def test_bad_weights_are_refused(name, weights, message):
    X, y = table()
    with pytest.raises(ValueError, match=message):
        make(name).fit(X, y, sample_weight=weights(len(y)))


def test_a_constant_column_is_said_and_ignored(name):
    X, y = table()
    X[:, 1] = 3.3
    with pytest.warns(UserWarning, match=r"constant column\(s\) \[1\]"):
        model = make(name).fit(X, y)
    moved = X.copy()
    moved[:, 1] = 1e12
    np.testing.assert_array_equal(model.predict(moved), model.predict(X))


def test_a_constant_response_is_a_clear_error_or_its_own_distribution(name):
    X, _ = table()
    y = np.full(len(X), 2.5)
    if make(name)._encodes_response or name == "GENTLE":
        with pytest.raises(ValueError, match=r"y is constant \(every response is 2.5\)"):
            make(name).fit(X, y)
    else:
        model = make(name).fit(X, y)
        assert np.all(model.sample(X, 3) == 2.5)


def test_eval_sets_are_checked_like_tables(name):
    X, y = table()
    with pytest.raises(ValueError, match="eval_set must be a pair"):
        make(name).fit(X, y, eval_set=X)
    with pytest.raises(ValueError, match="X has 2 features"):
        make(name).fit(X, y, eval_set=(X[:, :2], y))


def test_an_unfitted_model_says_so(name):
    X, y = table()
    for ask in (
        lambda m: m.predict(X),
        lambda m: m.sample(X),
        lambda m: m.score(X, y),
        lambda m: m.save("nowhere"),
    ):
        with pytest.raises(NotFittedError):
            ask(make(name))


def test_knn_chooses_k_by_validation_and_repeats_training_responses():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (600, 1))
    y = np.round(np.sin(X[:, 0]) + 0.3 * rng.normal(size=600), 1)
    model = gentle.KNN(random_state=0).fit(X, y)
    assert 10 <= model.n_neighbors_ <= 200
    assert np.isin(model.sample(X, 10), y).all()
    assert model.score(X, y) > 0.4
    assert len(model.responses_) == 600
    own = gentle.KNN(random_state=0).fit(X[:500], y[:500], eval_set=(X[500:], y[500:]))
    assert len(own.responses_) == 500  # an eval_set chooses k, it does not train


def test_kernel_cde_is_the_nadaraya_watson_estimator_and_chooses_its_bandwidth():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(300, 2)) * [1.0, 50.0], rng.random(300)
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=300)
    model = gentle.KernelCDE(bandwidth=0.4).fit(X, y, w)
    mean = np.average(X, axis=0, weights=w)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    new, at = X[:5] + np.array([0.1, 1.0]), np.array([-0.5, 0.2])
    distance = np.linalg.norm((new[:, None] - X[None]) / scale, axis=2)
    kernel = np.exp(-(distance**2) / (2 * 0.4**2)) * w
    expected = (kernel[:, None, :] * (y <= at[:, None])).sum(axis=2) / kernel.sum(axis=1)[:, None]
    np.testing.assert_allclose(model.cdf(new, np.tile(at, (5, 1))), expected, atol=1e-9)
    assert np.isfinite(model.predict([[1e3, 0.0]])).all()  # every kernel vanishes there
    chosen = gentle.KernelCDE(random_state=0).fit(X, y)
    assert 0.05 < chosen.bandwidth_ < 2
    assert chosen.score(X, y) > 0.4
    with pytest.raises(ValueError, match="bandwidth must be a positive number, or None"):
        gentle.KernelCDE(bandwidth=-1.0).fit(X, y)


@st.composite
def frames(draw):
    n, d = draw(st.integers(2, 30)), draw(st.integers(1, 4))
    numbers = st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3))
    X = np.array(draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n, max_size=n)))
    y = np.array(draw(st.lists(numbers, min_size=n, max_size=n)), float)
    kind = draw(st.sampled_from([np.float64, np.float32]))
    return X.astype(kind), y


@pytest.mark.filterwarnings("ignore:constant column")
@settings(max_examples=25)
@given(frames(), st.sampled_from(sorted(BUDGETS)))
def test_any_table_of_numbers_gives_a_model_or_a_clear_error(data, name):
    assume(not missing_package(name))
    X, y = data
    model = make(name, **TINY.get(name, {}))
    try:
        model.fit(X, y)
    except ValueError as error:
        if any(said in str(error) for said in ("constant", "too close together", "that differ")):
            return
        raise
    draws = model.sample(X, 4, random_state=0)
    assert np.isfinite(draws).all()
    level = model.cdf(X, draws)
    assert np.all((level >= 0) & (level <= 1))
