"""CDSB: a Schrödinger bridge between a Gaussian and the distributions of Y given X = x."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor, nn
from torch.nn import functional

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.learners import Learner
from gentle.models import checks
from gentle.models.base import Floats
from gentle.models.checks import are_widths, fit_into_memory, is_count
from gentle.models.intake import mean_crps
from gentle.models.neural import NeuralGenerator, chosen_device, evaluate, is_device
from gentle.nets import xavier_layer
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed
from gentle.training import train as run_epochs

_POOL_BATCHES, _POOL_UPDATES = 5, 25  # paths simulated at once, and updates that draw on them
_VALIDATION_PATHS, _VALIDATION_ROWS = 128, 32
_MAX_NOISE = 2**20  # numbers behind an answer: paths times steps

Direction = Literal["reference", "forward", "backward"]


class BridgeNet(nn.Module):
    """The drift of a chain on the line at covariates x: a scalar function of (x, y, k).

    The covariates, the state y and a sinusoidal embedding (16 numbers) of the time k each pass
    through an encoder, one layer of 16 units; fully connected layers decode the three together.
    SiLU throughout, Xavier-uniform weights and zero biases.

    Args:
        n_covariates: Number of columns of x, d.
        widths: Units of the decoder's hidden layers.
        n_steps: Times run from 0 to this.
        generator: Source of the initial weights; the global one is left alone.
    """

    size = 16
    embedding: Tensor

    def __init__(
        self,
        n_covariates: int,
        widths: Sequence[int],
        n_steps: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        size = self.size
        self.of_x, self.of_y, self.of_time = (
            xavier_layer(n, size, generator) for n in (n_covariates, 1, size)
        )
        self.joined = xavier_layer(3 * size, widths[0], generator)
        sizes = itertools.pairwise([*widths, 1])
        self.decoder = nn.ModuleList(xavier_layer(n_in, n_out, generator) for n_in, n_out in sizes)
        frequencies = torch.logspace(0, -2, size // 2)
        angles = torch.arange(n_steps + 1)[:, None] * frequencies  # (N + 1, 8)
        embedding = torch.cat([angles.sin(), angles.cos()], dim=1)
        self.register_buffer("embedding", embedding, persistent=False)

    def forward(self, x: Tensor, y: Tensor, k: Tensor) -> Tensor:
        """Drifts at each covariate's own states.

        Args:
            x: Covariates, ``(B, d)``.
            y: States, ``(B, m)``.
            k: Times of the columns of ``y``, ``(m,)``, or ``(1,)`` for all.

        Returns:
            ``(B, m)``.
        """
        # The joining layer is linear: what x and k add to it is computed once for each of them.
        for_x, for_y, for_time = self.joined.weight.split(self.size, dim=1)
        h = functional.linear(functional.silu(self.of_y(y[:, :, None])), for_y)  # (B, m, width)
        h = h + functional.linear(functional.silu(self.of_x(x)), for_x, self.joined.bias)[:, None]
        h = h + functional.linear(functional.silu(self.of_time(self.embedding[k])), for_time)
        for layer in self.decoder:
            h = layer(functional.silu(h))
        return h[:, :, 0]


class CDSB(NeuralGenerator):
    r"""Conditional diffusion Schrödinger bridge (Shi et al., 2022), amortised over x.

    Two chains of N steps join the distribution of Y given x at time 0 and the prior N(0, σ²) at
    time N:

        Y_{k+1} = F_k(x, Y_k) + √(2γ) Z,    Y_{k-1} = B_k(x, Y_k) + √(2γ) Z,    Z ~ N(0, 1).

    They are each other's time reversal when the bridge is found. Iterative proportional fitting
    gets there by turns: paths of one chain, started from its own end, teach the other. The backward
    mean B_{k+1}(x, Y_{k+1}) is regressed on Y_{k+1} + F_k(x, Y_k) - F_k(x, Y_{k+1}), the forward
    one likewise (mean matching, De Bortoli et al., 2021). The first forward chain is the reference
    F_k(y) = y - γ y / σ², whose stationary law is the prior. A network gives the drift: the mean
    is y + γ·network(x, y, k). Networks go on from one iteration to the next.

    The answer at x is the law of the backward chain's end point. Its last step adds no noise: that
    would blur every answer by √(2γ). ``n_paths`` scrambled Sobol points, the same for all x, drive
    it, and their end points, sorted, are the quantile function.

    The defaults are the published settings of the baseline. Its prior of variance 10 cannot be
    reached by the reference in N γ = 1, but iterations make up for that; against a response of
    standard deviation 1 its noise of √(2γ) = 0.45 per step is coarse, and narrow distributions come
    out too narrow. What is not published was chosen by validation CRPS, ``response_scale`` among 1,
    1.5, 2 and 3 (with batches of 1,000: .1675, .1645, .1639, .1632 on "tanh-plus-gamma", 5.386,
    5.380, 5.382, 5.389 on "sine-laplace").

    Args:
        n_iterations: Of proportional fitting; each trains the backward and then the forward chain.
        reference_variance: σ², in the bridge's units, in which the response has the standard
            deviation ``response_scale``.
        n_steps: N.
        step_size: γ.
        learning_rate: Of Adam.
        batch_size: Transitions per update: all N of ``batch_size`` / N paths.
        n_updates: Updates of a network in each half-iteration.
        response_scale: Standard deviation of the response in the bridge's units.
        hidden_widths: Units of the decoders' hidden layers.
        n_paths: Resolution of the quantile tables that answer all questions, a power of 2.
        random_state: Seed of the initial weights, the paths and the noise behind the answers.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: 0 is silent, 1 shows a progress bar in a terminal or notebook, 2 writes a line per
            half-iteration, for logs.

    Attributes:
        forward_: The forward drift.
        backward_: The backward drift.
        noise_seed_: Seed of the noise behind the answers.
        history_: One record per half-iteration (``epoch``), backward and forward by turns, with the
            CRPS of an ``eval_set`` if there was one.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
        >>> model = CDSB(n_iterations=2, n_updates=5, random_state=0, verbose=0).fit(X, y)
        >>> model.sample(X[:3], n_samples=5, random_state=1).shape
        (3, 5)
    """

    _networks: ClassVar[tuple[str, ...]] = ("forward", "backward")
    search_space: ClassVar[Space] = {
        "reference_variance": Between(1.0, 30.0, log=True),
        "response_scale": Between(0.5, 5.0, log=True),
        "learning_rate": Between(3e-5, 3e-3, log=True),
        "n_iterations": Between(3, 20),
        "n_updates": OneOf((200, 500, 1000)),
    }

    forward_: BridgeNet
    backward_: BridgeNet
    noise_seed_: int

    def __init__(
        self,
        *,
        n_iterations: int = 10,
        reference_variance: float = 10.0,
        n_steps: int = 10,
        step_size: float = 0.1,
        learning_rate: float = 1e-4,
        batch_size: int = 5000,
        n_updates: int = 500,
        response_scale: float = 2.0,
        hidden_widths: Sequence[int] = (128, 128),
        n_paths: int = 1024,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_iterations = n_iterations
        self.reference_variance = reference_variance
        self.n_steps = n_steps
        self.step_size = step_size
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_updates = n_updates
        self.response_scale = response_scale
        self.hidden_widths = hidden_widths
        self.n_paths = n_paths
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        device = chosen_device(self.device)
        weights_seed, draws_seed = (int(seed) for seed in rng.integers(2**63, size=2))
        noise_seed = int(rng.integers(2**32))
        weights = torch.Generator().manual_seed(weights_seed)
        draws = torch.Generator(device).manual_seed(draws_seed)
        forward, backward = (
            self._network(name, train.x.shape[1], weights).to(device) for name in self._networks
        )
        bridge = Bridge(self, train, forward, backward, draws)

        def validate() -> float:
            assert validation is not None
            n, rows = _VALIDATION_PATHS, _VALIDATION_ROWS
            return mean_crps(
                lambda part: self._end_points(backward, part.x, n, noise_seed, rows), validation
            )

        history = run_epochs(
            bridge,
            n_items=self.n_updates,
            batch_size=1,
            n_epochs=2 * self.n_iterations,
            rng=rng,
            validate=None if validation is None else validate,
            label=type(self).__name__,
            verbose=self.verbose,
        )
        return {
            "forward_": forward,
            "backward_": backward,
            "noise_seed_": noise_seed,
            "history_": history,
        }

    def _conditional(self, x: Floats) -> QuantileTable:
        return self._end_points(self.backward_, x, self.n_paths, self.noise_seed_)

    def _end_points(
        self, backward: BridgeNet, x: Floats, n_paths: int, seed: int, rows_at_once: int = 1
    ) -> QuantileTable:
        """The law of the backward chain's end points, in encoded units."""
        # The seed's new name "rng" is unknown to older versions of scipy.
        sobol = qmc.Sobol(self.n_steps, seed=seed)  # pyright: ignore[reportCallIssue]
        points = sobol.random(n_paths)  # (n, N)
        noise = norm.ppf(np.clip(points, 1e-9, 1 - 1e-9)).T
        device = backward.embedding.device
        shocks = math.sqrt(2 * self.step_size) * torch.tensor(noise[1:], dtype=torch.float32)
        walk = partial(_walk, backward, self.step_size, shocks.to(device))
        start = np.broadcast_to(math.sqrt(self.reference_variance) * noise[0], (len(x), n_paths))
        ends = evaluate(walk, x, start, device, rows_at_once) / self.response_scale
        return QuantileTable(np.linspace(0, 1, n_paths), np.sort(ends, axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few updates build no bridge
        return tags

    def _n_knots(self) -> int:
        return self.n_paths

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require(
            "reference_variance step_size learning_rate response_scale",
            lambda v: 0 < v < math.inf,
            "a positive number",
        )
        counts = "n_iterations n_steps batch_size n_updates"
        require(counts, is_count, "an integer of at least 1")
        require("hidden_widths", are_widths, "a sequence of positive integers, at most 100")
        require(
            "n_paths",
            lambda v: (
                is_count(v, 2)
                and v & (v - 1) == 0
                and v * self.n_steps <= _MAX_NOISE
                and fit_into_memory(v, self.hidden_widths)
            ),
            "a power of 2, and not so large that a row's answer fills the memory",
        )
        require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")

    def _network(self, name: str, n_covariates: int, weights: torch.Generator | None) -> BridgeNet:
        return BridgeNet(n_covariates, self.hidden_widths, self.n_steps, weights)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._get_state()
        return arrays, facts | {"noise_seed": self.noise_seed_}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        super()._set_state(arrays, facts)
        self.noise_seed_ = facts["noise_seed"]
        if type(self.noise_seed_) is not int or not 0 <= self.noise_seed_ < 2**32:
            raise ValueError("its seed is damaged")


def _walk(net: BridgeNet, step_size: float, shocks: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """From the prior's draws y ``(B, n)`` back to time 0; shocks are ``(N - 1, n)``."""
    for k in range(len(shocks) + 1, 0, -1):
        y = y + step_size * net(x, y, torch.tensor([k], device=y.device))
        if k > 1:
            y = y + shocks[-(k - 1)]
    return y


class Bridge(Learner):
    """Iterative proportional fitting on a data set, one update at a time.

    Args:
        model: Holds the hyper-parameters.
        data: Training covariates with their responses, in standardised units.
        forward: Network of the forward drift.
        backward: Network of the backward drift.
        draws: Source of the paths; they are simulated on its device.
    """

    _changing: ClassVar[tuple[str, ...]] = (
        "forward", "backward", "of_forward", "of_backward", "draws", "n_done"
    )  # fmt: skip

    def __init__(
        self,
        model: CDSB,
        data: Grouped,
        forward: BridgeNet,
        backward: BridgeNet,
        draws: torch.Generator,
    ) -> None:
        self.model, self.draws, self.n_done = model, draws, 0
        self.forward, self.backward = forward, backward
        self.drift: dict[Direction, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
            "reference": lambda x, y, k: -y / model.reference_variance,
            "forward": forward,
            "backward": backward,
        }
        self.learners = (backward, forward)
        self.of_forward, self.of_backward = (
            torch.optim.Adam(net.parameters(), lr=model.learning_rate)
            for net in (forward, backward)
        )
        share = np.cumsum(data.weight) / data.weight.sum()
        self.x, self.y, self.share = (
            torch.as_tensor(array, dtype=torch.float32, device=draws.device)
            for array in (data.x[data.group], model.response_scale * data.y, share)
        )

    def step(self, _: Any) -> dict[str, float]:
        """One update of the network whose turn it is, on transitions of the other chain."""
        half, update = divmod(self.n_done, self.model.n_updates)
        self.n_done += 1
        n_paths = max(1, self.model.batch_size // self.model.n_steps)
        if update % _POOL_UPDATES == 0:
            teacher: Direction = "reference" if half == 0 else ("forward", "backward")[half % 2]
            self.pool = self.transitions(teacher, _POOL_BATCHES * n_paths)
        x, states, times, targets = self.pool
        i = torch.randint(len(x), (n_paths,), generator=self.draws, device=x.device)
        net, optimiser = self.learners[half % 2], (self.of_backward, self.of_forward)[half % 2]
        drift = (targets[i] - states[i]) / self.model.step_size
        loss = (net(x[i], states[i], times) - drift).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return {"loss": loss.item()}

    @torch.no_grad()
    def transitions(self, chain: Direction, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Simulate n paths of a chain.

        Returns:
            Covariates ``(n, d)``; the states after each of the N steps, ``(n, N)``; their times
            ``(N,)``; what the other chain's mean at these states is regressed on, ``(n, N)``.
        """
        model, device, n_steps = self.model, self.draws.device, self.model.n_steps
        even = torch.arange(n, device=device) + torch.rand(n, generator=self.draws, device=device)
        rows = torch.searchsorted(self.share, even / n).clamp_max(len(self.y) - 1)
        x, y = self.x[rows], self.y[rows][:, None]
        noise = torch.randn(n, n_steps + 1, generator=self.draws, device=device)
        times = torch.arange(n_steps, device=device)
        if chain == "backward":
            y, times = math.sqrt(model.reference_variance) * noise[:, -1:], n_steps - times
        means, states = [], []
        for j in range(n_steps):
            means.append(self.mean(chain, x, y, times[j : j + 1]))
            y = means[-1] + math.sqrt(2 * model.step_size) * noise[:, j : j + 1]
            states.append(y)
        mean, state = torch.cat(means, dim=1), torch.cat(states, dim=1)
        after = times - 1 if chain == "backward" else times + 1
        return x, state, after, state + mean - self.mean(chain, x, state, times)

    def mean(self, chain: Direction, x: Tensor, y: Tensor, k: Tensor) -> Tensor:
        """Where a chain is expected one step after the states y ``(n, m)`` at the times k."""
        return y + self.model.step_size * self.drift[chain](x, y, k)
