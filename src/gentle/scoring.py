"""Proper scores of single responses, and the same as scorers for scikit-learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from gentle.distribution import ConditionalDistribution, QuantileTable

Floats = NDArray[np.float64]


def crps_of_draws(draws: ArrayLike, y: ArrayLike) -> Floats:
    r"""Continuous ranked probability score of the empirical distribution of some draws.

    mean_j |draws_j - y| - mean_jk |draws_j - draws_k| / 2, by sorting, in O(m log m) for m draws.
    For a model's own distribution `ConditionalDistribution.crps` is exact and needs no draws.

    Args:
        draws: Draws from each row's distribution, ``(n, m)``.
        y: Responses, ``(n,)``, or several for each row, ``(n, k)``.

    Returns:
        The scores, smaller is better, in units and shape of ``y``.

    Example:
        >>> crps_of_draws([[0.0, 2.0], [1.0, 1.0]], [1.0, 4.0]).tolist()
        [0.5, 3.0]
    """
    return QuantileTable.of_sample(draws).crps(y)


def pinball(quantiles: ArrayLike, y: ArrayLike, alpha: ArrayLike) -> Floats:
    r"""Pinball loss (alpha - 1{y < quantile}) · (y - quantile); its integral is half the CRPS.

    Args:
        quantiles: Predicted quantiles, ``(n, k)``, or ``(..., k)``.
        y: Responses, ``(n,)``, or ``(...)``.
        alpha: The levels of the quantiles, ``(k,)``.

    Returns:
        The losses, smaller is better, ``(n, k)``, or ``(..., k)``.

    Example:
        >>> pinball([[1.0, 3.0]], [2.0], [0.1, 0.9]).round(3).tolist()
        [[0.1, 0.1]]
    """
    above = np.asarray(y, np.float64)[..., None] - np.asarray(quantiles, np.float64)  # (..., k)
    alpha = np.asarray(alpha, np.float64)
    return np.maximum(alpha * above, (alpha - 1) * above)


def interval_score(lower: ArrayLike, upper: ArrayLike, y: ArrayLike, coverage: float) -> Floats:
    r"""Width of a central interval, plus 2 / (1 - coverage) times the distance from it to y.

    Args:
        lower: Lower ends, ``(n,)``; the three arrays are broadcast against each other.
        upper: Upper ends, ``(n,)``.
        y: Responses, ``(n,)``.
        coverage: Probability that the interval is meant to hold, below 1.

    Returns:
        The scores, smaller is better, ``(n,)``.

    Example:
        >>> interval_score(0.0, 2.0, [1.0, 2.5], coverage=0.5).tolist()
        [2.0, 4.0]
    """
    if not 0 <= coverage < 1:
        raise ValueError(f"coverage must be at least 0 and below 1, got {coverage}")
    lower, upper, y = (np.asarray(a, np.float64) for a in (lower, upper, y))
    distance = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return upper - lower + 2 / (1 - coverage) * distance


class Scorer(BaseEstimator, ABC):
    """What a ``scoring=`` of scikit-learn takes: minus a mean loss, so that greater is better.

    It scores every model that has ``predict_dist``, also at the end of a `Pipeline` or as the best
    one of a search. ``set_score_request(sample_weight=True)`` has weights routed to it.
    """

    __metadata_request__score = {"estimator": UNUSED}  # noqa: RUF012

    @abstractmethod
    def _loss(self, dist: ConditionalDistribution, y: Floats, weight: Floats) -> float:
        """What is to be small."""

    def score(
        self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Minus the weighted mean loss of a fitted model on held-out rows."""
        target = np.asarray(y, np.float64).ravel()  # (n,)
        weight = np.ones(len(target)) if sample_weight is None else np.asarray(sample_weight, float)
        return -self._loss(_predicted(estimator, X), target, weight)

    __call__ = score


class CRPSScorer(Scorer):
    """Minus the mean continuous ranked probability score.

    Example:
        >>> from gentle import KNN
        >>> from sklearn.model_selection import cross_val_score
        >>> X = np.tile([[0.0], [1.0]], (10, 1))
        >>> y = X[:, 0] + np.repeat([0.0, 0.5], 10)
        >>> cross_val_score(KNN(n_neighbors=2), X, y, scoring=CRPSScorer(), cv=2).round(2)
        array([-0.5, -0.5])
    """

    def _loss(self, dist: ConditionalDistribution, y: Floats, weight: Floats) -> float:
        return float(np.average(dist.crps(y), weights=weight))


class PinballScorer(Scorer):
    """Minus the pinball loss of some quantiles, averaged over their levels.

    Args:
        alpha: The level, or several of them.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [0.0, 2.0])
        >>> PinballScorer(alpha=0.9)(model, [[5.0]], [4.0])  # of the quantile 2
        -1.8
    """

    def __init__(self, alpha: ArrayLike = 0.5) -> None:
        self.alpha = alpha

    def _loss(self, dist: ConditionalDistribution, y: Floats, weight: Floats) -> float:
        levels = np.atleast_1d(np.asarray(self.alpha, np.float64))
        losses = pinball(dist.quantile(levels), y, levels)  # (n, k)
        return float(np.average(losses.mean(axis=1), weights=weight))


class IntervalScorer(Scorer):
    """Minus the interval score of central intervals.

    Args:
        coverage: Probability that an interval is meant to hold.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [0.0, 2.0])
        >>> IntervalScorer(coverage=0.5)(model, [[5.0]], [4.0])  # of the interval (0, 2)
        -10.0
    """

    def __init__(self, coverage: float = 0.9) -> None:
        self.coverage = coverage

    def _loss(self, dist: ConditionalDistribution, y: Floats, weight: Floats) -> float:
        lower, upper = dist.interval(self.coverage).T
        return float(np.average(interval_score(lower, upper, y, self.coverage), weights=weight))


class CoverageScorer(Scorer):
    """Minus the distance of the share of responses inside central intervals from what it should be.

    Calibration only: the marginal distribution has the best score. Use it beside a proper one.

    Args:
        coverage: Probability that an interval is meant to hold.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [0.0, 2.0])
        >>> CoverageScorer(coverage=0.5)(model, [[5.0], [5.0]], [1.0, 2.0])  # both inside
        -0.5
    """

    def __init__(self, coverage: float = 0.9) -> None:
        self.coverage = coverage

    def _loss(self, dist: ConditionalDistribution, y: Floats, weight: Floats) -> float:
        lower, upper = dist.interval(self.coverage).T
        share = np.average((lower <= y) & (y <= upper), weights=weight)
        return float(abs(share - self.coverage))


def _predicted(estimator: Any, X: Any) -> ConditionalDistribution:
    """The distributions that a model, a pipeline or a search predicts."""
    if hasattr(estimator, "predict_dist"):
        return estimator.predict_dist(X)
    if hasattr(estimator, "best_estimator_"):
        return _predicted(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        return _predicted(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    raise TypeError(
        f"{type(estimator).__name__} has no predict_dist(X), so that its distributions could be "
        "scored; pass one of gentle's models, or a pipeline that ends in one"
    )
