"""From the user's table to the paper's: numeric, equal rows grouped, standardised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.transport import wasserstein

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def numeric_covariates(X: Any) -> Any:
    """A frame's columns as float64, or the reason why they cannot be.

    Numbers, booleans and nullable numbers become floats (missing values NaN). Text is refused with
    its column and row.
    """
    if not isinstance(X, pd.DataFrame):
        return X
    columns = {}
    for position, name in enumerate(X.columns):
        column = X.iloc[:, position]
        try:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError):
            values = None
        if values is None or column.dtype.kind in "mM":
            raise ValueError(
                f"column {name!r} holds {_example(column)}, but covariates must be numbers. "
                "Encode it first, for example with pandas.get_dummies, or drop the column."
            )
        columns[position] = values
    frame = pd.DataFrame(columns, index=X.index)
    frame.columns = X.columns
    return frame


def _example(column: pd.Series) -> str:
    """The first entry of a column that is not a number, as part of an error text."""
    for row, value in enumerate(column):
        try:
            if not pd.isna(value):
                float(value)
        except (TypeError, ValueError):
            return f"{value!r} in row {row}"
    return f"values of type {column.dtype}"


def require_finite(X: Floats, names: ArrayLike | None) -> None:
    """Raise a ValueError that names the first column with missing or infinite values."""
    bad = ~np.isfinite(X)  # (n, d)
    if not bad.any():
        return
    position = int(np.argmax(bad.any(axis=0)))
    rows = np.flatnonzero(bad[:, position])
    label = position if names is None else repr(str(np.asarray(names)[position]))
    kind = "NaN (missing)" if np.isnan(X[rows[0], position]) else "infinity"
    raise ValueError(
        f"Input X contains {kind}: column {label} has {len(rows)} such value(s), the first in "
        f"row {rows[0]}. "
        "Fill them in or drop the rows."
    )


@dataclass(frozen=True)
class Standardiser:
    """z = (value - mean) / scale, column by column; a constant column is 0 whatever comes later.

    Attributes:
        mean: ``(d,)``, or ``()`` for a response.
        scale: Standard deviation, 0 where a column is constant; the shape of ``mean``.
    """

    mean: Floats
    scale: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats) -> Standardiser:
        """Weighted mean and standard deviation over the first axis."""
        share = weights / weights.sum()
        mean = share @ values
        with np.errstate(over="ignore"):  # what overflows is refused below
            scale = np.sqrt(share @ (values - mean) ** 2)
        # A column of equal values has a tiny computed deviation, which must not be divided by.
        constant = values.max(axis=0) == values.min(axis=0)
        mean, scale = np.where(constant, values[0], mean), np.where(constant, 0.0, scale)
        if not (
            np.all(np.isfinite(mean))
            and np.all(np.isfinite(scale))
            and np.all((scale > 0) | constant)
        ):
            raise ValueError(
                "values are too large or too close together to be standardised in double "
                "precision; rescale them"
            )
        return cls(mean, scale)

    @classmethod
    def identity(cls) -> Standardiser:
        """Leaves values as they are, bit for bit."""
        return cls(np.asarray(0.0), np.asarray(1.0))

    def encode(self, values: Floats) -> Floats:
        """Original to standardised units."""
        return np.divide(
            values - self.mean, self.scale, out=np.zeros_like(values), where=self.scale > 0
        )

    def decode(self, values: Floats) -> Floats:
        """Standardised to original units."""
        return values * self.scale + self.mean


@dataclass(frozen=True)
class Grouped:
    """The paper's data set: distinct covariates x_i, each with its N_i responses.

    Attributes:
        x: Distinct covariates in the order of their first appearance, ``(n, d)``.
        y: Responses, those of one covariate contiguous, ``(N,)``.
        weight: Weights of the responses, ``(N,)``.
        start: The responses of covariate i are ``y[start[i]:start[i + 1]]``, ``(n + 1,)``.
    """

    x: Floats
    y: Floats
    weight: Floats
    start: Ints

    @classmethod
    def of(cls, X: Floats, y: Floats, weight: Floats | None = None) -> Grouped:
        """Group the rows of a table by equal covariates.

        Example:
            >>> table = Grouped.of(np.array([[2.0], [1.0], [2.0]]), np.array([5.0, 6.0, 7.0]))
            >>> table.x.ravel().tolist(), table.y.tolist(), table.start.tolist()
            ([2.0, 1.0], [5.0, 7.0, 6.0], [0, 2, 3])
        """
        weight = np.ones(len(y)) if weight is None else weight
        first, group = group_rows(X)
        order = np.argsort(group, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(first)))])
        return cls(X[first], y[order], weight[order], start.astype(np.int64))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def counts(self) -> Ints:
        """Responses per covariate N_i, ``(n,)``."""
        return np.diff(self.start)

    @property
    def group(self) -> Ints:
        """The covariate of each response, ``(N,)``."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def share(self) -> Floats:
        """Weights that sum to one within each covariate, ``(N,)``."""
        total = np.add.reduceat(self.weight, self.start[:-1])
        return self.weight / np.repeat(total, self.counts)

    def rows(self, covariates: Ints) -> tuple[Ints, Ints]:
        """Positions of the responses of some covariates, and whose each is; both ``(R,)``."""
        counts = self.start[covariates + 1] - self.start[covariates]
        owner = np.repeat(np.arange(len(covariates)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.start[covariates][owner] + within, owner

    def take(self, covariates: Ints) -> Grouped:
        """The data set restricted to some of its covariates."""
        rows, _ = self.rows(covariates)
        start = np.concatenate([[0], np.cumsum(self.counts[covariates])])
        return Grouped(self.x[covariates], self.y[rows], self.weight[rows], start.astype(np.int64))

    def split(
        self, fraction: float, rng: np.random.Generator, at_most: int = 5000
    ) -> tuple[Grouped, Grouped]:
        """Hold out a share of the covariates with all their responses; no part stays empty."""
        n_held_out = min(max(1, round(fraction * len(self))), len(self) - 1, at_most)
        held_out = np.zeros(len(self), bool)
        held_out[rng.permutation(len(self))[:n_held_out]] = True
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))

    def chunks(self, extra_cells: int = 0, max_cells: int = 2_000_000) -> Iterator[Ints]:
        """Covariates in parts whose `padded` arrays stay small, those of similar counts together.

        Args:
            extra_cells: What else is held in memory for each covariate of a part.
            max_cells: Largest size of a part, unless one covariate alone is larger.
        """
        order = np.argsort(self.counts, kind="stable")
        while len(order):
            cells = np.arange(1, len(order) + 1) * (self.counts[order] + extra_cells)
            n_fit = max(1, int(np.searchsorted(cells, max_cells)))
            yield order[:n_fit]
            order = order[n_fit:]

    def padded(self) -> tuple[Floats, Floats]:
        """Responses and weights, ``(n, max N_i)``; short rows are filled with weight 0."""
        width = int(self.counts.max())
        y = np.repeat(self.y[self.start[:-1]], width).reshape(len(self), width)
        weight = np.zeros((len(self), width))
        column = np.arange(len(self.y)) - np.repeat(self.start[:-1], self.counts)
        y[self.group, column], weight[self.group, column] = self.y, self.weight
        return y, weight


def group_rows(X: Floats) -> tuple[Ints, Ints]:
    """Number equal rows in order of appearance: first row of each group, group of each row."""
    X = np.ascontiguousarray(np.asarray(X, np.float64) + 0.0)  # + 0.0 turns -0.0 into its equal 0.0
    # Repeated covariates often stand together: a run of equal rows is one row to sort.
    run = np.flatnonzero(np.append(True, (X[1:] != X[:-1]).any(axis=1)))
    length = np.diff(np.append(run, len(X)))
    bytes_ = X[run].view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    _, first, inverse = np.unique(bytes_, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return run[first[order]], np.repeat(rank[inverse.ravel()], length)


def responses_per_covariate(X: ArrayLike) -> Ints:
    """How often each distinct covariate of a table occurs, ``(n,)`` (the paper's Figure 1).

    Example:
        >>> responses_per_covariate([[1, 2], [3, 4], [1, 2]]).tolist()
        [2, 1]
    """
    _, group = group_rows(as_rectangle(X))
    return np.bincount(group)


def lipschitz_pairs(X: ArrayLike, y: ArrayLike, min_responses: int = 18) -> pd.DataFrame:
    """Are the distributions at close covariates close? All pairs of often seen ones (Figure 2).

    Args:
        X: Covariates, ``(N, d)``; distances are taken after standardising the columns over the
            table.
        y: Responses, ``(N,)``.
        min_responses: Only covariates with more responses than this take part.

    Returns:
        Columns ``distance`` (Euclidean, standardised units) and ``w2`` (2-Wasserstein, units of
        ``y``).
    """
    X, y = as_rectangle(X), np.asarray(y, np.float64).ravel()
    scaled = Standardiser.of(X, np.ones(len(X))).encode(X)
    table = Grouped.of(scaled, y)
    table = table.take(np.flatnonzero(table.counts > min_responses))
    if len(table) < 2:
        raise ValueError(
            f"fewer than two covariates have more than {min_responses} responses; lower "
            "min_responses, or use a table in which covariates repeat"
        )
    i, j = np.triu_indices(len(table), k=1)
    values, weights = table.padded()
    size = max(1, 2_000_000 // values.shape[1])  # pairs at once, to bound memory
    parts = [(i[k : k + size], j[k : k + size]) for k in range(0, len(i), size)]
    w2 = [wasserstein(values[a], values[b], weights[a], weights[b], p=2) for a, b in parts]
    distance = np.linalg.norm(table.x[i] - table.x[j], axis=1)
    return pd.DataFrame({"distance": distance, "w2": np.concatenate(w2)})


def as_rectangle(X: Any) -> Floats:
    """A table of covariates as floats ``(n, d)``, not empty."""
    X = np.asarray(numeric_covariates(X), np.float64)
    if X.ndim != 2 or X.size == 0:
        raise ValueError(f"X must be a table with rows and columns, got shape {X.shape}")
    return cast(Floats, X)
