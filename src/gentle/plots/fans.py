"""Quantiles along one covariate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Column, Columns, as_pandas
from gentle.distribution import ConditionalDistribution
from gentle.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_MAX_STEPS = 6  # numbers of no more values than this are levels
_MAX_LEVELS = 12  # of a category that one picture can hold
_EDGES = (0.01, 0.99)  # of a number's values, between which a fan is drawn
_EPOCH = pd.Timestamp("1970-01-01")


def fan(
    model: Any,
    X: Any,
    column: str | int,
    y: ArrayLike | None = None,
    *,
    coverages: ArrayLike = (0.5, 0.8, 0.9),
    n_points: int = 100,
    label: str | None = None,
    axis: Axes | None = None,
) -> Axes:
    """Median and central intervals along one covariate, all others held fixed.

    The others are those of the only row of X, or those of a typical one: medians of numbers, dates
    and orders, the most frequent of other categories. The covariate goes from the 1 % to the 99 %
    quantile of its values in X, or over the range of the training data if X is one row. Of a
    category, or a number with at most six values, every level has its intervals.

    Args:
        model: A fitted model; or the `ConditionalDistribution` of the rows of X, which are then
            drawn as they are, averaged (as quantile functions) where the covariate is the same.
        X: Covariates, ``(n, d)``.
        column: Name of the covariate, or its position in an array.
        y: Responses of the rows of X, ``(n,)``, to show as points.
        coverages: Of the intervals.
        n_points: Points along a number.
        label: What y measures and in which unit; by default the model's name for it.
        axis: Where to draw.

    Example:
        >>> from gentle import KNN
        >>> X = pd.DataFrame({"age_years": np.arange(20.0, 60.0)})
        >>> model = KNN(n_neighbors=5).fit(X, X["age_years"].rename("income [$]") * 100)
        >>> axis = fan(model, X, "age_years")
        >>> axis.get_xlabel(), axis.get_ylabel()
        ('age (years)', 'income ($)')
    """
    axis = canvas.new_axes(axis)
    table: Any = as_pandas(X)
    table = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    if column not in table:
        raise ValueError(f"X has no column {column!r}; its columns are {list(table.columns)}")
    nominal = np.sort(np.asarray(coverages, np.float64).ravel())[::-1]  # the widest first
    levels = np.concatenate([(1 - nominal) / 2, [0.5], ((1 + nominal) / 2)[::-1]])
    if isinstance(model, ConditionalDistribution):
        cells, quantiles = _averaged(model, table, column, levels)
        discrete = len(cells) <= _MAX_STEPS
    else:
        cells, discrete = _grid(model, table, column, n_points)
        rows = _typical(table).iloc[np.zeros(len(cells), int)].reset_index(drop=True)
        rows[column] = cells.array
        quantiles = model.predict_dist(rows).quantile(levels)  # (m, 2k + 1)
    shown = Columns.of(pd.DataFrame({"x": cells})).columns[0]
    steps = discrete or shown.kind in ("category", "ordered", "boolean")
    places: Any = np.arange(len(cells)) if steps else canvas.as_places(cells)
    if y is not None and len(table) > 1:
        _points(axis, table[column], y, cells if steps else None)
    if steps:
        _intervals(axis, places, quantiles, nominal)
        canvas.name_ticks(axis, [_text(cell, shown) for cell in cells])
    else:
        _bands(axis, places, quantiles, nominal)
        axis.set_xlim(places[0], places[-1])
        if shown.kind == "date":
            axis.tick_params(axis="x", rotation=30)
        else:
            axis.locator_params(axis="x", nbins=6)
    axis.set_xlabel(canvas.label_of(column) + (shown.kind == "duration") * " (seconds)")
    axis.set_ylabel(canvas.response_label(model, y, label))
    canvas.legend_above(axis)
    return axis


def _bands(axis: Axes, x: Any, quantiles: Floats, nominal: Floats) -> None:
    for k, coverage in enumerate(nominal):
        look: Any = {"color": _shade(k, nominal), "linewidth": 0, "label": f"{coverage:.0%}"}
        axis.fill_between(x, quantiles[:, k], quantiles[:, -1 - k], **look)
    axis.plot(x, quantiles[:, len(nominal)], color="black", linewidth=1.3, label="median")


def _intervals(axis: Axes, x: Any, quantiles: Floats, nominal: Floats) -> None:
    for k, coverage in enumerate(nominal):  # narrower intervals are thicker
        look: Any = {"color": _shade(k, nominal), "linewidth": 2 + 4 * k}
        axis.vlines(x, quantiles[:, k], quantiles[:, -1 - k], label=f"{coverage:.0%}", **look)
    middle = quantiles[:, len(nominal)]
    axis.plot(x, middle, "_", color="black", markersize=11, markeredgewidth=1.5, label="median")


def _shade(k: int, nominal: Floats) -> Any:
    """The k-th widest interval's, the narrowest the darkest."""
    return canvas.tint(canvas.COLOURS[0], 0.2 + 0.5 * k / max(1, len(nominal) - 1))


def _points(axis: Axes, column: Any, y: ArrayLike, levels: Any) -> None:
    x = canvas.as_places(column)
    if levels is not None:
        place = {value: k for k, value in enumerate(levels)}
        x = np.array([place.get(value, np.nan) for value in column], np.float64) + 0.25
    options: Any = {"color": canvas.DARKER, "alpha": 0.5, "linewidths": 0, "zorder": 1.5}
    axis.scatter(x, np.asarray(y, np.float64).ravel(), s=5, label="data", **options)


def _averaged(
    dist: ConditionalDistribution, table: pd.DataFrame, column: Any, levels: Floats
) -> tuple[Any, Floats]:
    if len(dist) != len(table):
        raise ValueError(f"the distribution has {len(dist)} rows, but X has {len(table)}")
    by = table[column].reset_index(drop=True)
    means: Any = pd.DataFrame(dist.quantile(levels)).groupby(by, observed=True).mean()
    return pd.Series(means.index), means.to_numpy()


def _grid(model: Any, table: pd.DataFrame, column: Any, n_points: int) -> tuple[Any, bool]:
    """The cells along which to go, as a Series, and whether they are all that there are."""
    found = Columns.of(table[[column]]).columns[0]
    known = found.values[~np.isnan(found.values)]
    if len(table) == 1 or not len(known):
        fact = model.covariate_encoder_.covariates[list(table.columns).index(column)]
        if fact.kind in ("category", "ordered"):
            often = fact.levels[:_MAX_LEVELS]
            return pd.Series(
                sorted(often) if fact.kind == "category" else often, dtype=object
            ), True
        low, high, found = fact.low, fact.high, fact
    else:
        present: Any = table[column].dropna()
        if found.kind == "ordered":
            return present.drop_duplicates().sort_values(), True
        if found.kind == "category":
            often = present.astype(object).value_counts().index[:_MAX_LEVELS]
            return pd.Series(sorted(often, key=str), dtype=object), True
        distinct = np.unique(known)
        if found.kind == "number" and len(distinct) <= _MAX_STEPS:
            return pd.Series(distinct), True
        low, high = np.quantile(known, _EDGES)
    if found.kind == "boolean":
        return pd.Series([False, True]), True
    return _cells(np.linspace(low, high, n_points), found), False


def _cells(values: Floats, kind: Any) -> Any:
    """Numbers as cells of a column of that kind."""
    if kind.kind == "date":
        return pd.Series(_EPOCH + pd.to_timedelta(values, "D"))
    if kind.kind == "duration":
        return pd.Series(pd.to_timedelta(values, "s"))
    return pd.Series(values)


def _typical(table: pd.DataFrame) -> pd.DataFrame:
    """One row of lower medians and most frequent levels, all of them cells of the table."""
    cells = {}
    for label, column in zip(table.columns, Columns.of(table).columns):
        order = np.argsort(column.values, kind="stable")  # missing ones last
        present = column.values[order[: np.sum(~np.isnan(column.values))]]
        if not len(present):
            row = 0
        elif column.kind == "category":
            row = int(np.argmax(column.values == np.bincount(present.astype(np.int64)).argmax()))
        else:
            row = int(order[(len(present) - 1) // 2])
        cells[label] = table[label].iloc[[row]].reset_index(drop=True)
    return pd.DataFrame(cells)


def _text(cell: Any, column: Column) -> str:
    return f"{cell:g}" if column.kind == "number" else str(cell)
