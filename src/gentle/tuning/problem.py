"""What all searches share: how settings are judged, and what comes of it."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle import metrics
from gentle.columns import Columns, taken
from gentle.data import Grouped, responses_per_covariate
from gentle.models.base import ConditionalGenerator
from gentle.models.intake import CheckedRows, EvalSet
from gentle.models.registry import model_class
from gentle.training import watching
from gentle.workers import finished

Floats = NDArray[np.float64]
Rows = tuple[Any, Floats, Floats]  # covariates as users pass them, responses, weights
Table = tuple[Any, ArrayLike, ArrayLike | None]  # the same as users pass them
Criterion = Literal["crps", "wd"]
Callback = Callable[[pd.DataFrame, int], None]
Outcome = float | str | None  # of a trial: its score, what went wrong, or given up

_MIN_RESPONSES_FOR_WD = 20
_HOPELESS = 3  # failures without a success


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a search found.

    Attributes:
        best_settings: Constructor arguments of the best trial, those that were searched over.
        best_score: Its validation score, smaller is better, in units of the response. The best of
            many trials is a lucky one too: test the model on rows that took no part.
        own_score: The score of the settings that the model came with, None in a grid search.
        criterion: "crps" or "wd".
        trials: One row per trial: ``number``, ``settings``, ``score`` (NaN unless finished),
            ``seconds``, and ``state``: "finished", "stopped early", "failed" or "interrupted".
        model: The best settings, fitted to the whole table: the training rows and, if they were
            held out of it, the validation rows.

    Example:
        >>> trials = pd.DataFrame({"settings": [{"k": 3}, {"k": 9}], "state": "finished"})
        >>> print(TuningResult({"k": 9}, 0.5, 0.8, "crps", trials, model_class("KNN")()))
        KNN: the best of 2 trials (2 finished) has a validation CRPS of 0.5, 37.5% below the 0.8 of
        the settings given.
          k = 9
    """

    best_settings: dict[str, Any]
    best_score: float
    own_score: float | None
    criterion: str
    trials: pd.DataFrame
    model: ConditionalGenerator

    @property
    def varied(self) -> list[str]:
        """Names of the settings that differ between trials."""
        tried = list(self.trials["settings"])
        return [name for name in self.best_settings if len({repr(s.get(name)) for s in tried}) > 1]

    def __str__(self) -> str:
        counts = self.trials["state"].value_counts()
        states = ", ".join(f"{n} {state}" for state, n in counts.items())
        text = (
            f"{type(self.model).__name__}: the best of {len(self.trials)} trials ({states}) has a "
            f"validation {self.criterion.upper()} of {self.best_score:.5g}"
        )
        if self.own_score == self.best_score:
            text += ": that of the settings given, which none could beat"
        elif self.own_score is not None:
            gain = 1 - self.best_score / self.own_score
            text += f", {gain:.1%} below the {self.own_score:.5g} of the settings given"
        return "\n".join(
            [f"{text}.", *(f"  {name} = {self.best_settings[name]!r}" for name in self.varied)]
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Which settings of a model, fitted to some rows, predict other rows best?

    Attributes:
        model: Holds the other settings, and a seed, the same for all trials.
        train: Rows to fit to.
        validation: Rows to score on; fits may use them for their own validation.
        criterion: "crps", the mean over responses, or "wd", the mean over covariates.
    """

    model: ConditionalGenerator
    train: Rows
    validation: Rows
    criterion: Criterion

    @classmethod
    def of(
        cls,
        model: ConditionalGenerator,
        table: Table,
        eval_set: EvalSet | None,
        validation_fraction: float,
        criterion: Criterion,
        seed: int,
    ) -> Problem:
        """The problem that a user poses; without an ``eval_set`` covariates are held out."""
        name = type(model).__name__
        rows = CheckedRows.of(*table, name)
        train: Rows = (taken(table[0], rows.at), rows.y, rows.weight)
        if eval_set is None:
            train, validation = _split(train, validation_fraction, seed)
        else:
            held_out = CheckedRows.of_eval(eval_set, rows.table, name)
            validation = (taken(eval_set[0], held_out.at), held_out.y, held_out.weight)
        _check_criterion(criterion, validation)
        seeded = isinstance(model.random_state, Integral)
        model = _changed(model, {} if seeded else {"random_state": seed})
        return cls(model, train, validation, criterion)

    def score(self, settings: dict[str, Any]) -> float:
        """Validation score of a model with these settings, smaller is better."""
        X, y, weight = self.validation
        # No covariate is seen that often, so no draws are made, where only the CRPS is wanted.
        often = _MIN_RESPONSES_FOR_WD if self.criterion == "wd" else len(y) + 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the model that is fitted last will say it once
            model = _changed(self.model, settings | {"verbose": 0})
            model.fit(*self.train, eval_set=self.validation)
            scores = metrics.evaluate(model, X, y, weight, min_responses=often)
        score = scores.summary()[self.criterion]
        if not math.isfinite(score):
            raise FloatingPointError(f"the validation {self.criterion.upper()} is {score}")
        return score

    def facts(self) -> dict[str, Any]:
        """What trials must have in common to be comparable, as texts."""
        settings = self.model.get_params(deep=False)
        digest = hashlib.sha256()
        for X, y, weight in (self.train, self.validation):
            for array in (Columns.of(X).keys(), y, weight):
                digest.update(np.ascontiguousarray(array).tobytes())
        return {
            "model": type(self.model).__name__,
            "settings": {
                name: repr(value)
                for name, value in settings.items()
                if name not in ("device", "verbose")
            },
            "criterion": self.criterion,
            "rows": digest.hexdigest(),
        }

    def concluded(
        self,
        trials: pd.DataFrame,
        own_score: float | None,
        error: str | None,
        table: Table,
        eval_set: EvalSet | None,
    ) -> TuningResult:
        """The best of some trials, fitted to the user's table."""
        if not trials["score"].notna().to_numpy().any():
            raise RuntimeError(f"no trial finished: {error or 'there was no time for one'}")
        best = int(np.nanargmin(trials["score"]))
        settings, score = trials["settings"].iloc[best], float(trials["score"].iloc[best])
        model = _changed(self.model, settings).fit(*table, eval_set)
        return TuningResult(settings, score, own_score, self.criterion, trials, model)


def as_model(model: ConditionalGenerator | str) -> ConditionalGenerator:
    """A model, from what users pass as one."""
    if isinstance(model, str):
        return model_class(model)()
    if not isinstance(model, ConditionalGenerator):
        raise TypeError(f"model must be an unfitted model such as GENTLE(), or a name; got {model}")
    return model


def check_settings(model: ConditionalGenerator, names: Iterable[str]) -> None:
    """Raise a ValueError that names settings which the model does not have."""
    known = model.get_params(deep=False)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"{type(model).__name__} has no setting {unknown[0]!r} to search over; "
            f"its settings are {', '.join(known)}"
        )


class Trials(Protocol):
    """The trials of a search: which comes next, whether it is worth finishing, how it went."""

    @property
    def problem(self) -> Problem:
        """What settings are judged by."""
        ...

    def ask(self, item: Any) -> Any:
        """Begin a trial; it has ``settings``. What an item is, is the search's own business."""
        ...

    def is_hopeless(self, trial: Any, record: dict[str, float]) -> bool:
        """Take down an epoch of the trial's training, and say whether it should be the last."""
        ...

    def tell(self, trial: Any, outcome: Outcome) -> str | None:
        """Store how a trial went; returns what went wrong, if anything."""
        ...


class _Stopped(Exception):
    """A trial is given up."""


@dataclass
class Course:
    """The course of a search.

    Attributes:
        trials: Makes and keeps the trials.
        items: What to begin them with, one after the other.
        deadline: When to begin no more of them.
        tell: Called at the start and after each trial.
        proven: Whether a trial has ended well. If none has, and none of the first three does, there
            is no point in going on.
        errors: What went wrong.
    """

    trials: Trials
    items: Sequence[Any]
    deadline: float
    tell: Callable[[], None]
    proven: bool
    errors: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether no further trial should begin."""
        return no_more(self.deadline) or (not self.proven and len(self.errors) >= _HOPELESS)

    def ended(self, error: str | None) -> None:
        """A trial has ended, well or with an error, which becomes a warning."""
        if error is None:
            self.proven = True
        else:
            warnings.warn(error, stacklevel=4)
            self.errors.append(error)
        self.tell()


_elsewhere: ContextVar[Callable[[Course], None] | None] = ContextVar("elsewhere", default=None)


@contextmanager
def run_by(runner: Callable[[Course], None]) -> Iterator[None]:
    """Let the searches within make their trials elsewhere than in processes of this machine."""
    token = _elsewhere.set(runner)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def driven(course: Course, n_workers: int) -> str | None:
    """Work through trials in processes; returns what went wrong last, if anything."""
    course.tell()
    if (runner := _elsewhere.get()) is not None:
        runner(course)
        return course.errors[-1] if course.errors else None
    items = [(course.trials, item, course.deadline) for item in course.items]
    for _, error in finished(_made, items, n_workers):
        if isinstance(error, Exception):
            raise error
        course.ended(error)
        if not course.proven and len(course.errors) == _HOPELESS:
            break
    return course.errors[-1] if course.errors else None


def _made(trials: Trials, item: Any, deadline: float) -> str | None:
    """Make a trial; returns what went wrong in it, if anything."""
    if no_more(deadline):
        return None
    trial = trials.ask(item)

    def watch(record: dict[str, float]) -> None:
        if trials.is_hopeless(trial, record):
            raise _Stopped

    return trials.tell(trial, outcome_of(trials.problem, trial.settings, watch))


def outcome_of(
    problem: Problem, settings: dict[str, Any], watch: Callable[[dict[str, float]], None]
) -> Outcome:
    """The score of some settings, None if their training is given up, or the error as a text."""
    try:
        with watching(watch):
            return problem.score(settings)
    except _Stopped:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def no_more(deadline: float) -> bool:
    """Whether no trial should start: time is over, or the process that wants it is gone."""
    parent = multiprocessing.parent_process()
    return time.time() >= deadline or (parent is not None and not parent.is_alive())


def as_deadline(timeout: float | None) -> float:
    """The end of the time for starting trials, on the clock that processes share."""
    return math.inf if timeout is None else time.time() + timeout


def as_table(records: list[tuple[int, dict[str, Any], float | None, float, str]]) -> pd.DataFrame:
    """Trials as in `TuningResult`."""
    columns = pd.Index(["number", "settings", "score", "seconds", "state"])
    frame = pd.DataFrame(records, columns=columns)
    return frame.astype({"number": int, "score": float, "seconds": float})


def _changed(model: ConditionalGenerator, settings: dict[str, Any]) -> ConditionalGenerator:
    """An unfitted copy with other settings."""
    return type(model)(**(model.get_params(deep=False) | settings))


def _taken(rows: Rows, which: NDArray[np.int64]) -> Rows:
    X, y, weight = rows
    return taken(X, which), y[which], weight[which]


def _split(rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Hold out a share of the covariates with all their rows."""
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must lie between 0 and 1, got {fraction!r}")
    numbered = Grouped.of(Columns.of(rows[0]).keys(), np.arange(len(rows[1]), dtype=np.float64))
    if len(numbered) < 2:
        raise ValueError(
            "all rows have the same covariates, so none can be held out; pass an eval_set"
        )
    parts = numbered.split(fraction, np.random.default_rng(seed))
    train, validation = (np.sort(part.y.astype(np.int64)) for part in parts)
    return _taken(rows, train), _taken(rows, validation)


def _check_criterion(criterion: Criterion, validation: Rows) -> None:
    if criterion not in get_args(Criterion):
        raise ValueError(f"criterion must be 'crps' or 'wd', got {criterion!r}")
    fewest = int(responses_per_covariate(validation[0]).min())
    if criterion == "wd" and fewest < _MIN_RESPONSES_FOR_WD:
        raise ValueError(
            f"criterion='wd' needs at least {_MIN_RESPONSES_FOR_WD} responses for every validation "
            f"covariate, but one has {fewest}. The Wasserstein distance to few responses is "
            "smallest for a point mass, so it would choose settings without spread. Use "
            "criterion='crps', or validate on covariates that repeat."
        )
