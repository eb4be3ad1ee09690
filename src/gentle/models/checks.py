"""What users pass to a model, checked: errors say what was given, what was expected, what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from gentle.columns import Columns, Label

Floats = NDArray[np.float64]
Names = NDArray[Any] | None

_FARTHEST = 1e15  # standard deviations from the training mean; beyond, networks overflow


def require(model: Any, names: str, holds: Callable[[Any], bool], expected: str) -> None:
    """Raise a ValueError unless something holds for these constructor arguments of a model.

    Args:
        model: The model.
        names: Names of the arguments, separated by spaces.
        holds: What must be true of each; an exception counts as false.
        expected: The same in words, after "must be".
    """
    for name in names.split():
        value = getattr(model, name)
        try:
            fine = bool(holds(value))
        except (TypeError, ValueError, RuntimeError):
            fine = False
        if not fine:
            raise ValueError(f"{name} must be {expected}, got {value!r}")


def is_count(value: Any, least: int = 1) -> bool:
    """Whether this is an integer of at least that size."""
    return isinstance(value, Integral) and int(value) >= least


def covariates(X: Any, model: str) -> Columns:
    """Covariates as a table that has rows and columns."""
    shape = np.broadcast_to(0.0, X.shape) if isinstance(X, pd.DataFrame) else X
    any_: Any = None
    array = check_array(shape, dtype=any_, ensure_all_finite=False, input_name="X", estimator=model)
    return Columns.of(X if isinstance(X, pd.DataFrame) else array)


def same_columns(table: Columns, n_expected: int, expected: Names, model: str) -> None:
    """Raise a ValueError unless the columns are those seen in ``fit``, in the same order."""
    names, n_columns = table.names, len(table.columns)
    if n_columns != n_expected:
        listed = "" if expected is None else f" ({_listed(expected)})"
        raise ValueError(
            f"X has {n_columns} features, but {model} is expecting {n_expected} features as "
            f"input{listed}. Pass the covariates used in fit(), in the same order."
        )
    if expected is None or names is None or list(names) == list(expected):
        return
    missing, unseen = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
    if missing or unseen:
        detail = f"missing: {missing or 'none'}, not seen in fit(): {unseen or 'none'}."
    else:
        detail = f"the columns are the same, but their order must be {_listed(expected)}."
    raise ValueError(
        "The feature names should match those that were passed during fit. "
        f"{model}: {detail} Select the columns with X[list(model.feature_names_in_)]."
    )


def responses(
    y: ArrayLike, sample_weight: ArrayLike | None, n_rows: int, model: str
) -> tuple[Floats, Floats]:
    """Responses and weights as finite floats, both ``(n,)``."""
    if y is None:
        raise ValueError(f"{model} requires y to be passed, but the target y is None.")
    if isinstance(y, pd.Series) and pd.api.types.is_numeric_dtype(y.dtype):
        y = y.to_numpy(np.float64, na_value=np.nan)  # nullable numbers too
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] > 1:
        raise ValueError(
            f"y has {values.shape[1]} columns, but {model} models one response. "
            "Fit one model per response; joint responses are not supported yet."
        )
    values = column_or_1d(values, warn=True)
    try:
        if values.dtype.kind in "mM":
            raise TypeError
        values = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y must hold numbers, but its first value is {str(values[0])!r}"
        ) from None
    if not np.isfinite(values).all():
        row = int(np.argmax(~np.isfinite(values)))
        raise ValueError(
            f"Input y contains NaN or infinity: the first in row {row} ({values[row]}). "
            "Drop such rows before fitting."
        )
    check_consistent_length(np.empty(n_rows), values)
    if sample_weight is None:
        return values, np.ones(n_rows)
    weight = np.asarray(sample_weight, np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but one weight per row needs ({n_rows},)"
        )
    if not np.isfinite(weight).all():
        raise ValueError("sample_weight contains NaN or infinity")
    if np.any(weight < 0):
        row = int(np.argmax(weight < 0))
        raise ValueError(
            f"sample_weight must not be negative, but row {row} has weight {weight[row]}"
        )
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero for every row; at least one must be positive")
    return values, weight


def within_reach(x: Floats, owners: Sequence[Label]) -> None:
    """Raise a ValueError for covariates absurdly far from the training data.

    Args:
        x: Covariates in training standard deviations from the training mean, ``(n, d)``.
        owners: The user's column behind each of them.
    """
    far = ~(np.abs(x) < _FARTHEST)
    if far.any():
        row, column = np.argwhere(far)[0]
        raise ValueError(
            f"row {row} of X lies {abs(x[row, column]):.0e} standard deviations from the training "
            f"data in column {owners[column]!r}; check its unit"
        )


def enough_rows(n_rows: int, model: str) -> None:
    """Raise a ValueError for a table from which no distribution can be learned."""
    if n_rows < 2:
        raise ValueError(
            f"{model} needs at least 2 rows that differ to learn a distribution, got n_samples = "
            f"{n_rows} (rows of weight 0 left out, equal rows counted once)"
        )


def varying_response(y: Floats, model: str) -> None:
    """Raise a ValueError for a constant response."""
    if y.min() == y.max():
        raise ValueError(
            f"y is constant (every response is {y[0]:g}), so {model} has no distribution to "
            "learn; check that the right column is the target"
        )


def warn_of_uninformative_columns(constant: Sequence[Label], rare: Sequence[Label]) -> None:
    """Say which columns carry no information: constant ones, categories of rare levels only."""
    for columns, what in ((constant, "constant"), (rare, "all values rare:")):
        if columns:
            more = "" if len(columns) <= 5 else f" and {len(columns) - 5} more"
            shown = f"{what} column(s) {list(columns[:5])}{more}"
            warnings.warn(
                f"{shown} carry no information and do not affect the model",
                UserWarning,
                stacklevel=3,
            )


def _listed(names: NDArray[Any]) -> str:
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:4], "…", *shown[-2:]])
