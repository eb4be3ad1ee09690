"""The default GENTLE by its public methods: atoms, bounds, repetition, small tables, files."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from scipy.stats import norm

import gentle
from gentle import GENTLE
from gentle.models.disk import sealed

SMALL = {"n_steps": 30, "hidden_widths": (8,), "n_trees": 6, "random_state": 0, "verbose": 0}
FAIR = {"n_steps": 400, "hidden_widths": (32, 32), "n_trees": 30, "random_state": 0, "verbose": 0}
TOP = 2.564669921875
LEVELS = np.linspace(0, 1, 101)


def line(n=150, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 2 * X[:, 0] + noise * rng.normal(size=n)


def tobit(n=1200, seed=0):
    """A normal response that is seen between 0 and a top-code only."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 2, (n, 1))
    return X, np.clip(2 * X[:, 0] + rng.normal(size=n), 0.0, TOP)


@pytest.fixture(scope="module")
def censored():
    return GENTLE(**FAIR).fit(*tobit())


@pytest.fixture(scope="module")
def plain():
    return GENTLE(**SMALL).fit(*line())


# Atoms and bounds


def test_zeros_and_top_codes_are_drawn_exactly_and_as_often_as_they_occur(censored):
    X = np.linspace(-0.9, 1.9, 15)[:, None]
    draws = censored.sample(X, 4000, random_state=1)
    assert draws.min() == 0.0
    assert draws.max() == TOP
    zero, top = norm.cdf(-2 * X[:, 0]), norm.sf(TOP - 2 * X[:, 0])
    for atom, truth in ((0.0, zero), (TOP, top)):
        share = (draws == atom).mean(axis=1)
        assert np.abs(share - truth).mean() < 0.1
        assert np.corrcoef(share, truth)[0, 1] > 0.95
    inner = (draws > 0) & (draws < TOP)
    assert len(np.unique(draws[inner])) > 0.9 * inner.sum()  # no other atoms


def test_atoms_are_told_with_the_probabilities_that_draws_have(censored):
    X = np.linspace(-0.9, 1.9, 8)[:, None]
    dist = censored.predict_dist(X)
    draws = dist.sample(20_000, random_state=2)
    for (values, mass), row in zip(dist.atoms(0.01), draws):
        assert set(values) <= {0.0, TOP}
        np.testing.assert_allclose([np.mean(row == v) for v in values], mass, atol=0.02)
    for value in (0.0, TOP):
        found = [dict(zip(*row)).get(value, 0.0) for row in dist.atoms()]
        np.testing.assert_allclose(np.exp(dist.log_prob(value)), found, atol=1e-12)
    assert dist.cdf(TOP).tolist() == [1.0] * 8
    assert dist.cdf(-1e-9).tolist() == [0.0] * 8


def test_atoms_are_not_looked_for_unless_asked():
    X, y = tobit(300)
    model = GENTLE(**SMALL | {"atoms": False, "bounds": (None, None)}).fit(X, y)
    assert all(mass.sum() < 0.05 for _, mass in model.predict_dist(X[:20]).atoms())


@pytest.mark.parametrize("model", ["plain", "censored"])
def test_quantiles_are_monotone_and_agree_with_the_distribution_function(model, request):
    model = request.getfixturevalue(model)
    X = np.linspace(-0.9, 0.9, 9)[:, None] * np.ones(model.n_features_in_)
    dist = model.predict_dist(X)
    quantiles = dist.quantile(LEVELS)
    assert np.all(np.diff(quantiles, axis=1) >= 0)
    assert np.all(dist.cdf(quantiles) >= LEVELS - 1e-9)
    np.testing.assert_array_equal(model.transport_map(X, LEVELS), quantiles)


def test_whole_numbers_give_whole_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0] + 0.7)).astype(float)
    model = GENTLE(**SMALL).fit(X, y)
    draws = model.sample(X, 100, random_state=0)
    np.testing.assert_array_equal(draws, np.round(draws))
    assert draws.min() >= 0
    assert np.corrcoef(draws.mean(axis=1), np.exp(0.5 * X[:, 0]))[0, 1] > 0.5
    assert model.predict_dist(X[:1]).atoms()[0][1].sum() == pytest.approx(1)


def test_bounds_and_tails_are_kept():
    X, y = line()
    far = np.array([[50.0, -50.0], [-50.0, 50.0], [0.0, 0.0]])
    low, high = y.min(), y.max()
    observed = GENTLE(**SMALL, tails="observed").fit(X, y)
    draws = observed.sample(np.vstack([X, far]), u=LEVELS)
    assert draws.min() >= low
    assert draws.max() <= high
    beyond = GENTLE(**FAIR).fit(X, y).sample(np.vstack([X, far]), u=LEVELS)
    assert beyond.min() < low
    assert beyond.max() > high
    bounds = (low - 0.1, high + 0.1)
    bounded = GENTLE(**FAIR, bounds=bounds).fit(X, y).sample(np.vstack([X, far]), u=LEVELS)
    assert bounds[0] <= bounded.min() < low
    assert high < bounded.max() <= bounds[1]
    positive = GENTLE(**SMALL).fit(X, np.exp(y)).sample(far, u=LEVELS)
    assert positive.min() >= 0
    with pytest.raises(ValueError, match="outside of the declared bounds"):
        GENTLE(**SMALL, bounds=(0, None)).fit(X, y)


# The same again


def test_equal_seeds_give_equal_models_and_others_do_not(plain):
    X, y = line()
    again = GENTLE(**SMALL).fit(X, y)
    np.testing.assert_array_equal(
        again.predict_quantiles(X, LEVELS), plain.predict_quantiles(X, LEVELS)
    )
    other = GENTLE(**SMALL | {"random_state": 1}).fit(X, y)
    assert not np.array_equal(other.predict(X), plain.predict(X))


def test_training_leaves_global_random_state_alone_and_ignores_it():
    X, y = line()
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = GENTLE(**SMALL | {"n_steps": 300}).fit(X, y)
    torch.manual_seed(99)
    second = GENTLE(**SMALL | {"n_steps": 300}).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    torch.manual_seed(0)
    GENTLE(**SMALL | {"n_steps": 300}).fit(X, y)
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[0], torch.get_rng_state())


@pytest.mark.parametrize("model", ["plain", "censored"])
def test_a_rows_answer_does_not_depend_on_its_company(model, request):
    model = request.getfixturevalue(model)
    X = np.random.default_rng(5).uniform(-1, 1, (150, model.n_features_in_))
    together = model.predict_quantiles(X, LEVELS)
    alone = np.vstack([model.predict_quantiles(X[i : i + 1], LEVELS) for i in range(len(X))])
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(model.predict_quantiles(X[::-1], LEVELS), together[::-1])
    spread = model.predict_dist(X).spread()
    np.testing.assert_array_equal(model.predict_dist(X[3:5]).spread(), spread[3:5])


def test_the_eval_set_judges(plain):
    X, y = line(400, seed=3)
    judge = line(200, seed=4)
    model = GENTLE(**SMALL).fit(X, y, eval_set=judge)
    assert model.validation_skill_ == pytest.approx(model.score(*judge), abs=0.03)
    assert not np.array_equal(model.predict(X), GENTLE(**SMALL).fit(X, y).predict(X))
    # Rows on which the covariates say the opposite speak for the model that knows least.
    opposite = GENTLE(**SMALL).fit(X, y, eval_set=(-judge[0], judge[1]))
    assert opposite.validation_skill_ < 0.1 < model.validation_skill_
    few = GENTLE(**SMALL).fit(X, y, eval_set=(X[:20], y[:20]))
    assert few.validation_skill_ is None
    weight = np.r_[np.ones(100), np.zeros(100)]
    half = GENTLE(**SMALL).fit(X, y, eval_set=(*judge, weight))
    same = GENTLE(**SMALL).fit(X, y, eval_set=tuple(part[:100] for part in judge))
    np.testing.assert_array_equal(half.predict(X), same.predict(X))


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40, 1e-12, 1e12])
@pytest.mark.parametrize("kind", ["normal", "heavy", "censored"])
def test_the_unit_of_the_response_does_not_matter(factor, kind):
    X, y = line() if kind != "censored" else tobit(150)
    if kind == "heavy":
        y = np.sinh(4 * y)
    one, other = GENTLE(**SMALL).fit(X, y), GENTLE(**SMALL).fit(X, y * factor)
    expected = one.predict_quantiles(X, LEVELS)
    found = other.predict_quantiles(X, LEVELS) / factor
    # A power of two changes no digit; otherwise rounding may move a tree's cut.
    exact = np.frexp(factor)[0] == 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-12 if exact else 1e-3, atol=1e-9 * y.std())
    assert np.isfinite(found).all()


# Small tables


SMALL_TABLES = {
    "three rows": ([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [1.0, 2.0, 4.0]),
    "two rows": ([[0.0], [1.0]], [1.0, 2.0]),
    "one column": (np.arange(20.0)[:, None], np.arange(20.0) ** 2),
    "a constant column": (np.column_stack([np.arange(20.0), np.ones(20)]), np.arange(20.0)),
    "one covariate": (np.ones((30, 1)), np.arange(30.0)),
    "two responses": (np.arange(30.0)[:, None], np.arange(30) % 2 + 0.5),
    "all ties but one": (np.arange(30.0)[:, None], np.r_[np.zeros(29), 1.0]),
    "two covariates": (np.arange(30.0)[:, None] % 2, np.arange(30.0)),
}


@pytest.mark.parametrize("name", sorted(SMALL_TABLES))
@pytest.mark.parametrize("n_trees", [0, 6])
def test_small_tables_give_a_model(name, n_trees):
    X, y = (np.asarray(part) for part in SMALL_TABLES[name])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constant column")
        model = GENTLE(**SMALL | {"n_trees": n_trees}).fit(X, y)
    draws = model.sample(X, u=LEVELS)
    assert np.isfinite(draws).all()
    assert np.all(np.diff(draws, axis=1) >= 0)
    assert np.isfinite(model.predict_dist(X).spread()).all()
    if name in ("two responses", "all ties but one"):
        assert np.isin(draws, y).all()


def test_a_constant_response_is_a_clear_error():
    with pytest.raises(ValueError, match=r"y is constant \(every response is 2\)"):
        GENTLE(**SMALL).fit(np.arange(9.0)[:, None], np.full(9, 2.0))


def test_networks_alone_and_larger_batches_work():
    X, y = line()
    for settings in ({"n_trees": 0}, {"batch_size": 1000}, {"batch_size": 7}, {"n_steps": 1}):
        model = GENTLE(**SMALL | settings).fit(X, y)
        assert np.isfinite(model.predict(X)).all()
        assert model.history_[-1]["epoch"] == len(model.history_)
        assert {"loss", "validation", "seconds"} <= model.history_[0].keys()
    assert "networks" in model.summary()


@pytest.mark.parametrize(("n_steps", "n_trees"), [(20, 5), (600, 10)])
def test_short_fits_grow_half_the_trees(n_steps, n_trees):
    rng = np.random.default_rng(0)
    X = rng.random((400, 1))
    y = np.floor(8 * X[:, 0]) % 2 + 0.01 * rng.normal(size=400)
    idle = {"hidden_widths": (2,), "lr_generator": 1e-6}  # networks that leave all to the trees
    settings = SMALL | idle | {"n_steps": n_steps, "n_trees": 10, "boosting": False}
    assert len(GENTLE(**settings).fit(X, y).ensemble_.forest.trees) == n_trees


def test_the_regulariser_pulls_neighbours_together():
    X, y = line()
    order = np.argsort(X[:, 0])
    free, pulled = (
        GENTLE(**SMALL | {"n_trees": 0, "n_steps": 120, "reg_weight": w}).fit(X, y)
        for w in (0.0, 30.0)
    )
    rough = [np.square(np.diff(m.predict(X[order]))).mean() for m in (free, pulled)]
    assert rough[1] < 0.8 * rough[0]


# How sure it is


def test_the_spread_is_larger_far_from_the_data():
    X, y = line(300)
    model = GENTLE(**FAIR).fit(X, y)
    near = model.predict_dist(X[np.abs(X).max(axis=1) < 0.7]).spread()
    far = model.predict_dist(np.array([[5.0, 5.0], [-6.0, 4.0], [4.0, -7.0], [-5, -5]])).spread()
    assert np.all(near >= 0)
    assert np.median(far) > 2 * np.median(near)
    scaled = GENTLE(**FAIR).fit(X, 1024 * y).predict_dist(X[:9]).spread()
    np.testing.assert_allclose(scaled, 1024 * model.predict_dist(X[:9]).spread(), rtol=1e-9)


def test_networks_that_see_the_response_as_it_is_are_averaged_in_its_units():
    X, y = line(500)
    model = GENTLE(**FAIR, tails="extrapolate").fit(X, y)
    whole, x = model.ensemble_, model._encoded_covariates(X[:40])
    linear = [float(kind.coordinate == 1) for kind in whole.kinds]
    assert any(linear)
    weights = np.append(np.array(linear) / sum(linear), 0.0)
    alone = replace(whole, weights=weights, forest=None, widening=1.0)
    u = np.linspace(0.1, 0.9, 33)
    expected = sum(share * table.quantile(u) for share, table in alone.parts(x))
    np.testing.assert_allclose(alone.table(x).quantile(u), expected, atol=0.01 * y.std())
    assert np.abs(expected).max() > 1


# Files


def test_a_loaded_model_answers_bit_for_bit(censored, plain, tmp_path):
    for name, model in (("censored", censored), ("plain", plain)):
        model.save(tmp_path / name)
        loaded = gentle.load(tmp_path / name)
        X = np.random.default_rng(5).uniform(-1, 1, (30, model.n_features_in_))
        np.testing.assert_array_equal(loaded.sample(X, 20, 0), model.sample(X, 20, 0))
        ours, theirs = model.predict_dist(X), loaded.predict_dist(X)
        np.testing.assert_array_equal(theirs.spread(), ours.spread())
        assert str(theirs.atoms()) == str(ours.atoms())
        assert loaded.history_ == model.history_
        assert loaded.validation_skill_ == model.validation_skill_
        assert loaded.summary() == model.summary()


def rewrite(folder, arrays=None, **ensemble):
    """Change a saved model as someone would who also corrects the checksum."""
    file = folder / "weights.safetensors"
    if arrays is not None:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, file)
    facts = json.loads((folder / "model.json").read_text())
    facts["facts"]["ensemble"] |= ensemble
    (folder / "model.json").write_text(json.dumps(sealed(facts, file.read_bytes())))


def test_damaged_arrays_are_a_value_error(tmp_path):
    GENTLE(**SMALL).fit(*tobit(60)).save(tmp_path / "m")
    good = load_file(tmp_path / "m" / "weights.safetensors")
    own = [name for name in good if name.startswith("model.")]
    assert any("forest" in name for name in own)
    X = np.zeros((2, 1))
    for name in own:
        array = good[name]
        whole = np.nan_to_num(array, posinf=9.0, neginf=-9.0).clip(-9, 9)
        changes = {
            "gone": None,
            "flat": array.ravel() if array.ndim > 1 else array[None],
            "shorter": array[:-1],
            "empty": array[:0],
            "NaN": np.full(array.shape, np.nan),
            "huge": np.full(
                array.shape, np.iinfo(np.int64).max if array.dtype.kind == "i" else 1e308
            ),
            "bytes": np.abs(whole).astype(np.uint8),
            "other": whole.astype(np.int64 if array.dtype.kind == "f" else np.float32),
        }
        for what, changed in changes.items():
            rest = {key: value for key, value in good.items() if key != name}
            rewrite(tmp_path / "m", rest if changed is None else rest | {name: changed})
            must_fail = what in ("gone", "flat", "shorter", "empty", "NaN")
            must_fail &= (name, what) != ("model.forest.root", "shorter")  # a tree less is fine
            try:
                loaded = gentle.load(tmp_path / "m")
            except ValueError:
                continue
            assert not (must_fail and len(array)), f"{name}, {what}"
            with np.errstate(all="ignore"):  # wrong numbers, but no crash and no endless walk
                try:
                    loaded.sample(X, 3, 0)
                except ValueError:
                    continue


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": []},
        {"kinds": [[5, ["scores"]]]},
        {"kinds": [[0, ["touch"]]]},
        {"kinds": None},
        {"n_members": 10**9},
        {"n_members": 0},
        {"n_members": "many"},
        {"weights": [0.5]},
        {"weights": [-1.0, 1.0, 1.0, 0.0]},
        {"weights": [1.0] * 4},
        {"weights": "heavy"},
        {"widening": 0},
        {"widening": 1e9},
        {"widening": None},
        {"n_coordinates": 0},
        {"n_coordinates": 99},
    ],
)
def test_damaged_facts_are_a_value_error(plain, tmp_path, change):
    plain.save(tmp_path / "m")
    rewrite(tmp_path / "m", **change)
    with pytest.raises(ValueError, match="cannot be read"):
        gentle.load(tmp_path / "m")
