"""GENTLE: generative neural transport learning of conditional distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.graph import spanning_tree
from gentle.models import checks
from gentle.models.base import Floats, mean_crps
from gentle.models.checks import is_count
from gentle.models.game import PAIRS_AT_ONCE, Game
from gentle.models.neural import NeuralGenerator, chosen_device, evaluate, is_device
from gentle.nets import PaperMLP
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed
from gentle.training import train as run_epochs
from gentle.transport import wasserstein

_VALIDATION_LEVELS = 101
_MIN_RESPONSES_FOR_WD = 20
_MIN_RESPONSES_FOR_SKILL = 30

PAPER: dict[str, dict[str, Any]] = {
    name: {
        "lr_generator": 1e-3,
        "lr_potential": 1e-3,
        "epsilon": 1.0,
        "reg_weight": 0.4,
        "anchor_generator": 3.0,
        "anchor_potential": 2.0,
        "follow_generator": 0.5,
        "follow_potential": 0.7,
        "bandwidth": bandwidth,
        "hidden_widths": (256, 256, 128, 128, 64, 64),
        "batch_size": 1000,
        "n_draws": 64,
        "stratified": False,
        "n_epochs": 50,
        "inner": "adam",
        "early_stopping": False,
    }
    for name, bandwidth in {"ldw-cps": 0.3, "ecm": 0.2}.items()
}


class GENTLE(NeuralGenerator):
    r"""The paper's model: a map T_θ(x, U), U uniform on (0, 1), distributed like Y given X = x.

    It minimises Fit(θ) + λ max_φ R(θ, φ). Fit (Eq. 8) compares U with the kernel cdf of a
    covariate's responses at T_θ(x, U). R (Eq. 10) is the entropic optimal-transport cost between
    the map's distributions at covariates that are neighbours in the minimum spanning tree, in its
    semi-dual form with a conditional potential v_φ(x, y). Both networks are trained by doubly
    smoothed gradient descent-ascent (Alg. 2). Distinct covariates count equally, however many
    responses they have; weights act within a covariate's responses and in the standardisation.
    ``bandwidth`` and ``epsilon`` are in units of the standardised response.

    Args:
        fit_loss: "cdf" is Eq. 8, "w2" the squared distance of quantiles of Eq. 7.
        reg_weight: λ, strength of the transport regulariser; 0 switches it off.
        bandwidth: h, of the Gaussian kernels; a number, "scott" or "silverman".
        epsilon: ε, entropic strength.
        lr_generator: α, learning rate of T_θ.
        lr_potential: β, learning rate of v_φ.
        anchor_generator: r₁, pull of θ towards its follower p; 0 switches the smoothing off.
        anchor_potential: r₂, pull of φ towards its follower q.
        follow_generator: γ, how fast p follows θ.
        follow_potential: δ, how fast q follows φ.
        inner: "adam" or "sgd", the step that a gradient becomes.
        hidden_widths: Units of the hidden layers of both networks.
        n_draws: Draws of U per covariate and step.
        stratified: Draw U stratified over (0, 1): the same expectation with less variance.
        batch_size: Covariates per step.
        n_epochs: Largest number of passes over the covariates.
        early_stopping: Hold out covariates (or use ``eval_set``), validate after each epoch,
            restore the best weights.
        criterion: "crps", or "wd" where every validation covariate has at least 20 responses.
        patience: Epochs without improvement before training stops.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        n_levels: Resolution of the quantile tables that answer all questions about a fitted model.
        random_state: Seed of the initial weights, the draws and the split.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: 0 is silent, 1 shows a progress bar in a terminal or notebook, 2 writes a line per
            epoch, for logs.

    Attributes:
        generator_: The network T_θ, in standardised units; `transport_map` evaluates it in original
            ones.
        potential_: The network v_φ.
        parent_: The tree: partner of each training covariate, -1 at the root, ``(n,)``.
        history_: One record per epoch, for ``pandas.DataFrame(model.history_)`` or
            `gentle.plots.history`.
        validation_skill_: CRPS skill on the validation responses over the marginal, None if there
            were fewer than 30, or another criterion.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
        >>> model = GENTLE(n_epochs=2, random_state=0, verbose=0).fit(X, y)
        >>> model.sample(X[:3], n_samples=5, random_state=1).shape
        (3, 5)
    """

    _networks: ClassVar[tuple[str, ...]] = ("generator", "potential")
    search_space: ClassVar[Space] = {
        "fit_loss": OneOf(("cdf", "w2")),
        "reg_weight": Between(0.001, 1.0, log=True),
        "bandwidth": Between(0.02, 1.0, log=True),
        "epsilon": Between(0.01, 1.0, log=True),
        "lr_generator": Between(2e-4, 5e-3, log=True),
        "batch_size": OneOf((64, 250, 1000)),
        "hidden_widths": OneOf(
            ((64, 64, 64), (128, 128, 128), (256, 256, 256), (256, 256, 128, 128, 64, 64))
        ),
    }

    generator_: PaperMLP
    potential_: PaperMLP
    parent_: NDArray[np.int64]
    validation_skill_: float | None

    def __init__(
        self,
        *,
        fit_loss: Literal["cdf", "w2"] = "cdf",
        reg_weight: float = 0.4,
        bandwidth: float | Literal["scott", "silverman"] = 0.3,
        epsilon: float = 1.0,
        lr_generator: float = 1e-3,
        lr_potential: float = 1e-3,
        anchor_generator: float = 3.0,
        anchor_potential: float = 2.0,
        follow_generator: float = 0.5,
        follow_potential: float = 0.7,
        inner: Literal["adam", "sgd"] = "adam",
        hidden_widths: Sequence[int] = (256, 256, 128, 128, 64, 64),
        n_draws: int = 16,
        stratified: bool = True,
        batch_size: int = 250,
        n_epochs: int = 200,
        early_stopping: bool = True,
        criterion: Literal["crps", "wd"] = "crps",
        patience: int = 20,
        validation_fraction: float = 0.1,
        n_levels: int = 501,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.fit_loss = fit_loss
        self.reg_weight = reg_weight
        self.bandwidth = bandwidth
        self.epsilon = epsilon
        self.lr_generator = lr_generator
        self.lr_potential = lr_potential
        self.anchor_generator = anchor_generator
        self.anchor_potential = anchor_potential
        self.follow_generator = follow_generator
        self.follow_potential = follow_potential
        self.inner = inner
        self.hidden_widths = hidden_widths
        self.n_draws = n_draws
        self.stratified = stratified
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.early_stopping = early_stopping
        self.criterion = criterion
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_levels = n_levels
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @classmethod
    def from_paper(cls, dataset: Literal["ldw-cps", "ecm"], **overrides: Any) -> Self:
        """The settings of the paper for one of its data sets.

        Adam, a fixed number of epochs, no early stopping, independent draws. Ablations are
        overrides: ``reg_weight=0`` is "w/o reg", ``anchor_generator=0, anchor_potential=0`` is
        "w/o smo".

        Example:
            >>> GENTLE.from_paper("ecm", reg_weight=0).bandwidth
            0.2
        """
        if dataset not in PAPER:
            raise ValueError(f"the paper has settings for {sorted(PAPER)}, not for {dataset!r}")
        return cls(**(PAPER[dataset] | overrides))

    def transport_map(self, X: Any, u: ArrayLike) -> Floats:
        """The network T_θ(x, u) as it is, not rearranged, in units of y.

        Args:
            X: Covariates, ``(n, d)``.
            u: Levels in [0, 1], ``(m,)`` for all rows or ``(n, m)``.

        Returns:
            The map's values, ``(n, m)``.
        """
        x, levels = self._encoded_covariates(X), np.asarray(u, np.float64)
        if levels.ndim not in (1, 2) or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError("u must be an array (m,) or (n, m) of levels between 0 and 1")
        levels = np.broadcast_to(levels, (len(x), levels.shape[-1]))
        return self.response_encoder_.decode(_values(self.generator_, x, levels))

    def _conditional(self, x: Floats) -> QuantileTable:
        return _rearranged(self.generator_, x, self.n_levels)

    def _n_knots(self) -> int:
        return self.n_levels

    def _held_out(self) -> float:
        return self.validation_fraction if self.early_stopping else 0.0

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        device = chosen_device(self.device)
        weights_seed, draws_seed = (int(seed) for seed in rng.integers(2**63, size=2))
        weights = torch.Generator().manual_seed(weights_seed)
        draws = torch.Generator(device).manual_seed(draws_seed)
        generator, potential = (
            self._network(name, train.x.shape[1], weights).to(device) for name in self._networks
        )
        parent = spanning_tree(train.x)
        game = Game(self, train, parent, generator, potential, draws)
        validate = None
        if validation is not None:
            self._check_criterion(validation)
            validate = partial(_validation_score, generator, validation, self.criterion)
        history = run_epochs(
            game.step,
            n_items=len(train),
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            rng=rng,
            modules=[generator, potential],
            validate=validate,
            patience=self.patience if self.early_stopping else None,
            label=type(self).__name__,
            verbose=self.verbose,
        )
        return {
            "generator_": generator,
            "potential_": potential,
            "parent_": parent,
            "history_": history,
            "validation_skill_": self._validation_skill(train, validation, history),
        }

    def _validation_skill(
        self, train: Grouped, validation: Grouped | None, history: list[dict[str, float]]
    ) -> float | None:
        if validation is None or self.criterion != "crps":
            return None
        if len(validation.y) < _MIN_RESPONSES_FOR_SKILL:
            return None
        marginal = QuantileTable.of_sample(train.y, train.weight)
        baseline = mean_crps(lambda part: marginal.repeat(len(part)), validation)
        scores = [record["validation"] for record in history]
        return 1 - (min(scores) if self.early_stopping else scores[-1]) / baseline

    def _check_criterion(self, validation: Grouped) -> None:
        fewest = int(validation.counts.min())
        if self.criterion == "wd" and fewest < _MIN_RESPONSES_FOR_WD:
            raise ValueError(
                f"criterion='wd' needs at least {_MIN_RESPONSES_FOR_WD} responses for every "
                f"validation covariate, but one has {fewest}. The Wasserstein distance to few "
                "responses is smallest for a point mass, so it would choose a model without "
                "spread. Use criterion='crps', or pass an eval_set whose covariates repeat."
            )

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require("fit_loss", lambda v: v in ("cdf", "w2"), "'cdf' or 'w2'")
        require("inner", lambda v: v in ("adam", "sgd"), "'adam' or 'sgd'")
        require("criterion", lambda v: v in ("crps", "wd"), "'crps' or 'wd'")
        require(
            "bandwidth",
            lambda v: v in ("scott", "silverman") if isinstance(v, str) else 0 < v < math.inf,
            "a positive number, 'scott' or 'silverman'",
        )
        require("lr_generator lr_potential epsilon", lambda v: v > 0, "positive")
        require("reg_weight anchor_generator anchor_potential", lambda v: v >= 0, "at least 0")
        require("follow_generator follow_potential", lambda v: 0 <= v <= 1, "between 0 and 1")
        require("n_draws batch_size n_epochs patience", is_count, "an integer of at least 1")
        require("n_levels", lambda v: is_count(v, 2), "an integer of at least 2")
        require("validation_fraction", lambda v: 0 < v < 1, "between 0 and 1")
        require(
            "hidden_widths",
            lambda v: len(v) > 0 and all(is_count(width) for width in v),
            "a sequence of positive integers",
        )
        require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")

    def _network(self, name: str, n_covariates: int, weights: torch.Generator | None) -> PaperMLP:
        return PaperMLP(n_covariates, self.hidden_widths, weights)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._get_state()
        skill = {"validation_skill": self.validation_skill_}
        return arrays | {"parent": self.parent_}, facts | skill

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        super()._set_state(arrays, facts)
        self.parent_ = arrays["parent"]
        self.validation_skill_ = facts.get("validation_skill")


def _values(net: PaperMLP, x: Floats, points: Floats, rows_at_once: int = 1) -> Floats:
    return evaluate(net, x, points, net.weights[0].device, rows_at_once)


def _rearranged(net: PaperMLP, x: Floats, n_levels: int, rows_at_once: int = 1) -> QuantileTable:
    """Quantile functions of T(x, U): its values on an even grid of levels, sorted.

    The paper's network need not be monotone in u; sorting gives the quantile function of T(x, U).
    """
    levels = np.linspace(0, 1, n_levels)
    values = _values(net, x, np.broadcast_to(levels, (len(x), n_levels)), rows_at_once)
    return QuantileTable(levels, np.sort(values, axis=1))


def _validation_score(net: PaperMLP, validation: Grouped, criterion: str) -> float:
    """Mean CRPS over the responses, or mean Wasserstein distance over the covariates."""
    rows_at_once = max(1, PAIRS_AT_ONCE // _VALIDATION_LEVELS)

    def predict(part: Grouped) -> QuantileTable:
        return _rearranged(net, part.x, _VALIDATION_LEVELS, rows_at_once)

    if criterion == "crps":
        return mean_crps(predict, validation)
    middles = (np.arange(_VALIDATION_LEVELS) + 0.5) / _VALIDATION_LEVELS
    distances = []
    for which in validation.chunks():
        responses, weights = (part := validation.take(which)).padded()
        distances.append(wasserstein(predict(part).quantile(middles), responses, None, weights))
    return float(np.concatenate(distances).mean())
