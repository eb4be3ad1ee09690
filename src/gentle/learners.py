"""What learns in steps: its state, a copy of it, and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Learner(ABC):
    """What learns in steps, and can be put back to where it was.

    A learner names in ``_changing`` the attributes that its steps change: networks, optimisers,
    sources of random numbers, numbers, arrays, tensors and dictionaries of them.

    Example:
        >>> class Walker(Learner):
        ...     _changing = ("rng", "place")
        ...     rng, place = np.random.default_rng(0), 0.0
        ...
        ...     def step(self, batch):
        ...         self.place += self.rng.normal()
        ...         return {"loss": abs(self.place)}
        >>> walker = Walker()
        >>> before = walker.state_dict()
        >>> losses = walker.step(np.arange(1))
        >>> walker.load_state_dict(before)
        >>> walker.step(np.arange(1)) == losses
        True
    """

    _changing: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def step(self, batch: NDArray[np.int64]) -> Mapping[str, float]:
        """Learn from the items with these numbers; the losses by name, ``loss`` among them."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that steps change."""
        return {name: state_of(getattr(self, name)) for name in self._changing}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` gave."""
        for name in self._changing:
            setattr(self, name, restored(getattr(self, name), state[name]))

    def slow_down(self, factor: float) -> None:
        """Multiply the size of all steps from now on."""
        for name in self._changing:
            for group in getattr(getattr(self, name), "param_groups", []):
                group["lr"] *= factor

    @property
    def networks(self) -> list[nn.Module]:
        """Those of the changing attributes that are networks."""
        parts = [getattr(self, name) for name in self._changing]
        return [part for part in parts if isinstance(part, nn.Module)]


def state_of(part: Any) -> Any:
    """A copy of a part's state: numbers, texts, arrays, tensors, and what is made of them."""
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, np.random.Generator):
        return state_of(part.bit_generator.state)
    if hasattr(part, "state_dict"):
        return state_of(part.state_dict())
    if isinstance(part, Tensor):
        return part.detach().clone()
    if isinstance(part, np.ndarray):
        return part.copy()
    if isinstance(part, dict):
        return {key: state_of(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(state_of(value) for value in part)
    return part


def restored(part: Any, state: Any) -> Any:
    """The part in an earlier state: itself if it can be changed, or a copy of what it was."""
    if isinstance(part, torch.Generator):
        part.set_state(state)
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif hasattr(part, "load_state_dict"):
        part.load_state_dict(state_of(state))  # Adam would go on with these very tensors
    elif isinstance(part, Tensor):
        return state.to(part.device, copy=True)
    elif isinstance(part, dict):
        return {key: restored(part[key], value) for key, value in state.items()}
    else:
        return state_of(state)
    return part


def tensors_in(state: Any) -> Iterator[Tensor]:
    """All tensors of floating-point numbers in a state."""
    if isinstance(state, Tensor) and state.is_floating_point():
        yield state
    elif isinstance(state, (dict, list, tuple)):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors_in(part)
