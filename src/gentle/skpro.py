"""Models as probabilistic regressors of skpro (extra ``skpro``).

One class cannot serve scikit-learn and skpro, which mean different things by ``predict_quantiles``
and ``predict_interval``; so a model of this library is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from gentle.distribution import ConditionalDistribution
from gentle.models import GENTLE, KNN, ConditionalGenerator, Marginal

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError('gentle.skpro needs skpro: pip install "gentle-ot[skpro]"') from error

Floats = NDArray[np.float64]


class SkproRegressor(BaseProbaRegressor):
    """Any model of this library as a regressor of skpro.

    skpro itself refuses columns of Python objects; make texts categories.

    Args:
        model: The model, which is cloned before it is fitted; None is `GENTLE` as it comes.

    Attributes:
        model_: The fitted model.

    Example:
        >>> import pandas as pd
        >>> from gentle import KNN
        >>> from gentle.skpro import SkproRegressor
        >>> X = pd.DataFrame({"x": [0.0, 0.0, 1.0, 1.0]})
        >>> y = pd.DataFrame({"y": [1.0, 2.0, 5.0, 7.0]})
        >>> regressor = SkproRegressor(KNN(n_neighbors=2)).fit(X, y)
        >>> regressor.predict_proba(X).mean()["y"].tolist()
        [1.5, 1.5, 6.0, 6.0]
        >>> regressor.predict_quantiles(X.head(1), alpha=[0.5]).to_numpy()
        array([[1.]])
    """

    _tags: ClassVar[dict[str, Any]] = {"capability:missing": True}

    def __init__(self, model: ConditionalGenerator | None = None) -> None:
        self.model = model
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> SkproRegressor:
        unfitted: Any = clone(GENTLE() if self.model is None else self.model)
        self.model_: ConditionalGenerator = unfitted.fit(X, y.iloc[:, 0])
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._framed(self.model_.predict(X), X, "predict")

    def _predict_proba(self, X: pd.DataFrame) -> SkproDistribution:
        columns = self._get_columns("predict")
        return SkproDistribution(self.model_.predict_dist, X, X.index, columns)

    def _predict_quantiles(self, X: pd.DataFrame, alpha: list[float]) -> pd.DataFrame:
        quantiles = self.model_.predict_quantiles(X, alpha)
        return self._framed(quantiles, X, "predict_quantiles", alpha=alpha)

    def _predict_var(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._framed(self.model_.predict_dist(X).std() ** 2, X, "predict")

    def _framed(self, values: Floats, X: pd.DataFrame, method: str, **asked: Any) -> pd.DataFrame:
        columns = self._get_columns(method=method, **asked)
        return pd.DataFrame(values.reshape(len(X), -1), index=X.index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings for skpro's own checks."""
        tiny = {"n_steps": 5, "hidden_widths": (4,), "n_trees": 3}
        models = [KNN(n_neighbors=5), Marginal(), GENTLE(**tiny, random_state=0, verbose=0)]
        return [{"model": model} for model in models]


class SkproDistribution(BaseDistribution):
    """A model's distributions of Y given the rows of a table, as a distribution of skpro.

    All answers are exact. ``pdf`` is the density, at an atom its probability, as `log_prob` is in
    this library. ``sample`` draws anew at every call and leaves numpy's global generator alone.

    Args:
        predict: A fitted model's ``predict_dist``.
        X: Covariates, ``(n, d)``, or one row for a scalar distribution.
        index: Labels of the rows, None for a scalar distribution.
        columns: The label of the response.

    Example:
        >>> model = Marginal().fit([[0.0], [1.0]], [0.0, 4.0])
        >>> X = pd.DataFrame([[7.0], [8.0]])
        >>> distribution = SkproDistribution(model.predict_dist, X, X.index, ["y"])
        >>> distribution.cdf(1.0)["y"].tolist(), distribution.iloc[[1]].shape
        ([0.5, 0.5], (1, 1))
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "mixed",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        predict: Callable[[Any], ConditionalDistribution],
        X: pd.DataFrame,
        index: Any = None,
        columns: Any = None,
    ) -> None:
        self.predict = predict
        self.X = X
        super().__init__(index=index, columns=columns)
        self._dist = predict(X)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> SkproDistribution:
        if np.isscalar(rowidx) and np.isscalar(colidx):
            return self._iat(rowidx, colidx)
        rows, columns = (
            slice(None) if i is None else i if isinstance(i, slice) else np.atleast_1d(i)
            for i in (rowidx, colidx)
        )
        index, names = pd.Index(self.index)[rows], pd.Index(self.columns)[columns]
        return SkproDistribution(self.predict, self.X.iloc[rows], index, names)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> SkproDistribution:
        return SkproDistribution(self.predict, self.X.iloc[[rowidx]])

    def _each(self, question: Callable[[Floats], Floats], at: Any) -> Floats:
        """A question about one point per row, in the shape of the distribution."""
        return question(np.reshape(at, (-1, 1))).reshape(self.shape)

    def _cdf(self, x: Any) -> Floats:
        return self._each(self._dist.cdf, x)

    def _ppf(self, p: Any) -> Floats:
        return self._each(self._dist.ppf, p)

    def _log_pdf(self, x: Any) -> Floats:
        return self._each(self._dist.log_prob, x)

    def _pdf(self, x: Any) -> Floats:
        return np.exp(self._log_pdf(x))

    def _mean(self) -> Floats:
        return self._dist.mean().reshape(self.shape)

    def _var(self) -> Floats:
        return (self._dist.std() ** 2).reshape(self.shape)

    def _half_energy(self) -> Floats:
        """E|Y - Y'| / 2: what the CRPS lacks of E|Y - y|, which is E[Y] - y below the support."""
        lowest = self._dist.quantile(0.0)
        return (self._dist.mean() - lowest - self._dist.crps(lowest)).reshape(self.shape)

    def _energy_self(self) -> Floats:
        return 2 * self._half_energy()

    def _energy_x(self, x: Any) -> Floats:
        return self._each(self._dist.crps, x) + self._half_energy()

    def _sample(self, n_samples: int | None = None) -> Any:
        draws = self._dist.sample(n_samples or 1).T  # (n_samples, n)
        if self.ndim == 0:
            return draws.item() if n_samples is None else pd.DataFrame(draws)
        if n_samples is None:
            return pd.DataFrame(draws.T, index=self.index, columns=self.columns)
        copies = [pd.DataFrame(row, index=self.index, columns=self.columns) for row in draws]
        return pd.concat(copies, keys=range(n_samples))
