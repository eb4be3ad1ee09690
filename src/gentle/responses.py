"""Responses as they really are: atoms with width, bounds, skewed and heavy tails."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gentle.decoded import DecodedTable
from gentle.distribution import QuantileTable
from gentle.polyline import Polyline

Floats = NDArray[np.float64]
Bounds = tuple[float | None, float | None]
Tails = Literal["observed", "extrapolate"]
Scale = Literal["ranks", "linear"]

_MIN_ATOM_SHARE, _MIN_ATOM_ROWS = 0.005, 5
_MAX_ATOMS, _MAX_KNOTS = 500, 500
_MOSTLY = 0.9  # of the weight in atoms: then every value is one
_LINEAR_PART = 0.2  # of the coordinate "ranks"
_ATOM_WIDTH = 3.0  # of an atom of all the weight, in the coordinate "linear"
_TAIL = 0.5  # standard deviations of the coordinate from which the tails' slope is taken
_NEAR = 1e-9  # smallest distance of knots
_TOUCHING = 2 * _NEAR  # of plateaus, between which there is nothing
_FARTHEST = 1e6  # standard deviations; further out the knots could not be told apart
_LARGEST = np.finfo(np.float64).max  # stands for infinity in files, which hold finite numbers


@dataclass(frozen=True)
class ResponseEncoder:
    r"""A coordinate z for responses y, in which atoms have width and a network can work.

    The map from z to y is nondecreasing and straight between knots. An atom, a value that many
    responses share, is a plateau: all z between two knots of one y. So a continuous quantile
    function in z becomes one in y that has the atom, exactly and with the probability that it
    spends on the plateau. A response at an atom is encoded as a random point of its plateau.

    Between atoms, "ranks" gives z mostly by normal scores of the ranks, which tames skewed and
    heavy-tailed responses; "linear" is the standardised response. Beyond the outermost knots,
    ``tails="observed"`` stays at the smallest or largest training response. "extrapolate" goes on
    with the slope of the outermost half standard deviation; towards a bound it bends so that the
    bound is never reached, and beyond an atom that is the smallest or largest response (zero, a
    top-code) there is nothing.

    Attributes:
        z: Knots, increasing, ``(m,)``.
        y: Responses there, nondecreasing, ``(m,)``.
        slopes: dy/dz below the first and above the last knot, ``(2,)``.
        bounds: Values that are never passed, ±inf for none, ``(2,)``.
    """

    z: Floats
    y: Floats
    slopes: Floats
    bounds: Floats

    @classmethod
    def of(
        cls,
        y: Floats,
        weight: Floats,
        *,
        scale: Scale = "ranks",
        tails: Tails = "extrapolate",
        bounds: Bounds | Literal["auto"] = "auto",
        atoms: bool = True,
    ) -> ResponseEncoder:
        """The coordinate of weighted training responses.

        Args:
            y: Responses, ``(N,)``, not all equal.
            weight: Their weights, ``(N,)``; only relative ones matter.
            scale: "ranks" or "linear".
            tails: "observed" or "extrapolate".
            bounds: Smallest and largest possible response, None for none; "auto" takes 0 where no
                response is negative (or none positive).
            atoms: Look for atoms.
        """
        values, inverse = np.unique(y, return_inverse=True)
        share = np.bincount(inverse.ravel(), weight) / weight.sum()
        n_rows = np.bincount(inverse.ravel())
        is_atom = find_atoms(values, share, n_rows) if atoms else np.zeros(len(values), bool)
        low, high = _limits(values, bounds)
        after = np.cumsum(share)
        # Strictly inside (0, 1), as if one more response were spread over the whole line.
        n = weight.sum() ** 2 / (weight**2).sum()
        after = np.minimum(after, 1.0) * (n / (n + 1)) + 0.5 / (n + 1)
        before = np.concatenate([[0.5 / (n + 1)], after[:-1]])
        straight = _standardised(values, share)
        if is_atom.all():  # a discrete response: there is nothing between the plateaus
            left, right = ndtri(before), ndtri(after)
        elif scale == "linear":
            width = np.where(is_atom, _ATOM_WIDTH * share, 0.0)
            left = straight + np.cumsum(width) - width
            right = left + width
        else:
            left = _LINEAR_PART * straight + (1 - _LINEAR_PART) * ndtri(before)
            right = _LINEAR_PART * straight + (1 - _LINEAR_PART) * ndtri(after)
            middle = (left + right) / 2
            left, right = np.where(is_atom, left, middle), np.where(is_atom, right, middle)
        chosen = _knots(is_atom, after, linear=scale == "linear")
        z = np.column_stack([left, right])[chosen]
        y_knots = np.repeat(values[chosen], 2)
        once = np.column_stack([np.ones(len(chosen), bool), is_atom[chosen]]).ravel()
        z, y_knots = z.ravel()[once], y_knots[once]
        z = np.asarray(np.maximum.accumulate(z) + _NEAR * np.arange(len(z)), np.float64)
        slopes = np.zeros(2) if tails == "observed" else _slopes(z, y_knots)
        return cls(z, y_knots, slopes, np.array([low, high]))

    def interval(self, y: Floats) -> tuple[Floats, Floats]:
        """The z that belong to responses: their first and last, equal but for atoms."""
        first = np.searchsorted(self.y, y, "left")
        last = np.searchsorted(self.y, y, "right") - 1
        on_knot = last >= first
        i = np.clip(first, 1, len(self.z) - 1)  # responses beyond all knots go on straight
        run = self.y[i] - self.y[i - 1]
        t = np.divide(y - self.y[i - 1], run, out=np.zeros_like(run), where=run > 0)
        between = self.z[i - 1] + t * (self.z[i] - self.z[i - 1])
        between = np.where(
            first == 0, self.z[0], np.where(first == len(self.z), self.z[-1], between)
        )
        top = len(self.z) - 1
        return (
            np.where(on_knot, self.z[np.minimum(first, top)], between),
            np.where(on_knot, self.z[np.clip(last, 0, top)], between),
        )

    def decode(self, z: Floats) -> Floats:
        """Responses at points of the coordinate; nondecreasing but for rounding."""
        y = self._line(z)
        if self._bends[0] and np.any(below := z < self.z[0]):
            room = self.y[0] - self.bounds[0]
            y[below] -= _beyond(self.z[0] - z[below], room, self.slopes[0])
        if self._bends[1] and np.any(above := z > self.z[-1]):
            room = self.bounds[1] - self.y[-1]
            y[above] += _beyond(z[above] - self.z[-1], room, self.slopes[1])
        return np.clip(y, *self.limits, out=y)

    @property
    def _bends(self) -> NDArray[np.bool_]:
        """Whether y goes on below and above the knots, but towards a bound, ``(2,)``."""
        return (self.slopes > 0) & np.isfinite(self.bounds)

    @cached_property
    def _line(self) -> Polyline:
        """From z to y, but for tails that bend."""
        below, above = np.where(self._bends, 0.0, self.slopes)
        return Polyline(self.z, self.y, below, above, _TOUCHING)

    @property
    def limits(self) -> Floats:
        """The smallest and the largest response that `decode` can give, ``(2,)``."""
        return np.clip(np.where(self.slopes > 0, self.bounds, self.y[[0, -1]]), -_LARGEST, _LARGEST)

    @property
    def plateaus(self) -> Floats:
        """First z, last z and y of each atom, ``(n_atoms, 3)``."""
        at = np.flatnonzero(np.diff(self.y) == 0)
        return np.column_stack([self.z[at], self.z[at + 1], self.y[at]])

    def table(self, levels: Floats, z: Floats) -> QuantileTable:
        """Distributions of y whose quantile functions in z are straight between levels.

        Where a row's quantile function enters and leaves a plateau it gets further knots, so atoms
        have exactly their values and probabilities.

        Args:
            levels: From 0 to 1, ``(L,)``.
            z: Nondecreasing along a row, ``(n, L)``.
        """
        return DecodedTable(self, levels, z, _TOUCHING)

    def seen_from(self, source: ResponseEncoder) -> ResponseEncoder:
        """The coordinate of ``source``, with which `translated` and `decode` are one step.

        Between the responses that both were made of, this is how ``source`` decodes: responses do
        not change on the way.
        """
        way = translation(source, self)
        slopes = self.slopes * [way.below, way.above]
        return ResponseEncoder(source.z, source.y, slopes, self.bounds)

    def arrays(self) -> dict[str, Floats]:
        """What `restored` needs, all of it finite."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {"bounds": np.clip(self.bounds, -_LARGEST, _LARGEST)}

    @classmethod
    def restored(cls, arrays: dict[str, Any]) -> ResponseEncoder:
        """An encoder from arrays that may hold anything: a ValueError unless it can work."""
        z, y, slopes, bounds = (np.asarray(arrays[field.name], np.float64) for field in fields(cls))
        bounds = np.where(np.abs(bounds) == _LARGEST, np.copysign(np.inf, bounds), bounds)
        if not (
            z.ndim == 1
            and z.shape == y.shape
            and len(z) > 1
            and slopes.shape == bounds.shape == (2,)
            and np.all(np.isfinite(z))
            and np.all(np.isfinite(y))
            and np.all(np.isfinite(slopes))
            and np.all(np.diff(z) > 0)
            and np.all(np.diff(y) >= 0)
            and np.all(slopes >= 0)
            and bounds[0] <= y[0]
            and y[-1] <= bounds[1]
        ):
            raise ValueError("its response encoder is damaged: knots do not increase")
        return cls(z, y, slopes, bounds)


def _standardised(values: Floats, share: Floats) -> Floats:
    """(y - mean) / standard deviation, at whatever scale; both within what a double can hold."""
    values = np.ldexp(values, -np.frexp(np.abs(values).max())[1])  # exact, unlike a quotient
    gap = values - share @ values
    gap = gap / np.abs(gap).max()
    return np.clip(gap / np.sqrt(share @ gap**2), -_FARTHEST, _FARTHEST)


def find_atoms(values: Floats, share: Floats, n_rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which distinct responses are atoms of the distribution, rather than chance or rounding.

    A value is an atom if at least 5 rows and half a percent of the weight share it. If atoms hold
    nine tenths of the weight, or all responses are whole numbers and a third of the rows are ties,
    the response is discrete and every value is an atom (up to 500 values).

    Args:
        values: Distinct responses, increasing, ``(m,)``.
        share: Their shares of the weight, ``(m,)``.
        n_rows: How many rows have them, ``(m,)``.
    """
    atom = (share >= _MIN_ATOM_SHARE) & (n_rows >= _MIN_ATOM_ROWS)
    n = n_rows.sum()
    whole = bool(np.all(values == np.round(values)))
    discrete = share[atom].sum() >= _MOSTLY or (whole and len(values) <= 2 / 3 * n)
    if discrete and 1 < len(values) <= _MAX_ATOMS:
        return np.ones(len(values), bool)
    return atom


def _limits(values: Floats, bounds: Bounds | Literal["auto"]) -> tuple[float, float]:
    if bounds == "auto":
        low = 0.0 if values[0] >= 0 else -np.inf
        high = 0.0 if values[-1] <= 0 else np.inf
        return low, high
    low, high = bounds
    low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    if not low < high:
        raise ValueError(f"bounds must be (lower, upper) with lower < upper, got {bounds!r}")
    if values[0] < low or values[-1] > high:
        raise ValueError(
            f"responses lie between {values[0]:g} and {values[-1]:g}, outside of the declared "
            f"bounds {bounds!r}. Correct the bounds or the responses."
        )
    return low, high


def _knots(is_atom: NDArray[np.bool_], after: Floats, linear: bool) -> NDArray[np.int64]:
    """Atoms with their neighbours, the ends, and (for ranks) values evenly in probability."""
    ends = np.array([0, len(after) - 1])
    if linear:
        chosen = np.concatenate([ends, np.flatnonzero(is_atom)])
    elif len(after) <= _MAX_KNOTS:
        chosen = np.arange(len(after))
    else:
        even = np.searchsorted(after, (np.arange(_MAX_KNOTS) + 0.5) / _MAX_KNOTS)
        tails = np.concatenate([np.arange(20), len(after) - 1 - np.arange(20)])
        chosen = np.concatenate([ends, np.flatnonzero(is_atom), even, tails])
    return np.unique(np.clip(chosen, 0, len(after) - 1))


def _slopes(z: Floats, y: Floats) -> Floats:
    """dy/dz over the outermost half standard deviation of z; 0 beyond an atom."""
    slopes = []
    for side, end in ((1, 0), (-1, -1)):
        if y[end] == y[end + side]:
            slopes.append(0.0)
            continue
        inner = np.interp(z[end] + side * _TAIL, z, y)
        slopes.append(abs(inner - y[end]) / _TAIL)
    return np.array(slopes)


def _beyond(distance: Floats, room: float, slope: float) -> Floats:
    """How far y goes on at this distance of z beyond the last knot, never as far as ``room``."""
    if room == 0:
        return np.zeros_like(distance)
    with np.errstate(over="ignore"):
        if np.isinf(room):
            return slope * distance
        return -room * np.expm1(-min(slope / room, _LARGEST) * distance)


def translated(z: Floats, source: ResponseEncoder, target: ResponseEncoder) -> Floats:
    """From one coordinate of a response to another one with the same atoms."""
    return translation(source, target)(z)


def translation(source: ResponseEncoder, target: ResponseEncoder) -> Polyline:
    """The map from one coordinate of a response to another one with the same atoms."""
    y = np.unique(np.concatenate([source.y, target.y]))
    here, there = (
        np.column_stack(coordinate.interval(y)).ravel() for coordinate in (source, target)
    )
    keep = np.append(True, np.diff(here) > 0)
    here, there = here[keep], there[keep]
    slopes = [
        (there[end] - np.interp(inner, here, there)) / (here[end] - inner)
        for end, inner in ((0, here[0] + 0.5), (-1, here[-1] - 0.5))
    ]
    return Polyline(here, there, *slopes)
