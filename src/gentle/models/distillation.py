"""One network that answers like an average of many networks and trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gentle.learners import Learner
from gentle.models.ensemble import Ensemble
from gentle.models.evaluation import INNER, Kind, knots_among_levels, quadrature
from gentle.nets import MonotoneNet
from gentle.optim import Adam
from gentle.training import train

Floats = NDArray[np.float64]

_ALL = Kind(0, ("straight", "scores", "pieces"))
_RATE = 0.003
_BATCH = 256
_MAX_ASKED = 30_000  # covariates, twice as many with those that are made up
_MIN_ASKED = 10_000
_SWAPPED = 0.15  # share of entries that a made-up covariate has from another one
_MAX_TRIED = 1_000  # covariates at which teacher and pupil are compared
_CHUNK = 5_000


def distilled(
    teacher: Ensemble,
    x: Floats,
    widths: Sequence[int],
    n_steps: int,
    rng: np.random.Generator,
    verbose: int,
) -> tuple[Ensemble, list[dict[str, float]]]:
    """Teach one network the teacher's answers.

    It is asked at the covariates and at as many made-up ones, in which columns of different
    covariates are mixed: the pupil must not only know what it was taught.

    Args:
        teacher: The average.
        x: Encoded covariates, ``(n, d)``, at least 2.
        widths: Units of its hidden layers.
        n_steps: Of training.
        rng: Source of all randomness.
        verbose: 1 shows a progress bar.

    Returns:
        The pupil, with its distance from the teacher at covariates that it was not taught, and the
        history of its training.
    """
    x = x[rng.permutation(len(x))[: _MAX_ASKED + _MAX_TRIED]]
    n_tried = min(_MAX_TRIED, max(1, len(x) // 10))
    tried, asked = x[:n_tried], x[n_tried:]
    asked = np.resize(asked, (max(len(asked), min(_MIN_ASKED, 20 * len(asked))), x.shape[1]))
    other = rng.permuted(asked, axis=0)  # each column by itself
    asked = np.concatenate([asked, np.where(rng.random(asked.shape) < _SWAPPED, other, asked)])
    pupil = _Pupil(teacher, asked, widths, n_steps, rng)
    n_epochs = max(1, round(n_steps * _BATCH / len(asked)))
    history = train(
        pupil,
        n_items=len(asked),
        batch_size=min(_BATCH, len(asked)),
        n_epochs=n_epochs,
        rng=rng,
        label="distillation",
        verbose=verbose,
    )
    one, first = np.array([1.0, 0.0]), teacher.coordinates[:1]
    made = Ensemble(pupil.net.eval(), [_ALL], pupil.inputs, first, None, one, 1.0)
    there, here = (first[0].decode(model.average(tried)) for model in (teacher, made))
    distance = float((np.abs(here - there) @ quadrature(INNER)).mean())
    return replace(made, distance=distance), history


class _Pupil(Learner):
    """A network that imitates answers, by the mean distance of quantiles in z."""

    _changing: ClassVar[tuple[str, ...]] = ("net", "optimizer", "rate", "step_number")

    def __init__(
        self,
        teacher: Ensemble,
        x: Floats,
        widths: Sequence[int],
        n_steps: int,
        rng: np.random.Generator,
    ) -> None:
        device, self.inputs = teacher.net.knots.device, teacher.inputs.without_boosted()
        source = torch.Generator().manual_seed(int(rng.integers(2**63)))
        self.net = MonotoneNet(1, len(self.inputs), widths, generator=source).to(device)
        columns = knots_among_levels(self.net)
        answers = [
            teacher.average(x[first : first + _CHUNK])[:, columns]
            for first in range(0, len(x), _CHUNK)
        ]
        self.z = torch.as_tensor(np.concatenate(answers), dtype=torch.float32, device=device)
        self.x = torch.as_tensor(self.inputs.encode(x), dtype=torch.float32, device=device)
        self.optimizer, self.rate = Adam(self.net.parameters()), _RATE
        self.step_number, self.n_steps = 0, n_steps

    def step(self, batch: NDArray[np.int64]) -> dict[str, float]:
        """One step of the network."""
        some = torch.as_tensor(batch, device=self.x.device)
        self.optimizer.zero_grad()
        loss = (self.net(self.x[some].unsqueeze(0))[0] - self.z[some]).abs().mean()
        loss.backward()
        done = min(1.0, self.step_number / self.n_steps)
        self.optimizer.step(self.rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))))
        self.step_number += 1
        return {"loss": loss.item()}

    def slow_down(self, factor: float) -> None:
        """Multiply the size of all steps from now on."""
        self.rate *= factor
