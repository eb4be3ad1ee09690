"""Conformal recalibration: distributions of any model, with levels that are right on new rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from gentle.chunks import in_chunks
from gentle.columns import taken
from gentle.data import Standardiser, group_rows
from gentle.distribution import ConditionalDistribution
from gentle.models import checks
from gentle.models.base import ConditionalGenerator, Floats
from gentle.models.intake import EvalSet, name_of
from gentle.models.recalibration import BEYOND, N_LEVELS, Recalibration
from gentle.streams import Seed, as_seed

Ints = NDArray[np.int64]

_CELLS = 2_000_000  # knots held in memory at once
_INNER = "inner."  # begins the names of the model's arrays


class ConformalGenerator(ConditionalGenerator):
    r"""A model whose levels are corrected on rows that it has not seen.

    The model is fitted to a part of the rows. Where its distributions put the responses of the n
    others then says how its levels must be changed: F'(y | x) = G(F(y | x)), with one increasing
    function G for all x. So the result is a distribution like any other, to be sampled and asked;
    atoms stay where they are and change their probability. Where responses fell outside of what
    the model thinks possible, its support is extended towards the extreme training responses, and
    gaps in it are filled thinly.

    What is guaranteed for a new row (X, Y), if it and the n rows are exchangeable, for any model
    and any n, as probabilities over all of them:

    - `predict_interval` holds Y with at least the probability asked for, and if its ends are finite
      and there are no atoms and no ties with at most 2 / (n + 1) more. An end is infinite where n
      rows cannot tell, as for a coverage above 1 - 2 / (n + 1), or where too many responses were
      beyond both the model's support and its training responses.
    - The quantiles of `predict_dist` at α = 1/40, 2/40, ..., 39/40 satisfy
      P(Y < Q'(X, α)) - 1 / (n + 1) ≤ α ≤ P(Y ≤ Q'(X, α)) + 1 / (n + 1), but for a probability of
      2 / (N + 1) that Y is outside of both the model's support and the range of its N training
      responses. Levels in between are interpolated, those nearer to 0 and 1 follow the model.

    This holds on average over x, not at each x: `gentle.diagnostics.calibration` tells how it is in
    subgroups. Rows that share covariates because they were measured together are not exchangeable
    with a row of a new covariate; ``split="covariates"`` is for these. With unequal weights it
    holds approximately, for new rows that are drawn as the weights say.

    Args:
        model: An unfitted model, None for `GENTLE()`; or ``sklearn.frozen.FrozenEstimator(model)``
            with a fitted one, which then stays as it is, and all rows of `fit` calibrate.
        calibration_fraction: Share of the rows that calibrate.
        split: "rows" holds out rows at random. "covariates" holds out covariates with all their
            rows, of which one at random calibrates: n is their number, and what is guaranteed holds
            for a row of a new covariate.
        random_state: Seed of the split and of the randomisation at atoms.

    Attributes:
        model_: The fitted model.
        recalibration_: G, by the scores of the calibration rows.

    Example:
        >>> from gentle import KNN
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 1))
        >>> y = X[:, 0] + rng.normal(size=1000)
        >>> narrow = KNN(n_neighbors=5)  # among five responses lie two thirds of all
        >>> model = ConformalGenerator(narrow, random_state=0).fit(X[:600], y[:600])
        >>> low, high = model.predict_interval(X[600:], 0.9).T
        >>> bool(np.mean((low <= y[600:]) & (y[600:] <= high)) > 0.87)
        True
        >>> model.sample(X[:2], n_samples=3, random_state=0).shape
        (2, 3)
    """

    _encodes_response: ClassVar[bool] = False

    model_: ConditionalGenerator
    recalibration_: Recalibration

    def __init__(
        self,
        model: ConditionalGenerator | FrozenEstimator | None = None,
        *,
        calibration_fraction: float = 0.2,
        split: Literal["rows", "covariates"] = "rows",
        random_state: Seed = None,
    ) -> None:
        self.model = model
        self.calibration_fraction = calibration_fraction
        self.split = split
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        eval_set: EvalSet | None = None,
        **options: Any,
    ) -> Self:
        """Fit the model to some of the rows and calibrate it on the others.

        Args:
            X: Covariates, ``(n, d)``.
            y: Responses, ``(n,)``.
            sample_weight: Non-negative weights of the rows, ``(n,)``; of weight 0 are left out. A
                row is held out whole, so that unlike in other models one of weight k is not the
                same as k copies.
            eval_set: ``(X, y)`` or ``(X, y, sample_weight)`` to calibrate on. The model is then
                fitted to all other rows, and does not see these.
            options: What else the model's own `fit` takes. A ``checkpoint_dir`` wants a
                ``random_state``, so that the split is the same again.
        """
        self._check_parameters()
        if options.get("checkpoint_dir") is not None and self.random_state is None:
            raise ValueError("checkpoint_dir wants a random_state, so that the split is the same")
        name, rng = type(self).__name__, np.random.default_rng(as_seed(self.random_state))
        table = checks.covariates(X, name)
        target, weight = checks.responses(y, sample_weight, len(table), name)
        rows = np.flatnonzero(weight > 0)
        if isinstance(self.model, FrozenEstimator):
            if eval_set is not None:
                raise ValueError("a frozen model calibrates on the rows of fit(): pass no eval_set")
            inner, held_out = self.model.estimator, rows
        else:
            inner, held_out = _unfitted(self.model), rows
            if eval_set is None:
                rows, held_out = self._divided(table.take(rows).keys(), rows, rng)
            inner.fit(taken(X, rows), target[rows], weight[rows], **options)
        if eval_set is None:
            x, target, weight = taken(X, held_out), target[held_out], weight[held_out]
        else:
            x, responses, *given = eval_set
            target, weight = checks.responses(
                responses, given[0] if given else None, len(x), f"{name} (eval_set)"
            )
            held_out = np.flatnonzero(weight > 0)
            x, target, weight = taken(x, held_out), target[held_out], weight[held_out]
        if len(target) < 2:
            raise ValueError(f"{name} needs at least 2 rows to calibrate on, got {len(target)}")
        made = Recalibration.of(_parts(inner, x, target), weight, _ends(inner), rng)
        self._adopt(inner, made, name_of(y))
        return self

    def _divided(self, keys: Floats, rows: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Rows to fit and rows to calibrate, of which ``keys`` are equal for equal covariates."""
        unit = np.arange(len(rows)) if self.split == "rows" else group_rows(keys)[1]
        n_units = int(unit.max()) + 1
        n_held_out = min(max(2, round(self.calibration_fraction * n_units)), n_units - 1)
        chosen = rng.permutation(n_units)[:n_held_out]
        shuffled = rng.permutation(len(rows))
        first = np.full(n_units, -1)
        first[unit[shuffled]] = shuffled  # one row of each unit, at random
        return rows[~np.isin(unit, chosen)], rows[first[chosen]]

    def _adopt(self, inner: ConditionalGenerator, made: Recalibration, name: str | None) -> None:
        """Set the fitted attributes."""
        vars(self).pop("feature_names_in_", None)
        shared = ["n_features_in_", "feature_names_in_", "covariate_encoder_", "marginal_"]
        shared.append("training_")
        vars(self).update({key: vars(inner)[key] for key in shared if key in vars(inner)})
        self.response_encoder_, self.response_name_ = Standardiser.identity(), name
        self.model_, self.recalibration_ = inner, made

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Floats:
        """Intervals that hold a new response with at least this probability, ``(n, 2)``.

        Unlike those of ``predict_dist(X).interval``, which interpolates, their ends are at scores
        of calibration rows, rounded outwards, and infinite where these rows cannot tell.
        """
        if not 0 <= coverage <= 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}")
        x, low_high = self._encoded_covariates(X), self.recalibration_.scores_around(coverage)

        def extended(x: Floats) -> ConditionalDistribution:
            return self.recalibration_.extended(_own(self.model_, x))

        family = in_chunks(x, extended, _CELLS // self._n_knots())
        ends = family.quantile(low_high)
        ends[:, 0] = -np.inf if low_high[0] < BEYOND else ends[:, 0]
        ends[:, 1] = np.inf if low_high[1] > 1 - BEYOND else ends[:, 1]
        return ends

    def _conditional(self, x: Floats) -> ConditionalDistribution:
        return self.recalibration_.apply(_own(self.model_, x))

    def _n_knots(self) -> int:
        return self.model_._n_knots() + N_LEVELS

    def _fit(self, train: Any, validation: Any, rng: np.random.Generator) -> dict[str, Any]:
        raise NotImplementedError("fit() leaves it to the model")

    def _check_parameters(self) -> None:
        frozen = isinstance(self.model, FrozenEstimator)
        model = self.model.estimator if isinstance(self.model, FrozenEstimator) else self.model
        if not (isinstance(model, ConditionalGenerator) or (model is None and not frozen)):
            raise ValueError(
                f"model must be one of this library's models, or None for GENTLE(), got {model!r}"
            )
        if frozen:
            check_is_fitted(model)
        require = partial(checks.require, self)
        require("calibration_fraction", lambda v: 0 < v < 1, "between 0 and 1")
        require("split", lambda v: v in ("rows", "covariates"), "'rows' or 'covariates'")

    def _describe(self) -> list[str]:
        n, inner = len(self.recalibration_.scores), self.model_
        told = f"Its levels are corrected by {n:,} rows that {type(inner).__name__} has not seen"
        return [told, *inner._describe()]

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from gentle.models.persistence import taken_apart

        arrays, facts = self.recalibration_.state()
        description, of_model = taken_apart(self.model_)
        arrays |= {f"{_INNER}{name}": array for name, array in of_model.items()}
        return arrays, facts | {"model": description}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        from gentle.models.persistence import part, put_together

        inner = put_together(facts["model"], part(arrays, _INNER))
        self.model = clone(inner)
        self._adopt(inner, Recalibration.restored(arrays, facts), self.response_name_)

    @property
    def _holds(self) -> str:  # type: ignore[override]
        rows = self.model_.training_rows_
        return self.model_._holds if rows is None else "the training rows"


def _unfitted(model: Any) -> Any:
    if model is not None:
        return clone(model)
    from gentle.models.gentle import GENTLE

    return GENTLE()


def _own(model: ConditionalGenerator, x: Floats) -> ConditionalDistribution:
    """A model's distributions at encoded covariates, in units of the response."""
    dist = model._conditional(x)
    if not model._encodes_response:
        return dist
    return dist.affine(float(model.response_encoder_.scale), float(model.response_encoder_.mean))


def _ends(model: ConditionalGenerator) -> tuple[float, float]:
    """The smallest and the largest training response of a model."""
    if hasattr(model, "training_"):
        return model.training_.low, model.training_.high
    return float(model.marginal_.values[0, 0]), float(model.marginal_.values[0, -1])


def _parts(
    model: ConditionalGenerator, X: Any, y: Floats
) -> Iterator[tuple[ConditionalDistribution, Floats]]:
    """A model's distributions and the responses of the same rows, in bounded memory."""
    x, step = model._encoded_covariates(X), max(1, _CELLS // model._n_knots())
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        yield _own(model, x[part]), y[part]
