"""Tables with other covariates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from gentle import diagnostics
from gentle.columns import Columns, as_pandas
from gentle.support import OutOfSupportWarning

Change = Callable[[Any], Any] | Mapping[Any, Any]

_NOTABLE = 0.01  # share of rows that a policy makes unlike the data


def column_of(X: Any, label: Any) -> Any:
    """A column of a table."""
    there = label in X if isinstance(X, pd.DataFrame) else label in range(np.shape(X)[1])
    if not there:
        raise ValueError(f"X has no column {label!r}; its columns are {list(Columns.of(X).labels)}")
    return X[label] if isinstance(X, pd.DataFrame) else np.asarray(X)[:, label]


def without(X: Any, label: Any) -> Any:
    """The table without a column."""
    return X.drop(columns=label) if isinstance(X, pd.DataFrame) else np.delete(X, label, axis=1)


def with_value(X: Any, label: Any, value: Any) -> Any:
    """A copy of the table in which a column has other values, one or ``(n,)``, of its old kind."""
    old = column_of(X, label)
    if not isinstance(X, pd.DataFrame):
        copy = np.array(X, np.result_type(np.asarray(X), np.asarray(value)))
        copy[:, label] = value
        return copy
    new: Any = pd.Series(np.asarray(value) if np.ndim(value) else value, X.index)
    if isinstance(old.dtype, pd.CategoricalDtype):
        if not (new.isin(old.cat.categories) | new.isna()).all():
            raise ValueError(
                f"column {label!r} has the levels {list(old.cat.categories)}, not {value!r}"
            )
        new = new.astype(old.dtype)
    copy = X.copy()
    copy[label] = new
    return copy


def changed_by(X: Any, change: Change) -> Any:
    """The table under a policy, which must keep rows and columns."""
    if not isinstance(change, Mapping):
        changed = as_pandas(change(X.copy() if hasattr(X, "copy") else X))
        if np.shape(changed) != np.shape(X) or Columns.of(changed).labels != Columns.of(X).labels:
            raise ValueError(
                f"the policy must return a table with the rows and columns of X, {np.shape(X)}, "
                f"but gave {np.shape(changed)}"
            )
        return changed
    for label, value in change.items():
        X = with_value(X, label, value(column_of(X, label)) if callable(value) else value)
    return X


def n_different(X: Any, changed: Any) -> int:
    """Rows that are not as before."""
    old, new = Columns.of(X).keys(), Columns.of(changed).keys()
    return int((~((old == new) | (np.isnan(old) & np.isnan(new))).all(axis=1)).sum())


def caution_of(model: Any, before: Any, after: Any, X: Any) -> str:
    """How many rows a policy makes unlike the data, in words, with a warning if there are any."""
    share = [float(diagnostics.support(model, rows, X)["far"].mean()) for rows in (before, after)]
    if share[1] - share[0] <= _NOTABLE:
        return ""
    words = (
        f"{share[1]:.0%} of the rows under the policy are unlike any in the data; what the model "
        "says about them is a guess."
    )
    warnings.warn(words, OutOfSupportWarning, stacklevel=3)
    return words
