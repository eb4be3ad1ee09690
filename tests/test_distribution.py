import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from gentle.chunks import ChunkedDistribution, SharedDistribution, in_chunks
from gentle.distribution import QuantileTable


@st.composite
def tables(draw):
    """Rows of knots with plateaus (atoms) and jumps (gaps), levels common or of each row."""
    n, k = draw(st.integers(1, 4)), draw(st.integers(2, 9))
    steps = st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])
    values = np.cumsum(draw(arrays(np.float64, (n, k), elements=steps)), axis=1)
    values += draw(arrays(np.float64, (n, 1), elements=st.integers(-50, 50)))
    widths = draw(arrays(np.float64, (n, k - 1), elements=st.sampled_from([0.0, 1.0, 2.0])))
    widths[:, draw(st.integers(0, k - 2))] += 1
    levels = np.concatenate([np.zeros((n, 1)), np.cumsum(widths, axis=1)], axis=1)
    levels /= levels[:, -1:]
    if draw(st.booleans()):
        return QuantileTable(levels[0], values)
    return QuantileTable(levels, values)


GRID = (np.arange(20_000) + 0.5) / 20_000


def fine(table):
    """Draws at an even grid of levels: the distribution itself up to 1/20,000."""
    return table.ppf(np.broadcast_to(GRID, (len(table), len(GRID))))


def points(table):
    """Every knot, the middles between knots, and points outside."""
    middles = (table.values[:, 1:] + table.values[:, :-1]) / 2
    ends = table.values[:, [0, -1]] + [[-1.0, 1.0]]
    return np.concatenate([table.values, middles, ends], axis=1)


@given(tables())
def test_cdf_is_the_share_of_draws_at_or_below(table):
    y = points(table)
    share = (fine(table)[:, None, :] <= y[:, :, None] + 1e-12).mean(axis=2)
    np.testing.assert_allclose(table.cdf(y), share, atol=2e-4)


@given(tables(), arrays(np.float64, 7, elements=st.floats(0, 1)))
def test_quantiles_are_the_smallest_points_with_enough_probability(table, alpha):
    q = table.quantile(alpha)
    assert np.all(np.diff(table.quantile(np.sort(alpha)), axis=1) >= 0)
    assert np.all(table.cdf(q + 1e-9) >= alpha - 1e-9)
    inside = q > table.values[:, :1]
    assert np.all((table.cdf(q - 1e-6) <= alpha + 1e-9)[inside])


@given(tables())
def test_mean_and_deviation_are_those_of_the_draws(table):
    z = fine(table)
    np.testing.assert_allclose(table.mean(), z.mean(axis=1), atol=2e-3)
    np.testing.assert_allclose(table.std(), z.std(axis=1), atol=2e-3)


@given(tables())
def test_crps_is_its_definition(table):
    y, z = points(table), fine(table)
    # E|Y - Y'|/2 of sorted draws, by the even grid.
    spread = ((2 * GRID - 1) * z).mean(axis=1)
    expected = np.abs(z[:, None, :] - y[:, :, None]).mean(axis=2) - spread[:, None]
    np.testing.assert_allclose(table.crps(y), expected, atol=2e-3)


@given(tables())
def test_density_and_atoms_add_up_to_the_distribution_function(table):
    for row, (atoms, mass) in enumerate(table.atoms()):
        one = table.row(row)
        np.testing.assert_allclose(np.exp(one.log_prob(atoms[None])[0]), mass, rtol=1e-9)
        knots = np.unique(one.values)
        middles = (knots[1:] + knots[:-1]) / 2
        density = np.exp(one.log_prob(middles[None])[0]) * np.diff(knots)
        assert density.sum() + mass.sum() == pytest.approx(1)
        assert np.all(np.isneginf(one.log_prob(knots[[0, -1]][None] + [[-1, 1]])))


def test_draws_on_a_plateau_are_the_atom_bit_for_bit():
    top = 25564.669921875
    table = QuantileTable([0.0, 0.3, 0.6, 1.0], [[0.0, 0.1, top, top]])
    draws = table.sample(10_000, random_state=0)
    assert np.mean(draws == top) == pytest.approx(0.4, abs=0.02)
    assert draws.max() == top


@given(
    arrays(np.float64, (3, 6), elements=st.integers(-3, 3)),
    arrays(np.float64, (3, 6), elements=st.integers(0, 3)),
)
def test_a_sample_becomes_its_empirical_distribution(y, weights):
    assume(np.all(weights.sum(axis=1) > 0))
    table = QuantileTable.of_sample(y, weights)
    share = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(table.mean(), (share * y).sum(axis=1), atol=1e-12)
    at = np.broadcast_to(np.arange(-4.0, 5.0), (3, 9))
    expected = ((y[:, None, :] <= at[:, :, None]) * share[:, None, :]).sum(axis=2)
    np.testing.assert_allclose(table.cdf(at), expected, atol=1e-12)


def test_normal_quantiles_give_the_normal_crps():
    levels = np.linspace(0, 1, 4001)
    table = QuantileTable(levels, norm.ppf(levels.clip(1e-5, 1 - 1e-5))[None])
    y = np.array([[-2.0, 0.0, 0.7]])
    expected = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(table.crps(y), expected, atol=1e-3)


@given(st.integers(1, 40), st.integers(1, 11), st.integers(0, 10), st.integers(1, 60))
def test_chunks_answer_like_the_whole(n, chunk, seed, n_different):
    rng = np.random.default_rng(seed)
    x = rng.integers(n_different, size=(n, 1)).astype(float)  # equal covariates, equal answers
    values = np.sort(rng.normal(size=(n_different, 9)), axis=1)

    def conditional(x):
        return QuantileTable(np.linspace(0, 1, 9), values[x[:, 0].astype(int)])

    whole, parts = conditional(x), in_chunks(x, conditional, chunk)
    is_shared = n > chunk and len(np.unique(x)) < 0.8 * n
    assert isinstance(parts, SharedDistribution if is_shared else ChunkedDistribution)
    y, u = rng.normal(size=(n, 3)), rng.random((n, 4))
    for answer in (
        lambda d: d.sample(5, random_state=1),
        lambda d: d.sample(u=u),
        lambda d: d.sample(u=[0.2, 0.5]),
        lambda d: d.quantile([0.1, 0.9]),
        lambda d: d.quantile(0.5),
        lambda d: d.interval(0.8),
        lambda d: d.cdf(y),
        lambda d: d.cdf(y[:, 0]),
        lambda d: d.log_prob(y),
        lambda d: d.crps(y),
        lambda d: d.mean(),
        lambda d: d.std(),
    ):
        np.testing.assert_array_equal(answer(parts), answer(whole))
        moved = parts.affine(2.0, 1.0), whole.affine(2.0, 1.0)
        np.testing.assert_array_equal(*map(answer, moved))
    assert [tuple(map(list, row)) for row in parts.atoms()] == [([], [])] * n
    assert parts.event_shape == whole.event_shape == ()


def test_atoms_are_those_of_the_row_in_every_kind_of_distribution():
    table = QuantileTable([0.0, 0.2, 0.7, 1.0], [[0.0, 0.0, 3.0, 3.0], [1.0, 2.0, 2.0, 5.0]])
    chunks = ChunkedDistribution(2, lambda rows: QuantileTable(table.levels, table.values[rows]), 1)
    for dist in (table, chunks, SharedDistribution(chunks, table, np.array([0, 1]))):
        (values, mass), (others, more) = dist.atoms()
        assert (values.tolist(), others.tolist()) == ([0.0, 3.0], [2.0])
        np.testing.assert_allclose(np.append(mass, more), [0.2, 0.3, 0.5])
        assert [row[0].tolist() for row in dist.atoms(0.25)] == [[3.0], [2.0]]
    repeated = table.repeat(3).atoms(0.25)
    assert [row[0].tolist() for row in repeated] == [[3.0]] * 3
    assert table.affine(2.0, 1.0).atoms()[1][0].tolist() == [5.0]


def test_only_averages_have_a_spread():
    table = QuantileTable([0.0, 1.0], [[0.0, 1.0], [2.0, 4.0]])
    chunks = ChunkedDistribution(2, lambda rows: QuantileTable([0.0, 1.0], table.values[rows]), 1)
    for dist in (table, table.repeat(3), chunks, chunks.affine(2.0, 0.0)):
        with pytest.raises(ValueError, match="made of one part, so it has no spread"):
            dist.spread()
    spread = np.array([0.5, 0.25])

    def compute(rows):
        return QuantileTable([0.0, 1.0], table.values[rows], lambda: spread[rows])

    for chunk in (1, 2):
        average = ChunkedDistribution(2, compute, chunk)
        assert average.spread().tolist() == [0.5, 0.25]
        assert average.affine(2.0, 9.0).spread().tolist() == [1.0, 0.5]
    shared = SharedDistribution(average, average, np.array([1, 0, 0]))
    assert shared.spread().tolist() == [0.25, 0.5, 0.5]
    assert shared.affine(2.0, 9.0).spread().tolist() == [0.5, 1.0, 1.0]
    whole = compute(slice(0, 2))
    assert whole.row(1).spread().tolist() == [0.25]
    assert whole.repeat(3).spread().tolist() == [0.5] * 3


def test_shapes_follow_the_question():
    table = QuantileTable([0.0, 1.0], [[0.0, 1.0], [2.0, 4.0]])
    assert table.quantile(0.5).shape == (2,)
    assert table.quantile([0.5]).shape == (2, 1)
    assert table.cdf([0.5, 3.0]).shape == (2,)
    assert table.cdf(np.zeros((2, 5))).shape == (2, 5)
    assert table.sample(7).shape == (2, 7)
    assert table.repeat(4).mean().tolist() == [0.5] * 4
    np.testing.assert_allclose(table.affine(2.0, 1.0).mean(), [2.0, 7.0])


@pytest.mark.parametrize(
    ("levels", "values", "message"),
    [
        ([0.0, 0.9], [[0.0, 1.0]], "start at 0 and end at 1"),
        ([0.0, 1.0], [[1.0, 0.0]], "must not decrease"),
        ([0.0, 1.0], [[0.0, np.nan]], "nor be NaN"),
        ([0.0, 0.5, 1.0], [[0.0, 1.0]], "levels must be"),
        ([0.0, 1.0], [0.0, 1.0], "values must be"),
    ],
)
def test_tables_that_are_no_quantile_functions_are_refused(levels, values, message):
    with pytest.raises(ValueError, match=message):
        QuantileTable(levels, values)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.quantile(1.5), "between 0 and 1"),
        (lambda t: t.quantile([np.nan]), "between 0 and 1"),
        (lambda t: t.interval(2), "coverage must lie between"),
        (lambda t: t.sample(0), "n_samples must be at least 1"),
        (lambda t: t.sample(u=[2.0]), "levels between 0 and 1"),
        (lambda t: t.sample(u=np.zeros((3, 2))), "u has 3 rows"),
        (lambda t: t.cdf(np.zeros(3)), "y has shape"),
        (lambda t: t.cdf([np.nan]), "NaN"),
    ],
)
def test_questions_without_an_answer_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(QuantileTable([0.0, 1.0], [[0.0, 1.0]]))


@pytest.mark.parametrize("common", [True, False])
def test_quantiles_at_common_levels_are_those_of_ppf_to_the_last_bit(common):
    rng = np.random.default_rng(0)
    levels = np.sort(rng.random((30, 12)), axis=1)
    levels[:, [0, -1]] = 0.0, 1.0
    levels[:, 4] = levels[:, 5]  # a jump
    values = np.sort(rng.normal(size=(30, 12)).round(1), axis=1)  # some flat pieces
    table = QuantileTable(levels[0] if common else levels, values)
    u = np.concatenate([[0.0, 1.0], levels[0], rng.random(50)])
    expected = table.ppf(np.broadcast_to(u, (30, len(u))))
    assert np.array_equal(table.quantile(u), expected)
    assert np.array_equal(table.quantile(0.3), table.ppf(np.full((30, 1), 0.3))[:, 0])
