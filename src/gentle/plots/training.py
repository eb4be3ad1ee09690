"""How a model came about, and the map that it learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def history(model: Any, axis: Axes | None = None) -> Axes:
    """Training loss and validation criterion of a fitted neural model, epoch by epoch.

    Args:
        model: A fitted model with ``history_``.
        axis: Where to draw the loss; the criterion has a scale of its own on the right.

    Example:
        >>> from types import SimpleNamespace
        >>> epochs = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.5}]
        >>> history(SimpleNamespace(history_=epochs)).get_xlabel()
        'epoch'
    """
    if not getattr(model, "history_", None):
        raise ValueError(
            f"{type(model).__name__} has no training history: only models that are trained in "
            "epochs have one"
        )
    axis = canvas.new_axes(axis)
    table = pd.DataFrame(model.history_)
    loss, check = canvas.COLOURS[:2]
    axis.plot(table["epoch"], table["loss"], color=loss, linewidth=1.2)
    axis.set_xlabel("epoch")
    axis.set_ylabel("training loss (solid)", color=loss)
    if "validation" in table:
        right = canvas.twin(axis)
        right.plot(table["epoch"], table["validation"], "--", color=check, linewidth=1.2)
        best = table.loc[table["validation"].idxmin()]
        right.plot(best["epoch"], best["validation"], "o", color=check, ms=4, label="best epoch")
        criterion = getattr(model, "criterion", "criterion").upper()
        label = f"validation {criterion} (dashed)\nin standard deviations of y"
        if not getattr(model, "is_game", True):  # many networks, each with its own best epoch
            label = "loss on unseen rows (dashed),\nmean over networks"
        right.set_ylabel(label, color=check)
        canvas.legend(right)
    return axis


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

    Example:
        >>> class Uniform:
        ...     def transport_map(self, X, u):
        ...         return np.tile(u, (len(X), 1))
        >>> transport_map(Uniform(), [[0.0], [1.0]]).get_title()
        '0.0% of the steps fall'
    """
    axis = canvas.new_axes(axis)
    levels = np.linspace(0, 1, 501) if u is None else np.asarray(u, np.float64)
    values = model.transport_map(X, levels)
    for i, row in enumerate(values):
        colour, dashes = (a[i % len(a)] for a in (canvas.COLOURS, canvas.DASHES))
        axis.plot(levels, row, color=colour, linestyle=dashes, label=f"covariate {i + 1}")
    falls = np.mean(np.diff(values, axis=1) < 0)
    canvas.title(axis, f"{falls:.1%} of the steps fall")
    axis.set(xlabel="level u", ylabel="T(x, u)" + (f": {unit}" if unit else ""))
    canvas.legend(axis, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axis
