"""The statistic behind effects, and from it to tables with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.distribution import ConditionalDistribution
from gentle.effects.results import Effects
from gentle.populations import Population, exceedance
from gentle.resampling import replicates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Estimand = Literal["population", "conditional"]

_ESTIMANDS = {
    "population": "differences of the quantiles of the population's two distributions of responses "
    "(the rows' distributions mixed).",
    "conditional": "means over the population of the differences of each row's own quantiles.",
}


@dataclass(frozen=True, eq=False)
class Ask:
    """What is asked of a fitted model: a statistic for `replicates`."""

    before: Any  # the population's covariates, (n, d)
    after: Any
    own: Ints | None  # rows of the data that the population is; None: it is given, and stays
    levels: Floats
    thresholds: Floats
    estimand: Estimand

    def __post_init__(self) -> None:
        if self.estimand not in _ESTIMANDS:
            raise ValueError(
                f"estimand must be 'population' or 'conditional', got {self.estimand!r}"
            )
        if self.levels.ndim != 1 or not np.all((self.levels > 0) & (self.levels < 1)):
            raise ValueError(f"levels must lie between 0 and 1, got {self.levels.tolist()}")

    def __call__(self, model: Any, weight: Floats) -> Floats:
        """Mean, quantiles, exceedances before and after, ``(2, 1 + m + k)``."""
        share = None if self.own is None else weight[self.own]
        return np.stack(
            [self._profile(model.predict_dist, X, share) for X in (self.before, self.after)]
        )

    def _profile(self, predict: Any, X: Any, share: Floats | None) -> Floats:
        people, m = Population.of(X, share), len(self.levels)
        means = people.average(predict, self._of_rows)  # (1 + m + k,)
        if self.estimand == "population":
            means[1 : 1 + m] = people.mixture(predict).quantile(self.levels)[0]
        return means

    def _of_rows(self, dist: ConditionalDistribution) -> Floats:
        above = exceedance(dist, self.thresholds)
        return np.column_stack([dist.mean(), dist.quantile(self.levels), above])


def compared(
    ask: Ask,
    model: Any,
    data: tuple[Any, Floats, Floats],
    names: tuple[str, str],
    how: dict[str, Any],
    confidence: float,
    **words: Any,
) -> Effects:
    """Estimates and intervals as tables."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    before, after = ask(model, data[2])
    again = None
    if how["uncertainty"] is not None:
        again = replicates(ask, model, *data, **how).of(lambda values: values[:, 1] - values[:, 0])
    m = len(ask.levels)
    parts = {"mean": slice(0, 1), "quantiles": slice(1, 1 + m), "thresholds": slice(1 + m, None)}
    first = {"quantiles": {"level": ask.levels}, "thresholds": {"threshold": ask.thresholds}}
    tables = {}
    for name, part in parts.items():
        table = first.get(name, {}) | dict(zip(names, (before[part], after[part])))
        table["effect"] = after[part] - before[part]
        if again is not None:
            ends = again.of(lambda values, part=part: values[:, part])
            table |= ends.bands(table["effect"], confidence)
        tables[name] = pd.DataFrame(table)
    if again is not None:
        tables["mean"] = tables["mean"].drop(columns=["uniform_lower", "uniform_upper"])
    uncertainty = "none were asked for."
    if again is not None:
        uncertainty = (
            f"{100 * confidence:g} %, from {again.words}; uniform ones hold all effects of a table "
            "at once."
        )
        if again.source == "ensemble":
            uncertainty += " The parts saw much the same rows: expect more chance than they show."
    return Effects(
        **tables,
        estimand=_ESTIMANDS[ask.estimand],
        uncertainty=uncertainty,
        confidence=confidence,
        **words,
    )
