"""Columns cut into bins, once for all boosted trees that are grown on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Bins:
    """Cuts of columns, evenly in weight.

    They are those of scikit-learn's histogram gradient boosting, which sorts a column anew for each
    of its cuts if rows have weights, and in each fit. Given codes, which are few different numbers,
    it leaves them as they are.

    Args:
        x: Columns, finite, ``(n, d)``.
        weight: Of the rows, positive, ``(n,)``.
        max_bins: Of a column, at most.

    Attributes:
        cuts: Of each column, increasing; a bin is what is above a cut and up to the next.

    Example:
        >>> bins = Bins(np.array([[1.0], [2.0], [2.0], [5.0]]), np.ones(4), max_bins=2)
        >>> bins.cuts
        [array([2.])]
        >>> bins.codes(np.array([[0.0], [2.0], [3.0]])).ravel()
        array([0., 0., 1.])
    """

    def __init__(self, x: Floats, weight: Floats, max_bins: int = 255) -> None:
        self.cuts = [_cuts(column, weight, max_bins) for column in x.T]
        longest = max((len(cuts) for cuts in self.cuts), default=0)
        self._cuts = np.zeros((len(self.cuts), longest + 1))
        for column, cuts in enumerate(self.cuts):
            self._cuts[column, : len(cuts)] = cuts

    def codes(self, x: Floats) -> Floats:
        """Numbers of bins, ``(n, d)`` to ``(n, d)``."""
        found = np.empty(x.shape)
        for column, cuts in enumerate(self.cuts):
            found[:, column] = np.searchsorted(cuts, x[:, column], "left")
        return found

    def thresholds(self, column: NDArray[np.int64], code: Floats) -> Floats:
        """Values up to which a column is, where its code is up to a given one."""
        return self._cuts[column, code.astype(np.int64)]


def _cuts(values: Floats, weight: Floats, max_bins: int) -> Floats:
    order = np.argsort(values)
    values, distinct = values[order], np.unique(values)
    if len(distinct) <= max_bins:
        return (distinct[1:] + distinct[:-1]) / 2
    total = np.cumsum(weight[order])
    rank = np.linspace(0, 100, max_bins + 1)[1:-1] / 100 * total[-1]
    last = len(values) - 1
    at = np.minimum(np.searchsorted(total, rank), last)
    halfway = total[at] - rank <= np.finfo(np.float64).eps  # as much weight on both sides
    next_one = np.minimum(at + 1, last)
    return np.unique(np.where(halfway, (values[at] + values[next_one]) / 2, values[at]))
