"""What measures of importance share: scores of quantile functions in parts, exchanged cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import as_pandas

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Metric = Literal["crps", "wasserstein"]
Score = Callable[[Floats, Any], Floats]

BLOCK = 20_000  # rows answered at once
_N_LEVELS, _MIN_LEVELS = 200, 20  # in all, and in each part


@dataclass(frozen=True)
class Grid:
    """Levels of a sum that stands for an integral over (0, 1), in parts.

    Attributes:
        levels: ``(m,)``.
        weights: Width of each level's interval where it belongs to a part, else 0, ``(m, p)``.
        names: Of the parts.
    """

    levels: Floats
    weights: Floats
    names: list[str]

    @classmethod
    def of(cls, parts: Sequence[float]) -> Grid:
        """About 200 levels, each in the middle of its interval, and at least 20 in each part."""
        cuts = np.array([0.0, *parts, 1.0])
        if not np.all(np.diff(cuts) > 0):
            raise ValueError(f"parts must be rising levels between 0 and 1, got {parts!r}")
        levels, weights = [], []
        for k, (low, high) in enumerate(pairwise(cuts)):
            n = max(_MIN_LEVELS, round(_N_LEVELS * (high - low)))
            levels.append(low + (np.arange(n) + 0.5) / n * (high - low))
            weights.append(np.outer(np.full(n, (high - low) / n), np.eye(len(cuts) - 1)[k]))
        names = [f"{low:g}-{high:g}" for low, high in pairwise(cuts)]
        return cls(np.concatenate(levels), np.concatenate(weights), names)

    def score(self, target: Floats | None, reference: Floats) -> Score:
        """What is measured of quantiles ``(k, m)`` of some rows, in parts, ``(k, p)``.

        Args:
            target: Responses ``(n,)``, for the CRPS; None is for the Wasserstein distance.
            reference: Quantiles from which to measure that, ``(n, m)`` or the same for all.
        """

        def wasserstein(q: Floats, rows: Any) -> Floats:
            return (
                np.abs(q - (reference if len(reference) == 1 else reference[rows])) @ self.weights
            )

        def crps(q: Floats, rows: Any) -> Floats:
            gap = q - np.asarray(target)[rows, None]
            return 2 * ((gap > 0) - self.levels) * gap @ self.weights

        return wasserstein if target is None else crps


def as_frame(X: Any) -> pd.DataFrame:
    """Covariates as a frame, whose columns keep their types when cells are exchanged."""
    X = as_pandas(X)
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))


def target_of(metric: str, y: ArrayLike | None, n_rows: int) -> Floats | None:
    """The responses that a metric needs, checked; None if it needs none."""
    if metric not in ("crps", "wasserstein"):
        raise ValueError(f"metric must be 'crps' or 'wasserstein', got {metric!r}")
    if metric == "wasserstein":
        return None
    if y is None:
        raise ValueError("the CRPS needs responses: pass y, or metric='wasserstein'")
    values = np.asarray(y, np.float64).ravel()
    if len(values) != n_rows or not np.isfinite(values).all():
        raise ValueError(f"y must be {n_rows} finite numbers, one per row of X; got {len(values)}")
    return values


def response_of(model: Any) -> str | None:
    """The name of the response, if the model knows it."""
    return getattr(model, "response_name_", None)


def joint_columns(
    table: pd.DataFrame, groups: Mapping[str, Sequence[Any]] | None
) -> dict[Any, list[Any]]:
    """Columns that move together, by name: the groups, then each of all other columns."""
    groups = groups or {}
    grouped = [column for columns in groups.values() for column in columns]
    strangers = [column for column in grouped if column not in table]
    if strangers or len(set(grouped)) < len(grouped):
        raise ValueError(
            f"groups must be of different columns of X, which has {list(table.columns)}; got "
            f"{ {name: list(columns) for name, columns in groups.items()} }"
        )
    single = {column: [column] for column in table.columns if column not in grouped}
    return {name: list(columns) for name, columns in groups.items()} | single


def mixed(
    table: pd.DataFrame, rows: Ints, other: pd.DataFrame, its_rows: Ints, columns: list[Any]
) -> pd.DataFrame:
    """Rows of a table, with the cells of some columns from rows of another one."""
    result = table.iloc[rows].reset_index(drop=True)
    for column in columns:
        result[column] = other[column].array.take(its_rows)
    return result


def quantiles_of(model: Any, table: pd.DataFrame, levels: Floats) -> Floats:
    """Quantiles of the rows, a block at a time, ``(n, m)``."""
    blocks = [table.iloc[start : start + BLOCK] for start in range(0, len(table), BLOCK)]
    return np.concatenate([model.predict_dist(block).quantile(levels) for block in blocks])


def summarised(
    model: Any,
    metric: str,
    names: list[Any],
    grid: Grid,
    values: Floats,
    facts: dict[str, Any],
) -> pd.DataFrame:
    """Mean and standard error over the r repeats of values ``(d, r, p)``, whole and in parts."""
    r = values.shape[1]

    def error(of: Floats) -> Floats:
        return of.std(axis=1, ddof=1) / np.sqrt(r) if r > 1 else np.zeros_like(of[:, 0])

    whole, parts, errors = values.sum(axis=2), values.mean(axis=1), error(values)
    columns = {"mean": parts.sum(axis=1), "se": error(whole)}
    columns |= {name: parts[:, k] for k, name in enumerate(grid.names)}
    columns |= {f"se {name}": errors[:, k] for k, name in enumerate(grid.names)}
    table = pd.DataFrame(columns, index=pd.Index(names, name="column"))
    table.attrs |= {"metric": metric, "parts": grid.names, "response": response_of(model)} | facts
    return table


@contextmanager
def progress(label: str, total: int, verbose: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, if that is a terminal; yields what advances it."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    if not (verbose and (console.is_terminal or console.is_jupyter)):
        yield lambda: None
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)
