"""Shapley values of covariates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import factorial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.importance.measures import (
    BLOCK,
    Floats,
    Grid,
    Metric,
    Score,
    as_frame,
    joint_columns,
    mixed,
    progress,
    quantiles_of,
    summarised,
    target_of,
)


def shapley(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    metric: Metric = "crps",
    n_permutations: int = 16,
    background: Any = 20,
    n_rows: int = 100,
    groups: Mapping[str, Sequence[Any]] | None = None,
    parts: Sequence[float] = (0.1, 0.9),
    random_state: int = 0,
    verbose: int = 1,
) -> pd.DataFrame:
    """What each covariate contributes to the predictions, in shares that add up (Shapley values).

    What the model knows from some covariates S of a row alone is the average, as quantile
    functions, of its distributions over the cells that background rows have in all other columns.
    Its worth v(S) is minus the mean CRPS of that average ("crps"), or its mean W₁ distance from the
    average that knows nothing ("wasserstein"). A covariate gets the mean rise of v when it joins
    those before it, over orders of the covariates. The values sum up to v(all) - v(none) exactly,
    and so do those of each part of the distribution.

    Args:
        model: A fitted model, or anything with ``predict_dist``.
        X: Covariates, better not those of the training, ``(n, d)``.
        y: Their responses, ``(n,)``; for "wasserstein" not needed.
        metric: What v measures.
        n_permutations: Orders of the covariates, drawn in pairs of an order and its reverse. All
            are taken exactly where that asks the model no more than these would.
        background: A table of covariates, or how many rows of X to draw for one.
        n_rows: Of more rows in X, so many are drawn.
        groups: Columns that join together, by a name for them; all others are by themselves.
        parts: Levels at which the distribution is cut into parts.
        random_state: Seed.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        A table as that of `permutation`; ``se`` is over pairs of orders, 0 if all were taken.
        Its ``attrs`` hold v as ``all`` and ``none``.

    Example:
        >>> from gentle import QuantileTable
        >>> class Shifted:
        ...     def predict_dist(self, X):
        ...         shift = X[[0]].to_numpy() + 3 * X[[1]].to_numpy()
        ...         return QuantileTable([0.0, 1.0], shift + [[0.0, 1.0]])
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> table = shapley(Shifted(), X, metric="wasserstein")
        >>> table["mean"].round(1).tolist(), round(table.attrs["all"], 1)
        ([0.5, 2.1], 2.6)
    """
    if n_permutations < 4:
        raise ValueError(f"n_permutations must be at least 4, got {n_permutations}")
    table, grid = as_frame(X), Grid.of(parts)
    sets, target = joint_columns(table, groups), target_of(metric, y, len(table))
    rng = np.random.default_rng(random_state)
    drawn = np.sort(rng.permutation(len(table))[:n_rows])
    if np.ndim(background) == 0:
        pool: Any = table.iloc[rng.permutation(len(table))[:background]]
    else:
        pool = as_frame(background)[list(table.columns)]
    table, target = table.iloc[drawn], None if target is None else target[drawn]
    nothing = quantiles_of(model, pool, grid.levels).mean(axis=0)[None]  # (1, m)
    score, sign = grid.score(target, nothing), 1 if target is None else -1
    d = len(sets)
    exact = 2**d <= n_permutations * (d - 1) + 2
    orders = [rng.permutation(d).tolist() for _ in range(-(-n_permutations // 2))]
    orders = [order for one in orders for order in (one, one[::-1])]
    masks = range(2**d) if exact else {mask for order in orders for mask in _masks(order)}
    # v of sets of covariates, which are the bits of a number.
    worth = {
        0: sign * score(nothing.repeat(len(table), axis=0), np.arange(len(table))).mean(axis=0)
    }
    with progress("sets of covariates", len(masks) - 1, verbose) as advance:
        for mask in sorted(set(masks) - {0}):
            hidden = [c for k, own in enumerate(sets.values()) if not mask >> k & 1 for c in own]
            worth[mask] = sign * _averaged_scores(model, table, pool, hidden, grid, score)
            advance()
    if exact:
        values = np.stack([_exact_value(worth, k, d) for k in range(d)])[:, None]  # (d, 1, p)
    else:
        values = np.stack([_rises(worth, order) for order in orders], axis=1)  # (d, r, p)
        values = (values[:, ::2] + values[:, 1::2]) / 2  # a pair is one observation
    facts = {"kind": "shapley", "n_rows": len(table), "n_background": len(pool)}
    facts |= {"all": float(worth[2**d - 1].sum()), "none": float(worth[0].sum())}
    return summarised(model, metric, list(sets), grid, values, facts)


def _averaged_scores(
    model: Any,
    table: pd.DataFrame,
    pool: pd.DataFrame,
    hidden: list[Any],
    grid: Grid,
    score: Score,
) -> Floats:
    """Mean score of the rows if some columns are hidden: averages over the background, ``(p,)``."""
    n, b = len(table), len(pool) if hidden else 1
    total = np.zeros(len(grid.names))
    for start in range(0, n, max(1, BLOCK // b)):
        rows = np.arange(n)[start : start + max(1, BLOCK // b)]
        cells = mixed(table, np.repeat(rows, b), pool, np.tile(np.arange(b), len(rows)), hidden)
        q = quantiles_of(model, cells, grid.levels).reshape(len(rows), b, -1)
        total += score(q.mean(axis=1), rows).sum(axis=0)
    return total / n


def _masks(order: list[int]) -> list[int]:
    """The sets of covariates that are there before each joins in this order, and at the end."""
    return list(accumulate((1 << k for k in order), initial=0))


def _rises(worth: dict[int, Floats], order: list[int]) -> Floats:
    """What each covariate adds in this order, ``(d, p)``."""
    rises = np.diff([worth[mask] for mask in _masks(order)], axis=0)
    return rises[np.argsort(order)]


def _exact_value(worth: dict[int, Floats], k: int, d: int) -> Floats:
    """The mean rise over all orders, ``(p,)``: Σ_S |S|! (d - |S| - 1)! / d! (v(S ∪ k) - v(S))."""
    total = np.zeros_like(worth[0])
    for mask in worth:
        if not mask >> k & 1:
            size = mask.bit_count()
            share = factorial(size) * factorial(d - size - 1) / factorial(d)
            total += share * (worth[mask | 1 << k] - worth[mask])
    return total
