"""Searches over settings on several workers, by Ray Tune."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from gentle import tuning
from gentle.cluster.connection import MAX_DEATHS, connect, import_ray, quiet, require_cpus
from gentle.models.base import ConditionalGenerator
from gentle.tuning import TuningResult
from gentle.tuning.problem import Course, Problem, outcome_of, run_by


def search(
    model: ConditionalGenerator | str,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cluster: str = "local",
    n_workers: int = 2,
    **options: Any,
) -> TuningResult:
    """Search a model's settings on a cluster: as `gentle.tuning.search`, with trials on workers.

    The search spaces, the folder and the result are the same. This process asks and stores, workers
    fit and score; a worker that dies is replaced, and its trial made again. With one worker the
    trials are those of a search in one process, with several they depend on which end first.
    The seconds of a trial include those in which a worker starts.

    Args:
        model: An unfitted model, or the name of one.
        X: Covariates, ``(n, d)``.
        y: Responses, ``(n,)``.
        sample_weight: Weights of the rows, ``(n,)``.
        cluster: "local", "auto" or "ray://host:port"; see `connect`. For ``ray://`` the search
            itself runs on the cluster, where its folder is then.
        n_workers: Trials at once, each in a process with one thread.
        options: What else `gentle.tuning.search` takes, but its own ``n_workers``.

    Returns:
        The best settings, all trials, and a model fitted with the best settings.

    Example:
        >>> X = [[float(i)] for i in range(40)]
        >>> found = search("KNN", X, range(40), n_trials=20, cluster="local")  # doctest: +SKIP
    """
    work = partial(tuning.search, model, X, y, sample_weight, **options)
    with connect(cluster, n_workers) as call:
        return call(_searched, work, n_workers)


def grid_search(
    model: ConditionalGenerator | str,
    grid: Mapping[str, Sequence[Any]],
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cluster: str = "local",
    n_workers: int = 2,
    **options: Any,
) -> TuningResult:
    """Try every combination of some values on a cluster: as `gentle.tuning.grid_search`.

    Args:
        model: An unfitted model, or the name of one.
        grid: Values by setting, such as `gentle.tuning.PAPER_GRID`.
        X: Covariates, ``(n, d)``.
        y: Responses, ``(n,)``.
        sample_weight: Weights of the rows, ``(n,)``.
        cluster: As for `search`.
        n_workers: Points at once.
        options: What else `gentle.tuning.grid_search` takes.

    Returns:
        The best settings, all points, and a model fitted with the best settings.

    Example:
        >>> X = [[float(i)] for i in range(40)]
        >>> grid = {"n_neighbors": (3, 30)}
        >>> grid_search("KNN", grid, X, range(40), criterion="crps")  # doctest: +SKIP
    """
    work = partial(tuning.grid_search, model, grid, X, y, sample_weight, **options)
    with connect(cluster, n_workers) as call:
        return call(_searched, work, n_workers)


def _searched(work: partial[TuningResult], n_workers: int) -> TuningResult:
    require_cpus(n_workers)
    with run_by(partial(_run, n_workers)):
        return work()


def _run(n_workers: int, course: Course) -> None:
    """Make the trials of a search by Ray Tune, whose searcher and scheduler ask ours."""
    import_ray()
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler
    from ray.tune.search import ConcurrencyLimiter, Searcher

    items, trials, at_work, n_seen = list(course.items), course.trials, {}, {}
    if not items:
        return

    class Asking(Searcher):
        def suggest(self, trial_id: str) -> Any:
            if course.is_over or not items:
                return Searcher.FINISHED
            at_work[trial_id] = trial = trials.ask(items.pop(0))
            return {"settings": trial.settings}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            died = "RuntimeError: its worker process died again and again; out of memory, perhaps"
            outcome = died if error else (result or {}).get("outcome")
            course.ended(trials.tell(at_work.pop(trial_id), outcome))

        def save(self, checkpoint_path: str) -> None:
            """The folder of the search keeps all that there is to keep."""

        restore = save

    class Watching(FIFOScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
            key, number = trial.trial_id, result.get("number", 0)
            if number <= n_seen.get(key, 0):  # the end, or an epoch made again after a death
                return self.CONTINUE
            n_seen[key] = number
            hopeless = trials.is_hopeless(at_work[key], {"validation": result["validation"]})
            return self.STOP if hopeless else self.CONTINUE

    with tempfile.TemporaryDirectory(prefix="gentle-cluster-") as scratch, quiet("ray.tune"):
        tune.Tuner(
            tune.with_resources(tune.with_parameters(_tried, problem=trials.problem), {"cpu": 1}),
            tune_config=tune.TuneConfig(
                search_alg=ConcurrencyLimiter(Asking(), max_concurrent=n_workers),
                scheduler=Watching(),
                num_samples=len(items),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=scratch,
                failure_config=tune.FailureConfig(max_failures=MAX_DEATHS),
                verbose=0,
            ),
        ).fit()


def _tried(config: dict[str, Any], problem: Problem) -> None:
    """What a worker does with some settings."""
    import torch
    from ray import tune

    torch.set_num_threads(1)
    number = itertools.count(1)

    def watch(record: dict[str, float]) -> None:
        if "validation" in record:
            tune.report({"number": next(number), "validation": record["validation"]})

    tune.report({"outcome": outcome_of(problem, config["settings"], watch)})
