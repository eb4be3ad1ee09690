"""Questions about the responses of a whole population, whose rows have distributions each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.columns import taken
from gentle.distribution import ConditionalDistribution, QuantileTable

Floats = NDArray[np.float64]
Predict = Callable[[Any], ConditionalDistribution]

_BLOCK = 1000  # rows whose distributions are in memory at once
# Levels of each row at which a mixture's points are looked for, closer together in the tails.
_LEVELS = (1 - np.cos(np.linspace(0, np.pi, 201))) / 2
_ROUNDING = 64 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class Population:
    """Weighted rows of covariates.

    Attributes:
        X: Covariates, ``(n, d)``.
        weight: Non-negative weights, ``(n,)``.

    Example:
        >>> def uniform(X):  # on (0, x)
        ...     return QuantileTable([0.0, 1.0], np.column_stack([0 * X[:, 0], X[:, 0]]))
        >>> people = Population.of(np.array([[1.0], [3.0]]))
        >>> float(people.average(uniform, lambda dist: dist.mean()))
        1.0
        >>> people.mixture(uniform).cdf([[1.0, 2.0]]).round(3).tolist()
        [[0.667, 0.833]]
    """

    X: Any
    weight: Floats

    @classmethod
    def of(cls, X: Any, weight: ArrayLike | None = None) -> Population:
        """The rows of positive weight; of equal weight if none is given."""
        weight = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
        there = np.flatnonzero(weight > 0)
        if not len(there):
            raise ValueError("the population has no rows (of positive weight)")
        return cls(taken(X, there), weight[there])

    def __len__(self) -> int:
        return len(self.weight)

    def average(self, predict: Predict, ask: Callable[[ConditionalDistribution], Floats]) -> Floats:
        """The weighted mean over rows of what is asked about each, ``(n, ...)`` to ``(...)``."""
        total: Any = 0.0
        for rows, dist in self._blocks(predict):
            total = total + np.tensordot(self.weight[rows], ask(dist), axes=1)
        return np.asarray(total / self.weight.sum())

    def mixture(self, predict: Predict, n_points: int = 500) -> QuantileTable:
        """The distribution of the population's responses: its cdf is the mean of the rows' cdfs.

        Args:
            predict: Gives the distributions at covariates.
            n_points: Points at which the cdf is exact, spread over the responses, closer together
                in the tails; values with a probability of their own are among them, exact on either
                side. Between points it is straight.

        Returns:
            One row.
        """
        points, heavy = self._points(predict, n_points)
        values = np.concatenate([points, points[heavy]])
        asked = np.concatenate([points, np.nextafter(points[heavy], -np.inf)])
        total, ends = np.zeros(len(asked)), []
        for rows, dist in self._blocks(predict):
            total += self.weight[rows] @ _cdf(dist, asked)
            ends.append(dist.quantile([0, 1]))
        order = np.lexsort([total, values])
        levels = np.maximum.accumulate(total[order] / self.weight.sum()).clip(0, 1)
        low, high = np.concatenate(ends).T
        return QuantileTable(
            np.concatenate([[0.0], levels, [1.0]]),
            np.concatenate([[low.min()], values[order], [high.max()]])[None],
        )

    def _points(self, predict: Predict, n_points: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Values of the responses, increasing, and which of them may have probability."""
        some = taken(self.X, np.linspace(0, len(self) - 1, min(len(self), _BLOCK)).astype(int))
        pool = predict(some).quantile(_LEVELS)
        points, count = np.unique(pool, return_counts=True)
        if len(points) <= n_points:
            return points, np.full(len(points), True)
        heavy = count * n_points >= pool.size
        even = np.sort(pool, axis=None)[np.linspace(0, pool.size - 1, n_points).astype(int)]
        chosen = np.union1d(even, points[heavy])
        return chosen, np.isin(chosen, points[heavy])

    def _blocks(self, predict: Predict) -> Iterator[tuple[slice, ConditionalDistribution]]:
        for start in range(0, len(self), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self)))
            yield rows, predict(taken(self.X, np.arange(rows.start, rows.stop)))


def _cdf(dist: ConditionalDistribution, points: Floats) -> Floats:
    return dist.cdf(np.broadcast_to(points, (len(dist), len(points))))


def exceedance(dist: ConditionalDistribution, thresholds: Floats) -> Floats:
    """P(Y > t | x) at common thresholds ``(k,)``, exact also at atoms, ``(n, k)``.

    Example:
        >>> exceedance(QuantileTable([0.0, 0.5, 1.0], [[0.0, 0.0, 2.0]]), np.array([0.0, 1.0]))
        array([[0.5 , 0.25]])
    """
    # An atom may come back from standardised units a few roundings away from the threshold.
    reach = _ROUNDING * (np.abs(thresholds) + np.abs(dist.mean())[:, None])  # (n, k)
    return 1 - dist.cdf(thresholds + reach)
