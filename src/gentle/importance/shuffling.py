"""Permutation importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.importance.measures import (
    BLOCK,
    Floats,
    Grid,
    Ints,
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


def permutation(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    metric: Metric = "crps",
    n_repeats: int = 10,
    groups: Mapping[str, Sequence[Any]] | None = None,
    parts: Sequence[float] = (0.1, 0.9),
    random_state: int = 0,
    verbose: int = 1,
) -> pd.DataFrame:
    """How much worse, or how different, predictions become when a covariate is shuffled.

    Cells of one column, or of several together, are exchanged between rows: their distribution
    stays, their relation to all else is lost. Of covariates that depend on each other this makes
    rows that do not exist; shuffle those together.

    Args:
        model: A fitted model, or anything with ``predict_dist``.
        X: Covariates, better not those of the training, ``(n, d)``.
        y: Their responses, ``(n,)``; for "wasserstein" not needed.
        metric: "crps": the rise of the mean CRPS. "wasserstein": the mean W₁ distance between the
            distributions before and after.
        n_repeats: Shuffles, at least 2.
        groups: Columns to shuffle together, by a name for them; all others are by themselves.
        parts: Levels at which the distribution is cut into parts.
        random_state: Seed of the shuffles, which are the same for all columns.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        A row per covariate or group: ``mean`` over the shuffles in units of y, and its standard
        error ``se``; what each part of the distribution contributes to the mean, as "0-0.1",
        "0.1-0.9", "0.9-1", which sum up to it; and the standard errors of these. For
        `gentle.plots.importance`.

    Example:
        >>> from gentle import QuantileTable
        >>> class Shifted:
        ...     def predict_dist(self, X):
        ...         return QuantileTable([0.0, 1.0], X[[0]].to_numpy() + [[0.0, 1.0]])
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> permutation(Shifted(), X, metric="wasserstein")["mean"].round(1).tolist()
        [1.1, 0.0]
    """
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, got {n_repeats}")
    table, grid = as_frame(X), Grid.of(parts)
    sets, n = joint_columns(table, groups), len(table)
    target = target_of(metric, y, n)
    before = quantiles_of(model, table, grid.levels)  # (n, m)
    score = grid.score(target, before)
    rng = np.random.default_rng(random_state)
    shuffled = np.concatenate([rng.permutation(n) for _ in range(n_repeats)])  # (r n,)
    rows = np.tile(np.arange(n), n_repeats)
    found = []
    with progress("shuffling", len(sets), verbose) as advance:
        for columns in sets.values():
            after = _scores(model, mixed(table, rows, table, shuffled, columns), grid, score, rows)
            found.append(after.reshape(n_repeats, n, -1).mean(axis=1))
            advance()
    base = score(before, np.arange(n)).mean(axis=0)  # 0 for "wasserstein"
    changes = np.stack(found) - base  # (d, r, p)
    facts = {"kind": "permutation", "n_rows": n, "unshuffled": float(base.sum())}
    return summarised(model, metric, list(sets), grid, changes, facts)


def _scores(model: Any, table: pd.DataFrame, grid: Grid, score: Score, rows: Ints) -> Floats:
    """Scores of the rows, which stand for those numbers, ``(n, p)``."""
    blocks = [slice(start, start + BLOCK) for start in range(0, len(table), BLOCK)]
    return np.concatenate(
        [score(quantiles_of(model, table.iloc[b], grid.levels), rows[b]) for b in blocks]
    )
