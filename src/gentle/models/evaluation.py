"""Networks evaluated: their quantile functions at the levels that tables have.

A network's last layer gives the value at the median and the increments between knots; all that
follows is linear. So networks of one coordinate are averaged there, and one matrix leads from their
average to the levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from gentle.models.inputs import Inputs, View
from gentle.nets import MonotoneNet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 256  # rows that go through the networks together, always: another height rounds otherwise
_BLOCK_OF_ONE = 1024  # the same for a single network

_GRID = np.concatenate(
    [np.linspace(-5, -3.5, 7), np.linspace(-3.3, 3.3, 129), np.linspace(3.5, 5, 7)]
)  # z of a standard normal, the networks' knots among them
INNER = ndtr(_GRID)
LEVELS = np.concatenate([[0.0], INNER[1:-1], [1.0]])
MEDIAN = len(_GRID) // 2


@dataclass(frozen=True)
class Kind:
    """What a network works with.

    Attributes:
        coordinate: Position of the response's coordinate.
        views: What it sees of the columns.
        slides: Whether its increments slide (`MonotoneNet`).
    """

    coordinate: int
    views: tuple[View, ...]
    slides: bool = False


def visible(kinds: list[Kind], n_members: int, inputs: Inputs) -> Tensor:
    """Factors 0 or 1 by which each member sees the inputs, ``(K, 1, D)``."""
    seen = torch.zeros(n_members, 1, len(inputs))
    for member in range(n_members):
        for view in kinds[member % len(kinds)].views:
            seen[member, :, inputs.view(view)] = 1.0
    return seen


def evaluated(net: MonotoneNet, kinds: list[Kind], inputs: Inputs, x: Floats) -> Floats:
    """Values z of all members at the levels, each in its own coordinate, ``(K, n, L)``."""
    blocks = _Blocks(net, kinds, inputs, x)
    rises = np.empty((net.n_members, *blocks.shape))
    for kind in dict.fromkeys(kinds):
        alike = np.flatnonzero([one == kind for one in blocks.of_members])
        for block, found in enumerate(blocks.through(alike)):
            rises[alike, block] = found.cpu().numpy()
    return blocks.at_levels(rises)


def mixed(
    net: MonotoneNet, kinds: list[Kind], inputs: Inputs, x: Floats, weights: Floats
) -> dict[int, Floats]:
    """Mean values z at the levels of the networks that share a coordinate.

    Args:
        net: The networks, those of one part of the data after those of another.
        kinds: Their kinds.
        inputs: What they see of covariates.
        x: Encoded covariates, ``(n, d)``.
        weights: Of the kinds, ``(n_kinds,)``; those of weight 0 are left out.

    Returns:
        By coordinates in use, ``(n, L)`` each.
    """
    if not weights.any():
        return {}
    blocks, rises = _Blocks(net, kinds, inputs, x), {}
    weight = np.resize(weights, net.n_members)
    for kind in dict.fromkeys(kinds):
        alike = np.flatnonzero(weight * [one == kind for one in blocks.of_members])
        if not len(alike):
            continue
        mates = [one.coordinate == kind.coordinate for one in blocks.of_members]
        share = blocks.tensor(weight[alike] / weight[mates].sum())
        total = rises.setdefault(kind.coordinate, np.zeros(blocks.shape))
        for block, found in enumerate(blocks.through(alike)):
            alone = len(alike) == sum(mates) == 1
            mean = found[0] if alone else (share @ found.flatten(1)).view_as(found[0])
            total[block] += mean.cpu().numpy()
    return {coordinate: blocks.at_levels(total) for coordinate, total in rises.items()}


class _Blocks:
    """Rows in blocks of one height, the last one filled up, on their way through the networks.

    Matrix products of another height may round differently, and a row's answer must not depend on
    its company.
    """

    def __init__(self, net: MonotoneNet, kinds: list[Kind], inputs: Inputs, x: Floats) -> None:
        self.net, self.n_rows = net, len(x)
        self.of_members = [kinds[member % len(kinds)] for member in range(net.n_members)]
        height = BLOCK if net.n_members > 1 else _BLOCK_OF_ONE
        self.shape = (-(-len(x) // height), height, len(net.knots))  # of `MonotoneNet.rises`
        filled = np.zeros((*self.shape[:2], len(inputs)), np.float32)
        wanted: set[View] = {view for kind in kinds for view in kind.views}
        inputs.encode(x, wanted, filled.reshape(-1, len(inputs))[: len(x)])
        self.inputs = torch.from_numpy(filled).to(net.knots.device)
        self.seen = visible(kinds, net.n_members, inputs)[:, 0].to(net.knots.device) > 0  # (K, D)

    def tensor(self, array: Floats) -> Tensor:
        """Numbers where the networks are."""
        return torch.as_tensor(array, dtype=torch.float32, device=self.net.knots.device)

    @torch.no_grad()
    def through(self, members: Ints) -> Iterator[Tensor]:
        """The rises of members of one kind, block by block, ``(len(members), B, M + 1)``."""
        seen, slides = self.seen[members[0]], self.of_members[members[0]].slides
        layers = self.net.layers(members.tolist(), seen)
        for block in self.inputs if seen.all() else self.inputs[:, :, seen]:
            yield self.net.rises(block, layers, slides)

    def at_levels(self, rises: Floats) -> Floats:
        """From rises ``(..., n_blocks, B, M + 1)`` to values at the levels, ``(..., n, L)``."""
        values = rises @ _from_rises(tuple(self.net.knots.tolist()))
        return values.reshape(*rises.shape[:-3], -1, len(_GRID))[..., : self.n_rows, :]


@lru_cache(maxsize=8)
def _from_rises(knots: tuple[float, ...]) -> Floats:
    """The matrix from the value at ½ and increments to values at the levels, ``(M + 1, L)``."""
    n = len(knots)
    climb = np.triu(np.full((n, n), knots[1] - knots[0]))  # at each knot the increments up to it
    climb -= climb[:, n // 2, None].copy()  # none at the median
    climb[0] = 1.0
    return climb @ _to_levels(knots)


def at_levels(values: Floats, knots: Floats) -> Floats:
    """From the knots to the levels of the tables: straight in Φ⁻¹(u), beyond the knots too."""
    return values @ _to_levels(tuple(knots.tolist()))


@lru_cache(maxsize=8)
def _to_levels(knots: tuple[float, ...]) -> Floats:
    """The matrix of `at_levels`, ``(M + 1, L)``."""
    right = np.clip(np.searchsorted(knots, _GRID), 1, len(knots) - 1)
    at, of = np.array(knots), np.eye(len(knots))
    t = (_GRID - at[right - 1]) / (at[right] - at[right - 1])
    inside = (t >= -1e-6) & (t <= 1 + 1e-6)
    out = of[right - 1] * (1 - t[:, None]) + of[right] * t[:, None]
    span = 10  # increments that give the slope beyond
    for end, inner, beyond in (
        (0, span, ~inside & (_GRID < 0)),
        (-1, -1 - span, ~inside & (_GRID > 0)),
    ):
        slope = (of[end] - of[inner]) / (at[end] - at[inner])
        out[beyond] = of[end] + slope * (_GRID[beyond] - at[end])[:, None]
    return np.ascontiguousarray(out.T)


def knots_among_levels(net: MonotoneNet) -> Ints:
    """Where the networks' knots stand among the levels of the tables, ``(M + 1,)``."""
    return np.abs(_GRID - net.knots.cpu().numpy()[:, None]).argmin(axis=1)


def quadrature(levels: Floats) -> Floats:
    """Lengths of the intervals nearest to each level: they sum to 1."""
    return np.diff(np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]]))
