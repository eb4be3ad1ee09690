"""What networks see of columns: three views, each bounded where it should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from gentle.models.inputs import Inputs

VIEWS = ("straight", "scores", "pieces")


def table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    skewed = rng.gamma(0.5, 1.0, n)
    return np.column_stack(
        [
            rng.normal(size=n),
            skewed,
            rng.integers(0, 2, n) * 3.0,
            np.zeros(n),
            rng.integers(0, 4, n),
        ]
    )


def of(x, weight=None):
    return Inputs.of(x, np.ones(len(x)) if weight is None else weight)


def test_the_views_stand_one_after_the_other():
    x = table()
    inputs = of(x)
    seen = inputs.encode(x)
    assert seen.shape == (len(x), len(inputs))
    widths = [seen[:, inputs.view(name)].shape[1] for name in VIEWS]
    assert widths[:2] == [5, 5]
    assert sum(widths) == len(inputs)
    assert set(inputs.column) == {0, 1}  # columns of few values need no pieces
    assert np.isfinite(seen).all()


def test_straight_is_the_value_as_it_is_and_far_ones_come_closer_in_order():
    inputs = of(table())
    x = np.linspace(-60, 60, 2401)[:, None] * np.ones(5)
    seen = inputs.encode(x)[:, inputs.view("straight")]
    near = np.abs(x) <= 2
    np.testing.assert_array_equal(seen[near], x[near])
    assert np.all(np.diff(seen, axis=0) > 0)
    assert np.abs(seen).max() < 8
    np.testing.assert_allclose(seen, -seen[::-1], atol=1e-12)


def test_scores_belong_to_ranks_and_stay_beyond_the_range():
    x = table(2000)
    inputs = of(x)
    scores = inputs.encode(x)[:, inputs.view("scores")]
    for column in (0, 1):
        order = np.argsort(x[:, column])
        u = (np.arange(2000) + 0.5) / 2000
        expected = (norm.ppf(u) + (2 * u - 1) * np.sqrt(3)) / 2  # both of variance 1
        np.testing.assert_allclose(scores[order, column][50:-50], expected[50:-50], atol=0.05)
    assert set(np.unique(scores[:, 2])) == {-1.0, 1.0}
    assert set(np.unique(scores[:, 3])) == {0.0}
    assert len(np.unique(scores[:, 4])) == 4
    far = inputs.encode(np.array([[-1e9] * 5, [1e9] * 5]))[:, inputs.view("scores")]
    np.testing.assert_allclose(far, [scores.min(axis=0), scores.max(axis=0)], atol=1e-9)


def test_pieces_rise_from_0_one_after_the_other():
    x = table()
    inputs = of(x)
    grid = np.linspace(x[:, 0].min() - 1, x[:, 0].max() + 1, 1001)
    line = np.zeros((1001, 5))
    line[:, 0] = grid
    pieces = inputs.encode(line)[:, inputs.view("pieces")][:, inputs.column == 0]
    assert pieces.shape[1] > 2
    assert np.all(np.diff(pieces, axis=0) >= 0)
    assert np.all(pieces[0] == 0)
    assert np.all(pieces[-1] == pieces.max())
    busy = (pieces > 0) & (pieces < pieces.max())
    assert busy.sum(axis=1).max() == 1


def test_weights_are_copies_and_only_relative_ones_matter():
    x = table(200)
    weight = np.random.default_rng(1).integers(1, 4, 200)
    one, two, copies = of(x, weight.astype(float)), of(x, weight * 7.0), of(x.repeat(weight, 0))
    for name, array in one.arrays().items():
        np.testing.assert_allclose(array, two.arrays()[name], rtol=1e-12)
        np.testing.assert_allclose(array, copies.arrays()[name], rtol=1e-12)


def test_many_columns_share_the_pieces():
    x = np.random.default_rng(0).normal(size=(100, 300))
    inputs = of(x)
    assert len(inputs) < 900
    assert inputs.encode(x).shape == (100, len(inputs))


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(2, 30), st.integers(1, 3)),
        elements=st.one_of(st.floats(-1e15, 1e15), st.integers(-2, 2).map(float)),
    )
)
def test_every_table_can_be_seen(x):
    inputs = of(x)
    seen = inputs.encode(np.concatenate([x, -x, 2 * x]))
    assert np.isfinite(seen).all()
    assert np.abs(seen[:, inputs.view("scores")]).max(initial=0) < 5
    assert np.all((seen[:, inputs.view("pieces")] >= 0) & (seen[:, inputs.view("pieces")] <= 1))
    np.testing.assert_array_equal(inputs.encode(x[:1]), seen[:1])
    Inputs.restored(inputs.arrays(), x.shape[1])


def test_damaged_inputs_are_refused():
    good = of(table()).arrays()
    assert len(Inputs.restored(good, 5)) == len(of(table()))
    for change in [
        {"knots": good["knots"][:, ::-1]},
        {"knots": good["knots"][:4]},
        {"knots": good["knots"][:, :9]},
        {"knots": good["knots"] * np.nan},
        {"knots": good["knots"] + np.where(np.arange(100) > 98, np.inf, 0.0)},
        {"scores": good["scores"] * np.nan},
        {"scores": good["scores"][0]},
        {"column": good["column"] + 9},
        {"column": good["column"] - 9},
        {"column": good["column"].astype(float)},
        {"column": good["column"][:-1]},
        {"start": good["start"] * np.nan},
        {"length": good["length"] * 0},
        {"length": good["length"] * np.nan},
        {"length": good["length"] * np.inf},
    ]:
        with pytest.raises(ValueError, match="inputs are damaged"):
            Inputs.restored(good | change, 5)
    with pytest.raises(ValueError, match="inputs are damaged"):
        Inputs.restored(good, 4)
