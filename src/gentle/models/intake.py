"""From what users pass to `fit` to the distinct, weighted rows that models learn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns, as_pandas
from gentle.covariates import CovariateEncoder
from gentle.data import Grouped, Rows, Standardiser, merged_rows
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.models import checks

Floats = NDArray[np.float64]
EvalSet = tuple[Any, ArrayLike] | tuple[Any, ArrayLike, ArrayLike]

_N_PARTS = 1000  # of the distribution of the responses, for models that do not hold them
_N_ATOMS = 3
_ATOM_SHARE = 0.01  # smaller ones are not worth a word


@dataclass(frozen=True)
class CheckedRows:
    """Rows of positive weight.

    Attributes:
        table: Their covariates.
        y: Their responses, ``(n,)``.
        weight: Their weights, ``(n,)``.
        at: Where they stand in the user's table, ``(n,)``.
        n_given: Number of rows of that table.
    """

    table: Columns
    y: Floats
    weight: Floats
    at: NDArray[np.int64]
    n_given: int

    @classmethod
    def of(cls, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, model: str) -> CheckedRows:
        """What a user passes, checked."""
        table = checks.covariates(X, model)
        target, weight = checks.responses(y, sample_weight, len(table), model)
        at = np.flatnonzero(weight > 0)
        return cls(table.take(at), target[at], weight[at], at, len(table))

    @classmethod
    def of_eval(cls, eval_set: EvalSet, like: Columns, model: str) -> CheckedRows:
        """The rows of an ``eval_set``, whose columns must be those of the training table."""
        if not isinstance(eval_set, (tuple, list)) or len(eval_set) not in (2, 3):
            raise ValueError("eval_set must be a pair (X, y) or a triple (X, y, sample_weight)")
        weight = eval_set[2] if len(eval_set) == 3 else None
        rows = cls.of(eval_set[0], eval_set[1], weight, f"{model} (eval_set)")
        checks.same_columns(rows.table, len(like.columns), like.names, f"{model} (eval_set)")
        return rows

    def merged(self) -> CheckedRows:
        """Identical rows made one, sorted; weights of mean 1."""
        first, weight = merged_rows(self.table.keys(), self.y, self.weight)
        table, y, at = self.table.take(first), self.y[first], self.at[first]
        return replace(self, table=table, y=y, weight=weight, at=at)

    @property
    def marks(self) -> tuple[Grouped, ...]:
        """What else, beside the rows, tells a fit from others."""
        return ()

    def encoder(self) -> CovariateEncoder:
        """How the columns are encoded."""
        return CovariateEncoder.of(self.table, self.weight)

    def facts(self, merged: CheckedRows, n_covariates: int) -> TrainingFacts:
        """What a model learns from, given these rows merged."""
        return TrainingFacts.of(self, merged, n_covariates)

    def remembered(
        self, of_x: CovariateEncoder, of_y: Standardiser, keep_rows: bool, keep_responses: bool
    ) -> dict[str, Any]:
        """The fitted attributes of all models that follow from the training rows."""
        names, rows = self.table.names, None
        if keep_rows:
            rows = Rows(of_x.encode(self.table), self.y, self.weight)
        return {
            "n_features_in_": len(of_x.labels),
            "covariate_encoder_": of_x,
            "response_encoder_": of_y,
            "marginal_": distribution_of(self.y, self.weight, keep_rows or keep_responses),
            "training_rows_": rows,
        } | ({} if names is None else {"feature_names_in_": names})

    def grouped(self, of_x: CovariateEncoder, of_y: Standardiser) -> Grouped:
        """The rows in encoded units, merged where that makes them identical, by covariate."""
        x, y = of_x.encode(self.table), of_y.encode(self.y)
        first, weight = merged_rows(x, y, self.weight)
        return Grouped.of(x[first], y[first], weight)


@dataclass(frozen=True)
class TrainingFacts:
    """What a model has learned from, in numbers.

    Attributes:
        n_rows: Rows given.
        n_used: Rows of positive weight.
        n_distinct: Those that differ.
        n_covariates: Different covariates, as encoded.
        n_effective: Kish's effective number of rows, (Σw)² / Σw².
        low: The smallest response.
        high: The largest response.
        atoms: The most frequent responses, if any is frequent, with their shares.
        n_sampled: Rows of the sample from which columns and response were encoded, 0 if that were
            all; then ``n_distinct``, ``n_covariates`` and ``atoms`` are those of the sample.
    """

    n_rows: int
    n_used: int
    n_distinct: int
    n_covariates: int
    n_effective: float
    low: float
    high: float
    atoms: tuple[tuple[float, float], ...]
    n_sampled: int = 0

    @property
    def rank_error(self) -> float:
        """How far, with probability 95 %, any rank in the sample is off at most; 0 for no sample.

        By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart; weighted rows are counted as
        if all were worth the same, as many as they are worth together.
        """
        if not self.n_sampled:
            return 0.0
        n_worth = self.n_sampled * self.n_effective / self.n_used
        return math.sqrt(math.log(2 / 0.05) / (2 * n_worth))

    @classmethod
    def of(cls, given: CheckedRows, merged: CheckedRows, n_covariates: int) -> TrainingFacts:
        """The facts of a fit."""
        values, inverse = np.unique(merged.y, return_inverse=True)
        n_times = np.bincount(np.searchsorted(values, given.y), minlength=len(values))
        share = np.bincount(inverse.ravel(), merged.weight) / merged.weight.sum()
        often = np.argsort(-share, kind="stable")[:_N_ATOMS]
        atoms = [i for i in often if share[i] >= _ATOM_SHARE and n_times[i] > 1]
        w = given.weight / given.weight.max()
        return cls(
            given.n_given,
            len(given.y),
            len(merged.y),
            n_covariates,
            float(w.sum() ** 2 / (w**2).sum()),
            float(merged.y.min()),
            float(merged.y.max()),
            tuple((float(values[i]), float(share[i])) for i in atoms),
        )

    def state(self) -> dict[str, Any]:
        """What fits into JSON."""
        return asdict(self)

    @classmethod
    def restored(cls, facts: Any) -> TrainingFacts:
        """The facts from what may be anything: a ValueError unless `state` could have given it."""
        try:
            found = cls(**facts | {"atoms": tuple((v, p) for v, p in facts["atoms"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"its training facts are damaged ({error})") from None
        counts = [found.n_rows, found.n_used, found.n_distinct, found.n_covariates]
        floats = [found.n_effective, found.low, found.high, *(v for a in found.atoms for v in a)]
        if not (
            all(type(count) is int and count > 0 for count in counts)
            and type(found.n_sampled) is int
            and 0 <= found.n_sampled <= found.n_used
            and all(type(value) is float and np.isfinite(value) for value in floats)
        ):
            raise ValueError("its training facts are damaged")
        return found


def distribution_of(y: Floats, weight: Floats, exact: bool = True) -> QuantileTable:
    """The distribution of weighted responses, equal ones merged.

    Args:
        y: Responses, ``(n,)``.
        weight: Their weights, ``(n,)``.
        exact: Hold all of them. Otherwise, if more than 1,000 differ, each thousandth of the
            distribution is replaced by its mean: no response of a single row is kept, and the CRPS
            hardly changes.
    """
    values, inverse = np.unique(y, return_inverse=True)
    share = np.bincount(inverse.ravel(), weight)
    if exact or len(values) <= _N_PARTS:
        return QuantileTable.of_sample(values, share)
    share /= share.sum()
    centre = share @ values  # so that rounding matters in relation to the spread only
    level, total = (np.append(0.0, np.cumsum(a)) for a in (share, share * (values - centre)))
    parts = np.interp(np.linspace(0, level[-1], _N_PARTS + 1), level, total)
    means = np.sort(centre + np.diff(parts) * _N_PARTS)
    return QuantileTable.of_sample(means.clip(values[0], values[-1]))


def name_of(y: Any) -> str | None:
    """The name of a Series, or of the only column of a frame; a name is its own."""
    if isinstance(y, str):
        return y
    y = as_pandas(y)
    columns = getattr(y, "columns", None)
    name = columns[0] if columns is not None and len(columns) == 1 else getattr(y, "name", None)
    return name if isinstance(name, str) else None


def mean_crps(predict: Callable[[Grouped], ConditionalDistribution], held_out: Grouped) -> float:
    """Weighted mean CRPS of held-out responses, predicted a part at a time."""
    total = 0.0
    for which in held_out.chunks(extra_cells=1000):
        responses, weights = (part := held_out.take(which)).padded()
        total += float((predict(part).crps(responses) * weights).sum())
    return total / float(held_out.weight.sum())


def crps_of_marginal(train: Grouped, held_out: Grouped) -> float:
    r"""Weighted mean CRPS of held-out responses, predicted by all training responses y_j together.

    With shares w_j, at y it is Σ_j w_j |y_j - y| - ½ Σ_ij w_i w_j |y_i - y_j|, for which sums over
    the sorted responses suffice.
    """
    order = np.argsort(train.y)
    y, share = train.y[order], train.weight[order] / train.weight.sum()
    centre = share @ y  # so that rounding matters in relation to the spread only
    y = y - centre
    level, total = (np.append(0.0, np.cumsum(a)) for a in (share, share * y))

    def distance(points: Floats) -> Floats:
        at = np.searchsorted(y, points)
        return points * (2 * level[at] - level[-1]) + total[-1] - 2 * total[at]

    expected = np.average(distance(held_out.y - centre), weights=held_out.weight)
    return float(expected - 0.5 * (share @ distance(y)))
