"""Search spaces: what a model's hyper-parameters may be, declared beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OneOf:
    """One of some values.

    Example:
        >>> OneOf((64, 128, 256))
        OneOf(values=(64, 128, 256))
    """

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Between:
    """A number from ``low`` to ``high``, evenly spread, or evenly in its logarithm.

    An integer if both ends are integers.

    Example:
        >>> Between(1e-4, 1e-2, log=True)
        Between(low=0.0001, high=0.01, log=True)
    """

    low: float
    high: float
    log: bool = False


Space = Mapping[str, OneOf | Between]
