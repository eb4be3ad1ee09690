"""The shape of conditional distributions: densities, quantile functions, cdfs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.distribution import QuantileTable
from gentle.plots import canvas
from gentle.plots.laws import LEVELS, Law, Shown, held_out_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_HELD_OUT = "held-out responses"
_MIN_BARS = 20  # responses for a histogram; fewer are a rug
_N_BINS = 30
_MIDDLE = slice(25, 976)  # 95 % of the levels


def densities(
    models: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    label: str | None = None,
    n_panels: int = 6,
    n_samples: int = 10_000,
    random_state: int = 0,
    min_probability: float = 0.05,
    axis: Axes | None = None,
    unit: str = "",
) -> Any:
    """Conditional densities of models beside the held-out responses, a panel per covariate.

    Lines are the densities of what is continuous, slightly smoothed; values that have a probability
    of their own are stems, whose scale is on the right. Bars, or a rug of fewer than 20, are the
    held-out responses, of which repeated ones are grey stems. The covariates with most responses
    are shown, in order of their mean response. Lines much higher than all bars are cut off.

    Args:
        models: Fitted models by the name under which they appear, one model, or the
            `ConditionalDistribution` of the rows.
        X: Covariates, ``(N, d)``; None for those of a distribution.
        y: Held-out responses, ``(N,)``.
        label: What y measures and in which unit; by default the model's name for it.
        n_panels: Largest number of covariates to show.
        n_samples: Draws of a model that has no ``predict_dist``.
        random_state: Seed of those draws.
        min_probability: Smaller atoms are smoothed with the rest.
        axis: Where to draw all of the covariates together, in one colour each.
        unit: The earlier name of ``label``.

    Returns:
        The Axes, ``(rows, columns)``; or ``axis``, if it is given.

    Example:
        >>> from gentle import QuantileTable
        >>> half_zero = QuantileTable([0.0, 0.5, 1.0], [[0.0, 0.0, 3.0]])
        >>> densities(half_zero, None, label="income ($)").shape
        (1, 1)
    """
    shown = Shown.of(models, X, y, n_panels, n_samples, random_state, min_probability)
    label = canvas.response_label(models, y, label or unit)
    if axis is not None:
        return _overlaid(canvas.new_axes(axis), shown, label)
    axes = canvas.panels(len(shown.names))
    rights = []
    for i, (panel, name) in enumerate(zip(axes.flat, shown.names)):
        laws = [(canvas.style(model), laws[i]) for model, laws in shown.laws.items()]
        responses = None if shown.responses is None else shown.responses[i]
        rights.append(_panel(panel, laws, responses, min_probability))
        if responses is not None and len(responses) > 1:
            name = f"{name}: {len(responses):,} responses"
        canvas.title(panel, name)
    _scale_stems(rights, axes.shape[1])
    figure = axes.flat[0].figure
    size = axes.flat[0].xaxis.label.get_fontsize()
    figure.supxlabel(label, fontsize=size)
    figure.supylabel("density", fontsize=size)
    handles = [_line(model) for model in shown.laws]
    labels = list(shown.laws)
    if shown.responses is not None:
        handles.append(_held_out_handle(max(map(len, shown.responses)) >= _MIN_BARS))
        labels.append(_HELD_OUT)
    canvas.legend_above(axes.flat[0], handles, labels, whole=True)
    return axes


def _panel(
    axis: Axes, laws: list[tuple[Any, Law]], responses: Floats | None, min_probability: float
) -> Axes | None:
    """One covariate; the second Axes, if there are stems."""
    seen = [] if responses is None else [held_out_law(responses, min_probability)]
    low, high = _middle([law for _, law in laws] + seen)
    grid = np.linspace(low, high, 400)
    tallest, bars = 0.0, np.inf
    stems: list[tuple[Any, Law]] = []
    if responses is not None:
        if len(responses) >= _MIN_BARS:
            bars = tallest = _bars(axis, responses, seen[0].atoms, (low, high))
            stems += [({"color": canvas.DARKER, "linewidth": 1.3}, seen[0])]
        else:
            _rug(axis, responses, canvas.HELD_OUT)
    for look, law in laws:
        density = law.density(grid)
        axis.plot(grid, np.where(density > 0, density, np.nan), linewidth=1.3, **look)
        tallest = max(tallest, density.max())
        stems += [({"color": look["color"], "linewidth": 1.3}, law)]
    axis.set_xlim(low, high)
    # A spike must not flatten everything else.
    axis.set_ylim(0, 1.05 * min(tallest, 2 * bars if bars > 0 else np.inf) or 1.0)
    _without_scale(axis)
    return _stems(axis, stems)


def _overlaid(axis: Axes, shown: Shown, label: str) -> Axes:
    """All covariates in one picture."""
    everything = [law for laws in shown.laws.values() for law in laws]
    low, high = _middle(everything)
    grid = np.linspace(low, high, 400)
    stems, tallest = [], 0.0
    for name, look, law in _lines(shown):
        density = law.density(grid)
        tallest = max(tallest, density.max())
        axis.plot(grid, np.where(density > 0, density, np.nan), label=name, **look)
        stems.append((look, law))
    for i, responses in enumerate(shown.responses or []):
        alone = len(shown.names) == 1
        colour = canvas.HELD_OUT if alone else canvas.COLOURS[i % len(canvas.COLOURS)]
        _rug(axis, responses, colour)
    axis.set(xlim=(low, high), ylim=(0, 1.05 * tallest or 1.0), xlabel=label, ylabel="density")
    _without_scale(axis)
    _scale_stems([_stems(axis, stems)], 1)
    canvas.legend_above(axis)
    return axis


def _bars(axis: Axes, responses: Floats, atoms: Floats, ends: tuple[float, float]) -> float:
    """A histogram of the responses that are no atoms, as a density; its largest height."""
    smooth = responses[~np.isin(responses, atoms)]
    width = (ends[1] - ends[0]) / _N_BINS
    weights = np.full(len(smooth), 1 / (len(responses) * width))
    heights: Any = axis.hist(
        smooth, _N_BINS, range=ends, weights=weights, color=canvas.HELD_OUT, alpha=0.5
    )[0]
    return float(np.max(heights))


def _rug(axis: Axes, responses: Floats, colour: str) -> None:
    axis.vlines(
        responses, 0, 0.06, colour, transform=axis.get_xaxis_transform(), linewidth=0.8, zorder=1
    )


def _stems(axis: Axes, stems: list[tuple[Any, Law]]) -> Axes | None:
    """The atoms within view, those of different distributions side by side."""
    low, high = axis.get_xlim()
    drawn = [(look, law) for look, law in stems if len(law.atoms)]
    if not drawn:
        return None
    right = canvas.twin(axis)
    step = 0.012 * (high - low)
    first = -step * (len(drawn) - 1) / 2
    for k, (look, law) in enumerate(drawn):
        at = law.atoms + first + k * step
        right.vlines(at, 0, law.mass, **look)
        marker = "s" if look["color"] == canvas.DARKER else "o"
        right.plot(at, law.mass, marker, color=look["color"], markersize=3)
    right.set_xlim(low - step * len(drawn), high + step * len(drawn))
    return right


def _scale_stems(rights: list[Axes | None], n_columns: int) -> None:
    """The same scale of probability in all panels, told at the last one of each row."""
    drawn = {i: right for i, right in enumerate(rights) if right is not None}
    last = {i // n_columns: i for i in drawn}.values()
    for i, right in drawn.items():
        right.set_ylim(0, 1.1 * max(one.dataLim.y1 for one in drawn.values()))
        right.locator_params(axis="y", nbins=4)
        if i in last:
            right.set_ylabel("probability of atoms")
        else:
            right.tick_params(labelright=False)


def _without_scale(axis: Axes) -> None:
    axis.set_yticks([])
    axis.locator_params(axis="x", nbins=5)
    axis.spines["left"].set_visible(False)


def _middle(laws: list[Law]) -> tuple[float, float]:
    """An interval that holds the middle 95 % of each distribution, with a margin."""
    ends = [law.values[_MIDDLE][[0, -1]] for law in laws]
    low, high = float(np.min(ends)), float(np.max(ends))
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _line(model: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **canvas.style(model))  # type: ignore[arg-type]


def _held_out_handle(bars: bool) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if bars:
        return Patch(color=canvas.HELD_OUT, alpha=0.5)
    return Line2D([], [], color=canvas.HELD_OUT, marker="|", linestyle="")


def quantiles(
    models: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    label: str | None = None,
    n_lines: int = 4,
    n_samples: int = 10_000,
    random_state: int = 0,
    axis: Axes | None = None,
) -> Axes:
    """Conditional quantile functions, a line per covariate: level against response.

    A flat stretch is an atom. Held-out responses are thin steps beside them.

    Args:
        models: A fitted model, the `ConditionalDistribution` of the rows, or several by name; with
            several models the lines of a covariate differ in their dashes.
        X: Covariates, ``(N, d)``; None for those of a distribution.
        y: Held-out responses, ``(N,)``.
        label: What y measures and in which unit; by default the model's name for it.
        n_lines: Largest number of covariates, those with most rows.
        n_samples: Draws of a model that has no ``predict_dist``.
        random_state: Seed of those draws.
        axis: Where to draw.

    Example:
        >>> from gentle import QuantileTable
        >>> unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]])
        >>> axis = quantiles(unit, None)
        >>> axis.get_xlabel(), axis.get_ylabel()
        ('level', 'response')
    """
    shown = Shown.of(models, X, y, n_lines, n_samples, random_state, 1.0)
    axis = canvas.new_axes(axis)
    low, high = _curves(axis, shown, lambda values, levels: (levels, values))
    axis.set(xlabel="level", xlim=(0, 1), ylim=(low, high))
    axis.set_ylabel(canvas.response_label(models, y, label))
    return axis


def cdfs(
    models: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    label: str | None = None,
    n_lines: int = 4,
    n_samples: int = 10_000,
    random_state: int = 0,
    axis: Axes | None = None,
) -> Axes:
    """Conditional distribution functions beside the empirical ones, a line per covariate.

    An upright stretch is an atom.

    Args:
        models: A fitted model, the `ConditionalDistribution` of the rows, or several by name; with
            several models the lines of a covariate differ in their dashes.
        X: Covariates, ``(N, d)``; None for those of a distribution.
        y: Held-out responses, ``(N,)``, drawn as thin steps.
        label: What y measures and in which unit; by default the model's name for it.
        n_lines: Largest number of covariates, those with most rows.
        n_samples: Draws of a model that has no ``predict_dist``.
        random_state: Seed of those draws.
        axis: Where to draw.

    Example:
        >>> from gentle import QuantileTable
        >>> axis = cdfs(QuantileTable([0.0, 1.0], [[0.0, 1.0]]), None, label="rent ($)")
        >>> axis.get_xlabel(), axis.get_ylabel()
        ('rent ($)', 'probability')
    """
    shown = Shown.of(models, X, y, n_lines, n_samples, random_state, 1.0)
    axis = canvas.new_axes(axis)
    low, high = _curves(axis, shown, lambda values, levels: (values, levels))
    axis.set(ylabel="probability", ylim=(0, 1.02), xlim=(low, high))
    axis.set_xlabel(canvas.response_label(models, y, label))
    axis.locator_params(axis="x", nbins=6)
    return axis


def _curves(axis: Axes, shown: Shown, order: Any) -> tuple[float, float]:
    """The lines of quantile functions, either way round, and the responses in view."""
    laws = []
    for name, look, law in _lines(shown):
        axis.plot(*order(law.values, LEVELS), label=name, **look)
        laws.append(law)
    for i, responses in enumerate(shown.responses or []):
        steps = QuantileTable.of_sample(responses)
        alone = len(shown.names) == 1
        colour = canvas.HELD_OUT if alone else canvas.COLOURS[i % len(canvas.COLOURS)]
        name = _HELD_OUT if i == 0 else None
        axis.plot(
            *order(steps.values[0], steps.levels[0]),
            **{"color": colour, "linewidth": 0.6, "label": name},
        )
        laws.append(held_out_law(responses, 1.0))
    canvas.legend_above(axis)
    return _middle(laws)


def _lines(shown: Shown) -> list[tuple[str, Any, Law]]:
    """Label, look and distribution of each line: colours are covariates if there are several."""
    lines = []
    several = len(shown.laws) > 1
    for k, (model, laws) in enumerate(shown.laws.items()):
        for i, (name, law) in enumerate(zip(shown.names, laws)):
            if len(laws) == 1:
                lines.append((model, canvas.style(model), law))
                continue
            look = {
                "color": canvas.COLOURS[i % len(canvas.COLOURS)],
                "linestyle": canvas.DASHES[(k if several else i) % len(canvas.DASHES)],
            }
            lines.append((f"{name}, {model}" if several else name, look, law))
    return [(name, look | {"linewidth": 1.3}, law) for name, look, law in lines]
