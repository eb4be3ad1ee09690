"""How uncertain is what a fitted model says? Refits on resampled rows, or the parts of an average.

Whatever is asked is a statistic: a function of a fitted model and of row weights that returns an
array. Its replicates give standard errors, intervals for each entry, and bands for all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t
from sklearn.base import clone

from gentle.chunks import in_chunks
from gentle.distribution import ConditionalDistribution
from gentle.streams import Seed, as_seed
from gentle.workers import finished

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Statistic = Callable[[Any, Floats], Floats]
Source = Literal["bootstrap", "ensemble"]

_MEMBER_ROWS = 500  # answered together by all parts of an average


@dataclass(frozen=True, eq=False)
class Replicates:
    """A statistic again and again.

    Attributes:
        values: ``(B, ...)``.
        share: Weight of each, ``(B,)``, adding up to 1.
        source: Where they come from.
        words: The same in words.
    """

    values: Floats
    share: Floats
    source: Source
    words: str

    def of(self, change: Callable[[Floats], Floats]) -> Replicates:
        """The replicates of a function of the statistic."""
        return Replicates(change(self.values), self.share, self.source, self.words)

    def standard_error(self) -> Floats:
        """Weighted standard deviation of the replicates, ``(...)``."""
        gap = self.values - np.tensordot(self.share, self.values, axes=1)
        return np.sqrt(np.tensordot(self.share, gap**2, axes=1) / (1 - (self.share**2).sum()))

    def bands(self, estimate: Floats, confidence: float) -> dict[str, Floats]:
        """Intervals around m estimates, if the replicates are ``(B, m)``.

        Both are the estimate ± a multiple of its standard error. ``lower`` and ``upper`` are to
        hold one true value with probability ``confidence``. ``uniform_lower`` and ``uniform_upper``
        are to hold all m at once: the multiple is the quantile of the replicates' largest
        deviation (sup-t). An ensemble has too few parts to know that; there, Student's quantiles
        are divided among the m (Bonferroni).

        Args:
            estimate: ``(m,)``.
            confidence: Between 0 and 1.

        Returns:
            The four ends, each ``(m,)``.
        """
        error, tail = self.standard_error(), (1 - confidence) / 2
        if self.source == "ensemble":
            freedom = 1 / (self.share**2).sum() - 1
            one, all_ = (float(t.isf(tail / m, freedom)) for m in (1, len(estimate)))
        else:
            gap = np.abs(self.values - self.values.mean(axis=0))
            largest = np.divide(gap, error, out=np.zeros_like(gap), where=error > 0).max(axis=1)
            one = float(norm.isf(tail))
            all_ = max(one, float(np.quantile(largest, confidence, method="higher")))
        return {
            "lower": estimate - one * error,
            "upper": estimate + one * error,
            "uniform_lower": estimate - all_ * error,
            "uniform_upper": estimate + all_ * error,
        }


def replicates(
    statistic: Statistic,
    model: Any,
    X: Any,
    y: Floats,
    weight: Floats,
    *,
    uncertainty: Source,
    groups: ArrayLike | None = None,
    n_boot: int = 100,
    n_workers: int = 1,
    random_state: Seed = 0,
    verbose: int = 1,
) -> Replicates:
    """Replicates of a statistic of a fitted model.

    Args:
        statistic: Called with a fitted model and the weights of the rows of ``X``; with several
            workers it must be picklable.
        model: The fitted model.
        X: The rows that it was fitted to, ``(n, d)``.
        y: Their responses, ``(n,)``.
        weight: Their weights, ``(n,)``.
        uncertainty: "bootstrap" fits the model anew to rows drawn with replacement: the chance of
            the data and that of training both count. "ensemble" asks the parts of which a default
            `GENTLE` is the average: no refits, but the parts have seen much the same rows, so that
            the chance of the data counts only in part.
        groups: Group of each row, ``(n,)``; whole groups are then drawn.
        n_boot: Number of refits.
        n_workers: Processes that share the refits.
        random_state: Seed of the draws and of the refits.
        verbose: 0 is silent, otherwise a terminal shows a progress bar.

    Example:
        >>> from gentle import KNN
        >>> X, y = np.arange(40.0)[:, None] % 4, np.arange(40.0)
        >>> model = KNN(n_neighbors=10).fit(X, y)
        >>> found = replicates(lambda model, weight: model.predict([[2.0]]), model, X, y,
        ...     np.ones(40), uncertainty="bootstrap", n_boot=50)
        >>> found.values.shape, found.words
        ((50, 1), '50 refits to rows drawn with replacement')
    """
    if uncertainty == "ensemble":
        parts = _members(model)
        share = np.array([part.share for part in parts])
        each = np.stack([statistic(part, weight) for part in parts])
        return Replicates(each, share, "ensemble", f"disagreement of {len(parts)} parts")
    if uncertainty != "bootstrap":
        raise ValueError(
            f"uncertainty must be 'bootstrap', 'ensemble' or None, got {uncertainty!r}"
        )
    if n_boot < 2:
        raise ValueError(f"n_boot must be at least 2, got {n_boot}")
    unit = np.arange(len(y)) if groups is None else numbered(groups, len(y))
    seeds = np.random.SeedSequence(as_seed(random_state)).spawn(n_boot)
    items = [
        (i, statistic, model, X, y, _drawn(unit, seed) * weight, as_seed(seed))
        for i, seed in enumerate(seeds)
    ]
    values: dict[int, Any] = {}
    with _bar("refits", n_boot, verbose) as advance:
        results: Any = finished(_refit, items, n_workers)
        with closing(results):  # stops the workers, whatever happens here
            for (number, *_), result in results:
                if isinstance(result, Exception):
                    raise RuntimeError(
                        f"refit {number + 1} of {n_boot} failed: {result}"
                    ) from result
                values[number] = result
                advance()
    what = "rows" if groups is None else f"whole groups ({unit.max() + 1:,})"
    words = f"{n_boot} refits to {what} drawn with replacement"
    return Replicates(
        np.stack([values[i] for i in range(n_boot)]),
        np.full(n_boot, 1 / n_boot),
        "bootstrap",
        words,
    )


def _refit(
    number: int, statistic: Statistic, model: Any, X: Any, y: Floats, weight: Floats, seed: int
) -> Floats:
    """The statistic of the same model, fitted to resampled rows."""
    again: Any = clone(model)
    own = again.get_params()
    again.set_params(
        **{k: v for k, v in {"random_state": seed % 2**31, "verbose": 0}.items() if k in own}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each refit would repeat what the first fit has said
        again.fit(X, y, sample_weight=weight)
        return np.asarray(statistic(again, weight))


def _drawn(unit: Ints, seed: np.random.SeedSequence) -> Floats:
    """How often each row is drawn if as many units as there are are drawn with replacement."""
    n_units = int(unit.max()) + 1
    times = np.random.default_rng(seed).multinomial(n_units, np.full(n_units, 1 / n_units))
    return times[unit].astype(np.float64)


def numbered(groups: ArrayLike, n_rows: int) -> Ints:
    """The number of each row's group, from 0, ``(n,)``; a ValueError unless every row has one."""
    number, names = pd.factorize(pd.Series(groups).reset_index(drop=True))
    if len(number) != n_rows or (number < 0).any():
        raise ValueError(
            f"groups must name a group for each of {n_rows} rows; it has {len(number)} entries, "
            f"{int((number < 0).sum())} of them missing"
        )
    if len(names) < 2:
        raise ValueError(f"groups must name at least 2 groups to draw from, got {len(names)}")
    return number.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Member:
    """One part of an average, as a model."""

    model: Any
    number: int
    share: float

    def predict_dist(self, X: Any) -> ConditionalDistribution:
        def conditional(x: Floats) -> ConditionalDistribution:
            return self.model.ensemble_.parts(x)[self.number][1]

        return in_chunks(self.model._encoded_covariates(X), conditional, _MEMBER_ROWS)


def _members(model: Any) -> list[_Member]:
    """The parts of an average that have weight."""
    ensemble = getattr(model, "ensemble_", None)
    shares = [] if ensemble is None else ensemble.shares()
    members = [_Member(model, i, share) for i, share in enumerate(shares) if share > 0]
    if len(members) < 2:
        raise ValueError(
            f"this {type(model).__name__} is no average of several parts that could disagree; use "
            "uncertainty='bootstrap', or a default GENTLE"
        )
    return members


@contextmanager
def _bar(label: str, total: int, verbose: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, where this is a terminal; yields what advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    shown = verbose > 0 and (console.is_terminal or console.is_jupyter)
    with Progress(console=console, disable=not shown) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)
