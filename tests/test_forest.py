"""Trees on bins of a coordinate, against the leaves' members counted one by one."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from gentle.models.forest import LeafShares

LEVELS = np.array([0.001, 0.05, 0.25, 0.5, 0.77, 0.95, 0.999])
EDGES = np.linspace(-4, 5, 46)


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, np.clip(x[:, 0] + rng.normal(size=n), -4, 5), rng.integers(1, 4, n).astype(float)


def grown(seed=0, n_trees=7, leaf=5, edges=EDGES):
    return LeafShares.grown(
        *rows(), edges, n_trees=n_trees, min_samples_leaf=leaf, seed=seed, n_jobs=1
    )


def binned_quantile(z, weight, level):
    """Smallest z with that much weight at or below it, each bin's weight even over the bin."""
    share, _ = np.histogram(z, EDGES, weights=weight)
    cdf = np.append(0.0, np.cumsum(share / share.sum()))
    last = int(np.searchsorted(cdf, level))
    t = (level - cdf[last - 1]) / (cdf[last] - cdf[last - 1])
    return EDGES[last - 1] + t * (EDGES[last] - EDGES[last - 1])


def test_quantiles_are_weighted_quantiles_of_the_leaves_members():
    x, z, weight = rows()
    forest = grown()
    new, _, _ = rows(20, seed=1)
    trees = RandomForestRegressor(
        7, min_samples_leaf=5, max_features=0.5, max_samples=300, random_state=0
    ).fit(x, z, weight)
    of_train, of_new = trees.apply(x), trees.apply(new)
    expected = np.empty((20, len(LEVELS)))
    for i in range(20):
        same = of_train == of_new[i]  # (n, n_trees)
        share = (same * weight[:, None] / (same * weight[:, None]).sum(axis=0)).sum(axis=1)
        expected[i] = [binned_quantile(z, share, level) for level in LEVELS]
    # Shares are added up in single precision.
    np.testing.assert_allclose(forest.quantiles(new, LEVELS), expected, rtol=2e-6, atol=2e-6)


def test_the_median_follows_the_covariate_and_quantiles_never_cross():
    forest = grown(n_trees=40)
    x = np.array([[-1.5, 0.0, 0.0], [0.0, 0.0, 0.0], [1.5, 0.0, 0.0]])
    found = forest.quantiles(x, LEVELS)
    assert np.all(np.diff(found, axis=1) >= 0)
    assert np.all(np.diff(found[:, 3]) > 0.3)
    assert np.all((found >= EDGES[0]) & (found <= EDGES[-1]))


def test_joined_forests_are_the_average_of_their_distribution_functions():
    parts = [grown(seed, n_trees) for seed, n_trees in ((0, 4), (1, 4), (2, 4))]
    joined = LeafShares.joined(parts)
    assert len(joined.trees) == 12
    new, _, _ = rows(15, seed=1)
    fine = (np.arange(20_000) + 0.5) / 20_000
    found = joined.quantiles(new, LEVELS)
    for i in range(len(new)):
        draws = np.concatenate([part.quantiles(new[i : i + 1], fine)[0] for part in parts])
        cdf = (draws[None] <= found[i][:, None] + 1e-12).mean(axis=1)
        np.testing.assert_allclose(cdf, LEVELS, atol=2e-4)


def test_a_rows_answer_does_not_depend_on_its_company():
    forest = LeafShares.joined([grown(0), grown(1)])
    x, _, _ = rows(2100, seed=2)  # more than go at once
    whole = forest.quantiles(x, LEVELS)
    for i in (0, 7, 1999, 2000, 2099):
        np.testing.assert_array_equal(forest.quantiles(x[i : i + 1], LEVELS)[0], whole[i])
    np.testing.assert_array_equal(forest.quantiles(x[::-1], LEVELS), whole[::-1])


def test_equal_weights_of_any_size_give_the_same_trees():
    x, z, weight = rows()
    options = {"n_trees": 3, "min_samples_leaf": 5, "seed": 0}
    one, two = (LeafShares.grown(x, z, weight * k, EDGES, **options) for k in (1, 1024))
    np.testing.assert_array_equal(one.quantiles(x, LEVELS), two.quantiles(x, LEVELS))


def test_restored_forests_answer_bit_for_bit_and_damaged_ones_are_refused():
    forest = LeafShares.joined([grown(0), grown(1)])
    arrays = {name: np.asarray(array) for name, array in forest.arrays().items()}
    x, _, _ = rows(20, seed=1)
    again = LeafShares.restored(arrays, 3)
    np.testing.assert_array_equal(again.quantiles(x, LEVELS), forest.quantiles(x, LEVELS))
    damaged = [
        {"edges": arrays["edges"][::-1]},
        {"edges": arrays["edges"][:1]},
        {"edges": arrays["edges"][:9]},
        {"edges": np.where(arrays["edges"] > 4, np.inf, arrays["edges"])},
        {"share": arrays["share"][:-1]},
        {"share": -arrays["share"]},
        {"share": arrays["share"] * np.nan},
        {"share_of": arrays["share_of"] + 40},
        {"share_of": arrays["share_of"] - 40},
        {"share_of": arrays["share_of"].astype(float)},
        {"share_start": arrays["share_start"][:-1]},
        {"share_start": arrays["share_start"][::-1]},
        {"share_start": np.zeros_like(arrays["share_start"])},
        {"feature": arrays["feature"] + 1},
        {"children": np.zeros_like(arrays["children"])},
        {"root": arrays["root"] + 10**6},
        {"root": arrays["root"][:0]},
    ]
    for change in damaged:
        with pytest.raises(ValueError, match="damaged"):
            LeafShares.restored(arrays | change, 3)
    with pytest.raises(ValueError, match="damaged"):
        LeafShares.restored(arrays, 2)
