"""Optimal transport on the line, as pure functions.

Distances between weighted samples (`wasserstein`, `ks`) work on NumPy arrays and only measure. The
entropic semi-dual of the paper (`soft_c_transform`, `semidual`, `self_transport`) works on torch
tensors and is differentiable in all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]


def wasserstein(
    a: ArrayLike,
    b: ArrayLike,
    a_weights: ArrayLike | None = None,
    b_weights: ArrayLike | None = None,
    p: float = 1,
) -> Floats:
    r"""Wasserstein distance of order p between weighted samples on the line.

    W_p = (∫₀¹ |F_a⁻¹(t) - F_b⁻¹(t)|ᵖ dt)^{1/p}, exact for the two step functions. Leading axes are
    batched; a weight of zero removes a point, so samples of unequal sizes can be padded.

    Args:
        a: First samples, ``(..., n)``.
        b: Second samples, ``(..., m)``.
        a_weights: Non-negative weights of ``a``, broadcast to its shape; equal weights if left out.
        b_weights: Non-negative weights of ``b``, likewise.
        p: Order, at least 1.

    Returns:
        The distances, ``(...)``.

    Example:
        >>> float(wasserstein([0.0, 1.0], [5.0, 6.0]))
        5.0
    """
    if not p >= 1:
        raise ValueError(f"the order p must be at least 1, got {p}")
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a_weights is None and b_weights is None and a.shape[-1] == b.shape[-1]:
        gap, width = np.abs(np.sort(a) - np.sort(b)), 1 / a.shape[-1]  # (..., n)
        return _root((gap if p == 1 else gap**p).sum(axis=-1) * width, p)
    a, a_level = _steps(a, a_weights)  # (..., n)
    b, b_level = _steps(b, b_weights)  # (..., m)
    n, m = a.shape[-1], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    a, a_level = np.broadcast_to(a, (*batch, n)), np.broadcast_to(a_level, (*batch, n))
    b, b_level = np.broadcast_to(b, (*batch, m)), np.broadcast_to(b_level, (*batch, m))
    level = np.concatenate([a_level, b_level], axis=-1)  # (..., n + m)
    order = np.argsort(level, axis=-1, kind="stable")
    from_a = order < n
    # On the interval that ends at a level, each quantile function sits at its first point not yet
    # used up.
    n_a_before = np.cumsum(from_a, axis=-1) - from_a
    n_b_before = np.arange(n + m) - n_a_before
    gap = np.abs(
        np.take_along_axis(a, np.minimum(n_a_before, n - 1), axis=-1)
        - np.take_along_axis(b, np.minimum(n_b_before, m - 1), axis=-1)
    )
    width = np.diff(np.take_along_axis(level, order, axis=-1), axis=-1, prepend=0.0)
    return _root(((gap if p == 1 else gap**p) * width).sum(axis=-1), p)


def ks(
    a: ArrayLike,
    b: ArrayLike,
    a_weights: ArrayLike | None = None,
    b_weights: ArrayLike | None = None,
) -> Floats:
    r"""Kolmogorov-Smirnov distance sup_t |F_a(t) - F_b(t)| between weighted samples on the line.

    Args:
        a: First samples, ``(..., n)``.
        b: Second samples, ``(..., m)``.
        a_weights: Non-negative weights of ``a``, broadcast to its shape; equal weights if left out.
        b_weights: Non-negative weights of ``b``, likewise.

    Returns:
        The distances, ``(...)``.

    Example:
        >>> float(ks([1.0, 2.0, 3.0, 4.0], [3.0, 4.0]))
        0.5
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    batch = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    signed = np.concatenate(
        [
            np.broadcast_to(_normalised(a_weights, a.shape), (*batch, a.shape[-1])),
            np.broadcast_to(-_normalised(b_weights, b.shape), (*batch, b.shape[-1])),
        ],
        axis=-1,
    )  # (..., n + m)
    values = np.concatenate(
        [np.broadcast_to(a, (*batch, a.shape[-1])), np.broadcast_to(b, (*batch, b.shape[-1]))],
        axis=-1,
    )
    order = np.argsort(values, axis=-1)
    values = np.take_along_axis(values, order, axis=-1)
    gap = np.abs(np.cumsum(np.take_along_axis(signed, order, axis=-1), axis=-1))
    inside_tie = (
        values[..., 1:] == values[..., :-1]
    )  # both functions jump together: look after the last of a tie
    gap[..., :-1][inside_tie] = 0.0
    return gap[..., :-1].max(axis=-1, initial=0.0)


def soft_c_transform(v: Tensor, z: Tensor, y: Tensor, epsilon: float) -> Tensor:
    r"""Smoothed c-transform of a potential for the cost |y - z|² (Eq. 5), over draws.

    v^ε(y) = -ε log mean_z exp((v(z) - |y - z|²) / ε). It is written around the largest exponent
    with expm1 and log1p, so that it tends to min_z(|y - z|² - v(z)) as ε → 0 and to the mean of |y
    - z|² - v(z) as ε → ∞ without overflow.

    Args:
        v: Potential at the draws, ``(..., m)``.
        z: Draws from ν, ``(..., m)``.
        y: Points at which the transform is evaluated, ``(..., n)``.
        epsilon: Entropic strength, positive, in squared units of ``y``.

    Returns:
        The transform at ``y``, ``(..., n)``.
    """
    if not epsilon > 0:
        raise ValueError(
            f"epsilon must be positive, got {epsilon}. "
            "Use a small value for nearly unregularised transport."
        )
    score = v[..., None, :] - (y[..., :, None] - z[..., None, :]).square()  # (..., n, m)
    top = score.detach().amax(
        dim=-1, keepdim=True
    )  # (..., n, 1); any constant gives the same value
    excess = ((score - top) / epsilon).expm1().mean(dim=-1)  # (..., n)
    return -(top.squeeze(-1) + epsilon * excess.log1p())


def semidual(v: Tensor, z: Tensor, y: Tensor, epsilon: float) -> Tensor:
    r"""Semi-dual of entropic transport between draws y of μ and z of ν (Eq. 4 without "- ε").

    mean_y v^ε(y) + mean_z v(z). For every potential v it is at most the entropic cost min_π ∫|y -
    z|² dπ + ε KL(π | μ⊗ν), and its maximum over v equals it.

    Args:
        v: Potential at the draws z, ``(..., m)``.
        z: Draws from ν, the measure of the potential, ``(..., m)``.
        y: Draws from μ, ``(..., n)``.
        epsilon: Entropic strength, positive.

    Returns:
        The objective, ``(...)``.
    """
    return soft_c_transform(v, z, y, epsilon).mean(dim=-1) + v.mean(dim=-1)


def self_transport(y: Tensor, epsilon: float, n_steps: int = 20) -> Tensor:
    """Entropic cost of transport from draws to themselves, as `semidual` has it.

    Half of it is what the Sinkhorn divergence takes away from the cost between two distributions.
    The potential is found by symmetric Sinkhorn steps f ← (f + f^ε) / 2; by the envelope theorem
    the gradient needs none through them.

    Args:
        y: Draws, ``(..., m)``.
        epsilon: Entropic strength, positive.
        n_steps: Steps; 20 are enough where ε is not far below the squared spread of the draws.

    Returns:
        The cost, ``(...)``, differentiable in the draws.
    """
    fixed = y.detach()
    f = fixed * 0
    for _ in range(n_steps):
        f = (f + soft_c_transform(f, fixed, fixed, epsilon)) / 2
    return semidual(f, y, y, epsilon)


def _normalised(weights: ArrayLike | None, shape: tuple[int, ...]) -> Floats:
    """Weights that sum to one along the last axis."""
    if shape[-1] == 0:
        raise ValueError("a sample is empty; a distance needs at least one point on either side")
    if weights is None:
        return np.full(shape, 1 / shape[-1])
    weights = np.broadcast_to(np.asarray(weights, float), shape)
    total = weights.sum(axis=-1, keepdims=True)
    if not (np.all(weights >= 0) and np.all(total > 0) and np.all(np.isfinite(total))):
        raise ValueError(
            "weights must be finite and non-negative, with a positive sum for every sample"
        )
    return weights / total


def _steps(values: Floats, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    """Sorted points and the level at which the quantile function leaves each of them."""
    order = np.argsort(values, axis=-1)
    levels = np.cumsum(
        np.take_along_axis(_normalised(weights, values.shape), order, axis=-1), axis=-1
    )
    levels /= levels[
        ..., -1:
    ].copy()  # ends at 1 exactly, so that trailing zero weights weigh nothing
    return np.take_along_axis(values, order, axis=-1), levels


def _root(total: Floats, p: float) -> Floats:
    return total if p == 1 else total ** (1 / p)
