"""The networks."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional


class PaperMLP(nn.Module):
    """A scalar function of (x, s): the paper's T_θ(x, u) and its potential v_φ(x, y).

    Fully connected layers with ReLU; the input (x, s) is concatenated again before layers 2, 4, 6,
    ...; Xavier-uniform weights and zero biases. With the default widths it has the paper's seven
    layers.

    Args:
        n_covariates: Number of columns of x, d.
        widths: Units of the hidden layers.
        generator: Source of the initial weights; the global one is left alone.
    """

    def __init__(
        self, n_covariates: int, widths: Sequence[int], generator: Generator | None = None
    ) -> None:
        super().__init__()
        n_inputs = n_covariates + 1
        self.n_covariates = n_covariates
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for layer, (n_in, n_out) in enumerate(itertools.pairwise([0, *widths, 1])):
            n_in += n_inputs if self._takes_input(layer) else 0
            weight = torch.empty(n_out, n_in)
            nn.init.xavier_uniform_(weight, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(n_out)))

    @staticmethod
    def _takes_input(layer: int) -> bool:
        return layer == 0 or layer % 2 == 1

    def forward(self, x: Tensor, s: Tensor) -> Tensor:
        """Values at each covariate's own points: x ``(B, d)``, s ``(B, m)`` to ``(B, m)``."""
        d, last = self.n_covariates, len(self.weights) - 1
        affine = torch.stack([torch.ones_like(s), s], dim=2)  # (B, m, 2)
        h = affine
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            if self._takes_input(layer):
                # The input's share, W_x x + b + W_s s, is affine in s: its constant is computed
                # once per covariate, and one product with (1, s) gives it at all points.
                constant = functional.linear(x, weight[:, -d - 1 : -1], bias)  # (B, out)
                lines = torch.stack([constant, weight[:, -1].expand_as(constant)], dim=1)
                share = torch.bmm(affine, lines).flatten(0, 1)  # (B·m, out)
                h = share if layer == 0 else torch.addmm(share, h, weight[:, : -d - 1].t())
            else:
                h = functional.linear(h, weight, bias)
            if layer < last:
                h = h.relu_()
        return h.view(s.shape)


class PointMLP(PaperMLP):
    """`PaperMLP` for training on one point per covariate, with dropout and its gradient.

    Args:
        n_covariates: Number of columns of x, d.
        widths: Units of the hidden layers.
        generator: Source of the initial weights; the global one is left alone.
        skips: Concatenate the input again, as `PaperMLP` does; without, the layers form a chain.
    """

    def __init__(
        self,
        n_covariates: int,
        widths: Sequence[int],
        generator: Generator | None = None,
        skips: bool = True,
    ) -> None:
        self.skips = skips  # first, as it decides about the shapes of the weights
        super().__init__(n_covariates, widths, generator)

    def _takes_input(self, layer: int) -> bool:
        return layer == 0 or (self.skips and layer % 2 == 1)

    def rows(self, inputs: Tensor, dropout: float = 0.0, draws: Generator | None = None) -> Tensor:
        """Values at rows (x, s), ``(B, d + 1)`` to ``(B,)``.

        Args:
            inputs: The rows.
            dropout: Probability with which a hidden unit is set to zero; the others grow by
                1 / (1 - dropout).
            draws: Source of that randomness.
        """
        h, last = inputs, len(self.weights) - 1
        for layer in range(last):
            h = self._affine(layer, h, inputs).relu_()
            if dropout:
                kept = torch.rand(h.shape, generator=draws, device=h.device) >= dropout
                h = h * kept.to(h.dtype).div_(1 - dropout)
        return self._affine(last, h, inputs)[:, 0]

    def gradient(self, inputs: Tensor) -> Tensor:
        """∇ in x and s at rows (x, s), ``(B, d + 1)`` both ways, differentiable in the weights.

        A ReLU multiplies derivatives by 0 or 1, factors that are constant around almost all
        weights. So the pass that finds them needs no derivatives itself: it is not differentiated
        twice, as automatic differentiation would do it.
        """
        n, last = inputs.shape[1], len(self.weights) - 1
        with torch.no_grad():
            h, factors = inputs, []
            for layer in range(last):
                h = self._affine(layer, h, inputs).relu_()
                factors.append(h.sign())
        back, total = inputs.new_ones(len(inputs), 1), torch.zeros_like(inputs)
        for layer in range(last, -1, -1):
            through = back @ self.weights[layer]  # (B, units before the layer, and the input's n)
            if self._takes_input(layer):
                total = total + through[:, -n:]
            if layer > 0:
                factor = factors[layer - 1]
                back = through[:, : factor.shape[1]] * factor
        return total

    def _affine(self, layer: int, h: Tensor, inputs: Tensor) -> Tensor:
        weight, bias = self.weights[layer], self.biases[layer]
        if layer == 0 or not self._takes_input(layer):
            return functional.linear(h, weight, bias)
        n = inputs.shape[1]
        return torch.addmm(functional.linear(inputs, weight[:, -n:], bias), h, weight[:, :-n].t())


class QuantileMLP(nn.Module):
    """A curve for every covariate: its values at m fixed levels, from one network with m outputs.

    Fully connected layers with ReLU, Xavier-uniform weights and zero biases. The curves need not
    be monotone.

    Args:
        n_covariates: Number of columns of x, d.
        widths: Units of the hidden layers.
        n_outputs: m.
        generator: Source of the initial weights; the global one is left alone.
    """

    def __init__(
        self,
        n_covariates: int,
        widths: Sequence[int],
        n_outputs: int,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = itertools.pairwise([n_covariates, *widths, n_outputs])
        self.layers = nn.ModuleList(_layer(n_in, n_out, generator) for n_in, n_out in sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Covariates ``(B, d)`` to values ``(B, m)``."""
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x).relu_()
        return last(x)


class MonotoneNet(nn.Module):
    """Several maps at once that are monotone in u by construction, each with its own weights.

    A trunk of fully connected layers (SiLU), computed once per covariate, gives the value at u = ½
    and the increments between knots u_k = Φ(z_k), z_k even on ±``reach``, which lie densely in the
    tails: softplus makes an increment positive, and z_{k+1} - z_k scales it, so that equal outputs
    are a normal distribution. In between, the map is straight in z = Φ⁻¹(u); beyond, it goes on.

    Args:
        n_members: Number of maps.
        n_inputs: Inputs of each.
        widths: Units of the hidden layers.
        n_increments: Even number of increments.
        reach: The outermost knots are Φ(±reach).
        generator: Source of the initial weights; the global one is left alone.
    """

    knots: Tensor

    def __init__(
        self,
        n_members: int,
        n_inputs: int,
        widths: Sequence[int],
        n_increments: int = 64,
        reach: float = 3.3,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members = n_members
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        sizes = [n_inputs, *widths, n_increments + 1]
        for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
            last = layer == len(widths)
            bound = (0.5 if last else 0.7) * math.sqrt(6 / n_in)
            weight = torch.empty(n_members, n_in, n_out).uniform_(
                -bound, bound, generator=generator
            )
            bias = torch.empty(n_members, 1, n_out)
            spread = 0.0 if last else n_in**-0.5
            bias.uniform_(-spread, spread, generator=generator)
            if last:
                bias[:, :, 1:] = math.log(math.e - 1)  # softplus of it is 1: a standard normal
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))
        knots = torch.linspace(-reach, reach, n_increments + 1)
        self.register_buffer("knots", knots, persistent=False)

    def taken(self, members: Sequence[int]) -> MonotoneNet:
        """Some of the maps, with weights of their own."""
        found = copy.deepcopy(self)
        found.n_members = len(members)
        for parameter in found.parameters():
            parameter.data = parameter.data[list(members)]
        return found

    def without_inputs(self, inputs: slice) -> MonotoneNet:
        """The same maps, deaf to some inputs, which they no longer have."""
        found, weight = copy.deepcopy(self), self.weights[0].data
        found.weights[0].data = torch.cat([weight[:, : inputs.start], weight[:, inputs.stop :]], 1)
        return found

    @property
    def widths(self) -> list[int]:
        """Units of the hidden layers."""
        return [weight.shape[2] for weight in self.weights[:-1]]

    @property
    def factor(self) -> Tensor | None:
        """Of the first layer's weights, by inputs, ``(K, d, 1)``; None is 1."""
        return None

    @property
    def first(self) -> Tensor:
        """Weights of the first layer, ``(K, d, width)``."""
        return self.weights[0] if self.factor is None else self.weights[0] * self.factor

    def plain(self) -> MonotoneNet:
        """The maps as they answer: nothing but layers."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Inputs ``(K, B, d)``, each member its own, to values at the knots, ``(K, B, M + 1)``."""
        return self.after_first(torch.baddbmm(self.biases[0], x, self.first))

    def after_first(self, x: Tensor) -> Tensor:
        """The same from what the first layer gives, ``(K, B, width)``."""
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:]):
            x = torch.baddbmm(bias, functional.silu(x), weight)
        rise = functional.softplus(x[..., 1:]) * (self.knots[1] - self.knots[0])
        climb = functional.pad(rise.cumsum(-1), (1, 0))
        middle = climb.shape[-1] // 2
        return x[..., :1] + climb - climb[..., middle : middle + 1]

    def layers(self, members: Sequence[int], inputs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of some members, which see some of the inputs, ``(d,)`` of truth."""
        some = slice(None) if len(members) == self.n_members else list(members)
        first, *others = (weight[some] for weight in [self.first, *list(self.weights)[1:]])
        return list(zip([first[:, inputs], *others], (bias[some] for bias in self.biases)))

    @staticmethod
    def rises(x: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        """What members with these `layers` make of common inputs ``(B, d)``, without derivatives.

        Returns:
            The value at ½, then the increments between knots in units of the knots' distance,
            ``(K, B, M + 1)``.
        """
        *hidden, (weight, bias) = layers
        x = x.expand(len(weight), -1, -1)
        for of_layer, shift in hidden:
            x = functional.silu(torch.baddbmm(shift, x, of_layer), inplace=True)
        last = torch.baddbmm(bias, x, weight)
        found = functional.softplus(last)
        found[..., 0] = last[..., 0]
        return found


class MonotoneMap(MonotoneNet):
    """One map T(x, u) that is monotone in u, in the place of the paper's free `PaperMLP`.

    Args:
        n_covariates: Number of columns of x, d.
        widths: Units of the hidden layers.
        generator: Source of the initial weights; the global one is left alone.
    """

    def __init__(
        self, n_covariates: int, widths: Sequence[int], generator: Generator | None = None
    ) -> None:
        super().__init__(1, n_covariates, widths, generator=generator)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:  # type: ignore[override]
        """Values at each covariate's own levels: x ``(B, d)``, u ``(B, m)`` to ``(B, m)``."""
        values, knots = super().forward(x.unsqueeze(0))[0], self.knots  # (B, M + 1), (M + 1,)
        z = torch.special.ndtri(u.clamp(1e-6, 1 - 1e-6))
        right = torch.searchsorted(knots, z).clamp(1, len(knots) - 1)
        below, above = values.gather(1, right - 1), values.gather(1, right)
        return below + (z - knots[right - 1]) / (knots[1] - knots[0]) * (above - below)


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
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        size = self.size
        self.of_x, self.of_y, self.of_time = (
            _layer(n, size, generator) for n in (n_covariates, 1, size)
        )
        self.joined = _layer(3 * size, widths[0], generator)
        sizes = itertools.pairwise([*widths, 1])
        self.decoder = nn.ModuleList(_layer(n_in, n_out, generator) for n_in, n_out in sizes)
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


def _layer(n_in: int, n_out: int, generator: Generator | None) -> nn.Linear:
    """A layer whose initial weights come from this source: Xavier-uniform, zero biases."""
    here = "meta" if torch.get_default_device().type == "meta" else "cpu"  # shapes only, or all
    layer = nn.Linear(n_in, n_out, device="meta").to_empty(device=here)  # draws nothing
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
