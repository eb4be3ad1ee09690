"""How the default GENTLE's networks learn: cycles, which weights are kept, large tables."""

import numpy as np
import pytest
import torch
from scipy.special import ndtri

import gentle
from gentle import GENTLE
from gentle.models import school
from gentle.models.averaging import best_average
from gentle.models.evaluation import INNER
from gentle.models.objective import Pinball, excess, of_marginal, pinball
from gentle.models.rates import Cycles
from gentle.models.school import School
from gentle.responses import ResponseEncoder

QUICK = {"n_steps": 120, "n_trees": 0, "random_state": 0, "verbose": 0}


def rows(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1] + rng.normal(size=n)


@pytest.fixture
def large(monkeypatch):
    """Small tables count as large ones."""
    monkeypatch.setattr(school, "_LARGE", 50)


def test_the_rate_falls_in_each_cycle_and_starts_anew():
    cycles = Cycles(steps_per_epoch=5, n_steps=315)
    assert cycles.ends.tolist() == [1, 3, 7, 15, 31, 63]
    rate = np.array([cycles.factor(step) for step in range(315)])
    assert rate.min() >= 0.01
    assert rate.max() == 1
    starts = 5 * cycles.ends[:-1]
    assert (np.flatnonzero(np.diff(rate[30:]) > 0) + 31).tolist() == starts[starts > 30].tolist()
    assert [cycles.length(step) for step in (0, 4, 5, 314)] == [5, 5, 10, 160]


@pytest.mark.parametrize("n_steps", [1, 7, 50, 10**6])
def test_cycles_use_up_the_budget_but_one_epoch_at_least(n_steps):
    last = Cycles(steps_per_epoch=10, n_steps=n_steps).ends[-1]
    assert abs(last - max(1, n_steps / 10)) <= max(1, 0.01 * last)


def test_what_is_left_of_the_cycles_can_be_made_longer():
    cycles = Cycles(steps_per_epoch=5, n_steps=315)
    before = [cycles.factor(step) for step in range(35)]
    cycles.stretch(7, 1.5)
    assert cycles.ends.tolist() == [1, 3, 7, 19, 43, 91]
    assert [cycles.factor(step) for step in range(35)] == before
    assert cycles.factor(35) == 1
    assert cycles.factor(5 * 19 - 1) < 0.02
    assert [cycles.length(step) for step in (34, 35, 5 * 91 - 1)] == [20, 60, 240]


def rates(monkeypatch, noise, **settings):
    """The rate at the end of each training, on 300 rows that are noise to some part."""
    kept = []
    train = School.train
    monkeypatch.setattr(School, "train", lambda self: kept.append(self) or train(self))
    X, _ = rows()
    y = X[:, 0] + noise * np.random.default_rng(1).normal(size=len(X))
    GENTLE(**QUICK | {"n_steps": 900, "boosting": False} | settings).fit(X, y)
    return kept[0].rate


def test_steps_grow_where_little_noise_is_left(monkeypatch):
    assert rates(monkeypatch, noise=3.0) == 0.003
    assert rates(monkeypatch, noise=0.01) > 0.004


def test_a_given_rate_is_kept(monkeypatch):
    assert rates(monkeypatch, noise=0.01, lr_generator=0.002) == 0.002


def test_the_marginal_scores_what_its_quantiles_score():
    rng = np.random.default_rng(0)
    z, times = rng.normal(size=(2, 40)), rng.integers(0, 4, (2, 40))
    level, w = np.array([0.05, 0.3, 0.5, 0.9]), rng.random(4)
    expected = []
    for own, n in zip(z, times):
        copies = np.repeat(own, n)
        quantiles = np.quantile(copies, level, method="inverted_cdf")
        gap = copies[:, None] - quantiles
        expected.append(2 * (np.maximum(level * gap, (level - 1) * gap) @ w).mean())
    given = (torch.as_tensor(one, dtype=torch.float64) for one in (z, times, level, w))
    np.testing.assert_allclose(of_marginal(*given).numpy(), expected)


@pytest.mark.parametrize(("n_columns", "part"), [(20, 1.0), (400, 0.36)])
def test_small_tables_with_many_columns_get_fewer_steps(n_columns, part, monkeypatch):
    kept = []
    monkeypatch.setattr(School, "finished", lambda self: kept.append(self) or True)
    X = np.random.default_rng(0).normal(size=(120, n_columns))
    GENTLE(**QUICK | {"n_steps": 4000, "boosting": False}).fit(X, X[:, 0])
    n_steps = kept[0].cycles.ends[-1] * kept[0].steps_per_epoch
    assert n_steps == pytest.approx(4000 * part, rel=0.2)


class Scripted:
    """A school whose scores and losses are given, epoch by epoch."""

    def __init__(self, made: School) -> None:
        self.made = made

    def is_overfit_after(self, scores, losses):
        made = self.made
        made.best_score, made.loss_at_best = np.full(len(made.members), np.inf), np.inf
        for score, loss in zip(scores, losses):
            made.exam.scores = lambda _, score=score: score
            made.loss = loss
            made.validate()
        return made.is_overfit


def test_only_networks_that_all_get_worse_while_they_learn_are_overfit(monkeypatch):
    kept = []
    train = School.train
    monkeypatch.setattr(School, "train", lambda self: kept.append(self) or train(self))
    GENTLE(**QUICK).fit(*rows())
    n = len(kept[0].members)
    script = Scripted(kept[0])
    good, bad = np.full(n, 1.0), np.full(n, 1.5)
    one_is_fine = np.append(bad[1:], 1.0)
    assert script.is_overfit_after([good, bad], [0.9, 0.5])
    assert not script.is_overfit_after([good, bad], [0.9, 1.4])  # the rate has started anew
    assert not script.is_overfit_after([good, one_is_fine], [0.9, 0.5])
    assert not script.is_overfit_after([good, 1.2 * good], [0.9, 0.5])


def test_rows_losses_add_up_to_the_members():
    source = torch.Generator().manual_seed(0)
    v, z, s = (torch.randn(*n, generator=source) for n in ((2, 5, 9), (2, 5), (2, 5)))
    level, w = torch.linspace(0.1, 0.9, 9), torch.rand(9, generator=source)
    gap = z[:, :, None] - v
    expected = (torch.maximum(level * gap, (level - 1) * gap) * w).sum(2)
    torch.testing.assert_close(pinball(v, z, level, w), expected)
    torch.testing.assert_close(Pinball.apply(v, z, s, level, w), (s * expected).sum(1))


def test_members_of_a_kind_keep_the_same_moment_on_large_tables(large, monkeypatch):
    kept, keep = [], School._keep

    def noted(self, net, chosen):
        kept.append(chosen.reshape(len(self.folds), -1))
        keep(self, net, chosen)

    monkeypatch.setattr(School, "_keep", noted)
    GENTLE(**QUICK).fit(*rows())
    assert any(chosen.any() and not chosen.all() for chosen in kept)
    assert all((chosen == chosen[0]).all() for chosen in kept)
    kept.clear()
    monkeypatch.setattr(school, "_LARGE", 5000)
    GENTLE(**QUICK).fit(*rows())
    assert any((chosen != chosen[0]).any() for chosen in kept)


@pytest.mark.parametrize(("tolerance", "always"), [(1e9, True), (-1e9, False)])
def test_the_end_of_a_cycle_is_kept_unless_it_is_clearly_worse(
    large, monkeypatch, tolerance, always
):
    found, prefer = [], School._prefer_the_end

    def noted(self):
        before = {name: weight.clone() for name, weight in self.best.items()}
        prefer(self)
        for name, weight in self.average.state_dict().items():
            found.append(torch.equal(self.best[name], weight if always else before[name]))

    monkeypatch.setattr(School, "_prefer_the_end", noted)
    monkeypatch.setattr(school, "_TOLERANCE", tolerance)
    GENTLE(**QUICK).fit(*rows())
    assert found
    assert all(found)


def test_large_tables_have_larger_networks_that_come_back_from_files(large, tmp_path):
    X, y = rows()
    model = GENTLE(**QUICK).fit(X, y)
    assert model.ensemble_.net.widths == [96, 144, 144]
    model.save(tmp_path / "model")
    back = gentle.load(tmp_path / "model")
    assert back.ensemble_.net.widths == [96, 144, 144]
    assert np.array_equal(back.predict(X), model.predict(X))
    assert GENTLE(**QUICK, hidden_widths=(9, 7)).fit(X, y).ensemble_.net.widths == [9, 7]


@pytest.mark.parametrize(
    ("spread", "widening"), [(1.0, 1.0), (1.026, 1.0), (1.05, 1.05), (1.1, 1.1)]
)
def test_widening_must_be_worth_it(spread, widening):
    y = spread * ndtri((np.arange(2000) + 0.5) / 2000)
    coordinate = ResponseEncoder.of(
        y, np.ones(2000), scale="linear", tails="extrapolate", atoms=False
    )
    low, _ = coordinate.interval(np.array([0.0, 1.0]))
    z = np.tile(low[0] + (low[1] - low[0]) * ndtri(INNER), (2000, 1))
    assert best_average([z, None], coordinate, y, np.ones(2000))[1] == widening


def test_the_excess_of_losses_is_a_weighted_mean_with_its_variance():
    rng = np.random.default_rng(0)
    one, other, weight = rng.random((3, 2, 50))
    found = excess(*(torch.as_tensor(a) for a in (one, other, weight)))
    share = weight / weight.sum(axis=1, keepdims=True)
    mean = [np.average(a - b, weights=w) for a, b, w in zip(one, other, weight)]
    variance = [(s**2 * (a - b - m) ** 2).sum() for a, b, s, m in zip(one, other, share, mean)]
    np.testing.assert_allclose(found[0], mean)
    np.testing.assert_allclose(found[1], variance)


@pytest.mark.parametrize(("clearly", "slide"), [(-1e9, True), (1e9, False)])
def test_of_twins_one_goes_on_after_the_trial(large, monkeypatch, tmp_path, clearly, slide):
    seen, drop = [], School._drop_useless_kinds

    def noted(self):
        seen.append({kind.slides for kind in self.kinds if kind.views == ("straight",)})
        drop(self)
        assert slide is self.net.any_slides is self.average.any_slides

    monkeypatch.setattr(School, "_drop_useless_kinds", noted)
    monkeypatch.setattr(school, "_CLEARLY", clearly)
    monkeypatch.setattr(school, "useful_weights", lambda net, kinds, *_: np.eye(len(kinds))[-1])
    X, y = rows()
    model = GENTLE(**QUICK | {"n_steps": 600, "boosting": False}).fit(X, y)
    assert seen[0] == {False, True}
    assert all(len(after) <= 1 for after in seen[1:])
    slides = {kind.slides for kind in model.ensemble_.kinds if kind.views == ("straight",)}
    assert slides <= {slide}
    model.save(tmp_path / "model")
    back = gentle.load(tmp_path / "model")
    assert back.ensemble_.kinds == model.ensemble_.kinds
    assert np.array_equal(back.predict(X), model.predict(X))


def test_networks_slide_where_the_probability_of_a_part_apart_depends_on_x(large):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    apart = rng.random(3000) < 0.02 + 0.3 * (X[:, 0] > 0) * X[:, 0]
    y = np.where(apart, rng.uniform(-30, 0, 3000), 0.2 * rng.normal(size=3000))
    model = GENTLE(**QUICK | {"n_steps": 1500, "boosting": False}).fit(X, y)
    assert any(kind.slides for kind in model.ensemble_.kinds)


def test_a_model_saved_before_anything_slid_is_read(tmp_path):
    X, y = rows()
    model = GENTLE(**QUICK).fit(X, y)
    arrays, facts = model.ensemble_.state()
    facts["kinds"] = [kind[:2] for kind in facts["kinds"]]
    back = type(model.ensemble_).restored(arrays, facts, X.shape[1], [1], "cpu")
    assert back.kinds == model.ensemble_.kinds


@pytest.mark.parametrize(("n_steps", "have_twins"), [(599, False), (600, True)])
def test_short_fits_have_no_twins_and_no_fit_ends_with_both(
    large, monkeypatch, n_steps, have_twins
):
    kept = []
    monkeypatch.setattr(School, "finished", lambda self: kept.append(self.kinds) or True)
    model = GENTLE(**QUICK | {"n_steps": n_steps, "boosting": False}).fit(*rows())
    assert any(kind.slides for kind in kept[0]) is have_twins
    assert sum(kind.views == ("straight",) for kind in model.ensemble_.kinds) <= 1
