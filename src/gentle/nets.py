"""The networks."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

_PACE = 2.0  # knots that a map slides per unit of its output


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
        self.layers = nn.ModuleList(xavier_layer(n_in, n_out, generator) for n_in, n_out in sizes)

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

    A map that slides has one more output, by which its increments move along z as a whole. Where a
    part of the responses is apart from the others, and x decides about its probability, that moves
    the gap between them; without, each increment would have to learn by itself when it is the gap.

    Args:
        n_members: Number of maps.
        n_inputs: Inputs of each.
        widths: Units of the hidden layers.
        n_increments: Even number of increments.
        reach: The outermost knots are Φ(±reach).
        generator: Source of the initial weights; the global one is left alone.
        slides: Whether each member slides, which it may take up later; None has no output for it.
    """

    knots: Tensor
    slides: Tensor  # (K, 1, 1), how many knots an output of 1 stands for

    def __init__(
        self,
        n_members: int,
        n_inputs: int,
        widths: Sequence[int],
        n_increments: int = 64,
        reach: float = 3.3,
        generator: Generator | None = None,
        slides: Sequence[bool] | None = None,
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
            if last and slides is not None:  # nothing slides at first
                weight, bias = (functional.pad(part, (0, 1)) for part in (weight, bias))
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(bias))
        knots = torch.linspace(-reach, reach, n_increments + 1)
        self.register_buffer("knots", knots, persistent=False)
        self.register_buffer("slides", torch.zeros(n_members, 1, 1), persistent=False)
        self.let_slide(slides or [False] * n_members)

    def let_slide(self, which: Sequence[bool]) -> None:
        """From now on, let these members slide, and no others."""
        pace = _PACE * torch.tensor(which, dtype=torch.float32)[:, None, None]
        self.slides = pace.to(self.slides.device)
        self.any_slides = any(which)

    def taken(self, members: Sequence[int]) -> MonotoneNet:
        """Some of the maps, with weights of their own."""
        found = copy.deepcopy(self)
        found.n_members = len(members)
        found.let_slide((self.slides[list(members), 0, 0] > 0).tolist())
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
        """The maps as they answer: nothing but layers, and no output that nobody needs."""
        if self.any_slides or self.weights[-1].shape[2] == len(self.knots):
            return self
        found = copy.deepcopy(self)
        for part in (found.weights[-1], found.biases[-1]):
            part.data = part.data[..., : len(self.knots)].clone()
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Inputs ``(K, B, d)``, each member its own, to values at the knots, ``(K, B, M + 1)``."""
        return self.after_first(torch.baddbmm(self.biases[0], x, self.first))

    def after_first(self, x: Tensor) -> Tensor:
        """The same from what the first layer gives, ``(K, B, width)``."""
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:]):
            x = torch.baddbmm(bias, functional.silu(x), weight)
        rise = functional.softplus(x[..., 1 : len(self.knots)]) * (self.knots[1] - self.knots[0])
        if self.any_slides:
            rise = slid(rise, self.slides * x[..., -1:])
        climb = functional.pad(rise.cumsum(-1), (1, 0))
        middle = climb.shape[-1] // 2
        return x[..., :1] + climb - climb[..., middle : middle + 1]

    def layers(self, members: Sequence[int], inputs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of some members, which see some of the inputs, ``(d,)`` of truth."""
        some = slice(None) if len(members) == self.n_members else list(members)
        first, *others = (weight[some] for weight in [self.first, *list(self.weights)[1:]])
        return list(zip([first[:, inputs], *others], (bias[some] for bias in self.biases)))

    def rises(self, x: Tensor, layers: list[tuple[Tensor, Tensor]], slides: bool = False) -> Tensor:
        """What members with these `layers` make of common inputs ``(B, d)``, without derivatives.

        Args:
            x: The inputs.
            layers: Of the members.
            slides: Whether they slide.

        Returns:
            The value at ½, then the increments between knots in units of the knots' distance,
            ``(K, B, M + 1)``.
        """
        *hidden, (weight, bias) = layers
        x = x.expand(len(weight), -1, -1)
        for of_layer, shift in hidden:
            x = functional.silu(torch.baddbmm(shift, x, of_layer), inplace=True)
        last, n = torch.baddbmm(bias, x, weight), len(self.knots)
        found = functional.softplus(last[..., :n])
        if slides:
            found[..., 1:] = slid(found[..., 1:], _PACE * last[..., n:])
        found[..., 0] = last[..., 0]
        return found


def slid(rise: Tensor, by: Tensor) -> Tensor:
    """Increments ``(..., M)`` that come from places further on, by ``(..., 1)`` of their distance.

    In between two of them they are mixed; beyond the ends, the outermost ones go on.

    Example:
        >>> slid(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1.5]))
        tensor([3., 6., 8., 8.])
    """
    n = rise.shape[-1]
    by = by.clamp(-n, n)
    whole = by.detach().floor()
    places = (torch.arange(n + 1, device=rise.device) + whole.long()).clamp_(0, n - 1)
    found = rise.gather(-1, places.expand(*rise.shape[:-1], -1))
    return torch.lerp(found[..., :-1], found[..., 1:], by - whole)


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


def xavier_layer(n_in: int, n_out: int, generator: Generator | None) -> nn.Linear:
    """A layer whose initial weights come from this source: Xavier-uniform, zero biases."""
    here = "meta" if torch.get_default_device().type == "meta" else "cpu"  # shapes only, or all
    layer = nn.Linear(n_in, n_out, device="meta").to_empty(device=here)  # draws nothing
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
