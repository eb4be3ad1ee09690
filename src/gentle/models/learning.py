"""How the default GENTLE is put together: parts of the data, networks, trees, their average."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from gentle.data import Grouped, Rows
from gentle.models.averaging import best_average, on_unseen
from gentle.models.boosting import Boosting
from gentle.models.distillation import with_pupil
from gentle.models.ensemble import Ensemble
from gentle.models.evaluation import Kind
from gentle.models.forest import LeafShares
from gentle.models.inputs import Inputs, View
from gentle.models.larger import Sampled
from gentle.models.lessons import Fold, Lessons, Resident, with_unseen
from gentle.models.neural import chosen_device
from gentle.models.school import LONG, School
from gentle.responses import ResponseEncoder

_MAX_SCORED = 4000  # held-out rows that decide about the weights of the average
_MIN_LEAF = (4, 12)  # rows in a leaf, by turns
_N_BINS = 400
_MIN_BOOSTED = 200  # covariates
_MAX_FOREST_ROWS = 50_000  # per fold, drawn at random
_STRENGTHS = (0.0, 0.003, 0.01, 0.03, 0.1)  # of the regulariser, if validation is to choose
_ATOMS_FORBID_LINEAR = 0.1  # share of atoms above which only ranks are used


def learn(
    model: Any, train: Grouped, validation: Grouped | None, rng: np.random.Generator
) -> tuple[Ensemble, list[dict[str, float]], float, int]:
    """Fit the default GENTLE.

    Args:
        model: Holds the settings.
        train: Encoded covariates with responses in their own units.
        validation: Rows that decide when to stop and how to average; without them, each part holds
            out some covariates of its own.
        rng: Source of all randomness.

    Returns:
        The ensemble, the history of its networks' training, its CRPS on unseen rows, their number.
    """
    rows = Rows.of(train)
    coordinates = _coordinates(model, train, rows)
    folds = _folds(train, validation, rng)
    boosting = _boosted(model, rows, coordinates, len(train), rng)
    n_columns = rows.x.shape[1]
    if boosting is not None:
        honest = partial(boosting.extended, honest=True)
        rows = replace(rows, x=honest(rows.x))
        folds = with_unseen(folds, lambda unseen: replace(unseen, x=honest(unseen.x)))
    inputs = Inputs.of(rows.x, rows.weight, rows.x.shape[1] - n_columns)
    device = chosen_device(model.device)
    if isinstance(train, Sampled):
        held_out = [fold.unseen.x[: 0 if validation else None, :n_columns] for fold in folds]
        lessons = train.all_rows.encoded(coordinates, inputs, boosting, held_out, device)
    else:
        lessons = Resident(rows, coordinates, inputs, device)
    school, history = _schooled(model, train, lessons, coordinates, folds, inputs, rng)
    if boosting is not None and not school.sees_boosted:
        boosting, inputs = None, school.forget_boosted()
        rows = replace(rows, x=rows.x[:, :n_columns])
    forests = _grown(model, rows, coordinates[0], school.folds, rng)
    parts = on_unseen(*school.parts, forests)
    weights, widening, crps = best_average(*parts)
    forest = LeafShares.joined(forests) if forests and weights[-1] > 0 else None
    useful = np.flatnonzero(weights[:-1]) if weights[-1] < 1 else np.array([0])
    school.keep_kinds(useful)
    if boosting is not None and forest is None and not school.sees_boosted:
        boosting, inputs = None, school.forget_boosted()
    weights = np.append(weights[useful], weights[-1])
    net = school.net.plain().eval()
    parts_of = (net, school.kinds, inputs, coordinates, forest, weights, widening)
    made = Ensemble(*parts_of, boosting=boosting)
    if model.compact and school.is_large and model.n_steps >= LONG:
        made = with_pupil(made, train.x, rng, model.verbose)
    were_unseen = validation is not None or folds[0].seen is not folds[1].seen
    return made, history, crps, len(parts[2]) if were_unseen else 0


def _schooled(
    model: Any,
    train: Grouped,
    lessons: Lessons,
    coordinates: list[ResponseEncoder],
    folds: list[Fold],
    inputs: Inputs,
    rng: np.random.Generator,
) -> tuple[School, list[dict[str, float]]]:
    """Trained networks; the strength of the regulariser is the given one, or the best of a grid."""
    strength = model.setting("reg_weight")
    seed, kinds = int(rng.integers(2**63)), _kinds(coordinates, inputs)
    found = []
    for one in _STRENGTHS if strength == "auto" else (strength,):
        own = np.random.default_rng(seed)
        school = School(model, lessons, coordinates, folds, inputs, kinds, own)
        school.strength = one
        if one:
            school.pull_together(train)
        history = school.train()
        found.append((float(school.best_score.mean()), len(found), school, history))
    return min(found)[2:]


def _coordinates(model: Any, train: Grouped, rows: Rows) -> list[ResponseEncoder]:
    bounds = train.all_rows.bounds(model.bounds) if isinstance(train, Sampled) else model.bounds
    options = {"tails": model.tails, "bounds": bounds, "atoms": model.atoms}
    ranks = ResponseEncoder.of(rows.y, rows.weight, scale="ranks", **options)
    at_atoms = np.isin(rows.y, ranks.plateaus[:, 2])
    if rows.weight[at_atoms].sum() > _ATOMS_FORBID_LINEAR * rows.weight.sum():
        return [ranks]
    return [ranks, ResponseEncoder.of(rows.y, rows.weight, scale="linear", **options)]


def _boosted(
    model: Any,
    rows: Rows,
    coordinates: list[ResponseEncoder],
    n_covariates: int,
    rng: np.random.Generator,
) -> Boosting | None:
    """What to expect of each row."""
    if not model.boosting or n_covariates < _MIN_BOOSTED:
        return None
    low, high = coordinates[-1].interval(rows.y)
    seed = int(rng.integers(2**31))
    return Boosting.of(rows.x, (low + high) / 2, rows.weight, seed)


def _kinds(coordinates: list[ResponseEncoder], inputs: Inputs) -> list[Kind]:
    ranks: tuple[View, ...] = ("boosted", "scores") if inputs.n_boosted else ("scores",)
    kinds = [Kind(0, ranks), Kind(len(coordinates) - 1, ("straight",))]
    return kinds + ([Kind(0, ("scores", "pieces"))] if len(inputs.column) else [])


def _n_folds(n_covariates: int) -> int:
    return next(
        n for n, most in ((5, 500), (4, 5000), (3, 50_000), (2, math.inf)) if n_covariates <= most
    )


def _folds(train: Grouped, validation: Grouped | None, rng: np.random.Generator) -> list[Fold]:
    """Covariates are dealt out with all their responses."""
    n, rows = len(train), Rows.of(train)
    n_folds = _n_folds(n)
    if validation is not None or n < 2 * n_folds:
        unseen = rows if validation is None else Rows.of(validation)
        if len(unseen.y) > _MAX_SCORED:
            unseen = unseen.take(rng.choice(len(unseen.y), _MAX_SCORED, replace=False))
        return [Fold(np.arange(len(rows.y)), unseen)] * n_folds
    size = max(1, min(n // 8, round(0.05 * n) + 250, 2500))
    order, group, folds = rng.permutation(n), train.group, []
    for fold in range(n_folds):
        held_out = np.zeros(n, bool)
        held_out[order[fold * size : (fold + 1) * size]] = True
        unseen = np.flatnonzero(held_out[group])
        if len(unseen) > 2 * _MAX_SCORED:
            unseen = rng.choice(unseen, 2 * _MAX_SCORED, replace=False)
        folds.append(Fold(np.flatnonzero(~held_out[group]), rows.take(unseen)))
    return folds


def _grown(
    model: Any, rows: Rows, coordinate: ResponseEncoder, folds: list[Fold], rng: np.random.Generator
) -> list[LeafShares]:
    """Trees of each fold, grown on the rows that it sees."""
    if not model.n_trees:
        return []
    n_trees = model.n_trees if model.n_steps >= LONG else math.ceil(model.n_trees / 2)
    low, high = coordinate.interval(rows.y)
    z = (low + high) / 2
    ends = coordinate.plateaus[:, :2].ravel()
    even = np.quantile(z, np.linspace(0, 1, _N_BINS + 1))
    edges = np.unique(np.concatenate([even, ends]))
    edges = edges[np.append(True, np.diff(edges) > 1e-12)]
    per_fold, parts = math.ceil(n_trees / len(folds)), []
    for number, fold in enumerate(folds):
        seen = fold.seen
        if len(seen) > _MAX_FOREST_ROWS:
            seen = rng.choice(seen, _MAX_FOREST_ROWS, replace=False)
        part = LeafShares.grown(
            rows.x[seen],
            z[seen],
            rows.weight[seen],
            edges,
            n_trees=per_fold,
            min_samples_leaf=_MIN_LEAF[number % 2],
            seed=int(rng.integers(2**31)),
            n_jobs=torch.get_num_threads(),
        )
        parts.append(part)
    return parts
