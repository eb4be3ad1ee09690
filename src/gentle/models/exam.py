"""Rows kept from sight, at which networks in training are examined."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gentle.models.evaluation import Kind
from gentle.models.inputs import Inputs
from gentle.models.lessons import Fold
from gentle.models.objective import Pinball, between, excess, of_marginal, pinball
from gentle.nets import MonotoneNet
from gentle.responses import ResponseEncoder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Exam:
    """The unseen rows of each member's fold, as it sees them, in its own coordinate.

    Args:
        members: Fold and kind of each of K networks, those of one fold after those of another.
        folds: Parts of the data.
        coordinates: Of the response.
        inputs: What networks see of covariates.
        seen: Factors 0 or 1 of the inputs, ``(K, 1, D)``.
        jitter: Where in the width of its atom a response is, at least as many as there are rows.
        levels: Of the networks' knots and their weights, ``(M + 1,)`` each.
    """

    def __init__(
        self,
        members: list[tuple[int, Kind]],
        folds: list[Fold],
        coordinates: list[ResponseEncoder],
        inputs: Inputs,
        seen: Tensor,
        jitter: Floats,
        levels: tuple[Tensor, Tensor],
    ) -> None:
        self.levels, self.n_folds, self.device = levels, len(folds), seen.device
        self.is_shared = all(fold.unseen is folds[0].unseen for fold in folds)
        most = max(len(fold.unseen.y) for fold in folds)
        x, z, weight = [], [], []
        for number, kind in members:
            rows = folds[number].unseen
            low, high = coordinates[kind.coordinate].interval(rows.y)
            pick = np.resize(np.arange(len(rows.y)), most)
            x.append(inputs.encode(rows.x)[pick])
            where = self._tensor(jitter[: len(low)])
            z.append(between(self._tensor(low), self._tensor(high), where)[pick])
            weight.append(np.where(np.arange(most) < len(rows.y), rows.weight[pick], 0.0))
        self.x = self._tensor(np.stack(x)) * seen  # (K, n, D)
        self.z, self.weight = torch.stack(z), self._tensor(np.stack(weight))  # (K, n) each

    def keep(self, members: list[int]) -> None:
        """Go on with some members only."""
        self.x, self.z, self.weight = (a[members] for a in (self.x, self.z, self.weight))

    @torch.no_grad()
    def scores(self, net: MonotoneNet) -> Floats:
        """Twice each member's pinball loss over all levels, outer ones emphasised, ``(K,)``."""
        share = 2 * self.weight / self.weight.sum(1, keepdim=True)
        return Pinball.apply(net(self.x), self.z, share, *self.levels).cpu().numpy()

    @torch.no_grad()
    def losses(self, net: MonotoneNet) -> Tensor:
        """The same at each row, ``(K, n)``."""
        return 2 * pinball(net(self.x), self.z, *self.levels)

    def mean(self, losses: Tensor) -> Floats:
        """Of rows, ``(K, n)`` to ``(K,)``."""
        share = self.weight / self.weight.sum(1, keepdim=True)
        return (share * losses).sum(1).cpu().numpy()

    def of_kinds(self, scores: Floats) -> Floats:
        """For each member the mean of its kind, ``(K,)`` both ways."""
        return np.tile(scores.reshape(self.n_folds, -1).mean(axis=0), self.n_folds)

    def excess(
        self, one: Tensor, other: Tensor, members: slice = slice(None)
    ) -> tuple[Floats, Floats]:
        """Of losses over others at the rows of members: means of kinds, and standard errors."""
        mean, variance = (a.cpu().numpy() for a in excess(one, other, self.weight[members]))
        error = np.sqrt(self.of_kinds(variance) / (1 if self.is_shared else self.n_folds))
        return self.of_kinds(mean), error

    def left(self, scores: Floats) -> float:
        """The part of what the responses' own distribution scores that is left, on average."""
        marginal = of_marginal(self.z, self.weight, *self.levels).clamp(min=1e-9)
        return float(np.mean(scores / marginal.cpu().numpy()))

    def _tensor(self, array: Floats) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)
