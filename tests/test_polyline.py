"""Fast searches and straight lines agree with those of NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gentle.polyline import Knots, Polyline
from gentle.rowwise import interpolated, inverse, search_common

numbers = st.floats(-1e6, 1e6, allow_nan=False)
few_numbers = st.sampled_from([-2.0, 0.0, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 3.0, 1e6])
knots = arrays(np.float64, st.integers(2, 40), elements=numbers | few_numbers).map(np.sort)


def around(x):
    """The knots, their neighbours among the floats, and points between and beyond."""
    sides = [np.nextafter(x, -np.inf), x, np.nextafter(x, np.inf), (x[1:] + x[:-1]) / 2]
    return np.concatenate([*sides, [x[0] - 1, x[-1] + 1, -np.inf, np.inf]])


@given(knots)
def test_knots_are_counted_as_by_bisection(x):
    z = around(x)
    np.testing.assert_array_equal(Knots(x).up_to(z), np.searchsorted(x, z, "right"))
    np.testing.assert_array_equal(Knots(x).below(z[None])[0], np.searchsorted(x, z, "left"))


@pytest.mark.parametrize("x", [[-1.7e308, 1.7e308], [0.0, 5e-324], [1.0, 1.0], [2.0], []])
def test_knots_too_near_or_too_far_for_cells_are_counted_too(x):
    x, z = np.array(x), around(np.array([*x, 1.0]))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(Knots(x).up_to(z), np.searchsorted(x, z, "right"))


@given(knots, st.randoms(use_true_random=False))
def test_lines_between_knots_are_those_of_numpy(x, random):
    y = np.sort([random.uniform(-100, 100) for _ in x])
    y = y[np.searchsorted(x, x, "right") - 1]  # one value where knots coincide
    z, rounding = around(x), 1e-15 * np.abs(y).max()
    next_knot = np.append(y, np.inf)[np.searchsorted(x, z, "right")]
    expected = np.minimum(np.interp(z, x, y), next_knot)  # NumPy's may be rounded beyond it
    np.testing.assert_allclose(Polyline(x, y)(z), expected, rtol=1e-12, atol=rounding)


def test_lines_go_on_beyond_the_knots_with_given_slopes():
    line = Polyline(np.array([0.0, 1.0]), np.array([5.0, 6.0]), below=2.0, above=3.0)
    np.testing.assert_allclose(line(np.array([[-1.0, 0.5], [2.0, 1.0]])), [[3, 5.5], [9, 6]])


def test_a_line_too_steep_for_a_float_still_starts_at_its_knot():
    line = Polyline(np.array([0.0, 1e-9, 1.0]), np.array([-1.7e308, 0.0, 1.0]))
    np.testing.assert_array_equal(line(np.array([0.0, 1e-9, 1.0])), [-1.7e308, 0.0, 1.0])


@given(knots)
def test_rounding_lifts_nothing_above_a_plateau(x):
    x = np.unique(np.append(x, [0.3, 0.7]))
    y = np.repeat(x / 3, 2)[: len(x)]  # every other piece is level
    z, line = around(x), Polyline(x, y)
    next_knot = np.append(y, np.inf)[np.searchsorted(x, z, "right")]
    assert np.all(line(z) <= next_knot)
    np.testing.assert_array_equal(line(x), y)


def test_between_knots_that_touch_there_is_nothing():
    x, y = np.array([0.0, 1.0, 1.0 + 1e-9, 2.0]), np.array([5.0, 5.0, 7.0, 7.0])
    z = np.array([0.5, 1.0, np.nextafter(1.0, 2), 1.0 + 5e-10, 1.0 + 1e-9, 1.5])
    np.testing.assert_array_equal(Polyline(x, y, jump=2e-9)(z), [5, 5, 7, 7, 7, 7])


def test_many_points_at_once_are_searched_as_each_by_itself():
    x, z = np.linspace(0, 1, 77) ** 3, np.random.default_rng(0).uniform(-0.1, 1.1, (300, 143))
    np.testing.assert_array_equal(Knots(x).up_to(z), np.searchsorted(x, z, "right"))


@pytest.mark.parametrize("side", ["left", "right"])
def test_common_points_are_found_in_each_row(side):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 12, (50, 30)) / 12, axis=1)  # with ties
    points = rng.permutation(np.arange(-1, 14) / 12)
    expected = [np.searchsorted(row, points, side) for row in rows]
    np.testing.assert_array_equal(search_common(rows, points, side), expected)
    np.testing.assert_array_equal(
        search_common(rows, points[:1], side)[:, 0], [e[0] for e in expected]
    )


def test_common_levels_give_what_levels_of_each_row_give():
    rng = np.random.default_rng(1)
    levels = np.sort(np.column_stack([np.zeros(20), rng.random((20, 9)), np.ones(20)]), axis=1)
    values = np.sort(rng.normal(size=levels.shape), axis=1)
    for u in (np.linspace(0, 1, 70), np.array([0.3, 0.1]), np.array([0.5]), np.array([])):
        each = interpolated(levels, values, np.broadcast_to(u, (20, len(u))))
        np.testing.assert_array_equal(interpolated(levels, values, u), each)


def test_a_distribution_function_is_inverted_as_by_numpy():
    rng = np.random.default_rng(2)
    steps = rng.random((40, 25)) * (rng.random((40, 25)) < 0.5)  # with gaps
    cdf = np.column_stack([np.zeros(40), np.cumsum(steps, axis=1)])
    cdf /= cdf[:, -1:]
    edges, u = np.sort(rng.normal(size=26)), np.linspace(0.01, 0.99, 33)
    expected = [np.interp(u, row, edges) for row in cdf]
    np.testing.assert_array_equal(inverse(cdf, edges, u), expected)
