"""The only training loop: epochs of batches, validation, early stopping, faults, progress."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gentle import checkpoints, teams
from gentle.learners import Learner, restored, state_of, tensors_in

Record = dict[str, float]

_MAX_ROLLBACKS, _SLOWER = 6, 0.25  # together, steps become 4,096 times smaller
# The largest growth of the loss, from the start or from 1 where that is more, and the largest
# weight: of an epoch that is not undone at once, and of one in which training may end or to which
# it may go back. Losses of games wander, but all units are standardised.
_IMPOSSIBLE, _DOUBTFUL = (1e4, 1e3), (1e1, 1e2)

_watcher: ContextVar[Callable[[Record], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(callback: Callable[[Record], None]) -> Iterator[None]:
    """Show every epoch of the trainings within to someone who may end them.

    A search over settings sees in this way, through any model that trains here, how a fit is
    coming along, and gives up on a hopeless one.

    Args:
        callback: Gets the record of each epoch, as in the history. An exception that it raises
            ends the training and leaves ``fit`` with it; the model stays as it was.

    Example:
        >>> class Idler(Learner):
        ...     def step(self, batch):
        ...         return {"loss": 1.0}
        >>> epochs, rng = [], np.random.default_rng(0)
        >>> with watching(epochs.append):
        ...     history = train(Idler(), n_items=4, batch_size=2, n_epochs=3, rng=rng)
        >>> epochs == history
        True
    """
    token = _watcher.set(callback)
    try:
        yield
    finally:
        _watcher.reset(token)


def train(
    learner: Learner,
    *,
    n_items: int,
    batch_size: int,
    n_epochs: int | Callable[[], int],
    rng: np.random.Generator,
    validate: Callable[[], float] | None = None,
    patience: int | None = None,
    finished: Callable[[], bool] | None = None,
    label: str = "training",
    verbose: int = 0,
) -> list[Record]:
    """Run epochs of shuffled batches.

    With a patience, stop when validation no longer improves, and restore the best weights.

    An epoch after which a loss or a weight is not finite, or has become huge, is undone: training
    goes back to the end of the last sound epoch, takes smaller steps from there, and says so in a
    warning and in the history. Within `gentle.checkpoints.kept_in`, training goes on where an
    earlier run of the same fit was interrupted.

    Args:
        learner: Learns from one batch after the other.
        n_items: Number of items to go through in an epoch.
        batch_size: Items in a batch; the last of an epoch may be smaller.
        n_epochs: Largest number of epochs; a function that gives it, if it may change on the way.
        rng: Shuffles the items.
        validate: Gives the criterion after each epoch, smaller is better.
        patience: Epochs without improvement after which training stops; None never stops and keeps
            the last weights.
        finished: Asked after each epoch whether to stop.
        label: What the progress bar calls the work.
        verbose: 0 is silent, 1 shows a progress bar in a terminal, 2 writes a line per epoch.

    Returns:
        One record per epoch: ``epoch``, the mean losses, ``validation`` (if any), ``seconds`` since
        the start, ``rollbacks`` so far (if any).

    Raises:
        FloatingPointError: Training diverges with much smaller steps, too.
    """
    limit = n_epochs if callable(n_epochs) else lambda: n_epochs
    run = _Run(learner, n_items, batch_size, limit, rng, validate, patience, finished)
    start, watcher, checkpoint = run.state(), _watcher.get(), checkpoints.next_training()
    good = start
    # Of a team, the first process keeps the checkpoints and tells the others where to go on.
    stored = teams.present().of_first(None if checkpoint is None else checkpoint.read())
    if stored is not None:
        run.resume(good := stored, None if checkpoint is None else checkpoint.file)
        if verbose > 0:
            print(f"{label}: {run.where()}", file=sys.stderr, flush=True)
    with _bar(label, limit, verbose, run.n_done) as report:
        try:
            while not run.is_over:
                number = run.n_done + 1
                try:
                    now = run.next_epoch()
                except _Diverged as fault:
                    happened = f"{label}: training diverged in epoch {number} ({fault})"
                    run.go_back(good, start, happened)
                    good = run.state()
                    continue
                report(run.history[-1])
                if watcher is not None:
                    watcher(run.history[-1])
                if run.doubt() is None:
                    good = now
                    if checkpoint is not None:
                        checkpoint.offer(good)
        except (KeyboardInterrupt, SystemExit):
            if checkpoint is not None and good["progress"]["history"]:
                checkpoint.write(good)
            raise
    if checkpoint is not None and good is not stored:
        checkpoint.write(good)
    run.restore_best()
    return run.history


@dataclass
class _Progress:
    """How far a training has come, beside what its learner has learned."""

    history: list[Record] = field(default_factory=list)
    first_loss: float = 0.0  # before any step
    best: float = math.inf
    best_epoch: int = 0
    best_weights: list[dict[str, Tensor]] | None = None
    n_rollbacks: int = 0
    went_back_to: int | None = None  # epoch at whose end training began again
    is_over: bool = False


class _Diverged(Exception):
    """Says why the weights after an epoch are of no use."""


@dataclass
class _Run:
    """A training at work: see the arguments of `train`."""

    learner: Learner
    n_items: int
    batch_size: int
    limit: Callable[[], int]  # of epochs
    rng: np.random.Generator
    validate: Callable[[], float] | None
    patience: int | None
    finished: Callable[[], bool] | None
    progress: _Progress = field(default_factory=_Progress)
    started: float = field(default_factory=time.perf_counter)

    @property
    def history(self) -> list[Record]:
        return self.progress.history

    @property
    def n_done(self) -> int:
        return len(self.history)

    @property
    def is_over(self) -> bool:
        return self.progress.is_over or self.n_done >= self.limit()

    def state(self) -> dict[str, Any]:
        """A copy of where training is; all that it takes to go on from here."""
        parts = {"rng": self.rng, "progress": vars(self.progress)}
        return {"learner": self.learner.state_dict()} | state_of(parts)

    def go_to(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        restored(self.rng, state["rng"])
        self.progress = _Progress(**state_of(state["progress"]))

    def resume(self, state: dict[str, Any], file: Path | None) -> None:
        """Go to a state that an earlier process has left in a file."""
        try:
            self.go_to(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the checkpoint {str(file)!r} cannot be used here, perhaps because of another "
                f"device or version ({error}). Delete it to start anew."
            ) from error
        self.started -= self.history[-1]["seconds"]

    def where(self) -> str:
        if self.is_over:
            return f"was already trained, {self.n_done} epochs"
        return f"resuming after epoch {self.n_done} of at most {self.limit()}"

    def next_epoch(self) -> dict[str, Any]:
        """Learn for an epoch, put it on record, and return the state after it."""
        progress, record = self.progress, self._record_of_steps()
        if self.validate is not None:
            record["validation"] = self.validate()
            _require_finite({"validation": record["validation"]})
        record["seconds"] = time.perf_counter() - self.started
        if progress.n_rollbacks:
            record["rollbacks"] = float(progress.n_rollbacks)
        self.history.append(record)
        progress.is_over = self._is_enough(record)
        if self.is_over and (doubt := self.doubt()) is not None:
            raise _Diverged(doubt)
        return _all_finite(self.state())

    def _record_of_steps(self) -> Record:
        order = self.rng.permutation(self.n_items)
        totals: dict[str, float] = {}
        for first in range(0, self.n_items, self.batch_size):
            batch = order[first : first + self.batch_size]
            losses = self.learner.step(batch)
            if not (self.history or totals):
                self.progress.first_loss = losses["loss"]
            for name, value in losses.items():
                totals[name] = totals.get(name, 0.0) + value * len(batch) / self.n_items
        _require_finite(totals)
        if (fault := self._excess(totals["loss"], *_IMPOSSIBLE)) is not None:
            raise _Diverged(fault)
        return {"epoch": self.n_done + 1.0, **totals}

    def _is_enough(self, record: Record) -> bool:
        progress = self.progress
        if self.finished is not None and self.finished():
            return True
        if self.validate is None or self.patience is None:
            return False
        if record["validation"] < progress.best:
            progress.best, progress.best_epoch = record["validation"], self.n_done
            progress.best_weights = [state_of(network) for network in self.learner.networks]
        return self.n_done - progress.best_epoch >= self.patience

    def doubt(self) -> str | None:
        """Why training should not end here, nor go back to here."""
        return self._excess(self.history[-1]["loss"], *_DOUBTFUL)

    def _excess(self, loss: float, max_growth: float, max_weight: float) -> str | None:
        """What is larger than it may be, in words."""
        first = self.progress.first_loss
        if abs(loss) > max_growth * max(1.0, abs(first)):
            return f"loss has grown from {first:.3g} to {loss:.3g}"
        for network in self.learner.networks:
            sizes = [parameter.detach().abs().amax() for parameter in network.parameters()]
            largest = float(torch.stack(sizes).amax())
            if not math.isfinite(largest):
                return f"a weight of {type(network).__name__} is not finite"
            if largest > max_weight:
                return f"a weight of {type(network).__name__} has grown to {largest:.3g}"
        return None

    def go_back(self, good: dict[str, Any], start: dict[str, Any], happened: str) -> None:
        """Go to the last good state, or to the start if that has failed, and take smaller steps."""
        n_rollbacks, last = self.progress.n_rollbacks + 1, good["progress"]
        self.go_to(start if last["went_back_to"] == len(last["history"]) else good)
        if n_rollbacks > _MAX_ROLLBACKS:
            raise FloatingPointError(
                f"{happened}, although its steps are {_SLOWER**-_MAX_ROLLBACKS:,.0f} times smaller "
                "than asked for. Look for extreme values in the data, or lower the learning rates."
            )
        self.learner.slow_down(_SLOWER ** (n_rollbacks - self.progress.n_rollbacks))
        self.progress.n_rollbacks, self.progress.went_back_to = n_rollbacks, self.n_done
        where = f"the end of epoch {self.n_done}" if self.n_done else "the start"
        warnings.warn(
            f"{happened}; it goes on from {where} with steps a quarter as large. "
            "Lower the learning rates if this happens often.",
            ConvergenceWarning,
            stacklevel=3,
        )

    def restore_best(self) -> None:
        for network, weights in zip(self.learner.networks, self.progress.best_weights or []):
            network.load_state_dict(weights)


def _require_finite(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise _Diverged(f"{name} is not finite")


def _all_finite(state: dict[str, Any]) -> dict[str, Any]:
    """The state, unless one of its tensors is not finite, such as a moment of Adam."""
    sums = [tensor.sum() for tensor in tensors_in(state)]  # several times as fast as isfinite()
    if sums and not torch.stack(sums).isfinite().all():
        raise _Diverged("a gradient is not finite")
    return state


@contextmanager
def _bar(
    label: str, limit: Callable[[], int], verbose: int, n_done: int
) -> Iterator[Callable[[Record], None]]:
    """A progress bar on standard error; yields the function that advances it by an epoch."""
    if verbose <= 0:
        yield lambda record: None
        return
    if verbose > 1:
        yield lambda record: print(f"{label}: {_told(record)}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[losses]}", table_column=Column(no_wrap=True)),
    ]
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):  # a log file is no place for a moving bar
        yield lambda record: None
        return
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=limit(), completed=n_done, losses="")

        def report(record: Record) -> None:
            losses = {name: record[name] for name in ("loss", "validation") if name in record}
            bar.update(task, total=limit(), completed=record["epoch"], losses=_told(losses))

        yield report
        bar.update(
            task, total=bar.tasks[0].completed
        )  # an early stop is a full bar, not a stuck one


def _told(record: Record) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in record.items())
