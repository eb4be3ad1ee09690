from itertools import chain

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from gentle.learners import Learner
from gentle.training import train


class Counter(Learner):
    """A network of one number that each step raises by one, and what the steps were given."""

    _changing = ("module",)

    def __init__(self):
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.module.weight)
        self.batches = []

    def step(self, batch):
        self.batches.append(batch.tolist())
        with torch.no_grad():
            self.module.weight += 1
        return {"loss": len(self.batches) / 100}

    @property
    def value(self):
        return self.module.weight.item()


def run(counter, **changes):
    settings = {"n_items": 10, "batch_size": 4, "n_epochs": 3} | changes
    rng = np.random.default_rng(0)
    return train(counter, rng=rng, **settings)


def test_every_epoch_sees_every_item_once_in_another_order():
    counter = Counter()
    run(counter)
    epochs = [list(chain(*counter.batches[k : k + 3])) for k in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs} | {tuple(range(10))}) == 4
    assert [len(batch) for batch in counter.batches[:3]] == [4, 4, 2]


def test_losses_are_means_over_items():
    history = run(Counter())
    assert history[0]["loss"] == pytest.approx((0.01 * 4 + 0.02 * 4 + 0.03 * 2) / 10)
    assert [record["epoch"] for record in history] == [1, 2, 3]


def test_patience_stops_and_restores_the_best_weights():
    counter = Counter()
    scores = iter([5.0, 3.0, 4.0, 3.0, 9.0, 9.0])
    history = run(counter, n_epochs=50, validate=lambda: next(scores), patience=2)
    assert [record["validation"] for record in history] == [5.0, 3.0, 4.0, 3.0]
    assert counter.value == 6  # after the second epoch of three steps


def test_without_patience_the_last_weights_stay():
    counter = Counter()
    scores = iter([5.0, 3.0, 4.0])
    assert len(run(counter, validate=lambda: next(scores))) == 3
    assert counter.value == 9


class Descent(Learner):
    """Gradient descent on curvature / 2 · w², which diverges for rates above 2 / curvature."""

    _changing = ("module", "optimizer", "n_steps")

    def __init__(self, rate, curvature=1.0, broken=()):
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.module.weight)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate)
        self.curvature, self.broken, self.n_steps, self.n_calls = curvature, broken, 0, 0

    def step(self, batch):
        loss = self.curvature / 2 * self.module.weight.square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.n_steps += 1
        self.n_calls += 1
        if self.n_calls in self.broken:
            with torch.no_grad():
                self.module.weight.fill_(self.broken[self.n_calls])
        return {"loss": loss.item()}

    @property
    def rate(self):
        return self.optimizer.param_groups[0]["lr"]


def test_steps_that_are_too_large_are_made_smaller_until_training_converges():
    learner = Descent(rate=30.0)  # 30 and 7.5 diverge, 1.875 converges
    with pytest.warns(ConvergenceWarning) as caught:
        history = run(learner, n_epochs=40)
    texts = [str(one.message) for one in caught]
    assert "training diverged in epoch 1 (loss has grown from 0.5 to 7.09e+04)" in texts[0]
    assert "training diverged in epoch 2 (loss has grown from 0.5 to" in texts[1]
    assert all("goes on from the start with steps a quarter as large" in text for text in texts)
    assert len(texts) == 2
    assert learner.rate == 30 / 16
    assert [record["epoch"] for record in history] == list(range(1, 41))
    assert history[-1]["loss"] < 1e-9
    assert {record["rollbacks"] for record in history} == {2}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
def test_a_broken_weight_is_undone_even_if_the_loss_looks_fine(value):
    healthy, learner = Descent(rate=0.1), Descent(rate=0.1, broken={9: value})
    run(healthy, n_epochs=2)  # six steps
    with pytest.warns(ConvergenceWarning, match=r"in epoch 3 \(a weight of Linear"):
        history = run(learner, n_epochs=3)
    assert learner.n_steps == 9  # three of twelve were undone
    assert [record.get("rollbacks") for record in history] == [None, None, 1]
    expected = healthy.module.weight.item() * (1 - 0.1 / 4) ** 3
    assert learner.module.weight.item() == pytest.approx(expected, rel=1e-6)
    assert [record["epoch"] for record in history] == [1, 2, 3]


def test_a_moment_of_adam_that_overflows_is_undone():
    class Spike(Descent):
        def step(self, batch):
            losses = super().step(batch)
            if self.n_calls == 5:
                moments = next(iter(self.optimizer.state.values()))
                moments["exp_avg_sq"].fill_(float("inf"))  # from here on, no step would move it
            return losses

    learner = Spike(rate=0.1)
    learner.optimizer = torch.optim.Adam(learner.module.parameters(), lr=0.1)
    with pytest.warns(ConvergenceWarning, match="epoch 2 .a gradient is not finite"):
        run(learner)
    assert learner.rate == 0.1 / 4


def test_a_validation_score_that_is_no_number_is_undone():
    learner, scores = Descent(rate=0.1), iter([3.0, float("nan"), 2.0, 1.0])
    with pytest.warns(ConvergenceWarning, match="epoch 2 .validation is not finite"):
        history = run(learner, validate=lambda: next(scores))
    assert [record["validation"] for record in history] == [3.0, 2.0, 1.0]


def test_if_the_last_good_state_was_none_training_begins_again():
    learner = Descent(rate=90.0)  # the loss is that before the only step of an epoch
    with pytest.warns(ConvergenceWarning) as caught:
        history = run(learner, n_epochs=60, batch_size=10)
    where = [str(one.message).split("; it goes on from ")[1][:18] for one in caught]
    assert where == ["the end of epoch 1", "the start with ste", "the end of epoch 1"]
    assert learner.rate == 90 / 64
    assert history[-1]["loss"] < 1e-9


def test_what_cannot_be_mended_is_an_error_and_never_a_model():
    learner = Descent(rate=0.1, broken=dict.fromkeys(range(100), float("nan")))
    with (
        pytest.warns(ConvergenceWarning) as caught,
        pytest.raises(FloatingPointError, match="4,096 times smaller than asked for"),
    ):
        run(learner)
    assert len(caught) == 6
    assert learner.module.weight.item() == 1  # as it was


def test_losses_that_wander_are_no_divergence(recwarn):
    class Wanderer(Counter):
        def step(self, batch):
            super().step(batch)
            return {"loss": float(np.sin(self.value) * 5000)}

    run(Wanderer(), n_epochs=30)
    assert not recwarn.list


def test_verbose_levels_are_silence_a_bar_and_lines(capsys, monkeypatch):
    run(Counter(), verbose=0)
    run(Counter(), verbose=1)  # standard error is no terminal here
    assert capsys.readouterr().err == ""
    run(Counter(), verbose=2, label="model")
    assert capsys.readouterr().err.count("model: epoch") == 3
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(Counter(), verbose=1, label="model")
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "loss" in shown
