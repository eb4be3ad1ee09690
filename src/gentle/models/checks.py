"""What users pass to a model, checked: errors say what was given, what was expected, what to do."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api import types
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from gentle.columns import Columns, Label, as_pandas
from gentle.data import Grouped

Floats = NDArray[np.float64]
Names = NDArray[Any] | None

_MAX_LAYERS = 100
_MAX_CELLS = 2**27  # outputs of a layer, half a gigabyte
_LARGEST_RESPONSE = 1e150
_FAR_OFF = 2.0  # standard deviations of the responses; who ignores x misses by less than 1.5
_N_REVIEWED = 32  # covariates
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
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def are_widths(values: Any) -> bool:
    """Whether these can be the units of hidden layers."""
    return 0 < len(values) <= _MAX_LAYERS and all(is_count(width) for width in values)


def fit_into_memory(n_points: int, widths: Sequence[int]) -> bool:
    """Whether a network can be evaluated at that many points of a row at once."""
    return n_points * max(widths) <= _MAX_CELLS


def covariates(X: Any, model: str) -> Columns:
    """Covariates as a table that has rows and columns."""
    X = as_pandas(X)
    shape = np.broadcast_to(0.0, X.shape) if isinstance(X, pd.DataFrame) else X
    any_: Any = None
    try:
        array = check_array(
            shape, dtype=any_, ensure_all_finite=False, input_name="X", estimator=model
        )
    except ValueError as error:
        if "inhomogeneous" not in str(error):  # numpy's word for rows that differ in length
            raise
        raise ValueError(
            "X must be a table, but its rows differ in length, or a cell holds a list"
        ) from None
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
    found = _numbers(y, "y")
    if found.ndim == 2 and found.shape[1] > 1:
        raise ValueError(
            f"y has {found.shape[1]} columns, but {model} models one response. "
            "Fit one model per response; joint responses are not supported yet."
        )
    values = column_or_1d(found, warn=True)
    if not np.isfinite(values).all():
        row = int(np.argmax(~np.isfinite(values)))
        raise ValueError(
            f"Input y contains NaN or infinity: the first in row {row} ({values[row]}). "
            "Drop such rows before fitting."
        )
    if len(values) and np.abs(values).max() > _LARGEST_RESPONSE:
        raise ValueError(
            f"y reaches {np.abs(values).max():.0e}, but its squares must be numbers too, so that "
            f"{_LARGEST_RESPONSE:.0e} is the limit; rescale it"
        )
    check_consistent_length(np.empty(n_rows), values)
    if sample_weight is None:
        return values, np.ones(n_rows)
    weight = _numbers(sample_weight, "sample_weight")
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


def warn_if_far_off(model: Any, train: Grouped) -> None:
    """Warn if a model, just fitted, does not know even what it was trained on (in its units)."""
    part = train.take(np.arange(0, len(train), max(1, len(train) // _N_REVIEWED)))
    missed = np.median(model._conditional(part.x).crps(part.y[part.start[:-1]]))
    missed *= float(model.response_encoder_.scale)
    deviation = float(model.marginal_.std()[0])
    if deviation > 0 and not missed <= _FAR_OFF * deviation:
        warnings.warn(
            f"{type(model).__name__} has not learned: even for the rows that it was trained on, "
            f"its answers are typically {missed / deviation:.3g} standard deviations off. "
            "Lower the learning rates, or train longer.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _numbers(given: Any, name: str) -> Floats:
    """What a user passed as floats, in its shape; NaN where a value is missing."""
    given = as_pandas(given)
    try:
        if isinstance(given, (pd.Series, pd.DataFrame)):
            kinds = given.dtypes if isinstance(given, pd.DataFrame) else [given.dtype]
            plain = all(types.is_numeric_dtype(k) and not types.is_complex_dtype(k) for k in kinds)
            given = given.to_numpy(np.float64 if plain else object, na_value=np.nan)
        values = np.asarray(given)
        if values.dtype.kind in "cmM":  # would lose a part, or become nanoseconds
            raise TypeError
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, ArithmeticError):
        shown = reprlib.repr(given.tolist() if isinstance(given, np.ndarray) else given)
        raise ValueError(f"{name} must hold numbers, one per row, but is {shown}") from None


def _listed(names: NDArray[Any]) -> str:
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:4], "…", *shown[-2:]])
