"""Rows unlike any in the training data, found from what a model's encoder remembers of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gentle.columns import Column, Columns, Label
from gentle.covariates import Covariate, CovariateEncoder

Floats = NDArray[np.float64]

MARGIN = 0.5  # ranges of the training values beyond which a value is far from them
_SHORT_TAIL = 3.0  # standard deviations from the mean to the extreme value of a column without one


class OutOfSupportWarning(UserWarning):
    """Covariates lie far from the training data, so that answers about them are guesses."""


def excess(encoder: CovariateEncoder, X: Any) -> Floats:
    """How far each value lies beyond those of the training data, column by column.

    Args:
        encoder: Of a fitted model; it remembers ranges and levels, not rows.
        X: Covariates, ``(n, d)``.

    Returns:
        0 within the training values, else the distance from them in units of their range, or of a
        multiple of it on the side of a long tail, where farther values are to be expected: that is
        (t / 3)², if the extreme value is t > 3 standard deviations from the mean. Infinite for a
        level never seen before and where all training values were equal. ``(n, d)``

    Example:
        >>> encoder = CovariateEncoder.of([[0.0], [10.0]], np.ones(2))
        >>> excess(encoder, [[3.0], [15.0], [-20.0]]).ravel().tolist()
        [0.0, 0.5, 2.0]
    """
    columns = zip(encoder.covariates, Columns.of(X).columns, encoder.labels)
    return np.column_stack(
        [_excess(covariate, column, label) for covariate, column, label in columns]
    )


def _excess(covariate: Covariate, column: Column, label: Label) -> Floats:
    c, n = covariate, len(column.values)
    if c.missing == 1:
        return np.where(np.isnan(column.values), 0.0, np.inf)
    if c.kind in ("category", "ordered"):
        if c.others:  # rare levels have no names, so a new one cannot be told from them
            return np.zeros(n)
        return np.where(column.as_positions(c.levels, len(c.levels)) == len(c.levels), np.inf, 0.0)
    if c.low == c.high and c.scale > 0:  # of a file that does not remember ranges
        return np.zeros(n)
    values = column.as_numbers(c.kind, label)
    found = np.zeros(n)
    for sign, end in ((-1, c.low), (1, c.high)):
        beyond = np.nan_to_num(sign * (values - end)).clip(0)  # what is missing is not far
        tail = sign * (end - c.mean) / c.scale if c.scale else 0.0
        stretch = max(1.0, tail / _SHORT_TAIL)
        unit = (c.high - c.low) * stretch * stretch  # infinite rather than an OverflowError
        with np.errstate(divide="ignore", over="ignore"):
            np.divide(beyond, unit, out=found, where=beyond > 0)
    return found


@dataclass(frozen=True)
class Strangers:
    """Rows far from the training data.

    Attributes:
        n_rows: Rows looked at.
        n_far: Those that are far away in some column.
        worst: The largest excess.
        column: Where that is.
    """

    n_rows: int = 0
    n_far: int = 0
    worst: float = 0.0
    column: Label = ""

    @classmethod
    def among(cls, encoder: CovariateEncoder, X: Any) -> Strangers:
        """Those of a table."""
        beyond = excess(encoder, X)  # (n, d)
        column = int(beyond.max(axis=0).argmax())
        far = (beyond > MARGIN).any(axis=1)
        return cls(len(beyond), int(np.sum(far)), float(beyond.max()), encoder.labels[column])

    @classmethod
    def together(cls, parts: Iterable[Strangers]) -> Strangers:
        """Those of a table that came in parts."""
        parts = list(parts)
        worst = max(parts, key=lambda part: part.worst, default=cls())
        n_rows, n_far = sum(part.n_rows for part in parts), sum(part.n_far for part in parts)
        return cls(n_rows, n_far, worst.worst, worst.column)

    def warn(self, stacklevel: int = 2) -> None:
        """Say so if there are any, once for all of them."""
        if not self.n_far:
            return
        what = "values never seen in fit()" if np.isinf(self.worst) else "far beyond its range"
        warnings.warn(
            f"{self.n_far:,} of {self.n_rows:,} rows lie far from the training data, most of all "
            f"in column {self.column!r} ({what}); answers about them are guesses. "
            "gentle.diagnostics.support(model, X) tells which rows.",
            OutOfSupportWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_strangers(encoder: CovariateEncoder, table: Columns) -> None:
    """Say in one warning if rows lie far from the training data."""
    Strangers.among(encoder, table).warn(stacklevel=4)
