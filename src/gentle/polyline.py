"""Searches among few fixed knots for very many points, and straight lines between the knots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_N_CELLS = 4096
_AT_ONCE = 16_384  # points; with what is made of them on the way they fit the cache
_LARGEST = np.finfo(np.float64).max


class Knots:
    """Sorted numbers among which points are looked up, several times as fast as by bisection.

    The knots' range is cut into even cells. Arithmetic gives the cell of a point, a table the last
    knot before that cell, and only the knots within it are left to be compared with the point.

    Args:
        x: Nondecreasing, ``(m,)``.

    Example:
        >>> Knots(np.array([0.0, 1.0, 1.0, 3.0])).last(np.array([-1.0, 0.0, 1.0, 2.0, 4.0]))
        array([-1,  0,  2,  2,  3])
    """

    def __init__(self, x: Floats) -> None:
        self.x = x
        with np.errstate(over="ignore", divide="ignore"):
            self._scale = np.float64(_N_CELLS) / (x[-1] - x[0])
        self.even = bool(np.isfinite(self._scale)) and self._scale > 0
        if self.even:
            cell = self._cells(x)
            self._before = np.searchsorted(cell, np.arange(_N_CELLS + 3)) - 1
            n_steps = int(np.bincount(cell).max()).bit_length()
            self._strides = [2**step for step in reversed(range(n_steps))]
            # Beyond the last knot there is nothing, not even for infinite points.
            self._from_first = np.append(x, np.full(2**n_steps, np.nan))

    def _cells(self, z: Floats) -> Ints:
        """The cell of each point, 0 below the knots; whatever the rounding, it increases with z."""
        place = (z - self.x[0]) * self._scale
        np.floor(place, out=place)
        np.clip(place, -1, _N_CELLS + 1, out=place)
        with np.errstate(invalid="ignore"):  # NaN may be anywhere
            return place.astype(np.int64) + 1

    def last(self, z: Floats) -> Ints:
        """The last knot at or below each point, -1 if there is none; any shape."""
        return self._found(z, "right") - 1

    def first(self, z: Floats) -> Ints:
        """The first knot at or above each point, m if there is none; any shape."""
        return self._found(z, "left")

    def _found(self, z: Floats, side: Literal["left", "right"]) -> Ints:
        if not self.even:
            return np.searchsorted(self.x, z, side)
        points, found = z.ravel(), np.empty(z.size, np.int64)
        passed = np.less if side == "left" else np.less_equal
        for some in pieces(z.size):
            some_points = points[some]
            number = self._before.take(self._cells(some_points), mode="clip")
            for stride in self._strides:
                number += stride * passed(self._from_first.take(number + stride), some_points)
            number += 1
            found[some] = number
        return found.reshape(z.shape)


class Polyline:
    """``np.interp`` for the same knots again and again: as exact, several times as fast.

    Args:
        x: Nondecreasing, finite, ``(m,)``.
        y: Values there, finite, ``(m,)``.
        below: Slope with which it goes on before the first knot.
        above: Slope after the last one.

    Example:
        >>> line = Polyline(np.array([0.0, 1.0, 3.0]), np.array([0.0, 10.0, 20.0]), above=1.0)
        >>> line(np.array([-1.0, 0.5, 2.0, 4.0]))
        array([ 0.,  5., 15., 21.])
    """

    def __init__(self, x: Floats, y: Floats, below: float = 0.0, above: float = 0.0) -> None:
        self.knots, run = Knots(x), np.diff(x)
        with np.errstate(over="ignore"):
            slope = np.divide(np.diff(y), run, out=np.zeros_like(run), where=run > 0)
        # Before the first knot the line starts there, too.
        self._x, self._y = np.append(x[0], x), np.append(y[0], y)
        self._slope = np.concatenate([[below], slope, [above]])
        self._steep = not np.isfinite(self._slope).all()

    def __call__(self, z: Floats) -> Floats:
        """Values at points of any shape."""
        points, out = z.ravel(), np.empty(z.size)
        for some in pieces(z.size):
            out[some] = self._at(points[some])
        return out.reshape(z.shape)

    def _at(self, z: Floats) -> Floats:
        start = self.knots.last(z) + 1  # -1 has a line of its own
        z = np.clip(z, -_LARGEST, _LARGEST)
        z -= self._x.take(start)
        with np.errstate(over="ignore", invalid="ignore"):
            rise = self._slope.take(start) * z
        if self._steep:  # nothing is risen at a knot, however steep the line begins there
            rise[z == 0] = 0.0
        rise += self._y.take(start)
        return rise


def pieces(n_points: int) -> Iterator[slice]:
    """Slices of points that are looked up together."""
    return (slice(i, i + _AT_ONCE) for i in range(0, n_points, _AT_ONCE))
