"""Covariates as they really are: every kind of column, with gaps, encoded for the models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Column, Columns, Kind, Label
from gentle.data import Grouped, Standardiser
from gentle.transport import wasserstein

Floats = NDArray[np.float64]

_MAX_LEVELS = 200
_FEW_LEVELS = 50  # that every category may have, however long the table
_MAX_CELLS = 20_000_000  # that the indicators of longer categories may fill
_MIN_SHARE = 0.005  # of the weight, for a level of its own
_SURE_SHARE = 0.1  # from here on even if one row has all of it
_SURE_ROWS = 5  # from here on even with a smaller share
_TWO_YEARS = 2 * 365.25
_FARTHEST_DAY = 1e9  # nearly three million years
_SEASONAL = 0.99  # dates closer together within the year have no season; 1 is the same day


@dataclass(frozen=True)
class Covariate:
    """How one column is encoded, and what it held in training.

    Attributes:
        kind: What it holds.
        mean: Of numbers, truth values, days, seconds or ranks in an order; missing ones left out.
        scale: Their standard deviation, 0 if they are constant or the column is a category.
        low: The smallest of them.
        high: The largest of them.
        seasonal: Whether dates also become sine and cosine of their place within the year.
        levels: The levels of a category with an indicator of their own, most frequent first; those
            of an ordered column in their order.
        shares: The levels' shares of the weight.
        others: Share of all other levels, which have an indicator in common if there are any.
        missing: Share of missing values.
    """

    kind: Kind
    mean: float = 0.0
    scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    seasonal: bool = False
    levels: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    others: float = 0.0
    missing: float = 0.0

    @property
    def n_indicators(self) -> int:
        """Of a category: one for each level, one for missing values, one for all other levels."""
        return len(self.levels) + (self.missing > 0) + (self.others > 0)

    @property
    def constant(self) -> bool:
        """Whether the column carries no information."""
        if self.kind == "category":
            return self.n_indicators < 2
        return self.scale == 0 and self.missing in (0, 1)

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        if self.constant:
            return 1  # of zeros
        if self.kind == "category":
            return 1 if self.n_indicators == 2 else self.n_indicators
        return 1 + 2 * self.seasonal + (self.missing > 0)

    def encode(self, column: Column, label: Label) -> tuple[Floats, bool]:
        """The encoded columns ``(n, width)``, and whether values are missing as never before."""
        if self.constant:
            return np.zeros((len(column.values), 1)), False
        found = self._indicators if self.kind == "category" else self._numbers
        block, missing = found(column, label)
        return block, bool(missing.any()) and self.missing == 0

    def _indicators(self, column: Column, label: Label) -> tuple[Floats, NDArray[np.bool_]]:
        n_levels, nowhere = len(self.levels), self.n_indicators
        position = column.as_positions(self.levels, nowhere - 1 if self.others else nowhere)
        missing = position < 0
        position[missing] = n_levels if self.missing else nowhere
        # Two levels are one unit apart; what is none of them is equally far from all.
        if nowhere == 2:
            return np.array([[0.5], [-0.5], [0.0]])[position], missing
        return (np.eye(nowhere + 1, nowhere) / np.sqrt(2))[position], missing

    def _numbers(self, column: Column, label: Label) -> tuple[Floats, NDArray[np.bool_]]:
        if self.kind == "ordered":
            position = column.as_positions(self.levels, -1)
            values = np.where(position < 0, np.nan, position)
        else:
            values = column.as_numbers(self.kind, label)
        missing = np.isnan(values)
        with np.errstate(over="ignore"):  # what is that far away is refused by the models
            block = [Standardiser(np.asarray(self.mean), np.asarray(self.scale)).encode(values)]
        if self.seasonal:
            angle = year_angle(values)
            block += [np.sin(angle), np.cos(angle)]
        block = [np.where(missing, 0.0, part) for part in block]
        if self.missing:
            block.append(missing.astype(np.float64))
        return np.column_stack(block), missing


@dataclass(frozen=True)
class CovariateEncoder:
    """From a user's table to the numbers that models see.

    - Numbers, truth values, dates (in days) and durations (in seconds) are standardised: weighted
      mean 0 and standard deviation 1. So are ordered categories, by their rank among those used.
      Dates that span more than two years, and differ within the year, are also sine and cosine of
      their place in the year.
    - Other categories and texts become indicators of the levels that have five rows, or at least
      0.5 % of the weight and either two rows or 10 % of it; at most 200 of them, in long tables
      as many as fill 20 million cells, but 50 in any case. All other levels share one, if there
      are any. Indicators are divided by √2, so that two levels are as far apart
      as numbers one standard deviation apart; two indicators are one column of ±1/2. A level that
      is new in prediction is one of the others, or, if there were none, 0 in all indicators.
    - A missing number counts as the mean, and where values were missing in training a further
      column says so (1 is missing). In a category, missing is a level of its own.
    - Where nothing varies, the encoded column is 0, whatever comes later.

    Attributes:
        covariates: How each column is encoded.
        labels: Names or positions of the columns.

    Example:
        >>> table = pd.DataFrame({"age": [20, 40, 60, None], "town": ["Rome", "Oslo"] * 2})
        >>> encoder = CovariateEncoder.of(table, np.ones(4))
        >>> encoder.encode(table).round(2)
        array([[-1.22,  0.  , -0.5 ],
               [ 0.  ,  0.  ,  0.5 ],
               [ 1.22,  0.  , -0.5 ],
               [ 0.  ,  1.  ,  0.5 ]])
    """

    covariates: tuple[Covariate, ...]
    labels: tuple[Label, ...]

    @classmethod
    def of(cls, X: Any, weights: Floats) -> CovariateEncoder:
        """Learn the encoding of a table's columns, given the (relative) weights of its rows."""
        table, share = Columns.of(X), weights / weights.sum()
        columns = [_ranked(column) for column in table.columns]
        gaps = [np.isnan(column.values) for column in columns]
        # All at once where nothing is missing: other matrix products round differently.
        whole = [j for j, c in enumerate(columns) if c.kind != "category" and not gaps[j].any()]
        fitted: dict[int, tuple[float, float]] = {}
        if whole:
            both = Standardiser.of(np.column_stack([columns[j].values for j in whole]), weights)
            fitted = dict(zip(whole, zip(both.mean.tolist(), both.scale.tolist())))
        found = []
        n_long = sum(c.kind == "category" and len(c.levels) > _FEW_LEVELS for c in columns)
        room = _MAX_CELLS // max(1, n_long * len(share))
        most = min(max(room, _FEW_LEVELS), _MAX_LEVELS)
        for j, (column, gap) in enumerate(zip(columns, gaps)):
            missing = 1.0 if gap.all() else float(share[gap].sum())
            if column.kind == "category":
                found.append(_category(column, share, missing, most))
            else:
                found.append(_number(column, weights, gap, missing, fitted.get(j)))
        return cls(tuple(found), table.labels)

    @property
    def n_encoded(self) -> int:
        """Number of encoded columns."""
        return sum(covariate.width for covariate in self.covariates)

    @property
    def owners(self) -> list[Label]:
        """The user's column behind each encoded one."""
        return [label for label, c in zip(self.labels, self.covariates) for _ in range(c.width)]

    @property
    def uninformative(self) -> dict[str, list[Label]]:
        """Columns that carry no information: "constant" ones, and categories of "rare" levels."""
        named = list(zip(self.labels, self.covariates))
        rare = [label for label, c in named if c.constant and c.others > 0]
        constant = [label for label, c in named if c.constant and not c.others]
        return {"constant": constant, "rare": rare}

    def encode(self, X: Any) -> Floats:
        """Encode a table of the same columns, ``(n, n_encoded)``.

        Raises:
            ValueError: A column that held numbers, dates or durations holds something else.
        """
        table = Columns.of(X)
        if len(table.columns) != len(self.covariates):
            raise ValueError(f"X has {len(table.columns)} columns, not {len(self.covariates)}")
        out, start, gaps = np.empty((len(table), self.n_encoded)), 0, []
        for label, covariate, column in zip(self.labels, self.covariates, table.columns):
            end = start + covariate.width
            out[:, start:end], new_gap = covariate.encode(column, label)
            gaps += [label] if new_gap else []
            start = end
        if gaps:
            more = "" if len(gaps) <= 5 else f" and {len(gaps) - 5} more"
            warnings.warn(
                f"values are missing (or not among the ordered levels) in column(s) {gaps[:5]}"
                f"{more}, where none were in fit(); numbers are taken as the mean, categories as a "
                "level not seen before",
                UserWarning,
                stacklevel=4,
            )
        return out

    def state(self) -> list[dict[str, Any]]:
        """What `restored` needs but the labels: of each column what is not as in most of them."""
        return [
            {
                field.name: getattr(covariate, field.name)
                for field in fields(covariate)
                if getattr(covariate, field.name) != field.default
            }
            for covariate in self.covariates
        ]

    @classmethod
    def restored(cls, facts: Any, labels: Sequence[Label]) -> CovariateEncoder:
        """An encoder from what may be anything: a ValueError unless `state` could have given it.

        Args:
            facts: What `state` gave, perhaps after a journey through JSON.
            labels: Names or positions of the columns.
        """
        try:
            found = [Covariate(**_from_json(fact)) for fact in facts]
            sound = all(_sound(covariate) for covariate in found)
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise ValueError(f"its description of the columns is damaged ({error})") from None
        if not sound:
            raise ValueError("its description of the columns is damaged")
        if len(found) != len(labels):
            raise ValueError("its parts disagree about the number of columns")
        return cls(tuple(found), tuple(labels))


def year_angle(days: Floats) -> Floats:
    """The place of a date, in days since 1970 began, within its year; from 0 to 2π."""
    day = np.floor(np.nan_to_num(days)).astype("datetime64[D]")
    year = day.astype("datetime64[Y]")
    first, after = (y.astype("datetime64[D]").astype(np.float64) for y in (year, year + 1))
    return 2 * np.pi * (np.nan_to_num(days) - first) / (after - first)


def lipschitz_pairs(X: Any, y: ArrayLike, min_responses: int = 18) -> pd.DataFrame:
    """Are the distributions at close covariates close? All pairs of often seen ones (Figure 2).

    Args:
        X: Covariates, ``(N, d)``; distances are taken after encoding the columns over the table.
        y: Responses, ``(N,)``.
        min_responses: Only covariates with more responses than this take part.

    Returns:
        Columns ``distance`` (Euclidean, standardised units) and ``w2`` (2-Wasserstein, units of
        ``y``).
    """
    table, y = Columns.of(X), np.asarray(y, np.float64).ravel()
    grouped = Grouped.of(CovariateEncoder.of(table, np.ones(len(table))).encode(table), y)
    grouped = grouped.take(np.flatnonzero(grouped.counts > min_responses))
    if len(grouped) < 2:
        raise ValueError(
            f"fewer than two covariates have more than {min_responses} responses; lower "
            "min_responses, or use a table in which covariates repeat"
        )
    i, j = np.triu_indices(len(grouped), k=1)
    values, weights = grouped.padded()
    size = max(1, 2_000_000 // values.shape[1])  # pairs at once, to bound memory
    parts = [(i[k : k + size], j[k : k + size]) for k in range(0, len(i), size)]
    w2 = [wasserstein(values[a], values[b], weights[a], weights[b], p=2) for a, b in parts]
    distance = np.linalg.norm(grouped.x[i] - grouped.x[j], axis=1)
    return pd.DataFrame({"distance": distance, "w2": np.concatenate(w2)})


def _ranked(column: Column) -> Column:
    """An ordered column with ranks among the levels in use; others as they are."""
    if column.kind != "ordered":
        return column
    used, rank = np.unique(column.values, return_inverse=True)
    levels = tuple(column.levels[int(position)] for position in used[~np.isnan(used)])
    values = np.where(np.isnan(column.values), np.nan, rank.ravel())
    return Column("ordered", values, levels)


def _number(
    column: Column,
    weights: Floats,
    gap: NDArray[np.bool_],
    missing: float,
    known: tuple[float, float] | None,
) -> Covariate:
    values, weights = column.values[~gap], weights[~gap]
    if not len(values):
        return Covariate(column.kind, missing=missing)
    if known is None:
        own = Standardiser.of(values, weights)
        known = float(own.mean), float(own.scale)
    share, shares = weights / weights.sum(), ()
    if column.kind == "ordered":
        shares = tuple(((1 - missing) * np.bincount(values.astype(np.int64), share)).tolist())
    seasonal = False
    if column.kind == "date" and np.ptp(values) > _TWO_YEARS:
        seasonal = bool(np.abs(share @ np.exp(1j * year_angle(values))) < _SEASONAL)
    low, high = float(values.min()), float(values.max())
    return Covariate(
        column.kind, *known, low, high, seasonal, column.levels, shares, missing=missing
    )


def _category(column: Column, share: Floats, missing: float, most: int) -> Covariate:
    """The frequent levels, irrespective of the order of the rows."""
    present = ~np.isnan(column.values)
    codes = column.values[present].astype(np.int64)
    weight = np.bincount(codes, share[present], len(column.levels)).round(12)
    n_rows = np.bincount(codes, minlength=len(column.levels))
    often = (weight >= _MIN_SHARE) & ((n_rows > 1) | (weight >= _SURE_SHARE))
    often |= n_rows >= _SURE_ROWS
    order = np.argsort(-weight, kind="stable")  # of equally frequent ones the alphabet's first
    kept = [int(level) for level in order if often[level]][:most]
    rare = np.setdiff1d(np.flatnonzero(n_rows), kept)
    return Covariate(
        "category",
        levels=tuple(column.levels[level] for level in kept),
        shares=tuple(weight[kept].tolist()),
        others=float(max(weight[rare].sum(), 1e-12)) if len(rare) else 0.0,
        missing=missing,
    )


def _from_json(fact: Any) -> dict[str, Any]:
    lists = {name: fact[name] for name in ("levels", "shares") if name in fact}
    if not all(isinstance(value, (list, tuple)) for value in lists.values()):
        raise TypeError("levels and shares must be lists")
    return fact | {name: tuple(value) for name, value in lists.items()}


def _sound(c: Covariate) -> bool:
    """Whether an encoding from a file could have come from a table."""
    numbers = [c.mean, c.scale, c.low, c.high, c.others, c.missing, *c.shares]
    with_levels = c.kind in ("category", "ordered")
    return (
        c.kind in get_args(Kind)
        and all(type(value) is float and np.isfinite(value) for value in numbers)
        and all(type(level) is str for level in c.levels)
        and all(-1e-9 <= part <= 1 + 1e-9 for part in (c.others, c.missing, *c.shares))
        and c.others >= 0 <= c.missing
        and c.scale >= 0
        and len(set(c.levels)) == len(c.levels) == len(c.shares)
        and (with_levels or not c.levels)
        and (c.kind != "category" or len(c.levels) <= _MAX_LEVELS)
        and (c.kind == "category" or not c.others)
        and type(c.seasonal) is bool
        and (c.kind == "date" or not c.seasonal)
        and c.low <= c.high
        and (c.kind != "date" or max(-c.low, c.high) < _FARTHEST_DAY)
    )
