"""What a user would try first: the marginal, nearest neighbours, kernel-weighted neighbours."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.neighbors import KDTree

from gentle.data import Grouped
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.models.base import ConditionalGenerator, Floats
from gentle.models.checks import is_count
from gentle.models.intake import mean_crps
from gentle.spaces import Between, Space
from gentle.streams import Seed


class Marginal(ConditionalGenerator):
    """The distribution of all training responses: the answer that knows nothing of x.

    Fitted and saved models hold the training responses.

    Args:
        random_state: Not used; every model takes it.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Example:
        >>> model = Marginal().fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 6.0])
        >>> model.predict([[5.0]]).tolist()
        [3.0]
    """

    _encodes_response: ClassVar[bool] = False
    _holds: ClassVar[str] = "the training responses"

    def __init__(
        self, *, random_state: Seed = None, device: str = "auto", verbose: int = 1
    ) -> None:
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        return {}

    def _conditional(self, x: Floats) -> ConditionalDistribution:
        return self.marginal_.repeat(len(x))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # 0 on training data, by definition
        return tags


class _Neighbours(ConditionalGenerator):
    """Models that answer with the responses of close training rows, which they hold.

    One constructor argument, named by ``_tuned``, says how close. None chooses it from `_grid` by
    the CRPS of held-out covariates; the value in use is the attribute of that name with ``_``.
    """

    _encodes_response: ClassVar[bool] = False
    _holds: ClassVar[str] = "the training rows"
    _tuned: ClassVar[str]

    validation_fraction: float
    tree_: KDTree
    rows_: Floats
    responses_: Floats
    weights_: Floats

    @abstractmethod
    def _grid(self, memory: dict[str, Any]) -> list[Any]:
        """Values to choose from."""

    @abstractmethod
    def _pool(self, memory: dict[str, Any], x: Floats, value: Any) -> QuantileTable:
        """The distributions at encoded covariates ``(n, d)``."""

    def _check_parameters(self) -> None:
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}"
            )

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        value = getattr(self, self._tuned)
        if value is None:
            part = train
            if validation is None and len(train) > 1:
                part, validation = train.split(self.validation_fraction, rng)
            value = self._chosen(_memory(part), validation or part)
        return _memory(train) | {f"{self._tuned}_": value}

    def _chosen(self, memory: dict[str, Any], validation: Grouped) -> Any:
        def crps(value: Any) -> float:
            return mean_crps(lambda part: self._pool(memory, part.x, value), validation)

        return min(self._grid(memory), key=crps)

    def _conditional(self, x: Floats) -> QuantileTable:
        return self._pool(vars(self), x, getattr(self, f"{self._tuned}_"))

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"rows": self.rows_, "responses": self.responses_, "weights": self.weights_}
        return arrays, {self._tuned: getattr(self, f"{self._tuned}_")}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        names = ("rows", "responses", "weights")
        rows, responses, weights = (np.asarray(arrays[name], np.float64) for name in names)
        n, value = len(responses), facts[self._tuned]
        if not (
            (rows.shape, responses.shape, weights.shape) == ((n, self._n_encoded), (n,), (n,))
            and n > 0
            and np.all(weights > 0)
            and value is not None
        ):
            raise ValueError("its training rows are damaged")
        type(self)(**{self._tuned: value})._check_parameters()
        vars(self).update(_held(rows, responses, weights), **{f"{self._tuned}_": value})


def _memory(train: Grouped) -> dict[str, Any]:
    return _held(train.x[train.group], train.y, train.weight)


def _held(rows: Floats, responses: Floats, weights: Floats) -> dict[str, Any]:
    """The fitted attributes of a model that holds its training rows."""
    return {"tree_": KDTree(rows), "rows_": rows, "responses_": responses, "weights_": weights}


class KNN(_Neighbours):
    """The weighted responses of the k nearest training rows in standardised covariates.

    The distributions are those responses themselves, so all mass lies in atoms and draws repeat
    training responses exactly. A row of weight w is one neighbour with w times the probability,
    not w neighbours, and so are w identical rows. Fitted and saved models hold the training rows.

    Args:
        n_neighbors: k, or None to choose it from 5 to 300 by the CRPS of held-out covariates.
        validation_fraction: Share of the covariates to hold out for that choice when no
            ``eval_set`` is given.
        random_state: Seed of the split.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Attributes:
        n_neighbors_: The k in use.

    Example:
        >>> model = KNN(n_neighbors=2).fit([[0.0], [1.0], [10.0]], [1.0, 3.0, 50.0])
        >>> model.predict([[0.4]]).tolist()
        [2.0]
    """

    _tuned: ClassVar[str] = "n_neighbors"
    search_space: ClassVar[Space] = {"n_neighbors": Between(1, 500, log=True)}

    n_neighbors_: int

    def __init__(
        self,
        *,
        n_neighbors: int | None = None,
        validation_fraction: float = 0.1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        k = self.n_neighbors
        if not (k is None or is_count(k)):
            raise ValueError(f"n_neighbors must be an integer of at least 1, or None, got {k!r}")

    def _n_knots(self) -> int:
        return 2 * self.n_neighbors_

    def _grid(self, memory: dict[str, Any]) -> list[int]:
        n = len(memory["responses_"])
        return sorted({min(k, n) for k in (5, 10, 20, 30, 50, 75, 100, 150, 200, 300)})

    def _pool(self, memory: dict[str, Any], x: Floats, value: int) -> QuantileTable:
        k = min(value, len(memory["responses_"]))
        nearest = memory["tree_"].query(x, k, return_distance=False)  # (n, k)
        return QuantileTable.of_sample(memory["responses_"][nearest], memory["weights_"][nearest])


class KernelCDE(_Neighbours):
    r"""Nadaraya-Watson: F(y | x) = Σ_i w_i K(|x - x_i| / h) 1{y_i ≤ y} / Σ_i w_i K(|x - x_i| / h).

    K is Gaussian in standardised covariates. Only the 1,000 nearest training rows are summed. Far
    from all of them, where every kernel vanishes, the nearest rows decide. Fitted and saved models
    hold the training rows.

    Args:
        bandwidth: h, in standard deviations of the covariates, or None to choose it by the CRPS of
            held-out covariates.
        validation_fraction: Share of the covariates to hold out for that choice when no
            ``eval_set`` is given.
        random_state: Seed of the split.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Attributes:
        bandwidth_: The h in use.

    Example:
        >>> model = KernelCDE(bandwidth=0.5).fit([[0.0], [1.0], [2.0]], [0.0, 10.0, 20.0])
        >>> model.predict([[1.0]]).tolist()
        [10.0]
    """

    _tuned: ClassVar[str] = "bandwidth"
    _max_neighbors: ClassVar[int] = 1000
    search_space: ClassVar[Space] = {"bandwidth": Between(0.01, 3.0, log=True)}

    bandwidth_: float

    def __init__(
        self,
        *,
        bandwidth: float | None = None,
        validation_fraction: float = 0.1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.bandwidth = bandwidth
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        h = self.bandwidth
        if not (h is None or (isinstance(h, Real) and 0 < float(h) < math.inf)):
            raise ValueError(f"bandwidth must be a positive number, or None, got {h!r}")

    def _n_knots(self) -> int:
        return 2 * self._max_neighbors

    def _grid(self, memory: dict[str, Any]) -> list[float]:
        """Multiples of the typical distance to the tenth neighbour among distinct covariates."""
        distinct = np.unique(memory["rows_"], axis=0)
        some = distinct[:: max(1, len(distinct) // 500)]
        k = min(10, len(distinct))
        typical = float(np.median(KDTree(distinct).query(some, k)[0][:, -1])) or 1.0
        return [typical * 2.0**power for power in np.arange(-3, 3.5, 0.5)]

    def _pool(self, memory: dict[str, Any], x: Floats, value: float) -> QuantileTable:
        k = min(self._max_neighbors, len(memory["responses_"]))
        distance, nearest = memory["tree_"].query(x, k)  # (n, k), nearest first
        # Relative to the nearest row's kernel, so that they cannot all vanish.
        kernel = np.exp((distance[:, :1] ** 2 - distance**2) / (2 * value * value))
        return QuantileTable.of_sample(
            memory["responses_"][nearest], kernel * memory["weights_"][nearest]
        )
