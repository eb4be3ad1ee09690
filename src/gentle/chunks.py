"""Distributions of many rows in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.data import group_rows
from gentle.distribution import ConditionalDistribution, Floats
from gentle.streams import Seed, as_seed
from gentle.workers import by_threads

Ints = NDArray[np.int64]

_BLOCKS = 1024, 256  # rows that models work on together, the larger ones if there are as many
_WORTH = 0.8  # share of different covariates below which equal ones are asked once


def in_chunks(
    x: Floats, conditional: Callable[[Floats], ConditionalDistribution], chunk_rows: int
) -> ConditionalDistribution:
    """The distributions at many covariates, computed when they are asked something.

    Args:
        x: Covariates, ``(n, d)``.
        conditional: Gives the distributions at some of them; a row's must not depend on others.
        chunk_rows: Rows that it is given at once, about.
    """

    def at(x: Floats) -> ChunkedDistribution:
        return ChunkedDistribution(len(x), lambda rows: conditional(x[rows]), chunk_rows)

    if len(x) > chunk_rows:
        first, group = group_rows(x)
        if len(first) < _WORTH * len(x):
            return SharedDistribution(at(x), at(x[first]), group)
    return at(x)


class ChunkedDistribution(ConditionalDistribution):
    """Many rows, computed a chunk at a time when a question is asked, so that memory stays bounded.

    Args:
        n_rows: Number of rows.
        compute: Gives the distribution of the rows of a slice.
        chunk_rows: Rows per slice at most, about.
    """

    def __init__(
        self, n_rows: int, compute: Callable[[slice], ConditionalDistribution], chunk_rows: int
    ) -> None:
        self._block = next((block for block in _BLOCKS if block <= chunk_rows), 1)
        whole = chunk_rows - chunk_rows % self._block
        self._n_rows, self._compute, self._chunk_rows = n_rows, compute, max(1, whole)

    def __len__(self) -> int:
        return self._n_rows

    @cached_property
    def _only(self) -> ConditionalDistribution:
        return self._compute(slice(0, self._n_rows))

    def _map(
        self,
        ask: Callable[[ConditionalDistribution, slice], Any],
        joined: Callable[[list[Any]], Any] = np.concatenate,
    ) -> Any:
        if self._n_rows <= self._chunk_rows:
            return ask(self._only, slice(0, self._n_rows))

        def answered(rows: slice) -> Any:
            return ask(self._compute(rows), rows)

        return joined(by_threads(answered, self._n_rows, self._chunk_rows, self._block))

    def ppf(self, u: Floats) -> Floats:  # noqa: D102
        return self._map(lambda part, rows: part.ppf(u[rows]))

    def _quantiles(self, levels: Floats) -> Floats:
        out = np.empty((self._n_rows, levels.size))  # filled in place, as it may be large

        def fill(part: ConditionalDistribution, rows: slice) -> None:
            out[rows] = part._quantiles(levels)

        self._map(fill, lambda _: None)
        return out

    def sample(  # noqa: D102
        self,
        n_samples: int = 1,
        random_state: Seed = None,
        u: ArrayLike | None = None,
        first_row: int = 0,
    ) -> Floats:
        if u is not None:
            return super().sample(n_samples, random_state, u, first_row)
        seed = as_seed(random_state)
        return self._map(
            lambda part, rows: part.sample(n_samples, seed, first_row=first_row + rows.start)
        )

    def mean(self) -> Floats:  # noqa: D102
        return self._map(lambda part, _: part.mean())

    def std(self) -> Floats:  # noqa: D102
        return self._map(lambda part, _: part.std())

    def atoms(  # noqa: D102
        self, min_probability: float = 0.0
    ) -> list[tuple[Floats, Floats]]:
        return self._map(
            lambda part, _: part.atoms(min_probability), lambda found: list(chain(*found))
        )

    def spread(self) -> Floats:  # noqa: D102
        return self._map(lambda part, _: part.spread())

    def affine(self, scale: float, shift: float) -> ChunkedDistribution:  # noqa: D102
        compute, chunk = self._compute, self._chunk_rows
        return ChunkedDistribution(
            self._n_rows, lambda rows: compute(rows).affine(scale, shift), chunk
        )

    def _at(self, question: str, points: Floats) -> Floats:
        return self._map(lambda part, rows: part._at(question, points[rows]))


class SharedDistribution(ConditionalDistribution):
    """Rows of which many are alike: a question that is the same for all is asked once for each.

    Args:
        every: The distributions of all rows, asked where each row has a question of its own.
        different: Those that differ.
        group: Which of these each row has, ``(n,)``.
    """

    def __init__(
        self, every: ConditionalDistribution, different: ConditionalDistribution, group: Ints
    ) -> None:
        self._every, self._different, self._group = every, different, group

    def __len__(self) -> int:
        return len(self._group)

    def ppf(self, u: Floats) -> Floats:  # noqa: D102
        return self._every.ppf(u)

    def _quantiles(self, levels: Floats) -> Floats:
        found, out = self._different._quantiles(levels), np.empty((len(self), levels.size))

        def fill(rows: slice) -> None:
            np.take(found, self._group[rows], axis=0, out=out[rows], mode="clip")

        by_threads(fill, len(out), _BLOCKS[0])
        return out

    def sample(  # noqa: D102
        self,
        n_samples: int = 1,
        random_state: Seed = None,
        u: ArrayLike | None = None,
        first_row: int = 0,
    ) -> Floats:
        return self._every.sample(n_samples, random_state, u, first_row)

    def mean(self) -> Floats:  # noqa: D102
        return self._different.mean()[self._group]

    def std(self) -> Floats:  # noqa: D102
        return self._different.std()[self._group]

    def atoms(  # noqa: D102
        self, min_probability: float = 0.0
    ) -> list[tuple[Floats, Floats]]:
        found = self._different.atoms(min_probability)
        return [found[number] for number in self._group]

    def spread(self) -> Floats:  # noqa: D102
        return self._different.spread()[self._group]

    def affine(self, scale: float, shift: float) -> SharedDistribution:  # noqa: D102
        every, different = (part.affine(scale, shift) for part in (self._every, self._different))
        return SharedDistribution(every, different, self._group)

    def _at(self, question: str, points: Floats) -> Floats:
        return self._every._at(question, points)
