"""Searches among few fixed knots for very many points, and straight lines between the knots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_N_CELLS = 4096
_N_FINE_CELLS = 2**16  # of lines, which are made once: seldom two knots in one cell
_AT_ONCE = 2**17  # points: few enough for a cache, many enough that threads seldom wait
_FEW = 4  # knots, each of which is compared with all points
_LARGEST = np.finfo(np.float64).max


class Knots:
    """Sorted numbers among which points are looked up, several times as fast as by bisection.

    The knots' range is cut into even cells. Arithmetic gives the cell of a point, a table the
    number of knots before that cell, and only those within it are left to be compared with it.

    Args:
        x: Nondecreasing, ``(m,)``.
        n_cells: Many make searches quicker, and the making of this slower.

    Example:
        >>> Knots(np.array([0.0, 1.0, 1.0, 3.0])).up_to(np.array([-1.0, 0.0, 1.0, 2.0, 4.0]))
        array([0, 1, 3, 3, 4])
    """

    def __init__(self, x: Floats, n_cells: int = _N_CELLS) -> None:
        self.x, self._n_cells = x, n_cells
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self._scale = np.float64(n_cells) / (x[-1] - x[0]) if len(x) else np.inf
            self._shift = 1 - x[0] * self._scale if len(x) else np.inf
        self._in_cells = bool(np.isfinite([self._scale, self._shift]).all()) and self._scale > 0
        if self._in_cells:
            cell = self._cells(x)
            self._before = np.searchsorted(cell, np.arange(n_cells + 3))
            n_steps = int(np.bincount(cell).max()).bit_length()
            # After the last knot there is nothing, not even for infinite points.
            padded = np.append(x, np.full(2**n_steps, np.nan))
            strides = [2**step for step in reversed(range(n_steps))]
            self._strides = [(stride, padded[stride - 1 :]) for stride in strides]

    def _cells(self, z: Floats) -> Ints:
        """The cell of each point, 0 below the knots; whatever the rounding, it increases with z."""
        with np.errstate(over="ignore", invalid="ignore"):  # NaN may be anywhere
            place = z * self._scale
            place += self._shift
            np.clip(place, 0, self._n_cells + 2, out=place)
            return place.astype(np.int64)

    def up_to(self, z: Floats) -> Ints:
        """How many knots are at or below each point; any shape."""
        return self._counted(z, np.less_equal, "right")

    def below(self, z: Floats) -> Ints:
        """How many knots are below each point; any shape."""
        return self._counted(z, np.less, "left")

    def _counted(self, z: Floats, passed: np.ufunc, side: Literal["left", "right"]) -> Ints:
        if 0 < len(self.x) <= _FEW:
            number = passed(self.x[0], z).astype(np.int64)
            for knot in self.x[1:]:
                number += passed(knot, z)
            return number
        if not self._in_cells:
            return np.searchsorted(self.x, z, side)
        points, found = z.ravel(), np.empty(z.size, np.int64)
        for some in pieces(z.size):
            part = points[some]
            number = self._before.take(self._cells(part), mode="clip", out=found[some])
            for stride, knot_after in self._strides:
                more = passed(knot_after.take(number), part)
                number += more if stride == 1 else stride * more
        return found.reshape(z.shape)


class Polyline:
    """``np.interp`` for the same knots again and again: as exact, several times as fast.

    If it has plateaus, rounding lifts no value above the next of them.

    Args:
        x: Nondecreasing, finite, ``(m,)``.
        y: Values there, nondecreasing, finite, ``(m,)``.
        below: Slope with which it goes on before the first knot.
        above: Slope after the last one.
        jump: Distance of knots up to which there is nothing between their values: just after the
            first of them the line is at the second.

    Example:
        >>> line = Polyline(np.array([0.0, 1.0, 3.0]), np.array([0.0, 10.0, 20.0]), above=1.0)
        >>> line(np.array([-1.0, 0.5, 2.0, 4.0]))
        array([ 0.,  5., 15., 21.])
    """

    def __init__(
        self, x: Floats, y: Floats, below: float = 0.0, above: float = 0.0, jump: float = 0.0
    ) -> None:
        self.x, self.y, self.below, self.above = x, y, below, above
        self.knots, run = Knots(x, _N_FINE_CELLS), np.diff(x)
        with np.errstate(over="ignore"):
            slope = np.divide(np.diff(y), run, out=np.zeros_like(run), where=run > 0)
        slope[(run > 0) & (run <= jump) & (np.diff(y) > 0)] = np.inf
        # The lines by the number of knots up to a point; before all of them there is one, too.
        self._x, self._y = np.append(x[0], x), np.append(y[0], y)
        self._slope = np.concatenate([[below], slope, [above]])
        self._steep = not np.isfinite(self._slope).all()
        self._ceiling = np.append(y, np.inf) if self._steep or np.any(np.diff(y) == 0) else None

    def __call__(self, z: Floats) -> Floats:
        """Values at points of any shape."""
        points, out = z.ravel(), np.empty(z.size)
        with np.errstate(over="ignore", invalid="ignore"):
            for some in pieces(z.size):
                line = self.knots.up_to(points[some])
                run = points[some] - self._x.take(line)
                np.clip(run, -_LARGEST, _LARGEST, out=run)
                rise = self._slope.take(line)
                rise *= run
                if self._steep:  # nothing is risen at a knot, however steep the line begins there
                    rise[run == 0] = 0.0
                np.add(rise, self._y.take(line), out=out[some])
                if self._ceiling is not None:
                    np.minimum(out[some], self._ceiling.take(line), out=out[some])
        return out.reshape(z.shape)


def pieces(n_points: int) -> Iterator[slice]:
    """Slices of points that are looked up together."""
    return (slice(i, i + _AT_ONCE) for i in range(0, n_points, _AT_ONCE))
