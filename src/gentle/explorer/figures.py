"""The explorer's pictures, made with plotly."""

from __future__ import annotations

import html
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gentle.explorer.answers import LEVELS, Shape
from gentle.explorer.controls import Control

Floats = NDArray[np.float64]
Fan = tuple[list[Any], Floats]  # values along a covariate, and the quantiles there

# Of the Okabe-Ito palette, which people with any colour vision can tell apart; the pinned one is
# dashed as well. All three have enough contrast with white.
_NOW, _PINNED, _DATA = "#0072B2", "#C44E00", "#6B6B6B"
_DASH = {"now": "solid", "pinned": "dash"}
_COLOUR = {"now": _NOW, "pinned": _PINNED}
_MIN_BARS, _MAX_BARS = 6, 25
_LABELLED, _MAX_LABELLED = 0.03, 12  # atoms of at least this probability say so, if they are few


def density(
    shapes: dict[str, Shape], name: str, ends: tuple[float, float], near: Floats | None = None
) -> Any:
    """Densities, with atoms as stems of their probability.

    Args:
        shapes: The distributions, "now" and perhaps "pinned".
        name: Of the response.
        ends: Of the axis.
        near: Responses of the nearest training rows, ``(k,)``, drawn behind the curves.

    Returns:
        A plotly figure.
    """
    figure = _figure()
    if near is not None and len(near):
        _add_bars(figure, near, shapes["now"].points, ends)
    for who, shape in shapes.items():
        line = {"color": _COLOUR[who], "dash": _DASH[who], "width": 2.5}
        if len(shape.heights):
            middle = (shape.edges[1:] + shape.edges[:-1]) / 2
            x = np.r_[shape.edges[0], middle, shape.edges[-1]]
            y = np.r_[shape.heights[0], shape.heights, shape.heights[-1]]
            fill = "tozeroy" if who == "now" else "none"
            shade = "rgba(0, 114, 178, 0.12)"
            figure.add_scatter(
                x=x, y=y, mode="lines", name=who, line=line, fill=fill, fillcolor=shade,
                hovertemplate="%{x:.4g}: %{y:.3g}",
            )  # fmt: skip
        if len(shape.points):
            _add_stems(figure, shape, who, line, [s for s in shapes.values() if s is not shape])
    stems = any(len(shape.points) for shape in shapes.values())
    figure.update_layout(_layout(name, "density"))
    figure.update_xaxes(range=ends)
    figure.update_yaxes(rangemode="tozero")
    if stems:
        side = {"overlaying": "y", "side": "right", "range": [0, 1.02], "showgrid": False}
        side |= {"tickmode": "linear", "dtick": 0.25, "tickformat": ".0%", "automargin": True}
        figure.update_layout(yaxis2=side | {"title": {"text": "probability of single values"}})
    return figure


def cdf(
    shapes: dict[str, Shape], name: str, ends: tuple[float, float], near: Floats | None = None
) -> Any:
    """Distribution functions; arguments as for `density`."""
    figure = _figure()
    if near is not None and len(near):
        line = {"color": _DATA, "width": 1.5, "shape": "hv"}
        x, y = np.r_[ends[0], np.sort(near), ends[1]], np.r_[0, np.arange(1, len(near) + 1), 0]
        y[-1] = len(near)
        figure.add_scatter(x=x, y=y / len(near), mode="lines", line=line, name="nearest rows")
    for who, shape in shapes.items():
        x, y = np.r_[ends[0], shape.values, ends[1]], np.r_[0, shape.levels, 1]
        line = {"color": _COLOUR[who], "dash": _DASH[who], "width": 2.5}
        figure.add_scatter(x=x, y=y, mode="lines", line=line, name=who)
    figure.update_traces(hovertemplate="%{x:.4g}: %{y:.3f}")
    figure.update_layout(_layout(name, f"P({name} ≤ y)"))
    figure.update_xaxes(range=ends)
    figure.update_yaxes(range=[0, 1.02])
    return figure


def fan(fans: dict[str, Fan], control: Control, name: str, at: Any) -> Any:
    """Quantiles along a covariate: the median, half and nine tenths of the responses.

    Args:
        fans: The quantiles with the other covariates as they are "now" or "pinned".
        control: The covariate.
        name: Of the response.
        at: The value chosen now, None if it is missing.

    Returns:
        A plotly figure.
    """
    figure = _figure()
    for who, (grid, quantiles) in fans.items():
        draw = _add_segments if control.choices is not None else _add_bands
        draw(figure, grid, quantiles, who)
    figure.update_layout(_layout(control.name, name))
    if control.choices is not None:
        places = list(range(len(control.choices)))
        texts = [f"<b>{_safe(text)}</b>" if text == at else _safe(text) for text in control.choices]
        figure.update_xaxes(tickmode="array", tickvals=places, ticktext=texts)
        figure.update_xaxes(range=[-0.6, len(places) - 0.4])
    elif at is not None:
        figure.add_vline(x=at, line={"color": _DATA, "dash": "dot", "width": 1.5})
    return figure


def _figure() -> Any:
    return import_module("plotly.graph_objects").Figure()


def _add_bars(figure: Any, near: Floats, atoms: Floats, ends: tuple[float, float]) -> None:
    """A histogram of the nearest rows' responses, ticks at each, and their shares at atoms."""
    at_atom = np.isin(near, atoms)
    free = near[~at_atom]
    n_bars = int(np.clip(np.sqrt(len(near)) * 2, _MIN_BARS, _MAX_BARS))
    counts, edges = np.histogram(free, n_bars, ends)
    width = edges[1] - edges[0]
    grey = {"color": _DATA, "opacity": 0.35, "line": {"width": 0}}
    figure.add_bar(
        x=(edges[1:] + edges[:-1]) / 2,
        y=counts / (len(near) * width),
        width=width,
        marker=grey,
        name="nearest rows",
        hovertemplate="%{y:.3g}",
    )
    ticks = {"symbol": "line-ns", "size": 9, "line": {"color": _DATA, "width": 1}}
    figure.add_scatter(
        x=free, y=np.zeros(len(free)), mode="markers", marker=ticks, showlegend=False,
        hovertemplate="%{x:.4g}", name="nearest rows",
    )  # fmt: skip
    if at_atom.any():
        points, n_times = np.unique(near[at_atom], return_counts=True)
        ring = {"symbol": "circle-open", "size": 13, "color": _DATA, "line": {"width": 2}}
        figure.add_scatter(
            x=points, y=n_times / len(near), yaxis="y2", mode="markers", marker=ring,
            name="share of nearest rows", showlegend=False,
            hovertemplate="%{x:.4g}: %{y:.1%}",
        )  # fmt: skip


def _add_stems(
    figure: Any, shape: Shape, who: str, line: dict[str, Any], others: list[Shape]
) -> None:
    gap = np.full(len(shape.points), np.nan)
    x = np.column_stack([shape.points, shape.points, gap]).ravel()
    y = np.column_stack([np.zeros(len(gap)), shape.masses, gap]).ravel()
    symbol = {"now": "circle", "pinned": "diamond"}[who]
    figure.add_scatter(
        x=x, y=y, yaxis="y2", mode="lines", line=line, name=f"{who}: single values",
        showlegend=not len(shape.heights), hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        x=shape.points, y=shape.masses, yaxis="y2", mode="markers", showlegend=False,
        marker={"color": line["color"], "size": 9, "symbol": symbol}, name=who, cliponaxis=False,
        hovertemplate="%{x:.4g}: %{y:.1%}",
    )  # fmt: skip
    for point, mass in zip(shape.points, shape.masses):
        if mass < _LABELLED or len(shape.points) > _MAX_LABELLED:
            continue
        above = all(mass >= p for s in others for q, p in zip(s.points, s.masses) if q == point)
        figure.add_annotation(
            x=point, y=mass, yref="y2", text=f"{100 * mass:.0f} %", showarrow=False,
            xanchor="left", xshift=7, yshift=12 if above else -10, bgcolor="rgba(255,255,255,0.8)",
            borderpad=0, font={"color": line["color"], "size": 13},
        )  # fmt: skip


def _add_bands(figure: Any, grid: list[Any], quantiles: Floats, who: str) -> None:
    colour, back = _COLOUR[who], grid[::-1]
    if who == "now":
        for low, high, share in _pairs():
            edge = np.r_[quantiles[:, low], quantiles[::-1, high]]
            figure.add_scatter(
                x=[*grid, *back], y=edge, fill="toself", mode="lines", line={"width": 0},
                fillcolor=_translucent(share), name=f"{share} % of responses", hoverinfo="skip",
            )  # fmt: skip
    else:
        line = {"color": colour, "dash": "dot", "width": 1.5}
        for number, level in enumerate((0, len(LEVELS) - 1)):
            figure.add_scatter(
                x=grid, y=quantiles[:, level], mode="lines", line=line,
                name="pinned: 90 %", showlegend=number == 0,
            )  # fmt: skip
    figure.add_scatter(
        x=grid,
        y=quantiles[:, LEVELS.index(0.5)],
        mode="lines",
        line={"color": colour, "dash": _DASH[who], "width": 2.5},
        name="median" if who == "now" else "pinned: median",
    )


def _add_segments(figure: Any, grid: list[Any], quantiles: Floats, who: str) -> None:
    place = np.arange(len(grid)) + (0.0 if who == "now" else 0.18)
    gap = np.full(len(grid), np.nan)
    prefix = "" if who == "now" else "pinned: "
    for low, high, share in _pairs():
        figure.add_scatter(
            x=np.column_stack([place, place, gap]).ravel(),
            y=np.column_stack([quantiles[:, low], quantiles[:, high], gap]).ravel(),
            mode="lines",
            line={"color": _COLOUR[who], "width": 2 if share > 50 else 7},
            name=f"{prefix}{share} % of responses",
            hoverinfo="skip",
        )
    symbol = {"now": "circle", "pinned": "diamond"}[who]
    marker = {"color": "white", "size": 11, "symbol": symbol}
    marker["line"] = {"color": _COLOUR[who], "width": 2.5}
    figure.add_scatter(
        x=place, y=quantiles[:, LEVELS.index(0.5)], mode="markers", marker=marker,
        name=f"{prefix}median", hovertemplate="%{y:.4g}",
    )  # fmt: skip


def _pairs() -> list[tuple[int, int, int]]:
    """Positions of the levels that enclose nine tenths and half of the responses, and how many."""
    return [(0, len(LEVELS) - 1, 90), (LEVELS.index(0.25), LEVELS.index(0.75), 50)]


def _translucent(share: int) -> str:
    return f"rgba(0, 114, 178, {0.15 if share > 50 else 0.25})"


def _layout(x: str, y: str) -> dict[str, Any]:
    text = {"color": "#262730", "size": 14}
    both = {"automargin": True, "zeroline": False, "gridcolor": "#E6E6E6"}
    return {
        "xaxis": both | {"title": {"text": _safe(x)}, "showgrid": False},
        "yaxis": both | {"title": {"text": _safe(y)}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": text},
        "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
        "height": 380,
        "font": text,
        "dragmode": False,  # so that a finger scrolls the page
        "hovermode": "closest",
        "bargap": 0,
    }


def _safe(text: str) -> str:
    """A text in which plotly finds no tags."""
    return html.escape(text, quote=False)
