"""Linear quantile regression, solved exactly: interior points, level after level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Floats = NDArray[np.float64]

_GAP = 1e-12  # duality gap at which a programme counts as solved, relative to its value
_NO_GAP = 1e-13  # the same relative to Σ w|y|, for fits without residuals
_DEPENDENT = 1e-9  # share of a column that those before it must leave unexplained
_BAND = 3.0  # rows whose side is left open, in units of √(n·p)
_MAX_ITERATIONS = 100  # about 15 are needed


def quantile_regressions(features: Floats, y: Floats, weight: Floats, levels: Floats) -> Floats:
    r"""Coefficients β that minimise Σ_i w_i ρ_τ(y_i - φ_i·β) at each level τ.

    ρ_τ(r) = max(τ r, (τ - 1) r) is the pinball loss. Each level is a linear programme, solved by a
    primal-dual interior point method to a duality gap of 1e-12 of its value. The level before tells
    on which side of the next one's hyperplane most rows lie; the rows of a side are added up to
    one, which leaves the solution unchanged as long as none of them changes sides (Portnoy and
    Koenker, 1997). That is checked; a row that did is set free.

    Args:
        features: φ, ``(n, p)``; columns that depend on those before them get the coefficient 0.
        y: Responses, ``(n,)``.
        weight: Positive weights w, ``(n,)``.
        levels: τ, increasing, strictly between 0 and 1, ``(m,)``.

    Returns:
        One column of coefficients per level, ``(p, m)``.

    Example:
        >>> ones, y = np.ones((5, 1)), np.array([1.0, 2.0, 3.0, 4.0, 10.0])
        >>> quantile_regressions(ones, y, np.ones(5), np.array([0.25, 0.5])).round(6).tolist()
        [[2.0, 3.0]]
    """
    kept, triangle, basis = _independent(features)
    leverage = np.sqrt(np.square(basis).sum(axis=1))  # (n,) of a size with a row's uncertainty
    rows, t = basis * weight[:, None], y * weight  # w ρ(r) = ρ(w r)
    share = _BAND * np.sqrt(basis.shape[1] / len(y)) / 2
    beta = basis.T @ y / len(y)  # the basis has orthogonal columns of norm √n: least squares
    above = below = np.zeros(len(y), bool)
    solutions = []
    for level in levels:
        if solutions:
            residual = (y - basis @ beta) / leverage
            ends = np.quantile(residual, [max(0, level - share), min(1, level + share)])
            below, above = residual < ends[0], residual > ends[1]
        while True:
            free = ~(below | above)
            sums = [[values[side].sum(axis=0) for side in (below, above)] for values in (rows, t)]
            beta = _solved(
                np.concatenate([rows[free], sums[0]]), np.append(t[free], sums[1]), level, beta
            )
            residual = y - basis @ beta
            changed = (below & (residual > 0)) | (above & (residual < 0))
            if not changed.any():
                break
            below, above = below & ~changed, above & ~changed
        solutions.append(beta)
    coefficients = np.zeros((features.shape[1], len(levels)))
    coefficients[kept] = np.linalg.solve(triangle, np.stack(solutions, axis=1))
    return coefficients


def _independent(features: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Which columns to use ``(p,)``, R ``(r, r)`` and B ``(n, r)`` with features[:, used] = B R.

    The columns of B are orthogonal, of norm √n.
    """
    n, p = features.shape
    diagonal = np.zeros(p)
    diagonal[: min(n, p)] = np.abs(np.diag(np.linalg.qr(features, mode="r")))
    used = diagonal > _DEPENDENT * np.linalg.norm(features, axis=0)
    orthogonal, triangle = np.linalg.qr(features[:, used])
    return used, triangle / np.sqrt(n), orthogonal * np.sqrt(n)


def _solved(rows: Floats, t: Floats, level: float, beta: Floats) -> Floats:
    r"""The β that minimises Σ_i ρ_τ(t_i - rows_i·β), from any β.

    With residuals r = w - z split into positive parts, the dual is max t·a subject to rows'a =
    (1 - τ) rows'1 and 0 ≤ a ≤ 1; s = 1 - a. Both stay feasible, and Newton's method (Mehrotra's
    predictor and corrector) drives the products z a and w s, whose sum is the gap, to 0.

    Args:
        rows: ``(n, p)``.
        t: ``(n,)``.
        level: τ.
        beta: Where to start, ``(p,)``.
    """
    r = t - rows @ beta
    margin = 0.1 * np.abs(r).mean() + np.finfo(float).tiny
    z, w = np.maximum(-r, 0) + margin, np.maximum(r, 0) + margin
    a, s = np.full(len(t), 1 - level), np.full(len(t), level)
    for _ in range(_MAX_ITERATIONS):
        gap = z @ a + w @ s
        value = np.maximum(level * r, (level - 1) * r).sum()
        if gap <= _GAP * value + _NO_GAP * np.abs(t).sum():
            break
        q = 1 / (z / a + w / s)
        try:
            hessian = cho_factor(rows.T @ (q[:, None] * rows))
        except LinAlgError:  # the limit of double precision: as good as solved
            break
        _, da = _newton(rows, q, hessian, r)  # predictor: all products to 0 at once
        dz, dw = -z * (1 + da / a), -w * (1 - da / s)
        primal, dual = _reach(a, s, da, -da), _reach(z, w, dz, dw)
        predicted = (z + dual * dz) @ (a + primal * da) + (w + dual * dw) @ (s - primal * da)
        mu = (predicted / gap) ** 2 * predicted / (2 * len(t))
        za, ws = (mu - da * dz) / a - z, (mu + da * dw) / s - w
        d_beta, da = _newton(rows, q, hessian, za - ws)
        dz, dw = za - z * da / a, ws + w * da / s
        primal, dual = 0.9995 * _reach(a, s, da, -da), 0.9995 * _reach(z, w, dz, dw)
        a, s = a + primal * da, s - primal * da
        z, w, beta = z + dual * dz, w + dual * dw, beta + dual * d_beta
        r = t - rows @ beta
    return beta


def _newton(rows: Floats, q: Floats, hessian: Any, right: Floats) -> tuple[Floats, Floats]:
    """dβ ``(p,)`` and da ``(n,)`` with rows·dβ + da / q = right and rows'da = 0."""
    d_beta = cho_solve(hessian, rows.T @ (q * right))
    return d_beta, q * (right - rows @ d_beta)


def _reach(u: Floats, v: Floats, du: Floats, dv: Floats) -> float:
    """The longest step, at most 1, after which no entry is negative."""
    return float(1 / max(1, np.max(-du / u), np.max(-dv / v)))
