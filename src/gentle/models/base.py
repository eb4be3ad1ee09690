"""The contract of every model: a scikit-learn regressor that answers with whole distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gentle.checkpoints import kept_in
from gentle.chunks import in_chunks
from gentle.covariates import CovariateEncoder
from gentle.data import Grouped, Rows, Standardiser
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.models import checks
from gentle.models.intake import CheckedRows, EvalSet, TrainingFacts, name_of
from gentle.models.larger import rows_of
from gentle.models.summary import summary_of
from gentle.spaces import Space
from gentle.streams import Seed
from gentle.support import warn_of_strangers

Floats = NDArray[np.float64]

_CHUNK_CELLS = 4_000_000  # knots held in memory at once while many rows are answered


class ConditionalGenerator(RegressorMixin, BaseEstimator, ABC):
    """A model of the conditional distribution of Y given X = x.

    A model fills in `_fit`, which learns from grouped data in encoded units and returns its fitted
    attributes, and `_conditional`, which turns encoded covariates into distributions, as a rule a
    `QuantileTable`. All else is written here, once.
    """

    _encodes_response: ClassVar[bool] = True  # False: the model sees responses as they are
    _holds: ClassVar[str] = ""  # what of the training data its answers are made of
    search_space: ClassVar[Space] = {}  # what a search may vary; see gentle.tuning

    random_state: Seed
    device: str
    verbose: int
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    covariate_encoder_: CovariateEncoder
    response_encoder_: Standardiser
    marginal_: QuantileTable
    response_name_: str | None
    training_: TrainingFacts
    training_rows_: Rows | None = None

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
        y: ArrayLike | str,
        sample_weight: ArrayLike | str | None = None,
        eval_set: EvalSet | None = None,
        checkpoint_dir: str | PathLike[str] | None = None,
        keep_data: bool = False,
    ) -> Self:
        """Learn the conditional distributions from a table.

        Args:
            X: Covariates, array or DataFrame, ``(n, d)``: numbers, truth values, dates, durations,
                categories, texts; values may be missing. `CovariateEncoder` says how each enters.
                Or a table with all columns, also in files or pieces: see `gentle.models.larger`.
            y: Responses, ``(n,)``; or the name of their column in X.
            sample_weight: Non-negative weights of the rows, ``(n,)``, or the name of their column.
                Only their relation matters; weight k is the same as k copies, bit for bit, and
                weight 0 leaves a row out. Identical rows become one, with the sum of their weights.
            eval_set: Held-out ``(X, y)`` or ``(X, y, sample_weight)`` for validation. Without it,
                models that validate hold out some of the covariates, equal ones together.
            checkpoint_dir: Folder in which training is kept while it runs. After any interruption,
                the same call goes on from there and ends in the same model, bit for bit on a CPU.
                Models not trained in epochs leave no trace in it. More in `gentle.checkpoints`.
            keep_data: Keep the training rows, encoded, as ``training_rows_``, also in pickled and
                saved models. No answer needs them; models that must hold them do so anyway.

        Returns:
            The fitted model. If anything goes wrong, a model fitted earlier stays as it was.
        """
        model = type(self).__name__
        self._check_parameters()
        with rows_of(self, X, y, sample_weight, keep_data) as given:
            rows = given.merged()
            checks.enough_rows(len(rows.y), model)
            of_x = rows.encoder()
            checks.warn_of_uninformative_columns(**of_x.uninformative)
            of_y = Standardiser.identity()
            if self._encodes_response:
                checks.varying_response(rows.y, model)
                of_y = Standardiser.of(rows.y, rows.weight)
            train, validation = rows.grouped(of_x, of_y), None
            facts = given.facts(rows, len(train))
            if eval_set is not None:
                validation = CheckedRows.of_eval(eval_set, rows.table, model).grouped(of_x, of_y)
            with kept_in(checkpoint_dir, self, (train, validation, *given.marks)) as rng:
                if validation is None and self._held_out() and len(train) > 1:
                    train, validation = train.split(self._held_out(), rng)
                fitted = self._fit(train, validation, rng)
        fitted |= rows.remembered(of_x, of_y, keep_data, bool(self._holds))
        vars(self).pop("feature_names_in_", None)
        vars(self).update(fitted, training_=facts, response_name_=name_of(y))
        checks.warn_if_far_off(self, train)
        return self

    def predict_dist(self, X: Any) -> ConditionalDistribution:
        """The distributions of Y given each row of X, computed when they are asked something."""
        x = self._encoded_covariates(X)
        scale, shift = float(self.response_encoder_.scale), float(self.response_encoder_.mean)

        def conditional(x: Floats) -> ConditionalDistribution:
            dist = self._conditional(x)
            return dist.affine(scale, shift) if self._encodes_response else dist

        return in_chunks(x, conditional, _CHUNK_CELLS // self._n_knots())

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

        `gentle.models.persistence.save` says what of the training data is in it.

        Args:
            folder: Where to write. A folder that holds anything but a saved model is refused.
            overwrite: Replace a model that is there already.
        """
        from gentle.models.persistence import save

        save(self, folder, overwrite)

    def summary(self) -> str:
        """What the model is and what it has learned from, in a few lines to read.

        Example:
            >>> from gentle import KNN
            >>> model = KNN(n_neighbors=2).fit([[0.0], [1.0], [1.0], [9.0]], [1.0, 3.0, 3.0, 5.0])
            >>> print(model.summary())
            KNN(n_neighbors=2)
            4 rows, of which 3 differ, with 3 different covariates
            response: 1 to 5; 3 is 50 % of it
            1 column, encoded in 1:
              column  kind    range   missing  encoded as
              0       number  0 to 9           standardised
            holds the training rows
        """
        return summary_of(self)

    def _describe(self) -> list[str]:
        """Lines that a model adds to its `summary`."""
        return []

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The model's own fitted state for saving: arrays by name, and what fits into JSON."""
        return {}, {}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        """Restore what `_get_state` gave."""

    def _encoded_covariates(self, X: Any) -> Floats:
        """Covariates with the columns seen in `fit`, in the units in which the model knows them."""
        check_is_fitted(self, "covariate_encoder_")
        model, expected = type(self).__name__, getattr(self, "feature_names_in_", None)
        table = checks.covariates(X, model)
        checks.same_columns(table, self.n_features_in_, expected, model)
        x = self.covariate_encoder_.encode(table)
        checks.within_reach(x, self.covariate_encoder_.owners)
        warn_of_strangers(self.covariate_encoder_, table)
        return x

    @property
    def _n_encoded(self) -> int:
        """Number of columns of the covariates as the model sees them."""
        return self.covariate_encoder_.n_encoded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags
