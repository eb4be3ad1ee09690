"""The grid search of the paper: every combination of some values, by validation."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from sklearn.model_selection import ParameterGrid

from gentle.models.base import ConditionalGenerator, EvalSet
from gentle.models.gentle import PAPER
from gentle.streams import Seed
from gentle.tuning.folder import Folder, study_folder
from gentle.tuning.problem import (
    Callback,
    Course,
    Criterion,
    Outcome,
    Problem,
    TuningResult,
    as_deadline,
    as_model,
    as_table,
    check_settings,
    driven,
)

PAPER_GRID: Mapping[str, Sequence[Any]] = {
    name: (value,) for name, value in PAPER["ecm"].items()
} | {
    "reg_weight": (0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8),
    "bandwidth": (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7),
}
"""The paper's search for GENTLE: λ and h vary, all else is as in its experiments."""


def grid_search(
    model: ConditionalGenerator | str,
    grid: Mapping[str, Sequence[Any]],
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    eval_set: EvalSet | None = None,
    validation_fraction: float = 0.2,
    criterion: Criterion = "wd",
    timeout: float | None = None,
    n_workers: int = 1,
    folder: Folder = None,
    random_state: Seed = None,
    callback: Callback | None = None,
) -> TuningResult:
    """Try every combination of some values of a model's settings.

    The arguments that `search` has too mean the same here.

    Args:
        model: An unfitted model, or the name of one.
        grid: Values by setting, such as `PAPER_GRID`.
        X: Covariates, ``(n, d)``.
        y: Responses, ``(n,)``.
        sample_weight: Weights of the rows, ``(n,)``.
        eval_set: Rows to validate on; None holds out some covariates.
        validation_fraction: Share of the covariates to hold out then.
        criterion: "wd", as in the paper, needs 20 responses for every validation covariate; "crps"
            suits any rows.
        timeout: Seconds after which no further point is begun.
        n_workers: Processes, one thread each; 1 works here and now.
        folder: Where every finished point is kept. A later call, of a larger grid too, computes
            only what is not there.
        random_state: Seed of the split and, unless the model has its own, of the fits.
        callback: As in `search`.

    Returns:
        The best settings, all points, and a model fitted with the best settings.

    Example:
        >>> X = [[float(i)] for i in range(40)]
        >>> y = [i + i % 3 for i in range(40)]
        >>> grid = {"n_neighbors": (3, 30)}
        >>> grid_search("KNN", grid, X, y, criterion="crps", random_state=0).best_settings
        {'n_neighbors': 3}
    """
    model = as_model(model)
    points = {_key(point): point for point in ParameterGrid(grid)}
    check_settings(model, {name for point in points.values() for name in point})
    table = (X, y, sample_weight)
    with study_folder(folder) as place:
        seed = place.seed(random_state)
        problem = Problem.of(model, table, eval_set, validation_fraction, criterion, seed)
        place.agree({"kind": "grid search", "seed": seed, **problem.facts()})
        files = {place.path / f"{key}.json": point for key, point in points.items()}
        items = [item for item in files.items() if _stored(item[0]).get("score") is None]

        def tell() -> None:
            if callback is not None:
                callback(_trials(files), len(files))

        proven = len(items) < len(files)
        course = Course(_Points(problem), items, as_deadline(timeout), tell, proven)
        error = driven(course, n_workers)
        trials = _trials(files)
    return problem.concluded(trials, None, error, table, eval_set)


@dataclass
class _Point:
    file: Path
    settings: dict[str, Any]
    started: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class _Points:
    """The points of a grid, a file each; see `Trials`."""

    problem: Problem

    def ask(self, item: tuple[Path, dict[str, Any]]) -> _Point:
        return _Point(*item)

    def is_hopeless(self, trial: _Point, record: dict[str, float]) -> bool:
        return False

    def tell(self, trial: _Point, outcome: Outcome) -> str | None:
        failed = isinstance(outcome, str)
        record = {
            "settings": trial.settings,
            "score": None if failed else outcome,
            "error": f"{trial.settings} failed with {outcome}" if failed else None,
            "seconds": time.perf_counter() - trial.started,
        }
        scratch = trial.file.with_suffix(".part")
        scratch.write_text(json.dumps(record, default=repr), encoding="utf-8")
        os.replace(scratch, trial.file)  # a stored point is a whole one
        return record["error"]


def _key(settings: dict[str, Any]) -> str:
    """A file name for some settings."""
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stored(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _trials(files: dict[Path, dict[str, Any]]) -> pd.DataFrame:
    records = []
    for number, (file, settings) in enumerate(files.items()):
        if record := _stored(file):
            state = "failed" if record["score"] is None else "finished"
            records.append((number, settings, record["score"], record["seconds"], state))
    return as_table(records)
