"""What one asks a metamodel: risk at some inputs, and how two of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.distribution import ConditionalDistribution
from gentle.models import checks
from gentle.populations import Population, exceedance
from gentle.resampling import Source, replicates
from gentle.streams import Seed, as_seed

Floats = NDArray[np.float64]
Tail = Literal["upper", "lower"]

_N_TAIL = 1000  # levels over which the tail's mean is taken


def risk(
    model: Any,
    X: Any,
    *,
    level: float = 0.95,
    tail: Tail = "upper",
    thresholds: Sequence[float] = (),
    mixed: bool = False,
    data: tuple[Any, ArrayLike] | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    uncertainty: Source = "bootstrap",
    n_boot: int = 50,
    confidence: float = 0.95,
    n_workers: int = 1,
    random_state: Seed = 0,
    verbose: int = 1,
) -> pd.DataFrame:
    """Value at risk, conditional value at risk and threshold probabilities, with intervals.

    With ``tail="upper"``, where large outputs are bad, VaR = Q(level) and CVaR = the mean of the
    worst share 1 - level, ∫ Q(u) du / (1 - level) over u from level to 1. With ``tail="lower"``,
    where small ones are, they are Q(1 - level) and the mean below it.

    Args:
        model: A fitted model.
        X: Inputs, ``(n, d)``.
        level: Between 0 and 1.
        tail: Where the bad outputs are.
        thresholds: For each t also P(Y > t).
        mixed: Ask about the mixture over all rows of X, in place of each row.
        data: The ``(X, y)`` to which the model was fitted, for the bootstrap. Without them there
            are intervals from an ensemble, or none.
        sample_weight: Weights of the rows of ``data``.
        groups: Group of each row of ``data``, such as its input if there are several runs of each;
            the bootstrap draws whole groups.
        uncertainty: "bootstrap" refits the model; "ensemble" uses the parts of a default `GENTLE`.
        n_boot: Number of refits.
        confidence: Of the intervals, each for itself.
        n_workers: Processes that share the refits.
        random_state: Seed.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        A row per row of X and measure, in the columns ``row`` (unless mixed), ``measure``,
        ``value`` and, with intervals, ``lower`` and ``upper``. Intervals know of the chance of the
        runs, not of a model that is wrong: `validate` does.

    Example:
        >>> from gentle import KNN
        >>> X, y = np.zeros((1000, 1)), np.arange(1000.0)
        >>> model = KNN(n_neighbors=1000).fit(X, y)
        >>> risk(model, X[:1], level=0.9, thresholds=[249.0])[["measure", "value"]].round(1)
            measure  value
        0   VaR 90%  899.0
        1  CVaR 90%  949.5
        2  P(> 249)    0.8
    """
    if not 0 < level < 1 or not 0 < confidence < 1:
        raise ValueError(f"level and confidence must lie in (0, 1), got {level} and {confidence}")
    if tail not in ("upper", "lower"):
        raise ValueError(f"tail must be 'upper' or 'lower', got {tail!r}")
    ask = _Risk(X, level, tail, np.asarray(thresholds, float), mixed)
    value = ask(model, np.empty(0))  # (n, measures)
    percent = f"{100 * level:g}%"
    measures = [f"VaR {percent}", f"CVaR {percent}", *(f"P(> {t:g})" for t in thresholds)]
    rows = {} if mixed else {"row": np.repeat(np.arange(len(value)), len(measures))}
    table = pd.DataFrame(rows | {"measure": np.tile(measures, len(value)), "value": value.ravel()})
    if data is None and uncertainty == "bootstrap":
        return table
    y, weight = np.empty(0), np.empty(0)
    if data is not None:
        y, weight = checks.responses(data[1], sample_weight, len(data[0]), "risk")
    again = replicates(
        ask,
        model,
        None if data is None else data[0],
        y,
        weight,
        uncertainty=uncertainty,
        groups=groups,
        n_boot=n_boot,
        n_workers=n_workers,
        random_state=random_state,
        verbose=verbose,
    ).of(lambda values: values.reshape(len(values), -1))
    ends = again.bands(value.ravel(), confidence)
    return table.assign(lower=ends["lower"], upper=ends["upper"])


@dataclass(frozen=True, eq=False)
class _Risk:
    """The statistic of `risk`."""

    X: Any
    level: float
    tail: Tail
    thresholds: Floats
    mixed: bool

    def __call__(self, model: Any, weight: Floats) -> Floats:
        """VaR, CVaR and exceedances, ``(n, 2 + k)``."""
        if not self.mixed:
            dist = model.predict_dist(self.X)
            return np.column_stack([*self._tail(dist), exceedance(dist, self.thresholds)])
        people = Population.of(self.X)
        above = people.average(model.predict_dist, lambda dist: exceedance(dist, self.thresholds))
        tail = self._tail(people.mixture(model.predict_dist))
        return np.concatenate([*tail, above])[None]

    def _tail(self, dist: ConditionalDistribution) -> tuple[Floats, Floats]:
        share = (np.arange(_N_TAIL) + 0.5) / _N_TAIL * (1 - self.level)
        at, beyond = 1 - self.level, share
        if self.tail == "upper":
            at, beyond = self.level, 1 - share
        return dist.quantile(at), dist.quantile(beyond).mean(axis=1)


@dataclass(frozen=True, eq=False)
class Contrast:
    """Two inputs, compared on common random numbers.

    Attributes:
        first: Outputs at the first inputs, ``(n, m)``.
        second: Outputs at the second, on the same levels u, ``(n, m)``.
        difference: Means of second - first, ``(n,)``.
        standard_error: Of these means over m draws, ``(n,)``.
        independent_error: What it would be if the second outputs had levels of their own, ``(n,)``.
        larger: Share of the levels at which the second output is larger, ``(n,)``. It is no
            probability that the second input is better for somebody: which outputs belong together
            is a choice, and here the u-quantile of one goes with the u-quantile of the other.
    """

    first: Floats
    second: Floats
    difference: Floats
    standard_error: Floats
    independent_error: Floats
    larger: Floats

    @property
    def variance_reduction(self) -> Floats:
        """Times that independent draws would have to be more for the same error, ``(n,)``."""
        with np.errstate(divide="ignore", invalid="ignore"):  # outputs that differ by a constant
            return (self.independent_error / self.standard_error) ** 2


def contrast(
    model: Any,
    first: Any,
    second: Any,
    n_draws: int = 1000,
    u: ArrayLike | None = None,
    random_state: Seed = 0,
) -> Contrast:
    """Compare inputs on common random numbers: both get the outputs of the same levels u.

    T(x, u) is nondecreasing in u, so that common levels couple the two distributions as closely as
    their shapes allow: no other coupling has a smaller variance of the difference.

    Args:
        model: A fitted model.
        first: Inputs, ``(n, d)``.
        second: Inputs to compare with, row by row, ``(n, d)``.
        n_draws: Number m of draws.
        u: Levels in [0, 1] in place of random ones, ``(m,)``.
        random_state: Seed of the levels.

    Example:
        >>> from gentle import KNN
        >>> X = np.repeat([[0.0], [1.0]], 500, axis=0)
        >>> y = np.tile(np.arange(500.0), 2) + 3 * X[:, 0]
        >>> model = KNN(n_neighbors=500).fit(X, y)
        >>> found = contrast(model, [[0.0]], [[1.0]])
        >>> found.difference.tolist(), bool(found.variance_reduction > 1000)
        ([3.0], True)
    """
    levels = np.random.default_rng(as_seed(random_state)).random(n_draws) if u is None else u
    a, b = model.sample(first, u=levels), model.sample(second, u=levels)
    if a.shape != b.shape:
        raise ValueError(f"there are {len(a)} first and {len(b)} second inputs; pass as many")
    m = a.shape[1]
    if m < 2:
        raise ValueError(f"a standard error needs at least 2 draws, got {m}")
    gap = b - a
    apart = np.sqrt((a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / m)
    return Contrast(
        a, b, gap.mean(axis=1), gap.std(axis=1, ddof=1) / np.sqrt(m), apart, (gap > 0).mean(axis=1)
    )
