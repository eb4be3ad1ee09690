"""Training on several workers, by Ray Train."""

from __future__ import annotations

import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from gentle.checkpoints import seed_in
from gentle.cluster.connection import MAX_DEATHS, aside, connect, import_ray, quiet, require_cpus
from gentle.models.base import ConditionalGenerator
from gentle.models.intake import EvalSet
from gentle.streams import as_seed
from gentle.teams import Team, together
from gentle.training import watching

Model = TypeVar("Model", bound=ConditionalGenerator)

_PARALLEL = ("GENTLE",)
# What the table or the settings are to blame for: another try would end in the same way.
_FINAL = (ValueError, TypeError, ArithmeticError, OSError, ImportError)


def fit(
    model: Model,
    X: Any,
    y: ArrayLike | str,
    sample_weight: ArrayLike | str | None = None,
    eval_set: EvalSet | None = None,
    checkpoint_dir: str | PathLike[str] | None = None,
    keep_data: bool = False,
    *,
    cluster: str = "local",
    n_workers: int = 2,
    n_threads: int = 1,
) -> Model:
    """Fit a model on a cluster: as ``model.fit``, with every batch divided among workers.

    All workers hold the rows and the networks, compute the gradient of their share of a batch, and
    add the shares up. Training thus equals that of one process up to the rounding of sums, with the
    same batches and random numbers. It pays where a batch is large: 8,192 rows or more. What is not
    trained, such as trees, every worker computes for itself.

    If a worker dies, the others start again with a new one from the last checkpoint, and the result
    is that of an undisturbed training, bit for bit on a CPU.

    Args:
        model: A `GENTLE`, the default or the paper's game; other models train in one process.
        X: Covariates, as for ``fit``; of several machines, all must see the files that it names.
        y: Responses, ``(n,)``, or the name of their column.
        sample_weight: Weights of the rows, ``(n,)``, or the name of their column.
        eval_set: Rows to validate on.
        checkpoint_dir: Folder in which training is kept, as for ``fit``. On a cluster of several
            machines, one that all of them see; otherwise a training whose first worker's machine
            is lost begins anew. None keeps it until the end of the call.
        keep_data: As for ``fit``.
        cluster: "local", "auto" or "ray://host:port"; see `connect`.
        n_workers: Worker processes, each with a GPU if the cluster has that many and
            ``model.device`` allows it.
        n_threads: Processor cores of each.

    Returns:
        The model, fitted.

    Example:
        >>> from gentle import GENTLE
        >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 3.0, 2.0]
        >>> model = fit(GENTLE(batch_size=8192), X, y, cluster="local")  # doctest: +SKIP
    """
    if type(model).__name__ not in _PARALLEL:
        raise ValueError(
            f"a cluster trains {', '.join(_PARALLEL)}; fit {type(model).__name__} in one process "
            "with its own fit(), or many of them at once with gentle.cluster.search"
        )
    with connect(cluster, n_workers * n_threads) as call:
        outcome, said = call(
            _trained,
            model,
            {
                "X": Path(X).absolute() if isinstance(X, (str, PathLike)) else X,
                "y": y,
                "sample_weight": sample_weight,
                "eval_set": eval_set,
                "keep_data": keep_data,
            },
            checkpoint_dir,
            n_workers,
            n_threads,
        )
    for message in said:
        warnings.warn(message, stacklevel=2)
    if isinstance(outcome, Exception):
        raise outcome
    vars(model).pop("feature_names_in_", None)
    settings = model.get_params(deep=False)
    vars(model).update({k: value for k, value in vars(outcome).items() if k not in settings})
    return model


def _trained(
    model: ConditionalGenerator,
    table: dict[str, Any],
    checkpoint_dir: str | PathLike[str] | None,
    n_workers: int,
    n_threads: int,
) -> tuple[Any, list[Warning]]:
    """A fitted copy of the model, or the exception in its place, and what it warned of."""
    ray = import_ray()
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    require_cpus(n_workers, n_threads)
    use_gpu = _use_gpu(model.device, n_workers, ray.cluster_resources().get("GPU", 0))
    with tempfile.TemporaryDirectory(prefix="gentle-cluster-") as scratch:
        folder = Path(checkpoint_dir or Path(scratch) / "checkpoints").absolute()
        seed = seed_in(folder) if model.random_state is None else None
        seed = as_seed(model.random_state) if seed is None else seed
        settings = model.get_params(deep=False) | {"random_state": seed, "verbose": 0}
        reports = ray.remote(num_cpus=0)(_Reports).remote()
        trainer = TorchTrainer(
            _learn,
            train_loop_config={
                "model": type(model)(**settings),
                "table": ray.put(table),
                "folder": folder,
                "n_threads": n_threads,
                "reports": reports,
            },
            torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=n_workers, use_gpu=use_gpu, resources_per_worker={"CPU": n_threads}
            ),
            run_config=RunConfig(
                storage_path=scratch, failure_config=FailureConfig(max_failures=MAX_DEATHS)
            ),
        )
        try:
            with quiet("ray.train"), _shown(type(model).__name__, model.verbose) as show:
                result = aside(trainer.fit, lambda: show(ray.get(reports.new.remote())))
            return pickle.loads(result.return_value)
        except TrainingFailedError as error:
            causes = getattr(error, "worker_failures", {}).values()
            raise RuntimeError(f"training failed on the cluster: {[*causes, error][0]}") from error


class _Reports:
    """An actor that hands on what the first worker tells of its epochs."""

    def __init__(self) -> None:
        self.records: list[dict[str, float]] = []

    def add(self, record: dict[str, float]) -> None:
        self.records.append(record)

    def new(self) -> list[dict[str, float]]:
        records, self.records = self.records, []
        return records


@contextmanager
def _shown(label: str, verbose: int) -> Iterator[Callable[[list[dict[str, float]]], None]]:
    """Show epochs on standard error: as lines, or for 1 the last of them if it is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    shows = console.is_terminal and verbose == 1
    with console.status(f"{label}: the workers are starting") if shows else nullcontext() as status:

        def show(records: list[dict[str, float]]) -> None:
            lines = [
                f"{label}: " + ", ".join(f"{name} {value:.5g}" for name, value in record.items())
                for record in records
            ]
            if status is not None and lines:
                status.update(lines[-1])
            elif verbose > 1:
                print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr, flush=True)

        yield show


def _use_gpu(device: str, n_workers: int, n_gpus: float) -> bool:
    """Whether every worker is to have a GPU."""
    if device.startswith("cuda") and n_gpus < n_workers:
        raise ValueError(
            f"device={device!r} wants a GPU for each of {n_workers} workers, but the cluster has "
            f"{n_gpus:g}; ask for fewer workers, or for device='cpu'"
        )
    return device.startswith("cuda") or (device == "auto" and n_gpus >= n_workers)


def _learn(config: dict[str, Any]) -> bytes | None:
    """What each worker does; the first one returns what `_trained` returns."""
    ray = import_ray()
    import torch
    from ray.train import get_context
    from torch import distributed

    torch.set_num_threads(config["n_threads"])
    if torch.cuda.is_available():
        from ray.train.torch import get_device

        torch.cuda.set_device(get_device())
    context = get_context()
    team = Team(context.get_world_rank(), context.get_world_size())
    is_first = team.rank == 0
    model, tell = config["model"], config["reports"].add.remote

    def watch(record: dict[str, float]) -> None:
        if is_first:
            tell(record)

    with together(team), watching(watch), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            folder = config["folder"] if is_first else None
            outcome = model.fit(**ray.get(config["table"]), checkpoint_dir=folder)
        except BaseException as error:
            if distributed.is_initialized():  # who waits for this worker is to wait no longer
                distributed.destroy_process_group()
            if not isinstance(error, _FINAL if is_first else (*_FINAL, RuntimeError)):
                raise
            outcome = error
    if not is_first:  # who fails because the first has failed has nothing to add
        return None
    said = {str(one.message): one.message for one in caught}
    return pickle.dumps((outcome, list(said.values())))
