"""Pictures of a table of covariates: how often each was seen, who is close to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns
from gentle.covariates import CovariateEncoder, lipschitz_pairs
from gentle.data import Grouped, responses_per_covariate
from gentle.graph import spanning_tree
from gentle.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


def responses_histogram(X: Any, axis: Axes | None = None) -> Axes:
    """How many covariates were seen how often (the paper's Figure 1).

    Args:
        X: Covariates, ``(N, d)``.
        axis: Where to draw.

    Example:
        >>> axis = responses_histogram([[0.0], [0.0], [1.0]])
        >>> [int(bar.get_height()) for bar in axis.patches]  # seen once, seen twice
        [1, 1]
    """
    axis = canvas.new_axes(axis)
    counts = responses_per_covariate(X)
    bins = np.arange(0.5, counts.max() + 1.5)
    axis.hist(counts, bins=list(bins), color=canvas.COLOURS[0])
    axis.set_yscale("log")
    axis.set(xlabel="responses of a covariate", ylabel="number of covariates")
    return axis


def lipschitz(
    X: Any, y: ArrayLike, *, unit: str = "", min_responses: int = 18, axis: Axes | None = None
) -> Axes:
    """Distance of covariates against distance of their responses (the paper's Figure 2).

    Args:
        X: Covariates, ``(N, d)``.
        y: Responses, ``(N,)``.
        unit: The unit of y.
        min_responses: Only covariates with more responses than this take part.
        axis: Where to draw.

    Example:
        >>> X = np.repeat([[0.0], [1.0], [3.0]], 5, axis=0)
        >>> lipschitz(X, 2 * X[:, 0], min_responses=4).get_title()
        '3 pairs, correlation 1.00'
    """
    axis = canvas.new_axes(axis)
    pairs = lipschitz_pairs(X, y, min_responses)
    dots: Any = {"s": 8, "color": canvas.COLOURS[0], "alpha": 0.5, "linewidths": 0}
    axis.scatter(pairs["distance"], pairs["w2"], **dots)
    correlation = pairs.corr().loc["distance", "w2"]
    canvas.title(axis, f"{len(pairs)} pairs, correlation {correlation:.2f}")
    axis.set_xlabel("distance of the covariates (standardised)")
    axis.set_ylabel("2-Wasserstein distance\nof the responses" + (f" ({unit})" if unit else ""))
    return axis


def tree(
    model: Any,
    y: ArrayLike | None = None,
    *,
    label: str | None = None,
    max_covariates: int = 2000,
    random_state: int = 0,
    axis: Axes | None = None,
) -> Axes:
    """The spanning tree of the covariates, which pairs neighbours, in two dimensions.

    Distances are those between encoded covariates, as models see them. Tables of two columns of
    numbers are drawn as they are, others by their first two principal components, so that short
    edges may look long and far covariates close.

    Args:
        model: Covariates ``(n, d)``, or a model fitted with ``keep_data=True``.
        y: Responses of these covariates, ``(n,)``: their means colour the points. Those of a model
            are known.
        label: What y measures and in which unit.
        max_covariates: Of more, a random part is shown.
        random_state: Seed of that part.
        axis: Where to draw.

    Example:
        >>> axis = tree([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
        >>> len(axis.collections[0].get_segments())  # edges
        2
    """
    axis = canvas.new_axes(axis)
    grouped, names, given = _encoded(model, y)
    rng = np.random.default_rng(random_state)
    if len(grouped) > max_covariates:
        grouped = grouped.take(np.sort(rng.permutation(len(grouped))[:max_covariates]))
    parent = spanning_tree(grouped.x)
    places = _plane(axis, grouped, names, given)
    child = np.flatnonzero(parent >= 0)

    from matplotlib.collections import LineCollection

    edges = np.stack([places[child], places[parent[child]]], axis=1)  # (n - 1, 2, 2)
    axis.add_collection(LineCollection(list(edges), colors=canvas.HELD_OUT, linewidths=0.7))
    size = float(np.clip(2000 / len(places), 3, 25))
    if grouped.y.any():
        means = np.add.reduceat(grouped.share * grouped.y, grouped.start[:-1])
        dots = axis.scatter(*places.T, s=size, c=means, cmap="cividis", linewidths=0, zorder=2)
        figure: Any = axis.figure
        bar = figure.colorbar(dots, ax=axis, pad=0.02)
        text = canvas.response_label(model, y, label)
        bar.set_label(f"mean {text}", fontsize=axis.yaxis.label.get_fontsize())
        bar.ax.tick_params(labelsize=canvas.letters(axis))
        bar.outline.set_visible(False)
    else:
        axis.scatter(*places.T, s=size, color=canvas.COLOURS[0], linewidths=0, zorder=2)
    return axis


def _encoded(model: Any, y: ArrayLike | None) -> tuple[Grouped, Any, Any]:
    """Distinct encoded covariates with responses (0 if unknown), labels of columns, encoder."""
    if hasattr(model, "predict_dist"):
        rows, encoder = model.training_rows_, model.covariate_encoder_
        if rows is None:
            raise ValueError(
                f"this {type(model).__name__} does not hold its training data: pass the covariates "
                "in its place, or fit(..., keep_data=True)"
            )
        return Grouped.of(rows.x, rows.y, rows.weight), encoder.labels, encoder
    table = Columns.of(model)
    encoder = CovariateEncoder.of(table, np.ones(len(table)))
    target = np.zeros(len(table)) if y is None else np.asarray(y, np.float64).ravel()
    if len(target) != len(table):
        raise ValueError(f"y has {len(target)} responses, but X has {len(table)} rows")
    return Grouped.of(encoder.encode(table), target), table.labels, encoder


def _plane(axis: Axes, grouped: Grouped, names: Any, encoder: CovariateEncoder) -> Floats:
    """Where covariates stand in the picture, ``(n, 2)``, and what its sides mean."""
    kinds = [covariate.kind for covariate in encoder.covariates]
    if kinds == ["number"] * 2 and grouped.x.shape[1] == 2:
        scale = np.array([[c.mean, c.scale] for c in encoder.covariates]).T
        axis.set(xlabel=canvas.label_of(names[0]), ylabel=canvas.label_of(names[1]))
        return grouped.x * scale[1] + scale[0]
    centred = grouped.x - grouped.x.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    share = values**2 / max((values**2).sum(), np.finfo(float).tiny)
    # The sign of a component is arbitrary: its largest weight is positive.
    turned = (
        directions
        * np.sign(directions[np.arange(len(values)), np.abs(directions).argmax(1)])[:, None]
    )
    places = np.zeros((len(centred), 2))
    places[:, : len(values)] = (centred @ turned.T)[:, :2]
    axis.set_xlabel(f"first principal component ({share[0]:.0%})")
    if len(values) > 1:
        axis.set_ylabel(f"second ({share[1]:.0%})")
    return places
