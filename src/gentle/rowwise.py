"""Searches in many sorted rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gentle.polyline import Knots

Floats = NDArray[np.float64]

_MANY = 64  # points of a row above which a search of its own is quicker
_MORE_KNOTS = 16  # times as many knots as points: then not all knots should be looked at


def search(a: Floats, v: Floats, side: str) -> NDArray[np.int64]:
    """np.searchsorted of v ``(n, m)``, row by row, in sorted ``(K,)`` or ``(n, K)``."""
    if a.ndim == 1:
        return np.searchsorted(a, v, side=side)  # type: ignore[call-overload]
    if v.shape[1] >= _MANY:
        found = [np.searchsorted(one, x, side=side) for one, x in zip(a, v)]  # type: ignore[call-overload]
        return np.array(found).reshape(v.shape)
    passed = np.less if side == "left" else np.less_equal
    entries, left = a.ravel(), a.shape[1]
    start = left * np.arange(len(a))[:, None]
    place = np.repeat(start, v.shape[1], axis=1)  # what is before it is passed: all rows at once
    while left > 0:  # entries from there on of which it is not known
        half = (left + 1) // 2
        place += half * passed(entries.take(place + (half - 1)), v)
        left -= half
    return place - start


def search_common(a: Floats, v: Floats, side: str) -> NDArray[np.int64]:
    """`search` of common points v ``(m,)`` in sorted rows ``(n, K)``, to ``(n, m)``.

    Each entry is looked up among the points, not each point among the entries: then there is one
    list to search in.
    """
    n, m, order = len(a), len(v), np.argsort(v)
    points = Knots(v[order])
    since = points.up_to(a) if side == "left" else points.below(a)
    since += (m + 1) * np.arange(n)[:, None]  # the entry counts for this point and those after it
    counts = np.bincount(since.ravel(), minlength=n * (m + 1)).reshape(n, m + 1)
    found = np.empty((n, m), np.int64)
    found[:, order] = np.cumsum(counts[:, :-1], axis=1)
    return found


def rising(values: Floats) -> Floats:
    """Rows ``(n, K)`` that may decrease by rounding, lifted, in place, to what came before."""
    falls = ~np.all(values[:, 1:] >= values[:, :-1], axis=1)
    if falls.any():
        values[falls] = np.maximum.accumulate(values[falls], axis=1)
    return values


def pick(a: Floats, index: NDArray[np.int64]) -> Floats:
    """Each row's own entries: ``(n, K)`` at ``(n, m)`` gives ``(n, m)``."""
    return np.take_along_axis(a, index, axis=1)


def interpolated(levels: Floats, values: Floats, u: Floats) -> Floats:
    """Values at levels u from knots ``(K,)`` or ``(n, K)`` and ``(n, K)``, to ``(n, m)``.

    The levels are ``(n, m)``, or ``(m,)`` for all rows beside knots ``(n, K)``.
    """
    n, n_knots = values.shape
    common = u.ndim == 1 and n_knots <= _MORE_KNOTS * len(u)
    u = u if common else np.broadcast_to(u, (n, u.shape[-1]))
    right = search_common(levels, u, "left") if common else search(levels, u, "left")
    right = np.maximum(right, 1)  # left-continuous, as quantiles are
    place = right + n_knots * np.arange(n)[:, None]
    at = right if levels.ndim == 1 else place
    l0, l1 = levels.ravel().take(at - 1), levels.ravel().take(at)
    v0, v1 = values.ravel().take(place - 1), values.ravel().take(place)
    return between(u, (l0, v0), (l1, v1))


def between(u: Floats, start: tuple[Floats, Floats], end: tuple[Floats, Floats]) -> Floats:
    """Values at levels on straight lines, which go from a level and a value to another one."""
    (l0, v0), (l1, v1) = start, end
    run = l1 - l0
    t = np.divide(u - l0, run, out=np.zeros_like(run), where=run > 0)
    t *= v1 - v0
    t += v0
    return np.minimum(t, v1, out=t)


def inverse(cdf: Floats, edges: Floats, u: Floats) -> Floats:
    """``np.interp(u, cdf, edges)`` row by row, to the last bit.

    Args:
        cdf: From 0 to 1, nondecreasing along a row, ``(n, K)``.
        edges: Common to all rows, ``(K,)``.
        u: Common levels strictly between 0 and 1, ``(m,)``.

    Returns:
        ``(n, m)``.
    """
    left = search_common(cdf, u, "right") - 1
    place = left + cdf.shape[1] * np.arange(len(cdf))[:, None]
    below, edge = cdf.ravel().take(place), edges.take(left)
    slope = (edges.take(left + 1) - edge) / (cdf.ravel().take(place + 1) - below)
    slope *= u - below
    slope += edge
    return slope


def between_columns(levels: Floats, values: Floats, u: Floats, out: Floats | None = None) -> Floats:
    """`interpolated` for common levels u ``(m,)`` and common knots ``(K,)``, to the last bit."""
    right = np.maximum(np.searchsorted(levels, u, "left"), 1)
    l0, run = levels[right - 1], levels[right] - levels[right - 1]
    t = np.divide(u - l0, run, out=np.zeros_like(l0), where=run > 0)
    v0, v1 = values.take(right - 1, axis=1), values.take(right, axis=1)
    rise = v1 - v0
    rise *= t
    rise += v0
    return np.minimum(rise, v1, out=rise if out is None else out)
