"""Distributions from quantiles at a few levels: the one rule for in between and beyond."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gentle.distribution import QuantileTable

Floats = NDArray[np.float64]


def table_through(levels: Floats, quantiles: Floats) -> QuantileTable:
    """Quantile functions through quantiles that were predicted at a few levels.

    Predictions are sorted along a row. Between levels the quantile function is straight; beyond the
    first and the last level, down to level 0 and up to 1, its nearest piece goes on. On synthetic
    problems this had a smaller CRPS than tails cut off at the first and the last quantile.

    Args:
        levels: Increasing, between 0 and 1, at least two, ``(K,)``.
        quantiles: ``(n, K)``.

    Returns:
        A table with K + 2 knots.

    Example:
        >>> table = table_through(np.array([0.25, 0.75]), np.array([[3.0, 1.0]]))
        >>> table.quantile([0, 0.25, 0.5, 0.75, 1])
        array([[0., 1., 2., 3., 4.]])
    """
    q = np.sort(quantiles, axis=1)
    below = levels[0] / (levels[1] - levels[0]) * (q[:, 1] - q[:, 0])
    above = (1 - levels[-1]) / (levels[-1] - levels[-2]) * (q[:, -1] - q[:, -2])
    values = np.column_stack([q[:, 0] - below, q, q[:, -1] + above])  # (n, K + 2)
    return QuantileTable(np.concatenate([[0.0], levels, [1.0]]), values)


def even_levels(n_levels: int) -> Floats:
    """Levels 1/(n + 1), ..., n/(n + 1), ``(n,)``.

    Example:
        >>> even_levels(3)
        array([0.25, 0.5 , 0.75])
    """
    return np.arange(1, n_levels + 1) / (n_levels + 1)
