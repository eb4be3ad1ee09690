"""The networks."""

from __future__ import annotations

import itertools
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
