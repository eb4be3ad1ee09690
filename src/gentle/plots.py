"""Pictures of data sets, fitted models and their distributions; every function returns its Axes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle import diagnostics
from gentle.columns import Columns, taken
from gentle.covariates import lipschitz_pairs
from gentle.data import Grouped, responses_per_covariate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The Okabe-Ito palette without its yellow, which white paper swallows: people with any colour
# vision can tell these apart.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
_HELD_OUT = "#999999"


def densities(
    models: Mapping[str, Any],
    X: Any,
    y: ArrayLike,
    *,
    unit: str = "",
    n_panels: int = 6,
    n_samples: int = 10_000,
    random_state: int = 0,
) -> NDArray[Any]:
    """Conditional densities of models beside the held-out responses, a panel per covariate.

    Lines are kernel density estimates of ``n_samples`` draws, bars the held-out responses. The
    covariates with most responses are shown, in order of their mean response. Lines much higher
    than all bars are cut off.

    Args:
        models: Fitted models by the name under which they appear.
        X: Held-out covariates, ``(N, d)``.
        y: Held-out responses, ``(N,)``.
        unit: What y measures and in which unit, for the axis.
        n_panels: Number of covariates to show.
        n_samples: Draws per model and covariate.
        random_state: Seed of the draws.

    Returns:
        The Axes, ``(rows, columns)``.
    """
    from scipy.stats import gaussian_kde

    plt = _pyplot()
    chosen, table = often_seen(X, y, n_panels)
    draws = {name: m.sample(chosen, n_samples, random_state) for name, m in models.items()}
    n_columns = min(3, len(table))
    n_rows = -(-len(table) // n_columns)
    size = (4.0 * n_columns, 2.7 * n_rows + 0.7)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=size, squeeze=False, layout="constrained"
    )
    for i, axis in enumerate(axes.flat[: len(table)]):
        responses = table.y[table.start[i] : table.start[i + 1]]
        low, high = _middle(responses, *(values[i] for values in draws.values()))
        grid = np.linspace(low, high, 400)
        bars = axis.hist(
            responses, bins=30, range=(low, high), density=True, color=_HELD_OUT, alpha=0.5
        )[0]
        axis.hist([], color=_HELD_OUT, alpha=0.5, label="held-out responses")
        tallest = bars.max()
        for name, values in draws.items():
            if values[i].std() > 0:
                density = gaussian_kde(values[i])(grid)
                axis.plot(grid, density, label=name, **style(name))
                tallest = max(tallest, density.max())
            else:  # a point mass has no density
                axis.axvline(values[i][0], label=name, **style(name))
        axis.set_xlim(low, high)
        # A spike must not flatten everything else.
        axis.set_ylim(0, 1.05 * min(tallest, 2 * bars.max()))
        axis.set_title(f"covariate {i + 1}: {len(responses):,} responses", fontsize=10)
        axis.set_yticks([])
        axis.locator_params(axis="x", nbins=5)
        axis.spines[["top", "right", "left"]].set_visible(False)
    for axis in axes.flat[len(table) :]:
        axis.set_visible(False)
    figure.supxlabel(unit or "response")
    figure.supylabel("density")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return axes


def history(model: Any, axis: Axes | None = None) -> Axes:
    """Training loss and validation criterion of a fitted neural model, epoch by epoch."""
    axis = _axes(axis)
    table = pd.DataFrame(model.history_)
    style = {"marker": ".", "markersize": 3}
    axis.plot(table["epoch"], table["loss"], color=_COLOURS[0], **style)
    axis.set_xlabel("epoch")
    axis.set_ylabel("training loss", color=_COLOURS[0])
    if "validation" in table:
        right = axis.twinx()
        right.plot(table["epoch"], table["validation"], color=_COLOURS[1], **style)
        best = table.loc[table["validation"].idxmin()]
        right.plot(best["epoch"], best["validation"], "o", color=_COLOURS[1], label="best epoch")
        criterion = getattr(model, "criterion", "criterion").upper()
        label = f"validation {criterion} (standard deviations of y)"
        if not getattr(model, "is_game", True):  # many networks, each with its own best epoch
            label = "loss on unseen rows, mean over networks"
        right.set_ylabel(label, color=_COLOURS[1])
        right.legend(frameon=False)
    return axis


def responses_histogram(X: Any, axis: Axes | None = None) -> Axes:
    """How many covariates were seen how often (the paper's Figure 1)."""
    axis = _axes(axis)
    counts = responses_per_covariate(X)
    bins = np.arange(0.5, counts.max() + 1.5)
    axis.hist(counts, bins=list(bins), color=_COLOURS[0])
    axis.set_yscale("log")
    axis.set(xlabel="responses of a covariate", ylabel="number of covariates")
    return axis


def lipschitz(
    X: Any, y: ArrayLike, *, unit: str = "", min_responses: int = 18, axis: Axes | None = None
) -> Axes:
    """Distance of covariates against distance of their responses (the paper's Figure 2)."""
    axis = _axes(axis)
    pairs = lipschitz_pairs(X, y, min_responses)
    axis.scatter(pairs["distance"], pairs["w2"], s=12, color=_COLOURS[0], alpha=0.5, linewidths=0)
    correlation = pairs.corr().loc["distance", "w2"]
    axis.set_title(f"{len(pairs)} pairs, correlation {correlation:.2f}", fontsize=10)
    axis.set_xlabel("distance of the covariates (standardised)")
    axis.set_ylabel("2-Wasserstein distance\nof the responses" + (f" ({unit})" if unit else ""))
    return axis


def _middle(*samples: NDArray[np.float64]) -> tuple[float, float]:
    """An interval that holds the middle 95 % of each sample, with a margin."""
    low, high = np.quantile([np.quantile(sample, [0.025, 0.975]) for sample in samples], [0, 1])
    margin = 0.05 * (high - low) or 0.5
    return float(low - margin), float(high + margin)


def transport_map(
    model: Any,
    X: Any,
    *,
    u: ArrayLike | None = None,
    unit: str = "",
    axis: Axes | None = None,
) -> Axes:
    """The map T(x, u) against u, a line per row of X, and how often it falls (Figure 5).

    Args:
        model: A fitted model with ``transport_map``.
        X: A few covariates, ``(n, d)``.
        u: Levels, increasing; by default 501 between 0 and 1.
        unit: What the response measures and in which unit, for the axis.
        axis: Where to draw.
    """
    axis = _axes(axis)
    levels = np.linspace(0, 1, 501) if u is None else np.asarray(u, np.float64)
    values = model.transport_map(X, levels)
    for i, row in enumerate(values):
        axis.plot(levels, row, color=_COLOURS[i % len(_COLOURS)], label=f"covariate {i + 1}")
    falls = np.mean(np.diff(values, axis=1) < 0)
    axis.set_title(f"{falls:.1%} of the steps fall", fontsize=10)
    axis.set(xlabel="level u", ylabel="T(x, u)" + (f": {unit}" if unit else ""))
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    return axis


def pit(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    n_bins: int = 20,
    confidence: float = 0.95,
    random_state: int = 0,
    axis: Axes | None = None,
) -> Axes:
    """Levels of unseen responses in their predicted distributions: flat if these are right.

    All bars of right predictions are within the band with probability ``confidence``. A hollow
    shows distributions that are too narrow, a hill too wide ones, a slope that they are shifted.

    Args:
        model: A fitted model.
        X: Covariates, ``(n, d)``.
        y: Responses that the model has not seen, ``(n,)``.
        n_bins: Number of bars.
        confidence: Of the band.
        random_state: Seed of the randomisation at atoms.
        axis: Where to draw.
    """
    from scipy.stats import binom

    axis = _axes(axis)
    levels = diagnostics.pit(model, X, y, random_state=random_state)
    error = (1 - confidence) / n_bins
    low, high = binom.ppf([error / 2, 1 - error / 2], len(levels), 1 / n_bins) * n_bins
    axis.hist(levels, bins=n_bins, range=(0, 1), density=True, color=_COLOURS[0], alpha=0.7)
    axis.axhspan(low / len(levels), high / len(levels), color=_HELD_OUT, alpha=0.35, linewidth=0)
    axis.axhline(1, color=_HELD_OUT, linewidth=1)
    axis.set(xlabel="level of the response (PIT)", ylabel="density", xlim=(0, 1))
    axis.spines[["top", "right"]].set_visible(False)
    return axis


def reliability(
    model: Any,
    X: Any,
    y: ArrayLike,
    by: Any = None,
    *,
    confidence: float = 0.95,
    random_state: int = 0,
    axis: Axes | None = None,
) -> Axes:
    """Share of unseen responses below predicted quantiles, against what it should be.

    Args:
        model: A fitted model.
        X: Covariates, ``(n, d)``.
        y: Responses that the model has not seen, ``(n,)``.
        by: Subgroups, as in `gentle.diagnostics.calibration`; a line for each.
        confidence: Probability that no line of right predictions leaves its band.
        random_state: Seed of the randomisation at atoms.
        axis: Where to draw.
    """
    axis = _axes(axis)
    levels = np.arange(1, 20) / 20
    table = diagnostics.calibration(
        model, X, y, by, levels=levels, confidence=confidence, random_state=random_state
    )
    for i, (name, group) in enumerate(table.groupby("group", sort=False)):
        colour = _COLOURS[i % len(_COLOURS)]
        axis.fill_between(levels, group["lower"], group["upper"], color=colour, alpha=0.12, lw=0)
        label = f"{name}: {group['verdict'].iloc[0]}"
        axis.plot(levels, group["observed"], ".-", color=colour, label=label)
    axis.plot([0, 1], [0, 1], color=_HELD_OUT, linewidth=1)
    axis.set(xlabel="level of the predicted quantile", ylabel="share of responses below it")
    title = by if isinstance(by, str) else None
    axis.legend(title=title, title_fontsize=8, frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return axis


def row_of_axes(n: int) -> list[Axes]:
    """Axes side by side in one figure."""
    size = (6.2 * n, 3.8)
    axes = _pyplot().subplots(1, n, figsize=size, squeeze=False, layout="constrained")[1]
    return list(axes[0])


def close(figure: Any) -> None:
    """Forget a figure that has been saved."""
    _pyplot().close(figure)


# A method's place here is its colour; the second seven have dashes, the others dots.
_METHODS = (
    *("GENTLE", "CWGAN", "MGAN", "WGAN-GP", "CDSB", "QuantileForest", "Engression"),
    *("CatBoost", "GENTLE w/o reg", "GENTLE w/o smo", "KNN", "RealMLP", "Marginal", "NGBoost"),
    *("QRGMM neural", "QRGMM linear", "KernelCDE", "BoostedQuantiles", "GENTLE default"),
    "100-NN",
)


def style(name: str) -> dict[str, str]:
    """Colour and line style of a method, the same in every figure.

    Example:
        >>> style("GENTLE")
        {'color': '#0072B2', 'linestyle': '-'}
    """
    known = {"WGANGP": "WGAN-GP", "QRGMM": "QRGMM neural"}.get(name, name)
    place = _METHODS.index(known) if known in _METHODS else zlib.crc32(known.encode())
    turn, number = divmod(place, len(_COLOURS))
    return {"color": _COLOURS[number], "linestyle": ("-", "--", ":")[turn % 3]}


def often_seen(X: Any, y: ArrayLike, n_panels: int) -> tuple[Any, Grouped]:
    """The covariates with most responses in order of their means, as given and grouped."""
    y, keys = np.asarray(y, np.float64).ravel(), Columns.of(X).keys()
    table = Grouped.of(keys, np.arange(len(y), dtype=np.float64))  # rows in place of responses
    row = table.y.astype(np.int64)
    first, table = row[table.start[:-1]], replace(table, y=y[row])
    often = np.sort(np.argsort(-table.counts, kind="stable")[:n_panels])
    means = [table.y[table.start[i] : table.start[i + 1]].mean() for i in often]
    often = often[np.argsort(means)]
    return taken(X, first[often]), table.take(often)


def _axes(axis: Axes | None) -> Axes:
    return axis or _pyplot().subplots(figsize=(5.5, 3.6), layout="constrained")[1]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'gentle-ot[plot]'") from None
    return plt
