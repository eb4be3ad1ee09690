"""The only training loop: epochs of batches, validation, early stopping, progress."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

Record = dict[str, float]

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
        >>> epochs = []
        >>> with watching(epochs.append):
        ...     history = train(
        ...         lambda batch: {"loss": 1.0},
        ...         n_items=4,
        ...         batch_size=2,
        ...         n_epochs=3,
        ...         rng=np.random.default_rng(0),
        ...         modules=[],
        ...     )
        >>> epochs == history
        True
    """
    token = _watcher.set(callback)
    try:
        yield
    finally:
        _watcher.reset(token)


def train(
    step: Callable[[NDArray[np.int64]], Mapping[str, float]],
    *,
    n_items: int,
    batch_size: int,
    n_epochs: int,
    rng: np.random.Generator,
    modules: Sequence[nn.Module],
    validate: Callable[[], float] | None = None,
    patience: int | None = None,
    finished: Callable[[], bool] | None = None,
    label: str = "training",
    verbose: int = 0,
) -> list[Record]:
    """Run epochs of shuffled batches.

    With a patience, stop when validation no longer improves, and restore the best weights.

    Args:
        step: Takes the indices of a batch, updates the networks, and returns its losses by name,
            ``loss`` among them.
        n_items: Number of items to go through in an epoch.
        batch_size: Items in a batch; the last of an epoch may be smaller.
        n_epochs: Largest number of epochs.
        rng: Shuffles the items.
        modules: The networks whose best weights are restored.
        validate: Gives the criterion after each epoch, smaller is better.
        patience: Epochs without improvement after which training stops; None never stops and keeps
            the last weights.
        finished: Asked after each epoch whether to stop.
        label: What the progress bar calls the work.
        verbose: 0 is silent, 1 shows a progress bar in a terminal, 2 writes a line per epoch.

    Returns:
        One record per epoch: ``epoch``, the mean losses, ``validation`` (if any), ``seconds`` since
        the start.
    """
    history: list[Record] = []
    best, best_epoch, best_weights = math.inf, 0, None
    started, watcher = time.perf_counter(), _watcher.get()
    with _progress(label, n_epochs, verbose) as report:
        for epoch in range(1, n_epochs + 1):
            order = rng.permutation(n_items)
            totals: dict[str, float] = {}
            for first in range(0, n_items, batch_size):
                batch = order[first : first + batch_size]
                for name, value in step(batch).items():
                    totals[name] = totals.get(name, 0.0) + value * len(batch) / n_items
            record = {"epoch": float(epoch), **totals}
            _require_finite(record, modules)
            if validate is not None:
                record["validation"] = validate()
            record["seconds"] = time.perf_counter() - started
            history.append(record)
            report(record)
            if watcher is not None:
                watcher(record)
            if finished is not None and finished():
                break
            if validate is None or patience is None:
                continue
            if record["validation"] < best:
                best, best_epoch = record["validation"], epoch
                best_weights = [_weights(module) for module in modules]
            elif epoch - best_epoch >= patience:
                break
    if best_weights is not None:
        for module, weights in zip(modules, best_weights):
            module.load_state_dict(weights)
    return history


def _weights(module: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _require_finite(record: Record, modules: Sequence[nn.Module]) -> None:
    broken = [name for name, value in record.items() if not math.isfinite(value)]
    for module in modules:
        if not all(bool(p.isfinite().all()) for p in module.parameters()):
            broken.append(f"a weight of {type(module).__name__}")
    if broken:
        raise FloatingPointError(
            f"training diverged in epoch {record['epoch']:.0f}: {', '.join(broken)} is not finite. "
            "Lower the learning rates, or look for extreme values in the data."
        )


@contextmanager
def _progress(label: str, n_epochs: int, verbose: int) -> Iterator[Callable[[Record], None]]:
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
        task = bar.add_task(label, total=n_epochs, losses="")

        def report(record: Record) -> None:
            losses = {name: record[name] for name in ("loss", "validation") if name in record}
            bar.update(task, advance=1, losses=_told(losses))

        yield report
        bar.update(
            task, total=bar.tasks[0].completed
        )  # an early stop is a full bar, not a stuck one


def _told(record: Record) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in record.items())
