"""Random numbers that belong to a row and a draw, whoever else is asked for."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Seed = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None

_TILE = 64  # rows and draws that share one stream of uniforms


def as_seed(random_state: Seed) -> int:
    """A seed from what users pass as one; None gives a fresh one. Global state is left alone."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.SeedSequence):
        return int(random_state.generate_state(2, np.uint64)[0])
    seed = operator.index(random_state)
    if seed < 0:
        raise ValueError(f"random_state must not be negative, got {seed}")
    return seed


def uniforms(seed: int, n_rows: int, n_samples: int, first_row: int = 0) -> Floats:
    """Independent uniforms that depend on (seed, row, draw) only, ``(n_rows, n_samples)``.

    Tiles of 64 × 64 (row, draw) cells each have a stretch of their own in one PCG64 sequence. So
    any block of rows or draws can be had alone, equals that block of a larger request, and costs
    about what a plain generator costs.

    Example:
        >>> whole = uniforms(7, 100, 70)
        >>> bool((uniforms(7, 10, 5, first_row=80) == whole[80:90, :5]).all())
        True
    """
    bits = np.random.PCG64(seed)
    origin, rng = bits.state, np.random.Generator(bits)
    out = np.empty((n_rows, n_samples))
    last_row = first_row + n_rows
    for top in range(first_row - first_row % _TILE, last_row, _TILE):
        lo, hi = max(top, first_row), min(top + _TILE, last_row)
        for left in range(0, n_samples, _TILE):
            bits.state = origin
            bits.advance(((top // _TILE) << 64) + ((left // _TILE) << 20))
            tile = rng.random((hi - top, _TILE))
            out[lo - first_row : hi - first_row, left : left + _TILE] = tile[
                lo - top :, : n_samples - left
            ]
    return out
