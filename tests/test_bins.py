"""Columns are cut evenly in weight; trees on their codes are scikit-learn's on the columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import HistGradientBoostingRegressor

from gentle.models.bins import Bins
from gentle.models.nodes import Trees

columns = arrays(
    np.float64, st.integers(2, 120), elements=st.integers(-40, 40).map(lambda k: k / 8)
)


@given(columns, st.sampled_from([2, 4, 8, 16, 32]), st.integers(0, 2**32))
def test_cuts_are_percentiles_of_rows_as_often_as_they_weigh(column, max_bins, seed):
    weight = np.random.default_rng(seed).integers(1, 4, len(column))
    bins = Bins(column[:, None], weight.astype(float), max_bins)
    distinct = np.unique(column)
    if len(distinct) <= max_bins:
        expected = (distinct[1:] + distinct[:-1]) / 2
    else:
        levels = np.arange(1, max_bins) / max_bins  # exact, so that halves are halves
        method = "averaged_inverted_cdf"
        expected = np.unique(np.quantile(np.repeat(column, weight), levels, method=method))
    np.testing.assert_array_equal(bins.cuts[0], expected)
    codes = bins.codes(column[:, None])[:, 0]
    np.testing.assert_array_equal(codes, [(expected < value).sum() for value in column])


def test_trees_on_codes_are_trees_on_the_columns():
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(800, 4)), rng.uniform(0.5, 2, 800)
    x[:, 1], x[:, 2] = np.round(x[:, 1]), 7.0  # few values; one
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 3] + rng.normal(size=800) / 5
    settings = {"max_iter": 30, "max_bins": 40, "early_stopping": False, "random_state": 0}
    bins = Bins(x, weight, 40)
    ours = HistGradientBoostingRegressor(**settings).fit(bins.codes(x), y, weight)
    nodes = [tree.nodes for (tree,) in ours._predictors]
    trees = Trees.boosted((node, bins) for node in nodes)
    values = np.concatenate([node["value"] for node in nodes])
    new = np.concatenate([x, rng.normal(size=(500, 4)) * 3])
    found = ours._baseline_prediction.item() + values[trees.apply(new)].sum(axis=1)
    oracle = HistGradientBoostingRegressor(**settings).fit(x, y, weight)
    np.testing.assert_allclose(found, oracle.predict(new), rtol=0, atol=1e-12)
