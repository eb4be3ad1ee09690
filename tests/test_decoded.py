"""Distributions known in a coordinate: as tables, and at common levels without making them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gentle.decoded import merged
from gentle.distribution import QuantileTable
from gentle.responses import ResponseEncoder


@given(
    st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0, 7.0]), max_size=4, unique=True),
    st.integers(0, 2**32),
    st.sampled_from(["ranks", "linear"]),
    st.integers(1, 60),
)
def test_common_levels_are_answered_as_by_the_whole_table(atoms, seed, scale, n_levels):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=300) * 3
    if atoms:  # they may be all of it, so that plateaus touch
        y = np.where(rng.random(300) < rng.choice([0.1, 0.6, 1]), rng.choice(atoms, 300), y)
    y[0] += 1.0  # not constant
    one = ResponseEncoder.of(y, np.ones(300), scale=scale)
    levels = np.concatenate([[0.0], np.unique(rng.random(12)), [1.0]])
    z = np.sort(rng.normal(size=(20, len(levels))), axis=1)
    z[10:] = np.sort(
        np.where(rng.random(z[10:].shape) < 0.5, rng.choice(one.z, z[10:].shape), z[10:])
    )
    table = one.table(levels, z)
    u = np.concatenate([rng.random(n_levels), levels, table.levels[::7].ravel(), [0.0, 1.0, 0.5]])
    whole = QuantileTable(table.levels, table.values)
    np.testing.assert_allclose(table.quantile(u), whole.quantile(u), rtol=1e-12, atol=1e-13)
    at_atom = np.isin(whole.quantile(u), one.plateaus[:, 2])
    np.testing.assert_array_equal(table.quantile(u)[at_atom], whole.quantile(u)[at_atom])
    assert np.all(np.diff(table.quantile(np.sort(u)), axis=1) >= 0)


def test_knots_are_merged_in_the_order_of_levels_then_of_values():
    rng = np.random.default_rng(0)
    levels = np.linspace(0, 1, 9)
    values = np.sort(rng.integers(0, 9, (60, 9)) / 8, axis=1)
    new = np.sort(rng.integers(0, 17, (60, 5)) / 16, axis=1)  # some on the levels, some twice
    new_values = np.array([np.interp(u, levels, row) for u, row in zip(new, values)])
    together = np.concatenate([np.broadcast_to(levels, values.shape), new], axis=1)
    all_values = np.concatenate([values, new_values], axis=1)
    order = np.lexsort((all_values, together), axis=1)
    found = merged((levels, values), (new, new_values))
    np.testing.assert_array_equal(found[0], np.take_along_axis(together, order, 1))
    np.testing.assert_array_equal(found[1], np.take_along_axis(all_values, order, 1))
