"""What a user would try first: the marginal and the nearest neighbours."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.neighbors import KDTree

from gentle.data import Grouped
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.models.base import ConditionalGenerator, Floats, mean_crps
from gentle.streams import Seed


class Marginal(ConditionalGenerator):
    """The distribution of all training responses: the answer that knows nothing of x.

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


class KNN(ConditionalGenerator):
    """The weighted responses of the k nearest training rows in standardised covariates.

    The distributions are those responses themselves, so all mass lies in atoms and draws repeat
    training responses exactly. A row of weight w is one neighbour with w times the probability,
    not w neighbours. Fitted and saved models hold the training rows.

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

    _encodes_response: ClassVar[bool] = False

    n_neighbors_: int
    tree_: KDTree
    rows_: Floats
    responses_: Floats
    weights_: Floats

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
        k = self.n_neighbors
        if not (k is None or (isinstance(k, Integral) and k >= 1)):
            raise ValueError(f"n_neighbors must be an integer of at least 1, or None, got {k!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}"
            )

    def _n_knots(self) -> int:
        return 2 * self.n_neighbors_

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        k = self.n_neighbors
        if k is None:
            part = train
            if validation is None and len(train) > 1:
                part, validation = train.split(self.validation_fraction, rng)
            k = self._chosen(part, validation)
        return self._memory(train) | {"n_neighbors_": min(k, len(train.y))}

    def _chosen(self, train: Grouped, validation: Grouped | None) -> int:
        if validation is None:
            return len(train.y)
        memory = self._memory(train)
        grid = sorted({min(k, len(train.y)) for k in (5, 10, 20, 30, 50, 75, 100, 150, 200, 300)})

        def crps(k: int) -> float:
            return mean_crps(
                lambda part: _pool(memory["tree_"].query(part.x, k)[1], memory), validation
            )

        return min(grid, key=crps)

    @staticmethod
    def _memory(train: Grouped) -> dict[str, Any]:
        rows = train.x[train.group]  # (N, d)
        return {
            "tree_": KDTree(rows),
            "rows_": rows,
            "responses_": train.y,
            "weights_": train.weight,
        }

    def _conditional(self, x: Floats) -> QuantileTable:
        _, nearest = self.tree_.query(x, k=self.n_neighbors_)
        return _pool(nearest, vars(self))

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"rows": self.rows_, "responses": self.responses_, "weights": self.weights_}
        return arrays, {"n_neighbors": self.n_neighbors_}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        self.rows_, self.responses_, self.weights_ = (
            arrays[k] for k in ("rows", "responses", "weights")
        )
        self.tree_, self.n_neighbors_ = KDTree(self.rows_), int(facts["n_neighbors"])


def _pool(nearest: Any, memory: dict[str, Any]) -> QuantileTable:
    """The weighted responses of each row's neighbours ``(n, k)`` as a distribution."""
    return QuantileTable.of_sample(memory["responses_"][nearest], memory["weights_"][nearest])
