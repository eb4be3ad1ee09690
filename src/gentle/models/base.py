"""The contract of every model: a scikit-learn regressor that answers with whole distributions."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from os import PathLike
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from gentle.data import Grouped, Standardiser, numeric_covariates, require_finite
from gentle.distribution import (
    ChunkedDistribution,
    ConditionalDistribution,
    QuantileTable,
    Seed,
    as_seed,
)

Floats = NDArray[np.float64]
EvalSet = tuple[Any, ArrayLike] | tuple[Any, ArrayLike, ArrayLike]

_MARGINAL_LEVELS = 1001  # resolution of the training marginal that is kept for scoring
_CHUNK_CELLS = 4_000_000  # knots held in memory at once while many rows are answered


class ConditionalGenerator(RegressorMixin, BaseEstimator, ABC):
    """A model of the conditional distribution of Y given X = x.

    A model fills in `_fit`, which learns from grouped data in encoded units and returns its fitted attributes, and
    `_conditional`, which turns encoded covariates into a `QuantileTable`. Everything else is written here, once.
    """

    _encodes_response: ClassVar[bool] = True  # False: the model sees responses as they are
    _validates: ClassVar[bool] = False  # True: `_fit` gets held-out covariates unless it wants none

    random_state: Seed
    device: str
    verbose: int

    @abstractmethod
    def _fit(self, train: Grouped, validation: Grouped | None, rng: np.random.Generator) -> dict[str, Any]:
        """Learn, and return the fitted attributes (names end in ``_``); the model itself stays untouched."""

    @abstractmethod
    def _conditional(self, x: Floats) -> QuantileTable:
        """Distributions in encoded units at encoded covariates ``(n, d)``."""

    def _n_knots(self) -> int:
        """About how many knots `_conditional` makes per row, for bounding memory."""
        return 1000

    def _check_parameters(self) -> None:
        """Raise a ValueError for constructor arguments that cannot work."""

    def _wants_validation(self) -> bool:
        """Whether covariates are to be held out when no ``eval_set`` is given."""
        return self._validates

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, eval_set: EvalSet | None = None
    ) -> Self:
        """Learn the conditional distributions from a table.

        Args:
            X: Covariates, array or DataFrame of numbers, ``(n, d)``.
            y: Responses, ``(n,)``.
            sample_weight: Non-negative weights of the rows, ``(n,)``; rows of weight 0 are left out.
            eval_set: Held-out ``(X, y)`` or ``(X, y, sample_weight)`` for validation; else models that validate hold
                out some of the covariates themselves, equal ones together.

        Returns:
            The fitted model. If anything goes wrong, a model fitted earlier stays as it was.
        """
        self._check_parameters()
        values, names = self._covariates(X)
        responses, weight = self._responses(values, y, sample_weight)
        used = weight > 0
        values, responses, weight = values[used], responses[used], weight[used]
        self._check_rows(values, responses, names)
        rng = np.random.default_rng(as_seed(self.random_state))
        covariate_encoder = Standardiser.of(values, weight)
        response_encoder = Standardiser.of(responses, weight) if self._encodes_response else Standardiser.identity()

        def encoded(X: Floats, y: Floats, w: Floats) -> Grouped:
            return Grouped.of(covariate_encoder.encode(X), response_encoder.encode(y), w)

        train, validation = encoded(values, responses, weight), None
        if eval_set is not None:
            validation = encoded(*self._eval_rows(eval_set, values.shape[1], names))
        elif self._wants_validation() and len(train) > 1:
            train, validation = train.split(getattr(self, "validation_fraction", 0.1), rng)
        fitted = self._fit(train, validation, rng)
        fitted |= {
            "n_features_in_": values.shape[1],
            "covariate_encoder_": covariate_encoder,
            "response_encoder_": response_encoder,
            "marginal_": compact_marginal(responses, weight),
        }
        if names is None:
            vars(self).pop("feature_names_in_", None)
        else:
            fitted["feature_names_in_"] = names
        vars(self).update(fitted)
        return self

    def predict_dist(self, X: Any) -> ConditionalDistribution:
        """The distributions of Y given each row of X, computed when they are asked something."""
        check_is_fitted(self)
        x = self.covariate_encoder_.encode(self._known_covariates(X))
        scale, shift = float(self.response_encoder_.scale), float(self.response_encoder_.mean)

        def compute(rows: slice) -> QuantileTable:
            table = self._conditional(x[rows])
            return table.affine(scale, shift) if self._encodes_response else table

        return ChunkedDistribution(len(x), compute, _CHUNK_CELLS // self._n_knots())

    def predict(self, X: Any) -> Floats:
        """Conditional means, ``(n,)``."""
        return self.predict_dist(X).mean()

    def sample(
        self, X: Any, n_samples: int = 1, random_state: Seed = None, u: ArrayLike | None = None
    ) -> Floats:
        """Draw responses, ``(n, n_samples)``.

        Row i's draws depend on the seed, i and x_i only; rows are independent, equal ones too. ``u`` ``(m,)`` or ``(n, m)``
        replaces the random levels: the same ``u`` for all rows gives common random numbers.
        """
        return self.predict_dist(X).sample(n_samples, random_state, u)

    def predict_quantiles(self, X: Any, alpha: ArrayLike) -> Floats:
        """Conditional quantiles at levels ``alpha``: ``(n, len(alpha))``, or ``(n,)`` for a number."""
        return self.predict_dist(X).quantile(alpha)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Floats:
        """Central prediction intervals, lower and upper end, ``(n, 2)``."""
        return self.predict_dist(X).interval(coverage)

    def cdf(self, X: Any, y: ArrayLike) -> Floats:
        """P(Y ≤ y | x): y ``(n,)`` gives ``(n,)``, y ``(n, m)`` gives ``(n, m)``."""
        return self.predict_dist(X).cdf(y)

    def log_prob(self, X: Any, y: ArrayLike) -> Floats:
        """Log density of Y given x at y, at atoms the log of their probability; shapes as for `cdf`."""
        return self.predict_dist(X).log_prob(y)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """CRPS skill, 1 - CRPS(model) / CRPS(training marginal): 1 is perfect, 0 is the marginal, less is worse."""
        dist = self.predict_dist(X)
        responses, weight = self._responses(np.empty((len(dist), 1)), y, sample_weight)
        baseline = np.average(self.marginal_.repeat(len(dist)).crps(responses), weights=weight)
        if baseline == 0:
            raise ValueError("the marginal predicts these responses perfectly, so skill over it is not defined")
        return float(1 - np.average(dist.crps(responses), weights=weight) / baseline)

    def save(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder that `gentle.load` reads; an existing one is kept unless ``overwrite``."""
        from gentle.models.persistence import save

        save(self, folder, overwrite)

    def _get_state(self) -> tuple[dict[str, Floats], dict[str, Any]]:
        """The model's own fitted state for saving: arrays by name, and what fits into JSON."""
        return {}, {}

    def _set_state(self, arrays: dict[str, Floats], facts: dict[str, Any]) -> None:
        """Restore what `_get_state` gave."""

    def _covariates(self, X: Any) -> tuple[Floats, NDArray[Any] | None]:
        """Covariates as finite floats ``(n, d)``, and the column names if there are any."""
        frame = numeric_covariates(X)
        names = getattr(frame, "columns", None)
        if names is not None and not all(isinstance(name, str) for name in names):
            names = None
        names = None if names is None else np.asarray(names, dtype=object)
        values = check_array(frame, dtype=np.float64, ensure_all_finite=False, input_name="X", estimator=self)
        require_finite(values, names)
        return values, names

    def _known_covariates(self, X: Any) -> Floats:
        """Covariates with the columns seen in `fit`."""
        values, names = self._covariates(X)
        return self._same_columns(values, names, self.n_features_in_, getattr(self, "feature_names_in_", None))

    def _same_columns(
        self, values: Floats, names: NDArray[Any] | None, n_expected: int, expected: NDArray[Any] | None
    ) -> Floats:
        model = type(self).__name__
        if values.shape[1] != n_expected:
            listed = "" if expected is None else f" ({_listed(expected)})"
            raise ValueError(
                f"X has {values.shape[1]} features, but {model} is expecting {n_expected} features as input{listed}. "
                "Pass the covariates used in fit(), in the same order."
            )
        if expected is not None and names is not None and list(names) != list(expected):
            missing, unseen = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
            if missing or unseen:
                detail = f"missing: {missing or 'none'}, not seen in fit(): {unseen or 'none'}."
            else:
                detail = f"the columns are the same, but their order must be {_listed(expected)}."
            raise ValueError(
                f"The feature names should match those that were passed during fit. {model}: {detail} "
                "Select the columns with X[list(model.feature_names_in_)]."
            )
        return values

    def _responses(self, X: Floats, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Floats, Floats]:
        """Responses and weights as finite floats, both ``(n,)``."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        shape = np.shape(cast(Any, y))
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y has {shape[1]} columns, but {type(self).__name__} models one response. "
                "Fit one model per response; joint responses are not supported yet."
            )
        values = column_or_1d(y, warn=True)
        try:
            values = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold numbers, but it holds {values.dtype} values such as {values[0]!r}") from None
        if not np.isfinite(values).all():
            row = int(np.argmax(~np.isfinite(values)))
            raise ValueError(
                f"Input y contains NaN or infinity: the first in row {row} ({values[row]}). Drop such rows before fitting."
            )
        check_consistent_length(X, values)
        if sample_weight is None:
            return values, np.ones(len(values))
        weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
        if np.any(weight < 0):
            row = int(np.argmax(weight < 0))
            raise ValueError(f"sample_weight must not be negative, but row {row} has weight {weight[row]}")
        if not np.any(weight > 0):
            raise ValueError("sample_weight is zero for every row; at least one must be positive")
        return values, weight

    def _eval_rows(
        self, eval_set: EvalSet, n_columns: int, names: NDArray[Any] | None
    ) -> tuple[Floats, Floats, Floats]:
        if not isinstance(eval_set, (tuple, list)) or len(eval_set) not in (2, 3):
            raise ValueError("eval_set must be a pair (X, y) or a triple (X, y, sample_weight)")
        values, found = self._covariates(eval_set[0])
        self._same_columns(values, found, n_columns, names)
        responses, weight = self._responses(values, eval_set[1], eval_set[2] if len(eval_set) == 3 else None)
        used = weight > 0
        return values[used], responses[used], weight[used]

    def _check_rows(self, X: Floats, y: Floats, names: NDArray[Any] | None) -> None:
        model = type(self).__name__
        if len(X) < 2:
            raise ValueError(
                f"{model} needs at least 2 rows to learn a distribution, got n_samples = {len(X)} (rows of weight 0 left out)"
            )
        if self._encodes_response and y.min() == y.max():
            raise ValueError(
                f"y is constant (every response is {y[0]:g}), so {model} has no distribution to learn; "
                "check that the right column is the target"
            )
        constant = np.flatnonzero(X.min(axis=0) == X.max(axis=0))
        if len(constant):
            labels = [int(c) if names is None else str(names[c]) for c in constant[:5]]
            more = "" if len(constant) <= 5 else f" and {len(constant) - 5} more"
            warnings.warn(
                f"constant column(s) {labels}{more} carry no information and do not affect the model",
                UserWarning,
                stacklevel=3,
            )


def compact_marginal(y: Floats, weight: Floats) -> QuantileTable:
    """The marginal of weighted responses in at most about a thousand knots: exact if few values occur, else on a grid."""
    values, inverse = np.unique(y, return_inverse=True)
    exact = QuantileTable.of_sample(values, np.bincount(inverse.ravel(), weight))
    if len(values) <= _MARGINAL_LEVELS // 2:
        return exact
    levels = np.linspace(0, 1, _MARGINAL_LEVELS)
    return QuantileTable(levels, exact.quantile(levels))


def _listed(names: NDArray[Any]) -> str:
    shown = [repr(str(name)) for name in names]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:4], "…", *shown[-2:]])
