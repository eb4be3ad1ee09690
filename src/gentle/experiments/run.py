"""Cells of work: fitted, scored and stored one by one, so that nothing is ever done twice."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gentle import datasets, metrics, plots
from gentle.experiments.spec import Cell, Profile
from gentle.models.reference import KNN
from gentle.workers import finished

N_PANELS = 6  # test covariates whose distributions are kept for the figures
LEVELS = np.linspace(0, 1, 1001)


class Store:
    """The results of a reproduction: a folder with two files per finished cell.

    ``NAME.json`` holds what was run, on what machine and when, the times, and the scores, one per
    test covariate; ``NAME.npz`` the quantiles that the figures show. The first appears last, whole
    or not at all, so a cell that has one is done.

    Args:
        folder: Where the cells are.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def has(self, cell: Cell) -> bool:
        """Whether this very cell, with these settings, is done."""
        found = self._json(cell.name)
        return found is not None and cell.agrees(found)

    def put(self, cell: Cell, facts: dict[str, Any], curves: dict[str, Any]) -> None:
        """Store a finished cell."""
        path = self.folder / f"{cell.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {name: np.asarray(v, np.float32) for name, v in curves.items()}
        with _replacing(path.with_suffix(".npz")) as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, **arrays)
        with _replacing(path) as scratch:
            scratch.write_text(json.dumps(facts), encoding="utf-8")

    def facts(self, cell: Cell) -> dict[str, Any]:
        """What is known of a finished cell."""
        found = self._json(cell.name)
        if found is None or not cell.agrees(found):
            raise FileNotFoundError(f"the cell {cell.name} is not done yet")
        return found

    def scores(self, cell: Cell) -> metrics.Scores:
        """The scores of a finished cell."""
        return metrics.Scores(pd.DataFrame(self.facts(cell)["records"]))

    def curves(self, cell: Cell) -> dict[str, Any]:
        """What the figures show of a finished cell: ``quantiles`` and maybe ``map``."""
        self.facts(cell)
        with np.load(self.folder / f"{cell.name}.npz") as arrays:
            return dict(arrays)

    def floor(self, dataset: str, profile: Profile) -> pd.DataFrame:
        """What a perfect model would score on a data set, computed once."""
        options = profile.datasets.get(dataset, {})
        wanted = {"options": dict(options), "draws": profile.draws, "n": profile.floor_repeats}
        found = self._json(f"{dataset}/noise-floor")
        if found is None or found["wanted"] != wanted:
            benchmark = datasets.load(dataset, **options)
            truth = benchmark.truth or KNN(n_neighbors=100).fit(*benchmark.train)
            floor = metrics.noise_floor(
                truth, *benchmark.test, n_repeats=profile.floor_repeats, n_samples=profile.draws
            )
            found = {"wanted": wanted, "floor": floor.to_dict()}
            path = self.folder / dataset / "noise-floor.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            with _replacing(path) as scratch:
                scratch.write_text(json.dumps(found), encoding="utf-8")
        return pd.DataFrame(found["floor"])

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def run(
    cells: Sequence[Cell],
    store: Store,
    n_workers: int = 1,
    tell: Callable[[Cell, Exception | None], None] = lambda cell, error: None,
) -> list[tuple[Cell, Exception]]:
    """Do the cells that are not done yet.

    Args:
        cells: The work.
        store: Where results go, each as soon as it is there.
        n_workers: Processes to work in, one thread each.
        tell: Called for each cell as it ends, with what went wrong or None.

    Returns:
        The cells that failed, with the reasons.
    """
    work = [(str(store.folder), cell) for cell in cells if not store.has(cell)]
    failed = []
    for (_, cell), error in finished(run_cell, work, n_workers):
        tell(cell, error)
        if error is not None:
            failed.append((cell, error))
    return failed


def run_cell(folder: str, cell: Cell) -> None:
    """Fit, score and store one cell, unless another process has done so."""
    store = Store(folder)
    if store.has(cell):
        return
    with _one_thread():
        benchmark = datasets.load(cell.dataset, **cell.options)
        model = cell.estimator()
        started = time.perf_counter()
        model.fit(*benchmark.train)
        fit_seconds = time.perf_counter() - started
        store.put(cell, *measured(cell, model, benchmark, fit_seconds))


def measured(
    cell: Cell, model: Any, benchmark: datasets.Benchmark, fit_seconds: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to store of a fitted model: facts and scores, and the curves of the figures."""
    X, y = benchmark.test.X, benchmark.test.y
    distinct = X.drop_duplicates()
    started = time.perf_counter()
    model.sample(distinct, cell.draws, cell.seed)
    sample_seconds = time.perf_counter() - started
    scores = metrics.evaluate(model, *benchmark.test, n_samples=cell.draws, random_state=cell.seed)
    facts = {
        **cell.facts(),
        "n_train": len(benchmark.train),
        "fit_seconds": round(fit_seconds, 2),
        "sample_seconds": round(sample_seconds, 3),
        "spread": float(np.mean(model.predict_dist(distinct).std())),
        "machine": f"{platform.machine()}, one thread of {os.cpu_count()} cores",
        "date": date.today().isoformat(),
        "records": _rounded(scores.records),
    }
    shown, _ = plots.often_seen(X, y, N_PANELS)
    curves = {"quantiles": model.predict_quantiles(shown, LEVELS)}
    if hasattr(model, "transport_map"):
        curves["map"] = model.transport_map(shown, LEVELS)
    return facts, curves


def _rounded(records: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns for JSON, eight digits."""
    return {
        str(name): [float(f"{v:.8g}") if isinstance(v, float) else v for v in column.tolist()]
        for name, column in records.items()
    }


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write in place of another, which it becomes when it is complete."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield scratch
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Everything on one thread: their number changes times, and the last digits of results."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
