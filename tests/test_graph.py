import time
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import kneighbors_graph

import gentle
from gentle import graph
from gentle.graph import ApproximateTreeWarning, edge_lengths, partners, spanning_tree

FIXTURES_STAY = [HealthCheck.function_scoped_fixture]  # they change constants only


def kruskal_lengths(x):
    """Sorted edge lengths of scipy's minimum spanning tree, the same for every such tree.

    Only the order of the distances matters to the tree, so it is built on their ranks: these start
    at 1, whereas scipy would read a distance of 0 as no edge.
    """
    distances, ranks = np.unique(pdist(x), return_inverse=True)
    tree = minimum_spanning_tree(np.triu(squareform(ranks + 1.0)))
    return np.sort(distances[tree.data.astype(int) - 1])


def prim_parent(x, root):
    """Textbook Prim on the dense matrix; ties go to the lowest index, then to the older parent."""
    distance = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    parent, tree = np.full(len(x), -1), [root]
    while len(tree) < len(x):
        outside = np.setdiff1d(np.arange(len(x)), tree)
        block = distance[np.ix_(outside, tree)]
        i, j = np.unravel_index(block.argmin(), block.shape)
        parent[outside[i]] = tree[j]
        tree.append(outside[i])
    return parent


def assert_rooted_tree(parent, root):
    """Pointer doubling: after n or more steps towards the root, every point stands on it."""
    assert parent.dtype == np.int64
    assert np.flatnonzero(parent == -1).tolist() == [root]
    ancestor = np.where(parent < 0, root, parent)
    for _ in range(len(parent).bit_length()):
        ancestor = ancestor[ancestor]
    assert np.all(ancestor == root)


def assert_minimum_spanning_tree(x, root=0):
    parent = spanning_tree(x, root)
    assert_rooted_tree(parent, root)
    lengths = np.sort(np.delete(edge_lengths(x, parent), root))
    expected = kruskal_lengths(x)
    # The squares of shorter distances underflow in the oracle.
    np.testing.assert_allclose(lengths, expected, rtol=1e-9, atol=1e-150)
    np.testing.assert_allclose(lengths.sum(), expected.sum(), rtol=1e-9, atol=1e-150)


def mixed(n, seed=0):
    """Standardised points as in LDW-CPS: age, education, four indicators, three earnings."""
    rng = np.random.default_rng(seed)
    earnings = np.where(rng.random((n, 3)) < 0.2, 0, rng.gamma(2, 5000, (n, 3)))
    indicators = rng.random((n, 4)) < [0.07, 0.07, 0.7, 0.3]
    x = np.c_[rng.integers(16, 56, n), rng.integers(0, 18, n), indicators, earnings]
    return (x - x.mean(axis=0)) / x.std(axis=0)


def clusters(n, d, apart=1e3, seed=0):
    """Five Gaussian clusters of n points each, far apart."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5, n, d)) + apart * rng.normal(size=(5, 1, d))
    return rng.permutation(x.reshape(-1, d))


def lattice(side, d):
    return np.stack(np.meshgrid(*[np.arange(float(side))] * d), axis=-1).reshape(-1, d)


CLOUDS = {
    "line": np.random.default_rng(1).random((800, 1)),
    "cube": np.random.default_rng(2).random((1000, 5)),
    "many dimensions": np.random.default_rng(3).normal(size=(700, 50)),
    "heavy tails": np.random.default_rng(4).standard_cauchy((800, 3)),
    "mixed": mixed(1500),
    "clusters": clusters(200, 9),
    "duplicates": np.repeat(np.random.default_rng(5).normal(size=(40, 4)), 20, axis=0),
    "square lattice": lattice(30, 2),
    "hypercubic lattice": lattice(6, 4),
}


@pytest.mark.parametrize("root", [0, 17])
@pytest.mark.parametrize("x", CLOUDS.values(), ids=CLOUDS.keys())
def test_tree_is_a_minimum_spanning_tree(x, root):
    assert_minimum_spanning_tree(x, root)


@pytest.mark.parametrize("root", [0, 5, 149])
@pytest.mark.parametrize("d", [1, 2, 9, 50])
def test_parents_are_those_of_textbook_prim_when_the_tree_is_unique(d, root):
    x = np.random.default_rng(d).normal(size=(150, d))
    np.testing.assert_array_equal(spanning_tree(x, root), prim_parent(x, root))


small_points = st.tuples(st.integers(1, 24), st.integers(1, 3))


@settings(deadline=None, max_examples=200)
@given(arrays(np.int64, small_points, elements=st.integers(-2, 2)), st.data())
def test_ties_and_duplicates_make_neither_cycles_nor_longer_trees(x, data):
    x, root = x.astype(float), data.draw(st.integers(0, len(x) - 1))
    assert_minimum_spanning_tree(x, root)
    np.testing.assert_array_equal(spanning_tree(x, root), prim_parent(x, root))


@settings(deadline=None, max_examples=200)
@given(arrays(np.float64, small_points, elements=st.floats(-1e6, 1e6)), st.data())
def test_any_finite_points_have_a_minimum_spanning_tree(x, data):
    assert_minimum_spanning_tree(x, data.draw(st.integers(0, len(x) - 1)))


def test_the_root_orients_the_edges_and_leaves_them_in_place():
    x = mixed(400)
    trees = [spanning_tree(x, root) for root in (0, 1, 399)]
    lengths = [np.sort(edge_lengths(x, parent)) for parent in trees]
    np.testing.assert_allclose(lengths[1], lengths[0])
    np.testing.assert_allclose(lengths[2], lengths[0])
    x = np.random.default_rng(0).normal(size=(400, 3))  # no ties: even the edges are the same
    pairs = [
        {frozenset(edge) for edge in enumerate(parent.tolist()) if -1 not in edge}
        for parent in (spanning_tree(x, 0), spanning_tree(x, 250))
    ]
    assert pairs[0] == pairs[1]


def test_clusters_without_common_neighbours_are_joined_by_one_edge_per_gap():
    x = clusters(150, 9)
    assert connected_components(kneighbors_graph(x, 20), directed=False)[0] == 5
    assert np.sum(edge_lengths(x, spanning_tree(x)) > 100) == 4
    assert_minimum_spanning_tree(x)


def test_distances_survive_a_large_common_offset():
    """Expanding |a - b|² into |a|² - 2ab + |b|² would lose every digit here."""
    x = np.random.default_rng(0).integers(0, 1000, (300, 3)).astype(float)
    np.testing.assert_array_equal(spanning_tree(x + 2.0**40), spanning_tree(x))


@pytest.mark.parametrize("exponent", [-1000, -600, 600, 1000])
def test_tree_does_not_depend_on_the_unit_of_length(exponent):
    x = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_array_equal(spanning_tree(np.ldexp(x, exponent)), spanning_tree(x))


def test_equal_points_are_joined_at_no_cost():
    assert spanning_tree([[2.5, -1.0]]).tolist() == [-1]
    assert spanning_tree([[0.0], [3.0]], root=1).tolist() == [1, -1]
    x = np.full((50, 3), 0.1)
    assert_rooted_tree(spanning_tree(x, 7), 7)
    assert edge_lengths(x, spanning_tree(x, 7)).sum() == 0
    copies = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 4, axis=0)
    assert np.sum(edge_lengths(copies, spanning_tree(copies)) > 0) == 29


def test_tree_leaves_its_input_alone_and_takes_integers_and_single_precision():
    x = np.random.default_rng(0).integers(0, 50, (60, 2))
    before = x.copy()
    as_float = x.astype(np.float64)
    parent = spanning_tree(as_float)
    np.testing.assert_array_equal(as_float, before)
    for dtype in (np.int32, np.float32):
        np.testing.assert_array_equal(spanning_tree(x.astype(dtype)), parent)


def test_thousands_of_points_take_seconds_and_linear_memory():
    """13,745 × 9 is LDW-CPS: its distance matrix would fill 1.5 GB."""
    x = mixed(13_745)
    tracemalloc.start()
    start = time.process_time()
    parent = spanning_tree(x)
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_rooted_tree(parent, 0)
    assert peak < 10 * x.nbytes  # 10 MB
    assert seconds < 20


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"shape \(3,\).*reshape"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros((0, 2)), "empty"),
        (np.zeros((2, 0)), "empty"),
        ([[0.0], [np.nan], [np.inf]], "2 rows with NaN or infinite.*row 1"),
    ],
)
def test_points_that_are_not_a_finite_matrix_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        spanning_tree(x)


@pytest.mark.parametrize("root", [-1, 3])
def test_root_outside_the_points_is_refused(root):
    with pytest.raises(ValueError, match="one of the 3 points"):
        spanning_tree(np.zeros((3, 1)), root)


def test_lengths_need_one_parent_per_point():
    np.testing.assert_allclose(edge_lengths([[0, 0], [3, 4]], [-1, 0]), [0, 5])
    with pytest.raises(ValueError, match=r"shape \(3,\), but 2 points"):
        edge_lengths(np.zeros((2, 1)), [-1, 0, 0])


@pytest.fixture
def boruvka(monkeypatch):
    """The algorithm for many points, put to work on few."""
    monkeypatch.setattr(graph, "PRIM_UP_TO", 0)


@pytest.fixture(params=["usual", "small"])
def sizes(request, monkeypatch):
    """With few neighbours and small boxes, some hundred points need all that millions do."""
    if request.param == "small":
        monkeypatch.setattr("gentle.boruvka._NEIGHBOURS", 2)
        monkeypatch.setattr("gentle.boruvka._MORE_NEIGHBOURS", 4)
        monkeypatch.setattr("gentle.boruvka._LEAF", 5)
        monkeypatch.setattr("gentle.boruvka._QUERIES", 7)
        monkeypatch.setattr("gentle.boruvka._BOXES", 2)


@pytest.mark.parametrize("x", CLOUDS.values(), ids=CLOUDS.keys())
@pytest.mark.usefixtures("boruvka", "sizes")
def test_the_tree_of_many_points_is_a_minimum_spanning_tree(x, monkeypatch):
    monkeypatch.setattr(graph, "MANY_COLUMNS", 50)
    assert_minimum_spanning_tree(x, 17)


@pytest.mark.parametrize("d", [1, 2, 9])
@pytest.mark.usefixtures("boruvka", "sizes")
def test_both_algorithms_find_the_tree_that_is_the_only_one(d):
    x = np.random.default_rng(d).normal(size=(400, d))
    np.testing.assert_array_equal(spanning_tree(x, 5), graph._prim(x, 5))


any_points = st.tuples(st.integers(1, 60), st.integers(1, 6))


@settings(deadline=None, max_examples=150, suppress_health_check=FIXTURES_STAY)
@given(
    st.one_of(
        arrays(np.float64, any_points, elements=st.integers(-1, 2).map(float)),
        arrays(np.float64, any_points, elements=st.floats(-1, 1, width=16)),
        arrays(np.float64, any_points, elements=st.floats(-1e6, 1e6)),
    ),
    st.sampled_from([-400, 0, 400]),
    st.data(),
)
@pytest.mark.usefixtures("boruvka", "sizes")
def test_lattices_duplicates_and_all_scales_have_exact_trees(x, exponent, data):
    root = data.draw(st.integers(0, len(x) - 1))
    parent = spanning_tree(np.ldexp(x, exponent), root)
    assert_rooted_tree(parent, root)
    lengths = np.sort(np.delete(edge_lengths(x, parent), root))
    np.testing.assert_allclose(lengths, kruskal_lengths(x), rtol=1e-9, atol=1e-150)


@pytest.mark.usefixtures("boruvka")
def test_points_too_close_for_their_squares_are_still_joined():
    x = np.array([[0.0, 0.0], [1e-200, 0.0], [0.0, 1e-200], [1.0, 1.0]])
    assert_rooted_tree(spanning_tree(x), 0)
    assert edge_lengths(x, spanning_tree(x)).sum() == pytest.approx(np.sqrt(2))


@pytest.mark.usefixtures("boruvka")
def test_neither_threads_nor_the_state_of_random_numbers_matter():
    x = np.round(mixed(3000), 1)
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    tree = spanning_tree(x)
    np.testing.assert_array_equal(spanning_tree(x, n_jobs=2), tree)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


@pytest.mark.parametrize("x", [mixed(8000), clusters(1600, 9)], ids=["mixed", "clusters"])
@pytest.mark.usefixtures("boruvka")
def test_thousands_of_points_have_the_length_of_prims_tree_in_linear_memory(x):
    tracemalloc.start()
    parent = spanning_tree(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_rooted_tree(parent, 0)
    assert peak < 15 * x.nbytes  # 9 MB; the distances would fill 512
    exact = edge_lengths(x, graph._prim(x, 0)).sum()
    assert edge_lengths(x, parent).sum() == pytest.approx(exact, rel=1e-12)


def test_partners_are_the_parents_in_the_exact_tree():
    x = np.random.default_rng(0).normal(size=(60, 3))
    found = partners(x)
    np.testing.assert_array_equal(found.parent, spanning_tree(x))
    assert (found.exact, found.excess, found.facts()) == (True, 0.0, {})
    assert graph.exact_up_to(12) == 1_000_000
    assert graph.exact_up_to(13) == 100_000


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).normal(size=(6000, 9)),
        np.random.default_rng(0).normal(size=(6000, 30)),
        np.random.default_rng(0).integers(0, 9, (6000, 4)).astype(float),
        clusters(1200, 9),
        mixed(6000),
    ],
    ids=["normal", "wide", "lattice", "clusters", "mixed"],
)
def test_above_the_limit_partners_warn_and_are_nearly_as_close(x, monkeypatch):
    monkeypatch.setattr(graph, "TREE_UP_TO", 5999)
    monkeypatch.setattr(graph, "WIDE_TREE_UP_TO", 5999)
    monkeypatch.setattr(graph, "_BLOCK", 500)  # as few blocks as a million points have large ones
    with pytest.warns(ApproximateTreeWarning, match=r"6,000 different.*up to 5,999.*farther away"):
        found = partners(x)
    assert_rooted_tree(found.parent, 0)
    assert not found.exact
    assert found.facts() == {"tree_excess": found.excess}
    total, least = (edge_lengths(x, tree).sum() for tree in (found.parent, spanning_tree(x)))
    assert least <= total * (1 + 1e-12)
    assert total < 1.01 * least
    with pytest.warns(ApproximateTreeWarning):
        np.testing.assert_array_equal(partners(x).parent, found.parent)


def test_the_stated_excess_is_that_of_the_nearest_neighbours_in_the_tree():
    x = np.random.default_rng(0).normal(size=(200, 3))
    distance = squareform(pdist(x)) + np.diag(np.full(200, np.inf))
    chain = np.arange(200) - 1  # a poor tree
    near = np.minimum(
        np.append(np.inf, distance[np.arange(1, 200), chain[1:]]),
        np.append(distance[np.arange(1, 200), chain[1:]], np.inf),
    )
    assert graph._excess(x, chain) == pytest.approx(near.sum() / distance.min(1).sum() - 1)
    assert graph._excess(x, spanning_tree(x)) == pytest.approx(0)


def test_a_fit_with_an_approximate_tree_says_so(monkeypatch):
    monkeypatch.setattr(graph, "TREE_UP_TO", 50)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.normal(size=80)
    model = gentle.GENTLE.from_paper("ecm", n_epochs=2, verbose=0)
    with pytest.warns(ApproximateTreeWarning, match="80 different covariates in 2 encoded"):
        model.fit(X, y)
    assert_rooted_tree(model.parent_, 0)
    assert all("tree_excess" in record for record in model.history_)
    assert "approximate spanning tree" in model.summary()
    with pytest.warns(ApproximateTreeWarning):
        gentle.GENTLE(n_steps=5, n_trees=0, reg_weight=0.1, verbose=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = model.fit(X[:50], y[:50])
    assert "tree_excess" not in exact.history_[0]
    assert "approximate" not in exact.summary()
