"""Fitting to a table larger than memory: a sample of its rows decides how all are encoded.

``fit(table, y="...")`` takes the path of a Parquet file or of a folder of such files, a list of
paths, a frame or a list of frames, or a function without arguments that returns an iterator over
frames; all columns but the response and the weight are covariates. A table of at most 20 million
cells (rows × columns) is read whole and gives the model that its frame gives, bit for bit. From a
larger one only the default GENTLE learns, in two passes:

1. Every row is looked at, and a uniform sample without replacement is drawn, 4 million cells of
   covariates. How columns and response are encoded (levels, atoms, ranks), which covariates are
   held out, the trees and the weights of the average all come from the sample; ranges and bounds
   are those of all rows. Any rank in a sample of k rows is off by √(log(40) / 2k) at most, with
   probability 95 %: 0.2 % for 400,000 rows. `summary` says so of a model.
2. Every row is encoded into a nameless file in the folder for temporary files, four bytes for each
   input of the networks (about ten to a column of numbers), in random order. The networks learn
   from all of them, read in blocks; rows with a covariate that a fold holds out, in the sample or
   not, weigh nothing there.

So memory does not grow with the rows. Equal rows are not merged, and the sample is the same for
every seed. ``checkpoint_dir`` works as ever; both passes are made again before training goes on.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.covariates import CovariateEncoder
from gentle.data import Grouped, Rows, Standardiser, row_hashes
from gentle.models.intake import CheckedRows, TrainingFacts
from gentle.sources import RandomRows, Source, hashed, progress

if TYPE_CHECKING:
    import torch

    from gentle.models.boosting import Boosting
    from gentle.models.inputs import Inputs
    from gentle.models.lessons import OnDisk, Piece
    from gentle.responses import ResponseEncoder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_CELLS = 20_000_000  # rows × columns that are read whole: two million rows of ten columns
SAMPLE_CELLS = 4_000_000  # of larger tables, those from which the encoding is learned
_N_CELLS = 4096  # into which keys divide the rows


@contextmanager
def rows_of(
    model: Any, X: Any, y: Any, sample_weight: Any, keep_data: bool
) -> Iterator[CheckedRows]:
    """What a user passes to ``fit``, checked: all of its rows, or a sample that knows the others.

    Args:
        model: The model to be fitted.
        X: A table, or with a name for ``y`` anything that `Source` reads.
        y: Responses, or the name of their column.
        sample_weight: Weights, or the name of their column, or None.
        keep_data: Whether the rows are to be kept.
    """
    name = type(model).__name__
    if not isinstance(y, str):
        if isinstance(X, (str, os.PathLike)) or (callable(X) and not hasattr(X, "__array__")):
            raise ValueError(
                f"X is {'a function' if callable(X) else repr(str(X))}, not a table; to fit to "
                "what is there, name the column of the responses: fit(X, y='...')"
            )
        yield CheckedRows.of(X, y, sample_weight, name)
        return
    if not (sample_weight is None or isinstance(sample_weight, str)):
        raise ValueError("if y is the name of a column, so must be sample_weight, or None")
    source = Source.of(X)
    pieces = source.pieces()
    whole, first = _read_whole(pieces)
    if whole is not None:
        columns = _Columns.of(whole, y, sample_weight)
        yield CheckedRows.of(*columns.parts(whole), name)
        return
    _require_possible(model, keep_data)
    columns = _Columns.of(first[0], y, sample_weight)
    with ExitStack() as opened:
        all_rows = AllRows(source, columns, name, opened, bool(model.verbose))
        sample = all_rows.survey(itertools.chain(first, pieces))
        del first
        rows = CheckedRows.of(*columns.parts(sample), name)
        yield SampledRows(**vars(rows), all_rows=all_rows)


@dataclass(frozen=True)
class SampledRows(CheckedRows):
    """A sample of the rows of positive weight, and the way to all of them."""

    all_rows: AllRows

    @property
    def marks(self) -> tuple[Grouped, ...]:  # noqa: D102
        facts = np.array([self.all_rows.n_given, self.all_rows.n_used], np.float64)
        mark = np.array([self.all_rows.mark], np.uint64).view(np.float64)
        return (Grouped(facts[None], mark, np.ones(1), np.array([0, 1])),)

    def encoder(self) -> CovariateEncoder:
        """As the sample says, but with the ranges of all rows."""
        found, ranges = super().encoder(), self.all_rows.ranges
        covariates = tuple(
            replace(c, low=min(c.low, ranges[label][0]), high=max(c.high, ranges[label][1]))
            if label in ranges and c.kind not in ("category", "ordered")
            else c
            for label, c in zip(found.labels, found.covariates)
        )
        return replace(found, covariates=covariates)

    def facts(self, merged: CheckedRows, n_covariates: int) -> TrainingFacts:  # noqa: D102
        every, found = self.all_rows, super().facts(merged, n_covariates)
        return replace(
            found,
            n_rows=every.n_given,
            n_used=every.n_used,
            n_effective=every.weights[0] ** 2 / every.weights[1],
            low=every.low,
            high=every.high,
            n_sampled=len(self.y),
        )

    def grouped(self, of_x: CovariateEncoder, of_y: Standardiser) -> Grouped:  # noqa: D102
        self.all_rows.encoder = of_x
        return Sampled(**vars(super().grouped(of_x, of_y)), all_rows=self.all_rows)


@dataclass(frozen=True)
class Sampled(Grouped):
    """A data set that is a sample of a larger one.

    Attributes:
        all_rows: The larger one.
    """

    all_rows: AllRows


@dataclass
class AllRows:
    """The rows of a table that is read in pieces, and what the first pass has found out.

    Attributes:
        n_given: Rows.
        n_used: Rows of positive weight.
        weights: Sum of the weights, and of their squares.
        low: The smallest response.
        high: The largest response.
        ranges: The smallest and largest value of columns of numbers, dates or durations.
        n_per_cell: Rows by their key, ``(4096,)``.
        mark: A number that tells the table from others.
        n_read: Rows that have been read in the present pass.
        encoder: How the columns are encoded, once that is known.
    """

    source: Source
    columns: _Columns
    model: str
    opened: ExitStack
    shows_progress: bool
    encoder: CovariateEncoder | None = None
    n_read: int = 0
    n_given: int = 0
    n_used: int = 0
    weights: tuple[float, float] = (0.0, 0.0)
    low: float = np.inf
    high: float = -np.inf
    ranges: dict[Any, tuple[float, float]] = field(default_factory=dict)
    n_per_cell: Ints = field(default_factory=lambda: np.zeros(_N_CELLS, np.int64))
    mark: int = 0

    def survey(self, pieces: Iterator[pd.DataFrame]) -> pd.DataFrame:
        """Look at all rows once; returns a sample of those of positive weight."""
        sample: RandomRows | None = None
        for number, frame, rows in self._checked(pieces, "looking at all rows"):
            sample = sample or RandomRows(max(2, SAMPLE_CELLS // len(rows.table.columns)))
            sample.add(number, frame)
            self.n_used += len(number)
            self.weights = (
                self.weights[0] + float(rows.weight.sum()),
                self.weights[1] + float((rows.weight**2).sum()),
            )
            self.low = min(self.low, float(rows.y.min()))
            self.high = max(self.high, float(rows.y.max()))
            self.n_per_cell += np.bincount(_cells(hashed(number)), minlength=_N_CELLS)
            for label, column in zip(rows.table.labels, rows.table.columns):
                if not column.levels and not np.isnan(column.values).all():
                    low, high = self.ranges.get(label, (np.inf, -np.inf))
                    ends = np.nanmin(column.values), np.nanmax(column.values)
                    self.ranges[label] = min(low, float(ends[0])), max(high, float(ends[1]))
            keys = np.column_stack([rows.table.keys(), rows.y, rows.weight, number.astype(float)])
            mark = self.mark + int(row_hashes(keys).sum(dtype=np.uint64))
            self.mark = mark % 2**62  # the bits of a float that is finite
        if sample is None:
            raise ValueError("sample_weight is zero for every row; at least one must be positive")
        self.n_given = self.n_read
        return sample.frame()

    def bounds(self, given: Any) -> Any:
        """The bounds of the response that a model was given, with "auto" looked up in all rows."""
        if given == "auto":
            return (0.0 if self.low >= 0 else None, 0.0 if self.high <= 0 else None)
        low, high = given
        if (low is not None and self.low < low) or (high is not None and self.high > high):
            raise ValueError(
                f"responses lie between {self.low:g} and {self.high:g}, outside of the declared "
                f"bounds {given!r}. Correct the bounds or the responses."
            )
        return given

    def encoded(
        self,
        coordinates: list[ResponseEncoder],
        inputs: Inputs,
        boosting: Boosting | None,
        held_out: Sequence[Floats],
        device: torch.device,
    ) -> OnDisk:
        """Write all rows into a file, as networks see them.

        Args:
            coordinates: Of the response.
            inputs: What networks see of covariates.
            boosting: What to expect of each row, which is one of them, or None.
            held_out: Encoded covariates that each fold does not see.
            device: Where the networks are.
        """
        from gentle.models.lessons import OnDisk

        return OnDisk(
            self.opened.enter_context(tempfile.TemporaryFile()),  # gone with the process at latest
            self._pieces(),
            self.n_per_cell,
            coordinates,
            inputs,
            boosting,
            [row_hashes(x) for x in held_out],
            device,
        )

    def _pieces(self) -> Iterator[Piece]:
        """All rows in encoded units, with their keys."""
        assert self.encoder is not None
        mean = self.weights[0] / self.n_used
        for number, _, rows in self._checked(self.source.pieces(), "encoding all rows"):
            with warnings.catch_warnings():  # what is missing beyond the sample is no news to users
                warnings.simplefilter("ignore", UserWarning)
                x = self.encoder.encode(rows.table)
            yield _cells(hashed(number)), Rows(x, rows.y, rows.weight / mean)
        if self.n_read != self.n_given:
            raise ValueError(
                f"the table had {self.n_given:,} rows when it was read first, but {self.n_read:,} "
                "the second time; it must be the same each time"
            )

    def _checked(
        self, pieces: Iterator[pd.DataFrame], label: str
    ) -> Iterator[tuple[Ints, pd.DataFrame, CheckedRows]]:
        """Rows of positive weight, piece by piece: their numbers, themselves, and checked."""
        self.n_read = 0
        with progress(label * self.shows_progress, self.source.n_rows) as advance:
            for piece in pieces:
                number = self.n_read + np.arange(len(piece))
                self.n_read += len(piece)
                there = self.columns.weighted(piece)
                frame, number = piece.loc[there], number[there]
                if len(frame):
                    try:
                        rows = CheckedRows.of(*self.columns.parts(frame), self.model)
                    except ValueError as error:
                        raise ValueError(
                            f"among the rows from {number[0]} on, counted anew: {error}"
                        ) from error
                    yield number, frame, rows
                advance(len(piece))


@dataclass(frozen=True)
class _Columns:
    """Which columns of a table are responses, weights and covariates."""

    y: str
    weight: str | None
    covariates: list[Any]

    @classmethod
    def of(cls, frame: pd.DataFrame, y: str, weight: str | None) -> _Columns:
        for role, name in (("y", y), ("sample_weight", weight)):
            if name is not None and name not in frame:
                shown = ", ".join(repr(one) for one in list(frame.columns)[:20])
                raise ValueError(f"{role} is {name!r}, but the table has the columns {shown}")
        covariates = [name for name in frame.columns if name not in (y, weight)]
        if not covariates:
            raise ValueError(f"the table has no column that could be a covariate beside {y!r}")
        return cls(y, weight, covariates)

    def parts(self, frame: pd.DataFrame) -> tuple[Any, Any, Any]:
        """Covariates, responses, weights."""
        weight = None if self.weight is None else frame[self.weight]
        return frame[self.covariates], frame[self.y], weight

    def weighted(self, frame: pd.DataFrame) -> NDArray[np.bool_]:
        """Rows whose weight is not zero."""
        if self.weight is None:
            return np.ones(len(frame), bool)
        return (frame[self.weight] != 0).fillna(True).to_numpy(bool)


def _read_whole(
    pieces: Iterator[pd.DataFrame],
) -> tuple[pd.DataFrame | None, list[pd.DataFrame]]:
    """A table that is small enough, or its first pieces."""
    first, n_cells = [], 0
    for piece in pieces:
        first.append(piece)
        n_cells += piece.size
        if n_cells > MAX_CELLS:
            return None, first
    return pd.concat(first, ignore_index=True), []


def _require_possible(model: Any, keep_data: bool) -> None:
    from gentle.models.gentle import GENTLE

    what = f"the table has more than {MAX_CELLS:,} cells, so that it is not read as a whole"
    if not isinstance(model, GENTLE) or model.is_game:
        raise ValueError(
            f"{what}, and of all models only GENTLE, as it comes, can learn from pieces. Fit to a "
            "sample of its rows, or read it yourself and pass X and y."
        )
    if keep_data:
        raise ValueError(f"{what}; its rows cannot be kept: leave keep_data at False")
    if model.setting("reg_weight"):
        raise ValueError(
            f"{what}; a regulariser pulls neighbours together, which works among rows in memory "
            "only: leave reg_weight at 0"
        )


def _cells(keys: NDArray[np.uint64]) -> Ints:
    """The cell of each key, by its last bits; its first ones decide about the sample."""
    return (keys % np.uint64(_N_CELLS)).astype(np.int64)
