"""Borůvka's algorithm for the Euclidean minimum spanning tree of many points in few columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAF = 64  # points in a leaf of the k-d tree, and in a box
_NEIGHBOURS = 6  # asked for of every point
_MORE_NEIGHBOURS = 24  # of some
_QUERIES = 50_000  # points asked about at once, which bounds the memory
_BOXES = 256  # looked into at once


def shortest_edges(x: Floats, n_jobs: int = 1) -> Ints:
    """The edges of the minimum spanning tree, exact up to the rounding of distances.

    Args:
        x: Distinct points, ``(n, d)``, whose squares neither overflow nor vanish.
        n_jobs: Threads to use; the edges do not depend on it.

    Returns:
        Pairs of points, ``(n - 1, 2)``.

    Example:
        >>> np.sort(shortest_edges(np.array([[0.0], [5.0], [1.0], [7.0]]))).tolist()
        [[0, 2], [1, 3], [1, 2]]
    """
    return _Parts(x, n_jobs).joined()


def minimum_forest(ends: Ints, length: Floats, n: int) -> Ints:
    """Which of the edges of a graph make up its minimum spanning tree, or trees.

    Args:
        ends: The nodes that each edge joins, ``(e, 2)``; edges may repeat.
        length: Lengths of the edges, ``(e,)``; they may be 0.
        n: Number of nodes.

    Returns:
        Positions of edges, ``(n - 1,)`` if the graph is connected.

    Example:
        >>> minimum_forest(np.array([[0, 1], [1, 0], [1, 2], [2, 0]]), np.array([3.0, 0, 1, 2]), 3)
        array([1, 2])
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    order = np.argsort(length, kind="stable")
    ends = np.sort(ends[order], axis=1)
    first = np.sort(np.unique(ends @ [n, 1], return_index=True)[1])  # of edges that occur twice
    # scipy takes a weight of 0 for no edge; the ranks of the lengths lead to the same tree.
    tree = minimum_spanning_tree(graph_of(ends[first], 1.0 + np.arange(len(first)), n))
    return order[first[tree.data.astype(np.int64) - 1]]


def graph_of(ends: Ints, weight: NDArray[Any], n: int) -> Any:
    """The sparse matrix by which scipy knows a graph of n nodes, ``(n, n)``.

    Example:
        >>> graph_of(np.array([[0, 1]]), np.array([2.0]), 2).toarray()
        array([[0., 2.],
               [0., 0.]])
    """
    from scipy.sparse import csr_array

    return csr_array((weight, (ends[:, 0], ends[:, 1])), (n, n))


class _Parts:
    """Borůvka's algorithm: parts of the tree join, each along the shortest way out of it.

    The largest part only waits to be joined. Of every other point, `gap` is a lower bound of the
    distance to other parts, and attained at `exit` if that is a point of another part; both remain
    true while parts grow. A part's shortest known way out is the shortest of all when no bound of
    its points lies below. Until then, these points are asked for more neighbours; where that does
    not help, as in a far-off cluster, all points in boxes that lie near enough are looked at.
    """

    def __init__(self, x: Floats, n_jobs: int) -> None:
        from scipy.spatial import KDTree

        self.n_jobs = n_jobs
        self.order = KDTree(x, _LEAF).indices
        self.x = x[self.order]  # neighbours in space are neighbours in memory: thrice as fast
        self.tree = KDTree(self.x, _LEAF)
        self.label = np.arange(len(x))  # (n,) the part of each point
        self.exit = np.arange(len(x))  # (n,)
        self.gap = np.zeros(len(x))  # (n,)

    def joined(self) -> Ints:
        """The edges of the tree, ``(n - 1, 2)``."""
        edges = [np.empty((0, 2), np.int64)]
        n = len(self.x)
        length, neighbour = self._neighbours(np.arange(n), _NEIGHBOURS)
        while self.label.any():
            size = np.bincount(self.label)
            free = self.label != size.argmax()
            stuck = np.flatnonzero(free & ~self._leaves())
            self._look(stuck, length[stuck], neighbour[stuck])
            best = self._best()
            helps = np.isfinite(best) | (size < _MORE_NEIGHBOURS)  # (parts,)
            rows = np.flatnonzero(free & helps[self.label] & self._doubtful(best))
            for some in np.split(rows, range(_QUERIES, len(rows), _QUERIES)):
                self._look(some, *self._neighbours(some, _MORE_NEIGHBOURS))
            best = self._best()
            self._search(np.unique(self.label[free & self._doubtful(best)]), best)
            edges.append(self._join(free))
        return self.order[np.concatenate(edges)]

    def _neighbours(self, rows: Ints, k: int) -> Any:
        """Distances to the k nearest neighbours of some points, and which these are."""
        return self.tree.query(self.x[rows], min(k, len(self.x)), workers=self.n_jobs)

    def _leaves(self) -> NDArray[np.bool_]:
        """Which points know the way to the nearest point of another part, ``(n,)``."""
        return self.label[self.exit] != self.label

    def _best(self) -> Floats:
        """The shortest known way out of each part, infinite if there is none."""
        best = np.full(self.label.max() + 1, np.inf)
        known = self._leaves()
        np.minimum.at(best, self.label[known], self.gap[known])
        return best

    def _doubtful(self, best: Floats) -> NDArray[np.bool_]:
        """Which points could know a shorter way out of their part, ``(n,)``."""
        return ~self._leaves() & (self.gap < best[self.label])

    def _look(self, rows: Ints, length: Floats, neighbour: Ints) -> None:
        """Find the ways out of some points among their nearest neighbours, ``(r, k)``."""
        outside = self.label[neighbour] != self.label[rows, None]
        each, first = np.arange(len(rows)), outside.argmax(1)
        found = outside[each, first]
        self.exit[rows] = np.where(found, neighbour[each, first], rows)
        beyond = np.maximum(self.gap[rows], length[:, -1])
        self.gap[rows] = np.where(found, length[each, first], beyond)

    def _search(self, parts: Ints, best: Floats) -> None:
        """Find the shortest ways out of some parts, by boxes around up to 64 points of one part."""
        from scipy.spatial.distance import cdist

        if not len(parts):
            return
        order = np.argsort(self.label, kind="stable")
        owner = self.label[order]
        place = np.arange(len(order)) - np.searchsorted(owner, owner)  # within its part
        start = np.flatnonzero(place % _LEAF == 0)
        low = np.minimum.reduceat(self.x[order], start)  # (boxes, d)
        high = np.maximum.reduceat(self.x[order], start)
        members, owner = np.split(order, start[1:]), owner[start]
        for part in parts:
            way = (0, self.exit[0])  # as it is, if no shorter one is found
            ends = np.searchsorted(owner, [part, part + 1])
            for box in range(*ends):
                apart = np.maximum(low - high[box], low[box] - high).clip(0)
                bound = np.sqrt(np.einsum("ij,ij->i", apart, apart))  # (boxes,)
                bound[slice(*ends)] = np.inf
                near = np.flatnonzero(bound < best[part])
                near = near[np.argsort(bound[near], kind="stable")]
                done, step = 0, 1  # the nearest box first, then more of them at a time
                while done < len(near) and bound[near[done]] < best[part]:
                    there = np.concatenate([members[b] for b in near[done : done + step]])
                    here, there = (p[self.gap[p] < best[part]] for p in (members[box], there))
                    distance = cdist(self.x[here], self.x[there])
                    if distance.size and distance.min() < best[part]:
                        i, j = np.unravel_index(distance.argmin(), distance.shape)
                        best[part], way = distance[i, j], (here[i], there[j])
                    done, step = done + step, min(2 * step, _BOXES)
            own = np.concatenate(members[slice(*ends)])
            self.gap[own] = np.maximum(self.gap[own], best[part])
            self.exit[way[0]] = way[1]

    def _join(self, free: NDArray[np.bool_]) -> Ints:
        """Join the parts along their shortest ways out; the edges, ``(e, 2)``."""
        from scipy.sparse.csgraph import connected_components

        rows = np.flatnonzero(free & self._leaves())
        rows = rows[np.lexsort((self.gap[rows], self.label[rows]))]
        rows = rows[np.append(True, np.diff(self.label[rows]) > 0)]  # the best one of each part
        edges = np.c_[rows, self.exit[rows]]
        # Of equally short ways, some would close a circle.
        n_parts = self.label.max() + 1
        edges = edges[minimum_forest(self.label[edges], self.gap[rows], n_parts)]
        graph = graph_of(self.label[edges], np.ones(len(edges)), n_parts)
        self.label = connected_components(graph, directed=False)[1][self.label]
        return edges
