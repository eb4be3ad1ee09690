"""Several processes that learn together: each takes its share of every batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Team:
    """Processes that hold the same rows and weights and take every step together.

    All of them draw the same batch and the same random numbers. Each computes the part of the loss
    that belongs to its share of the batch; what they add up is the loss, and the gradient, of the
    whole batch. So training is the same as in one process up to rounding, and the same code serves
    both: a process without others is a team of one.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes; if there are several, those of ``torch.distributed``.

    Example:
        >>> Team(rank=0, size=2).share(7), Team(rank=1, size=2).share(7)
        (slice(0, 3, None), slice(3, 7, None))
    """

    rank: int = 0
    size: int = 1

    def share(self, n_items: int) -> slice:
        """Which of the items of a batch are this process's own."""
        return slice(n_items * self.rank // self.size, n_items * (self.rank + 1) // self.size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their sums over all processes, in one message."""
        if self.size == 1:
            return
        from torch import distributed

        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(total.view_as(tensor))

    def add_up_gradients(self, parameters: Iterable[Tensor], *others: Tensor) -> None:
        """The same for the gradients of some parameters, 0 where there are none, and for others."""
        if self.size == 1:
            return
        parameters = list(parameters)
        for parameter in parameters:
            if parameter.grad is None:  # an empty share
                parameter.grad = torch.zeros_like(parameter)
        self.add_up([*(p.grad for p in parameters if p.grad is not None), *others])

    def of_first(self, value: Any) -> Any:
        """The value that the first process has."""
        if self.size == 1:
            return value
        from torch import distributed

        values = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]


_present: ContextVar[Team | None] = ContextVar("team", default=None)
_ALONE = Team()


def present() -> Team:
    """The team that this process belongs to now."""
    return _present.get() or _ALONE


@contextmanager
def together(team: Team) -> Iterator[None]:
    """Let the trainings within be those of a team.

    Example:
        >>> with together(Team(rank=1, size=2)):
        ...     present().rank
        1
    """
    token = _present.set(team)
    try:
        yield
    finally:
        _present.reset(token)
