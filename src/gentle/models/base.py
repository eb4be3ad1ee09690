"""The contract of every model: a scikit-learn regressor that answers with whole distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gentle.data import Grouped, Standardiser
from gentle.distribution import ChunkedDistribution, ConditionalDistribution, QuantileTable
from gentle.models import checks
from gentle.spaces import Space
from gentle.streams import Seed, as_seed

Floats = NDArray[np.float64]
EvalSet = tuple[Any, ArrayLike] | tuple[Any, ArrayLike, ArrayLike]

_CHUNK_CELLS = 4_000_000  # knots held in memory at once while many rows are answered


class ConditionalGenerator(RegressorMixin, BaseEstimator, ABC):
    """A model of the conditional distribution of Y given X = x.

    A model fills in `_fit`, which learns from grouped data in encoded units and returns its fitted
    attributes, and `_conditional`, which turns encoded covariates into distributions, as a rule a
    `QuantileTable`. All else is written here, once.
    """

    _encodes_response: ClassVar[bool] = True  # False: the model sees responses as they are
    search_space: ClassVar[Space] = {}  # what a search may vary; see gentle.tuning

    random_state: Seed
    device: str
    verbose: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    covariate_encoder_: Standardiser
    response_encoder_: Standardiser
    marginal_: QuantileTable
    response_name_: str | None

    @abstractmethod
    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Learn, and return the fitted attributes (names end in ``_``); leave ``self`` alone."""

    @abstractmethod
    def _conditional(self, x: Floats) -> ConditionalDistribution:
        """Distributions in encoded units at encoded covariates ``(n, d)``."""

    def _n_knots(self) -> int:
        """About how many knots `_conditional` makes per row, for bounding memory."""
        return 1000

    def _check_parameters(self) -> None:
        """Raise a ValueError for constructor arguments that cannot work."""

    def _held_out(self) -> float:
        """Share of the covariates to hold out for validation when no ``eval_set`` is given."""
        return 0.0

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        eval_set: EvalSet | None = None,
    ) -> Self:
        """Learn the conditional distributions from a table.

        Args:
            X: Covariates, array or DataFrame of numbers, ``(n, d)``.
            y: Responses, ``(n,)``.
            sample_weight: Non-negative weights of the rows, ``(n,)``; 0 leaves a row out.
            eval_set: Held-out ``(X, y)`` or ``(X, y, sample_weight)`` for validation. Without it,
                models that validate hold out some of the covariates, equal ones together.

        Returns:
            The fitted model. If anything goes wrong, a model fitted earlier stays as it was.
        """
        model = type(self).__name__
        self._check_parameters()
        values, names = checks.covariates(X, model)
        target, weight = checks.responses(y, sample_weight, len(values), model)
        values, target, weight = _weighted_rows(values, target, weight)
        checks.enough_rows(values, model)
        if self._encodes_response:
            checks.varying_response(target, model)
        checks.warn_of_constant_columns(values, names)
        rng = np.random.default_rng(as_seed(self.random_state))
        of_x = Standardiser.of(values, weight)
        encodes = self._encodes_response
        of_y = Standardiser.of(target, weight) if encodes else Standardiser.identity()

        def encoded(X: Floats, y: Floats, w: Floats) -> Grouped:
            return Grouped.of(of_x.encode(X), of_y.encode(y), w)

        train, validation = encoded(values, target, weight), None
        if eval_set is not None:
            validation = encoded(*self._eval_rows(eval_set, values.shape[1], names))
        elif self._held_out() and len(train) > 1:
            train, validation = train.split(self._held_out(), rng)
        fitted = self._fit(train, validation, rng)
        fitted |= {
            "n_features_in_": values.shape[1],
            "covariate_encoder_": of_x,
            "response_encoder_": of_y,
            "marginal_": _marginal(target, weight),
            "response_name_": _name_of(y),
        }
        vars(self).pop("feature_names_in_", None)
        vars(self).update(fitted if names is None else fitted | {"feature_names_in_": names})
        return self

    def predict_dist(self, X: Any) -> ConditionalDistribution:
        """The distributions of Y given each row of X, computed when they are asked something."""
        x = self._encoded_covariates(X)
        scale, shift = float(self.response_encoder_.scale), float(self.response_encoder_.mean)

        def compute(rows: slice) -> ConditionalDistribution:
            dist = self._conditional(x[rows])
            return dist.affine(scale, shift) if self._encodes_response else dist

        return ChunkedDistribution(len(x), compute, _CHUNK_CELLS // self._n_knots())

    def predict(self, X: Any) -> Floats:
        """Conditional means, ``(n,)``."""
        return self.predict_dist(X).mean()

    def sample(
        self, X: Any, n_samples: int = 1, random_state: Seed = None, u: ArrayLike | None = None
    ) -> Floats:
        """Draw responses, ``(n, n_samples)``.

        Args:
            X: Covariates, ``(n, d)``.
            n_samples: Draws per row.
            random_state: Seed. Row i's draws depend on the seed, i and x_i only; rows are
                independent, equal ones too. None draws anew at every call.
            u: Levels in [0, 1] in place of random ones, ``(m,)`` or ``(n, m)``; the same levels for
                all rows are common random numbers.
        """
        return self.predict_dist(X).sample(n_samples, random_state, u)

    def predict_quantiles(self, X: Any, alpha: ArrayLike) -> Floats:
        """Conditional quantiles at levels ``alpha``: ``(n, len(alpha))``; ``(n,)`` for a number."""
        return self.predict_dist(X).quantile(alpha)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Floats:
        """Central prediction intervals, lower and upper end, ``(n, 2)``."""
        return self.predict_dist(X).interval(coverage)

    def cdf(self, X: Any, y: ArrayLike) -> Floats:
        """P(Y ≤ y | x): y ``(n,)`` gives ``(n,)``, y ``(n, m)`` gives ``(n, m)``."""
        return self.predict_dist(X).cdf(y)

    def log_prob(self, X: Any, y: ArrayLike) -> Floats:
        """Log density of Y given x, at atoms the log of their probability; shapes as for `cdf`."""
        return self.predict_dist(X).log_prob(y)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """CRPS skill: 1 - CRPS(model) / CRPS(marginal of the training responses).

        1 is perfect, 0 is no better than the marginal, less is worse.
        """
        dist = self.predict_dist(X)
        target, weight = checks.responses(y, sample_weight, len(dist), type(self).__name__)
        baseline = np.average(self.marginal_.repeat(len(target)).crps(target), weights=weight)
        if baseline == 0:
            raise ValueError("the marginal predicts these responses perfectly: no skill is defined")
        return float(1 - np.average(dist.crps(target), weights=weight) / baseline)

    def save(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder that `gentle.load` reads.

        Args:
            folder: Where to write. A folder that holds anything but a saved model is refused.
            overwrite: Replace a model that is there already.
        """
        from gentle.models.persistence import save

        save(self, folder, overwrite)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The model's own fitted state for saving: arrays by name, and what fits into JSON."""
        return {}, {}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        """Restore what `_get_state` gave."""

    def _encoded_covariates(self, X: Any) -> Floats:
        """Covariates with the columns seen in `fit`, in the units in which the model knows them."""
        check_is_fitted(self, "covariate_encoder_")
        model = type(self).__name__
        values, names = checks.covariates(X, model)
        expected = getattr(self, "feature_names_in_", None)
        checks.same_columns(values, names, self.n_features_in_, expected, model)
        x = self.covariate_encoder_.encode(values)
        checks.within_reach(x, expected)
        return x

    def _eval_rows(
        self, eval_set: EvalSet, n_columns: int, names: checks.Names
    ) -> tuple[Floats, Floats, Floats]:
        if not isinstance(eval_set, (tuple, list)) or len(eval_set) not in (2, 3):
            raise ValueError("eval_set must be a pair (X, y) or a triple (X, y, sample_weight)")
        model = f"{type(self).__name__} (eval_set)"
        values, found = checks.covariates(eval_set[0], model)
        checks.same_columns(values, found, n_columns, names, model)
        weights = eval_set[2] if len(eval_set) == 3 else None
        return _weighted_rows(values, *checks.responses(eval_set[1], weights, len(values), model))


def mean_crps(predict: Callable[[Grouped], ConditionalDistribution], held_out: Grouped) -> float:
    """Weighted mean CRPS of held-out responses, predicted a part at a time."""
    total = 0.0
    for which in held_out.chunks(extra_cells=1000):
        part = held_out.take(which)
        responses, weights = part.padded()
        total += float((predict(part).crps(responses) * weights).sum())
    return total / float(held_out.weight.sum())


def _weighted_rows(X: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    used = weight > 0
    return X[used], y[used], weight[used]


def _marginal(y: Floats, weight: Floats) -> QuantileTable:
    """The distribution of weighted responses, equal ones merged."""
    values, inverse = np.unique(y, return_inverse=True)
    return QuantileTable.of_sample(values, np.bincount(inverse.ravel(), weight))


def _name_of(y: Any) -> str | None:
    """The name of a Series, or of the only column of a frame."""
    columns = getattr(y, "columns", None)
    name = columns[0] if columns is not None and len(columns) == 1 else getattr(y, "name", None)
    return name if isinstance(name, str) else None
