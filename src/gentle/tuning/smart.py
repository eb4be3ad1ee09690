"""A search that learns from its trials where to look, by Optuna."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.models.base import ConditionalGenerator, EvalSet
from gentle.spaces import Between, OneOf, Space
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

_JOURNAL = "trials.log"
_AS_GIVEN = "as given"  # marks the trial of the settings that the model came with
_ERROR = "error"
_STARTUP = 5  # finished trials before any is stopped early
_WARMUP = 6  # first epoch after which a fit may be stopped


def search(
    model: ConditionalGenerator | str,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    space: Space | None = None,
    eval_set: EvalSet | None = None,
    validation_fraction: float = 0.2,
    criterion: Criterion = "crps",
    n_trials: int = 50,
    timeout: float | None = None,
    n_workers: int = 1,
    folder: Folder = None,
    random_state: Seed = None,
    callback: Callback | None = None,
) -> TuningResult:
    """Search a model's settings with a tree-structured Parzen estimator.

    The first trial is the model as it came, so that the best is never worse than that on the
    validation rows. All trials see the same rows and the same seed. A fit that trains by epochs is
    stopped early when the best it has reached is worse than what half of the finished trials had
    at that epoch, from the sixth epoch on and once five trials have finished. With one worker,
    equal seeds give equal results.

    Args:
        model: An unfitted model, or the name of one.
        X: Covariates, array or DataFrame, ``(n, d)``; of any kind, as in ``fit``.
        y: Responses, ``(n,)``.
        sample_weight: Non-negative weights of the rows, ``(n,)``.
        space: What to vary; None is what the model declares, its ``search_space``.
        eval_set: Rows to validate on, ``(X, y)`` or ``(X, y, sample_weight)``, which the fits get
            for their own validation too. None holds out some covariates, equal ones together.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out then.
        criterion: "crps", the mean over the validation responses, or "wd", the mean Wasserstein
            distance over the validation covariates, if each has at least 20 responses.
        n_trials: Trials that end with a score or an early stop, those of earlier calls included.
        timeout: Seconds after which no further trial is begun; those at work are finished.
        n_workers: Processes, one thread each; 1 works here and now.
        folder: Where every trial is kept. The same call goes on from there, after a kill too, or
            to a larger ``n_trials``. None keeps nothing.
        random_state: Seed of the split, the search and, unless the model has its own, of the fits.
        callback: Called at the start and after each trial with the trials so far, as in
            `TuningResult`, and the number of trials planned.

    Returns:
        The best settings, all trials, and a model fitted with the best settings.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
        >>> found = search("KNN", X, y, n_trials=5, random_state=0)
        >>> len(found.trials), found.best_score <= found.own_score
        (5, True)
        >>> found.model.predict(X[:2]).shape
        (2,)
    """
    _optuna()
    model = as_model(model)
    space = dict(model.search_space if space is None else space)
    if not space:
        raise ValueError(f"{type(model).__name__} declares no search_space; pass a space")
    check_settings(model, space)
    table = (X, y, sample_weight)
    with study_folder(folder) as place:
        seed = place.seed(random_state)
        problem = Problem.of(model, table, eval_set, validation_fraction, criterion, seed)
        listed = {name: repr(among) for name, among in space.items()}
        place.agree({"kind": "smart search", "seed": seed, "space": listed, **problem.facts()})
        study = _resumed(place.path, _own(problem, space))

        def trials() -> pd.DataFrame:
            return _trials(study, space, problem)

        def tell() -> None:
            if callback is not None:
                callback(trials(), n_trials)

        n_done = int(trials()["state"].isin(["finished", "stopped early"]).sum())
        made = _Trials(problem, space, place.path, seed)
        items = [None] * (n_trials - n_done)
        error = driven(Course(made, items, as_deadline(timeout), tell, n_done > 0), n_workers)
        found = trials()
        own_score = _score_as_given(study)
    return problem.concluded(found, own_score, error, table, eval_set)


@dataclass
class _Trial:
    of_study: Any  # Optuna's own object
    settings: dict[str, Any]
    n_epochs: int = 0  # taken down so far


@dataclass(frozen=True)
class _Trials:
    """The trials of a study in a folder; see `Trials`."""

    problem: Problem
    space: Space
    folder: Path
    seed: int

    def ask(self, item: None) -> _Trial:
        study = _study(self.folder)
        trial = study.ask()
        # A source of its own for every trial: an interrupted search goes on as if it had not been.
        own_seed = int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0])
        study.sampler = _optuna().samplers.TPESampler(seed=own_seed, multivariate=False)
        names = _own(self.problem, self.space) if _AS_GIVEN in trial.user_attrs else self.space
        return _Trial(trial, {name: _suggested(trial, name, self.space[name]) for name in names})

    def is_hopeless(self, trial: _Trial, record: dict[str, float]) -> bool:
        if "validation" not in record:
            return False
        trial.n_epochs += 1
        trial.of_study.report(record["validation"], trial.n_epochs)
        return _AS_GIVEN not in trial.of_study.user_attrs and trial.of_study.should_prune()

    def tell(self, trial: _Trial, outcome: Outcome) -> str | None:
        states, study, of_study = _optuna().trial.TrialState, _study(self.folder), trial.of_study
        if outcome is None:
            study.tell(of_study, state=states.PRUNED)
        elif isinstance(outcome, str):
            of_study.set_user_attr(_ERROR, outcome)
            study.tell(of_study, state=states.FAIL)
            return f"trial {of_study.number} ({trial.settings}) failed with {outcome}"
        else:
            study.tell(of_study, outcome)
        return None


def _study(folder: Path) -> Any:
    """The study in a folder, created if there is none."""
    optuna = _optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # users did not ask for a study by name
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(folder / _JOURNAL))),
            study_name="gentle",
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(),  # each trial brings its own
            pruner=optuna.pruners.MedianPruner(_STARTUP, _WARMUP),
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _resumed(folder: Path, own: Mapping[str, Any]) -> Any:
    """The study in a folder, tidied up after a kill, with the settings given as first trial."""
    states = _optuna().trial.TrialState
    journal = folder / _JOURNAL
    if journal.exists():  # half a line would make the whole journal unreadable
        os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
    journal.with_name(f"{_JOURNAL}.lock").unlink(missing_ok=True)
    study = _study(folder)
    for trial in study.get_trials(False, (states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)
    begun = study.get_trials(False, (states.WAITING, states.COMPLETE))
    if not any(_AS_GIVEN in trial.user_attrs for trial in begun):
        study.enqueue_trial(dict(own), {_AS_GIVEN: True})
    return study


def _own(problem: Problem, space: Space) -> dict[str, Any]:
    """Those of the settings given that lie in the space, as the study writes them."""
    given = problem.model.get_params(deep=False)
    written = {name: _written(given[name], among) for name, among in space.items()}
    return {name: value for name, value in written.items() if value is not None}


def _written(value: Any, among: OneOf | Between) -> Any:
    """A value as the study writes it, None if it lies outside the space."""
    if isinstance(among, OneOf):
        return next((text for text, known in _texts(among).items() if known == value), None)
    inside = isinstance(value, Integral if _whole(among) else Real)
    inside = inside and among.low <= value <= among.high
    return (int if _whole(among) else float)(value) if inside else None


def _suggested(trial: Any, name: str, among: OneOf | Between) -> Any:
    if isinstance(among, OneOf):
        return _texts(among)[trial.suggest_categorical(name, list(_texts(among)))]
    suggest = trial.suggest_int if _whole(among) else trial.suggest_float
    return suggest(name, among.low, among.high, log=among.log)


def _texts(among: OneOf) -> dict[str, Any]:
    """Values by texts, which a study can store whatever the values are."""
    return {repr(value): value for value in among.values}


def _whole(among: Between) -> bool:
    return isinstance(among.low, int) and isinstance(among.high, int)


def _trials(study: Any, space: Space, problem: Problem) -> pd.DataFrame:
    """The trials that have ended."""
    states = _optuna().trial.TrialState
    names = {states.COMPLETE: "finished", states.PRUNED: "stopped early", states.FAIL: "failed"}
    given = problem.model.get_params(deep=False)
    records = []
    for trial in study.get_trials(False, tuple(names)):
        settings = {name: given[name] for name in space if _AS_GIVEN in trial.user_attrs}
        for name, value in trial.params.items():
            among = space[name]
            settings[name] = _texts(among)[value] if isinstance(among, OneOf) else value
        state, seconds = names[trial.state], trial.duration.total_seconds()
        score = trial.value if state == "finished" else None  # else it is that of an epoch
        if trial.state == states.FAIL and _ERROR not in trial.user_attrs:
            state, seconds = "interrupted", np.nan  # nobody saw when
        records.append((trial.number, settings, score, seconds, state))
    return as_table(records)


def _score_as_given(study: Any) -> float | None:
    done = study.get_trials(False, (_optuna().trial.TrialState.COMPLETE,))
    return next((trial.value for trial in done if _AS_GIVEN in trial.user_attrs), None)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "search needs the package 'optuna': pip install 'gentle-ot[tune]'"
        ) from error
    return optuna
