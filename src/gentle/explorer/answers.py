"""What the explorer shows of distributions, as numbers: no page, no picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.distribution import ConditionalDistribution
from gentle.transport import wasserstein

Floats = NDArray[np.float64]

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
_MAX_STEMS = 60  # more single values than that are shown as a histogram
_LEAST_ATOM, _STANDS_OUT = 0.005, 0.03  # probability of a single value: among few, among many
_N_BINS, _N_COARSE_BINS = 50, 30
_N_LEVELS = 4000  # in a Wasserstein distance
_CURVE_LEVELS = np.r_[0, np.geomspace(1e-4, 0.02, 15), np.arange(0.025, 0.5, 0.005)]


@dataclass(frozen=True)
class Shape:
    """A distribution as it is drawn.

    Attributes:
        edges: Ends of the bins, ``(m + 1,)``; of none if all is in single values.
        heights: Mean density in each bin without the atoms, ``(m,)``.
        points: The atoms, ``(k,)``.
        masses: Their probabilities, ``(k,)``.
        levels: Of the distribution function, ``(l,)``.
        values: The quantiles at these levels, ``(l,)``.
    """

    edges: Floats
    heights: Floats
    points: Floats
    masses: Floats
    levels: Floats
    values: Floats

    @classmethod
    def of(cls, dist: ConditionalDistribution) -> Shape:
        """The shape of the only row of a distribution.

        Example:
            >>> from gentle import QuantileTable
            >>> half = Shape.of(QuantileTable([0.0, 0.5, 1.0], [[0.0, 0.0, 2.0]]))
            >>> half.points, half.masses
            (array([0.]), array([0.5]))
            >>> np.unique(half.heights.round(6))
            array([0.25])
        """
        points, masses = dist.atoms()[0]
        many = len(points) > _MAX_STEMS  # the responses of training rows, in a forest or a KNN
        often = masses >= (max(_STANDS_OUT, 5 * np.median(masses)) if many else _LEAST_ATOM)
        points, masses = points[often], masses[often]
        levels = np.unique(np.r_[_CURVE_LEVELS, 0.5, 1 - _CURVE_LEVELS])
        low, high = dist.quantile([0.001, 0.999])[0]
        edges, heights = np.array([low]), np.array([])
        if high > low and masses.sum() < 1 - 1e-9:
            edges = np.linspace(low, high, (_N_COARSE_BINS if many else _N_BINS) + 1)
            mass = np.diff(dist.cdf(edges[None])[0])
            place = np.searchsorted(edges, points) - 1  # the bin whose right end is included
            inside = (place >= 0) & (place < len(mass))
            np.subtract.at(mass, place[inside], masses[inside])
            heights = mass.clip(0) / np.diff(edges)
        return cls(edges, heights, points, masses, levels, dist.quantile(levels)[0])


def quantile_table(
    now: ConditionalDistribution, pinned: ConditionalDistribution | None = None
) -> pd.DataFrame:
    """Mean and quantiles, and their differences from those of a pinned distribution.

    Example:
        >>> from gentle import QuantileTable
        >>> now, pinned = QuantileTable.of_sample([1.0]), QuantileTable.of_sample([3.0])
        >>> quantile_table(now, pinned).loc["mean"].tolist()
        [1.0, 3.0, -2.0]
    """
    found = {"now": _numbers(now)}
    if pinned is not None:
        found["pinned"] = _numbers(pinned)
        found["now − pinned"] = found["now"] - found["pinned"]
    rows = ["mean", *(f"{100 * level:g} %" for level in LEVELS)]
    return pd.DataFrame(found, pd.Index(rows))


def exceedance(dist: ConditionalDistribution, threshold: float) -> float:
    """P(Y > threshold) in the only row of a distribution.

    Example:
        >>> from gentle import QuantileTable
        >>> exceedance(QuantileTable.of_sample([1.0, 2.0, 3.0, 4.0]), 3.0)
        0.25
    """
    return float(1 - dist.cdf(threshold)[0])


def distance(one: ConditionalDistribution, other: ConditionalDistribution) -> float:
    """Wasserstein-1 distance between the only rows of two distributions, in units of y.

    Example:
        >>> from gentle import QuantileTable
        >>> distance(QuantileTable.of_sample([0.0, 1.0]), QuantileTable.of_sample([5.0, 6.0]))
        5.0
    """
    levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
    return float(wasserstein(one.quantile(levels)[0], other.quantile(levels)[0]))


def window(marginal: ConditionalDistribution, *shapes: Shape) -> tuple[float, float]:
    """Where to look: the middle of all responses, and all of each shape but its farthest tails.

    It hardly moves with the covariate, so that the eye sees the curve move.
    """
    ends = [*marginal.quantile([0.01, 0.99])[0]]
    for shape in shapes:
        ends += [shape.edges[0], shape.edges[-1], *shape.points]
    margin = 0.03 * (max(ends) - min(ends)) or 0.5
    return float(min(ends) - margin), float(max(ends) + margin)


def in_words(value: float, spread: float) -> str:
    """A number with as many decimals as the spread of such numbers deserves.

    Example:
        >>> in_words(12345.678, 30_000.0), in_words(0.12345, 0.5), in_words(np.inf, 1.0)
        ('12,346', '0.1235', '∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if not 1e-6 < spread < 1e12:
        return f"{value:.4g}"
    return f"{value:,.{max(0, digits_of(spread))}f}"


def digits_of(spread: float) -> int:
    """Decimals that give four digits to the spread of numbers; tens are -1, hundreds -2.

    Example:
        >>> digits_of(0.5), digits_of(70.0), digits_of(30_000.0)
        (4, 2, -1)
    """
    return 3 - math.floor(math.log10(spread)) if 0 < spread < math.inf else 3


def _numbers(dist: ConditionalDistribution) -> Floats:
    return np.append(dist.mean(), dist.quantile(LEVELS)[0])
