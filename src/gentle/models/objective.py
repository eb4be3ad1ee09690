"""What the networks of the default GENTLE minimise, and where between atoms' ends they look."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Pinball(torch.autograd.Function):
    """Σ_b s_b Σ_k w_k max(l_k g_bk, (l_k - 1) g_bk) for gaps g_bk = z_b - v_bk, member by member.

    Its derivative by v is constant between kinks: kept from the way forward, it makes the way back
    one product.
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor, z: Tensor, s: Tensor, level: Tensor, w: Tensor) -> Tensor:
        """Values ``(K, B, M + 1)``, z and s ``(K, B)``, levels and w ``(M + 1,)`` to ``(K,)``."""
        gap = z.unsqueeze(-1) - v
        slope = _slope(gap, level, w)
        ctx.save_for_backward(slope, s)
        return (torch.linalg.vecdot(gap, slope) * s).sum(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of all arguments, values only have a gradient."""
        slope, s = ctx.saved_tensors
        return slope * (-s * grads[0].unsqueeze(1)).unsqueeze(-1), None, None, None, None


def pinball(v: Tensor, z: Tensor, level: Tensor, w: Tensor) -> Tensor:
    """The inner sums of `Pinball`, row by row, ``(K, B)``."""
    gap = z.unsqueeze(-1) - v
    return torch.linalg.vecdot(gap, _slope(gap, level, w))


def excess(one: Tensor, other: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """By how much rows' losses exceed others ``(K, n)`` in the mean, and its variance, ``(K,)``."""
    share, more = weight / weight.sum(1, keepdim=True), one - other
    mean = (share * more).sum(1, keepdim=True)
    return mean[:, 0], (share * (more - mean)).square().sum(1)


def of_marginal(z: Tensor, weight: Tensor, level: Tensor, w: Tensor) -> Tensor:
    """Twice the pinball loss of the quantiles of weighted responses ``(K, n)`` there, ``(K,)``."""
    ordered, order = z.sort(1)
    below = weight.gather(1, order).cumsum(1)
    total = below[:, -1:]
    at = torch.searchsorted(below, level * total).clamp(max=z.shape[1] - 1)  # (K, M + 1)
    losses = pinball(ordered.gather(1, at).unsqueeze(1), z, level, w)
    return 2 * (losses * weight).sum(1) / total[:, 0]


def _slope(gap: Tensor, level: Tensor, w: Tensor) -> Tensor:
    return torch.where(gap < 0, (level - 1) * w, level * w)


def between(low: Tensor, high: Tensor, u: Tensor) -> Tensor:
    """Points of the plateaus [low, high] at levels u; low where both agree.

    Half-way between uniform points, with which small errors of z matter least for an atom's
    probability, and those of a standard normal, which join up with the normal scores on both sides.
    """
    if torch.equal(low, high):  # as often: no atoms here
        return low
    first, last = torch.special.ndtr(low), torch.special.ndtr(high)
    normal = torch.special.ndtri(first + (last - first) * u)
    even = low + (high - low) * u
    return torch.where(high > low, (even + torch.clamp(normal, low, high)) / 2, low)
