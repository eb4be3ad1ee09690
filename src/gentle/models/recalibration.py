"""A model's levels against those of responses that it has not seen, and how to correct them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gentle.distribution import ConditionalDistribution, QuantileTable, RepeatedDistribution

Floats = NDArray[np.float64]

# A score from 0 to 1 says where a response lies. From _INSIDE to 1 - _INSIDE: in the support of the
# model's distribution. Next to that: between the support and an extreme training response, then at
# this response, then (below BEYOND) farther out than anything.
_INSIDE, _EXTREME, BEYOND = 1 / 4, 1 / 8, 1 / 16
_GAPS = 2.0**-10  # share of the scores given to gaps in the support, if responses lie there
N_LEVELS = 40  # recalibrated distributions are exact at 1/40, 2/40, ...
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Recalibration:
    """From the distributions of a model to recalibrated ones.

    A model's quantile function Q(x, ·) is extended to an increasing family of values that reaches
    from the smallest to the largest training response at least; the score V of a response is its
    place in this family, drawn at random where an atom has many. A new row's V is equally likely to
    fall into any of the n + 1 intervals between the scores of n exchangeable rows.

    Attributes:
        low: The smallest training response.
        high: The largest.
        gaps: Share of the family that lies in gaps of the support.
        scores: Of the calibration rows, increasing, ``(n,)``.
        levels: P(V ≤ scores) of a new row: k / (n + 1), if weights are equal. ``(n,)``
    """

    low: float
    high: float
    gaps: float
    scores: Floats
    levels: Floats

    @classmethod
    def of(
        cls,
        parts: Iterator[tuple[ConditionalDistribution, Floats]],
        weight: Floats,
        ends: tuple[float, float],
        rng: np.random.Generator,
    ) -> Recalibration:
        """Learn it from distributions and responses, in parts, and the weights of all, ``(n,)``."""
        plain, wide = (cls(*ends, gaps, np.zeros(0), np.zeros(0)) for gaps in (0.0, _GAPS))
        found, in_gaps = [], False
        for dist, y in parts:
            first, last = dist.quantile([0.0, 1.0]).T
            impossible = np.isneginf(dist.log_prob(y)) & (first < y) & (y < last)
            in_gaps = in_gaps or bool(impossible.any())
            u = rng.random(len(y))
            found.append(np.stack([plain.score(dist, y, u), wide.score(dist, y, u)]))
        chosen = wide if in_gaps else plain
        scores = np.concatenate(found, axis=1)[int(in_gaps)]
        order = np.argsort(scores)
        total = np.cumsum(weight[order] / weight.mean())
        return cls(*ends, chosen.gaps, scores[order], total / (total[-1] + 1))

    def extended(self, dist: ConditionalDistribution) -> ConditionalDistribution:
        """The family of values at scores from 0 to 1, as if these were levels."""
        if isinstance(dist, RepeatedDistribution):
            return self._table(dist._one).repeat(len(dist))
        return self._table(dist)

    def _table(self, dist: Any) -> QuantileTable:
        inner = dist.levels
        if self.gaps:
            steps = np.cumsum(np.diff(dist.values, prepend=dist.values[:, :1]) > 0, axis=1)
            total = steps[:, -1:]
            even = np.where(total > 0, steps / np.maximum(total, 1), dist._row_levels)
            inner = (1 - self.gaps) * inner + self.gaps * even
        around = np.broadcast_to([0.0, _EXTREME], (*inner.shape[:-1], 2))
        scores = _INSIDE + (1 - 2 * _INSIDE) * inner
        scores = np.concatenate([around, scores, 1 - around[..., ::-1]], axis=-1)
        low = np.minimum(dist.values[:, :1], self.low)
        high = np.maximum(dist.values[:, -1:], self.high)
        return QuantileTable(scores, np.hstack([low, low, dist.values, high, high]), dist._spread)

    def score(self, dist: ConditionalDistribution, y: Floats, u: Floats) -> Floats:
        """Places of responses in the family, ``(n,)``; where there are many, ``u`` decides."""
        both = np.column_stack([np.nextafter(y, -np.inf), y])
        least, most = self.extended(dist).cdf(both).T
        first, last = dist.quantile([0.0, 1.0]).T
        low, high = np.minimum(first, self.low), np.maximum(last, self.high)
        # An atom at the end of the support is scored as the atom that it is, not as an extreme.
        floor = np.select([y >= first, y >= low], [_INSIDE, BEYOND], 0.0)
        ceiling = np.select([y <= last, y <= high], [1 - _INSIDE, 1 - BEYOND], 1.0)
        least = np.minimum(np.maximum(least, floor), 1 - BEYOND)
        most = np.maximum(np.minimum(most, ceiling), BEYOND)
        return least + u * (most - least)

    def apply(self, dist: ConditionalDistribution) -> ConditionalDistribution:
        """The recalibrated distributions."""
        if isinstance(dist, RepeatedDistribution):
            return self._recalibrated(dist._one).repeat(len(dist))
        return self._recalibrated(dist)

    def _recalibrated(self, dist: Any) -> QuantileTable:
        wide, (knots, levels) = self._table(dist), self._knots()
        at = wide.ppf(np.broadcast_to(knots, (len(wide), len(knots))))
        among = np.broadcast_to(knots, (*wide.levels.shape[:-1], len(knots)))
        # Scores and values increase together, so that sorting each by itself keeps the pairs.
        scores = np.sort(np.concatenate([wide.levels, among], axis=-1), axis=-1)
        values = np.sort(np.concatenate([wide.values, at], axis=1), axis=1)
        mapped = np.interp(scores, knots, levels)
        mapped[..., 0], mapped[..., -1] = 0.0, 1.0
        return QuantileTable(mapped, values.clip(at[:, :1], at[:, -1:]), wide._spread)

    def _knots(self) -> tuple[Floats, Floats]:
        """Scores and the levels to which they belong; in between the line is straight."""
        levels = np.arange(1, N_LEVELS) / N_LEVELS
        levels = levels[(levels >= self.levels[0]) & (levels <= self.levels[-1])]
        knots = np.interp(levels, self.levels, self.scores)
        # Beyond the first and the last score nothing is known: the support ends where the model's
        # does, or if responses were found outside, one step after the last of them.
        s = self.scores
        start = _INSIDE if s[0] >= _INSIDE else max(0.0, 2 * s[0] - s[1])
        end = 1 - _INSIDE if s[-1] <= 1 - _INSIDE else min(1.0, 2 * s[-1] - s[-2])
        return np.concatenate([[start], knots, [end]]), np.concatenate([[0.0], levels, [1.0]])

    def scores_around(self, coverage: float) -> tuple[float, float]:
        """Two scores between which a new row's lies with at least this probability."""
        a, b = (1 - coverage) / 2, (1 + coverage) / 2
        below = int(np.searchsorted(self.levels, a + _ROUNDING, "right")) - 1
        above = int(np.searchsorted(self.levels, b - _ROUNDING, "left"))
        low = 0.0 if below < 0 else float(self.scores[below])
        high = 1.0 if above == len(self.scores) else float(self.scores[above])
        return low, high

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays, and what fits into JSON."""
        facts = {"low": self.low, "high": self.high, "gaps": self.gaps}
        return {"scores": self.scores, "levels": self.levels}, facts

    @classmethod
    def restored(cls, arrays: dict[str, Any], facts: dict[str, Any]) -> Recalibration:
        """From what may be anything: a ValueError unless `state` could have given it."""
        scores, levels = (np.asarray(arrays[name], np.float64) for name in ("scores", "levels"))
        low, high, gaps = (float(facts[name]) for name in ("low", "high", "gaps"))
        if not (
            scores.shape == levels.shape == (scores.size,)
            and scores.size > 1
            and np.all((scores >= 0) & (scores <= 1) & (levels > 0) & (levels < 1))
            and np.all(np.diff(scores) >= 0)
            and np.all(np.diff(levels) > 0)
            and low <= high
            and 0 <= gaps < 1
        ):
            raise ValueError("its recalibration is damaged")
        return cls(low, high, gaps, scores, levels)
