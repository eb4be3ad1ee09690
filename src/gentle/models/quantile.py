"""QRGMM: quantile regressions at many levels, joined to one quantile function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import PolynomialFeatures

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.learners import Learner
from gentle.models import checks
from gentle.models.base import Floats
from gentle.models.checks import are_widths, is_count
from gentle.models.intake import mean_crps
from gentle.models.neural import NeuralGenerator, chosen_device, is_device
from gentle.models.pinball import quantile_regressions
from gentle.nets import QuantileMLP
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed
from gentle.training import train as run_epochs

_DEGREES = (1, 2, 3)  # among which held-out covariates choose
_CHOICE_LEVELS = 19  # enough to compare degrees
_MAX_LEVELS = 300
_MAX_FEATURES = 300
_DECIMALS = 7  # of standardised quantiles


class QRGMM(NeuralGenerator):
    r"""Quantile regression as a generative metamodel (Hong et al., 2023).

    Quantiles of Y given X = x are regressed on x at the levels j / (m + 1), j = 1, ..., m, and
    joined by straight lines; draws are its values at uniform levels. Where neighbouring levels
    cross they are sorted. Nothing is known beyond the outermost levels: below the first lies the
    first quantile and above the last the last one, each with the probability 1 / (m + 1).

    A "linear" regression is linear in the monomials of the standardised covariates up to a degree,
    products of different covariates included, and is solved exactly, level by level. A "neural" one
    is one network with an output for each level, trained on the mean pinball loss of all levels.

    Args:
        regression: "linear" or "neural".
        n_levels: m; None takes the square root of the number of training rows, at most 300.
        degree: Of the polynomials of the linear regression: 1 to 5, or None to choose 1, 2 or 3 by
            the CRPS of held-out covariates. From the second degree on at most 300 monomials.
        hidden_widths: Units of the network's hidden layers.
        learning_rate: Of Adam. Of 3e-4, 1e-3 and 3e-3 the first had the best validation CRPS, or
            shared it, on four problems; other widths and batches made little difference.
        batch_size: Rows per step.
        n_epochs: Largest number of passes over the rows.
        early_stopping: Hold out covariates (or use ``eval_set``), compute their CRPS after each
            epoch, restore the best weights.
        patience: Epochs without improvement before training stops.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given: for early stopping, or for the choice of the degree.
        random_state: Seed of the initial weights, the batches and the split.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU; where
            the network is trained.
        verbose: 0 is silent, 1 shows a progress bar in a terminal or notebook, 2 writes a line per
            epoch, for logs.

    Attributes:
        levels_: The levels, ``(m,)``.
        degree_: The degree in use, None for a network.
        coefficients_: Of the monomials, in standardised units, ``(p, m)``; linear only.
        network_: The network, in standardised units; neural only.
        history_: One record per epoch; neural only.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 1, (2000, 1))
        >>> y = 4 * X[:, 0] + rng.uniform(0, 1 + X[:, 0])  # uniform on (4x, 5x + 1)
        >>> QRGMM(degree=1).fit(X, y).predict_quantiles([[0.0], [1.0]], [0.2, 0.8]).round(1)
        array([[0.2, 0.8],
               [4.4, 5.6]])
    """

    _networks: ClassVar[tuple[str, ...]] = ("network",)
    search_space: ClassVar[Space] = {
        "regression": OneOf(("linear", "neural")),
        "degree": OneOf(_DEGREES),
        "hidden_widths": OneOf(((64, 64), (128, 128, 128), (256, 256, 256))),
        "learning_rate": Between(1e-4, 1e-2, log=True),
        "batch_size": OneOf((64, 256, 1024)),
    }

    levels_: Floats
    degree_: int | None
    coefficients_: Floats
    network_: QuantileMLP

    def __init__(
        self,
        *,
        regression: Literal["linear", "neural"] = "linear",
        n_levels: int | None = None,
        degree: int | None = None,
        hidden_widths: Sequence[int] = (128, 128, 128),
        learning_rate: float = 3e-4,
        batch_size: int = 256,
        n_epochs: int = 200,
        early_stopping: bool = True,
        patience: int = 20,
        validation_fraction: float = 0.1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.regression = regression
        self.n_levels = n_levels
        self.degree = degree
        self.hidden_widths = hidden_widths
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.early_stopping = early_stopping
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _held_out(self) -> float:
        stops_early = self.regression == "neural" and self.early_stopping
        return self.validation_fraction if stops_early else 0.0

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        m = self.n_levels or min(math.ceil(math.sqrt(len(train.y))), _MAX_LEVELS)
        levels = _even_levels(m)
        fit = self._fit_network if self.regression == "neural" else self._fit_linear
        return {"levels_": levels} | fit(train, validation, levels, rng)

    def _fit_linear(
        self, train: Grouped, validation: Grouped | None, levels: Floats, rng: np.random.Generator
    ) -> dict[str, Any]:
        degree = self.degree
        if degree is None:
            part = train
            if validation is None and len(train) > 1:
                part, validation = train.split(self.validation_fraction, rng)
            degree = _chosen_degree(part, validation or part)
        _check_size(train.x.shape[1], degree)
        return {"degree_": degree, "coefficients_": _coefficients(train, degree, levels)}

    def _fit_network(
        self, train: Grouped, validation: Grouped | None, levels: Floats, rng: np.random.Generator
    ) -> dict[str, Any]:
        device = chosen_device(self.device)
        weights = torch.Generator().manual_seed(int(rng.integers(2**63)))
        network = QuantileMLP(train.x.shape[1], self.hidden_widths, len(levels), weights).to(device)

        def validate() -> float:
            assert validation is not None
            return mean_crps(
                lambda part: _table(levels, _outputs(network, part.x, len(part))), validation
            )

        history = run_epochs(
            _Regressions(network, train, levels, self.learning_rate),
            n_items=len(train.y),
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            rng=rng,
            validate=None if validation is None else validate,
            patience=self.patience if self.early_stopping else None,
            label=type(self).__name__,
            verbose=self.verbose,
        )
        return {"degree_": None, "network_": network, "history_": history}

    def _conditional(self, x: Floats) -> QuantileTable:
        if self.degree_ is None:
            return _table(self.levels_, _outputs(self.network_, x))
        return _table(self.levels_, _polynomials(x, self.degree_, self.coefficients_))

    def _n_knots(self) -> int:
        return len(self.levels_) + 2

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require("regression", lambda v: v in ("linear", "neural"), "'linear' or 'neural'")
        require("n_levels", lambda v: v is None or is_count(v), "an integer of at least 1, or None")
        require(
            "degree",
            lambda v: v is None or (is_count(v) and v <= 5),
            "an integer from 1 to 5, or None",
        )
        require("learning_rate", lambda v: v > 0, "positive")
        require("batch_size n_epochs patience", is_count, "an integer of at least 1")
        require("validation_fraction", lambda v: 0 < v < 1, "between 0 and 1")
        require("hidden_widths", are_widths, "a sequence of positive integers, at most 100")
        require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")

    def _network(
        self, name: str, n_covariates: int, weights: torch.Generator | None
    ) -> QuantileMLP:
        return QuantileMLP(n_covariates, self.hidden_widths, len(self.levels_), weights)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.degree_ is None:
            arrays, facts = super()._get_state()
        else:
            arrays, facts = {"coefficients": self.coefficients_}, {}
        return arrays | {"levels": self.levels_}, facts | {"degree": self.degree_}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        levels, degree = np.asarray(arrays["levels"], np.float64), facts["degree"]
        if not (len(levels) > 0 and np.array_equal(levels, _even_levels(len(levels)))):
            raise ValueError("its levels are damaged")
        self.levels_, self.degree_ = levels, degree
        if degree is None:
            return super()._set_state(arrays, facts)
        self.coefficients_ = np.asarray(arrays["coefficients"], np.float64)
        if not (
            is_count(degree)
            and degree <= 5
            and self.coefficients_.shape == (_n_monomials(self._n_encoded, degree), len(levels))
        ):
            raise ValueError("its coefficients are damaged: they do not belong to its columns")


class _Regressions(Learner):
    """The neural regressions of all levels in training, on the mean of their pinball losses."""

    _changing: ClassVar[tuple[str, ...]] = ("network", "optimiser")

    def __init__(
        self, network: QuantileMLP, data: Grouped, levels: Floats, learning_rate: float
    ) -> None:
        self.network, self.device = network, next(network.parameters()).device
        self.optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
        weight = (data.weight / data.weight.mean())[:, None]
        self.x, self.y, self.weight, self.tau = (
            torch.as_tensor(array, dtype=torch.float32, device=self.device)
            for array in (data.x[data.group], data.y[:, None], weight, levels)
        )

    def step(self, batch: NDArray[np.int64]) -> dict[str, float]:
        """A step of Adam on the rows with these numbers."""
        i = torch.as_tensor(batch, device=self.device)
        r = self.y[i] - self.network(self.x[i])  # (B, m)
        loss = (self.weight[i] * torch.maximum(self.tau * r, (self.tau - 1) * r)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return {"loss": loss.item()}


def _even_levels(m: int) -> Floats:
    return np.arange(1, m + 1) / (m + 1)


def _table(levels: Floats, values: Floats) -> QuantileTable:
    """Quantile functions from values at inner levels ``(n, m)``: sorted, constant at both ends."""
    ends = [0, *range(len(levels)), len(levels) - 1]
    return QuantileTable(np.concatenate([[0.0], levels, [1.0]]), np.sort(values, axis=1)[:, ends])


@torch.no_grad()
def _outputs(network: QuantileMLP, x: Floats, rows_at_once: int = 1) -> Floats:
    """The network's values, ``(n, m)``; one row at a time, lest it depend on its company."""
    device = next(network.parameters()).device
    return np.concatenate(
        [
            network(torch.tensor(x[first : first + rows_at_once], dtype=torch.float32).to(device))
            .cpu()
            .double()
            .numpy()
            for first in range(0, len(x), rows_at_once)
        ]
    )


def _monomials(x: Floats, degree: int) -> Floats:
    """All products of up to ``degree`` covariates, the empty one first, ``(n, p)``."""
    return PolynomialFeatures(degree).fit_transform(x)


def _polynomials(x: Floats, degree: int, coefficients: Floats) -> Floats:
    """Values of the polynomials, ``(n, m)``; row by row, lest one depend on its company.

    They are rounded: where several levels pass through one training row, an atom, they are equal.
    """
    values = [row @ coefficients for row in _monomials(x, degree)]
    return np.stack(values).round(_DECIMALS)


def _coefficients(train: Grouped, degree: int, levels: Floats) -> Floats:
    features = _monomials(train.x, degree)[train.group]
    return quantile_regressions(features, train.y, train.weight / train.weight.mean(), levels)


def _chosen_degree(train: Grouped, validation: Grouped) -> int:
    """The degree with the smallest CRPS on held-out covariates."""
    levels = _even_levels(_CHOICE_LEVELS)

    def crps(degree: int) -> float:
        coefficients = _coefficients(train, degree, levels)
        return mean_crps(
            lambda part: _table(levels, _polynomials(part.x, degree, coefficients)), validation
        )

    n_covariates = train.x.shape[1]
    fitting = [k for k in _DEGREES if k == 1 or _n_monomials(n_covariates, k) <= _MAX_FEATURES]
    return min(fitting, key=crps)


def _n_monomials(n_covariates: int, degree: int) -> int:
    return math.comb(n_covariates + degree, degree)


def _check_size(n_covariates: int, degree: int) -> None:
    count = _n_monomials(n_covariates, degree)
    if degree > 1 and count > _MAX_FEATURES:
        raise ValueError(
            f"degree={degree} makes {count} monomials of {n_covariates} covariates, more than the "
            f"{_MAX_FEATURES} that a linear regression takes. Lower degree, pass fewer columns, "
            "or use regression='neural'."
        )
