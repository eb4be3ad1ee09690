"""Coordinates of responses: nondecreasing, exact at atoms, within bounds, at every scale."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gentle.responses import ResponseEncoder, find_atoms

GRID = (np.arange(50_000) + 0.5) / 50_000


def sample(kind, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    plain = rng.gamma(2.0, 10.0, n)
    return {
        "continuous": rng.normal(size=n),
        "heavy tails": rng.standard_t(1.5, n),
        "zero-inflated": np.where(rng.random(n) < 0.4, 0.0, plain),
        "top-coded": np.minimum(plain, 25.564669921875),
        "heaped wages": np.where(rng.random(n) < 0.3, 5 * np.ceil(plain / 5), plain),
        "integers": rng.integers(0, 11, n).astype(float),
        "two values": np.where(rng.random(n) < 0.3, 1.5, -0.25),
    }[kind]


KINDS = ["continuous", "heavy tails", "zero-inflated", "top-coded", "heaped wages", "integers"]
KINDS += ["two values"]


def encoder(y, weight=None, **options):
    return ResponseEncoder.of(y, np.ones(len(y)) if weight is None else weight, **options)


def far(one):
    """Points of the coordinate: the knots, between them, far beyond."""
    ends = np.array([-1e9, -1e3, -9.0, 9.0, 1e3, 1e9])
    inside = np.linspace(one.z[0] - 2, one.z[-1] + 2, 4001)
    return np.sort(np.concatenate([one.z, inside, ends]))


def assert_nondecreasing(y, of):
    scale = np.abs(of.y).max()
    assert np.all(np.isfinite(y))
    assert np.all(np.diff(y) >= -1e-12 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["ranks", "linear"])
@pytest.mark.parametrize("tails", ["observed", "extrapolate"])
def test_the_map_is_nondecreasing_stays_within_bounds_and_gives_atoms_back(kind, scale, tails):
    y = sample(kind)
    one = encoder(y, scale=scale, tails=tails)
    values = one.decode(far(one))
    assert_nondecreasing(values, one)
    low, high = (y.min(), y.max()) if tails == "observed" else one.bounds
    assert np.all((values >= low) & (values <= high))
    low, high = one.interval(y)
    assert np.all(high >= low)
    atoms = one.plateaus[:, 2]
    at_atom = np.isin(y, atoms)
    np.testing.assert_array_equal(high > low, at_atom)
    jitter = np.random.default_rng(1).random(len(y))
    back = one.decode(low + jitter * (high - low))
    np.testing.assert_array_equal(back[at_atom], y[at_atom])  # bit for bit
    np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-7 * y.std())


@pytest.mark.parametrize("kind", ["continuous", "heavy tails", "zero-inflated"])
def test_tails_go_on_beyond_the_responses_only_if_they_may(kind):
    y = sample(kind)
    for tails, beyond in (("observed", False), ("extrapolate", True)):
        one = encoder(y, tails=tails)
        assert (one.decode(one.z[-1:] + 1) > y.max()).all() == beyond
    one = encoder(y, bounds=(None, y.max() + 0.01))
    top = one.decode(one.z[-1] + np.array([0.0, 0.1, 1.0, 10.0, 1e6, 1e300]))
    assert np.all(np.diff(top) >= 0)
    assert top[0] == y.max() < top[1] <= top[-1] <= y.max() + 0.01


def test_bounds_are_zero_where_no_response_is_beyond_it_or_as_declared():
    rng = np.random.default_rng(0)
    y = rng.gamma(2.0, 1.0, 300)
    for values, bounds, expected in [
        (y, "auto", (0.0, np.inf)),
        (-y, "auto", (-np.inf, 0.0)),
        (y - 1, "auto", (-np.inf, np.inf)),
        (y, (None, None), (-np.inf, np.inf)),
        (y, (-3, 1000), (-3.0, 1000.0)),
    ]:
        one = encoder(values, bounds=bounds)
        assert tuple(one.bounds) == expected
        at = one.decode(np.array([-1e8, 1e8]))
        assert expected[0] <= at[0] < values.min()
        assert values.max() < at[1] <= expected[1]
    for wrong in [(1.0, 1.0), (2.0, 1.0), (y.max(), None), (None, y.min()), (np.nan, None)]:
        with pytest.raises(ValueError, match=r"bounds must be \(lower, upper\)|declared bounds"):
            encoder(y, bounds=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_the_probability_of_an_atom_is_the_length_of_levels_on_its_plateau(kind):
    one = encoder(sample(kind))
    rng = np.random.default_rng(3)
    levels = np.concatenate([[0.0], np.sort(rng.random(30)), [1.0]])
    centre, slope = rng.uniform(-1.5, 1.5, (6, 1)), rng.uniform(0.05, 1.5, (6, 1))
    z = centre + slope * np.cumsum(rng.random((6, 32)) ** 3, axis=1) / 3
    z[4] = np.sort(rng.choice(one.z, 32))  # on knots
    z[5] = one.z[len(one.z) // 2]  # a point
    table = one.table(levels, z)
    fine = np.array([one.decode(np.interp(GRID, levels, row)) for row in z])
    np.testing.assert_allclose(table.quantile(GRID)[:4], fine[:4], atol=0.02 * np.ptp(one.y))
    discrete = kind in ("integers", "two values")
    for number, ((values, mass), row) in enumerate(zip(table.atoms(), fine)):
        if discrete:
            assert mass.sum() == pytest.approx(1)
            if number == 4:  # it spends levels where two plateaus touch
                continue
        found = dict(zip(values, mass))
        for atom in one.plateaus[:, 2]:
            share = np.mean(row == atom)
            assert found.get(atom, 0.0) == pytest.approx(share, abs=1e-4)
    if discrete:
        assert np.isin(table.sample(2000, random_state=0), one.y).all()


@pytest.mark.parametrize("scale", ["ranks", "linear"])
def test_only_relative_weights_matter_and_weights_act_like_copies(scale):
    y = sample("zero-inflated", 400)
    weight = np.random.default_rng(1).integers(1, 4, 400).astype(float)
    one, scaled = encoder(y, weight, scale=scale), encoder(y, weight * 1024, scale=scale)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, scaled.arrays()[name])
    copies = encoder(np.repeat(y, weight.astype(int)), scale=scale)
    # Copies are more rows: the outermost ranks lie further out, the others stay.
    inner = (y > 0) & (y < np.quantile(y, 0.9))
    for mine, theirs in zip(one.interval(y[inner]), copies.interval(y[inner])):
        np.testing.assert_allclose(mine, theirs, atol=0.02)
    plain = encoder(y, scale=scale)
    assert np.abs(one.interval(y[inner])[0] - plain.interval(y[inner])[0]).max() > 0.02


def atoms_of(y):
    values, n_rows = np.unique(y, return_counts=True)
    return values[find_atoms(values, n_rows / n_rows.sum(), n_rows)]


def test_atoms_are_values_that_many_share_not_chance_nor_rounding():
    assert atoms_of(sample("zero-inflated")).tolist() == [0.0]
    assert atoms_of(sample("top-coded")).tolist() == [25.564669921875]
    assert atoms_of(sample("integers")).tolist() == list(range(11))
    assert atoms_of(sample("two values")).tolist() == [-0.25, 1.5]
    heaps = atoms_of(sample("heaped wages"))
    assert set(heaps) >= {5.0, 10.0, 15.0, 20.0}
    assert np.all(heaps % 5 == 0)
    for n in (30, 300, 3000, 30_000):
        assert len(atoms_of(sample("continuous", n))) == 0
        assert len(atoms_of(np.round(10 * sample("continuous", n), 2))) == 0
    # A value is no atom of a few rows, nor of many that are a negligible part.
    assert len(atoms_of(np.append(sample("continuous", 100), [0.0] * 4))) == 0
    assert len(atoms_of(np.append(sample("continuous", 30_000), [0.0] * 50))) == 0
    assert not len(encoder(sample("zero-inflated"), atoms=False).plateaus)


def test_restored_is_the_same_and_refuses_what_cannot_work():
    for kind in KINDS:
        one = encoder(sample(kind))
        arrays_ = one.arrays()
        assert all(np.isfinite(array).all() for array in arrays_.values())
        again = ResponseEncoder.restored(arrays_)
        for name in ("z", "y", "slopes", "bounds"):
            np.testing.assert_array_equal(getattr(again, name), getattr(one, name))
    good = encoder(sample("zero-inflated")).arrays()
    damaged = [
        {"z": good["z"][:-1]},
        {"z": good["z"][::-1]},
        {"z": good["z"][:1], "y": good["y"][:1]},
        {"z": good["z"][None], "y": good["y"][None]},
        {"z": np.where(good["z"] > 0, np.nan, good["z"])},
        {"z": np.zeros_like(good["z"])},
        {"y": good["y"][::-1]},
        {"y": np.append(good["y"][:-1], np.inf)},
        {"slopes": np.array([-1.0, 0.0])},
        {"slopes": np.array([0.0, np.nan])},
        {"slopes": np.zeros(3)},
        {"bounds": np.array([1.0, 1e9])},
        {"bounds": np.array([0.0, good["y"][-1] / 2])},
        {"bounds": np.array([np.nan, 1e9])},
        {"bounds": np.zeros(())},
    ]
    for change in damaged:
        with pytest.raises(ValueError, match="response encoder is damaged"):
            ResponseEncoder.restored(good | change)


@st.composite
def samples(draw):
    """Any numbers: ties, two values, all equal but one, from 1e-300 to 1e300."""
    number = st.one_of(st.floats(-1, 1), st.integers(-3, 3).map(float), st.just(0.5))
    y = np.array(draw(st.lists(number, min_size=2, max_size=60)))
    if draw(st.booleans()):
        y = np.repeat(y, draw(st.integers(1, 9)))
    y = y * 10.0 ** draw(st.sampled_from([-300, -12, -3, 0, 0, 3, 12, 300]))
    y = y + draw(st.sampled_from([0.0, 0.0, 1.0, 1e6]))
    assume(y.min() < y.max())
    weights = st.one_of(st.floats(0.01, 100), st.just(1.0), st.just(1e-12))
    weight = draw(arrays(np.float64, len(y), elements=weights))
    return y, weight


@given(
    samples(),
    st.sampled_from(["ranks", "linear"]),
    st.sampled_from(["observed", "extrapolate"]),
    st.sampled_from(["auto", (None, None)]),
    st.booleans(),
)
def test_every_sample_has_a_coordinate(data, scale, tails, bounds, atoms):
    y, weight = data
    options = {"scale": scale, "tails": tails, "bounds": bounds, "atoms": atoms}
    one = ResponseEncoder.of(y, weight, **options)
    ResponseEncoder.restored(one.arrays())
    values = one.decode(far(one))
    assert_nondecreasing(values / 1e3, one)
    assert np.all((values >= one.bounds[0]) & (values <= one.bounds[1]))
    if tails == "observed":
        assert np.all((values >= y.min()) & (values <= y.max()))
    low, high = one.interval(y)
    assert np.all(np.isfinite(low))
    assert np.all(high >= low)
    at_atom = np.isin(y, one.plateaus[:, 2])
    np.testing.assert_array_equal(one.decode((low + high) / 2)[at_atom], y[at_atom])
    order = np.argsort(y, kind="stable")
    assert np.all(np.diff(low[order]) >= 0)
    z = np.sort(np.random.default_rng(0).normal(size=(3, 9)), axis=1)
    table = one.table(np.linspace(0, 1, 9), z)
    assert np.all(np.isfinite(table.values))


def test_all_ties_but_one_and_tiny_weights_are_fine():
    for y in (np.r_[np.zeros(1000), 1.0], np.r_[7.25, np.full(3, 9.0)], np.array([0.0, 5e-324])):
        for weight in (np.ones(len(y)), np.r_[np.full(len(y) - 1, 1.0), 1e-200]):
            for scale in ("ranks", "linear"):
                one = encoder(y, weight, scale=scale)
                assert_nondecreasing(one.decode(far(one)), one)
                ResponseEncoder.restored(one.arrays())
