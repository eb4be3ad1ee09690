"""Gaussian-kernel distribution functions of grouped responses: the paper's F̂_{x_i}."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kernel_cdf(t: Tensor, y: Tensor, share: Tensor, group: Tensor, bandwidth: Tensor) -> Tensor:
    r"""Gaussian-kernel cdf of each covariate's responses, as the exact mixture.

    F̂_i(t) = Σ_k share_k Φ((t - y_k) / bandwidth_i), over the responses k of covariate i.

    Args:
        t: Points at which each covariate's cdf is wanted, ``(B, m)``.
        y: Responses of all the covariates in one row, ``(R,)``.
        share: Weights of the responses, summing to one within each covariate, ``(R,)``.
        group: The covariate, 0 to B - 1, of each response, ``(R,)``.
        bandwidth: Kernel standard deviation of each covariate, ``(B,)``.

    Returns:
        The cdfs at ``t``, ``(B, m)``.
    """
    if torch.equal(group, torch.arange(len(t), device=group.device)):  # one response each
        return _normal_cdf((t - y[:, None]) / bandwidth[:, None])
    z = (t[group] - y[:, None]) / bandwidth[group][:, None]  # (R, m)
    return torch.zeros_like(t).index_add(0, group, share[:, None] * _normal_cdf(z))


def kernel_quantile(
    u: Tensor, y: Tensor, share: Tensor, group: Tensor, bandwidth: Tensor
) -> Tensor:
    r"""Inverse of `kernel_cdf`: the u-quantiles of each covariate's Gaussian mixture, by bisection.

    A quantile of a mixture lies between the smallest and the largest quantile of its components,
    y_k + bandwidth Φ⁻¹(u), so a covariate with one response is exact at once.

    Args:
        u: Levels, strictly between 0 and 1, ``(B, m)``.
        y: Responses, ``(R,)``.
        share: Weights of the responses, summing to one within each covariate, ``(R,)``.
        group: The covariate of each response, ``(R,)``.
        bandwidth: Kernel standard deviation of each covariate, ``(B,)``.

    Returns:
        The quantiles, ``(B, m)``.
    """
    n_groups = len(u)
    lowest = torch.full((n_groups,), math.inf, dtype=y.dtype, device=y.device)
    lowest = lowest.scatter_reduce(0, group, y, "amin")
    highest = torch.full_like(lowest, -math.inf).scatter_reduce(0, group, y, "amax")
    centre = bandwidth[:, None] * torch.special.ndtri(u)  # (B, m)
    lo, hi = lowest[:, None] + centre, highest[:, None] + centre
    if len(y) > n_groups:
        for _ in range(50 if y.dtype == torch.float64 else 26):
            middle = (lo + hi) / 2
            below = kernel_cdf(middle, y, share, group, bandwidth) < u
            lo, hi = torch.where(below, middle, lo), torch.where(below, hi, middle)
    return (lo + hi) / 2


def bandwidths(rule: float | str, y: Tensor, share: Tensor, group: Tensor, n_groups: int) -> Tensor:
    r"""Kernel bandwidth of each covariate, ``(n_groups,)``.

    A number is used as it is, in the units of ``y``. "scott" is sd_i n_i^{-1/5}, "silverman" sd_i
    (3 n_i / 4)^{-1/5}, with n_i Kish's effective number of responses and sd_i their standard
    deviation. Where a covariate has one response, or equal ones, sd_i is the standard deviation
    pooled within covariates, or over all responses if no covariate has two.

    Args:
        rule: A positive number, "scott" or "silverman".
        y: Responses, ``(N,)``.
        share: Weights of the responses, summing to one within each covariate, ``(N,)``.
        group: The covariate of each response, ``(N,)``.
        n_groups: Number of covariates.
    """
    if not isinstance(rule, str):
        if not (rule > 0 and math.isfinite(rule)):
            raise ValueError(
                f"bandwidth must be a positive number, 'scott' or 'silverman', got {rule!r}"
            )
        return torch.full((n_groups,), float(rule), dtype=y.dtype, device=y.device)
    if rule not in ("scott", "silverman"):
        raise ValueError(
            f"bandwidth must be a positive number, 'scott' or 'silverman', got {rule!r}"
        )

    def total(values: Tensor) -> Tensor:
        return torch.zeros(n_groups, dtype=y.dtype, device=y.device).index_add(0, group, values)

    size = 1 / total(share.square())  # (n,) effective number of responses
    variance = total(share * (y - total(share * y)[group]).square())  # (n,) biased
    repeated = size > 1 + 1e-9
    unbiased = torch.where(repeated, variance * size / (size - 1).clamp(min=1e-9), variance)
    degrees = torch.where(repeated, size - 1, torch.zeros_like(size))
    pooled = (degrees * unbiased).sum() / degrees.sum().clamp(min=1e-9)
    pooled = pooled if pooled > 0 else y.var(correction=0)
    spread = torch.where(repeated & (unbiased > 1e-12 * pooled), unbiased, pooled).sqrt()
    factor = size if rule == "scott" else size * 3 / 4
    return spread * factor ** (-1 / 5)


def _normal_cdf(z: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))
