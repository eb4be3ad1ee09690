"""One network in place of an average."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import gentle
from gentle import GENTLE
from gentle.distribution import QuantileTable
from gentle.models import distillation
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


LARGE = {
    "n_steps": 600, "hidden_widths": (16, 16), "n_trees": 6, "boosting": False, "verbose": 0,
    "random_state": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def many_rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (6_000, 2))
    y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=6_000)
    return X, np.where(rng.random(6_000) < 0.02, 1.0, y)  # a small atom: two coordinates


@pytest.fixture(scope="module")
def compact(many_rows):
    return GENTLE(**LARGE).fit(*many_rows)


@pytest.fixture(scope="module")
def whole(many_rows):
    return GENTLE(**LARGE, compact=False).fit(*many_rows)


def test_with_many_rows_one_network_answers_about_as_the_average_does(compact, whole, many_rows):
    X, ensemble = many_rows[0][:500], compact.ensemble_
    assert whole.ensemble_.pupil is None
    assert ensemble.pupil.net.n_members == 1 < ensemble.net.n_members
    assert 0 < ensemble.pupil.excess < 0.002
    x = compact._encoded_covariates(X)
    levels = [0.1, 0.5, 0.9]
    assert np.array_equal(ensemble.average(x), whole.ensemble_.average(x))  # the same fit
    assert np.array_equal(
        compact.predict_quantiles(X, levels), ensemble.pupil.table(x).quantile(levels)
    )
    far = np.abs(compact.predict_quantiles(X, levels) - whole.predict_quantiles(X, levels)).mean()
    assert 0 < far < 0.05
    assert "imitates it answers" in str(compact.summary())
    assert "imitates" not in str(whole.summary())


def test_a_pupils_spread_is_that_of_the_average_it_imitates(compact, whole, many_rows):
    X = many_rows[0][:20]
    assert np.array_equal(compact.predict_dist(X).spread(), whole.predict_dist(X).spread())


def test_excess_is_what_the_crps_of_draws_from_the_average_grows_by(compact, many_rows):
    ensemble = compact.ensemble_
    average = replace(ensemble, pupil=None)
    x = compact._encoded_covariates(many_rows[0][:300])
    # Beside a bad pupil, whose excess is large enough to be seen in draws.
    net = ensemble.pupil.net.taken([0])
    net.biases[-1].data[..., 0] += 0.4
    bad = replace(ensemble.pupil, net=net)
    _, excess = distillation.differences(average, bad, x)
    there, here = average.table(x), bad.table(x)
    draws = there.sample(400, random_state=0)
    expected = here.crps(draws).mean() / there.crps(draws).mean() - 1
    assert excess > 0.01
    assert excess == pytest.approx(expected, rel=0.1)


def test_certainty_that_a_pupil_does_not_share_is_not_overlooked(compact, many_rows):
    x = compact._encoded_covariates(many_rows[0][:3])
    table = compact.ensemble_.table(x)

    class Given:
        def __init__(self, table):
            self.table = lambda x: table

    sure, unsure = (
        QuantileTable([0.0, 0.5, 1.0], np.array([[0.0, 0.0, end]] * 3)) for end in (0.0, 10.0)
    )
    assert distillation.differences(Given(sure), Given(unsure), x)[1] is None
    assert distillation.differences(Given(sure), Given(sure), x) == (0.0, 0.0)
    # Uniform on (0, 1) beside (0, 2): the difference of squares integrates to 1/6, beside 1/6.
    even, wide = (QuantileTable([0.0, 1.0], np.array([[0.0, end]] * 3)) for end in (1.0, 2.0))
    assert distillation.differences(Given(even), Given(wide), x)[1] == pytest.approx(1, rel=1e-3)
    assert distillation.differences(Given(table), Given(table), x)[1] == 0.0


def test_a_pupil_that_cannot_be_trained_costs_nothing_but_itself(compact, many_rows, recwarn):
    ensemble = replace(compact.ensemble_, pupil=None)
    net = ensemble.net.taken(range(ensemble.net.n_members))
    net.biases[0].data[:, 0, 0] = 500.0  # more than any training may end with
    broken, x = replace(ensemble, net=net), compact._encoded_covariates(many_rows[0])
    rng = np.random.default_rng(0)
    assert distillation.with_pupil(broken, x, rng, verbose=0) is broken
    assert not [one for one in recwarn if "diverged" in str(one.message)]


def test_what_was_learned_from_many_rows_is_taught_for_longer(compact, monkeypatch):
    ensemble, efforts = replace(compact.ensemble_, pupil=None), []

    def noted(teacher, x, effort, rng, verbose):
        efforts.append(effort.n_steps)
        raise FloatingPointError

    monkeypatch.setattr(distillation, "distilled", noted)
    for n_rows in (6_000, 40_000, 1_000_000):
        x = np.broadcast_to(0.0, (n_rows, 2))
        distillation.with_pupil(ensemble, x, np.random.default_rng(0), verbose=0)
    assert efforts == [1_000, 2_000, 4_000]


def test_distance_is_that_of_quantile_functions(compact, many_rows):
    ensemble, x = compact.ensemble_, compact._encoded_covariates(many_rows[0][:50])
    average = replace(ensemble, pupil=None)
    distance, _ = distillation.differences(average, ensemble.pupil, x)
    u = (np.arange(2_000) + 0.5) / 2_000
    gap = np.abs(average.table(x).quantile(u) - ensemble.pupil.table(x).quantile(u)).mean()
    assert distance == pytest.approx(gap, rel=0.05)
    assert distillation.differences(average, average, x) == (0.0, 0.0)


def test_a_pupil_that_is_not_as_good_does_not_answer(many_rows, whole, monkeypatch):
    monkeypatch.setattr(distillation, "_AS_GOOD", 1e-9)
    model = GENTLE(**LARGE).fit(*many_rows)
    assert model.ensemble_.pupil is None
    X = many_rows[0][:50]
    assert np.array_equal(model.predict_quantiles(X, 0.3), whole.predict_quantiles(X, 0.3))


@pytest.mark.parametrize(("n_rows", "n_steps"), [(4_000, 600), (6_000, 599)])
def test_small_tables_and_short_fits_have_no_pupil(many_rows, n_rows, n_steps):
    X, y = (part[:n_rows] for part in many_rows)
    model = GENTLE(**LARGE | {"n_steps": n_steps, "n_trees": 0, "hidden_widths": (8,)}).fit(X, y)
    assert model.ensemble_.pupil is None


def test_pupils_are_saved_with_the_average(compact, many_rows, tmp_path):
    compact.save(tmp_path / "model")
    again, X = gentle.load(tmp_path / "model"), many_rows[0][:300]
    assert np.array_equal(again.predict_quantiles(X, 0.7), compact.predict_quantiles(X, 0.7))
    assert np.array_equal(again.predict_dist(X).spread(), compact.predict_dist(X).spread())
    assert again.ensemble_.pupil.excess == compact.ensemble_.pupil.excess


def test_a_pupil_of_a_pupil_is_not_loaded(compact):
    arrays, facts = compact.ensemble_.state()
    facts = json.loads(json.dumps(facts))
    restored = type(compact.ensemble_).restored
    assert restored(arrays, facts, 2, (16, 16), "cpu").pupil is not None
    for damage in ({"pupil": facts["pupil"]}, {"weights": [1]}, {"excess": -1.0}, {"kinds": []}):
        damaged = facts | {"pupil": facts["pupil"] | damage}
        with pytest.raises(ValueError, match="damaged"):
            restored(arrays, damaged, 2, (16, 16), "cpu")
    with pytest.raises(ValueError, match="damaged"):
        restored(arrays, facts | {"pupil": [1]}, 2, (16, 16), "cpu")


def test_what_is_distilled_is_the_average_and_not_its_pupil(compact, many_rows):
    quick = compact.distilled(many_rows[0], n_steps=200, random_state=0)
    assert quick.ensemble_.pupil is None
    assert quick.ensemble_.net.n_members == 1
    assert quick.ensemble_.excess < 0.002
    with pytest.raises(ValueError, match="no spread"):
        quick.predict_dist(many_rows[0][:3]).spread()


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
