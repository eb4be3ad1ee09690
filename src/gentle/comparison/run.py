"""Running a comparison: every model on every fold, in worker processes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from gentle.columns import taken
from gentle.comparison.folds import balanced_folds, units
from gentle.comparison.results import Comparison
from gentle.covariates import CovariateEncoder
from gentle.data import Grouped
from gentle.metrics import evaluate, noise_floor
from gentle.models import checks
from gentle.models.intake import CheckedRows
from gentle.models.reference import Marginal
from gentle.models.registry import MODULES, model_class
from gentle.streams import Seed, as_seed, uniforms
from gentle.workers import finished

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
States = dict[tuple[str, int], str]

# What a laptop fits to some ten thousand rows in minutes: this library's model, and what a user
# would try first. The adversarial models and the bridge train longer, the others need extras.
FIRST_CHOICE = ("GENTLE", "QuantileForest", "BoostedQuantiles", "KernelCDE", "KNN", "Marginal")

_DISTANCES = ["row", "n_responses", "wd", "ks"]


def compare(
    X: Any,
    y: ArrayLike,
    models: str | Sequence[str] | Mapping[str, Any] | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    n_folds: int = 5,
    n_workers: int = 1,
    random_state: Seed = 0,
    progress: Callable[[States], None] | None = None,
    min_responses: int = 20,
) -> Comparison:
    """Cross-validate several models on the same folds.

    Rows of equal covariates and rows of one group stay in one fold (`units`). Every response is
    scored once, by models that have seen neither it nor its unit. A model that fails, or whose
    package is not installed, is reported in the result; the others go on.

    Args:
        X: Covariates, array or DataFrame, ``(N, d)``; of any kind, as in ``fit``.
        y: Responses, ``(N,)``.
        models: Names of models; or labels with unfitted estimators, which have ``fit`` and
            ``predict_dist``, or with names; or "all" for every model of this library. None takes
            `FIRST_CHOICE`: GENTLE and what one would try first. `Marginal`, the yardstick, always
            takes part.
        sample_weight: Non-negative weights of the rows, ``(N,)``, for fitting and scoring; 0 leaves
            a row out.
        groups: Group of each row, numbers or text, ``(N,)``; not a covariate.
        n_folds: Number of folds.
        n_workers: Processes with one thread each; 1 works here and now, with all threads. A script
            that asks for more needs ``if __name__ == "__main__":`` around its own work. The number
            does not change the result, beyond the rounding of other numbers of threads.
        random_state: Seed of the folds, of randomised PIT values, and of every model whose own
            ``random_state`` is None.
        progress: Called at the start and whenever something has finished, with the state of each
            (model, fold): "waiting", "running", "done" or "failed".
        min_responses: Rows that a covariate must have for Wasserstein and Kolmogorov-Smirnov
            distances.

    Returns:
        The comparison; its `Comparison.verdict` says in words who wins.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (300, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 300)
        >>> result = compare(X, y, {"neighbours": model_class("KNN")(n_neighbors=20)})
        >>> result.table()["model"].tolist()
        ['neighbours', 'Marginal']
        >>> print(result.verdict().splitlines()[0])
        neighbours wins: its CRPS is 83 % smaller than Marginal's, the runner-up, more than noise.
    """
    specs, baseline = _specs(models)
    rows = CheckedRows.of(X, y, sample_weight, "compare")
    row, target, weight = rows.at, rows.y, rows.weight
    checks.varying_response(target, "compare")
    uninformative = CovariateEncoder.of(rows.table, weight).uninformative
    checks.warn_of_uninformative_columns(**uninformative)
    unit = units(rows.table, None if groups is None else _of_rows(groups, row, len(X)))
    _warn_of_a_giant(unit)
    seed = as_seed(random_state)
    task = _Task(
        X=taken(X, row),
        keys=rows.table.keys(),
        y=target,
        weight=None if sample_weight is None else weight,
        fold=balanced_folds(unit, n_folds, seed),
        seed=seed,
        uniform=uniforms(seed, len(X), 1)[row, 0],
        min_responses=min_responses,
    )
    items = [(label, fold, spec, task) for label, spec in specs.items() for fold in range(n_folds)]
    cells, records, distances = _results(items, n_workers, progress)
    if baseline not in set(records["model"]):
        reason = cells.loc[cells["model"] == baseline, "error"].iloc[0]
        raise ValueError(f"not even a forecast that ignores the covariates could be made: {reason}")
    records = records.assign(unit=unit[records["row"]], weight=weight[records["row"]])
    for frame in (records, distances):
        frame["row"] = row[frame["row"]]  # as in the user's table
    return Comparison(records, cells, distances, _floor(task) if len(distances) else None, baseline)


def _specs(models: str | Sequence[str] | Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Estimators or names of models by label, and which of them ignores the covariates."""
    if models is None or models == "all":
        models = FIRST_CHOICE if models is None else tuple(MODULES)
    elif isinstance(models, str):
        models = [models]
    specs = dict(models) if isinstance(models, Mapping) else {name: name for name in models}
    for spec in specs.values():
        if isinstance(spec, str) and spec not in MODULES:
            raise ValueError(f"there is no model {spec!r}; the models are {', '.join(MODULES)}")
    for label, spec in specs.items():
        if spec == "Marginal" or isinstance(spec, Marginal):
            return specs, label
    if "Marginal" in specs:
        raise ValueError(
            "the label 'Marginal' is kept for the forecast that ignores the covariates, which "
            "always takes part; choose another label"
        )
    return specs | {"Marginal": "Marginal"}, "Marginal"


def _of_rows(groups: Any, row: Ints, n_rows: int) -> pd.Series:
    """The groups of some rows, which remember their rows."""
    groups = pd.Series(groups).reset_index(drop=True)
    if len(groups) != n_rows:
        raise ValueError(f"groups has {len(groups)} entries, but X has {n_rows} rows")
    return groups.iloc[row]


def _warn_of_a_giant(unit: Ints) -> None:
    share = np.bincount(unit).max() / len(unit)
    if share > 0.5:
        warnings.warn(
            f"{share:.0%} of the rows are linked by equal covariates or groups and have to stay in "
            "one fold; the comparison rests on few rows and its standard errors are rough",
            UserWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class _Task:
    """What all cells share; rows of weight 0 are gone."""

    X: Any  # as the user passed it, (N, d)
    keys: Floats  # equal for equal covariates, (N, d)
    y: Floats  # (N,)
    weight: Floats | None  # (N,)
    fold: Ints  # (N,)
    seed: int
    uniform: Floats  # for randomised PIT values, (N,)
    min_responses: int


def _floor(task: _Task) -> pd.DataFrame:
    least = task.min_responses
    whole = noise_floor(
        None, task.X, task.y, task.weight, random_state=task.seed, min_responses=least
    )
    return whole.loc[["wd", "ks"]]


def _results(
    items: list[tuple[Any, ...]], n_workers: int, progress: Callable[[States], None] | None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row per cell; one per cell and held-out row; one per cell and repeated covariate."""
    states: States = {(label, fold): "waiting" for label, fold, *_ in items}
    n_workers = min(n_workers, len(items))

    def tell() -> None:
        unfinished = [cell for cell, state in states.items() if state in ("waiting", "running")]
        for cell in unfinished[: max(n_workers, 1)]:  # workers take them in this order
            states[cell] = "running"
        if progress is not None:
            progress(dict(states))

    tell()
    found = {}
    results: Any = finished(_cell, items, n_workers)
    with closing(results):  # stops the workers, whatever happens here
        for (label, fold, *_), result in results:
            failed = isinstance(result, Exception)
            states[label, fold] = "failed" if failed else "done"
            found[label, fold] = (_failure(result), None, None) if failed else result
            tell()
    cells = pd.DataFrame([{"model": m, "fold": f} | found[m, f][0] for m, f in states])
    records, distances = ({cell: found[cell][which] for cell in states} for which in (1, 2))
    return cells, _joined(records), _joined(distances)


def _joined(frames: dict[Any, pd.DataFrame | None]) -> pd.DataFrame:
    """The frames of the cells that have one, one below the other."""
    frames = {cell: frame for cell, frame in frames.items() if frame is not None}
    if not frames:
        return pd.DataFrame({name: [] for name in ["model", "fold", *_DISTANCES]})
    whole = pd.concat(frames, names=["model", "fold"])
    return whole.reset_index(level=["model", "fold"]).reset_index(drop=True)


def _failure(error: Exception) -> dict[str, Any]:
    missing = isinstance(error, ImportError)
    reason = str(error) if missing else f"{type(error).__name__}: {error}"
    seconds = {"fit_seconds": np.nan, "predict_seconds": np.nan}
    return seconds | {"error": " ".join(reason.split()), "missing": missing}


def _cell(
    label: str, fold: int, spec: Any, task: _Task
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame | None]:
    """Fit one model without one fold, and score it there."""
    train, held_out = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold == fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each cell would repeat what `compare` has said once
        model = _unfitted(spec, task.seed)
        weights = {} if task.weight is None else {"sample_weight": task.weight[train]}
        started = time.perf_counter()
        model.fit(taken(task.X, train), task.y[train], **weights)
        fitted = time.perf_counter()
        table = Grouped.of(task.keys[held_out], held_out.astype(np.float64))  # rows, not responses
        records = _scored(model, table, task)
        done = time.perf_counter()
        distances = _distances(model, table, task)
    seconds = {"fit_seconds": fitted - started, "predict_seconds": done - fitted}
    return seconds | {"error": None, "missing": False}, records, distances


def _unfitted(spec: Any, seed: int) -> Any:
    model: Any = model_class(spec)() if isinstance(spec, str) else clone(spec)
    parameters = model.get_params()
    if parameters.get("random_state", seed) is None:
        model.set_params(random_state=seed)
    if "verbose" in parameters:
        model.set_params(verbose=0)  # bars of many cells would overwrite each other
    return model


def _scored(model: Any, table: Grouped, task: _Task) -> pd.DataFrame:
    """Scores of each held-out row, predicted once per distinct covariate."""
    # An atom may come back from standardised units a few roundings away from the response.
    reach = 64 * np.finfo(float).eps * (np.abs(task.y) + np.abs(task.y).mean())  # (N,)
    parts = []
    for which in table.chunks(extra_cells=1000):
        part = table.take(which)
        padded, there = part.padded()
        row = padded.astype(np.int64)  # (n, m)
        y = task.y[row]
        dist = model.predict_dist(taken(task.X, row[:, 0]))
        below, up_to = dist.cdf(y - reach[row]), dist.cdf(y + reach[row])
        pit = below + task.uniform[row] * (up_to - below)  # uniform also where y is an atom
        columns = {"row": row, "crps": dist.crps(y), "pit": pit}
        parts.append(pd.DataFrame({name: c[there > 0] for name, c in columns.items()}))
    records = pd.concat(parts).sort_values("row", ignore_index=True)
    if not np.isfinite(records[["crps", "pit"]].to_numpy()).all():
        raise FloatingPointError("its forecasts are not finite")
    off_centre = np.abs(records["pit"] - 0.5)
    return records.assign(covered_50=off_centre <= 0.25, covered_90=off_centre <= 0.45)


def _distances(model: Any, table: Grouped, task: _Task) -> pd.DataFrame | None:
    """Distances of whole distributions at the held-out covariates that repeat often."""
    often = table.take(np.flatnonzero(table.counts >= task.min_responses))
    if not len(often):
        return None
    row = often.y.astype(np.int64)
    scores: Any = evaluate(
        model,
        taken(task.X, row),
        task.y[row],
        None if task.weight is None else task.weight[row],
        random_state=task.seed,
        min_responses=task.min_responses,
    ).records
    return scores.assign(row=row[scores["first_row"]])[_DISTANCES]
