"""Subgroups of rows: the levels of a category, the quarters of a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Column, Columns
from gentle.report.figures import cut, named, rounded, value

By = str | int | Sequence[str | int] | Mapping[str, ArrayLike] | None

_MAX_GROUPS = 8  # a column of more levels has its rare ones together, one of numbers has quarters
_MAX_COLUMNS = 20  # to look at unasked


def partitions(table: Columns, by: By, at: NDArray[np.int64], n_given: int) -> dict[str, pd.Series]:
    """Subgroups by columns.

    Args:
        table: The covariates.
        by: Names of columns, or labels of all rows by name; None takes the first 20 columns that
            have subgroups.
        at: Which of all rows these are, ``(n,)``.
        n_given: Number of all rows.

    Returns:
        For each column the subgroups of all rows, as categories in a good order.

    Example:
        >>> table = Columns.of(pd.DataFrame({"age": np.arange(40.0), "sex": ["f", "m"] * 20}))
        >>> found = partitions(table, None, np.arange(40), 40)
        >>> [list(groups.cat.categories) for groups in found.values()]
        [['0 to 9', '10 to 19', '20 to 29', '30 to 39'], ['f', 'm']]
    """
    own = dict(zip(table.labels, table.columns))
    if by is None:
        found = {named(label): partition(column) for label, column in own.items()}
        several = {name: groups for name, groups in found.items() if len(groups.cat.categories) > 1}
        return dict(list(several.items())[:_MAX_COLUMNS])
    if isinstance(by, Mapping):
        return {named(name): partition(_labels(name, by[name], at, n_given)) for name in by}
    for name in (chosen := [by] if isinstance(by, (str, int)) else by):
        if name not in own:
            raise ValueError(f"by={name!r} is no column of X; its columns are {list(own)}")
    return {named(name): partition(own[name]) for name in chosen}


def partition(column: Column) -> pd.Series:
    """The subgroup of each row, what is missing being one."""
    there = ~np.isnan(column.values)
    distinct, code = np.unique(column.values[there], return_inverse=True)
    if column.levels:
        names, code = _levels(column, distinct, code.ravel())
    elif len(distinct) <= _MAX_GROUPS:
        names = [value(float(one), column.kind) for one in distinct]
    else:
        names, code = _quarters(column.values[there], column)
    names = _different([*names, *(["missing"] if not there.all() else [])])
    codes = np.full(len(there), len(names) - 1)
    codes[there] = code.ravel()
    return pd.Series(pd.Categorical.from_codes(codes, names))


def _levels(
    column: Column, distinct: NDArray[Any], code: NDArray[Any]
) -> tuple[list[str], NDArray[Any]]:
    """The most frequent levels; those of an order as they come."""
    count = np.bincount(code, minlength=len(distinct))
    rank = np.arange(len(distinct))
    if column.kind == "category" or len(distinct) > _MAX_GROUPS:
        rank[np.argsort(-count, kind="stable")] = np.arange(len(distinct))
    names = [column.levels[int(distinct[i])] for i in np.argsort(rank)]
    if len(names) > _MAX_GROUPS:
        names = [*names[: _MAX_GROUPS - 1], f"{len(names) - _MAX_GROUPS + 1} other levels"]
    return [cut(name) for name in names], rank[code].clip(max=len(names) - 1)


def _quarters(values: NDArray[np.float64], column: Column) -> tuple[list[str], NDArray[Any]]:
    quarter: Any = pd.qcut(values, 4, labels=False, duplicates="drop")
    _, code = np.unique(quarter, return_inverse=True)  # one of them may be empty
    ends = [(part.min(), part.max()) for part in (values[code == q] for q in range(code.max() + 1))]
    digits = 4 if column.kind == "number" else 17
    names = [[value(rounded(float(end), digits), column.kind) for end in pair] for pair in ends]
    return [" to ".join(dict.fromkeys(pair)) for pair in names], code


def _different(names: Sequence[str]) -> list[str]:
    """Names of which none comes twice."""
    found: dict[str, None] = {}
    for name in names:
        new, n = name, 1
        while new in found:
            n += 1
            new = f"{name} ({n})"
        found[new] = None
    return list(found)


def _labels(name: str, given: Any, at: NDArray[np.int64], n_given: int) -> Column:
    labels: Any = pd.Series(getattr(given, "array", given))
    if len(labels) != n_given:
        raise ValueError(f"by has {len(labels)} labels of {name!r}, but there are {n_given} rows")
    return Columns.of(labels.iloc[at].to_frame(name)).columns[0]
