"""Distributions that are known in a coordinate of the response, in which atoms have width."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gentle.distribution import QuantileTable
from gentle.rowwise import between, between_columns, pick, rising

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MANY_KNOTS = 16  # further ones of a row, with which all of them are sorted in at once
_WORTH = 0.9  # share of the levels below which the others are left out
_ROWS_AT_ONCE = 1024  # few enough for a cache


class Coordinate(Protocol):
    """What leads from a coordinate z to the response."""

    def decode(self, z: Floats) -> Floats:
        """Responses, nondecreasing but for rounding, which lifts none above the next atom."""
        ...

    @property
    def plateaus(self) -> Floats:
        """First z, last z and y of each atom, ``(n_atoms, 3)``."""
        ...


class DecodedTable(QuantileTable):
    """Quantile functions of the response that are straight, in a coordinate z, between levels.

    As a table it has further knots where a row enters and leaves a plateau, so atoms have exactly
    their values and probabilities. These are different levels in each row. A question about common
    levels is answered without them but for the few points beside them.

    Args:
        coordinate: Of the response.
        levels: Common to all rows, increasing from 0 to 1, ``(L,)``.
        z: Nondecreasing along a row, ``(n, L)``.
        near: Distance of plateaus up to which there is nothing between them.
    """

    def __init__(self, coordinate: Coordinate, levels: Floats, z: Floats, near: float) -> None:
        self._coordinate, self._near, self._spread = coordinate, near, None
        self._in_z = QuantileTable(levels, z)

    def __len__(self) -> int:
        return len(self._in_z)

    @property
    def levels(self) -> Floats:  # type: ignore[override]  # noqa: D102
        return self._merged[0]

    @property
    def values(self) -> Floats:  # type: ignore[override]  # noqa: D102
        return self._merged[1]

    @cached_property
    def _merged(self) -> tuple[Floats, Floats]:
        curve = self._in_z.levels, rising(self._coordinate.decode(self._in_z.values))
        return merged(curve, self._further(curve)) if len(self._coordinate.plateaus) else curve

    def _further(self, curve: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Levels and values of the rows' further knots, nondecreasing, ``(n, m)`` each."""
        levels, atoms = self._crossings, np.repeat(self._coordinate.plateaus[:, 2], 2)
        return levels, np.clip(atoms, curve[1][:, :1], curve[1][:, -1:])

    @cached_property
    def _crossings(self) -> Floats:
        """Levels at which rows enter and leave plateaus, ``(n, m)``."""
        plateaus = self._coordinate.plateaus
        ends = plateaus[:, :2].ravel()
        levels = self._in_z.cdf(np.broadcast_to(ends, (len(self), len(ends))))
        levels = np.maximum.accumulate(levels, axis=1)
        touching = 2 * np.flatnonzero(plateaus[1:, 0] - plateaus[:-1, 1] <= self._near) + 2
        levels[:, touching] = levels[:, touching - 1]
        return levels

    def _quantiles(self, levels: Floats) -> Floats:
        n_further = 2 * len(self._coordinate.plateaus)
        if n_further > _MANY_KNOTS:
            return super()._quantiles(levels)
        curve, out = self._around(levels), np.empty((len(self), levels.size))
        for first in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            between_columns(curve[0], curve[1][rows], levels, out[rows])
        if n_further:
            row, point, values = beside(levels, curve, self._further(curve))
            out.put(levels.size * row + point, values)
        return out

    def _around(self, u: Floats) -> tuple[Floats, Floats]:
        """The curves at their ends and next to levels: levels, ``(k,)``, and values, ``(n, k)``."""
        levels, z = self._in_z.levels, self._in_z.values
        right = np.maximum(np.searchsorted(levels, u), 1)
        needed = np.unique(np.concatenate([[0, len(levels) - 1], right - 1, right]))
        if len(needed) < _WORTH * len(levels):
            levels, z = levels[needed], z.take(needed, axis=1)
        return levels, rising(self._coordinate.decode(z))


def merged(curve: tuple[Floats, Floats], knots: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """A row's curve with further knots on it, in the order of levels, then of values.

    Args:
        curve: Levels, increasing, ``(L,)``, and values, ``(n, L)``.
        knots: Levels and values, both nondecreasing along a row, ``(n, m)`` each.

    Returns:
        Levels and values, ``(n, L + m)`` each, both nondecreasing along a row.
    """
    (levels, values), (new_levels, new_values) = curve, knots
    place = _places(curve, knots)
    place += np.arange(place.shape[1])
    old = np.ones((len(values), len(levels) + place.shape[1]), bool)
    np.put_along_axis(old, place, False, axis=1)
    new, found = ~old, []
    for ours, theirs in ((np.broadcast_to(levels, values.shape), new_levels), (values, new_values)):
        together = np.empty(old.shape)
        together[old], together[new] = ours.ravel(), theirs.ravel()
        found.append(together)
    return found[0], rising(found[1])


def beside(
    u: Floats, curve: tuple[Floats, Floats], knots: tuple[Floats, Floats]
) -> tuple[Ints, Ints, Floats]:
    """Where further knots change a row's curve at common levels, and what it is there.

    Args:
        u: Levels, ``(m,)``.
        curve: As in `merged`.
        knots: As in `merged`.

    Returns:
        Rows, positions in ``u``, and values of the curve with the further knots, ``(p,)`` each.
    """
    (levels, values), (new_levels, new_values) = curve, knots
    place, order = _places(curve, knots), np.argsort(u)
    right = np.maximum(np.searchsorted(levels, u[order], "left"), 1)  # the curve's knot after u
    start = np.searchsorted(right, np.arange(len(levels) + 2))
    m, width = place.shape[1], len(levels)
    number = np.diff(start).take(place)  # of u between the curve's knots around a further one
    which = np.flatnonzero(number)
    start, number = start.take(place.take(which)), number.take(which)
    row = np.repeat(which // m, number)
    point = np.arange(len(row)) + np.repeat(start - np.cumsum(number) + number, number)
    point, right = order.take(point), right.take(point)
    at, u = m * row, u.take(point)
    k = np.zeros(len(row), np.int64)  # further knots before u
    for knot in range(m):
        k += new_levels.take(at + knot) < u
    after, before = at + np.minimum(k, m - 1), at + np.maximum(k - 1, 0)
    here = width * row + right
    near = (k < m) & (place.take(after) <= right)
    l1 = np.where(near, new_levels.take(after), levels.take(right))
    v1 = np.where(near, new_values.take(after), values.take(here))
    near = (k > 0) & (place.take(before) >= right)
    l0 = np.where(near, new_levels.take(before), levels.take(right - 1))
    v0 = np.where(near, new_values.take(before), values.take(here - 1))
    return row, point, between(u, (l0, v0), (l1, v1))


def _places(curve: tuple[Floats, Floats], knots: tuple[Floats, Floats]) -> Ints:
    """How many knots of the curve come before each of the further ones, ``(n, m)``."""
    (levels, values), (new_levels, new_values) = curve, knots
    place = np.searchsorted(levels, new_levels)
    same = np.minimum(place, len(levels) - 1)
    place += (levels[same] == new_levels) & (pick(values, same) <= new_values)
    return place
