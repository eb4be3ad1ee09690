"""Tables larger than memory: Parquet files or frames, read in pieces as often as need be."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.columns import as_pandas

Words = NDArray[np.uint64]

ROWS_AT_ONCE = 2**16
_ENDINGS = (".parquet", ".pq")


@dataclass(frozen=True)
class Source:
    """A table that comes in pieces, all with the same columns, as often as it is asked for.

    Attributes:
        read: Gives the pieces, anew at every call.
        n_rows: Their rows, None if that is not known before they are read.
        columns: Their columns, if these are known before they are read.
        left_out: Columns that are not wanted.

    Example:
        >>> pieces = [pd.DataFrame({"x": [1, 2], "y": [3, 4]}), pd.DataFrame({"y": [6], "x": [5]})]
        >>> [piece.to_numpy().tolist() for piece in Source.of(pieces).pieces()]
        [[[1, 3], [2, 4]], [[5, 6]]]
    """

    read: Callable[[], Iterable[Any]]
    n_rows: int | None = None
    columns: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Any) -> Source:
        """A source of what a user passes.

        Args:
            data: The path of a Parquet file, or of a folder of such files, which are read in the
                order of their names; a list of paths; a frame, or a list of frames; a function
                without arguments that returns an iterator over frames, a new one at every call.
        """
        if isinstance(data, Source):
            return data
        if isinstance(data, (str, os.PathLike)):
            return cls._of_files(_files_at(Path(data)))
        if isinstance(data, (list, tuple)) and data and _are_paths(data):
            return cls._of_files([file for path in data for file in _files_at(Path(path))])
        if isinstance(data, Iterator):
            raise ValueError(
                "an iterator over frames can be read once only, but the rows are needed twice; "
                "pass a function that returns a new one, such as "
                "lambda: pandas.read_csv(path, chunksize=100_000)"
            )
        if callable(data):
            read: Any = data
            return cls(read)
        frame = as_pandas(data)
        frames = [frame] if isinstance(frame, pd.DataFrame) else data
        if isinstance(frames, (list, tuple)) and frames:
            return cls(lambda: frames, sum(len(one) for one in frames if hasattr(one, "__len__")))
        raise ValueError(
            "a table whose response is named must be a frame, the path of a Parquet file or of a "
            f"folder of such files, a list of these, or a function that returns an iterator over "
            f"frames, but it is {type(data).__name__}{' of length 0' * (frames in ([], ()))}"
        )

    @classmethod
    def _of_files(cls, files: list[Path]) -> Source:
        shape = _shape_of(files)
        return cls(lambda: itertools.chain.from_iterable(map(parquet_pieces, files)), *shape)

    def without(self, columns: Iterable[str]) -> Source:
        """The table without some of its columns."""
        left_out = (*self.left_out, *columns)
        kept = tuple(name for name in self.columns if name not in left_out)
        return replace(self, columns=kept, left_out=left_out)

    def pieces(self) -> Iterator[pd.DataFrame]:
        """Frames of at most 65,536 rows, none without, with the columns of the first."""
        columns, first_row = None, 0
        for piece in self.read():
            frame = as_pandas(piece)
            if not isinstance(frame, pd.DataFrame):
                raise ValueError(f"a piece of a table must be a frame, not {type(frame).__name__}")
            frame = frame.drop(columns=list(self.left_out))
            columns = list(frame.columns) if columns is None else columns
            if list(frame.columns) != columns:
                if set(frame.columns) != set(columns) or len(frame.columns) != len(columns):
                    raise ValueError(
                        f"the piece that begins with row {first_row} has other columns than the "
                        f"first: {_difference(columns, list(frame.columns))}"
                    )
                frame = frame[columns]
            for start in range(0, len(frame), ROWS_AT_ONCE):
                yield frame.iloc[start : start + ROWS_AT_ONCE].reset_index(drop=True)
            first_row += len(frame)
        if not first_row:
            raise ValueError("the table has no rows")


class RandomRows:
    """A uniform sample without replacement of rows that come in pieces.

    Each row has a key, a hash of its number; those of the smallest keys are the sample. So it is
    the same however the rows are divided into pieces.

    Args:
        size: Rows to draw.

    Example:
        >>> sample = RandomRows(2)
        >>> for first in (0, 3):
        ...     sample.add(first + np.arange(3), pd.DataFrame({"x": first + np.arange(3)}))
        >>> sample.frame()["x"].tolist()
        [2, 4]
    """

    def __init__(self, size: int) -> None:
        self.size, self.n_held, self.limit = size, 0, np.uint64(2**64 - 1)
        self.held: list[tuple[Words, NDArray[np.int64], pd.DataFrame]] = []

    def add(self, number: NDArray[np.int64], frame: pd.DataFrame) -> None:
        """Show it some rows ``(n,)`` and their numbers in the whole table."""
        keys = hashed(number)
        pick = np.flatnonzero(keys <= self.limit)
        self.held.append((keys[pick], number[pick], frame.iloc[pick]))
        self.n_held += len(pick)
        if self.n_held > 2 * self.size:
            self._forget_the_rest()

    def frame(self) -> pd.DataFrame:
        """The sample, in the order of the rows."""
        self._forget_the_rest()
        return self.held[0][2]

    def _forget_the_rest(self) -> None:
        keys, number = (np.concatenate([part[i] for part in self.held]) for i in (0, 1))
        frame = pd.concat([part[2] for part in self.held], ignore_index=True)
        pick = np.argsort(keys)[: self.size]
        if len(pick) == self.size:
            self.limit = keys[pick[-1]]
        pick = pick[np.argsort(number[pick])]
        self.held = [(keys[pick], number[pick], frame.iloc[pick].reset_index(drop=True))]
        self.n_held = len(pick)


def hashed(numbers: NDArray[Any]) -> Words:
    """Words that look random, one for each number and the same at all times.

    Example:
        >>> words = hashed(np.arange(1000))
        >>> len(set(words.tolist())), bool(abs(words.mean() / 2**64 - 0.5) < 0.03)
        (1000, True)
    """
    word = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return word ^ (word >> np.uint64(31))


def parquet_pieces(
    path: Path, size: int = ROWS_AT_ONCE, columns: list[str] | None = None
) -> Iterator[pd.DataFrame]:
    """The rows of a Parquet file, so many at a time.

    Args:
        path: The file.
        size: Rows at once.
        columns: Those to read, in this order; None is all of them.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(size, columns=columns):
            table = pa.Table.from_batches([batch]).replace_schema_metadata(None)
            frame = table.to_pandas(date_as_object=False)
            yield frame if columns is None else frame[columns]


@contextmanager
def progress(label: str, n_rows: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar over rows on standard error, if that is a terminal; no label is no bar."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    if not (label and (console.is_terminal or console.is_jupyter)):
        yield lambda rows: None
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as bar:
        task = bar.add_task(label, total=n_rows)
        yield lambda rows: bar.advance(task, rows)


def _are_paths(items: Iterable[Any]) -> bool:
    return all(isinstance(item, (str, os.PathLike)) for item in items)


def _files_at(path: Path) -> list[Path]:
    """A Parquet file, or those in a folder."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _ENDINGS)
        if not files:
            raise ValueError(f"the folder {str(path)!r} holds no Parquet files")
        return files
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r}")
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(
            f"{str(path)!r} is no Parquet file by its name. Read it yourself, whole or in pieces, "
            "such as with lambda: pandas.read_csv(path, chunksize=100_000)"
        )
    return [path]


def _shape_of(files: list[Path]) -> tuple[int, tuple[str, ...]]:
    """Rows and columns of Parquet files; a ValueError unless all have the same columns."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    n_rows, expected = 0, {}
    for file in files:
        try:
            with ParquetFile(file) as opened:
                schema, n_own = opened.schema_arrow, opened.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(f"{str(file)!r} is damaged or not a Parquet file ({reason})") from None
        found = {field.name: str(field.type) for field in schema}
        expected = expected or found
        if found != expected:
            raise ValueError(
                f"{str(file)!r} has other columns than {str(files[0])!r}: "
                f"{_difference(list(expected.items()), list(found.items()))}"
            )
        n_rows += n_own
    return n_rows, tuple(expected)


def _difference(expected: list[Any], found: list[Any]) -> str:
    missing = [one for one in expected if one not in found]
    unseen = [one for one in found if one not in expected]
    return f"missing: {missing or 'none'}, new: {unseen or 'none'}"
