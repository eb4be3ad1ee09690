"""Boosted trees that say what to expect; networks and the forest see it as one more column."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gentle.data import row_hashes
from gentle.models.bins import Bins
from gentle.models.nodes import Trees
from gentle.workers import by_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RATE = 0.12
_SMALL, _WIDE = 5000, 100  # rows, columns
_PATIENCE = 10  # trees without improvement
_MAX_LEAVES = 16
_MIN_LEAF = 10
_MAX_FEATURES = 0.5
_SHRINKAGE = 1.0
_MAX_ROWS = 100_000  # drawn at random
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting for the mean of the response's coordinate, on several parts of the rows.

    A hash of its covariates assigns each row to a part, whose trees have not seen it. While models
    learn, they see a row's `honest` value, that of these trees; later the mean of all.

    Attributes:
        trees: The trees, those of one part after those of another.
        values: What each node adds, ``(n_nodes,)``.
        start: The trees of part k are numbers ``start[k]`` to ``start[k + 1]``, ``(n_parts + 1,)``.
        baseline: What each part begins with, ``(n_parts,)``.
    """

    trees: Trees
    values: Floats
    start: Ints
    baseline: Floats

    @classmethod
    def of(cls, x: Floats, z: Floats, weight: Floats, seed: int) -> Boosting:
        """Grow trees by scikit-learn, in each part until its unseen rows gain nothing."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        n_parts, max_trees, max_bins = _sizes(*x.shape)
        at_once = n_parts if len(z) <= _SMALL else 1  # threads are in each other's way there
        if len(z) > _MAX_ROWS:
            some = np.random.default_rng(seed).choice(len(z), _MAX_ROWS, replace=False)
            x, z, weight = x[some], z[some], weight[some]
        part = _part(x, n_parts)

        def grown(numbers: slice) -> list[Any]:
            # One thread each: sums of several threads may come in any order.
            with threadpool_limits(1, user_api="openmp"):
                return [one(number) for number in range(numbers.start, numbers.stop)]

        def one(number: int) -> tuple[Any, Bins]:
            seen, unseen = part != number, part == number
            bins = Bins(x[seen], weight[seen], max_bins)
            held_out = {"X_val": bins.codes(x[unseen]), "y_val": z[unseen]}
            model = HistGradientBoostingRegressor(
                learning_rate=_RATE,
                max_iter=max_trees,
                max_leaf_nodes=_MAX_LEAVES,
                max_bins=max_bins,
                min_samples_leaf=_MIN_LEAF,
                max_features=_MAX_FEATURES,
                l2_regularization=_SHRINKAGE,
                early_stopping=True,  # type: ignore[arg-type]
                n_iter_no_change=_PATIENCE,
                random_state=seed,
            )
            held_out["sample_weight_val"] = weight[unseen]
            return model.fit(bins.codes(x[seen]), z[seen], weight[seen], **held_out), bins

        found = [pair for some in by_threads(grown, n_parts, at_once) for pair in some]
        n_trees = [max(1, int(np.argmax(model.validation_score_))) for model, _ in found]
        nodes = [
            (tree.nodes, bins)
            for (model, bins), n in zip(found, n_trees)
            for (tree,) in model._predictors[:n]
        ]
        return cls(
            Trees.boosted(nodes),
            np.concatenate([node["value"] for node, _ in nodes]),
            np.cumsum([0, *n_trees]),
            np.array([model._baseline_prediction.item() for model, _ in found]),
        )

    def extended(self, x: Floats, *, honest: bool = False) -> Floats:
        """Covariates ``(n, d)`` with what to expect as a further column, ``(n, d + 1)``."""
        column = self._honest if honest else self._mean
        found = by_threads(lambda rows: column(x[rows]), len(x), _ROWS_AT_ONCE)
        return np.column_stack([x, np.concatenate([*found, []])])

    def _mean(self, x: Floats) -> Floats:
        n_parts = len(self.baseline)
        return sum(self._of_part(number, x) for number in range(n_parts)) / n_parts  # type: ignore

    def _honest(self, x: Floats) -> Floats:
        part, out = _part(x, len(self.baseline)), np.empty(len(x))
        for number in np.unique(part):
            own = part == number
            out[own] = self._of_part(number, x[own])
        return out

    def _of_part(self, number: int, x: Floats) -> Floats:
        """What the trees of a part expect, ``(n,)``."""
        leaves = self.trees.apply(x, slice(*self.start[number : number + 2]))
        return self.baseline[number] + self.values[leaves].sum(axis=1)

    def arrays(self) -> dict[str, Any]:
        """What `restored` needs."""
        own = {"values": self.values, "start": self.start, "baseline": self.baseline}
        return asdict(self.trees) | own

    @classmethod
    def restored(cls, arrays: dict[str, Any], n_features: int) -> Boosting:
        """From arrays that may hold anything: a ValueError unless it can answer."""
        trees = Trees.restored(arrays, n_features)
        values, baseline = (np.asarray(arrays[name], np.float64) for name in ("values", "baseline"))
        start = arrays["start"]
        if not (
            start.dtype.kind == "i"
            and start.shape == (len(baseline) + 1,) != (1,)
            and np.all(start[1:] >= start[:-1])
            and (start[0], start[-1]) == (0, len(trees))
            and values.shape == trees.feature.shape
            and baseline.ndim == 1
            and np.all(np.isfinite(values))
            and np.all(np.isfinite(baseline))
        ):
            raise ValueError("its boosted trees are damaged: their parts do not fit together")
        return cls(trees, values, start, baseline)


def _sizes(n_rows: int, n_columns: int) -> tuple[int, int, int]:
    """Parts, the largest number of a part's trees, and bins into which columns are cut."""
    if n_rows <= _SMALL:
        return 5 if n_columns <= _WIDE else 3, 250, 64
    return 3 if n_rows <= 20_000 else 2, 400, 255


def _part(x: Floats, n_parts: int) -> Ints:
    """The part of the rows to which each covariate belongs, ``(n,)``."""
    return (row_hashes(x) % np.uint64(n_parts)).astype(np.int64)
