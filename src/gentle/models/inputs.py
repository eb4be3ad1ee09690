"""What the networks see of a table's columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]
View = Literal["straight", "boosted", "scores", "pieces"]

_NEAR = 2.5  # standard deviations within which a value enters as it is
_N_KNOTS = 100
_MAX_PIECES, _MAX_PIECE_INPUTS = 8, 256
_ARRAYS = ("knots", "scores", "column", "start", "length")


@dataclass(frozen=True)
class Inputs:
    """Three views of each column: as it is, by scores of its ranks, by pieces of its range.

    The view "boosted" is of a further column, if there is one: what boosted trees expect, as it is
    and by its score.

    "straight" is the standardised value, far ones pulled in by a logarithm. "scores" belong to
    the value's rank, half-way between even and normal ones, straight between knots; columns with
    two values become ±1. Of "pieces" there are up to eight per column: each is 0 below an interval
    between quantiles, 1 above it, and straight in between (a piecewise-linear encoding, half its
    usual size). Scores and pieces stay beyond the training range as they are at its ends.

    Attributes:
        knots: Values of each column, nondecreasing, ``(d, m)``.
        scores: The scores there, ``(d, m)``.
        column: The column of each piece, ``(p,)``.
        start: Where the piece begins, ``(p,)``.
        length: Its length, ``(p,)``.
        n_boosted: How many of the columns are further ones, 0 or 1; they come last.
    """

    knots: Floats
    scores: Floats
    column: NDArray[np.int64]
    start: Floats
    length: Floats
    n_boosted: int = 0

    @classmethod
    def of(cls, x: Floats, weight: Floats, n_boosted: int = 0) -> Inputs:
        """From weighted rows ``(n, d)``, of whose columns the last may be a boosted one."""
        d = x.shape[1]
        knots, scores = np.empty((d, _N_KNOTS)), np.empty((d, _N_KNOTS))
        summaries = []
        for j, column in enumerate(x.T):
            values, inverse = np.unique(column, return_inverse=True)
            share = np.bincount(inverse.ravel(), weight) / weight.sum()
            after = np.cumsum(share)
            if len(values) <= 2:
                own = np.linspace(-1, 1, len(values)) if len(values) == 2 else np.zeros(1)
            else:
                u = after - share / 2
                even, normal = math.sqrt(3) * (2 * u - 1), ndtri(np.clip(u, 1e-4, 1 - 1e-4))
                own = (even + normal) / 2
            if len(values) > _N_KNOTS:
                levels = (np.arange(_N_KNOTS) + 0.5) / _N_KNOTS
                pick = np.searchsorted(after, levels).clip(0, len(values) - 1)
                pick[0], pick[-1] = 0, len(values) - 1
            else:
                pick = np.minimum(np.arange(_N_KNOTS), len(values) - 1)
            knots[j], scores[j] = values[pick], own[pick]
            if len(values) > 4 and j < d - n_boosted:
                summaries.append((j, values, after))
        n_pieces = min(_MAX_PIECES, _MAX_PIECE_INPUTS // max(1, len(summaries)))
        column, start, length = [], [], []
        for j, values, after in summaries if n_pieces >= 2 else ():
            pick = np.searchsorted(after, np.linspace(0, 1, n_pieces + 1)).clip(0, len(values) - 1)
            ends = np.unique(values[pick])
            column += [j] * (len(ends) - 1)
            start += list(ends[:-1])
            length += list(np.diff(ends))
        pieces = np.array(column, np.int64), np.array(start), np.array(length)
        return cls(knots, scores, *pieces, n_boosted)

    def __len__(self) -> int:
        return 2 * len(self.knots) + len(self.column)

    def without_boosted(self) -> Inputs:
        """The same for a table without the further column."""
        d = len(self.knots) - self.n_boosted
        return replace(self, knots=self.knots[:d], scores=self.scores[:d], n_boosted=0)

    @property
    def are_varied(self) -> NDArray[np.bool_]:
        """Which inputs have more than two values, ``(D,)``."""
        d, out = len(self.knots) - self.n_boosted, np.ones(len(self), bool)
        varied = [len(np.unique(scores)) > 2 for scores in self.scores[:d]]
        out[self.view("straight")] = out[self.view("scores")] = varied
        return out

    def view(self, name: View) -> slice:
        """Where among the inputs a view stands."""
        return self._places[name]

    @cached_property
    def _places(self) -> dict[View, slice]:
        d = len(self.knots) - self.n_boosted
        ends = np.cumsum([0, d, 2 * self.n_boosted, d, len(self.column)]).tolist()
        return {name: slice(*ends[i : i + 2]) for i, name in enumerate(get_args(View))}

    def span(self, views: Sequence[View]) -> slice:
        """Where among the inputs views stand that follow each other."""
        return slice(self.view(views[0]).start, self.view(views[-1]).stop)

    def encode(
        self, x: Floats, views: Collection[View] = get_args(View), out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """``(n, d)`` to ``(n, D)``, one view after the other; 0 where a view is not wanted.

        Args:
            x: Encoded covariates.
            views: Those that are wanted.
            out: Zeros to be filled, in place of new ones.
        """
        out = np.zeros((len(x), len(self))) if out is None else out
        d = len(self.knots) - self.n_boosted
        if "straight" in views:
            out[:, self.view("straight")] = _drawn_in(x[:, :d])
        if "boosted" in views:
            further = _drawn_in(x[:, d:]), self._scores(x, slice(d, None))
            out[:, self.view("boosted")] = np.hstack(further)
        if "scores" in views:
            out[:, self.view("scores")] = self._scores(x, slice(d))
        if "pieces" in views:
            out[:, self.view("pieces")] = self._pieces(x)
        return out

    def _scores(self, x: Floats, columns: slice) -> Floats:
        knots, scores = self.knots[columns], self.scores[columns]
        found = np.empty((len(x), len(knots)))
        for j, column in enumerate(x.T[columns]):
            found[:, j] = np.interp(column, knots[j], scores[j])
        return np.clip(found, scores[:, 0], scores[:, -1])

    def _pieces(self, x: Floats) -> Floats:
        pieces = x.take(self.column, axis=1)
        with np.errstate(over="ignore"):  # far beyond a short piece
            pieces -= self.start
            pieces /= self.length
        np.clip(pieces, 0, 1, out=pieces)
        pieces *= 0.5
        return pieces

    def arrays(self) -> dict[str, Any]:
        """What `restored` needs."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restored(cls, arrays: dict[str, Any], n_columns: int, n_boosted: int = 0) -> Inputs:
        """From arrays that may hold anything: a ValueError unless they can work."""
        floats = ("knots", "scores", "start", "length")
        found = cls(
            column=arrays["column"],
            n_boosted=n_boosted,
            **{name: np.asarray(arrays[name], float) for name in floats},
        )
        if not (
            found.knots.shape == found.scores.shape == (n_columns + n_boosted, _N_KNOTS)
            and np.all(np.diff(found.knots) >= 0)
            and np.all(np.isfinite(found.knots))
            and np.all(np.isfinite(found.scores))
            and found.column.dtype.kind == "i"
            and found.column.shape == found.start.shape == found.length.shape
            and found.column.ndim == 1
            and np.all((found.column >= 0) & (found.column < n_columns))
            and np.all(np.isfinite(found.start))
            and np.all(np.isfinite(found.length))
            and np.all(found.length > 0)
        ):
            raise ValueError("its inputs are damaged: knots do not increase")
        return found


def _drawn_in(x: Floats) -> Floats:
    """Values as they are, far ones pulled in by a logarithm."""
    far = np.maximum(np.abs(x) - _NEAR, 0.0)
    return np.sign(x) * (np.minimum(np.abs(x), _NEAR) + np.log1p(far))
