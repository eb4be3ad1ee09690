"""Distributions as they are drawn: quantiles on a grid of levels, atoms apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns, as_pandas, taken
from gentle.data import Grouped
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.plots.canvas import by_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVELS = np.linspace(0, 1, 1001)
_N_REPEATS = 3  # of a held-out response, to be an atom
_MAX_NAMED = 2  # columns that may tell covariates apart in a label


@dataclass(frozen=True)
class Law:
    """One distribution.

    Attributes:
        values: Its quantiles at `LEVELS`, ``(1001,)``.
        atoms: Values with a probability worth a stem, increasing, ``(a,)``.
        mass: Their probabilities, ``(a,)``.
    """

    values: Floats
    atoms: Floats
    mass: Floats

    def density(self, grid: Floats) -> Floats:
        """Density of what is no atom, smoothed by a Gaussian kernel within the support.

        It integrates to one minus the atoms' probabilities. The bandwidth is Silverman's for the
        effective number of values, so that distributions made of few responses become smooth too.

        Args:
            grid: Where, increasing, ``(m,)``.
        """
        smooth = self.values[~np.isin(self.values, self.atoms)]
        if not len(smooth):
            return np.zeros_like(grid)
        points, counts = np.unique(smooth, return_counts=True)
        share = counts / counts.sum()  # (k,)
        low, high = np.quantile(smooth, [0.25, 0.75])
        spread = min(float(smooth.std()), float(high - low) / 1.34 or np.inf)
        h = 0.9 * spread * (share @ share) ** 0.2 or (grid[-1] - grid[0]) / 100
        # What a kernel puts beyond an end of the support is reflected there.
        mirrored = [points, 2 * points[0] - points, 2 * points[-1] - points]
        kernels = [np.exp(-(((grid[:, None] - p) / h) ** 2) / 2) @ share for p in mirrored]
        inside = (grid >= points[0]) & (grid <= points[-1])
        scale = (1 - self.mass.sum()) / (h * np.sqrt(2 * np.pi))
        return np.where(inside, sum(kernels), 0.0) * scale


@dataclass(frozen=True)
class Shown:
    """A few covariates, what models say of them, and what was held out.

    Attributes:
        laws: By name of the model a distribution per covariate.
        responses: The held-out responses of each covariate, or None.
        names: What tells the covariates apart.
    """

    laws: dict[str, list[Law]]
    responses: list[Floats] | None
    names: list[str]

    @classmethod
    def of(
        cls,
        models: Any,
        X: Any,
        y: ArrayLike | None,
        n: int,
        n_samples: int,
        random_state: int,
        min_probability: float,
    ) -> Shown:
        """The covariates with most rows, in order of their mean response if there is one."""
        models = by_name(models)
        if X is None:  # distributions alone
            n_rows = len(next(iter(models.values())))
            table: Any = pd.DataFrame(np.arange(n_rows))
        else:
            table = as_pandas(X)
        rows, grouped = _often(table, y, n)
        laws = {
            name: _laws(model, table, rows, n_samples, random_state, min_probability)
            for name, model in models.items()
        }
        responses = None
        if y is not None:
            responses = np.split(grouped.y, grouped.start[1:-1])
        return cls(laws, responses, _names(table, rows, bool(np.any(grouped.counts > 1))))


def held_out_law(responses: Floats, min_probability: float) -> Law:
    """The distribution of responses; a value that occurs often enough is an atom."""
    table = QuantileTable.of_sample(responses)
    least = max(min_probability, (_N_REPEATS - 0.5) / len(responses))
    return Law(table.quantile(LEVELS)[0], *table.atoms(least)[0])


def often_seen(X: Any, y: ArrayLike, n_panels: int) -> tuple[Any, Grouped]:
    """The covariates with most responses in order of their means, as given and grouped.

    Example:
        >>> shown, grouped = often_seen([[1.0], [2.0], [1.0], [3.0]], [5.0, 6.0, 7.0, 8.0], 1)
        >>> shown.tolist(), grouped.y.tolist()
        ([[1.0]], [5.0, 7.0])
    """
    rows, table = _often(X, y, n_panels)
    return taken(X, rows), table


def _often(X: Any, y: ArrayLike | None, n: int) -> tuple[Ints, Grouped]:
    """Where the covariates with most rows stand first, and their responses."""
    keys = Columns.of(X).keys()
    values = np.zeros(len(keys)) if y is None else np.asarray(y, np.float64).ravel()
    if len(values) != len(keys):
        raise ValueError(f"y has {len(values)} responses, but X has {len(keys)} rows")
    table = Grouped.of(keys, np.arange(len(keys), dtype=np.float64))  # rows in place of responses
    row = table.y.astype(np.int64)
    first, table = row[table.start[:-1]], replace(table, y=values[row])
    often = np.sort(np.argsort(-table.counts, kind="stable")[:n])
    means = [table.y[table.start[i] : table.start[i + 1]].mean() for i in often]
    often = often[np.argsort(means, kind="stable")]
    return first[often], table.take(often)


def _laws(
    model: Any, X: Any, rows: Ints, n_samples: int, random_state: int, min_probability: float
) -> list[Law]:
    if isinstance(model, ConditionalDistribution):
        if len(model) != len(X):
            raise ValueError(
                f"the distribution has {len(model)} rows, but X has {len(X)}: pass the covariates "
                "that it was predicted for"
            )
        dist, at = model, rows
    else:
        chosen, at = taken(X, rows), np.arange(len(rows))
        if hasattr(model, "predict_dist"):
            dist = model.predict_dist(chosen)
        else:  # known by its draws only
            dist = QuantileTable.of_sample(model.sample(chosen, n_samples, random_state))
    values, atoms = dist.quantile(LEVELS), dist.atoms(min_probability)
    return [Law(values[i], *atoms[i]) for i in at]


def _names(X: Any, rows: Ints, repeated: bool) -> list[str]:
    """The cells that tell covariates apart, if they are few; else numbers, or those of the rows."""
    shown = taken(X, rows)
    if isinstance(shown, pd.DataFrame) and len(shown) > 1:
        keys = Columns.of(shown).keys()
        differ = [j for j in range(keys.shape[1]) if len(np.unique(keys[:, j])) > 1]
        named = all(isinstance(name, str) for name in shown.columns)
        if named and len(differ) <= _MAX_NAMED:
            cells = [[_cell(shown, i, j) for j in differ] for i in range(len(shown))]
            return [", ".join(row) for row in cells]
    return [f"covariate {i + 1}" if repeated else f"row {row}" for i, row in enumerate(rows)]


def _cell(shown: pd.DataFrame, i: int, j: int) -> str:
    value: Any = shown.iloc[i, j]
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{shown.columns[j]} {text}"
