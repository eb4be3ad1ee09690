"""The Euclidean minimum spanning tree of points, which pairs each covariate with a neighbour.

The tree is an integer array `parent`: the partner of every point on its path to the root, -1 at the
root. A point therefore has at most one partner, as the regulariser's edge set E asks.

Up to 20,000 points, and in more than 12 columns, the tree is grown by Prim's algorithm; otherwise
by Borůvka's, which asks a k-d tree for neighbours. Both are exact. Where exactness would take too
long (`exact_up_to`), `partners` takes a short tree instead of the shortest one, and warns.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gentle.boruvka import Floats, Ints, graph_of, minimum_forest, shortest_edges

PRIM_UP_TO = 20_000  # points; below, Prim's algorithm is the faster one
MANY_COLUMNS = 12  # in more of them, a k-d tree is slower than to look at all points
TREE_UP_TO = 1_000_000  # points in at most that many columns of which `partners` finds the tree
WIDE_TREE_UP_TO = 100_000  # and in more columns

_BLOCK = 2048  # points of which the approximate tree knows all distances
_EVERY = 256  # of how many points one takes part in the tree across the blocks
_PARTITIONS = 8  # of the points into blocks
_CHECKED = 256  # points whose nearest neighbours tell how good an approximate tree is


class ApproximateTreeWarning(UserWarning):
    """There are too many points for the minimum spanning tree; a slightly longer one stands in."""


@dataclass(frozen=True)
class Partners:
    """A close partner for each point.

    Attributes:
        parent: The partner of each point in a spanning tree, ``(n,)``, -1 at the root.
        exact: Whether that is the minimum spanning tree.
        excess: How much farther away the nearest neighbour in the tree is than the nearest of all
            points, as a share: 0 if exact, else an estimate from 256 points.
    """

    parent: Ints
    exact: bool
    excess: float

    def facts(self) -> dict[str, float]:
        """What a model's history says of its tree: nothing if it is exact."""
        return {} if self.exact else {"tree_excess": self.excess}


def exact_up_to(n_columns: int) -> int:
    """The number of points up to which `partners` is exact.

    Args:
        n_columns: Columns of the points.

    Returns:
        1,000,000 in at most 12 columns (`TREE_UP_TO`, `MANY_COLUMNS`), and 100,000 in more
        (`WIDE_TREE_UP_TO`). On two cores, that takes minutes in 9 columns, and up to half an hour
        in 12 that have nothing to do with each other.

    Example:
        >>> exact_up_to(9), exact_up_to(30)
        (1000000, 100000)
    """
    return TREE_UP_TO if n_columns <= MANY_COLUMNS else WIDE_TREE_UP_TO


def partners(x: ArrayLike, n_jobs: int = 1) -> Partners:
    """A close partner for each point: its parent in the minimum spanning tree.

    Above `exact_up_to` points, the tree is an approximate one: eight times, the points are split at
    medians along directions between two of them drawn at random, until at most 2,048 are together;
    the minimum spanning trees of these blocks, and one of every 256th point across them, are put
    together, and the shortest tree of their edges is taken. In `benchmarks/spanning_tree.md`, it is
    in total at most 0.2 % longer than the minimum spanning tree in 9 columns, and 1.3 % in 30. The
    same points give the same tree.

    Args:
        x: Distinct points, ``(n, d)``, finite and at least one.
        n_jobs: Threads to use; the partners do not depend on it.

    Returns:
        The partners, and whether they are exact.

    Warns:
        ApproximateTreeWarning: If the tree is an approximate one.

    Example:
        >>> partners([[0.0], [5.0], [1.0], [7.0]])
        Partners(parent=array([-1,  2,  0,  1]), exact=True, excess=0.0)
    """
    points = _points(x)
    limit = exact_up_to(points.shape[1])
    if len(points) <= limit:
        return Partners(spanning_tree(points, n_jobs=n_jobs), True, 0.0)
    scaled = _scaled(points)
    parent = _towards(0, _short_edges(scaled), len(scaled))
    excess = _excess(scaled, parent)
    warnings.warn(
        f"{len(points):,} different covariates in {points.shape[1]} encoded columns are too many "
        f"for their minimum spanning tree (up to {limit:,}); an approximate tree stands in. In it, "
        f"the nearest neighbours are {excess:.1%} farther away than the true ones. Fit to fewer "
        "rows if the tree must be exact.",
        ApproximateTreeWarning,
        stacklevel=2,
    )
    return Partners(parent, False, excess)


def spanning_tree(x: ArrayLike, root: int = 0, n_jobs: int = 1) -> Ints:
    """Directed Euclidean minimum spanning tree of the points, seen from one of them.

    The tree is exact for every n and d, up to the rounding of distances, whatever duplicates, ties
    or far-apart clusters there are, and the same points always have the same tree. Up to 20,000
    points (`PRIM_UP_TO`), or in more than 12 columns (`MANY_COLUMNS`), it is grown by Prim's
    algorithm in O(n² d) time: half a second for 13,745 points in 9 columns. Larger ones are grown
    by Borůvka's algorithm on a k-d tree; `benchmarks/spanning_tree.md` has times up to a million
    points. Both take O(n d) memory. Where several trees are minimal, Prim's takes the lowest index
    among points equally close, and the parent that joined first.

    Args:
        x: Points, ``(n, d)``, finite and at least one.
        root: Index of the point to which the edges lead.
        n_jobs: Threads to use above 20,000 points; the tree does not depend on it.

    Returns:
        The parent of each point, ``(n,)``, -1 at the root.

    Raises:
        ValueError: If ``x`` is not a finite, non-empty matrix or ``root`` is not one of its rows.

    Example:
        >>> spanning_tree([[0.0], [5.0], [1.0], [7.0]])
        array([-1,  2,  0,  1])
        >>> spanning_tree([[0.0], [5.0], [1.0], [7.0]], root=3)
        array([ 2,  3,  1, -1])
    """
    x = _points(x)
    n, root = len(x), operator.index(root)
    if not 0 <= root < n:
        raise ValueError(f"root must be the index of one of the {n} points, got {root}")
    x = _scaled(x)
    if n <= PRIM_UP_TO or x.shape[1] > MANY_COLUMNS:
        return _prim(x, root)
    order = np.lexsort(x.T)  # equal points stand together, the lowest index first
    new = np.append(True, np.any(np.diff(x[order], axis=0) != 0, axis=1))  # (n,)
    distinct = order[new]
    copies = np.c_[order, distinct[np.cumsum(new) - 1]][~new]  # joined at no cost
    edges = distinct[shortest_edges(x[distinct], n_jobs)]
    return _towards(root, np.concatenate([edges, copies]), n)


def edge_lengths(x: ArrayLike, parent: ArrayLike) -> Floats:
    """Distance from each point to its parent.

    Args:
        x: Points, ``(n, d)``.
        parent: Index of the parent of each point, ``(n,)``, -1 where there is none.

    Returns:
        The lengths, ``(n,)``, 0 where there is no parent.

    Example:
        >>> edge_lengths([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]], [-1, 2, 0])
        array([0.        , 4.24264069, 1.        ])
    """
    x, parent = _points(x), np.asarray(parent)
    if parent.shape != (len(x),):
        raise ValueError(f"parent has shape {parent.shape}, but {len(x)} points need ({len(x)},)")
    return np.where(parent < 0, 0.0, np.linalg.norm(x - x[parent], axis=1))


def _prim(x: Floats, root: int) -> Ints:
    """The point that lies closest to the incumbent tree joins it, until none is left."""
    from scipy.spatial.distance import cdist  # a third of a second that `import gentle` can spare

    n = len(x)
    parent = np.full(n, -1, dtype=np.int64)
    outside = np.delete(np.arange(n), root)  # (m,) points not in the tree, in rising order
    away = x[outside]  # (m, d) their coordinates
    gap = np.full(n - 1, np.inf)  # (m,) their squared distances to the tree
    head = np.full(n - 1, root)  # (m,) and the points of the tree at which these are attained
    newest = root
    while len(outside):
        for _ in range(max(1, len(outside) // 8)):
            distance = cdist(x[newest, None], away, "sqeuclidean")[0]  # (m,)
            np.copyto(head, newest, where=distance < gap)
            np.minimum(gap, distance, out=gap)
            nearest = gap.argmin()
            newest = outside[nearest]
            parent[newest] = head[nearest]
            # It leaves the outside by moving to infinity, cheaper than a shift of the arrays ...
            away[nearest] = gap[nearest] = np.inf
        left = np.isfinite(gap)  # ... which waits until an eighth of them is gone
        outside, away, gap, head = outside[left], away[left], gap[left], head[left]
    return parent


def _short_edges(x: Floats) -> Ints:
    """The edges of a tree that is nearly minimal, ``(n - 1, 2)``."""
    rng = np.random.default_rng(0)
    tree = np.empty((0, 2), np.int64)
    for _ in range(_PARTITIONS):
        blocks = list(_blocks(x, rng))
        blocks.append(np.concatenate([rows[::_EVERY] for rows in blocks]))  # connects the others
        found = [np.c_[rows, rows[_prim(x[rows], 0)]][1:] for rows in blocks]
        # An edge of the minimum spanning tree whose ends are in one block is in the block's tree.
        edges = np.concatenate([tree, *found])
        length = np.linalg.norm(x[edges[:, 0]] - x[edges[:, 1]], axis=1)
        tree = edges[minimum_forest(edges, length, len(x))]
    return tree


def _blocks(x: Floats, rng: np.random.Generator) -> Iterator[Ints]:
    """The points split at medians along random directions, until few are left together."""
    todo = [np.arange(len(x))]
    while todo:
        rows = todo.pop()
        if len(rows) <= _BLOCK:
            yield rows
            continue
        one, other = rows[rng.choice(len(rows), 2, replace=False)]
        along = np.einsum("ij,j->i", x[rows], x[one] - x[other])
        half = len(rows) // 2
        todo += np.split(rows[np.argpartition(along, half)], [half])


def _excess(x: Floats, parent: Ints) -> float:
    """How much farther away than the nearest point the nearest in the tree is, on average."""
    from scipy.spatial.distance import cdist

    length = np.where(parent < 0, np.inf, edge_lengths(x, parent))  # (n,)
    nearest = length.copy()
    np.minimum.at(nearest, parent, length)  # the root's infinity changes nothing
    rows = np.random.default_rng(0).choice(len(x), min(_CHECKED, len(x)), replace=False)
    true = np.array([np.partition(cdist(x[row, None], x)[0], 1)[1] for row in rows])
    return max(0.0, float(nearest[rows].sum() / true.sum() - 1))  # but for rounding


def _towards(root: int, edges: Ints, n: int) -> Ints:
    """The tree with these edges as an array of parents, seen from the root."""
    from scipy.sparse.csgraph import breadth_first_order

    graph = graph_of(edges, np.ones(len(edges)), n)
    parent = breadth_first_order(graph, root, directed=False)[1].astype(np.int64)
    parent[root] = -1
    return parent


def _scaled(x: Floats) -> Floats:
    """A power of two scales exactly and keeps squares of huge and tiny coordinates in range."""
    return np.ldexp(x, -np.frexp(np.abs(x).max())[1])


def _points(x: ArrayLike) -> Floats:
    """The points as a finite, non-empty matrix of float64."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(
            f"x has shape {x.shape}, but points are the rows of a matrix (n, d). "
            "Reshape a single column with x.reshape(-1, 1)."
        )
    if x.size == 0:
        raise ValueError(f"x is empty, shape {x.shape}; a tree needs at least one point and column")
    finite = np.isfinite(x).all(axis=1)  # (n,)
    if not finite.all():
        raise ValueError(
            f"x has {np.sum(~finite)} rows with NaN or infinite values, the first is row "
            f"{finite.argmin()}. Impute or drop them."
        )
    return x
