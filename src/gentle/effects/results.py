"""Effects as a result to read: tables, intervals, and always the assumptions."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gentle.effects.overlap import Overlap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR, _GREY = "#0072B2", "#999999"
_WIDTH = 100


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """Two distributions of the responses of one population, and how they differ.

    Every table has a column for either distribution (``control`` and ``treated``, or ``as_is`` and
    ``policy``), their difference ``effect``, and unless uncertainty was declined ``lower`` and
    ``upper``, the ends of its interval. Tables of several rows also have ``uniform_lower`` and
    ``uniform_upper``, a band that is to hold all true effects of the table at once.

    Attributes:
        quantiles: A row per ``level``. Effects are differences of quantiles.
        thresholds: A row per ``threshold``: probabilities that a response is larger.
        mean: One row: means.
        question: What is compared, in words.
        population: Whose responses, in words.
        estimand: What the quantile effects are, in words.
        uncertainty: What the intervals rest on, in words.
        assumptions: What must be true for the numbers to be effects.
        caution: What the data say against them, in words; may be empty.
        overlap: Of the two treatments, or None where it could not be checked.
        confidence: Of intervals and bands.
    """

    quantiles: pd.DataFrame
    thresholds: pd.DataFrame
    mean: pd.DataFrame
    question: str
    population: str
    estimand: str
    uncertainty: str
    assumptions: tuple[str, ...]
    caution: str
    overlap: Overlap | None
    confidence: float

    def __str__(self) -> str:
        facts = {
            "Quantile effects": self.estimand,
            "Intervals": self.uncertainty,
            "Overlap": "" if self.overlap is None else str(self.overlap),
            "Caution": self.caution,
        }
        parts = [
            f"{self.question}\n{self.population}",
            f"Mean\n{_shown(self.mean)}",
            f"Quantiles\n{_shown(self.quantiles)}",
            f"Probability of more than a threshold\n{_shown(self.thresholds)}",
            "\n".join(_filled(f"{name}: {text}") for name, text in facts.items() if text),
            "Assumptions, without which these are no effects:\n"
            + "\n".join(
                _filled(f"{i}. {text}", "   ") for i, text in enumerate(self.assumptions, 1)
            ),
        ]
        return "\n\n".join(parts)

    __repr__ = __str__

    def plot(self, axis: Axes | None = None, unit: str = "") -> Axes:
        """The quantile effects against their level, with interval, band and the mean effect.

        Args:
            axis: Where to draw.
            unit: What the response measures and in which unit, for the axis.
        """
        from gentle import plots

        axis = plots.row_of_axes(1)[0] if axis is None else axis
        table, mean = self.quantiles, float(self.mean["effect"].iloc[0])
        if "lower" in table:
            percent = f"{100 * self.confidence:g} %"
            for ends, alpha, label in (
                (("uniform_lower", "uniform_upper"), 0.15, f"{percent}, all levels at once"),
                (("lower", "upper"), 0.3, f"{percent}, each level alone"),
            ):
                low, high = (table[end] for end in ends)
                axis.fill_between(
                    table["level"], low, high, color=_COLOUR, alpha=alpha, linewidth=0, label=label
                )
        axis.plot(table["level"], table["effect"], ".-", color=_COLOUR, label="quantile effect")
        axis.axhline(mean, color="black", linestyle="--", linewidth=1, label="mean effect")
        axis.axhline(0, color=_GREY, linewidth=1)
        axis.set(xlabel="level", ylabel="effect" + (f" ({unit})" if unit else ""))
        axis.set_title(self.question, fontsize=10)
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        return axis


def _filled(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent)


def _shown(table: pd.DataFrame) -> str:
    return table.to_string(index=False, float_format=_number)


def _number(value: Any) -> str:
    if np.isnan(value) or value == 0:
        return f"{value:g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
