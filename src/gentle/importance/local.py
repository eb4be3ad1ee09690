"""Accumulated local effects on quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Column, Columns
from gentle.covariates import CovariateEncoder
from gentle.importance.measures import Floats, Ints, as_frame, mixed, quantiles_of, response_of
from gentle.transport import wasserstein

_EPOCH = pd.Timestamp("1970-01-01")


def local_effects(
    model: Any,
    X: Any,
    column: str | int,
    *,
    levels: ArrayLike = (0.1, 0.25, 0.5, 0.75, 0.9),
    n_bins: int = 20,
) -> pd.DataFrame:
    """How the quantiles move along one covariate: accumulated local effects.

    The range of a number is cut into bins of about equally many rows. Each row is moved from one
    end of its bin to the other; the mean changes of the quantiles are added up from bin to bin and
    centred, so that their mean over the rows is 0. Rows are changed only a little, so that, unlike
    in a fan chart, dependent covariates do not lead to rows that do not exist (Apley and Zhu,
    2020). Rows of a category move to the neighbouring levels: those of an ordered one in its order,
    others so that levels whose rows have similar other covariates are neighbours.

    Args:
        model: A fitted model, or anything with ``predict_dist``.
        X: Covariates, ``(n, d)``. Rows in which the covariate is missing are left out.
        column: Name of the covariate, or its position in an array.
        levels: Levels of the quantiles.
        n_bins: Number of bins; of a category, of its levels, the most frequent ones.

    Returns:
        A row per ``value`` (end of a bin, or level of a category) and ``level`` of the quantiles:
        the ``effect`` in units of y; its standard error ``se``, from the scatter of the rows'
        changes within bins; and ``n``, the rows in the bin that ends there, or of that category.
        For `gentle.plots.local_effects`.

    Example:
        >>> from gentle import QuantileTable
        >>> class Shifted:
        ...     def predict_dist(self, X):
        ...         return QuantileTable([0.0, 1.0], 2 * X[["age"]].to_numpy() + [[0.0, 1.0]])
        >>> X = pd.DataFrame({"age": [20.0, 30.0, 30.0, 40.0]})
        >>> local_effects(Shifted(), X, "age", levels=[0.5])
                     effect   se  n
        value level
        20.0  0.5     -20.0  0.0  0
        30.0  0.5       0.0  0.0  3
        40.0  0.5      20.0  0.0  1
    """
    table, alpha = as_frame(X), np.asarray(levels, np.float64).ravel()
    if column not in table:
        raise ValueError(f"X has no column {column!r}; its columns are {list(table.columns)}")
    found = Columns.of(table[[column]]).columns[0]
    present = np.flatnonzero(~np.isnan(found.values))
    table, found = table.iloc[present], found.take(present)
    if len(np.unique(found.values)) < 2:
        raise ValueError(f"column {column!r} has fewer than two values, so that it has no effect")
    walk = (_steps if _has_steps(found) else _bins)(table, column, found, n_bins)
    low, high = (quantiles_of(model, frame, alpha) for frame in (walk.low, walk.high))
    n_each = np.bincount(walk.bin, minlength=len(walk.cells) - 1)  # (K,)
    change = high - low  # (rows, levels)
    mean = _sums(change, walk.bin) / n_each[:, None]  # (K, levels)
    scatter = _sums((change - mean[walk.bin]) ** 2, walk.bin)
    variance = scatter / np.maximum(n_each * (n_each - 1), 1)[:, None]
    # Effects are linear in the mean changes: added up, less their mean over the rows.
    rise = np.tril(np.ones((len(walk.cells), len(n_each))), -1)  # (K + 1, K)
    rise -= walk.share @ rise
    index = pd.MultiIndex.from_product([walk.cells, alpha], names=["value", "level"])
    columns = {
        "effect": (rise @ mean).ravel(),
        "se": np.sqrt(rise**2 @ variance).ravel(),
        "n": np.repeat(walk.n, len(alpha)),
    }
    result = pd.DataFrame(columns, index=index)
    result.attrs |= {"kind": found.kind, "column": column, "response": response_of(model)}
    return result


@dataclass(frozen=True, eq=False)
class _Walk:
    """Rows at both ends of a step along a covariate.

    Attributes:
        cells: The K + 1 values along the way.
        low: Rows at the lower end of their step.
        high: The same rows at its upper end.
        bin: The step of each of these rows.
        share: Shares of the rows that are at each value, ``(K + 1,)``.
        n: Rows counted at each value, ``(K + 1,)``.
    """

    cells: Any
    low: pd.DataFrame
    high: pd.DataFrame
    bin: Ints
    share: Floats
    n: Ints


def _has_steps(column: Column) -> bool:
    return column.kind in ("category", "ordered", "boolean")


def _bins(table: pd.DataFrame, column: Any, found: Column, n_bins: int) -> _Walk:
    """From one end of a bin to the other."""
    edges = np.unique(
        np.quantile(found.values, np.linspace(0, 1, n_bins + 1), method="inverted_cdf")
    )
    where = np.maximum(np.searchsorted(edges, found.values) - 1, 0)
    cells = edges
    if found.kind == "date":
        cells = _EPOCH + pd.to_timedelta(edges, "D")
    elif found.kind == "duration":
        cells = pd.to_timedelta(edges, "s")
    low, high = table.copy(), table.copy()
    low[column], high[column] = cells[where], cells[where + 1]
    # A row within a bin is at both ends, the more the closer it is: effects are linear there.
    way = (found.values - edges[where]) / (edges[where + 1] - edges[where])
    share = np.bincount(where, 1 - way, len(edges)) + np.bincount(where + 1, way, len(edges))
    n = np.append(0, np.bincount(where, minlength=len(edges) - 1))
    return _Walk(cells, low, high, where, share / len(table), n)


def _steps(table: pd.DataFrame, column: Any, found: Column, n_bins: int) -> _Walk:
    """From each level to the next, and from each to the one before."""
    codes, count = np.unique(found.values, return_counts=True)
    often = np.sort(np.argsort(-count, kind="stable")[:n_bins])
    rows = np.flatnonzero(np.isin(found.values, codes[often]))
    table, place = table.iloc[rows], np.searchsorted(codes[often], found.values[rows])
    if found.kind == "category":
        rank = np.argsort(_by_similarity(table.drop(columns=[column]), place, len(often)))
        place = rank[place]
    first = np.array([np.argmax(place == k) for k in range(len(often))])  # a row of each level
    up, down = np.flatnonzero(place < len(often) - 1), np.flatnonzero(place > 0)
    movers, step = np.append(up, down), np.append(place[up], place[down] - 1)
    low = mixed(table, movers, table, first[step], [column])
    high = mixed(table, movers, table, first[step + 1], [column])
    cells, n = table[column].iloc[first].astype(object).tolist(), np.bincount(place)
    return _Walk(cells, low, high, step, n / n.sum(), n)


def _by_similarity(others: pd.DataFrame, place: Ints, n_levels: int) -> NDArray[np.intp]:
    """Levels in an order in which those with similar other covariates are neighbours.

    Wasserstein distances of the encoded covariates are added up, and the levels put on the line
    that keeps these distances best (classical scaling).
    """
    if others.shape[1] == 0:
        return np.arange(n_levels)
    x = CovariateEncoder.of(others, np.ones(len(others))).encode(others).T  # (e, n)
    groups = [x[:, place == k] for k in range(n_levels)]
    distance = np.array([[wasserstein(a, b).sum() for b in groups] for a in groups])  # (L, L)
    centre = np.eye(n_levels) - 1 / n_levels
    line = np.linalg.eigh(-centre @ distance**2 @ centre / 2)[1][:, -1]
    line = line if line[0] <= line[-1] else -line  # the alphabet's first before its last
    return np.argsort(line, kind="stable")


def _sums(values: Floats, group: Ints) -> Floats:
    """Sums over the rows of each group, ``(K, m)``."""
    sums = [np.bincount(group, column) for column in values.T]
    return np.asarray(sums, np.float64).T
