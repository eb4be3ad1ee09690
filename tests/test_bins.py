"""Bins are those of scikit-learn, whose trees on codes are its trees on the columns themselves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.ensemble._hist_gradient_boosting.binning import _find_binning_thresholds

from gentle.models.bins import Bins
from gentle.models.nodes import Trees

columns = arrays(
    np.float64, st.integers(2, 120), elements=st.integers(-40, 40).map(lambda k: k / 8)
)


@given(columns, st.integers(2, 30), st.integers(0, 2**32), st.booleans())
def test_columns_are_cut_where_scikit_learn_cuts_them(column, max_bins, seed, whole):
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 4, len(column)) if whole else rng.uniform(0.1, 2, len(column))
    weight = weight.astype(float)
    expected = _find_binning_thresholds(column, max_bins, weight)
    bins = Bins(column[:, None], weight, max_bins)
    np.testing.assert_array_equal(bins.cuts[0], expected)
    codes = bins.codes(column[:, None])
    assert codes.min() == 0
    assert codes.max() <= len(expected) < max_bins  # the last bin is empty after a heavy last row
    assert np.all(np.diff(codes[np.argsort(column), 0]) >= 0)


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
