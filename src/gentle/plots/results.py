"""Pictures of tables that other parts of the library compute: comparisons, importance, effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gentle.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {"crps": "CRPS", "wd": "Wasserstein distance", "ks": "Kolmogorov-Smirnov distance"}
_NAMES |= {"mse": "mean squared error", "r2": "R²", "interval_score": "interval score"}
_MARKERS = ["v", "o", "^", "s", "D"]
# Of a kind of importance and a metric.
_MEANING: dict[Any, str] = {
    ("permutation", "crps"): "rise of the CRPS when permuted:\n{}",
    ("permutation", "wasserstein"): "Wasserstein distance when permuted:\n{}",
    ("shapley", "crps"): "share of the fall of the CRPS (Shapley):\n{}",
    ("shapley", "wasserstein"): "share of the Wasserstein distance\nto the average (Shapley): {}",
}


def comparison(
    table: Any, metric: str = "crps", *, label: str | None = None, axis: Axes | None = None
) -> Axes:
    """Methods side by side, the best on top.

    Args:
        table: What `gentle.comparison.compare` returns, or a table of scores with a row per method:
            its name in the column ``model`` or the index, scores in the other columns; or the
            `gentle.metrics.Scores` of methods by name. A column ``crps_se`` holds standard errors
            of ``crps``, a column ``crps_floor`` what a perfect model would score. Methods without a
            score, which failed, are left out.
        metric: The column to draw. Bars are two standard errors either way: of a comparison's CRPS
            those of the difference to the best, so that a method whose bar reaches the best one's
            line is not told apart from it.
        label: What the response measures and in which unit.
        axis: Where to draw.

    Example:
        >>> scores = pd.DataFrame({"crps": [2.0, 1.0]}, index=["Marginal", "GENTLE"])
        >>> [text.get_text() for text in comparison(scores).get_yticklabels()]
        ['GENTLE', 'Marginal']
    """
    found = _scores(table)
    if metric not in found:
        raise ValueError(f"the table has no column {metric!r}; it has {list(found.columns)}")
    kept = found[found[metric].notna()]
    kept = kept.sort_values(metric, ascending=metric not in ("r2", "skill"), kind="stable")
    axis = canvas.new_axes(axis, height=1.1 + 0.2 * len(kept))
    paired = metric == "crps" and "difference_se" in kept
    error = kept.get("difference_se" if paired else f"{metric}_se")
    places = np.arange(len(kept))
    for k, (name, value) in enumerate(kept[metric].items()):
        colour = canvas.style(str(name))["color"]
        bar = None if error is None else 2 * error.iloc[k]
        axis.errorbar(value, k, xerr=bar, fmt="o", color=colour, markersize=4, capsize=2)
    axis.set_yticks(places, [str(name) for name in kept.index])
    axis.set_ylim(len(kept) - 0.5, -0.5)
    axis.axvline(kept[metric].iloc[0], color=canvas.HELD_OUT, linewidth=0.8, zorder=0)
    floor = kept.get(f"{metric}_floor")
    if floor is not None and floor.notna().any():
        axis.axvline(floor.iloc[0], color="black", linestyle=":", linewidth=1, label="noise floor")
        canvas.legend_above(axis)
    text = _NAMES.get(metric, canvas.label_of(metric)) + (f": {label}" if label else "")
    if error is not None:
        text += "\nbars: two standard errors" + paired * "\nof the difference to the best"
    axis.set_xlabel(text)
    axis.locator_params(axis="x", nbins=6)
    axis.grid(axis="x", linewidth=0.4, alpha=0.5)
    return axis


def _scores(table: Any) -> Any:
    """A table of scores, indexed by method."""
    if isinstance(table, Mapping):
        return pd.DataFrame({name: scores.summary() for name, scores in table.items()}).T
    found = table.table() if hasattr(table, "table") else table
    if not isinstance(found, pd.DataFrame):
        raise ValueError(
            f"a comparison or a table of scores is expected, got {type(table).__name__}"
        )
    return found.set_index("model") if "model" in found else found


def importance(
    table: pd.DataFrame,
    *,
    n_columns: int = 15,
    label: str | None = None,
    axis: Axes | None = None,
) -> Axes:
    """Which covariates move the distribution, and which part of it.

    Bars are the whole effect with two standard errors either way, markers what the parts of the
    distribution contribute to it.

    Args:
        table: What `gentle.importance.permutation` or `gentle.importance.shapley` returns.
        n_columns: Largest number of covariates, the most important ones.
        label: What the response measures and in which unit; by default what the table says.
        axis: Where to draw.

    Example:
        >>> found = {"mean": [0.1, 0.7], "se": [0.1, 0.1]}
        >>> table = pd.DataFrame(found, index=["age", "income_usd"])
        >>> [text.get_text() for text in importance(table).get_yticklabels()]
        ['income ($)', 'age']
    """
    facts = table.attrs
    shown = table.sort_values("mean", ascending=False, kind="stable").head(n_columns)
    axis = canvas.new_axes(axis, height=1.2 + 0.22 * len(shown))
    places = np.arange(len(shown))
    bars: Any = {"color": canvas.COLOURS[5], "height": 0.7, "alpha": 0.5}
    axis.barh(places, shown["mean"], xerr=2 * shown["se"], error_kw={"lw": 1}, **bars)
    parts = [part for part in facts.get("parts", []) if part in shown]
    offsets = np.linspace(-0.22, 0.22, len(parts)) if len(parts) > 1 else np.zeros(len(parts))
    for k, part in enumerate(parts):
        look = {"color": canvas.COLOURS[[0, 2, 1, 3, 6][k % 5]], "markersize": 3.5}
        look |= {"marker": _MARKERS[k % len(_MARKERS)], "linestyle": ""}
        axis.plot(shown[part], places + offsets[k], label=f"levels {part}", **look)
    axis.set_yticks(places, [canvas.label_of(name) for name in shown.index])
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.axvline(0, color="black", linewidth=0.8)
    response = label or canvas.label_of(facts.get("response") or "response")
    axis.set_xlabel(
        _MEANING.get((facts.get("kind"), facts.get("metric")), "importance: {}").format(response)
    )
    axis.locator_params(axis="x", nbins=6)
    if parts:
        canvas.legend_above(axis)
    return axis


def local_effects(
    table: pd.DataFrame, *, label: str | None = None, axis: Axes | None = None
) -> Axes:
    """Accumulated local effects of a covariate on quantiles, with two standard errors either way.

    Lines that run in parallel shift the distribution; lines that spread apart widen it. Ticks at
    the bottom are the ends of the bins, which hold about equally many rows.

    Args:
        table: What `gentle.importance.local_effects` returns.
        label: What the response measures and in which unit; by default what the table says.
        axis: Where to draw.

    Example:
        >>> at = pd.MultiIndex.from_product([[20.0, 30.0], [0.1, 0.9]], names=["value", "level"])
        >>> table = pd.DataFrame({"effect": [-1.0, -2.0, 1.0, 2.0], "se": 0.1}, index=at)
        >>> local_effects(table).get_legend_handles_labels()[1]
        ['90%', '10%']
    """
    axis = canvas.new_axes(axis)
    facts = table.attrs
    effects, errors = (table[name].unstack("level", sort=False) for name in ("effect", "se"))
    cells, levels = effects.index, np.asarray(effects.columns, np.float64)
    steps = facts.get("kind") in ("category", "ordered", "boolean")
    places: Any = np.arange(len(cells)) if steps else canvas.as_places(cells)
    # Levels as far from the middle have the same dashes, lower and higher ones another colour.
    distance = np.unique(np.abs(levels - 0.5).round(9), return_inverse=True)[1]
    for k in np.argsort(-levels):
        side = int(np.sign(np.round(levels[k] - 0.5, 9)))
        colour = {-1: canvas.COLOURS[0], 0: "black", 1: canvas.COLOURS[1]}[side]
        look: Any = {"color": colour, "label": f"{levels[k]:.0%}", "linewidth": 1.2}
        effect, error = effects.iloc[:, k], 2 * errors.iloc[:, k]
        if steps:
            shift = 0.12 * (k - (len(levels) - 1) / 2)
            marker = _MARKERS[k % len(_MARKERS)]
            axis.errorbar(places + shift, effect, error, fmt=marker, markersize=3, **look)
        else:
            look["linestyle"] = canvas.DASHES[distance[k] % len(canvas.DASHES)]
            axis.plot(places, effect, **look)
            axis.fill_between(places, effect - error, effect + error, color=colour, alpha=0.1, lw=0)
    axis.axhline(0, color=canvas.HELD_OUT, linewidth=0.8, zorder=0)
    if steps:
        canvas.name_ticks(axis, [str(cell) for cell in cells])
    else:
        axis.plot(
            places,
            np.zeros(len(places)),
            "|",
            color="black",
            ms=4,
            transform=axis.get_xaxis_transform(),
            clip_on=False,
        )
        if facts.get("kind") == "date":
            axis.tick_params(axis="x", rotation=30)
        else:
            axis.locator_params(axis="x", nbins=6)
    unit = (facts.get("kind") == "duration") * " (seconds)"
    axis.set_xlabel(canvas.label_of(facts.get("column", cells.name)) + unit)
    axis.set_ylabel(
        "effect on quantiles of\n" + (label or canvas.label_of(facts.get("response") or "response"))
    )
    canvas.legend_above(axis)
    return axis
