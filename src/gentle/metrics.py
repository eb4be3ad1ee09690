"""How good is a model? Scores on held-out responses, and what a perfect model would score there.

Two kinds of score stand side by side. CRPS, pinball loss and interval score are proper for every
single response, so they can be averaged over any table. The distances of the paper's tables,
Wasserstein (WD) and Kolmogorov-Smirnov (KS), compare whole distributions. W₁(P, δ_y) = E|Y - y| is
smallest for a point mass, so with few responses per covariate they would reward models that are
too narrow; they are taken only where a covariate was seen often.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns, taken
from gentle.data import Grouped
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.scoring import (
    CoverageScorer,
    CRPSScorer,
    IntervalScorer,
    PinballScorer,
    crps_of_draws,
    interval_score,
    pinball,
)
from gentle.streams import Seed, as_seed
from gentle.transport import ks, wasserstein

__all__ = [
    "evaluate",
    "noise_floor",
    "Scores",
    "crps_of_draws",
    "pinball",
    "interval_score",
    "CRPSScorer",
    "PinballScorer",
    "IntervalScorer",
    "CoverageScorer",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEVELS = np.arange(1, 10) / 10  # of the mean pinball loss
_COVERAGE = 0.9  # of the central interval


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model scored, at the finest grain.

    Attributes:
        records: One row per distinct covariate, in order of appearance:

            - ``covariate``, ``first_row``: its number, and where it stands first in the table;
            - ``n_responses``, ``weight``: rows of positive weight, and the sum of their weights;
            - ``mean``, ``predicted_mean``, ``squared_error``: of the held-out responses, of the
              model (exact, not from draws), and the square of the difference;
            - ``crps``, ``pinball``, ``interval_score``, ``covered``: weighted means over the
              responses of the exact CRPS, of the pinball loss averaged over the levels 0.1, ...,
              0.9, of the score of the central 90 % interval, and of lying inside that interval;
            - ``wd``, ``ks``: 1-Wasserstein (in units of the response) and Kolmogorov-Smirnov
              distance of the model's draws to the weighted responses; NaN if these are too few.
    """

    records: pd.DataFrame

    def summary(self) -> dict[str, float]:
        """The averages that tables print.

        ``wd``, ``ks``, ``mse`` and ``r2`` count every covariate once, as the paper does. ``wd`` and
        ``ks`` are over the ``n_repeated`` covariates that have them, NaN if none has. ``mse`` and
        ``r2`` = 1 - Σ (mean - predicted_mean)² / Σ (mean - average of the means)² are over all
        covariates, since squared error is proper for any number of responses; with one response
        each they are those of plain regression. ``crps``, ``pinball``, ``interval_score`` and
        ``coverage`` count every response with its weight.
        """
        table = self.records
        averages: Any = table[["wd", "ks", "squared_error"]].mean()  # skips NaN
        per_covariate = averages.tolist()
        columns = ["crps", "pinball", "interval_score", "covered"]
        per_response = np.average(table[columns], axis=0, weights=table["weight"]).tolist()
        means = table["mean"].to_numpy()
        varied = np.ptp(means) > 1e-12 * np.abs(means).max()  # else there is nothing to explain
        return {
            **dict(zip(["wd", "ks", "mse"], per_covariate)),
            "r2": float(1 - per_covariate[-1] / means.var()) if varied else np.nan,
            **dict(zip(["crps", "pinball", "interval_score", "coverage"], per_response)),
            "n_covariates": len(table),
            "n_repeated": int(table["wd"].notna().to_numpy().sum()),
            "n_responses": int(table["n_responses"].to_numpy().sum()),
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:<15}{value:>12.5g}" for name, value in self.summary().items())


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    n_samples: int = 10_000,
    random_state: Seed = 0,
    min_responses: int = 20,
) -> Scores:
    """Score a model against held-out responses, one record per distinct covariate.

    Args:
        model: Anything with ``predict_dist(X)`` that returns a `ConditionalDistribution`, or else
            with ``sample(X, n_samples, random_state)``, whose draws then stand for it throughout.
        X: Covariates, array or DataFrame, ``(N, d)``; equal rows are one covariate.
        y: Held-out responses, ``(N,)``.
        sample_weight: Non-negative weights of the rows, ``(N,)``; a weight of k scores like k
            copies of the row, but still counts as one row for ``min_responses``.
        n_samples: Draws of the model per covariate, for ``wd`` and ``ks``.
        random_state: Seed of those draws. From ``predict_dist`` they depend on it and on the
            covariate alone, so neither row order nor the other covariates change a record.
        min_responses: Rows that a covariate must have for ``wd`` and ``ks``.

    Returns:
        The records; `Scores.summary` averages them.

    Example:
        >>> class Uniform:
        ...     def predict_dist(self, X):
        ...         return QuantileTable([0.0, 1.0], np.tile([0.0, 1.0], (len(X), 1)))
        >>> scores = evaluate(Uniform(), np.zeros((25, 1)), np.linspace(0, 1, 25), n_samples=100)
        >>> round(scores.summary()["crps"], 3)
        0.174
    """
    held_out = _HeldOut.of(X, y, sample_weight)
    return _scores(model, held_out, n_samples, as_seed(random_state), min_responses)


def noise_floor(
    truth: Any,
    X: Any,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    n_repeats: int = 20,
    n_samples: int = 10_000,
    random_state: Seed = 0,
    min_responses: int = 20,
) -> pd.DataFrame:
    """What a perfect model would score on a table of these covariates, counts and weights.

    Held-out responses are a sample, so no model scores zero against them. Here they are drawn from
    ``truth``, as many for each covariate as it has rows, and ``truth`` itself is scored against
    them as in `evaluate`; again and again. A model within the spread of this floor is as good as
    these data can tell.

    Args:
        truth: Anything with ``sample(X, n_samples, random_state)``: a simulator, a benchmark's
            truth, a fitted model (say, of nearest neighbours). None lets each covariate's own
            responses in ``y`` be its distribution (the bootstrap), without covariates of fewer
            than ``min_responses``; their variance being too small by a factor of about
            1 - 1 / n_responses, that floor is slightly too low.
        X: Covariates, ``(N, d)``.
        y: Responses, ``(N,)``; used only if ``truth`` is None.
        sample_weight: Weights of the rows, ``(N,)``.
        n_repeats: Repetitions, at least 2.
        n_samples: Draws per covariate, as in `evaluate`.
        random_state: Seed.
        min_responses: As in `evaluate`.

    Returns:
        One row per entry of `Scores.summary`, with columns ``mean`` and ``sd`` over repetitions.

    Example:
        >>> class Coin:
        ...     def sample(self, X, n_samples, random_state):
        ...         rng = np.random.default_rng(random_state)
        ...         return rng.integers(0, 2, (len(X), n_samples))
        >>> floor = noise_floor(Coin(), np.zeros((100, 1)), n_repeats=50)
        >>> floor.loc["ks"].round(2).tolist()  # E|share of heads - 1/2| = 0.04
        [0.04, 0.03]
    """
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, got {n_repeats}")
    if truth is None and y is None:
        raise ValueError("truth and y are both None: pass a truth, or the responses to resample")
    held_out = _HeldOut.of(X, np.zeros(len(X)) if y is None else y, sample_weight)
    if truth is None:
        held_out = held_out.take(np.flatnonzero(held_out.table.counts >= min_responses))
        if not len(held_out.table):
            raise ValueError(
                f"no covariate has {min_responses} responses, so that its own could stand for its "
                "distribution. Pass a truth, or lower min_responses."
            )
        truth = _OwnResponses(held_out.table)
        held_out = replace(held_out, rows=np.arange(len(held_out.table)))
    rng = np.random.default_rng(as_seed(random_state))
    runs = []
    for _ in range(n_repeats):
        fresh = _simulated(held_out, truth, rng)
        runs.append(_scores(truth, fresh, n_samples, as_seed(rng), min_responses).records)
    # A perfect model knows its mean. One set of draws misses it by as much as n_samples responses
    # do, all sets together by much less.
    mean = np.mean([run["predicted_mean"] for run in runs], axis=0)
    for run in runs:
        run["predicted_mean"], run["squared_error"] = mean, (run["mean"] - mean) ** 2
    summaries = pd.DataFrame([Scores(run).summary() for run in runs])
    return pd.DataFrame({"mean": summaries.mean(), "sd": summaries.std()})


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Held-out responses by covariate, and the covariates as the model wants them."""

    table: Grouped  # of n distinct covariates
    rows: Any  # those covariates in the type and with the columns of the user's table, (n, d)
    first: Ints  # where each stands first in that table, (n,)

    @classmethod
    def of(cls, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> _HeldOut:
        values = Columns.of(X).keys()
        y = _column("y", y, len(values))
        weight = np.ones(len(values)) if sample_weight is None else sample_weight
        weight = _column("sample_weight", weight, len(values))
        if np.any(weight < 0) or not np.any(weight > 0):
            raise ValueError(
                "sample_weight must not be negative, and must be positive for at least one row; "
                f"it runs from {weight.min()} to {weight.max()}"
            )
        used = np.flatnonzero(weight > 0)
        numbered = Grouped.of(values[used], used.astype(np.float64))  # rows in place of responses
        row = numbered.y.astype(np.int64)  # (N,)
        first = row[numbered.start[:-1]]
        return cls(replace(numbered, y=y[row], weight=weight[row]), taken(X, first), first)

    def take(self, which: Ints) -> _HeldOut:
        return _HeldOut(self.table.take(which), taken(self.rows, which), self.first[which])

    def chunks(self, n_samples: int = 0) -> Iterator[tuple[Ints, _HeldOut]]:
        """Parts of bounded memory."""
        # Beside responses and draws a thousand cells, about the knots of a distribution.
        for which in self.table.chunks(extra_cells=n_samples + 1000):
            yield which, self.take(which)


class _OwnResponses:
    """Each covariate's responses as its distribution; the rows are the covariates' numbers."""

    def __init__(self, table: Grouped) -> None:
        self.table = table

    def predict_dist(self, rows: Ints) -> QuantileTable:
        return QuantileTable.of_sample(*self.table.take(rows).padded())

    def sample(self, rows: Ints, n_samples: int, random_state: Seed) -> Floats:
        return self.predict_dist(rows).sample(n_samples, random_state)


def _simulated(held_out: _HeldOut, truth: Any, rng: np.random.Generator) -> _HeldOut:
    """The same covariates, counts and weights with responses drawn anew."""
    table = held_out.table
    y = np.empty_like(table.y)
    for which, part in held_out.chunks():
        rows, owner = table.rows(which)
        draws = _drawn(truth, part.rows, int(part.table.counts.max()), rng)
        y[rows] = draws[owner, rows - table.start[which][owner]]
    return replace(held_out, table=replace(table, y=y))


def _drawn(truth: Any, rows: Any, n_samples: int, rng: np.random.Generator) -> Floats:
    draws = np.asarray(truth.sample(rows, n_samples, rng), np.float64)
    if draws.shape != (len(rows), n_samples):
        expected = f"{len(rows)} rows of {n_samples} draws"
        raise ValueError(f"sample() gave an array of shape {draws.shape}, expected {expected}")
    return draws


def _predicted(
    model: Any, part: _HeldOut, n_samples: int, seed: int, wants_draws: bool
) -> tuple[ConditionalDistribution, Floats | None]:
    """The distributions of n covariates and, where wanted, draws from them ``(n, n_samples)``."""
    if not hasattr(model, "predict_dist"):  # a simulator: known by its draws only
        draws = _drawn(model, part.rows, n_samples, np.random.default_rng([seed, part.first[0]]))
        return QuantileTable.of_sample(draws), draws
    dist = model.predict_dist(part.rows)
    if not wants_draws:
        return dist, None
    keys = np.ascontiguousarray(part.table.x + 0.0).view(np.uint32)  # (n, 2d); -0.0 equals 0.0
    u = [np.random.default_rng([seed, *key]).random(n_samples) for key in keys]
    return dist, dist.sample(u=np.stack(u))


def _scores(
    model: Any, held_out: _HeldOut, n_samples: int, seed: int, min_responses: int
) -> Scores:
    for name, count in (("n_samples", n_samples), ("min_responses", min_responses)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    parts = []
    for which, part in held_out.chunks(n_samples):
        often = part.table.counts >= min_responses
        dist, draws = _predicted(model, part, n_samples, seed, wants_draws=bool(often.any()))
        facts = {"covariate": which, "first_row": part.first}
        record = pd.DataFrame(facts | _scored(part.table, dist, draws))
        record.loc[~often, ["wd", "ks"]] = np.nan
        parts.append(record)
    return Scores(pd.concat(parts).sort_values("covariate", ignore_index=True))


def _scored(table: Grouped, dist: ConditionalDistribution, draws: Floats | None) -> dict[str, Any]:
    """The scores of n covariates, each ``(n,)``."""
    y, weight = table.padded()  # (n, m)
    total = weight.sum(axis=1)

    def average(score: Any) -> Floats:
        return (weight * score).sum(axis=1) / total

    mean, predicted = average(y), dist.mean()
    quantiles = dist.quantile(_LEVELS).T[:, :, None, None]  # (levels, n, 1, 1)
    losses = [average(pinball(q, y, a)[..., 0]) for q, a in zip(quantiles, _LEVELS)]
    lower, upper = dist.interval(_COVERAGE).T[:, :, None]  # both (n, 1)
    scores = {
        "n_responses": table.counts,
        "weight": total,
        "mean": mean,
        "predicted_mean": predicted,
        "squared_error": (mean - predicted) ** 2,
        "crps": average(dist.crps(y)),
        "pinball": np.mean(losses, axis=0),
        "interval_score": average(interval_score(lower, upper, y, _COVERAGE)),
        "covered": average((lower <= y) & (y <= upper)),
    }
    if draws is None:
        return scores | {"wd": np.nan, "ks": np.nan}
    needed = None if np.all(weight == weight[:, :1]) else weight  # without weights it is faster
    distances = {"wd": wasserstein, "ks": ks}
    return scores | {name: d(draws, y, b_weights=needed) for name, d in distances.items()}


def _column(name: str, values: ArrayLike, n_rows: int) -> Floats:
    column = np.asarray(values, np.float64)
    if column.size != n_rows:
        raise ValueError(f"{name} has shape {column.shape}, but X has {n_rows} rows")
    column = column.ravel()
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise ValueError(f"{name} is {column[row]} in row {row}; drop rows that are not finite")
    return column
