import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gentle import datasets
from gentle.covariates import lipschitz_pairs
from gentle.data import (
    Grouped,
    Standardiser,
    group_rows,
    merged_rows,
    responses_per_covariate,
)
from gentle.transport import wasserstein

ROWS = arrays(
    np.float64,
    st.tuples(st.integers(1, 25), st.integers(1, 3)),
    elements=st.sampled_from([-0.0, 0.0, 1.0, 2.5]),
)


@given(ROWS)
def test_equal_rows_share_a_group_in_order_of_appearance(X):
    first, group = group_rows(X)
    frame = pd.DataFrame(X + 0.0)
    expected = frame.groupby(list(frame.columns), sort=False).ngroup().to_numpy()
    np.testing.assert_array_equal(group, expected)
    np.testing.assert_array_equal(X[first][group], X)
    assert np.all(np.diff(first) > 0)


def test_rows_of_one_hash_are_told_apart_and_nan_equals_nan(monkeypatch):
    X = np.array([[np.nan, 1.0], [2.0, 1.0], [-np.nan, 1.0], [2.0, 3.0], [2.0, 1.0]])
    found = [array.tolist() for array in group_rows(X)]
    assert found == [[0, 1, 3], [0, 1, 0, 2, 1]]
    monkeypatch.setattr("gentle.data._PRIME", np.uint64(0))  # now all rows have the same hash
    assert [array.tolist() for array in group_rows(X)] == found


@given(ROWS, st.integers(0, 100), st.sampled_from([1.0, 1000.0, 1e300, 2.0**-1000]))
def test_merged_rows_are_distinct_and_weigh_as_much_as_all(X, seed, factor):
    rng = np.random.default_rng(seed)
    y, w = rng.integers(0, 2, len(X)).astype(float), rng.integers(1, 5, len(X)).astype(float)
    first, weight = merged_rows(X, y, w)
    frame = pd.DataFrame(np.column_stack([X + 0.0, y])).assign(w=w)
    groups = frame.groupby(list(frame.columns[:-1]), sort=True)["w"].sum().to_numpy()
    np.testing.assert_allclose(weight, groups / groups.mean())
    shuffled = rng.permutation(len(X))
    same, other = merged_rows(X[shuffled], y[shuffled], w[shuffled])  # the order does not matter
    np.testing.assert_array_equal(X[shuffled][same], X[first])
    np.testing.assert_array_equal(other, weight)
    copies = np.repeat(np.arange(len(X)), w.astype(int))
    again, same = merged_rows(X[copies], y[copies], np.ones(len(copies)))
    np.testing.assert_array_equal(same, weight)
    np.testing.assert_array_equal(X[copies][again], X[first])
    if factor != 1e300:  # then the products are exact
        np.testing.assert_array_equal(merged_rows(X, y, w * factor)[1], weight)
    np.testing.assert_allclose(merged_rows(X, y, w * factor)[1], weight)


@given(ROWS, st.integers(0, 100))
def test_grouping_loses_no_response_and_mixes_none(X, seed):
    rng = np.random.default_rng(seed)
    y, w = rng.normal(size=len(X)), rng.random(len(X)) + 0.1
    table = Grouped.of(X, y, w)
    assert table.counts.sum() == len(y)
    before = sorted(map(tuple, np.column_stack([X + 0.0, y, w])))
    after = sorted(map(tuple, np.column_stack([table.x[table.group] + 0.0, table.y, table.weight])))
    assert before == after
    np.testing.assert_allclose(np.bincount(table.group, table.share), 1)


@given(ROWS, st.integers(0, 100), st.floats(0.01, 0.99))
def test_a_split_keeps_equal_covariates_together(X, seed, fraction):
    table = Grouped.of(X, np.arange(len(X), dtype=float))
    if len(table) < 2:
        return
    left, right = table.split(fraction, np.random.default_rng(seed))
    assert len(left) >= 1
    assert len(right) >= 1
    rows = lambda part: set(map(tuple, part.x + 0.0))  # noqa: E731
    assert not rows(left) & rows(right)
    assert sorted(np.concatenate([left.y, right.y])) == sorted(table.y)


@given(ROWS, st.integers(0, 100))
def test_rows_find_the_responses_of_any_batch(X, seed):
    rng = np.random.default_rng(seed)
    table = Grouped.of(X, rng.normal(size=len(X)))
    batch = rng.permutation(len(table))[: max(1, len(table) // 2)]
    rows, owner = table.rows(batch)
    for position, covariate in enumerate(batch):
        mine = table.y[table.start[covariate] : table.start[covariate + 1]]
        np.testing.assert_array_equal(table.y[rows[owner == position]], mine)
    padded, weight = table.take(batch).padded()
    np.testing.assert_array_equal(np.sort(padded[weight > 0]), np.sort(table.y[rows]))


@given(ROWS, st.integers(1, 60))
def test_chunks_are_a_partition_of_bounded_size(X, max_cells):
    table = Grouped.of(X, np.arange(len(X), dtype=float))
    parts = list(table.chunks(extra_cells=2, max_cells=max_cells))
    assert sorted(np.concatenate(parts)) == list(range(len(table)))
    for part in parts:
        y, _ = table.take(part).padded()
        assert len(part) == 1 or len(part) * (y.shape[1] + 2) <= max_cells


def test_standardised_values_have_mean_0_and_deviation_1_under_the_weights():
    rng = np.random.default_rng(0)
    X, w = rng.normal(5, 3, (100, 4)), rng.random(100)
    X[:, 2] = 7.1
    scaler = Standardiser.of(X, w)
    Z = scaler.encode(X)
    np.testing.assert_allclose(np.average(Z, axis=0, weights=w), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(Z**2, axis=0, weights=w), [1, 1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(scaler.decode(Z), X)
    copies = Standardiser.of(np.repeat(X, 3, axis=0), np.ones(300))
    np.testing.assert_allclose(copies.mean, Standardiser.of(X, np.full(100, 3.0)).mean)


def test_values_beyond_double_precision_are_refused():
    with pytest.raises(ValueError, match="rescale"):
        Standardiser.of(np.array([[1e308], [-1e308], [1e308]]), np.ones(3))


def test_ldw_cps_has_the_histogram_of_figure_1():
    parts = datasets.load("ldw-cps")
    X = pd.concat([parts.train.X, parts.val.X, parts.test.X])
    counts = responses_per_covariate(X)
    assert len(counts) == 13_745 + 19 + 12
    assert (counts == 1).sum() > 13_000
    assert counts.max() == 47


def test_lipschitz_pairs_are_distances_between_often_seen_covariates():
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 2.0], [9.0, 9.0]], [20, 25, 19, 18], axis=0)
    y = X[:, 0] * 3 + rng.normal(size=len(X))
    pairs = lipschitz_pairs(X, y)
    assert len(pairs) == 3  # 18 responses are not more than 18
    scale = X.std(axis=0)
    expected = np.linalg.norm(np.array([1.0, 0.0]) / scale)
    assert pairs.distance.min() == pytest.approx(expected)
    closest = pairs.loc[pairs.distance.idxmin()]
    assert closest.w2 == pytest.approx(wasserstein(y[:20], y[20:45], p=2))
    with pytest.raises(ValueError, match="fewer than two covariates"):
        lipschitz_pairs(X, y, min_responses=24)


def test_covariate_distance_and_w2_are_correlated_on_ldw_cps_as_figure_2_says():
    parts = datasets.load("ldw-cps")
    X = pd.concat([parts.train.X, parts.val.X, parts.test.X])
    y = np.concatenate([parts.train.y, parts.val.y, parts.test.y])
    pairs = lipschitz_pairs(X, y)
    assert pairs.corr().loc["distance", "w2"] > 0.3
