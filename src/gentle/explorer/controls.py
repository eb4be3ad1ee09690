"""One control for each covariate of a fitted model: what can be chosen, and where one starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.columns import Columns, Label
from gentle.covariates import Covariate

Floats = NDArray[np.float64]
Widget = Literal["slider", "choice", "order", "date", "fixed"]

MISSING, OTHER = "(missing)", "(any other)"
_MIDDLE = (0.005, 0.5, 0.995)  # of the data: ends of a slider, and where it starts
_N_STEPS = 100
_N_GRID = 61  # points along a covariate
_DAY_0 = date(1970, 1, 1)
_DAYS = ((date.min - _DAY_0).days, (date.max - _DAY_0).days)
_UNITS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
_TRUTH = {"yes": True, "no": False}


@dataclass(frozen=True)
class Control:
    """What can be chosen for one covariate.

    Attributes:
        label: Its column.
        widget: A "slider" over numbers, a "choice" among texts, an "order" of texts, a "date", or
            "fixed" if the column never varied.
        start: What is chosen at first: a number, a text or a date.
        low: The smallest number of a slider, or the first date.
        high: The largest.
        step: Of a slider.
        choices: What a text stands for, by the text.
        missing: Whether the value may be missing.
        unit: Of a duration, whose numbers are in it.
    """

    label: Label
    widget: Widget
    start: Any
    low: Any = None
    high: Any = None
    step: float = 1.0
    choices: dict[str, Any] | None = None
    missing: bool = False
    unit: str = ""

    @classmethod
    def of(cls, label: Label, covariate: Covariate, values: Floats | None = None) -> Control:
        """The control of a column.

        Args:
            label: The column.
            covariate: What a model's encoder knows of it.
            values: Its numbers in a table (days of dates, seconds of durations), ``(n,)``. Without
                them, a slider covers the range of the training values and starts at their mean.

        Example:
            >>> age = Covariate("number", mean=40.3, scale=12.0, low=18.0, high=66.0)
            >>> Control.of("age", age)
            Control(label='age', widget='slider', start=40, low=18, high=66, step=1, ...)
        """
        c, gaps = covariate, covariate.missing > 0
        if c.constant:
            only = c.levels[0] if c.levels else OTHER if c.others else c.mean
            return cls(label, "fixed", None if c.missing == 1 else _fixed(c, only))
        if c.kind in ("category", "boolean") or _two_valued(c):
            choices = _choices(c)
            return cls(label, "choice", next(iter(choices)), choices=choices)
        if c.kind == "ordered":
            often = c.levels[int(np.argmax(c.shares))]
            return cls(label, "order", often, choices={v: v for v in c.levels}, missing=gaps)
        known = np.array([]) if values is None else values[~np.isnan(values)]
        low, start, high = c.low, c.mean, c.high
        if len(known):
            low, start, high = np.quantile(known, _MIDDLE, method="inverted_cdf").tolist()
        if c.kind == "date":
            low, start, high = (_date(day) for day in (low, start, high))
            return cls(label, "date", start, low, high, missing=gaps)
        unit = ""
        if c.kind == "duration":
            unit = next((name for name, s in _UNITS.items() if high - low >= 4 * s), "seconds")
            low, start, high = (value / _UNITS[unit] for value in (low, start, high))
            known = known / _UNITS[unit]
        low, start, high, step = _rounded(low, start, high, known)
        return cls(label, "slider", start, low, high, step, missing=gaps, unit=unit)

    @property
    def name(self) -> str:
        """The column in words, with the unit of a duration."""
        text = self.label if isinstance(self.label, str) else f"column {self.label}"
        return f"{text} ({self.unit})" if self.unit else text

    @property
    def digits(self) -> int:
        """Decimals in which a slider's numbers are shown."""
        return max(0, -math.floor(math.log10(self.step)))

    def cell(self, value: Any) -> Any:
        """What a table holds if this value is chosen; None, which is a missing value, stays so."""
        if value is None:
            return None
        if self.choices is not None:
            return self.choices[value]
        if self.widget == "date":
            return pd.Timestamp(value)
        return pd.Timedelta(value * _UNITS[self.unit], "s") if self.unit else value

    def said(self, value: Any) -> str:
        """A value in words."""
        if value is None:
            return MISSING
        if isinstance(value, float):
            return f"{value:.{self.digits}f}" if self.widget == "slider" else f"{value:g}"
        return str(value)

    def grid(self) -> list[Any]:
        """Values along the covariate, in order."""
        if self.choices is not None:
            return list(self.choices)
        if self.widget == "fixed":
            return [self.start]
        if self.widget == "date":
            n_days = (self.high - self.low).days
            days = np.unique(np.linspace(0, n_days, _N_GRID).astype(int)).tolist()
            return [self.low + timedelta(day) for day in days]
        values = np.linspace(self.low, self.high, _N_GRID)
        if isinstance(self.step, int):
            return np.unique(values.round().astype(int)).tolist()
        return values.tolist()


def controls_of(model: Any, X: Any = None) -> list[Control]:
    """The controls of a fitted model's covariates, in the order of its columns.

    Args:
        model: A fitted model.
        X: Covariates of a table, ``(n, d)``, from which ranges and medians are then taken.

    Example:
        >>> from gentle import KNN
        >>> X = pd.DataFrame({"age": [20, 50, 30, 31], "town": ["Rome", "Oslo", "Rome", "Bonn"]})
        >>> model = KNN(n_neighbors=2).fit(X, [1.0, 2.0, 3.0, 4.0])
        >>> [(c.name, c.widget, c.start) for c in controls_of(model, X)]
        [('age', 'slider', 30), ('town', 'choice', 'Rome')]
    """
    encoder = model.covariate_encoder_
    columns = [None] * len(encoder.labels) if X is None else Columns.of(X).columns
    found = []
    for label, covariate, column in zip(encoder.labels, encoder.covariates, columns):
        values = None
        if column is not None and covariate.kind in ("number", "date", "duration"):
            values = column.as_numbers(covariate.kind, label)
        found.append(Control.of(label, covariate, values))
    return found


def rows_of(controls: Sequence[Control], values: dict[Label, Any], n: int = 1) -> pd.DataFrame:
    """A table of n equal rows with these values, which a model takes."""
    return pd.DataFrame({c.label: [c.cell(values[c.label])] * n for c in controls})


def _choices(c: Covariate) -> dict[str, Any]:
    """What can be chosen, most frequent first, and what stands for it in a table."""
    if c.kind == "boolean":
        found: dict[str, Any] = _TRUTH if c.mean >= 0.5 else dict(reversed(_TRUTH.items()))
    elif c.kind == "number":
        ends = (c.low, c.high) if c.mean <= (c.low + c.high) / 2 else (c.high, c.low)
        found = {f"{value:.12g}": value for value in ends}
    else:
        found = {level: level for level in c.levels} | ({OTHER: OTHER} if c.others else {})
    return found | ({MISSING: None} if c.missing else {})


def _two_valued(c: Covariate) -> bool:
    """Whether only the two ends occur: no other numbers reach (high - mean)(mean - low)."""
    most = (c.high - c.mean) * (c.mean - c.low)
    return c.kind == "number" and most > 0 and math.isclose(c.scale**2, most, rel_tol=1e-9)


def _fixed(c: Covariate, only: Any) -> Any:
    if c.kind == "date":
        return _date(only)
    if c.kind == "boolean":
        return bool(only)
    return pd.Timedelta(only, "s") if c.kind == "duration" else only


def _date(day: float) -> date:
    return _DAY_0 + timedelta(int(np.clip(np.floor(day), *_DAYS)))


def _rounded(low: float, start: float, high: float, known: Floats) -> tuple[Any, Any, Any, Any]:
    """A slider's ends, start and step as numbers that are short to read, within the given ends."""
    ends = known if len(known) else np.array([low, high])
    whole = bool(np.all(ends == np.round(ends))) and np.ptp(ends) >= 2
    if low >= high:  # nearly all rows of the table have one value
        low, high = low - 1, low + 1
    power = 10.0 ** math.floor(math.log10((high - low) / _N_STEPS))
    step = power * next(k for k in (1, 2, 5, 10) if (high - low) / (power * k) <= _N_STEPS)
    step = max(1, round(step)) if whole else step
    digits = max(0, -math.floor(math.log10(step)))
    low, high = math.ceil(low / step), math.floor(high / step)
    counts = (low, min(max(round(start / step), low), high), high)
    low, start, high = (count * step if whole else round(count * step, digits) for count in counts)
    return low, start, high, step
