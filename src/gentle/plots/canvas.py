"""What all pictures share: figures, colours, line styles, labels."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gentle.distribution import ConditionalDistribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The Okabe-Ito palette without its yellow, which white paper swallows: people with any colour
# vision can tell these apart.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DASHES = ["-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1))]
HELD_OUT, DARKER = "#999999", "#555555"

_COLUMN, _HEIGHT = 3.3, 2.5  # inches: the width of a journal's column
_PANEL, _PANEL_HEIGHT = 2.2, 1.7
_ROOM = 30  # letters side by side in a column
_SMALL, _TINY = 8, 7  # points: of labels; of ticks and legends

# A method's place here is its colour; the second seven have dashes, the others dots.
_METHODS = (
    *("GENTLE", "CWGAN", "MGAN", "WGAN-GP", "CDSB", "QuantileForest", "Engression"),
    *("CatBoost", "GENTLE w/o reg", "GENTLE w/o smo", "KNN", "RealMLP", "Marginal", "NGBoost"),
    *("QRGMM neural", "QRGMM linear", "KernelCDE", "BoostedQuantiles", "GENTLE default"),
    "100-NN",
)

# Last words of a column's name that are units, and how a label writes them.
_UNITS = {
    **{u: u for u in ("years", "months", "weeks", "days", "hours", "minutes", "seconds", "ms")},
    **{u: u for u in ("kg", "km", "cm", "mm", "miles", "feet", "inches", "litres", "dollars")},
    **{"yrs": "years", "hrs": "hours", "mins": "minutes", "secs": "seconds", "sec": "seconds"},
    **{"usd": "$", "eur": "€", "gbp": "£", "percent": "%", "pct": "%", "celsius": "°C"},
    **{"kwh": "kWh", "mw": "MW", "kw": "kW", "mph": "mph", "kmh": "km/h"},
}


def style(name: str) -> dict[str, str]:
    """Colour and line style of a method, the same in every figure.

    Example:
        >>> style("GENTLE")
        {'color': '#0072B2', 'linestyle': '-'}
    """
    known = {"WGANGP": "WGAN-GP", "QRGMM": "QRGMM neural"}.get(name, name)
    place = _METHODS.index(known) if known in _METHODS else zlib.crc32(known.encode())
    turn, number = divmod(place, len(COLOURS))
    return {"color": COLOURS[number], "linestyle": ("-", "--", ":")[turn % 3]}


def label_of(name: Any) -> str:
    """A label with its unit from the name of a column.

    Example:
        >>> [label_of(name) for name in ("income [$]", "age (years)", "age_years", "hours", 3)]
        ['income ($)', 'age (years)', 'age (years)', 'hours', 'column 3']
    """
    if not isinstance(name, str):
        return f"column {name}"
    text = name.strip().replace("_", " ")
    if found := re.fullmatch(r"(.+?)\s*[\[(]\s*(.+?)\s*[\])]", text):
        return f"{found[1]} ({found[2]})"
    *words, last = text.split(" ")
    if words and last.lower() in _UNITS:
        return f"{' '.join(words)} ({_UNITS[last.lower()]})"
    return text


def response_label(model: Any, y: Any = None, label: str | None = None) -> str:
    """What the response measures: as told, or as the model or the name of ``y`` has it."""
    if label:
        return label
    models = model.values() if isinstance(model, Mapping) else [model]
    names = [getattr(one, "response_name_", None) for one in models]
    names = [name for name in (*names, getattr(y, "name", None)) if isinstance(name, str)]
    return label_of(names[0]) if names else "response"


def by_name(models: Any) -> Mapping[str, Any]:
    """Models by name; a single one, or a distribution, gets one."""
    if isinstance(models, Mapping):
        if not models:
            raise ValueError("there is no model to draw: the mapping of names to models is empty")
        return models
    is_law = isinstance(models, ConditionalDistribution)
    return {"predicted" if is_law else type(models).__name__: models}


def tint(colour: str, strength: float) -> tuple[float, ...]:
    """A colour mixed with white, opaque, so that it looks the same in a legend."""
    from matplotlib.colors import to_rgb

    return tuple(1 - strength * (1 - part) for part in to_rgb(colour))


def new_axes(axis: Axes | None, width: float = _COLUMN, height: float = _HEIGHT) -> Axes:
    """The Axes given, or those of a new figure that is as wide as a column."""
    if axis is not None:
        return plain(axis)
    size = (width, height)
    return small(_pyplot().subplots(figsize=size, dpi=200, layout="constrained")[1])


def panels(n: int) -> Any:
    """Axes for n small pictures, at most three abreast, ``(rows, columns)``; the rest is hidden."""
    n_columns = min(3, n)
    n_rows = -(-n // n_columns)
    width = max(_COLUMN, _PANEL * n_columns)
    size = (width, (_HEIGHT if n == 1 else _PANEL_HEIGHT * n_rows) + 0.3)  # and the legend
    axes = _pyplot().subplots(
        n_rows, n_columns, figsize=size, dpi=200, squeeze=False, layout="constrained"
    )[1]
    for i, axis in enumerate(axes.flat):
        small(axis).set_visible(i < n)
    return axes


def row_of_axes(n: int) -> list[Axes]:
    """Axes side by side in one figure.

    Example:
        >>> len(row_of_axes(2))
        2
    """
    size = (6.2 * n, 3.8)
    axes = _pyplot().subplots(1, n, figsize=size, squeeze=False, layout="constrained")[1]
    return list(axes[0])


def small(axis: Axes) -> Axes:
    """Axes with letters that can be read in a column, neither more nor larger than that."""
    axis.tick_params(labelsize=_TINY)
    for text in (axis.xaxis.label, axis.yaxis.label, axis.title):
        text.set_fontsize(_SMALL)
    for part in (axis.xaxis, axis.yaxis):
        part.get_offset_text().set_fontsize(_TINY)
    return plain(axis)


def plain(axis: Axes) -> Axes:
    """Axes without the sides that carry no scale."""
    axis.spines[["top", "right"]].set_visible(False)
    return axis


def twin(axis: Axes) -> Axes:
    """A second scale on the right, in letters of the same size."""
    right: Any = axis.twinx()
    right.tick_params(labelsize=axis.xaxis.get_major_ticks()[0].label1.get_fontsize())
    for text in (right.xaxis.label, right.yaxis.label):
        text.set_fontsize(axis.xaxis.label.get_fontsize())
    right.spines[["top", "left"]].set_visible(False)
    return right


def as_places(cells: Any) -> Any:
    """Where numbers, dates and durations stand along an axis; durations in seconds."""
    places = np.asarray(cells)
    return places / np.timedelta64(1, "s") if places.dtype.kind == "m" else places


def name_ticks(axis: Axes, names: list[str]) -> None:
    """Names at 0, 1, 2, ... along the bottom, slanted if they are long."""
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.6, len(names) - 0.4)
    if sum(map(len, names)) > _ROOM:
        for text in axis.get_xticklabels():
            text.set(rotation=40, ha="right", rotation_mode="anchor")


def letters(axis: Axes) -> float:
    """The size of what is a little smaller than the labels."""
    return _TINY / _SMALL * float(axis.xaxis.label.get_fontsize())


def title(axis: Axes, text: str) -> None:
    """A title in the size of the labels."""
    axis.set_title(text, fontsize=axis.xaxis.label.get_fontsize())


def legend(axis: Axes, **options: Any) -> None:
    """A legend in letters a little smaller than the labels."""
    size = letters(axis)
    axis.legend(frameon=False, fontsize=size, title_fontsize=size, **options)


def legend_above(
    axis: Axes,
    handles: Any = None,
    labels: Any = None,
    whole: bool = False,
    heading: str | None = None,
) -> None:
    """A legend above the Axes, or the ``whole`` figure, in as many columns as there is room for."""
    if handles is None:
        handles, labels = axis.get_legend_handles_labels()
    figure: Any = axis.figure
    width = figure.get_size_inches()[0]
    size = letters(axis)
    # A letter is about half as wide as it is high; a line sample and its margins take six.
    room = width * 0.9 * 72 / (0.5 * size * (max(map(len, labels)) + 6))
    options = {"ncols": max(1, min(len(labels), int(room))), "frameon": False, "fontsize": size}
    options |= {"columnspacing": 1.0, "handlelength": 1.8, "title": heading, "title_fontsize": size}
    if whole:
        figure.legend(handles, labels, loc="outside upper center", **options)
    else:
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
        axis.legend(handles, labels, **options, **place)


def close(figure: Any) -> None:
    """Forget a figure that has been saved.

    Example:
        >>> close(row_of_axes(1)[0].figure)
    """
    _pyplot().close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'gentle-ot[plot]'") from None
    return plt
