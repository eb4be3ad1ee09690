"""The paper's minimax problem on a data set (Eqs. 8, 10, 12), a batch at a time (Algs. 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gentle import teams
from gentle.data import Grouped
from gentle.density import bandwidths, kernel_cdf, kernel_quantile
from gentle.distribution import QuantileTable
from gentle.graph import partners
from gentle.learners import Learner
from gentle.models.base import Floats
from gentle.models.intake import mean_crps
from gentle.models.neural import chosen_device, evaluate
from gentle.nets import MonotoneMap, PaperMLP
from gentle.optim import DoublySmoothedGDA
from gentle.training import train as run_epochs
from gentle.transport import self_transport, semidual, wasserstein

if TYPE_CHECKING:
    from gentle.models.gentle import GENTLE

Map = PaperMLP | MonotoneMap

_VALIDATION_LEVELS = 101
_MIN_RESPONSES_FOR_WD = 20
MIN_RESPONSES_FOR_SKILL = 30
PAIRS_AT_ONCE = 8192  # (covariate, draw) pairs per pass through a network: what a CPU's cache holds


def play(
    model: GENTLE, train: Grouped, validation: Grouped | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Train both networks; the fitted attributes."""
    device = chosen_device(model.device)
    weights_seed, draws_seed = (int(seed) for seed in rng.integers(2**63, size=2))
    weights = torch.Generator().manual_seed(weights_seed)
    draws = torch.Generator(device).manual_seed(draws_seed)
    generator, potential = (
        model._network(name, train.x.shape[1], weights).to(device) for name in model._networks
    )
    tree = partners(train.x, torch.get_num_threads())
    game = Game(model, train, tree.parent, generator, potential, draws)
    validate = None
    if validation is not None:
        _check_criterion(model, validation)
        validate = partial(_validation_score, generator, validation, model.criterion)
    history = run_epochs(
        game,
        n_items=len(train),
        batch_size=model.setting("batch_size"),
        n_epochs=model.n_epochs,
        rng=rng,
        validate=validate,
        patience=model.patience if model.early_stopping else None,
        label=type(model).__name__,
        verbose=model.verbose,
    )
    return {
        "generator_": generator,
        "potential_": potential,
        "parent_": tree.parent,
        "history_": [record | tree.facts() for record in history],
        "validation_skill_": _validation_skill(model, train, validation, history),
    }


def _validation_skill(
    model: GENTLE, train: Grouped, validation: Grouped | None, history: list[dict[str, float]]
) -> float | None:
    if validation is None or model.criterion != "crps":
        return None
    if len(validation.y) < MIN_RESPONSES_FOR_SKILL:
        return None
    marginal = QuantileTable.of_sample(train.y, train.weight)
    baseline = mean_crps(lambda part: marginal.repeat(len(part)), validation)
    scores = [record["validation"] for record in history]
    return 1 - (min(scores) if model.early_stopping else scores[-1]) / baseline


def _check_criterion(model: GENTLE, validation: Grouped) -> None:
    total = np.add.reduceat(validation.weight, validation.start[:-1])
    fewest = round(float(total.min() / validation.weight.min()))  # equal rows are one by now
    if model.criterion == "wd" and fewest < _MIN_RESPONSES_FOR_WD:
        raise ValueError(
            f"criterion='wd' needs at least {_MIN_RESPONSES_FOR_WD} responses for every "
            f"validation covariate, but one has {fewest}. The Wasserstein distance to few "
            "responses is smallest for a point mass, so it would choose a model without "
            "spread. Use criterion='crps', or pass an eval_set whose covariates repeat."
        )


@dataclass(frozen=True)
class Batch:
    """What the losses need of B covariates with R responses, E of them with a partner x_j."""

    x: Tensor  # (B, d)
    u: Tensor  # (B, m)
    y: Tensor  # (R,)
    share: Tensor  # (R,) weights of the responses, summing to one per covariate
    group: Tensor  # (R,) which of the B covariates a response belongs to
    bandwidth: Tensor  # (B,)
    edge: Tensor  # (E,) which of the B covariates have a partner: all but the tree's root
    partner: Tensor  # (E, d) x_j, in the batch or not


class Game(Learner):
    """T_θ against v_φ: minimise over θ, maximise over φ, Fit(θ) + λ R(θ, φ).

    Args:
        model: Holds the hyper-parameters.
        data: Training covariates with their responses, in standardised units.
        parent: Partner of each covariate, -1 at the root, ``(n,)``.
        generator: T_θ.
        potential: v_φ.
        draws: Source of U; the game is played on its device.
    """

    _changing: ClassVar[tuple[str, ...]] = ("generator", "potential", "optimizer", "draws")

    def __init__(
        self,
        model: GENTLE,
        data: Grouped,
        parent: NDArray[np.int64],
        generator: Map,
        potential: PaperMLP,
        draws: torch.Generator,
    ) -> None:
        self.model, self.data, self.parent = model, data, parent
        self.generator, self.potential, self.draws = generator, potential, draws
        self.theta, self.phi = list(generator.parameters()), list(potential.parameters())
        self.x, self.y, self.share = (
            torch.as_tensor(array, dtype=torch.float32, device=draws.device)
            for array in (data.x, data.y, data.share)
        )
        group = self._index(data.group)
        self.bandwidth = bandwidths(model.bandwidth, self.y, self.share, group, len(data))
        self.optimizer = DoublySmoothedGDA(
            self.theta,
            self.phi if model.setting("reg_weight") and model.regulariser != "quantile" else [],
            lr_generator=model.setting("lr_generator"),
            lr_potential=model.lr_potential,
            anchor_generator=model.anchor_generator,
            anchor_potential=model.anchor_potential,
            follow_generator=model.follow_generator,
            follow_potential=model.follow_potential,
            inner=model.inner,
        )

    def step(self, covariates: NDArray[np.int64]) -> dict[str, float]:
        """Lines 4-7 of Alg. 2 on a batch of covariates ``(B,)``; returns its losses."""
        reg_weight, n_covariates = self.model.setting("reg_weight"), len(covariates)
        team, u = teams.present(), self.draw(n_covariates)
        mine = team.share(n_covariates)  # in one process, all
        pieces = list(self.pieces(covariates[mine], u[mine]))
        n_edges = max(1, int((self.parent[covariates] >= 0).sum()))
        fit, reg = (torch.zeros((), device=self.x.device) for _ in range(2))

        def generator_gradient() -> None:
            for piece in pieces:
                fits, regs = self.losses(piece)
                loss = fits / n_covariates + reg_weight * regs / n_edges
                _accumulate(loss, self.theta)
                fit.add_(fits.detach(), alpha=1 / n_covariates)
                reg.add_(regs.detach(), alpha=1 / n_edges)
            team.add_up_gradients(self.theta, fit, reg)

        def potential_gradient() -> None:
            for piece in pieces:
                if len(piece.edge):
                    u = piece.u[piece.edge]
                    with torch.no_grad():
                        here = self.generator(piece.x[piece.edge], u)
                        there = self.generator(piece.partner, u)
                    loss = reg_weight * self.regulariser(piece, here, there) / n_edges
                    _accumulate(loss, self.phi)
            team.add_up_gradients(self.phi)

        self.optimizer.step(generator_gradient, potential_gradient)
        losses = {"loss": float(fit + reg_weight * reg), "fit": float(fit)}
        return losses | ({"reg": float(reg)} if reg_weight else {})

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Fit summed over the covariates and R summed over the edges of a batch."""
        here = self.generator(batch.x, batch.u)  # (B, m)
        fit = self.fit(batch, here)
        if not (self.model.setting("reg_weight") and len(batch.edge)):
            return fit, torch.zeros_like(fit)
        there = self.generator(batch.partner, batch.u[batch.edge])  # (E, m)
        return fit, self.regulariser(batch, here[batch.edge], there)

    def fit(self, batch: Batch, here: Tensor) -> Tensor:
        """The draws' squared gap to the kernel cdf (Eq. 8), or to its inverse (Eq. 7), or CRPS."""
        if self.model.fit_loss == "crps":  # twice the pinball loss of the responses, mean over u
            gap, u = batch.y[:, None] - here[batch.group], batch.u[batch.group]
            return 2 * (torch.maximum(u * gap, (u - 1) * gap).mean(dim=1) * batch.share).sum()
        kernels = (batch.y, batch.share, batch.group, batch.bandwidth)
        if self.model.fit_loss == "cdf":
            gap = batch.u - kernel_cdf(here, *kernels)
        else:
            gap = kernel_quantile(batch.u, *kernels) - here
        return gap.square().mean(dim=1).sum()

    def regulariser(self, batch: Batch, here: Tensor, there: Tensor) -> Tensor:
        """How far apart the map's distributions at neighbours are, summed over the edges.

        "entropic" is the semi-dual between T(x_i, U), which has the potential, and T(x_j, U)
        (Eq. 10). "sinkhorn" takes half of each distribution's cost to itself away, so that equal
        ones are at 0 and shrinking is not rewarded. "quantile" is the closed form for monotone
        maps, ∫ |T(x_i, u) - T(x_j, u)|² du.
        """
        epsilon = self.model.epsilon
        if self.model.regulariser == "quantile":
            return (here - there).square().mean(dim=1).sum()
        v = self.potential(batch.x[batch.edge], here)  # (E, m)
        cost = semidual(v, here, there, epsilon)
        if self.model.regulariser == "sinkhorn":
            cost = cost - (self_transport(here, epsilon) + self_transport(there, epsilon)) / 2
        return cost.sum()

    def draw(self, n: int) -> Tensor:
        """U for n covariates, ``(n, n_draws)``, strictly inside (0, 1)."""
        m = self.model.n_draws
        u = torch.rand(n, m, generator=self.draws, device=self.draws.device)
        if self.model.stratified:
            u = (torch.arange(m, device=u.device) + u) / m
        return u.clamp(1e-6, 1 - 1e-6)

    def pieces(self, covariates: NDArray[np.int64], u: Tensor) -> Iterator[Batch]:
        """A batch cut into pieces that stay in the cache; their losses add up to the batch's."""
        size = max(1, PAIRS_AT_ONCE // self.model.n_draws)
        for first in range(0, len(covariates), size):
            chosen = covariates[first : first + size]
            rows, group = self.data.rows(chosen)
            parent = self.parent[chosen]
            edge = np.flatnonzero(parent >= 0)
            yield Batch(
                x=self.x[self._index(chosen)],
                u=u[first : first + size],
                y=self.y[self._index(rows)],
                share=self.share[self._index(rows)],
                group=self._index(group),
                bandwidth=self.bandwidth[self._index(chosen)],
                edge=self._index(edge),
                partner=self.x[self._index(parent[edge])],
            )

    def _index(self, positions: NDArray[np.int64]) -> Tensor:
        return torch.as_tensor(positions, device=self.draws.device)


def _accumulate(loss: Tensor, params: Sequence[Tensor]) -> None:
    """Add the gradient with respect to these parameters only to their ``grad``."""
    for param, gradient in zip(params, torch.autograd.grad(loss, params)):
        param.grad = gradient if param.grad is None else param.grad.add_(gradient)


def map_values(net: Map, x: Floats, points: Floats, rows_at_once: int = 1) -> Floats:
    """The map at each row's points, ``(n, m)``."""
    return evaluate(net, x, points, next(net.parameters()).device, rows_at_once)


def rearranged(net: Map, x: Floats, n_levels: int, rows_at_once: int = 1) -> QuantileTable:
    """Quantile functions of T(x, U): its values on an even grid of levels, sorted.

    The paper's network need not be monotone in u; sorting gives the quantile function of T(x, U).
    """
    levels = np.linspace(0, 1, n_levels)
    values = map_values(net, x, np.broadcast_to(levels, (len(x), n_levels)), rows_at_once)
    return QuantileTable(levels, np.sort(values, axis=1))


def _validation_score(net: Map, validation: Grouped, criterion: str) -> float:
    """Mean CRPS over the responses, or mean Wasserstein distance over the covariates."""
    rows_at_once = max(1, PAIRS_AT_ONCE // _VALIDATION_LEVELS)

    def predict(part: Grouped) -> QuantileTable:
        return rearranged(net, part.x, _VALIDATION_LEVELS, rows_at_once)

    if criterion == "crps":
        return mean_crps(predict, validation)
    middles = (np.arange(_VALIDATION_LEVELS) + 0.5) / _VALIDATION_LEVELS
    distances = []
    for which in validation.chunks():
        responses, weights = (part := validation.take(which)).padded()
        distances.append(wasserstein(predict(part).quantile(middles), responses, None, weights))
    return float(np.concatenate(distances).mean())
