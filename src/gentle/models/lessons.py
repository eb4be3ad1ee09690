"""What the networks learn from: rows that are resident in memory, or in a file on disk."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gentle.data import Rows, row_hashes
from gentle.models.boosting import Boosting
from gentle.models.inputs import Inputs
from gentle.responses import ResponseEncoder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Piece = tuple[Ints, Rows]  # cells that rows belong to at random, and the rows

_ROWS_AT_ONCE = 2**16
_REGION = 2**26  # bytes, which are shuffled in memory
_BLOCK = 256  # rows that are read together
_MIN_STEPS = 20  # of an epoch, which goes through small tables more than once


@dataclass(frozen=True)
class Fold:
    """Rows to learn from, as positions among all, and rows that are kept from sight."""

    seen: Ints
    unseen: Rows


def with_unseen(folds: list[Fold], change: Callable[[Rows], Rows]) -> list[Fold]:
    """Folds whose unseen rows are changed; those that share them still do."""
    changed = {id(fold.unseen): change(fold.unseen) for fold in folds}
    return [replace(fold, unseen=changed[id(fold.unseen)]) for fold in folds]


class Lessons(Protocol):
    """Encoded rows, from which the members of an ensemble learn; K = folds × kinds of them.

    A batch is given by ``rows``, whatever that is to an implementation: its second dimension is
    the batch's.

    Attributes:
        block: Rows of an item.
    """

    block: int

    def n_rows(self, folds: list[Fold]) -> int:
        """How many rows an epoch goes through."""
        ...

    def order(
        self, folds: list[Fold], n_kinds: int, batch_size: int, rng: np.random.Generator
    ) -> tuple[Tensor, int]:
        """Items for each member, ``(K, n_items)``, and how many of them are a batch."""
        ...

    def rows(self, order: Tensor, positions: Ints, n_kinds: int) -> Tensor:
        """The batch of the items at these positions."""
        ...

    def weight(self, rows: Tensor, n_kinds: int) -> Tensor:
        """Weights of a batch for each member, ``(K, B)``."""
        ...

    def inputs(self, rows: Tensor, kind: int, n_kinds: int, view: slice) -> Tensor:
        """What the networks of a kind see of a batch, ``(n_folds, B, d)``."""
        ...

    def interval(
        self, rows: Tensor, kind: int, n_kinds: int, coordinate: int
    ) -> tuple[Tensor, Tensor]:
        """First and last z of a batch's responses for the networks of a kind, ``(n_folds, B)``."""
        ...


class Resident:
    """Rows in memory, single precision; each member goes through its fold in an order of its own.

    Args:
        rows: The rows.
        coordinates: Of the response.
        inputs: What networks see of covariates.
        device: Where the networks are.
    """

    block = 1

    def __init__(
        self,
        rows: Rows,
        coordinates: list[ResponseEncoder],
        inputs: Inputs,
        device: torch.device,
    ) -> None:
        x = np.empty((len(rows.y), len(inputs)), np.float32)
        for first in range(0, len(x), _ROWS_AT_ONCE):  # double precision only for some at a time
            part = slice(first, first + _ROWS_AT_ONCE)
            x[part] = inputs.encode(rows.x[part])
        self.x = torch.from_numpy(x).to(device)  # (N, D)
        self.row_weight = _tensor(rows.weight, device)  # (N,)
        self.ends = [
            tuple(_tensor(end, device) for end in coordinate.interval(rows.y))
            for coordinate in coordinates
        ]  # (N,) each

    def n_rows(self, folds: list[Fold]) -> int:  # noqa: D102
        return max(len(fold.seen) for fold in folds)

    def order(  # noqa: D102
        self, folds: list[Fold], n_kinds: int, batch_size: int, rng: np.random.Generator
    ) -> tuple[Tensor, int]:
        longest = max(self.n_rows(folds), _MIN_STEPS * batch_size)
        orders = np.empty((len(folds) * n_kinds, longest), np.int32)
        for member in range(len(orders)):
            orders[member] = np.resize(rng.permutation(folds[member // n_kinds].seen), longest)
        return torch.from_numpy(orders).to(self.x.device), batch_size

    def rows(self, order: Tensor, positions: Ints, n_kinds: int) -> Tensor:  # noqa: D102
        return order[:, torch.as_tensor(positions, device=order.device)].long()  # (K, B)

    def weight(self, rows: Tensor, n_kinds: int) -> Tensor:  # noqa: D102
        return self.row_weight[rows]

    def inputs(self, rows: Tensor, kind: int, n_kinds: int, view: slice) -> Tensor:  # noqa: D102
        return self.x[:, view][rows[kind::n_kinds]]

    def interval(  # noqa: D102
        self, rows: Tensor, kind: int, n_kinds: int, coordinate: int
    ) -> tuple[Tensor, Tensor]:
        low, high = self.ends[coordinate]
        return low[rows[kind::n_kinds]], high[rows[kind::n_kinds]]


class OnDisk:
    """Encoded rows in a scratch file, in random order; networks of a fold share their batches.

    A row is its inputs, the ends of its response in each coordinate, and its weight for each fold,
    0 where its covariate is held out: single precision, one after the other. Each row first goes
    to a region of the file that its cell decides about; then regions are shuffled, one at a time,
    in memory. So what stands together in the file is a random selection of rows, and reading it
    in long blocks does no harm.

    Args:
        file: An empty file to write and read.
        pieces: The rows.
        n_per_cell: How many of them belong to each cell, ``(n_cells,)``.
        coordinates: Of the response.
        inputs: What networks see of covariates.
        boosting: What to expect of each row, which is one of them, or None.
        held_out: For each fold, hashes of the covariates that it does not see.
        device: Where the networks are.
    """

    def __init__(
        self,
        file: Any,
        pieces: Iterable[Piece],
        n_per_cell: Ints,
        coordinates: list[ResponseEncoder],
        inputs: Inputs,
        boosting: Boosting | None,
        held_out: Sequence[NDArray[np.uint64]],
        device: torch.device,
    ) -> None:
        self.file, self.device = file, device
        self.n_inputs, self.n_folds = len(inputs), len(held_out)
        self.width = self.n_inputs + 2 * len(coordinates) + self.n_folds
        self.size, self.n = 4 * self.width, int(n_per_cell.sum())
        _require_room(self.size * self.n)
        n_regions = min(len(n_per_cell), 1 + self.size * self.n // _REGION)
        of_cell = np.arange(len(n_per_cell)) * n_regions // len(n_per_cell)
        start = np.append(0, np.cumsum(np.bincount(of_cell, n_per_cell, n_regions)))
        start = start.astype(np.int64)
        at = start[:-1].copy()
        for cell, rows in pieces:
            table = self._encoded(rows, coordinates, inputs, boosting, held_out)
            region = of_cell[cell]
            order = np.argsort(region, kind="stable")
            counts = np.bincount(region, minlength=n_regions)
            for number, part in enumerate(np.split(table[order], np.cumsum(counts)[:-1])):
                self.file.seek(int(at[number]) * self.size)
                self.file.write(part.reshape(-1).view(np.uint8).data)
            at += counts
        rng = np.random.default_rng(0)  # any order will do, the same for all seeds
        for first, last in itertools.pairwise(start):
            region = np.empty((last - first, self.width), np.float32)
            self._read(int(first), region)
            self.file.seek(int(first) * self.size)
            self.file.write(rng.permutation(region).reshape(-1).view(np.uint8).data)
        self.file.flush()

    def _encoded(
        self,
        rows: Rows,
        coordinates: list[ResponseEncoder],
        inputs: Inputs,
        boosting: Boosting | None,
        held_out: Sequence[NDArray[np.uint64]],
    ) -> NDArray[np.float32]:
        table = np.empty((len(rows.y), self.width), np.float32)
        x = rows.x if boosting is None else boosting.extended(rows.x, honest=True)
        table[:, : self.n_inputs] = inputs.encode(x)
        for number, coordinate in enumerate(coordinates):
            first = self.n_inputs + 2 * number
            table[:, first : first + 2] = np.column_stack(coordinate.interval(rows.y))
        hashes = row_hashes(rows.x)
        for fold, unseen in enumerate(held_out):
            weight = np.where(np.isin(hashes, unseen), 0.0, rows.weight)
            table[:, self.width - self.n_folds + fold] = weight
        return table

    def _read(self, first: int, out: NDArray[np.float32]) -> None:
        self.file.seek(first * self.size)
        view = out.reshape(-1).view(np.uint8).data
        while len(view):  # a read may give less than it was asked for
            n_bytes = self.file.readinto(view)
            if not n_bytes:
                raise OSError("the file of encoded rows was cut short")
            view = view[n_bytes:]

    def n_rows(self, folds: list[Fold]) -> int:  # noqa: D102
        return self.n

    def order(  # noqa: D102
        self, folds: list[Fold], n_kinds: int, batch_size: int, rng: np.random.Generator
    ) -> tuple[Tensor, int]:
        self.block = min(_BLOCK, batch_size, self.n)
        n_blocks = -(-self.n // self.block)
        first = np.minimum(np.arange(n_blocks) * self.block, self.n - self.block)
        shift = n_blocks // self.n_folds  # folds are at different places at any time
        orders = [np.roll(first, -shift * fold) for fold in range(self.n_folds)]
        starts = torch.from_numpy(np.repeat(np.stack(orders), n_kinds, axis=0))
        return starts, max(1, round(batch_size / self.block))

    def rows(self, order: Tensor, positions: Ints, n_kinds: int) -> Tensor:  # noqa: D102
        first = order[::n_kinds, torch.from_numpy(positions)].tolist()
        out = np.empty((self.n_folds, len(positions), self.block, self.width), np.float32)
        for of_fold, blocks in zip(out, first):
            for block, row in zip(of_fold, blocks):
                self._read(row, block)
        return torch.from_numpy(out).flatten(1, 2).to(self.device)  # (n_folds, B, width)

    def weight(self, rows: Tensor, n_kinds: int) -> Tensor:  # noqa: D102
        own = rows[..., -self.n_folds :].diagonal(dim1=0, dim2=2)  # (B, n_folds)
        return own.T.repeat_interleave(n_kinds, 0)

    def inputs(self, rows: Tensor, kind: int, n_kinds: int, view: slice) -> Tensor:  # noqa: D102
        return rows[..., : self.n_inputs][..., view]

    def interval(  # noqa: D102
        self, rows: Tensor, kind: int, n_kinds: int, coordinate: int
    ) -> tuple[Tensor, Tensor]:
        first = self.n_inputs + 2 * coordinate
        return rows[..., first], rows[..., first + 1]


def _require_room(n_bytes: int) -> None:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise OSError(
            f"the encoded rows need {n_bytes / 2**30:,.1f} GiB in {folder!r}, where "
            f"{free / 2**30:,.1f} GiB are free. Make room, or choose another folder for temporary "
            f"files by the environment variable {'TMPDIR' if os.name == 'posix' else 'TEMP'}."
        )


def _tensor(array: Floats, device: torch.device) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float32, device=device)
