"""What tables.py and synthetic.py share: tuned rivals, cells of work that survive a kill, options.

A benchmark is a folder. ``cells/DATASET/METHOD-SPLIT.json`` and ``.npz`` hold one fitted and scored
model, ``tuning/DATASET/METHOD.json`` one search. Each file is written whole, as soon as there is
something to write; a later run does what is missing, and what was done with other settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import gentle
from gentle import experiments
from gentle.datasets import Table
from gentle.experiments.run import Store, _one_thread, _replacing
from gentle.models.registry import MODULES, model_class
from gentle.tuning.smart import _suggested, _written
from gentle.workers import finished, n_cores

GENTLE = "GENTLE"  # always as it comes, never tuned
RIVALS = (
    "KNN",
    "QuantileForest",
    "BoostedQuantiles",
    "CatBoost",
    "RealMLP",
    "Engression",
    "NGBoost",
)
_PACKAGES = (
    "gentle-ot numpy pandas scikit-learn torch optuna catboost ngboost engression pytabkit".split()  # noqa: SIM905
)
_HOPELESS = 3  # failures without a success

Parts = tuple[Table, Table, Table]  # to fit, to validate, to score


class Benchmark:
    """What differs between the two benchmarks; a subclass can be sent to other processes."""

    folder: Path
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    splits: str
    unit: str  # of what the sets are called in options
    untuned: tuple[str, ...] = ()  # rivals that are taken as they come

    def options(self, max_rows: int | None, validation: bool) -> dict[str, Any]:
        """What the rows of a cell depend on, beside its data set and split."""
        raise NotImplementedError

    def parts(self, dataset: str, split: int, options: Mapping[str, Any]) -> Parts:
        raise NotImplementedError

    def measured(self, model: Any, dataset: str, test: Table, split: int) -> tuple[dict, dict]:
        """Scores of a fitted model: a few numbers, and arrays."""
        raise NotImplementedError

    def report(self, plan: Plan) -> str:
        """Markdown; may write other files into the folder."""
        raise NotImplementedError


class Cell(experiments.Cell):
    """One model, fitted to one split of one data set."""

    def agrees(self, stored: Mapping[str, Any]) -> bool:
        """As in `experiments.Cell`, but GENTLE's settings must be the same ones, too."""
        same = self.method != GENTLE or self.facts()["settings"].keys() == stored["settings"].keys()
        return same and super().agrees(stored)


@dataclass(frozen=True)
class Plan:
    """Which cells are wanted."""

    benchmark: Benchmark
    folder: Path
    datasets: Sequence[str]
    methods: Sequence[str]
    splits: Sequence[int]
    options: Mapping[str, Any]
    n_trials: int

    @property
    def store(self) -> Store:
        return Store(self.folder / "cells")

    def search_file(self, dataset: str, method: str) -> Path:
        return self.folder / "tuning" / dataset / f"{method.lower()}.json"

    def cell(self, dataset: str, method: str, split: int, settings: Mapping[str, Any]) -> Cell:
        return Cell(
            dataset, self.options, method, method, False, settings, split, draws=0
        )  # no draws: all scores are exact

    def stored(self, dataset: str, method: str) -> dict[int, tuple[dict, dict]]:
        """Facts and arrays of the finished cells, by split."""
        settings = self.settings(dataset, method)
        if settings is None:
            return {}
        cells = {split: self.cell(dataset, method, split, settings) for split in self.splits}
        store = self.store
        return {s: (store.facts(c), store.curves(c)) for s, c in cells.items() if store.has(c)}

    def settings(self, dataset: str, method: str) -> dict[str, Any] | None:
        """The settings to use, None if the search for them is not over."""
        as_it_comes = method == GENTLE or method in self.benchmark.untuned or self.n_trials == 0
        if as_it_comes or not model_class(method).search_space:
            return {}
        found = _searched(self.search_file(dataset, method), self._wanted(method))
        if len(found) < self.n_trials:
            return None
        scored = [trial for trial in found[: self.n_trials] if trial["score"] is not None]
        return min(scored, key=lambda trial: trial["score"])["settings"] if scored else None

    def forget(self, method: str) -> None:
        """Remove what is stored of a method."""
        for dataset in self.datasets:
            self.search_file(dataset, method).unlink(missing_ok=True)
            for split in self.splits:
                cell = self.cell(dataset, method, split, {})
                (self.store.folder / f"{cell.name}.json").unlink(missing_ok=True)

    def search(self, dataset: str, method: str) -> None:
        """Tune a method by the validation CRPS of split 0; the first trial is its defaults."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        wanted, path = self._wanted(method), self.search_file(dataset, method)
        known = {
            json.dumps(trial["settings"]): trial
            for trial in _searched(path, wanted)
            if trial["score"] is not None  # what has failed gets another chance
        }
        train, val, _ = self.benchmark.parts(dataset, 0, self.options)
        space, given = model_class(method).search_space, model_class(method)().get_params()
        own = {name: _written(given[name], among) for name, among in space.items()}
        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=5)  # of ten, say
        study = optuna.create_study(sampler=sampler)
        study.enqueue_trial({name: value for name, value in own.items() if value is not None})
        trials: list[dict[str, Any]] = []
        for number in range(self.n_trials):
            trial = study.ask()  # seeded: a search that goes on asks for what it has asked before
            # What is outside the space, such as "by validation", stays as it comes at first.
            names = [name for name in space if number > 0 or own[name] is not None]
            settings = {name: _suggested(trial, name, space[name]) for name in names}
            key = json.dumps(settings)
            if key not in known:
                cell, started = self.cell(dataset, method, 0, settings), time.perf_counter()
                try:
                    model = fitted(cell, train, val)
                    score, error = float(model.predict_dist(val.X).crps(val.y).mean()), None
                except Exception as failure:
                    score, error = None, f"{type(failure).__name__}: {failure}"
                seconds = round(time.perf_counter() - started, 2)
                known[key] = {
                    "settings": settings,
                    "score": score if score is not None and np.isfinite(score) else None,
                    "seconds": seconds,
                    "error": error,
                }
                say(f"{dataset} {method} trial {number}: {error or f'{score:.5g}'}, {seconds} s")
            found = known[key]
            if found["score"] is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, found["score"])
            trials.append(found)
            _write(path, {"wanted": wanted, "trials": trials, **circumstances()})
            if len(trials) == _HOPELESS and all(trial["score"] is None for trial in trials):
                break
        if self.settings(dataset, method) is None:
            raise RuntimeError(f"no trial worked: {trials[-1]['error']}")

    def run(self, dataset: str, method: str) -> list[str]:
        """Tune a method, then fit and score it on every split; returns what went wrong."""
        failures = []
        with _one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.settings(dataset, method) is None:
                self.search(dataset, method)
            for split in self.splits:
                cell = self.cell(dataset, method, split, self.settings(dataset, method) or {})
                if self.store.has(cell):
                    continue
                try:
                    self._do(cell, dataset, split)
                except Exception as error:
                    failures.append(f"{cell.name}: {type(error).__name__}: {error}")
        return failures

    def is_done(self, dataset: str, method: str) -> bool:
        return len(self.stored(dataset, method)) == len(self.splits)

    def _do(self, cell: Cell, dataset: str, split: int) -> None:
        train, val, test = self.benchmark.parts(dataset, split, self.options)
        started = time.perf_counter()
        model = fitted(cell, train, val)
        seconds = time.perf_counter() - started
        scores, arrays = self.benchmark.measured(model, dataset, test, split)
        sizes = {"n_train": len(train), "n_val": len(val), "n_test": len(test)}
        facts = {**cell.facts(), **sizes, "fit_seconds": round(seconds, 3), **scores}
        self.store.put(cell, {**facts, **circumstances()}, arrays)
        shown = {name: value for name, value in scores.items() if isinstance(value, float)}
        first = ", ".join(f"{name} {value:.5g}" for name, value in list(shown.items())[:1])
        say(f"{cell.name}: {first}, {seconds:.1f} s")

    def _wanted(self, method: str) -> dict[str, Any]:
        """What trials must have in common."""
        settings = self.cell("", method, 0, {}).facts()["settings"]
        space = {name: repr(among) for name, among in model_class(method).search_space.items()}
        return {"options": dict(self.options), "settings": settings, "space": space}


def fitted(cell: Cell, train: Table, val: Table) -> Any:
    """The same call for all: those that validate do so on ``val``, the others ignore it."""
    return cell.estimator().fit(train.X, train.y, eval_set=(val.X, val.y))


def circumstances() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, one thread of {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": _versions(),
        "code": _code(),
        "date": date.today().isoformat(),
    }


def main(benchmark: Benchmark, description: str | None) -> None:
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(f"--{benchmark.unit}", dest="datasets", metavar="A,B", help="only these (default: all)")
    add("--methods", default=",".join(benchmark.methods), help="default: %(default)s")
    add("--splits", default=benchmark.splits, help="numbers, as 0-4 or 0,2 (default: %(default)s)")
    add("--trials", type=int, default=10, help="settings tried per rival (default: %(default)s)")
    add("--max-rows", type=int, help="training rows at most, for a quick look")
    add("--validation", action="store_true", help="leave test rows alone; for choosing defaults")
    add("--redo", default="", metavar="METHOD", help="forget these methods' results first")
    add("--workers", type=int, default=n_cores(), help="processes (default: %(default)s)")
    add("--out", type=Path, help="folder (default: beside this script)")
    add("--report", action="store_true", help="write the report of what is there, run nothing")
    args = parser.parse_args()
    folder = args.out or benchmark.folder / ("validation" if args.validation else ".")
    plan = Plan(
        benchmark,
        folder.resolve(),
        _listed(args.datasets, benchmark.datasets, parser),
        _listed(args.methods, tuple(MODULES), parser),
        _numbers(args.splits),
        benchmark.options(args.max_rows, args.validation),
        args.trials,
    )
    if not args.report:
        for method in _listed(args.redo, tuple(MODULES), parser) if args.redo else ():
            plan.forget(method)
        _run(plan, args.workers)
    path = plan.folder / "report.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as scratch:
        scratch.write_text(benchmark.report(plan), encoding="utf-8")
    say(f"wrote {os.path.relpath(path)}")


def _run(plan: Plan, n_workers: int) -> None:
    pairs = [(dataset, method) for dataset in plan.datasets for method in plan.methods]
    todo = [(plan, dataset, method) for dataset, method in pairs]
    todo = [item for item in todo if not plan.is_done(*item[1:])]
    say(f"{len(pairs) - len(todo)} of {len(pairs)} pairs of data set and method are done")
    for number, ((_, *pair), result) in enumerate(finished(Plan.run, todo, n_workers), start=1):
        failures = [repr(result)] if isinstance(result, Exception) else result
        say(f"[{number}/{len(todo)}] {' '.join(pair)}: {'; '.join(failures) or 'done'}")


def heading(plan: Plan, title: str) -> list[str]:
    """What a report says first: how it was made."""
    cells = {
        (dataset, method, split): facts
        for dataset in plan.datasets
        for method in plan.methods
        for split, (facts, _) in plan.stored(dataset, method).items()
    }
    if not cells:
        return [f"# {title}", "Nothing has been run yet."]
    lines = [f"# {title}"]
    states = {facts["code"] for (_, method, _), facts in cells.items() if method == GENTLE}
    if len(states) > 1:
        lines.append(
            f"**Caution: GENTLE's cells were made with {len(states)} states of the code; "
            f"`--redo {GENTLE}` makes them anew.**"
        )
    dates = sorted(facts["date"] for facts in cells.values())
    last = max(cells.values(), key=lambda facts: facts["date"])
    packages = ", ".join(f"{name} {number}" for name, number in last["versions"].items())
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    lines.append(f"{when}; {last['machine']}; Python {last['python']}, {packages}.")
    return lines


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table; what is not there stays empty."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [heads, ["---"] * len(heads), *([str(row.get(h, "")) for h in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")


def number(value: float, digits: int = 4) -> str:
    """Significant digits without an exponent; nothing for what is not there."""
    if np.isnan(value):
        return ""
    return np.format_float_positional(value, digits, fractional=False, trim="-")


def say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


def _searched(path: Path, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials of a search for the same."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    then, now = found["wanted"], json.loads(json.dumps(wanted))  # tuples are lists there
    # A setting that only one of the two knows is no disagreement: models gain settings.
    common = then["settings"].keys() & now["settings"].keys()
    agree = all(then[name] == now[name] for name in ("options", "space")) and all(
        then["settings"][name] == now["settings"][name] for name in common
    )
    return found["trials"] if agree else []


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as scratch:
        scratch.write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _listed(text: str | None, known: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    names = list(known) if text is None else [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _numbers(text: str) -> list[int]:
    ranges = [part.split("-") for part in text.split(",")]
    return [n for ends in ranges for n in range(int(ends[0]), int(ends[-1]) + 1)]


@cache
def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def _code() -> str:
    """A fingerprint of the library's source."""
    digest = sha256()
    for path in sorted(Path(gentle.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
