"""Models made of decision trees: grown by scikit-learn, held as plain arrays, answered here."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gentle.data import Grouped
from gentle.distribution import QuantileTable
from gentle.models import checks
from gentle.models.base import ConditionalGenerator, Floats
from gentle.models.bins import Bins
from gentle.models.checks import is_count
from gentle.models.levels import even_levels, table_through
from gentle.models.nodes import Ints, Trees, check_shares
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed


class QuantileForest(ConditionalGenerator):
    r"""Meinshausen's quantile regression forest: weighted training responses.

    F(y | x) = Σ_i w_i(x) 1{y_i ≤ y}, where w_i(x) is the mean over trees of row i's share of the
    weight in the leaf that x falls into. Trees are grown by scikit-learn's random forest, each on
    a bootstrap sample; leaves hold all training rows that fall into them, drawn or not, as in
    Meinshausen's paper, which had a smaller CRPS than leaves of drawn rows. All mass lies in atoms:
    draws repeat training responses exactly. Fitted and saved models hold the training responses.

    Args:
        n_estimators: Number of trees.
        min_samples_leaf: Smallest number of (drawn) rows in a leaf.
        max_features: Share of the covariates that each split chooses from.
        bootstrap: Grow each tree on rows drawn with replacement, rather than on all rows.
        n_jobs: Threads that grow trees, None for one, -1 for all cores; the result is the same.
        random_state: Seed of the bootstrap and of the covariates to split on.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Attributes:
        trees_: The trees.
        responses_: Distinct training responses, increasing, ``(m,)``.
        shares_: Each node's weight on the responses, rows of leaves sum to 1; sparse,
            ``(n_nodes, m)``.

    Example:
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [5.0, 5.0, 7.0, 9.0]
        >>> model = QuantileForest(min_samples_leaf=2, bootstrap=False).fit(X, y)
        >>> model.predict_dist([[0.4], [2.6]]).quantile([0.25, 0.75])
        array([[5., 5.],
               [7., 9.]])
    """

    _encodes_response: ClassVar[bool] = False
    _holds: ClassVar[str] = "the training responses"
    search_space: ClassVar[Space] = {
        "min_samples_leaf": Between(2, 100, log=True),
        "max_features": Between(0.2, 1.0),
    }

    trees_: Trees
    responses_: Floats
    shares_: Any

    def __init__(
        self,
        *,
        n_estimators: int = 200,
        min_samples_leaf: int = 20,
        max_features: float = 0.5,
        bootstrap: bool = True,
        n_jobs: int | None = None,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require("n_estimators min_samples_leaf", is_count, "an integer of at least 1")
        require("max_features", lambda v: 0 < v <= 1, "a share of the covariates, up to 1")

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            self.n_estimators,
            min_samples_leaf=int(self.min_samples_leaf),
            max_features=float(self.max_features),
            bootstrap=self.bootstrap,
            n_jobs=self.n_jobs,
            random_state=int(rng.integers(2**31)),
        ).fit(train.x[train.group], train.y, train.weight)
        trees = Trees.joined(
            (tree.feature, tree.threshold, tree.children_left, tree.children_right)
            for tree in (grown.tree_ for grown in forest.estimators_)
        )
        responses, rank = np.unique(train.y, return_inverse=True)
        shares = []
        for tree, size in enumerate(np.diff(np.append(trees.root, len(trees.feature)))):
            own = slice(tree, tree + 1)
            leaf = trees.apply(_single(train.x), own)[train.group, 0] - trees.root[tree]  # (N,)
            share = train.weight / np.bincount(leaf, train.weight)[leaf]
            # Building a sparse array adds up equal responses of a leaf.
            shares.append(sparse.csr_array((share, (leaf, rank)), (size, len(responses))))
        return {
            "trees_": trees,
            "responses_": responses,
            "shares_": sparse.vstack(shares, format="csr"),
        }

    def _n_knots(self) -> int:
        largest = int(np.diff(self.shares_.indptr).max())
        return 2 * min(len(self.responses_), len(self.trees_) * largest)

    def _conditional(self, x: Floats) -> QuantileTable:
        leaves = self.trees_.apply(_single(x))  # (n, n_trees)
        start = np.arange(len(x) + 1) * len(self.trees_)
        visits = sparse.csr_array(
            (np.ones(leaves.size), leaves.ravel(), start), (len(x), self.shares_.shape[0])
        )
        weights = visits @ self.shares_  # (n, m), few of them above 0
        weights.sort_indices()
        # Rows differ in how many responses they have, and tables are filled up with empty pieces. A
        # power of two of them leaves a row's sums as they are, bit for bit, whatever its company:
        # numpy adds up halves of halves, and the halves that are added are 0.
        counts = np.diff(weights.indptr)
        width = max(64, 1 << int(counts.max() - 1).bit_length())
        used = np.arange(width) < counts[:, None]
        values = np.repeat(self.responses_[weights.indices[weights.indptr[1:] - 1]], 2 * width + 1)
        values = values.reshape(len(x), -1)
        after = np.zeros((len(x), width))
        after[used] = weights.data
        after = np.cumsum(after, axis=1)
        levels = np.zeros_like(values)
        levels[:, 1::2] = levels[:, 2::2] = after / after[:, -1:]
        values[:, :-1:2][used] = values[:, 1::2][used] = self.responses_[weights.indices]
        return QuantileTable(levels, values)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        shares = self.shares_
        return asdict(self.trees_) | {
            "responses": self.responses_,
            "share": shares.data,
            "share_of": shares.indices.astype(np.int64),
            "share_start": shares.indptr.astype(np.int64),
        }, {}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        trees = Trees.restored(arrays, self._n_encoded)
        responses, share = (arrays[name].astype(np.float64) for name in ("responses", "share"))
        of, start = arrays["share_of"], arrays["share_start"]
        check_shares(trees, share, of, start, len(responses))
        if responses.ndim != 1 or not np.all(np.diff(responses) > 0):
            raise ValueError("its responses are damaged: they do not increase")
        self.trees_, self.responses_ = trees, responses
        self.shares_ = sparse.csr_array((share, of, start), (len(trees.feature), len(responses)))


def _single(x: Floats) -> NDArray[np.float32]:
    """Covariates as scikit-learn's forests see them."""
    return x.astype(np.float32)


class BoostedQuantiles(ConditionalGenerator):
    """Gradient boosting of the pinball loss, one model for each of many levels.

    Trees are grown by scikit-learn's histogram gradient boosting. At each level boosting stops when
    the pinball loss of held-out covariates no longer falls. Predictions are sorted along the
    levels, straight in between, and go on in the same direction beyond the first and the last.

    Args:
        n_levels: Number of levels k/(n_levels + 1).
        max_iter: Largest number of trees for a level.
        learning_rate: Factor of each tree.
        max_leaf_nodes: Largest number of leaves of a tree.
        min_samples_leaf: Smallest number of rows in a leaf.
        max_features: Share of the covariates that each split chooses from.
        patience: Trees without improvement after which boosting stops.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        random_state: Seed of the split and of the covariates to split on.
        device: Not used; every model takes it. Threads are those of OpenMP.
        verbose: Not used; every model takes it.

    Attributes:
        trees_: The trees of all levels.
        start_: The trees of level k are numbers ``start_[k]`` to ``start_[k + 1]``,
            ``(n_levels + 1,)``.
        values_: What each node adds to a prediction, ``(n_nodes,)``.
        baseline_: What predictions begin with, ``(n_levels,)``.
        n_iter_: The largest number of trees of a level.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (300, 1))
        >>> y = np.sign(X[:, 0]) + rng.normal(0, 0.1, 300)
        >>> model = BoostedQuantiles(n_levels=9, random_state=0).fit(X, y)
        >>> model.predict_quantiles([[-0.5], [0.5]], 0.5).round()
        array([-1.,  1.])
    """

    _encodes_response: ClassVar[bool] = False
    search_space: ClassVar[Space] = {
        "learning_rate": Between(0.03, 0.3, log=True),
        "max_leaf_nodes": OneOf((4, 8, 16, 31)),
        "min_samples_leaf": Between(5, 50, log=True),
        "max_features": Between(0.2, 1.0),
    }

    trees_: Trees
    start_: Ints
    values_: Floats
    baseline_: Floats

    def __init__(
        self,
        *,
        n_levels: int = 39,
        max_iter: int = 300,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 8,
        min_samples_leaf: int = 20,
        max_features: float = 0.5,
        patience: int = 10,
        validation_fraction: float = 0.1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_levels = n_levels
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require("max_iter min_samples_leaf patience", is_count, "an integer of at least 1")
        require("n_levels max_leaf_nodes", lambda v: is_count(v, 2), "an integer of at least 2")
        require("learning_rate", lambda v: v > 0, "positive")
        require("max_features", lambda v: 0 < v <= 1, "a share of the covariates, up to 1")
        require("validation_fraction", lambda v: 0 < v < 1, "between 0 and 1")

    def _held_out(self) -> float:
        return self.validation_fraction

    @property
    def n_iter_(self) -> int:  # noqa: D102
        return int(np.diff(self.start_).max())

    def _n_knots(self) -> int:
        return self.n_levels + self.n_iter_

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        from sklearn.ensemble import HistGradientBoostingRegressor

        x, weight = train.x[train.group], train.weight / train.weight.mean()
        bins, held_out = Bins(x, weight), {}
        x = bins.codes(x)
        if validation is not None:
            held_out = {"X_val": bins.codes(validation.x[validation.group]), "y_val": validation.y}
            held_out["sample_weight_val"] = validation.weight / validation.weight.mean()
        seed = int(rng.integers(2**31))
        models = [
            HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                max_iter=self.max_iter,
                learning_rate=self.learning_rate,
                max_leaf_nodes=self.max_leaf_nodes,
                min_samples_leaf=int(self.min_samples_leaf),
                max_features=float(self.max_features),
                early_stopping=validation is not None,  # type: ignore[arg-type]
                n_iter_no_change=self.patience,
                random_state=seed,
            ).fit(x, train.y, weight, **held_out)
            for level in even_levels(self.n_levels)
        ]
        nodes = [tree.nodes for model in models for (tree,) in model._predictors]
        return {
            "trees_": Trees.boosted((node, bins) for node in nodes),
            "start_": np.cumsum([0] + [len(model._predictors) for model in models]),
            "values_": np.concatenate([node["value"] for node in nodes]),
            "baseline_": np.array([model._baseline_prediction.item() for model in models]),
        }

    def _conditional(self, x: Floats) -> QuantileTable:
        quantiles = np.empty((len(x), self.n_levels))
        for level, baseline in enumerate(self.baseline_):
            leaves = self.trees_.apply(x, slice(*self.start_[level : level + 2]))
            quantiles[:, level] = baseline + self.values_[leaves].sum(axis=1)
        return table_through(even_levels(self.n_levels), quantiles)

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        own = {"start": self.start_, "values": self.values_, "baseline": self.baseline_}
        return asdict(self.trees_) | own, {}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        self._check_parameters()
        trees = Trees.restored(arrays, self._n_encoded)
        values, baseline = (arrays[name].astype(np.float64) for name in ("values", "baseline"))
        start = arrays["start"]
        if not (
            start.dtype.kind == "i"
            and start.shape == (self.n_levels + 1,)
            and np.all(start[1:] >= start[:-1])
            and (start[0], start[-1]) == (0, len(trees))
            and values.shape == trees.feature.shape
            and baseline.shape == (self.n_levels,)
        ):
            raise ValueError("its levels are damaged: they do not share out the trees")
        self.trees_, self.start_, self.values_, self.baseline_ = trees, start, values, baseline
