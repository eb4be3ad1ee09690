"""Adam, with a decay of weights that may differ from one network of a batch to another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_KEEP = (0.9, 0.999)  # of the means of gradients and of their squares
_SMALL = 1e-8


class Adam:
    """Adam with decoupled decay of weights.

    It does what ``torch.optim.AdamW`` does. That one takes a second to be made, for the first of
    them loads a compiler, and has one decay for all parts of a tensor.

    Args:
        parameters: What to change, in place.
        decay: For each parameter, None or what multiplied by the rate is the share that a step
            takes away; anything that broadcasts against the parameter.

    Example:
        >>> weight = torch.tensor([1.0, -2.0], requires_grad=True)
        >>> weight.square().sum().backward()
        >>> Adam([weight]).step(rate=0.1)
        >>> weight
        tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    def __init__(
        self, parameters: Iterable[Tensor], decay: Iterable[Tensor | None] | None = None
    ) -> None:
        self.parameters = list(parameters)
        self.decay = [None] * len(self.parameters) if decay is None else list(decay)
        self.mean = [torch.zeros_like(one) for one in self.parameters]
        self.square = [torch.zeros_like(one) for one in self.parameters]
        self.n_steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take a step with the gradients that the parameters have now."""
        self.n_steps += 1
        seen, seen_squares = (1 - keep**self.n_steps for keep in _KEEP)
        size, small = rate * math.sqrt(seen_squares) / seen, _SMALL * math.sqrt(seen_squares)
        for one, decay, mean, square in zip(self.parameters, self.decay, self.mean, self.square):
            if one.grad is None:
                continue
            if decay is not None:
                one.mul_(1 - rate * decay)
            mean.lerp_(one.grad, 1 - _KEEP[0])
            square.mul_(_KEEP[1]).addcmul_(one.grad, one.grad, value=1 - _KEEP[1])
            one.addcdiv_(mean, square.sqrt().add_(small), value=-size)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self.parameters:
            one.grad = None

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"mean": self.mean, "square": self.square, "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        for name in ("mean", "square"):
            for held, given in zip(getattr(self, name), state[name]):
                held.copy_(given)
        self.n_steps = state["n_steps"]
