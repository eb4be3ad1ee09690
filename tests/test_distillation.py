"""One network in place of an average."""

from __future__ import annotations

import numpy as np
import pytest

import gentle
from gentle import GENTLE
from gentle.models.averaging import dealt_out


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1_500, 3))
    y = np.where(
        rng.random(1_500) < 0.3, 0.0, 2 + X[:, 0] + (1.5 + X[:, 1]) * rng.normal(size=1_500)
    )
    return X, np.maximum(y, 0)


@pytest.fixture(scope="module")
def teacher(rows):
    return GENTLE(n_steps=300, n_trees=20, random_state=0, verbose=0).fit(*rows)


@pytest.fixture(scope="module")
def pupil(teacher, rows):
    return teacher.distilled(rows[0], n_steps=1_500, random_state=0)


def test_answers_stay_close(teacher, pupil):
    X = np.random.default_rng(1).uniform(-1, 1, (300, 3))
    levels = (np.arange(50) + 0.5) / 50
    here, there = pupil.predict_quantiles(X, levels), teacher.predict_quantiles(X, levels)
    distance = np.abs(here - there).mean()
    assert distance < 0.1 * there.std(axis=1).mean()
    assert pupil.ensemble_.distance == pytest.approx(distance, rel=0.5)
    assert "imitates" in str(pupil.summary())
    assert "imitates" not in str(teacher.summary())


def test_atoms_and_bounds_stay(teacher, pupil, rows):
    draws = pupil.sample(rows[0][:200], 200, random_state=0)
    assert draws.min() == 0
    zeros = (draws == 0).mean(axis=1)
    expected = (teacher.sample(rows[0][:200], 200, random_state=0) == 0).mean(axis=1)
    assert np.abs(zeros - expected).mean() < 0.06


def test_the_same_seed_gives_the_same_pupil(teacher, rows):
    one, two = (teacher.distilled(rows[0], n_steps=20, random_state=3) for _ in range(2))
    assert np.array_equal(one.predict_quantiles(rows[0], 0.3), two.predict_quantiles(rows[0], 0.3))


def test_it_is_saved_like_any_other(pupil, rows, tmp_path):
    pupil.save(tmp_path / "model")
    again = gentle.load(tmp_path / "model")
    assert np.array_equal(again.predict(rows[0][:50]), pupil.predict(rows[0][:50]))
    assert again.ensemble_.distance == pupil.ensemble_.distance


def test_the_teacher_stays_as_it_is(rows):
    model = GENTLE(n_steps=30, n_trees=0, random_state=0, verbose=0).fit(*rows)
    before, history = model.predict(rows[0][:50]), list(model.history_)
    model.distilled(rows[0], n_steps=10, random_state=0)
    assert np.array_equal(model.predict(rows[0][:50]), before)
    assert model.history_ == history


def test_one_network_has_nobody_to_disagree_with(teacher, pupil, rows, tmp_path):
    assert teacher.predict_dist(rows[0][:5]).spread().min() > 0
    pupil.save(tmp_path / "model")
    for model in (pupil, gentle.load(tmp_path / "model")):
        with pytest.raises(ValueError, match="no spread"):
            model.predict_dist(rows[0][:5]).spread()


def test_what_cannot_be_distilled(teacher, rows):
    with pytest.raises(ValueError, match="at least 20 rows"):
        teacher.distilled(rows[0][:5])
    with pytest.raises(ValueError, match="n_steps must be"):
        teacher.distilled(rows[0], n_steps=0)
    game = GENTLE(map="mlp", n_epochs=1, random_state=0, verbose=0).fit(rows[0][:50], rows[1][:50])
    with pytest.raises(ValueError, match="nothing to distil"):
        game.distilled(rows[0])


@pytest.mark.parametrize(
    ("weights", "places"),
    [
        ([1, 0, 0], [3, 0, 0]),
        ([1 / 6, 5 / 6, 0], [0, 3, 0]),
        ([1 / 3, 1 / 3, 1 / 3], [1, 1, 1]),
        ([1 / 2, 1 / 2, 0], [2, 1, 0]),
        ([1 / 2, 1 / 6, 1 / 3], [2, 0, 1]),
    ],
)
def test_places_go_by_weight(weights, places):
    assert dealt_out(np.array(weights), 3).tolist() == places
