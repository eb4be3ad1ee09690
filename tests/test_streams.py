import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from gentle.streams import as_seed, uniforms


@given(st.integers(0, 300), st.integers(1, 150), st.integers(1, 150), st.integers(0, 2**64))
def test_any_block_of_rows_and_draws_is_that_block_of_the_whole(first, n_rows, n_samples, seed):
    whole = uniforms(seed, first + n_rows + 10, n_samples + 7)
    block = uniforms(seed, n_rows, n_samples, first_row=first)
    np.testing.assert_array_equal(block, whole[first : first + n_rows, :n_samples])


def test_they_are_uniform_and_neither_rows_nor_draws_nor_seeds_are_correlated():
    u = uniforms(3, 300, 3000)
    assert kstest(u.ravel(), "uniform").pvalue > 0.001
    limit = 5.5 / np.sqrt(u.shape[1])  # of the largest among 45,000 normal correlations
    rows = np.corrcoef(u)[np.triu_indices(300, 1)]
    assert np.abs(rows).max() < limit
    shifted = np.corrcoef(u[:-1, :-1].ravel(), u[1:, 1:].ravel())[0, 1]
    seeds = np.corrcoef(u.ravel(), uniforms(4, 300, 3000).ravel())[0, 1]
    assert max(abs(shifted), abs(seeds)) < 5 / np.sqrt(u.size)
    assert len(np.unique(u)) == u.size


def test_global_random_state_is_neither_read_nor_changed():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert as_seed(None) != as_seed(None)
    uniforms(as_seed(5), 10, 10)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_every_usual_kind_of_seed_is_taken():
    assert as_seed(7) == as_seed(np.int64(7)) == 7
    for make in (np.random.default_rng, np.random.RandomState, np.random.SeedSequence):
        assert as_seed(make(3)) == as_seed(make(3))
        assert as_seed(make(3)) != as_seed(make(4))
    with pytest.raises(ValueError, match="negative"):
        as_seed(-1)
    with pytest.raises(TypeError):
        as_seed(1.5)
