"""Ingredients that the default GENTLE does not have, each in the place of a part of it."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr
from torch import nn
from torch.nn import functional

from gentle import GENTLE, KNN
from gentle.models import evaluation
from gentle.models.inputs import Inputs, View
from gentle.models.objective import between
from gentle.responses import ResponseEncoder

_straight_pieces, _ALL = Inputs.encode, get_args(View)


def periodic(self: Inputs, x: np.ndarray, views: Any = _ALL) -> np.ndarray:
    """`Inputs.encode` with sines and cosines of each column's range in the place of its pieces.

    Frequencies are fixed, half a period over the range, one, one and a half, ...; the layer above
    learns what to make of them.
    """
    out = _straight_pieces(self, x, views)
    pieces = out[:, self.view("pieces")]
    for j in np.unique(self.column):
        own = np.flatnonzero(self.column == j)
        low, high = self.start[own[0]], (self.start + self.length)[own[-1]]
        t = np.clip((x[:, j] - low) / (high - low), 0, 1)
        for number, place in enumerate(own):
            wave = np.sin if number % 2 else np.cos
            pieces[:, place] = 0.5 * wave(math.pi * (number // 2 + 1) * t)
    return out


class Retrieving:
    """`GENTLE()` with quantiles of the nearest training rows' responses as further columns."""

    levels = (0.1, 0.25, 0.5, 0.75, 0.9)

    def __init__(self, n_neighbors: int = 30, **settings: Any) -> None:
        self.n_neighbors, self.model = n_neighbors, GENTLE(**settings)

    def fit(self, X: Any, y: Any) -> Retrieving:
        from sklearn.neighbors import NearestNeighbors

        self.encoder, self.y = KNN().fit(X, y), np.asarray(y, float)
        self.search = NearestNeighbors(n_neighbors=min(self.n_neighbors + 1, len(self.y)))
        self.search.fit(self.encoder._encoded_covariates(X))
        self.model.fit(self._with_neighbours(X, leave_out_first=True), y)
        return self

    def predict_dist(self, X: Any) -> Any:
        return self.model.predict_dist(self._with_neighbours(X, leave_out_first=False))

    def _with_neighbours(self, X: Any, leave_out_first: bool) -> pd.DataFrame:
        """A training row is its own nearest one and must not be its own neighbour."""
        found = self.search.kneighbors(self.encoder._encoded_covariates(X), return_distance=False)
        near = self.y[found[:, 1:] if leave_out_first else found[:, :-1]]
        table = pd.DataFrame(X).reset_index(drop=True)
        for level in self.levels:
            table[f"neighbours {level}"] = np.quantile(near, level, axis=1)
        return table


class ParameterSharing:
    """TabM (PyPI `tabm`): one network whose 16 members differ by a few factors per layer.

    Same inputs, coordinate, levels and loss as a kind of network of the default; one split for
    early stopping, no trees, no other kinds.
    """

    def __init__(self, random_state: int = 0, n_members: int = 16, **_: Any) -> None:
        self.seed, self.n_members = random_state, n_members

    def fit(self, X: Any, y: Any) -> ParameterSharing:
        from tabm import TabM

        y = np.asarray(y, float)
        rng, ones = np.random.default_rng(self.seed), np.ones(len(y))
        draws = torch.Generator().manual_seed(self.seed)
        self.encoder = KNN().fit(X, y)
        x = self.encoder._encoded_covariates(X)
        self.inputs, self.coordinate = Inputs.of(x, ones), ResponseEncoder.of(y, ones)
        x = self._seen(x)
        low, high = (torch.as_tensor(a, dtype=torch.float32) for a in self.coordinate.interval(y))
        self.knots = torch.linspace(-3.3, 3.3, 65)
        level = torch.as_tensor(ndtr(self.knots.numpy()), dtype=torch.float32)
        emphasis = torch.as_tensor(evaluation.quadrature(level.numpy().astype(float)) ** 0.5)
        emphasis = (emphasis / emphasis.sum()).float()
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            size = {"n_num_features": x.shape[1], "d_out": 65, "k": self.n_members}
            self.net = TabM.make(**size, n_blocks=2, d_block=128, dropout=0.0)
        for module in self.net.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False
        order = rng.permutation(len(y))
        held_out, seen = order[: max(1, len(y) // 8)], order[max(1, len(y) // 8) :]
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3, weight_decay=1e-4)
        best, patience, kept = math.inf, 0, None
        batch = min(max(32, len(seen) // 64), 1024)

        def loss(rows: np.ndarray, together: bool) -> torch.Tensor:
            jitter = torch.rand(len(rows), generator=draws)
            z = between(low[rows], high[rows], jitter)[:, None, None]
            values = self._values(x[rows])
            gap = z - (values.mean(1, keepdim=True) if together else values)
            return 2 * (torch.maximum(level * gap, (level - 1) * gap) @ emphasis).mean()

        for _ in range(400):
            for rows in np.array_split(rng.permutation(seen), math.ceil(len(seen) / batch)):
                optimizer.zero_grad()
                loss(rows, together=False).backward()
                optimizer.step()
            with torch.no_grad():
                score = float(loss(held_out, together=True))
            patience += 1
            if score < best:
                best, patience = score, 0
                kept = {name: weight.clone() for name, weight in self.net.state_dict().items()}
            if patience > 20:
                break
        assert kept is not None
        self.net.load_state_dict(kept)
        return self

    @torch.no_grad()
    def predict_dist(self, X: Any) -> Any:
        x = self._seen(self.encoder._encoded_covariates(X))
        values = self._values(x).mean(1).double().numpy()
        z = evaluation.at_levels(values, self.knots.numpy().astype(float))
        return self.coordinate.table(evaluation.LEVELS, np.maximum.accumulate(z, axis=1))

    def _seen(self, x: np.ndarray) -> torch.Tensor:
        encoded = self.inputs.encode(x)[:, self.inputs.view("scores").start :]  # ranks and pieces
        return torch.as_tensor(encoded, dtype=torch.float32)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        """``(B, k, 65)``, increasing."""
        out = self.net(x)
        rise = functional.softplus(out[..., 1:] + math.log(math.e - 1))
        climb = functional.pad((rise * (self.knots[1] - self.knots[0])).cumsum(-1), (1, 0))
        return out[..., :1] + climb - climb[..., 32:33]
