"""Which rows hang together, and folds that keep them together."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gentle.columns import Columns
from gentle.data import group_rows
from gentle.streams import Seed, as_seed

Ints = NDArray[np.int64]


def units(X: Any, groups: ArrayLike | None = None) -> Ints:
    """Number the sets of rows that depend on each other.

    Rows are linked by an equal covariate or an equal group; a unit is all rows that a chain of
    links connects.

    Args:
        X: Covariates, array or DataFrame, ``(N, d)``.
        groups: Group of each row (numbers or text), such as the patient, ``(N,)``.

    Returns:
        The unit of each row, numbered from 0, ``(N,)``.

    Example:
        >>> units([[1], [2], [1], [3], [4]], groups=["a", "b", "b", "c", "d"]).tolist()
        [0, 0, 0, 1, 2]
    """
    first, covariate = group_rows(Columns.of(X).keys())
    if groups is None:
        return covariate
    values = pd.Series(groups)
    if len(values) != len(covariate):
        raise ValueError(f"groups has {len(values)} entries, but X has {len(covariate)} rows")
    missing = values.isna().to_numpy()
    if missing.any():
        row = values.index[int(np.argmax(missing))]
        raise ValueError(f"groups has no value in row {row}; name a group for every row")
    group, names = pd.factorize(values)
    # Covariates and groups are the nodes of a graph, each row is an edge between its two.
    size = len(first) + len(names)
    edges = (np.ones(len(group)), (covariate, len(first) + group))
    _, part = connected_components(coo_array(edges, shape=(size, size)), directed=False)
    return pd.factorize(part[covariate])[0].astype(np.int64)


def balanced_folds(unit: ArrayLike, n_folds: int = 5, random_state: Seed = 0) -> Ints:
    """Split rows into folds of about equal size that never split a unit.

    Units are shuffled and then dealt out, large ones first, each to the fold that is smallest so
    far. So no two folds differ by more rows than the largest unit has.

    Args:
        unit: Unit of each row, as from `units`, ``(N,)``.
        n_folds: Number of folds, at least 2, at most the number of units.
        random_state: Seed of the shuffling.

    Returns:
        The fold of each row, numbered from 0, ``(N,)``.

    Example:
        >>> balanced_folds([0, 0, 1, 2, 3, 3], n_folds=2).tolist()
        [0, 0, 1, 0, 1, 1]
    """
    unit = np.asarray(unit)
    size = np.bincount(unit)
    if not 2 <= n_folds <= len(size):
        raise ValueError(
            f"n_folds must be at least 2 and at most {len(size)}, the number of sets of rows that "
            f"are linked by equal covariates or groups and so stay together; got {n_folds}"
        )
    shuffled = np.random.default_rng(as_seed(random_state)).permutation(len(size))
    queue = [(0, fold) for fold in range(n_folds)]  # rows so far, fold
    fold_of = np.empty(len(size), np.int64)
    for which in shuffled[np.argsort(-size[shuffled], kind="stable")]:
        n_rows, fold = heapq.heappop(queue)
        fold_of[which] = fold
        heapq.heappush(queue, (n_rows + int(size[which]), fold))
    return fold_of[unit]
