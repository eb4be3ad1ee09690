from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn

from gentle.training import train


class Counter:
    """A network of one number that each step raises by one, and what the steps were given."""

    def __init__(self):
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.module.weight)
        self.batches = []

    def step(self, batch):
        self.batches.append(batch.tolist())
        with torch.no_grad():
            self.module.weight += 1
        return {"loss": float(len(self.batches))}

    @property
    def value(self):
        return self.module.weight.item()


def run(counter, **changes):
    settings = {"n_items": 10, "batch_size": 4, "n_epochs": 3} | changes
    rng = np.random.default_rng(0)
    return train(counter.step, rng=rng, modules=[counter.module], **settings)


def test_every_epoch_sees_every_item_once_in_another_order():
    counter = Counter()
    run(counter)
    epochs = [list(chain(*counter.batches[k : k + 3])) for k in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs} | {tuple(range(10))}) == 4
    assert [len(batch) for batch in counter.batches[:3]] == [4, 4, 2]


def test_losses_are_means_over_items():
    history = run(Counter())
    assert history[0]["loss"] == pytest.approx((1 * 4 + 2 * 4 + 3 * 2) / 10)
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


def test_a_broken_weight_is_found_even_if_the_loss_looks_fine():
    counter = Counter()

    def step(batch):
        with torch.no_grad():
            counter.module.weight.fill_(float("nan"))
        return {"loss": 1.0}

    with pytest.raises(FloatingPointError, match="a weight of Linear is not finite"):
        train(
            step,
            n_items=2,
            batch_size=2,
            n_epochs=1,
            rng=np.random.default_rng(0),
            modules=[counter.module],
        )


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
