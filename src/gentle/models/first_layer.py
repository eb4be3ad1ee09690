"""The first layer of networks in training, which find out quickly which inputs matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gentle.nets import MonotoneNet

_SPEED = 4.0  # times the rate of other weights


class EmphasisNet(MonotoneNet):
    """`MonotoneNet` with weights W (1 + 4 e) in the first layer: e, from 0, is learned per input.

    All units of the layer share an input's e, so that a useless input soon fades for all of them,
    and a useful one grows.

    Args:
        plain: Networks that are to learn in this way, whose parameters it takes over.
        free: Which inputs have an e of their own, ``(d,)``; it stays 0 for the others.
    """

    speed: Tensor

    def __init__(self, plain: MonotoneNet, free: NDArray[np.bool_]) -> None:
        nn.Module.__init__(self)
        self.n_members, self.weights, self.biases = plain.n_members, plain.weights, plain.biases
        self.emphasis = nn.Parameter(plain.weights[0].new_zeros(plain.n_members, len(free), 1))
        speed = torch.as_tensor(_SPEED * free, dtype=torch.float32)[:, None]
        self.register_buffer("speed", speed, persistent=False)
        for name in ("knots", "slides"):
            self.register_buffer(name, getattr(plain, name), persistent=False)
        self.any_slides = plain.any_slides

    @property
    def factor(self) -> Tensor:
        """Of the first layer's weights, by inputs, ``(K, d, 1)``."""
        return 1 + self.speed * self.emphasis

    @torch.no_grad()
    def plain(self) -> MonotoneNet:
        """The same maps without anything to emphasise."""
        n_inputs = self.emphasis.shape[1]
        source = torch.Generator()  # of weights that are replaced at once
        found = MonotoneNet(self.n_members, n_inputs, self.widths, generator=source)
        found.to(self.emphasis.device).load_state_dict(
            {name: w for name, w in self.state_dict().items() if name != "emphasis"}
        )
        found.weights[0].copy_(self.first)
        return found


class FirstLayer(torch.autograd.Function):
    """The first layer of members of several kinds, each of which sees a part of the inputs.

    Member m is of kind m modulo the number of kinds. What automatic differentiation would do comes
    to the same, but it handles arrays as large as all weights, several times for each kind.
    """

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor,
        factor: Tensor | None,
        views: list[slice],
        *x: Tensor,
    ) -> Tensor:
        """Weights ``(K, D, H)``, biases ``(K, 1, H)``, factors ``(K, D, 1)``, inputs by kinds.

        Returns:
            ``(K, B, H)``.
        """
        ctx.views = views
        ctx.save_for_backward(weight, factor, *x)
        whole = weight if factor is None else weight * factor
        out, n = weight.new_empty(len(weight), x[0].shape[1], weight.shape[2]), len(views)
        for kind, (view, seen) in enumerate(zip(views, x)):
            out[kind::n] = torch.baddbmm(bias[kind::n], seen, whole[kind::n, view])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of weights, biases and factors; inputs have no gradient."""
        (grad,), n = grads, len(ctx.views)
        weight, factor, *x = ctx.saved_tensors
        of_weight, of_factor = torch.zeros_like(weight), None
        for kind, (view, seen) in enumerate(zip(ctx.views, x)):
            of_weight[kind::n, view] = seen.transpose(1, 2) @ grad[kind::n]
        if factor is not None:
            of_factor = torch.linalg.vecdot(of_weight, weight).unsqueeze(-1)
            of_weight *= factor
        return of_weight, grad.sum(1, keepdim=True), of_factor, None, *(None for _ in x)
