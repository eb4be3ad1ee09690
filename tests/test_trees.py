"""Forests and boosted quantiles, against the packages that grow or predict the same trees."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

import gentle
from gentle import BoostedQuantiles, QuantileForest
from gentle.data import Grouped
from gentle.models.disk import sealed
from gentle.models.intake import CheckedRows
from gentle.models.levels import even_levels, table_through
from gentle.models.nodes import Trees

FIELDS = ("feature", "threshold", "children_left", "children_right")


def table(n=400, seed=0):
    """Three covariates, one of them a category; responses with an atom at 0."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)) * [1, 50], rng.integers(0, 3, n)])
    y = np.maximum(X[:, 0] + X[:, 2] + rng.normal(size=n), 0)
    return X, y, rng.integers(1, 4, n).astype(float)


def seed_of(random_state):
    """What a model without a split passes on as seed."""
    return int(np.random.default_rng(random_state).integers(2**31))


def encoded(model, X):
    return model.covariate_encoder_.encode(np.asarray(X, float))


@pytest.mark.parametrize("n_rows", [1, 7, 5000])
def test_trees_lead_to_the_leaves_of_scikit_learn(n_rows):
    X, y, _ = table()
    forest = RandomForestRegressor(30, max_features=0.5, random_state=0).fit(X, y)
    trees = Trees.joined([[getattr(e.tree_, f) for f in FIELDS] for e in forest.estimators_])
    new = table(n_rows, seed=1)[0].astype(np.float32)
    assert len(trees) == 30
    np.testing.assert_array_equal(trees.apply(new) - trees.root, forest.apply(new))
    np.testing.assert_array_equal(trees.apply(new, slice(3, 5)), trees.apply(new)[:, 3:5])


def test_a_value_on_the_threshold_goes_left():
    stump = ([0, -1, -1], [0.5, 0.0, 0.0], [1, 0, 0], [2, 0, 0])
    trees = Trees.joined([stump])
    assert trees.apply(np.array([[0.5], [np.nextafter(0.5, 1)]])).ravel().tolist() == [1, 2]
    assert Trees.joined([([-1], [0.0], [0], [0])]).apply(np.zeros((2, 1))).tolist() == [[0], [0]]


def test_the_forest_is_that_of_the_package_quantile_forest():
    package = pytest.importorskip("quantile_forest", reason="needs the package quantile-forest")
    X, y, _ = table()
    settings = {"n_estimators": 20, "min_samples_leaf": 5, "max_features": 0.5, "bootstrap": False}
    model = QuantileForest(**settings, random_state=3).fit(X, y)
    other = package.RandomForestQuantileRegressor(
        **settings, max_samples_leaf=None, random_state=seed_of(3)
    ).fit(encoded(model, X), y)
    new = X + np.array([0.1, 5.0, 0.0])
    ask = {"X": encoded(model, new), "weighted_leaves": True}  # each tree counts alike
    mean = other.predict(**ask, quantiles="mean")
    np.testing.assert_allclose(model.predict(new), mean, rtol=1e-12)
    # Its order statistics run from level 0 to 1, ours take their share of levels: between two
    # neighbours of its lower quantiles, and equal for almost all rows.
    levels = [0.1, 0.3, 0.5, 0.7, 0.9]
    ours = model.predict_quantiles(new, levels)
    theirs = other.predict(**ask, quantiles=levels, interpolation="higher")
    assert np.mean(ours == theirs) > 0.9
    near = other.predict(**ask, quantiles=[q + d for q in levels for d in (-0.02, 0.02)])
    near = near.reshape(len(new), len(levels), 2)
    assert np.all((near[..., 0] <= ours) & (ours <= near[..., 1]))


def test_weights_are_meinshausens_with_all_rows_of_a_leaf_and_their_weights():
    X, y, w = table()
    model = QuantileForest(n_estimators=15, min_samples_leaf=8, random_state=1).fit(X, y, w)
    forest = RandomForestRegressor(
        15, min_samples_leaf=8, max_features=0.5, random_state=seed_of(1)
    ).fit(*grouped(encoded(model, X), y, w))
    new = X[:25] + np.array([0.05, 1.0, 0.0])
    at, leaves = forest.apply(encoded(model, new)), forest.apply(encoded(model, X))
    points = np.quantile(y, [0.2, 0.5, 0.8])
    for i in range(len(new)):
        together = (leaves == at[i]) * w[:, None]  # (N, T)
        weight = (together / together.sum(axis=0)).mean(axis=1)
        expected = [weight[y <= point].sum() for point in points]
        np.testing.assert_allclose(model.cdf(new[i : i + 1], points[None])[0], expected, rtol=1e-9)
        atom = np.exp(model.log_prob(new[i : i + 1], [0.0]))[0]
        assert atom == pytest.approx(weight[y == 0].sum())


def grouped(X, y, w):
    """Rows in the order in which models see them: sorted, equal covariates together."""
    order = np.lexsort([y, *X.T[::-1]])
    table = Grouped.of(X[order], y[order], w[order])
    return table.x[table.group], table.y, table.weight


def test_forests_repeat_training_responses_and_know_atoms():
    X, y, _ = table()
    model = QuantileForest(n_estimators=20, random_state=0).fit(X, y)
    assert np.isin(model.sample(X, 20), y).all()
    probability = np.exp(model.log_prob(X[:1], [[0.0]]))[0, 0]
    assert np.mean(model.sample(X[:1], 20_000, random_state=0) == 0) == pytest.approx(
        probability, abs=0.02
    )


@pytest.mark.parametrize("model", [QuantileForest(), BoostedQuantiles(n_levels=5, max_iter=20)])
def test_a_rows_bits_do_not_depend_on_its_company(model):
    X, y, _ = table(3000)
    model.set_params(random_state=0).fit(X, y)
    whole = model.predict_dist(X)
    some = [0, 17, 400, 2999]  # some have few responses, some have many
    for ask in (lambda d, y: d.crps(y), lambda d, y: d.std(), lambda d, y: d.mean()):
        answers = ask(whole, y)
        for i in some:
            alone = model.predict_dist(X[i : i + 1])
            assert ask(alone, y[i : i + 1])[0] == answers[i]


def test_the_number_of_threads_does_not_change_the_forest():
    X, y, _ = table()
    one, two = (QuantileForest(n_estimators=10, n_jobs=n, random_state=0).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_boosted_quantiles_are_those_of_scikit_learn():
    X, y, w = table()
    new, y_new, w_new = table(150, seed=1)
    settings = {"max_iter": 60, "learning_rate": 0.2, "max_leaf_nodes": 6, "min_samples_leaf": 7}
    model = BoostedQuantiles(n_levels=4, patience=5, **settings, random_state=2)
    model.fit(X, y, w, eval_set=(new, y_new, w_new))
    # Ties between splits are decided by the last bit of the weights.
    given = (CheckedRows.of(X, y, w, "").merged(), CheckedRows.of(new, y_new, w_new, ""))
    parts = [r.grouped(model.covariate_encoder_, model.response_encoder_) for r in given]
    rows, held_out = ((p.x[p.group], p.y, p.weight / p.weight.mean()) for p in parts)
    expected = []
    for level in even_levels(4):
        other = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            **settings,
            max_features=0.5,
            early_stopping=True,
            n_iter_no_change=5,
            random_state=seed_of(2),
        )
        names = ("X_val", "y_val", "sample_weight_val")
        other.fit(*rows, **dict(zip(names, held_out)))
        expected.append(other.predict(encoded(model, new)))
    assert np.diff(model.start_).max() < 60  # boosting stopped early
    expected = np.sort(np.column_stack(expected), axis=1)
    ours = model.predict_quantiles(new, even_levels(4))
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


def test_tables_go_through_sorted_quantiles_and_on_beyond_them():
    q = np.array([[1.0, 4.0, 2.0], [5.0, 5.0, 9.0]])
    found = table_through(np.array([0.2, 0.4, 0.8]), q).quantile([0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(found, [[0, 1, 2, 3, 4, 5], [5, 5, 5, 7, 9, 11]], atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        QuantileForest(n_estimators=50, random_state=0),
        BoostedQuantiles(n_levels=9, max_iter=60, random_state=0),
    ],
)
def test_a_known_law_is_recovered(model):
    benchmark = gentle.datasets.load("tanh-plus-gamma", n_train=1000, n_test=300)
    X, y = benchmark.test
    model.fit(*benchmark.train)
    levels = [0.1, 0.5, 0.9]
    truth = benchmark.truth.quantile(X, levels)
    marginal = np.quantile(benchmark.train.y, levels)
    error = np.abs(model.predict_quantiles(X, levels) - truth).mean()
    assert error < 0.15 * np.abs(marginal - truth).mean()
    assert model.score(X, y) > 0.6


def test_bad_arguments_are_refused_by_name():
    X, y, _ = table(50)
    for model, message in [
        (QuantileForest(n_estimators=0), "n_estimators must be an integer of at least 1, got 0"),
        (QuantileForest(max_features=2.0), "max_features must be a share of the covariates"),
        (BoostedQuantiles(n_levels=1), "n_levels must be an integer of at least 2, got 1"),
        (BoostedQuantiles(learning_rate=-1), "learning_rate must be positive, got -1"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)


def spoil(folder, name, change):
    """Change one array of a saved model and renew its checksum, as a hostile writer would."""
    path = folder / "weights.safetensors"
    arrays = load_file(path)
    arrays[f"model.{name}"] = np.ascontiguousarray(change(arrays[f"model.{name}"].copy()))
    save_file(arrays, path)
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(sealed(facts, path.read_bytes())))


def put(*where, value):
    def change(array):
        array[where] = value
        return array

    return change


TREES = [
    ("children", put(0, 0, value=0)),  # a node that leads to itself
    ("children", put(5, 1, value=1)),  # backwards: a loop
    ("children", put(0, 0, value=10**9)),
    ("children", put(0, 0, value=-(10**9))),
    ("children", lambda a: a.ravel()),
    ("children", lambda a: a.astype(np.float64)),
    ("feature", put(0, value=3)),  # there are columns 0 to 2
    ("feature", put(0, value=-2)),
    ("feature", put(0, value=-1)),  # a leaf that goes on
    ("feature", lambda a: a[:-1]),
    ("threshold", lambda a: a[:-1]),
    ("root", put(0, value=-1)),
    ("root", put(0, value=10**9)),
    ("root", lambda a: a[:0]),
]
LEAVES = [
    ("share_of", put(0, value=10**9)),
    ("share_of", put(0, value=-1)),
    ("share_start", put(0, value=1)),
    ("share_start", put(1, value=10**9)),
    ("share_start", lambda a: np.zeros_like(a)),
    ("share_start", lambda a: np.where(np.arange(len(a)) < len(a) - 1, 0, a)),  # empty leaves
    ("share", put(0, value=-1.0)),
    ("share", lambda a: a[:-1]),
    ("responses", lambda a: a[::-1]),
    ("responses", lambda a: a[:1]),
]
LEVELS = [
    ("start", put(1, value=10**9)),
    ("start", put(-1, value=0)),
    ("start", lambda a: a[:-1]),
    ("values", lambda a: a[:-1]),
    ("baseline", lambda a: a[:-1]),
]


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [("forest", *case) for case in TREES + LEAVES]
    + [("boosted", *case) for case in TREES + LEVELS],
)
def test_a_tampered_model_is_a_value_error(saved, tmp_path, kind, name, change):
    folder = shutil.copytree(saved[kind], tmp_path / "copy")
    spoil(folder, name, lambda array: array)
    gentle.load(folder)  # nothing changed
    spoil(folder, name, change)
    with pytest.raises(ValueError, match="cannot be read"):
        gentle.load(folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y, _ = table(100)
    models = {
        "forest": QuantileForest(n_estimators=3, min_samples_leaf=5, random_state=0),
        "boosted": BoostedQuantiles(n_levels=2, max_iter=3, min_samples_leaf=5, random_state=0),
    }
    folder = tmp_path_factory.mktemp("saved")
    for kind, model in models.items():
        model.fit(X, y).save(folder / kind)
    return {kind: folder / kind for kind in models}


def test_narrow_integers_are_refused(saved, tmp_path):
    folder = shutil.copytree(saved["boosted"], tmp_path / "copy")
    spoil(folder, "children", lambda array: array.astype(np.int8))
    with pytest.raises(ValueError, match="has the type int8"):
        gentle.load(folder)
