"""Draws and predictions for more rows than fit into memory, written to Parquet piece by piece."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gentle.columns import as_pandas
from gentle.distribution import ConditionalDistribution
from gentle.sources import parquet_pieces, progress
from gentle.streams import Seed, as_seed
from gentle.support import OutOfSupportWarning, Strangers

Layout = Literal["long", "list"]

_VALUES_AT_ONCE = 2**20  # held in memory
_ROWS_AT_ONCE = 2**12  # few enough for a model to answer mean and quantiles from one pass


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
    verbose: int = 1,
) -> int:
    """Draw responses for each row of a table of any length into a Parquet file.

    The draws are those of ``model.sample(X, n_samples, random_state)``, bit for bit, however the
    rows are divided. The file appears once all of it is written.

    Args:
        model: A fitted model.
        X: Covariates: a table as for `sample`; the path of a Parquet file, read a piece at a time,
            in which a model that knows the names of its columns finds them; or an iterator over
            tables, such as ``pandas.read_csv(path, chunksize=100_000)``.
        path: The file to write.
        n_samples: Draws per row.
        random_state: Seed, as for `sample`.
        layout: "long" has a row per draw with columns ``row`` (position in X), ``draw`` (both from
            0) and ``value``; "list" has a row per row of X with columns ``row`` and ``draws``, a
            list of ``n_samples`` numbers.
        dtype: Of the draws in the file; they are rounded to single precision for half the space.
        chunk_rows: Rows at once; None takes about a million draws.
        overwrite: Replace a file that exists.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        The number of rows of X.

    Example:
        >>> from gentle import KNN
        >>> model = KNN(n_neighbors=2).fit([[0.0], [1.0], [5.0]], [1.0, 3.0, 50.0])
        >>> sample_to_parquet(model, [[0.4]] * 5, "draws.parquet", 3)  # doctest: +SKIP
        5
    """
    columns = Draws(n_samples, as_seed(random_state), layout, dtype)
    step = chunk_rows or columns.rows_at_once
    return _written(model, X, path, step, columns, overwrite, "sampling" * bool(verbose))


def predict_to_parquet(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    *,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    verbose: int = 1,
) -> int:
    """Write conditional means and quantiles for each row of a table of any length.

    Args:
        model: A fitted model.
        X: Covariates, as for `sample_to_parquet`.
        path: The Parquet file to write: columns ``row``, ``mean``, and one per level, as ``q0.05``.
        quantiles: Levels between 0 and 1.
        chunk_rows: Rows at once.
        overwrite: Replace a file that exists.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        The number of rows of X.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [1.0, 3.0])
        >>> predict_to_parquet(model, [[0.4]] * 5, "means.parquet")  # doctest: +SKIP
        5
    """
    columns, label = Predictions(tuple(map(float, quantiles))), "predicting" * bool(verbose)
    step = chunk_rows or columns.rows_at_once
    return _written(model, X, path, step, columns, overwrite, label)


@dataclass(frozen=True)
class Draws:
    """What is written of draws: how many, from which seed, in which form."""

    n_samples: int
    seed: int
    layout: Layout
    dtype: Literal["float64", "float32"]

    def __post_init__(self) -> None:
        if self.n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {self.n_samples}")
        if self.layout not in ("long", "list"):
            raise ValueError(f"layout must be 'long' or 'list', got {self.layout!r}")
        if self.dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {self.dtype!r}")

    @property
    def rows_at_once(self) -> int:
        """Rows for about a million draws."""
        return max(1, _VALUES_AT_ONCE // self.n_samples)

    def __call__(self, first_row: int, dist: ConditionalDistribution) -> dict[str, Any]:
        """The columns of a piece whose first row has this position."""
        import pyarrow as pa

        m, row = self.n_samples, np.arange(first_row, first_row + len(dist))
        values = dist.sample(m, self.seed, first_row=first_row).astype(self.dtype)  # (rows, m)
        if self.layout == "list":
            return {"row": row, "draws": pa.FixedSizeListArray.from_arrays(values.ravel(), m)}
        draw = np.tile(np.arange(m), len(dist))
        return {"row": np.repeat(row, m), "draw": draw, "value": values.ravel()}


@dataclass(frozen=True)
class Predictions:
    """What is written of predictions: the mean, and quantiles at some levels."""

    levels: tuple[float, ...]
    rows_at_once: int = _ROWS_AT_ONCE

    def __call__(self, first_row: int, dist: ConditionalDistribution) -> dict[str, Any]:
        """The columns of a piece whose first row has this position."""
        return prediction(first_row, dist, self.levels)


Answer = Draws | Predictions


def prediction(
    first_row: int, dist: ConditionalDistribution, levels: Sequence[float]
) -> dict[str, Any]:
    """The columns of a piece of predictions, whose first row has this position."""
    values = dist.quantile(levels)  # (rows, levels)
    named = {f"q{level!r}": values[:, i] for i, level in enumerate(levels)}
    row = np.arange(first_row, first_row + len(dist))
    return {"row": row, "mean": dist.mean(), **named}


def answers(
    model: Any, X: Any, chunk_rows: int, first_row: int = 0
) -> Iterator[tuple[int, ConditionalDistribution]]:
    """The distributions of a table of any length, some rows at a time.

    Warns of rows far from the training data once, after the last.

    Args:
        model: A fitted model.
        X: Covariates, as for `sample_to_parquet`.
        chunk_rows: Rows at once, at most.
        first_row: Position of the first row, if X is itself a piece.

    Yields:
        The position of a piece's first row, and its distributions.

    Example:
        >>> from gentle import Marginal
        >>> model = Marginal().fit([[0.0], [1.0]], [1.0, 3.0])
        >>> [(first, len(dist)) for first, dist in answers(model, [[0.4]] * 5, chunk_rows=2)]
        [(0, 2), (2, 2), (4, 1)]
    """
    strangers = []
    for piece in _pieces(X, chunk_rows, getattr(model, "feature_names_in_", None)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OutOfSupportWarning)
                dist = model.predict_dist(piece)
        except ValueError as error:
            if not first_row:
                raise
            raise ValueError(
                f"among the rows from {first_row} on, counted anew: {error}"
            ) from error
        yield first_row, dist
        strangers.append(Strangers.among(model.covariate_encoder_, piece))
        first_row += len(dist)
    Strangers.together(strangers).warn(stacklevel=3)


def _pieces(X: Any, size: int, names: Any) -> Iterator[Any]:
    """A table, a Parquet file or tables one after the other, in pieces of at most that size."""
    if isinstance(X, (str, os.PathLike)):
        X = _parquet_pieces(Path(X), size, names)
    for table in X if isinstance(X, Iterator) else [X]:
        frame = as_pandas(table)
        rows = frame.iloc if isinstance(frame, pd.DataFrame) else np.asarray(frame)
        for start in range(0, len(frame), size):
            yield rows[start : start + size]


def _parquet_pieces(path: Path, size: int, names: Any) -> Iterator[pd.DataFrame]:
    from pyarrow.parquet import read_schema

    known = read_schema(path).names
    missing = [] if names is None else [name for name in names if name not in known]
    if missing:
        raise ValueError(f"{str(path)!r} has no column {missing[0]!r}; its columns are {known}")
    return parquet_pieces(path, size, None if names is None else list(names))


def count_rows(X: Any) -> int | None:
    """Rows of a table or of a Parquet file; None if that is not known."""
    if isinstance(X, (str, os.PathLike)):
        from pyarrow.parquet import read_metadata

        return read_metadata(Path(X)).num_rows
    return None if isinstance(X, Iterator) else len(X)


def _written(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    step: int,
    columns: Answer,
    overwrite: bool,
    label: str,
) -> int:
    n_rows = 0
    with (
        parquet_writer(Path(path), overwrite) as append,
        progress(label, count_rows(X)) as advance,
    ):
        for first_row, dist in answers(model, X, step):
            append(columns(first_row, dist))
            advance(len(dist))
            n_rows += len(dist)
    return n_rows


@contextmanager
def parquet_writer(path: Path, overwrite: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Append columns to a file that takes its name once all of it is there."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    if path.is_dir() or (path.exists() and not overwrite):
        raise FileExistsError(f"{str(path)!r} exists already; pass overwrite=True to replace it")
    target = Path(os.path.realpath(path))  # a link stays one
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    writer: ParquetWriter | None = None

    def append(columns: dict[str, Any]) -> None:
        nonlocal writer
        table = pa.table(columns)
        counts: Any = ["row", "draw"]  # they repeat: a dictionary makes them small
        writer = writer or ParquetWriter(scratch, table.schema, use_dictionary=counts)
        writer.write_table(table)

    try:
        yield append
        if writer is None:
            raise ValueError("X has no rows")
        writer.close()
        os.replace(scratch, target)
    finally:
        if writer is not None:
            writer.close()
        scratch.unlink(missing_ok=True)
