"""May predictions be trusted? Levels of unseen responses, with bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gentle import diagnostics
from gentle.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        model: A fitted model, or the `ConditionalDistribution` of the rows.
        X: Covariates, ``(n, d)``; not looked at if distributions are given.
        y: Responses that the model has not seen, ``(n,)``.
        n_bins: Number of bars.
        confidence: Of the band.
        random_state: Seed of the randomisation at atoms.
        axis: Where to draw.

    Example:
        >>> from gentle import QuantileTable
        >>> unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]]).repeat(100)
        >>> axis = pit(unit, None, (np.arange(100) + 0.5) / 100, n_bins=10)
        >>> [round(float(bar.get_height()), 6) for bar in axis.patches[:3]]
        [1.0, 1.0, 1.0]
    """
    from scipy.stats import binom

    axis = canvas.new_axes(axis)
    levels = diagnostics.pit(model, X, y, random_state=random_state)
    error = (1 - confidence) / n_bins
    low, high = binom.ppf([error / 2, 1 - error / 2], len(levels), 1 / n_bins) * n_bins
    axis.hist(levels, bins=n_bins, range=(0, 1), density=True, color=canvas.COLOURS[0], alpha=0.6)
    band: Any = {"color": canvas.tint(canvas.HELD_OUT, 0.5), "linewidth": 0, "zorder": 0}
    axis.axhspan(low / len(levels), high / len(levels), label=f"{confidence:.0%} band", **band)
    axis.axhline(1, color="black", linewidth=0.8, linestyle="--")
    axis.set(xlabel="level of the response (PIT)", ylabel="density", xlim=(0, 1))
    canvas.legend_above(axis)
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
        model: A fitted model, or the `ConditionalDistribution` of the rows.
        X: Covariates, ``(n, d)``; not looked at if distributions are given, unless ``by`` needs it.
        y: Responses that the model has not seen, ``(n,)``.
        by: Subgroups, as in `gentle.diagnostics.calibration`; a line for each.
        confidence: Probability that no line of right predictions leaves its band.
        random_state: Seed of the randomisation at atoms.
        axis: Where to draw.

    Example:
        >>> from gentle import QuantileTable
        >>> unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]]).repeat(100)
        >>> axis = reliability(unit, None, (np.arange(100) + 0.5) / 100)
        >>> axis.get_legend_handles_labels()[1]
        ['all rows: calibrated']
    """
    axis = canvas.new_axes(axis)
    levels = np.array(diagnostics.LEVELS)
    table = diagnostics.calibration(
        model, X, y, by, levels=levels, confidence=confidence, random_state=random_state
    )
    for i, (name, group) in enumerate(table.groupby("group", sort=False)):
        colour = canvas.COLOURS[i % len(canvas.COLOURS)]
        axis.fill_between(levels, group["lower"], group["upper"], color=colour, alpha=0.12, lw=0)
        label = f"{name}: {group['verdict'].iloc[0]}"
        dashes: Any = canvas.DASHES[i % len(canvas.DASHES)]
        axis.plot(
            levels, group["observed"], ".", ls=dashes, color=colour, label=label, ms=4, lw=1.2
        )
    axis.plot([0, 1], [0, 1], color=canvas.HELD_OUT, linewidth=0.8, zorder=0)
    axis.set(xlabel="level of the predicted quantile", ylabel="share of responses below it")
    axis.set(xlim=(0, 1), ylim=(0, 1.02))
    canvas.legend_above(axis, heading=canvas.label_of(by) if isinstance(by, str) else None)
    return axis
