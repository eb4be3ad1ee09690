"""One network that answers like an average of many networks and trees."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from gentle.learners import Learner
from gentle.models.ensemble import Ensemble
from gentle.models.evaluation import LEVELS, Kind, knots_among_levels
from gentle.models.inputs import View
from gentle.nets import MonotoneNet
from gentle.optim import Adam
from gentle.responses import translated
from gentle.training import train, watching

Floats = NDArray[np.float64]

_ALL: tuple[View, ...] = ("straight", "scores", "pieces")
_RATE = 0.004
_BATCH = 128
_MAX_ASKED = 30_000  # covariates, twice as many with those that are made up
_MIN_ASKED = 10_000
_SWAPPED = 0.15  # share of entries that a made-up covariate has from another one
_MAX_TRIED = 1_000  # covariates at which teacher and pupil are compared
_CHUNK = 5_000
_AS_GOOD = 0.002  # part by which the CRPS of a network that answers may be larger
_N_ASKED, _N_STEPS = 10_000, (1_000, 4_000)  # of its training, at the end of a fit
_ROWS_PER_STEP = 20  # between these: what is known well is worth being taught well


def with_pupil(teacher: Ensemble, x: Floats, rng: np.random.Generator, verbose: int) -> Ensemble:
    """The average with one network that answers in its place, if that is as good.

    Args:
        teacher: The average.
        x: Encoded covariates, all different, ``(n, d)``.
        rng: Source of all randomness.
        verbose: 1 shows a progress bar.
    """
    effort = Effort(int(np.clip(len(x) / _ROWS_PER_STEP, *_N_STEPS)), _N_ASKED)
    with watching(lambda record: None), warnings.catch_warnings():  # no part of the fit
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            pupil, _ = distilled(teacher, x, effort, rng, verbose)
        except FloatingPointError:  # weights of the average that no training may begin with
            return teacher
    is_as_good = pupil.excess is not None and pupil.excess <= _AS_GOOD
    return replace(teacher, pupil=pupil) if is_as_good else teacher


@dataclass(frozen=True)
class Effort:
    """How much is done to teach.

    Attributes:
        n_steps: Of training.
        max_asked: Covariates at which the teacher is asked, and as many made-up ones.
    """

    n_steps: int
    max_asked: int = _MAX_ASKED


def distilled(
    teacher: Ensemble, x: Floats, effort: Effort, rng: np.random.Generator, verbose: int
) -> tuple[Ensemble, list[dict[str, float]]]:
    """Teach one network the teacher's answers.

    It starts as a network of the kind that weighs most in the average, of those that do without
    boosted trees, if there are any. It is taught at the covariates and at as many made-up ones, in
    which columns of different covariates are mixed: the pupil must not only know what it was
    taught.

    Args:
        teacher: The average.
        x: Encoded covariates, ``(n, d)``, at least 2.
        effort: How much is done.
        rng: Source of all randomness.
        verbose: 1 shows a progress bar.

    Returns:
        The pupil, with its distance from the teacher at covariates that it was not taught, and the
        history of its training.
    """
    x = x[rng.permutation(len(x))[: effort.max_asked + _MAX_TRIED]]
    n_tried = min(_MAX_TRIED, max(1, len(x) // 10))
    tried, asked = x[:n_tried], x[n_tried:]
    asked = np.resize(asked, (max(len(asked), min(_MIN_ASKED, 20 * len(asked))), x.shape[1]))
    other = rng.permuted(asked, axis=0)  # each column by itself
    asked = np.concatenate([asked, np.where(rng.random(asked.shape) < _SWAPPED, other, asked)])
    pupil = _Pupil(teacher, asked, effort.n_steps)
    n_epochs = max(1, round(effort.n_steps * _BATCH / len(asked)))
    history = train(
        pupil,
        n_items=len(asked),
        batch_size=min(_BATCH, len(asked)),
        n_epochs=n_epochs,
        rng=rng,
        label="distillation",
        verbose=verbose,
    )
    inputs = teacher.inputs.without_boosted()
    one = np.array([1.0, 0.0])
    made = Ensemble(pupil.net.eval(), [pupil.kind], inputs, teacher.coordinates, None, one, 1.0)
    distance, excess = differences(teacher, made, tried)
    return replace(made, distance=distance, excess=excess), history


def differences(teacher: Ensemble, pupil: Ensemble, x: Floats) -> tuple[float, float | None]:
    """How far a pupil is from its teacher.

    Args:
        teacher: The average.
        pupil: The network.
        x: Encoded covariates at which they are compared, ``(n, d)``.

    Returns:
        The mean Wasserstein distance, in units of the response; and the part by which the pupil's
        CRPS would be larger than the teacher's, if the teacher's distributions F were the true
        ones: ∫ (G - F)² dy beside ∫ F (1 - F) dy. None if these leave nothing open and differ.
    """
    there, here = (model.table(x) for model in (teacher, pupil))
    u = (np.arange(len(LEVELS)) + 0.5) / len(LEVELS)
    distance = float(np.abs(here.quantile(u) - there.quantile(u)).mean())
    y = np.sort(np.hstack([table.quantile(LEVELS) for table in (there, here)]), axis=1)
    middle, width = (y[:, 1:] + y[:, :-1]) / 2, np.diff(y)
    f, g = (table._at("cdf", middle) for table in (there, here))
    lost, left = (float((square * width).sum()) for square in ((g - f) ** 2, f * (1 - f)))
    if left > 0:
        return distance, lost / left
    return distance, None if lost > 0 else 0.0


class _Pupil(Learner):
    """A network that imitates answers, by the mean distance of quantiles in z."""

    _changing: ClassVar[tuple[str, ...]] = ("net", "optimizer", "rate", "step_number")

    def __init__(self, teacher: Ensemble, x: Floats, n_steps: int) -> None:
        self.net, self.kind = _beginning(teacher)
        device, inputs = teacher.net.knots.device, teacher.inputs.without_boosted()
        columns = knots_among_levels(self.net)
        answers = [
            _answers(teacher, x[first : first + _CHUNK], self.kind.coordinate)[:, columns]
            for first in range(0, len(x), _CHUNK)
        ]
        self.z = torch.as_tensor(np.concatenate(answers), dtype=torch.float32, device=device)
        self.x = torch.as_tensor(inputs.encode(x), dtype=torch.float32, device=device)
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


def _beginning(teacher: Ensemble) -> tuple[MonotoneNet, Kind]:
    """A network of the average, free to see all but boosted trees."""
    blinded = np.array(["boosted" in kind.views for kind in teacher.kinds])  # by what it loses
    number = int(np.lexsort((-teacher.weights[:-1], blinded))[0])
    kind, inputs = teacher.kinds[number], teacher.inputs
    net = teacher.net.taken([number]).plain()
    seen = torch.zeros(len(inputs), dtype=torch.bool)
    for view in kind.views:
        seen[inputs.view(view)] = True
    with torch.no_grad():
        net.weights[0][:, ~seen] = 0.0
    if inputs.n_boosted:
        net = net.without_inputs(inputs.view("boosted"))
    return net, Kind(kind.coordinate, _ALL, kind.slides)


def _answers(teacher: Ensemble, x: Floats, coordinate: int) -> Floats:
    """The teacher's z at the levels in a coordinate of its own, ``(n, L)``."""
    z, first = teacher.average(x), teacher.coordinates[0]
    return translated(z, first, teacher.coordinates[coordinate]) if coordinate else z
