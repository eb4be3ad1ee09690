"""From numbers to the paper's data set: standardised, equal rows merged and grouped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.columns import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEGLIGIBLE = 1e-25  # next to the heaviest row; lighter ones drown in its rounding errors
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, and without a pattern: 2^64 over the golden ratio


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


@dataclass(frozen=True)
class Rows:
    """A grouped table taken apart again: one response per row.

    Attributes:
        x: Covariates, ``(n, d)``.
        y: Responses, ``(n,)``.
        weight: Weights of mean 1, ``(n,)``.
    """

    x: Floats
    y: Floats
    weight: Floats

    @classmethod
    def of(cls, table: Grouped) -> Rows:
        """The rows of a grouped table."""
        return cls(table.x[table.group], table.y, table.weight / table.weight.mean())

    def take(self, which: Ints) -> Rows:
        """Some of them."""
        return Rows(self.x[which], self.y[which], self.weight[which])

    def resampled(self, rng: np.random.Generator) -> Rows:
        """As many rows of equal weight, for packages that cannot weigh them.

        Systematic resampling: a row of weight w comes w times, rounded up or down at random; rows
        of equal weights come once each, in their order. Where one row outweighs all others, nothing
        would vary, and the rows stay as they are.
        """
        n = len(self.y)
        picks = np.searchsorted(np.cumsum(self.weight), np.arange(n) + rng.random(), side="right")
        picks = np.minimum(picks, n - 1)
        found = Rows(self.x[picks], self.y[picks], np.ones(n))
        return found if found.varies() else self

    def varies(self) -> bool:
        """Whether covariates and responses do, also in the single precision of some packages."""
        return all(bool(np.ptp(a.astype(np.float32), axis=0).any()) for a in (self.x, self.y))


def group_rows(X: Floats) -> tuple[Ints, Ints]:
    """Number equal rows in order of appearance: first row of each group, group of each row.

    NaN equals NaN, and -0.0 equals 0.0.
    """
    bits = _bits(X)
    group, _ = pd.factorize(_mixed(bits))
    first = np.flatnonzero(~pd.Series(group).duplicated().to_numpy())
    if len(first) == len(bits) or np.array_equal(bits, bits[first[group]]):
        return first, group.astype(np.int64, copy=False)
    bytes_ = bits.view(np.dtype((np.void, 8 * bits.shape[1]))).ravel()  # different rows, one hash
    _, first, inverse = np.unique(bytes_, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[inverse.ravel()]


def row_hashes(X: Floats) -> NDArray[np.uint64]:
    """A word for each row, the same for equal rows of any table, ``(n, d)`` to ``(n,)``.

    Example:
        >>> a, b, c = row_hashes(np.array([[0.0, np.nan], [-0.0, np.nan], [0.0, 1.0]]))
        >>> bool(a == b), bool(a == c)
        (True, False)
    """
    return _mixed(_bits(X))


def _bits(X: Floats) -> NDArray[np.uint64]:
    """Rows as words that are equal where values are; all NaN are, and so are -0.0 and 0.0."""
    X = np.ascontiguousarray(np.asarray(X, np.float64) + 0.0)  # + 0.0 turns -0.0 into its equal 0.0
    X[np.isnan(X)] = np.nan  # all of the same bits
    return X.view(np.uint64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each row: FNV's way, on words and with more mixing."""
    mixed = np.zeros(len(bits), np.uint64)
    for column in bits.T:
        mixed = (mixed ^ (column ^ (column >> np.uint64(32)))) * _PRIME
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _in_order(rows: Floats) -> Ints:
    """``np.lexsort(rows.T[::-1])``, but what follows the first column is sorted among ties only."""
    order = np.argsort(rows[:, 0], kind="stable")
    first = rows[order, 0]
    gap = np.isnan(first)
    same = (first[1:] == first[:-1]) | (gap[1:] & gap[:-1])
    if not same.any():
        return order
    if np.count_nonzero(same) > len(rows) / 2:
        return np.lexsort(rows.T[::-1])
    tied = np.append(False, same) | np.append(same, False)
    run, among = np.cumsum(np.append(True, ~same))[tied], order[tied]
    order[tied] = among[np.lexsort([*rows[among, 1:].T[::-1], run])]
    return order


def merged_rows(keys: Floats, y: Floats, weight: Floats) -> tuple[Ints, Floats]:
    """Make identical rows one row that weighs as much as they do together.

    So a row of weight k and k copies of it are the same thing. Weights matter in relation only:
    those of the result have mean 1, and are the same, bit for bit, whatever (positive) number all
    weights were multiplied by, as long as the products themselves are exact. Rows of negligible
    weight, below 1e-25 of the heaviest, are left out. The result is sorted, so that it does not
    matter in which order the rows come.

    Args:
        keys: Covariates in any form that is equal for equal ones, ``(n, d)``.
        y: Responses, ``(n,)``.
        weight: Positive weights, ``(n,)``.

    Returns:
        Where the distinct rows stand first, and their weights; both ``(m,)``.

    Example:
        >>> merged_rows(np.zeros((3, 1)), np.array([5.0, 7.0, 5.0]), np.array([1.0, 1.0, 2.0]))
        (array([0, 1]), array([1.5, 0.5]))
    """
    rows = np.column_stack([keys, y])
    first, group = group_rows(rows)
    weight = np.ldexp(weight, -np.frexp(weight.max())[1])  # exact, and sums cannot overflow
    ascending = np.argsort(weight)  # a sum of floats depends on their order, which must not matter
    total = np.bincount(group[ascending], weight[ascending])
    total /= total.max()
    order = _in_order(rows[first])
    order = order[total[order] > _NEGLIGIBLE]
    return first[order], total[order] / total[order].mean()


def responses_per_covariate(X: Any) -> Ints:
    """How often each distinct covariate of a table occurs, ``(n,)`` (the paper's Figure 1).

    Example:
        >>> responses_per_covariate([[1, 2], [3, 4], [1, 2]]).tolist()
        [2, 1]
    """
    _, group = group_rows(Columns.of(X).keys())
    return np.bincount(group)
