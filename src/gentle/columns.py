"""The columns of a user's table, whatever they hold, read as numbers and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types
from pandas.util import hash_array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Label = str | int
Kind = Literal["number", "boolean", "date", "duration", "ordered", "category"]

_hashed: Any = hash_array  # a function to pandas, many things to type checkers
_EPOCH, _DAY, _SECOND = np.datetime64(0, "s"), np.timedelta64(1, "D"), np.timedelta64(1, "s")
_TRUTH = {"true": 1.0, "false": 0.0}
_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal"}  # as pandas infers them
_NUMBER_TYPES = (Real, Decimal, np.bool_)
_DATES = {"date", "datetime", "datetime64"}
_DURATIONS = {"timedelta", "timedelta64"}


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        kind: What it holds.
        values: Numbers; 0 and 1; days since 1970 began; seconds; or positions among ``levels``. NaN
            where a value is missing. ``(n,)``
        levels: The texts of an "ordered" column in their order, of a "category" in that of the
            alphabet.
    """

    kind: Kind
    values: Floats
    levels: tuple[str, ...] = ()

    def take(self, rows: NDArray[Any]) -> Column:
        """Some of the rows."""
        return replace(self, values=self.values[rows])

    def keys(self) -> Floats:
        """A number for each value, equal for equal ones, whatever else the table holds."""
        values = np.where(np.isnan(self.values), np.nan, self.values)  # every NaN of the same bits
        if not self.levels:
            return values + 0.0  # -0.0 equals 0.0
        hashed = _hashed(np.array(self.levels, object), categorize=False)
        return _looked_up((hashed >> np.uint64(11)).astype(np.float64), values)  # 53 bits are exact

    def as_numbers(self, kind: Kind, label: Label) -> Floats:
        """The values as numbers, dates or durations, with texts read as such, ``(n,)``.

        Raises:
            ValueError: A value is something else; it is named together with the column.
        """
        number_like = {"number", "boolean"}
        if self.kind == kind or {self.kind, kind} <= number_like or np.isnan(self.values).all():
            return self.values
        read = _READERS[kind]
        if not self.levels:  # dates for numbers, or the like
            raise _misfit(_shown(self), label, kind)
        present = ~np.isnan(self.values)
        used = np.unique(self.values[present]).astype(np.int64)
        found = np.full(len(self.levels), np.nan)
        for position in used:
            with suppress(ValueError, TypeError, OverflowError):
                found[position] = read(self.levels[position])
            if not np.isfinite(found[position]):
                raise _misfit(_quoted(self.levels[position]), label, kind)
        return _looked_up(found, self.values)

    def as_positions(self, levels: Iterable[str], unknown: int) -> Ints:
        """Where each value stands among some texts; -1 is missing, others are ``unknown``."""
        place = {text: position for position, text in enumerate(levels)}
        if self.levels:
            own, at = self.levels, self.values
        else:
            distinct, inverse = np.unique(self.values, return_inverse=True)
            own = [_text_of_number(value, self.kind) for value in distinct]
            at = np.where(np.isnan(self.values), np.nan, inverse.ravel())
        places = np.array([place.get(text, unknown) for text in own], np.float64)
        return np.nan_to_num(_looked_up(places, at), nan=-1.0).astype(np.int64)


@dataclass(frozen=True)
class Columns:
    """Covariates as a user passed them, column by column.

    Attributes:
        columns: The columns, at least one.
        labels: Their names if all of them are texts, else their positions.

    Example:
        >>> table = Columns.of(pd.DataFrame({"age": [20, None], "town": ["Rome", "Paris"]}))
        >>> [(column.kind, column.values.tolist()) for column in table.columns]
        [('number', [20.0, nan]), ('category', [1.0, 0.0])]
    """

    columns: tuple[Column, ...]
    labels: tuple[Label, ...]

    @classmethod
    def of(cls, X: Any) -> Columns:
        """Read an array or a frame, of pandas or of whatever speaks Arrow.

        Raises:
            ValueError: It is no table, has a column name twice, or holds infinite values, lists or
                other values that are no number, date or text.
        """
        X = as_pandas(X)
        if isinstance(X, Columns):
            return X
        if isinstance(X, pd.DataFrame):
            twice = X.columns[X.columns.duplicated()]
            if len(twice):
                raise ValueError(f"X has more than one column named {twice[0]!r}; rename them")
            shape, labels = X.shape, tuple(X.columns)
            alike = len(set(X.dtypes)) == 1 and isinstance(X.dtypes.iloc[0], np.dtype)
            cells: Iterable[Any] = (
                X.to_numpy().T if alike else (X.iloc[:, j] for j in range(X.shape[1]))
            )
        else:
            array = np.asarray(X)
            if array.ndim == 2 and array.dtype.kind in "biuf":
                array = array if array.dtype.kind == "b" else array.astype(np.float64)
            shape, labels = array.shape, ()
            cells = array.T if array.ndim == 2 else ()
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"X must be a table with rows and columns, got shape {shape}")
        if not (labels and all(isinstance(name, str) for name in labels)):
            labels = tuple(range(shape[1]))
        return cls(tuple(_read(values, label) for label, values in zip(labels, cells)), labels)

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> NDArray[Any] | None:
        """The names of the columns, None where these have none."""
        named = isinstance(self.labels[0], str)
        return np.asarray(self.labels, dtype=object) if named else None

    def take(self, rows: NDArray[Any]) -> Columns:
        """Some of the rows."""
        return replace(self, columns=tuple(column.take(rows) for column in self.columns))

    def keys(self) -> Floats:
        """Numbers ``(n, d)`` that are equal for equal rows, whatever else the table holds."""
        return np.column_stack([column.keys() for column in self.columns])


def as_pandas(data: Any) -> Any:
    """A table or a column of another library as one of pandas; anything else as it is.

    Polars, PyArrow, DuckDB and others hand their data over through Arrow's C interface. Of a masked
    array, what is masked is missing.

    Raises:
        ValueError: A column holds lists, structures or other things that are no single value.

    Example:
        >>> import pyarrow as pa
        >>> as_pandas(pa.table({"age": [20, None]}))["age"].tolist()
        [20.0, nan]
    """
    if isinstance(data, np.ma.MaskedArray):
        cells: Any = np.asarray(data)
        gap = cells.dtype.type("NaT") if cells.dtype.kind in "mM" else None
        return np.where(np.ma.getmaskarray(data), gap, cells)
    speaks_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    if isinstance(data, (pd.DataFrame, pd.Series)) or not speaks_arrow:
        return data
    import pyarrow as pa

    try:
        table, is_column = pa.table(data), False
    except pa.ArrowInvalid:
        column = pa.chunked_array(data)
        table, is_column = pa.table([column], [str(getattr(data, "name", ""))]), True
    for field in table.schema:
        if pa.types.is_nested(field.type) or pa.types.is_fixed_size_binary(field.type):
            raise ValueError(
                f"values of type {field.type} (in {field.name!r}) are too much for a cell, which "
                "must be one number, date or text; make columns of their parts, or drop them"
            )
    frame = table.to_pandas(date_as_object=False)
    return frame.iloc[:, 0] if is_column else frame


def taken(X: Any, rows: Ints) -> Any:
    """Some rows of a user's table, with the user's columns."""
    X = as_pandas(X)
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]


def _read(values: Any, label: Label) -> Column:
    """A column of a user's table; what is wrong with it is said together with its name."""
    try:
        column = _of_series(values) if isinstance(values, pd.Series) else _of_array(values)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"column {label!r} of X cannot be read: {error}") from None
    _require_no_infinity(column, label)
    return column


def _of_series(series: pd.Series) -> Column:
    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):  # what pandas knows of these differs from kind to kind
        cells: Any = series.array
        return _of_series(as_pandas(cells.__arrow_array__()))
    if isinstance(dtype, pd.SparseDtype):
        return _of_series(series.sparse.to_dense())
    if isinstance(dtype, pd.PeriodDtype):
        return _of_series(series.dt.to_timestamp())
    if isinstance(dtype, pd.CategoricalDtype):
        return _of_texts(
            [_text(value) for value in dtype.categories],
            np.asarray(series.cat.codes, np.int64),
            "ordered" if dtype.ordered else "category",
        )
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        if types.is_complex_dtype(dtype):
            raise ValueError("Complex data not supported in X")
        kind = "boolean" if types.is_bool_dtype(dtype) else "number"
        return Column(kind, series.to_numpy(np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        if getattr(series.dt, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return _of_array(np.asarray(series.to_numpy(f"datetime64[{_unit(series)}]")))
    if types.is_timedelta64_dtype(dtype):
        return _of_array(series.to_numpy())
    return _of_array(series.astype(object).to_numpy(object))


def _unit(series: pd.Series) -> str:
    return str(getattr(series.dt, "unit", "ns"))


def _of_array(values: NDArray[Any]) -> Column:
    kind = values.dtype.kind
    if kind in "biuf":
        return Column("boolean" if kind == "b" else "number", values.astype(np.float64))
    if kind == "M":
        return Column("date", (values - _EPOCH) / _DAY)
    if kind == "m":
        return Column("duration", values / _SECOND)
    if kind in "US":  # an array of texts cannot hold numbers otherwise than written out
        try:
            return Column("number", values.astype(np.float64))
        except ValueError:
            return _of_objects(values.astype(object))
    if kind == "c":
        raise ValueError("Complex data not supported in X")
    return _of_objects(values)


def _of_objects(values: NDArray[Any]) -> Column:
    """A column of Python objects, by what all of them are."""
    present = ~pd.isna(values)
    some = values[present]
    inferred = types.infer_dtype(some, skipna=False) if len(some) else "empty"
    if inferred == "complex":
        raise ValueError("Complex data not supported in X")
    if inferred == "string":
        codes, texts = pd.factorize(some)
        return _of_texts(list(texts), _spread(codes, present, -1).astype(np.int64))
    if inferred in _DATES:
        return Column("date", _spread([_days(value) for value in some], present))
    if inferred in _DURATIONS:
        return Column("duration", _spread([pd.Timedelta(v).total_seconds() for v in some], present))
    if inferred in _NUMBERS or all(isinstance(value, _NUMBER_TYPES) for value in some):
        kind = "boolean" if inferred == "boolean" else "number"
        return Column(kind, _spread([_float(value) for value in some], present))
    for value in some:
        if types.is_list_like(value) and not isinstance(value, tuple):
            raise ValueError(
                f"it holds a {type(value).__name__}, but a cell must be one number, date or text; "
                "make columns of its parts, or drop it"
            )
    codes, texts = pd.factorize(np.array([_text(value) for value in some], dtype=object))
    return _of_texts(list(texts), _spread(codes, present, -1).astype(np.int64))


def _of_texts(texts: list[str], codes: Ints, kind: Kind = "category") -> Column:
    """A column from codes, -1 for missing, of texts that may repeat."""
    levels = list(dict.fromkeys(texts))
    levels = levels if kind == "ordered" else sorted(levels)
    place = {text: position for position, text in enumerate(levels)}
    places = np.array([*(place[text] for text in texts), np.nan])  # the last stands for -1
    return Column(kind, places[codes], tuple(levels) or ("",))


def _spread(values: Any, present: NDArray[np.bool_], fill: float = np.nan) -> Floats:
    """Values of the present rows, the others filled."""
    out = np.full(len(present), fill)
    out[present] = values
    return out


def _looked_up(table: Floats, positions: Floats) -> Floats:
    """``table[positions]``, NaN where a position is NaN."""
    missing = np.isnan(positions)
    found = table[np.where(missing, 0, positions).astype(np.int64)]
    return np.where(missing, np.nan, found)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a huge integer
        return np.inf


def _days(value: Any) -> float:
    """Days since 1970 began, in UTC, of anything that pandas or Python calls a date."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return float((np.datetime64(value, "us") - _EPOCH) / _DAY)


def _text(value: Any) -> str:
    """What a value is called as a category: 1 and 1.0 alike, so that dtypes do not matter."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (date, np.datetime64)):
        return _text_of_number(_days(value), "date")
    if isinstance(value, Real):
        return _text_of_number(_float(value), "number")
    return str(value)


def _text_of_number(value: float, kind: Kind) -> str:
    if np.isnan(value):
        return ""
    if kind == "boolean":
        return str(bool(value))
    if kind == "date":
        moment = np.datetime64(0, "us") + np.timedelta64(round(value * 86_400_000_000), "us")
        whole = moment == moment.astype("datetime64[D]")
        return str(moment.astype("datetime64[D]") if whole else moment)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))


def _read_date(text: str) -> float:
    return _days(pd.to_datetime(text, utc=True, format="ISO8601").to_pydatetime())


_READERS: dict[str, Callable[[str], float]] = {
    "number": float,
    "boolean": lambda text: _TRUTH[text.lower()] if text.lower() in _TRUTH else float(text),
    "date": _read_date,
    "duration": lambda text: pd.Timedelta(text).total_seconds(),
}
_EXPECTED = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates",
    "duration": "durations",
}


def _misfit(found: str, label: Label, kind: Kind) -> ValueError:
    return ValueError(
        f"column {label!r} of X holds {found}, but in fit() it held {_EXPECTED[kind]}; "
        "correct such values, or leave them missing"
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:50]}…")


def _shown(column: Column) -> str:
    value = column.values[~np.isnan(column.values)][0]
    return f"{_text_of_number(value, column.kind)!r} (a {column.kind})"


def _require_no_infinity(column: Column, label: Label) -> None:
    rows = np.flatnonzero(np.isinf(column.values))
    if len(rows):
        raise ValueError(
            f"Input X contains infinity: column {label!r} has {len(rows)} such value(s), the first "
            f"in row {rows[0]}. Correct them, or leave them missing."
        )
