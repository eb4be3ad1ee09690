"""The same seed gives the same model and draws, whatever else happens around them."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from budgets import OWN, make, table
from gentle.models import base

NEURAL = [name for name in OWN if hasattr(make(name), "_networks")]


@pytest.fixture(scope="module", params=OWN)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    return make(name).fit(*table())


@contextmanager
def threads(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def global_states():
    numpy_state = np.random.get_state()  # noqa: NPY002
    return (
        random.getstate(),
        numpy_state[1].tolist(),
        numpy_state[2],
        torch.get_rng_state().tolist(),
    )


def test_neither_fitting_nor_answering_uses_or_moves_the_global_generators(name, fitted):
    X, y = table()
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    torch.rand(7)
    before = global_states()
    model = make(name).fit(X, y)
    draws = model.sample(X, 4, random_state=3)
    model.predict_dist(X).crps(y)
    model.sample(X)
    assert global_states() == before
    np.testing.assert_array_equal(draws, fitted.sample(X, 4, random_state=3))


def test_the_order_of_the_rows_and_the_layout_of_the_array_do_not_matter(name, fitted):
    X, y = table()
    order = np.random.default_rng(8).permutation(len(y))
    shuffled = make(name).fit(np.asfortranarray(X[order]), y[order])
    np.testing.assert_array_equal(shuffled.sample(X, 4, 3), fitted.sample(X, 4, 3))
    weight = np.random.default_rng(9).random(len(y))
    rows = np.concatenate([order, order[::-1]])  # every row twice, with other halves of its weight
    halves = np.concatenate([weight[order] / 4, weight[order[::-1]] * 3 / 4])
    one, two = make(name).fit(X, y, weight), make(name).fit(X[rows], y[rows], halves)
    np.testing.assert_allclose(two.predict(X), one.predict(X), rtol=1e-6, atol=1e-6)


def test_rows_asked_alone_in_company_or_in_pieces_get_the_same_answers(fitted, monkeypatch):
    X, _ = table()
    levels = [0.05, 0.5, 0.95]
    draws, quantiles = fitted.sample(X, 70, 3), fitted.predict_quantiles(X, levels)
    monkeypatch.setattr(base, "_CHUNK_CELLS", 7 * fitted._n_knots())  # seven rows at a time
    np.testing.assert_array_equal(fitted.sample(X, 70, 3), draws)
    np.testing.assert_array_equal(fitted.predict_quantiles(X, levels), quantiles)
    for row in (0, 41, 119):
        alone = fitted.predict_quantiles(X[row : row + 1], levels)[0]
        np.testing.assert_array_equal(alone, quantiles[row])
    turned = fitted.predict_quantiles(X[::-1], levels)[::-1]
    np.testing.assert_array_equal(turned, quantiles)
    later = fitted.predict_dist(X[50:]).sample(70, random_state=3, first_row=50)
    np.testing.assert_array_equal(later, draws[50:])


def test_five_thousand_equal_rows_get_independent_draws(fitted):
    X, _ = table()
    n_rows, n_draws = 5000, 20
    draws = fitted.sample(np.repeat(X[:1], n_rows, axis=0), n_draws, random_state=0)
    scaled = (draws - draws.mean()) / draws.std()
    means = scaled.mean(axis=1)  # of variance 1 / n_draws if draws are independent
    assert means.var() * n_draws == pytest.approx(1, abs=6 * np.sqrt(2 / n_rows))
    for lag in (1, 2, 63, 64, 65, 128, 2500):  # streams of random numbers change every 64 rows
        correlation = (scaled[lag:] * scaled[:-lag]).mean()
        assert abs(correlation) < 5 / np.sqrt((n_rows - lag) * n_draws), lag
    across = np.corrcoef(scaled.T)[np.triu_indices(n_draws, 1)]  # of the draws of one row
    assert np.abs(across).max() < 5 / np.sqrt(n_rows)


@pytest.mark.slow  # two threads on busy cores wait for each other
@pytest.mark.parametrize("name", NEURAL)
def test_the_number_of_threads_does_not_matter(name):
    X, y = table()
    answers = []
    for n in (1, 2):
        with threads(n):
            answers.append(make(name).fit(X, y).sample(X, 4, 3))
    np.testing.assert_array_equal(*answers)
