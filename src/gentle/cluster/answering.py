"""Draws and predictions for many rows on several workers, by Ray Data."""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gentle.cluster.connection import connect, import_ray, quiet, require_cpus
from gentle.columns import as_pandas, taken
from gentle.streaming import Answer, Draws, Layout, Predictions, answers, parquet_writer
from gentle.streams import Seed, as_seed
from gentle.support import OutOfSupportWarning, Strangers

_ENDINGS = (".parquet", ".pq")
_ROWS_PER_TASK = 2**16  # at most: few enough to be done anew, many enough to be worth a task
_TASKS_PER_WORKER = 4  # at least, so that all end at about the same time


def sample_to_parquet(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    n_samples: int = 100,
    *,
    random_state: Seed = None,
    layout: Layout = "long",
    dtype: Literal["float64", "float32"] = "float64",
    chunk_rows: int | None = None,
    overwrite: bool = False,
    cluster: str = "local",
    n_workers: int = 2,
) -> int:
    """Draw responses for each row of a table of any length on a cluster.

    The draws are those of ``model.sample(X, n_samples, random_state)`` and of
    `gentle.streaming.sample_to_parquet`, bit for bit, in the same order. The work of a worker that
    dies is done by another one.

    Args:
        model: A fitted model.
        X: Covariates: a table; or the path of a Parquet file, or of a folder of them in the order
            of their names, which the workers read piece by piece. A model that knows the names of
            its columns finds them there.
        path: What to write: a file that ends in ``.parquet``, through this process; any other name
            is a folder of such files, written by the workers, whose names are in the order of the
            rows. Both appear once all is written.
        n_samples: Draws per row.
        random_state: Seed, as for ``sample``.
        layout: "long" or "list", as for `gentle.streaming.sample_to_parquet`.
        dtype: Of the draws in the file.
        chunk_rows: Rows that a worker holds at once; None takes about a million draws.
        overwrite: Replace what is there.
        cluster: "local", "auto" or "ray://host:port"; see `connect`. On several machines, all of
            them must see the files, or X must be a table and ``path`` a file.
        n_workers: Processes at work at once, with one processor core each.

    Returns:
        The number of rows of X.

    Example:
        >>> from gentle import KNN
        >>> model = KNN(n_neighbors=2).fit([[0.0], [1.0], [5.0]], [1.0, 3.0, 50.0])
        >>> sample_to_parquet(model, [[0.4]] * 5, "draws.parquet", 3)  # doctest: +SKIP
        5
    """
    answer = Draws(n_samples, as_seed(random_state), layout, dtype)
    with connect(cluster, n_workers) as call:
        return call(_written, model, X, Path(path), answer, chunk_rows, overwrite, n_workers)


def predict_to_parquet(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    *,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    cluster: str = "local",
    n_workers: int = 2,
) -> int:
    """Write conditional means and quantiles for each row of a table of any length on a cluster.

    Args:
        model: A fitted model.
        X: Covariates, as for `sample_to_parquet`.
        path: The Parquet file or folder to write, with the columns of
            `gentle.streaming.predict_to_parquet`.
        quantiles: Levels between 0 and 1.
        chunk_rows: Rows that a worker holds at once.
        overwrite: Replace what is there.
        cluster: "local", "auto" or "ray://host:port".
        n_workers: Processes at work at once.

    Returns:
        The number of rows of X.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [1.0, 3.0])
        >>> predict_to_parquet(model, [[0.4]] * 5, "means.parquet")  # doctest: +SKIP
        5
    """
    answer = Predictions(tuple(map(float, quantiles)))
    with connect(cluster, n_workers) as call:
        return call(_written, model, X, Path(path), answer, chunk_rows, overwrite, n_workers)


@dataclass(frozen=True)
class _Task:
    """Rows to answer about: some of a row group of a file, or of a table in Ray's memory."""

    first_row: int  # among all rows
    start: int  # in the row group or the table
    stop: int
    file: str = ""
    group: int = 0


def _written(
    model: Any,
    X: Any,
    path: Path,
    answer: Answer,
    chunk_rows: int | None,
    overwrite: bool,
    n_workers: int,
) -> int:
    ray = import_ray()
    require_cpus(n_workers)
    tasks = list(_tasks(X, getattr(model, "feature_names_in_", None), n_workers))
    if not tasks:
        raise ValueError("X has no rows")
    table = ray.put(None if tasks[0].file else as_pandas(X))
    notes = ray.remote(num_cpus=0)(_Notes).remote()
    work = partial(_answered, [ray.put(model), table, ray.put(tasks)], answer, chunk_rows, notes)
    data = ray.data.range(len(tasks), override_num_blocks=len(tasks))
    data = data.map_batches(
        work, batch_size=None, compute=ray.data.TaskPoolStrategy(size=n_workers)
    )
    data.context.execution_options.preserve_order = True
    data.context.enable_progress_bars = False
    try:
        with quiet("ray.data"):
            if path.suffix.lower() in _ENDINGS:
                with parquet_writer(path, overwrite) as append:
                    for part in data.iter_batches(batch_size=None, batch_format="pyarrow"):
                        append(part)
            else:
                _write_folder(data, path.absolute(), overwrite)
    except ray.exceptions.RayError as error:
        raise ray.get(notes.first_error.remote()) or error from None
    Strangers.together(ray.get(notes.strangers.remote())).warn(stacklevel=4)
    return tasks[-1].first_row + tasks[-1].stop - tasks[-1].start


def _tasks(X: Any, names: Any, n_workers: int) -> Iterator[_Task]:
    """The rows of a table or of Parquet files in pieces, in order."""
    if not isinstance(X, (str, os.PathLike)):
        yield from _pieces(0, len(X), len(X), n_workers)
        return
    from pyarrow.parquet import read_metadata

    folder = Path(X).absolute()
    files = sorted(file for ending in _ENDINGS for file in folder.glob(f"*{ending}"))
    facts = {file: read_metadata(file) for file in (files if folder.is_dir() else [folder])}
    n_rows, first_row = sum(one.num_rows for one in facts.values()), 0
    for file, found in facts.items():
        known = found.schema.to_arrow_schema().names
        missing = [name for name in ([] if names is None else names) if name not in known]
        if missing:
            raise ValueError(f"{str(file)!r} has no column {missing[0]!r}; its columns are {known}")
        for group in range(found.num_row_groups):
            size = found.row_group(group).num_rows
            yield from _pieces(first_row, size, n_rows, n_workers, str(file), group)
            first_row += size


def _pieces(first_row: int, size: int, n_rows: int, n_workers: int, *place: Any) -> Iterator[_Task]:
    step = min(_ROWS_PER_TASK, math.ceil(n_rows / (_TASKS_PER_WORKER * n_workers)) or 1)
    for start in range(0, size, step):
        yield _Task(first_row + start, start, min(start + step, size), *place)


class _Notes:
    """An actor that remembers what tasks have to say, beside their answers."""

    def __init__(self) -> None:
        self.found: dict[int, Strangers] = {}  # by task, as one may be done twice
        self.errors: dict[int, Exception] = {}

    def add(self, first_row: int, strangers: Strangers) -> None:
        self.found[first_row] = strangers

    def fail(self, first_row: int, error: Exception) -> None:
        self.errors[first_row] = error

    def strangers(self) -> list[Strangers]:
        return list(self.found.values())

    def first_error(self) -> Exception | None:
        return self.errors[min(self.errors)] if self.errors else None


def _answered(
    sources: list[Any],
    answer: Answer,
    chunk_rows: int | None,
    notes: Any,
    batch: dict[str, Any],
) -> Iterator[Any]:
    """What a worker does with a batch of tasks."""
    ray = import_ray()
    import pyarrow as pa
    import torch

    torch.set_num_threads(1)
    model, table, tasks = ray.get(sources)
    for task in (tasks[number] for number in batch["id"]):
        try:
            X = _rows(task, table, getattr(model, "feature_names_in_", None))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OutOfSupportWarning)
                step = chunk_rows or answer.rows_at_once
                for first_row, dist in answers(model, X, step, task.first_row):
                    yield pa.table(answer(first_row, dist))
        except Exception as error:
            ray.get(notes.fail.remote(task.first_row, error))  # Ray would wrap it in a long story
            raise
        ray.get(notes.add.remote(task.first_row, Strangers.among(model.covariate_encoder_, X)))


def _rows(task: _Task, table: Any, names: Any) -> Any:
    """The covariates of a task."""
    if not task.file:
        return taken(table, np.arange(task.start, task.stop))
    from pyarrow.parquet import ParquetFile

    columns = None if names is None else list(names)
    with ParquetFile(task.file) as file:
        rows = file.read_row_group(task.group, columns).slice(task.start, task.stop - task.start)
    frame = rows.replace_schema_metadata(None).to_pandas(date_as_object=False)
    return frame if columns is None else pd.DataFrame(frame[columns])


def _write_folder(data: Any, path: Path, overwrite: bool) -> None:
    """Let the workers write files whose names are in the order of their rows."""
    from ray.data.datasource import FilenameProvider

    class ByFirstRow(FilenameProvider):
        def get_filename_for_block(self, block: Any, *_: Any, **__: Any) -> str:
            return f"rows-{block.column('row')[0].as_py():015d}.parquet"

    if path.is_file() or (path.exists() and any(path.iterdir()) and not overwrite):
        raise FileExistsError(f"{str(path)!r} exists already; pass overwrite=True to replace it")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        data.write_parquet(str(scratch), filename_provider=ByFirstRow())
        if path.exists():
            shutil.rmtree(path)
        os.replace(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
