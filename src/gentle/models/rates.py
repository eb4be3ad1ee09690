"""The learning rate of the default GENTLE, in cycles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_N_CYCLES = 6
_WARM_UP = 30  # steps
_NOISY = 0.6, 0.3  # part of the spread above which steps stay as they are; on large tables
_QUICKEST = 4.0
_MANY_INPUTS = 1440  # of all networks together


def quickening(left: float, is_large: bool) -> float:
    """Factor of the learning rate once only a part of the marginal's loss is left.

    Where little noise hides a law there is more of it to be learned, and steps may be larger.

    Example:
        >>> quickening(0.5, is_large=False), quickening(0.5, is_large=True), quickening(0.0, True)
        (1.44, 1.0, 4.0)
    """
    return min(max(_NOISY[is_large] / max(left, 1e-9), 1.0) ** 2, _QUICKEST)


def affordable(n_steps: int, n_inputs: int) -> int:
    """Steps for small tables, which are to take seconds: fewer where networks have many inputs.

    Example:
        >>> affordable(3000, n_inputs=1000), affordable(3000, n_inputs=3600)
        (3000, 1200)
    """
    return round(n_steps * _MANY_INPUTS / max(_MANY_INPUTS, n_inputs))


class Cycles:
    """Cosine cycles, each about twice as long as the one before, after a warm-up.

    Args:
        steps_per_epoch: A cycle is made of whole epochs.
        n_steps: The budget that all cycles together use up, at least one epoch.

    Attributes:
        ends: Epochs at which cycles end.

    Example:
        >>> Cycles(steps_per_epoch=10, n_steps=630).ends
        array([ 1,  3,  7, 15, 31, 63])
    """

    def __init__(self, steps_per_epoch: int, n_steps: int) -> None:
        budget = max(1, round(n_steps / steps_per_epoch))
        lengths = [max(1, round(budget * 2**i / (2**_N_CYCLES - 1))) for i in range(_N_CYCLES)]
        while sum(lengths) > budget and len(lengths) > 1:
            lengths = lengths[1:]
        self.steps_per_epoch = steps_per_epoch
        self.end_at(np.cumsum(lengths))

    def end_at(self, ends: ArrayLike) -> None:
        """Let cycles end at these epochs."""
        self.ends = np.asarray(ends, np.int64)
        lengths = np.diff(self.ends, prepend=0)
        self._ends, self._lengths = (self.steps_per_epoch * a for a in (self.ends, lengths))

    def stretch(self, epoch: int, factor: float) -> None:
        """Make what comes after an epoch longer."""
        left = np.maximum(self.ends - epoch, 0)
        self.end_at(np.minimum(self.ends, epoch) + np.round(factor * left))

    def length(self, step: int) -> int:
        """Steps of the cycle that a step belongs to."""
        return int(self._lengths[self._number(step)])

    def factor(self, step: int) -> float:
        """Of the learning rate."""
        number = self._number(step)
        first, length = self._ends[number] - self._lengths[number], self._lengths[number]
        warm = min(1.0, (step + 1) / _WARM_UP)
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * ((step - first) / length))))

    def _number(self, step: int) -> int:
        return min(int(np.searchsorted(self._ends, step, "right")), len(self._ends) - 1)
