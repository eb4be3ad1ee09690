"""Trees beside the networks: leaves hold shares of the response's coordinate, not responses."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gentle.models.nodes import Trees, check_shares
from gentle.rowwise import inverse

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_ROWS_PER_TREE = 20_000
_MAX_FEATURES = 0.5
_MAX_EDGES = 2000  # more than are ever made
_ROWS_AT_ONCE = 8192
_SUMS_AT_ONCE = 1024  # rows whose leaves are added up together


@dataclass(frozen=True)
class LeafShares:
    """A quantile regression forest on a coordinate that is cut into bins.

    F(z | x) is the mean over trees of the weight that training rows at or below z have in the leaf
    of x, uniform within a bin.

    Attributes:
        trees: The trees.
        edges: Of the bins, increasing, ``(n_bins + 1,)``.
        shares: Each node's weight on the bins, rows of leaves sum to 1; sparse,
            ``(n_nodes, n_bins)``.
    """

    trees: Trees
    edges: Floats
    shares: Any

    @classmethod
    def grown(
        cls,
        x: Floats,
        z: Floats,
        weight: Floats,
        edges: Floats,
        *,
        n_trees: int,
        min_samples_leaf: int,
        seed: int,
        n_jobs: int = 1,
    ) -> LeafShares:
        """Grow trees by scikit-learn, each on a bootstrap sample; leaves hold all rows."""
        from sklearn.ensemble import RandomForestRegressor

        grown = RandomForestRegressor(
            n_trees,
            min_samples_leaf=min_samples_leaf,
            max_features=_MAX_FEATURES,
            max_samples=min(len(z), _MAX_ROWS_PER_TREE),
            n_jobs=n_jobs,
            random_state=seed,
        ).fit(x, z, weight)
        trees = Trees.joined(
            (tree.feature, tree.threshold, tree.children_left, tree.children_right)
            for tree in (estimator.tree_ for estimator in grown.estimators_)
        )
        leaves = grown.apply(x) + trees.root  # (n, n_trees)
        n_bins = len(edges) - 1
        bins = np.clip(np.searchsorted(edges, z, "right") - 1, 0, n_bins - 1)
        total = np.zeros(len(trees.feature))
        np.add.at(total, leaves.ravel(), np.repeat(weight, n_trees))
        share = (weight[:, None] / total[leaves]).ravel()
        where = (leaves.ravel(), np.repeat(bins, n_trees))
        shares = sparse.csr_array((share, where), (len(trees.feature), n_bins))
        shares.sum_duplicates()
        return cls(trees, edges, shares)

    @classmethod
    def joined(cls, parts: list[LeafShares]) -> LeafShares:
        """The trees of several forests on the same bins as one."""
        trees, offset = [part.trees for part in parts], 0
        moved = []
        for one in trees:
            moved.append((one.children + offset, one.root + offset))
            offset += len(one.feature)
        return cls(
            Trees(
                np.concatenate([one.feature for one in trees]),
                np.concatenate([one.threshold for one in trees]),
                np.concatenate([children for children, _ in moved]),
                np.concatenate([root for _, root in moved]),
            ),
            parts[0].edges,
            sparse.vstack([part.shares for part in parts], format="csr"),
        )

    def quantiles(self, x: Floats, levels: Floats) -> Floats:
        """Values z at common levels strictly between 0 and 1, ``(n, d)`` to ``(n, L)``."""
        out = np.empty((len(x), len(levels)))
        for first in range(0, len(x), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            out[rows] = self._quantiles(x[rows], levels)
        return out

    def _quantiles(self, x: Floats, levels: Floats) -> Floats:
        leaves = self.trees.apply(x.astype(np.float32))  # as scikit-learn sees covariates
        order = np.argsort(leaves[:, 0])  # rows that have leaves in common follow each other
        out = np.empty((len(x), len(levels)))
        for first in range(0, len(x), _SUMS_AT_ONCE):
            some = order[first : first + _SUMS_AT_ONCE]
            out[some] = inverse(self._cdf(leaves[some]), self.edges, levels)
        return out

    def _cdf(self, leaves: Ints) -> Floats:
        """F at the edges, from the leaves in all trees, ``(n, n_trees)`` to ``(n, n_bins + 1)``."""
        n, n_trees = leaves.shape
        reached = self._narrow[leaves.ravel()]
        start = reached.indptr[::n_trees]  # a row has the entries of all its leaves, to be summed
        shares = sparse.csr_array((reached.data, reached.indices, start), (n, len(self.edges) - 1))
        cdf = np.zeros((n, len(self.edges)))
        np.cumsum(shares.toarray(), axis=1, dtype=np.float64, out=cdf[:, 1:])
        cdf /= cdf[:, -1:]
        return cdf

    @cached_property
    def _narrow(self) -> Any:
        """The shares in half the memory, which is what their sums take time for."""
        data, of, start = self.shares.data, self.shares.indices, self.shares.indptr
        narrow = (data.astype(np.float32), of.astype(np.int32), start.astype(np.int32))
        return sparse.csr_array(narrow, self.shares.shape)

    def arrays(self) -> dict[str, Any]:
        """What `restored` needs."""
        return asdict(self.trees) | {
            "edges": self.edges,
            "share": self.shares.data,
            "share_of": self.shares.indices.astype(np.int64),
            "share_start": self.shares.indptr.astype(np.int64),
        }

    @classmethod
    def restored(cls, arrays: dict[str, Any], n_features: int) -> LeafShares:
        """A forest from arrays that may hold anything: a ValueError unless it can answer."""
        trees = Trees.restored(arrays, n_features)
        edges, share = (np.asarray(arrays[name], np.float64) for name in ("edges", "share"))
        of, start = arrays["share_of"], arrays["share_start"]
        if not (
            edges.ndim == 1
            and 1 < len(edges) <= _MAX_EDGES
            and np.all(np.isfinite(edges))
            and np.all(np.diff(edges) > 0)
        ):
            raise ValueError("its bins are damaged: edges do not increase")
        check_shares(trees, share, of, start, len(edges) - 1)
        shares = sparse.csr_array((share, of, start), (len(trees.feature), len(edges) - 1))
        return cls(trees, edges, shares)
