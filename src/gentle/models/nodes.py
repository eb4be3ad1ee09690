"""Decision trees as plain arrays: to walk down, to save, to check when they come from a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.models.bins import Bins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS_AT_ONCE = 2**17  # pairs of a row and a tree that go down together
_STEPS_AT_ONCE = 6  # down the trees before those that have arrived are sorted out


@dataclass(frozen=True)
class Trees:
    """Binary decision trees, the nodes of all of them in one list, each before its children.

    At a node with feature j a row goes left if x_j ≤ threshold. Leaves have feature -1 and are
    their own children.

    Attributes:
        feature: ``(n_nodes,)``.
        threshold: ``(n_nodes,)``.
        children: Left and right child, ``(n_nodes, 2)``.
        root: First node of each tree, ``(n_trees,)``.

    Example:
        >>> stump = ([0, -1, -1], [0.5, 0.0, 0.0], [1, 1, 2], [2, 1, 2])
        >>> Trees.joined([stump, stump]).apply(np.array([[0.5], [0.6]])).tolist()
        [[1, 4], [2, 5]]
    """

    feature: Ints
    threshold: Floats
    children: Ints
    root: Ints

    @classmethod
    def joined(cls, trees: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]]) -> Trees:
        """One list of trees that each come as feature, threshold, left and right child.

        What a leaf has as threshold and children does not matter.
        """
        parts, root, n_nodes = [], [], 0
        for feature, threshold, left, right in trees:
            feature = np.maximum(feature, -1).astype(np.int64)
            leaf, own = feature < 0, np.arange(len(feature))
            children = np.where(leaf[:, None], own[:, None], np.column_stack([left, right]))
            parts.append((feature, np.where(leaf, 0.0, threshold), children + n_nodes))
            root.append(n_nodes)
            n_nodes += len(own)
        feature, threshold, children = (np.concatenate(part) for part in zip(*parts))
        return cls(feature, threshold, children, np.asarray(root))

    @classmethod
    def boosted(cls, grown: Iterable[tuple[NDArray[Any], Bins]]) -> Trees:
        """Trees of scikit-learn's histogram gradient boosting, grown on the codes of bins.

        Args:
            grown: Records of a tree's nodes, and the bins.
        """
        return cls.joined(
            (
                np.where(node["is_leaf"], -1, node["feature_idx"]),
                bins.thresholds(node["feature_idx"].astype(np.int64), node["num_threshold"]),
                node["left"],
                node["right"],
            )
            for node, bins in grown
        )

    @classmethod
    def restored(cls, arrays: dict[str, Any], n_features: int) -> Trees:
        """Trees from arrays that may hold anything: a ValueError unless every walk down ends."""
        feature, children, root = (arrays[name] for name in ("feature", "children", "root"))
        threshold = arrays["threshold"].astype(np.float64)
        n_nodes, own = len(feature), np.arange(len(feature))[:, None]
        if not (
            all(array.dtype.kind == "i" for array in (feature, children, root))
            and feature.shape == threshold.shape == (n_nodes,)
            and children.shape == (n_nodes, 2)
            and root.shape == (len(root),) != (0,)
            and root[0] == 0
            and np.all(root[1:] > root[:-1])
            and root[-1] < n_nodes
        ):
            raise ValueError("its trees are damaged: their parts do not fit together")
        # In its own tree a walk takes at most as many steps as the tree has nodes.
        end = np.append(root[1:], n_nodes)
        end = np.repeat(end, end - root)[:, None]  # (n_nodes, 1)
        if not (
            np.all((feature >= -1) & (feature < n_features))
            and np.all((children > own) & (children < end) | (feature[:, None] < 0))
            and np.all((children == own) | (feature[:, None] >= 0))
            and np.all(np.bincount(children[feature >= 0].ravel(), minlength=1) <= 1)
        ):
            raise ValueError("its trees are damaged: a node does not lead to a leaf")
        # Narrow integers would overflow on the way down.
        feature, children, root = (a.astype(np.int64) for a in (feature, children, root))
        return cls(feature, threshold, children, root)

    def __len__(self) -> int:
        return len(self.root)

    def apply(self, x: NDArray[Any], trees: slice = slice(None)) -> Ints:
        """The leaf that each row ``(n, d)`` reaches in each of some trees, ``(n, n_trees)``."""
        roots = self.root[trees]
        out = np.empty((len(x), len(roots)), np.int64)
        step = max(1, _CELLS_AT_ONCE // max(1, len(x)))
        size, flat = min(step, len(roots)) * len(x), np.ravel(x)
        room = (  # memory to work in, for all trees: to ask for it takes longer than the work
            *(np.empty(size, np.int64) for _ in range(2)),
            np.empty(size, flat.dtype),
            np.empty(size),
            np.empty(size, bool),
        )
        for first in range(0, len(roots), step):
            some = slice(first, first + step)
            out[:, some] = self._leaves(flat, x.shape, roots[some], room)
        return out

    def _leaves(
        self, flat: NDArray[Any], shape: tuple[int, ...], roots: Ints, room: tuple[Any, ...]
    ) -> Ints:
        place, named, feature, threshold, left = self._walk
        n, width = shape
        node = np.repeat(place[roots], n)  # (n_trees · n,), where each pair stands
        cell = np.tile(np.arange(n) * width, len(roots))
        pair, out = np.arange(len(node)), np.empty(len(node), np.int64)
        while len(node):
            other, at, value, limit, right = (array[: len(node)] for array in room)
            for _ in range(_STEPS_AT_ONCE):  # those at a leaf stay there
                feature.take(node, out=at, mode="clip")  # all are within: no other mode is as quick
                at += cell
                flat.take(at, out=value, mode="clip")
                threshold.take(node, out=limit, mode="clip")
                np.greater(value, limit, out=right)
                left.take(node, out=other, mode="clip")
                np.add(other, right, out=node)
            left.take(node, out=other, mode="clip")
            arrived = other == node
            out[pair[arrived]] = node[arrived]
            inner = ~arrived
            node, cell, pair = node[inner], cell[inner], pair[inner]
        return named.take(out).reshape(-1, n).T

    @cached_property
    def _walk(self) -> tuple[Ints, Ints, Ints, Floats, Ints]:
        """The nodes in an order in which a right child follows its left one.

        Returns:
            The place of each node in that order, and by places: the node, its column, its
            threshold, the place of its left child. A leaf is its own left child and has no right.
        """
        levels, level = [], self.root
        while len(level):
            levels.append(level)
            level = self.children[level[self.feature[level] >= 0]].ravel()
        node = np.concatenate(levels)
        place = np.empty(len(self.feature), np.int64)
        place[node] = np.arange(len(node))
        threshold = np.where(self.feature[node] < 0, np.inf, self.threshold[node])
        feature = np.maximum(self.feature[node], 0)
        return place, node, feature, threshold, place[self.children[node, 0]]


def check_shares(trees: Trees, share: Floats, of: Ints, start: Ints, n_columns: int) -> None:
    """A ValueError unless these are the parts of a sparse array in which every leaf has weight."""
    if not (
        of.dtype.kind == start.dtype.kind == "i"
        and start.shape == (len(trees.feature) + 1,)
        and share.shape == of.shape == (start[-1],)
        and start[0] == 0
        and np.all(start[1:] >= start[:-1])
        and np.all((start[1:] > start[:-1])[trees.feature < 0])  # no leaf is empty
        and np.all((of >= 0) & (of < n_columns))
        and np.all((share > 0) & (share < 2))
    ):
        raise ValueError("its leaves are damaged: they do not hold weighted responses")
