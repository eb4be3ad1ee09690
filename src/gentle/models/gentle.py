"""GENTLE: generative neural transport learning of conditional distributions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gentle.data import Grouped
from gentle.density import bandwidths, kernel_cdf, kernel_quantile
from gentle.distribution import QuantileTable, Seed
from gentle.graph import spanning_tree
from gentle.models.base import ConditionalGenerator, Floats
from gentle.nets import PaperMLP
from gentle.optim import DoublySmoothedGDA
from gentle.training import train as run_epochs
from gentle.transport import semidual, wasserstein

_PAIRS_AT_ONCE = 4096  # (covariate, draw) pairs per pass through a network: what stays in a CPU's cache
_VALIDATION_LEVELS = 101
_MIN_RESPONSES_FOR_WD = 20
_MAX_VALIDATION_COVARIATES = 5000

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


class GENTLE(ConditionalGenerator):
    r"""The paper's model: a map T_θ(x, U), U uniform on (0, 1), whose values are distributed like Y given X = x.

    It minimises Fit(θ) + λ max_φ R(θ, φ). Fit (Eq. 8) compares U with the kernel cdf of a covariate's responses at T_θ(x, U).
    R (Eq. 10) is the entropic optimal-transport cost between the map's distributions at covariates that are neighbours in the
    minimum spanning tree, in its semi-dual form with a conditional potential v_φ(x, y). Both networks are trained by doubly
    smoothed gradient descent-ascent (Alg. 2). Distinct covariates count equally, however many responses they have; weights
    act within a covariate's responses and in the standardisation. ``bandwidth`` and ``epsilon`` are in units of the
    standardised response.

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
        early_stopping: Hold out covariates (or use ``eval_set``), validate after each epoch, restore the best weights.
        criterion: "crps", or "wd" where every validation covariate has at least 20 responses.
        patience: Epochs without improvement before training stops.
        validation_fraction: Share of the covariates to hold out when no ``eval_set`` is given.
        n_levels: Resolution of the quantile tables that answer all questions about a fitted model.
        random_state: Seed of the initial weights, the draws and the split.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: 0 is silent, 1 shows a progress bar.

    Attributes:
        generator_: The network T_θ, in standardised units; `transport_map` evaluates it in original ones.
        potential_: The network v_φ.
        parent_: The tree: partner of each training covariate, -1 at the root, ``(n,)``.
        history_: One record per epoch, for ``pandas.DataFrame(model.history_)`` or `gentle.plots.history`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
        >>> model = GENTLE(n_epochs=2, random_state=0, verbose=0).fit(X, y)
        >>> model.sample(X[:3], n_samples=5, random_state=1).shape
        (3, 5)
    """

    _validates: ClassVar[bool] = True

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
        batch_size: int = 1000,
        n_epochs: int = 50,
        early_stopping: bool = True,
        criterion: Literal["crps", "wd"] = "crps",
        patience: int = 10,
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
        """The settings of the paper for one of its data sets: Adam, a fixed number of epochs, no early stopping.

        Ablations are overrides: ``reg_weight=0`` is "w/o reg", ``anchor_generator=0, anchor_potential=0`` is "w/o smo".

        Example:
            >>> GENTLE.from_paper("ecm", reg_weight=0).bandwidth
            0.2
        """
        if dataset not in PAPER:
            raise ValueError(f"the paper has settings for {sorted(PAPER)}, not for {dataset!r}")
        return cls(**(PAPER[dataset] | overrides))

    def transport_map(self, X: Any, u: ArrayLike) -> Floats:
        """The raw network T_θ(x, u), not rearranged, in units of y: u ``(m,)`` or ``(n, m)`` gives ``(n, m)``."""
        check_is_fitted(self)
        x = self.covariate_encoder_.encode(self._known_covariates(X))
        levels = np.asarray(u, np.float64)
        return self.response_encoder_.decode(self._map(x, np.broadcast_to(levels, (len(x), levels.shape[-1]))))

    def _map(self, x: Floats, u: Floats) -> Floats:
        """T_θ in encoded units, ``(n, d)`` and ``(n, m)`` to ``(n, m)``."""
        return _evaluate(self.generator_, x, u)

    def _conditional(self, x: Floats) -> QuantileTable:
        return _rearranged(self.generator_, x, self.n_levels)

    def _n_knots(self) -> int:
        return self.n_levels

    def _wants_validation(self) -> bool:
        return self.early_stopping

    def _fit(self, train: Grouped, validation: Grouped | None, rng: np.random.Generator) -> dict[str, Any]:
        device = _device(self.device)
        validate = None
        if validation is not None:
            self._check_criterion(validation)
            validation = validation.take(np.arange(min(len(validation), _MAX_VALIDATION_COVARIATES)))
        seed = torch.Generator().manual_seed(int(rng.integers(2**63)))
        n_columns = train.x.shape[1]
        generator = PaperMLP(n_columns, self.hidden_widths, seed).to(device)
        potential = PaperMLP(n_columns, self.hidden_widths, seed).to(device)
        parent = spanning_tree(train.x)
        game = _Game(self, train, parent, generator, potential, torch.Generator(device).manual_seed(seed.initial_seed()))
        if validation is not None:
            validate = lambda: _validation_score(generator, validation, self.criterion)  # noqa: E731
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
        return {"generator_": generator, "potential_": potential, "parent_": parent, "history_": history}

    def _check_criterion(self, validation: Grouped) -> None:
        fewest = int(validation.counts.min())
        if self.criterion == "wd" and fewest < _MIN_RESPONSES_FOR_WD:
            raise ValueError(
                f"criterion='wd' needs at least {_MIN_RESPONSES_FOR_WD} responses for every validation covariate, but one has "
                f"{fewest}. The Wasserstein distance to few responses is smallest for a point mass, so it would choose "
                "a model without spread. Use criterion='crps', or pass an eval_set whose covariates repeat."
            )

    def _check_parameters(self) -> None:
        choices = {"fit_loss": ("cdf", "w2"), "inner": ("adam", "sgd"), "criterion": ("crps", "wd")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for name in ("lr_generator", "lr_potential", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        for name in ("reg_weight", "anchor_generator", "anchor_potential"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        for name in ("follow_generator", "follow_potential"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)!r}")
        for name in ("n_draws", "batch_size", "n_epochs", "patience", "n_levels"):
            if not getattr(self, name) >= (2 if name == "n_levels" else 1):
                raise ValueError(f"{name} must be at least {2 if name == 'n_levels' else 1}, got {getattr(self, name)!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}")

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"parent": self.parent_}
        for name, module in (("generator", self.generator_), ("potential", self.potential_)):
            for key, tensor in module.state_dict().items():
                arrays[f"{name}.{key}"] = tensor.detach().cpu().numpy()
        return arrays, {"history": self.history_}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        device = _device(self.device)
        for name in ("generator", "potential"):
            module = PaperMLP(self.n_features_in_, self.hidden_widths)
            prefix = f"{name}."
            weights = {k[len(prefix) :]: torch.from_numpy(v) for k, v in arrays.items() if k.startswith(prefix)}
            module.load_state_dict(weights)
            setattr(self, f"{name}_", module.to(device))
        self.parent_, self.history_ = arrays["parent"], facts["history"]


@dataclass(frozen=True)
class _Batch:
    """What one pass needs of some covariates; R responses, of which those of one covariate share a ``group``."""

    x: Tensor  # (B, d)
    u: Tensor  # (B, m)
    y: Tensor  # (R,)
    share: Tensor  # (R,)
    group: Tensor  # (R,)
    bandwidth: Tensor  # (B,)
    edge: Tensor  # (E,) those with a partner
    partner: Tensor  # (E, d) x_j


class _Game:
    """The minimax problem of Eq. 12 on a data set: losses of a batch, and one step of Alg. 2."""

    def __init__(
        self,
        model: GENTLE,
        data: Grouped,
        parent: NDArray[np.int64],
        generator: PaperMLP,
        potential: PaperMLP,
        draws: torch.Generator,
    ) -> None:
        self.model, self.data, self.parent = model, data, parent
        self.generator, self.potential, self.draws = generator, potential, draws
        self.theta, self.phi = list(generator.parameters()), list(potential.parameters())
        tensor = lambda array: torch.as_tensor(array, dtype=torch.float32, device=draws.device)  # noqa: E731
        self.x, self.y, self.share = tensor(data.x), tensor(data.y), tensor(data.share)
        group = torch.as_tensor(data.group, device=draws.device)
        self.bandwidth = bandwidths(model.bandwidth, self.y, self.share, group, len(data))
        self.optimizer = DoublySmoothedGDA(
            self.theta,
            self.phi if model.reg_weight else [],
            lr_generator=model.lr_generator,
            lr_potential=model.lr_potential,
            anchor_generator=model.anchor_generator,
            anchor_potential=model.anchor_potential,
            follow_generator=model.follow_generator,
            follow_potential=model.follow_potential,
            inner=model.inner,
        )

    def step(self, covariates: NDArray[np.int64]) -> dict[str, float]:
        """Lines 4-7 of Alg. 2 on a batch of covariates; returns its losses."""
        u = self.draw(len(covariates))  # (B, m)
        size = max(1, _PAIRS_AT_ONCE // self.model.n_draws)
        parts = [
            self.batch(covariates[first : first + size], u[first : first + size])
            for first in range(0, len(covariates), size)
        ]
        n_edges = max(1, sum(len(part.edge) for part in parts))
        fit = torch.zeros((), device=u.device)
        reg = torch.zeros((), device=u.device)

        def generator_gradient() -> None:
            for part in parts:
                part_fit, part_reg = self.losses(part)
                part_fit, part_reg = part_fit / len(covariates), part_reg / n_edges
                loss = part_fit + self.model.reg_weight * part_reg
                _accumulate(loss, self.theta)
                fit.add_(part_fit.detach())
                reg.add_(part_reg.detach())

        def potential_gradient() -> None:
            for part in parts:
                if len(part.edge):
                    with torch.no_grad():
                        here, there = self.generated(part)
                    loss = self.model.reg_weight * self.regulariser(part, here, there) / n_edges
                    _accumulate(loss, self.phi)

        self.optimizer.step(generator_gradient, potential_gradient)
        losses = {"loss": float(fit + self.model.reg_weight * reg), "fit": float(fit)}
        return losses | ({"reg": float(reg)} if self.model.reg_weight else {})

    def losses(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Sums over the batch of Fit (over covariates) and R (over edges)."""
        here = self.generator(batch.x, batch.u)  # (B, m)
        fit = self.fit(batch, here)
        if not (self.model.reg_weight and len(batch.edge)):
            return fit, torch.zeros_like(fit)
        edge = batch.edge
        there = self.generator(batch.partner, batch.u[edge])  # (E, m)
        return fit, self.regulariser(batch, here[edge], there)

    def fit(self, batch: _Batch, here: Tensor) -> Tensor:
        """Alg. 1's Fit: the draws' squared gap to the kernel cdf (Eq. 8), or to its inverse (Eq. 7)."""
        kernels = (batch.y, batch.share, batch.group, batch.bandwidth)
        if self.model.fit_loss == "cdf":
            gap = batch.u - kernel_cdf(here, *kernels)
        else:
            gap = kernel_quantile(batch.u, *kernels) - here
        return gap.square().mean(dim=1).sum()

    def generated(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """T(x_i, U) and T(x_j, U) along the batch's edges, both ``(E, m)``."""
        u = batch.u[batch.edge]
        return self.generator(batch.x[batch.edge], u), self.generator(batch.partner, u)

    def regulariser(self, batch: _Batch, here: Tensor, there: Tensor) -> Tensor:
        """Sum over edges of the semi-dual between T(x_i, U), which has the potential, and T(x_j, U) (Eq. 10)."""
        v = self.potential(batch.x[batch.edge], here)  # (E, m)
        return semidual(v, here, there, self.model.epsilon).sum()

    def draw(self, n: int) -> Tensor:
        """U for n covariates, ``(n, n_draws)``, strictly inside (0, 1)."""
        m = self.model.n_draws
        u = torch.rand(n, m, generator=self.draws, device=self.draws.device)
        if self.model.stratified:
            u = (torch.arange(m, device=u.device) + u) / m
        return u.clamp(1e-6, 1 - 1e-6)

    def batch(self, covariates: NDArray[np.int64], u: Tensor) -> _Batch:
        rows, group = self.data.rows(covariates)
        parent = self.parent[covariates]
        edge = np.flatnonzero(parent >= 0)
        index = lambda array: torch.as_tensor(array, device=self.x.device)  # noqa: E731
        chosen, responses = index(covariates), index(rows)
        return _Batch(
            x=self.x[chosen],
            u=u,
            y=self.y[responses],
            share=self.share[responses],
            group=index(group),
            bandwidth=self.bandwidth[chosen],
            edge=index(edge),
            partner=self.x[index(parent[edge])],
        )


def _accumulate(loss: Tensor, params: list[Tensor]) -> None:
    """Add the gradient with respect to these parameters only to their ``grad``."""
    for param, gradient in zip(params, torch.autograd.grad(loss, params)):
        param.grad = gradient if param.grad is None else param.grad.add_(gradient)


@torch.no_grad()
def _evaluate(net: PaperMLP, x: Floats, s: Floats) -> Floats:
    """A network at many points in cache-sized pieces, ``(n, d)`` and ``(n, m)`` to ``(n, m)``."""
    device = net.weights[0].device
    size = max(1, _PAIRS_AT_ONCE // s.shape[1])
    out = np.empty(s.shape)
    for first in range(0, len(x), size):
        rows = slice(first, first + size)
        points = [torch.tensor(a[rows], dtype=torch.float32, device=device) for a in (x, s)]
        out[rows] = net(*points).cpu().numpy()
    return out


def _rearranged(net: PaperMLP, x: Floats, n_levels: int) -> QuantileTable:
    """The quantile functions of T(x, U): the map on an even grid of levels, sorted, for it need not be monotone."""
    levels = np.linspace(0, 1, n_levels)
    values = _evaluate(net, x, np.broadcast_to(levels, (len(x), n_levels)))
    return QuantileTable(levels, np.sort(values, axis=1))


def _validation_score(net: PaperMLP, validation: Grouped, criterion: str) -> float:
    """Mean CRPS over the validation responses, or mean Wasserstein distance over the covariates, in encoded units."""
    table = _rearranged(net, validation.x, _VALIDATION_LEVELS)
    responses, weights = validation.padded()
    if criterion == "crps":
        return float(np.average(table.crps(responses), weights=weights))
    middles = (np.arange(_VALIDATION_LEVELS) + 0.5) / _VALIDATION_LEVELS
    return float(wasserstein(table.quantile(middles), responses, None, weights).mean())


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device.type, False):
        usable = [kind for kind, there in available.items() if there]
        warnings.warn(f"device {name!r} is not available here; using the CPU instead of one of {usable}", stacklevel=4)
        return torch.device("cpu")
    return device
