"""Adversarial training, whatever the loss: a generator against a critic, a batch at a time."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.learners import Learner
from gentle.models import checks
from gentle.models.base import Floats
from gentle.models.checks import are_widths, fit_into_memory, is_count
from gentle.models.neural import NeuralGenerator, chosen_device, evaluate, is_device
from gentle.nets import PointMLP
from gentle.training import train as run_epochs


@dataclass(frozen=True)
class Batch:
    """B rows (x, y), and what the generator makes of x and some noise."""

    x: Tensor  # (B, d)
    y: Tensor  # (B,)
    share: Tensor  # (B,) of the batch's weight
    noise: Tensor  # (B,)
    fake: Tensor  # (B,) G(x, noise)

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean of ``(B,)``."""
        return self.share @ values

    def judged_by(self, critic: PointMLP) -> tuple[Tensor, Tensor]:
        """The critic at the real and at the generated rows, for its own step; ``(B,)`` each."""
        both = torch.cat([join(self.x, self.y), join(self.x, self.fake.detach())])
        on_real, on_fake = critic.rows(both).chunk(2)  # one pass is faster than two
        return on_real, on_fake


class Adversarial(NeuralGenerator):
    """A generator G(x, Z), Z a random number, and a critic D(x, y) that tells its rows from real.

    As in the published programs, each batch of rows is one step of the critic, and an epoch is one
    pass of the critic over the rows. After every ``n_critic``-th batch, counted across epochs, the
    generator moves too, on the same rows and noise. Weights of rows are probabilities: means over
    a batch are weighted. The number of epochs is fixed; an ``eval_set`` has no part in training.

    As Z is one number, the law of G(x, Z) is tabulated: G at the quantiles of Z, sorted.
    """

    _networks: ClassVar[tuple[str, ...]] = ("generator", "critic")
    _gaussian: ClassVar[bool]  # the law of Z: standard normal, or else uniform on (0, 1)
    _skips: ClassVar[bool]  # whether the networks concatenate their input again

    generator_: PointMLP
    critic_: PointMLP
    hidden_widths: Sequence[int]
    penalty: float
    n_critic: int
    dropout: float = 0.0
    learning_rate: float
    learning_rate_decay: float = 1.0
    betas: tuple[float, float]
    batch_size: int
    n_epochs: int
    n_levels: int

    @abstractmethod
    def _critic_loss(
        self, critic: PointMLP, batch: Batch, draws: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """What D minimises, and its gap: the mean of D at real rows less that at generated ones."""

    @abstractmethod
    def _generator_loss(self, critic: PointMLP, batch: Batch) -> Tensor:
        """What G minimises."""

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        device = chosen_device(self.device)
        weights_seed, draws_seed = (int(seed) for seed in rng.integers(2**63, size=2))
        weights = torch.Generator().manual_seed(weights_seed)
        generator, critic = (
            self._network(name, train.x.shape[1], weights).to(device) for name in self._networks
        )
        draws = torch.Generator(device).manual_seed(draws_seed)
        history = run_epochs(
            Duel(self, train, generator, critic, draws),
            n_items=len(train.y),
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            rng=rng,
            label=type(self).__name__,
            verbose=self.verbose,
        )
        return {"generator_": generator, "critic_": critic, "history_": history}

    def _conditional(self, x: Floats) -> QuantileTable:
        levels = np.linspace(0, 1, self.n_levels)
        inner = np.clip(levels, 0.5 / self.n_levels, 1 - 0.5 / self.n_levels)
        noise = np.broadcast_to(ndtri(inner) if self._gaussian else levels, (len(x), len(levels)))
        values = evaluate(self.generator_, x, noise, self.generator_.weights[0].device)
        return QuantileTable(levels, np.sort(values, axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a game of few rounds promises nothing
        return tags

    def _n_knots(self) -> int:
        return self.n_levels

    def _network(self, name: str, n_covariates: int, weights: torch.Generator | None) -> PointMLP:
        return PointMLP(n_covariates, self.hidden_widths, weights, self._skips)

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require("hidden_widths", are_widths, "a sequence of positive integers, at most 100")
        require("penalty", lambda v: 0 <= v < math.inf, "at least 0")
        require("dropout", lambda v: 0 <= v < 1, "at least 0 and below 1")
        require("learning_rate", lambda v: 0 < v < math.inf, "positive")
        require("learning_rate_decay", lambda v: 0 < v <= 1, "positive and at most 1")
        require(
            "betas",
            lambda v: len(v) == 2 and all(0 <= beta < 1 for beta in v),
            "two numbers, at least 0 and below 1",
        )
        require("n_critic batch_size n_epochs", is_count, "an integer of at least 1")
        require(
            "n_levels",
            lambda v: is_count(v, 2) and fit_into_memory(v, self.hidden_widths),
            "an integer of at least 2, and not so large that a row's answer fills the memory",
        )
        require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")


class Duel(Learner):
    """The generator and the critic of a model in training, a batch at a time."""

    _changing: ClassVar[tuple[str, ...]] = (
        "generator", "critic", "of_generator", "of_critic", "draws", "n_steps"
    )  # fmt: skip

    def __init__(
        self,
        model: Adversarial,
        data: Grouped,
        generator: PointMLP,
        critic: PointMLP,
        draws: torch.Generator,
    ) -> None:
        self.model, self.generator, self.critic, self.draws = model, generator, critic, draws
        weight = data.weight / data.weight.max()
        self.x, self.y, self.weight = (
            torch.as_tensor(array, dtype=torch.float32, device=draws.device)
            for array in (data.x[data.group], data.y, weight)
        )
        self.of_generator, self.of_critic = (
            torch.optim.Adam(
                net.parameters(), lr=model.learning_rate, betas=model.betas, fused=True
            )
            for net in (generator, critic)
        )
        self.n_batches = math.ceil(len(data.y) / model.batch_size)
        self.n_steps = 0

    def step(self, rows: NDArray[np.int64]) -> dict[str, float]:
        """Move the critic, and the generator if it is its turn; returns the critic's losses."""
        self.n_steps += 1
        turn = self.n_steps % self.model.n_critic == 0
        batch = self.batch(rows, turn)
        loss, gap = self.model._critic_loss(self.critic, batch, self.draws)
        _descend(self.of_critic, loss)
        if turn:
            _descend(self.of_generator, self.model._generator_loss(self.critic, batch))
        if self.n_steps % self.n_batches == 0:  # an epoch ends
            for optimizer in (self.of_generator, self.of_critic):
                optimizer.param_groups[0]["lr"] *= self.model.learning_rate_decay
        return {"loss": loss.item(), "gap": gap.item()}

    def batch(self, rows: NDArray[np.int64], differentiable: bool) -> Batch:
        """These rows with generated responses, differentiable in the generator's weights or not."""
        index, draws = torch.as_tensor(rows, device=self.draws.device), self.draws
        x, weight = self.x[index], self.weight[index]
        draw = torch.randn if self.model._gaussian else torch.rand
        noise = draw(len(rows), generator=draws, device=draws.device)
        with torch.set_grad_enabled(differentiable):
            fake = self.generator.rows(join(x, noise), self.model.dropout, draws)
        return Batch(x, self.y[index], weight / weight.sum(), noise, fake)


def join(x: Tensor, s: Tensor) -> Tensor:
    """``(B, d)`` and ``(B,)`` to ``(B, d + 1)``."""
    return torch.cat([x, s[:, None]], dim=1)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """A step down the gradient in the optimizer's own parameters, the only one computed."""
    params = optimizer.param_groups[0]["params"]
    for param, gradient in zip(params, torch.autograd.grad(loss, params)):
        param.grad = gradient
    optimizer.step()
