"""Steps: doubly smoothed gradient descent-ascent (the paper's Alg. 2), and a batch's own Adam."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Gradient = Callable[[], None]

_KEEP = (0.9, 0.999)  # of the means of gradients and of their squares
_SMALL = 1e-8


class DoublySmoothedGDA:
    r"""Descent in θ, ascent in φ, each pulled towards a follower: p of θ, q of φ.

    The objective is L(θ, φ) + r₁/2 ‖θ - p‖² - r₂/2 ‖φ - q‖² (Eq. 12).

    One step (Alg. 2, lines 4-7)::

        θ ← θ - α ∇_θ L̂(θ, φ, p, q)        φ ← φ + β ∇_φ L̂(θ, φ, p, q)   at the new θ
        p ← p + γ (θ - p)                   q ← q + δ (φ - q)

    With ``inner="adam"`` the same gradients, anchors included, pass through Adam in place of the
    plain step.

    Args:
        generator: Parameters θ.
        potential: Parameters φ; may be empty.
        lr_generator: α.
        lr_potential: β.
        anchor_generator: r₁ ≥ 0; 0 switches the smoothing of θ off.
        anchor_potential: r₂ ≥ 0; 0 switches the smoothing of φ off.
        follow_generator: γ in [0, 1].
        follow_potential: δ in [0, 1].
        inner: "adam" or "sgd".
    """

    def __init__(
        self,
        generator: Iterable[Tensor],
        potential: Iterable[Tensor],
        *,
        lr_generator: float,
        lr_potential: float,
        anchor_generator: float,
        anchor_potential: float,
        follow_generator: float,
        follow_potential: float,
        inner: str = "adam",
    ) -> None:
        if inner not in ("adam", "sgd"):
            raise ValueError(f"the inner step must be 'adam' or 'sgd', got {inner!r}")
        self.generator = _Smoothed(
            generator, lr_generator, anchor_generator, follow_generator, inner, maximize=False
        )
        self.potential = _Smoothed(
            potential, lr_potential, anchor_potential, follow_potential, inner, maximize=True
        )

    def step(self, generator_gradient: Gradient, potential_gradient: Gradient) -> None:
        """One iteration.

        Args:
            generator_gradient: Adds ∇_θ of the loss, without the anchor terms, to the ``grad`` of
                θ.
            potential_gradient: Likewise ∇_φ for φ; it is called when θ is already new.
        """
        self.generator.update(generator_gradient)  # line 4
        self.potential.update(potential_gradient)  # line 5
        self.generator.follow()  # line 6
        self.potential.follow()  # line 7

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Of both players' inner steps; ``lr`` may be changed there."""
        inner = (self.generator.inner, self.potential.inner)
        return [group for one in inner if one is not None for group in one.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs beside the parameters themselves."""
        return {"generator": self.generator.state_dict(), "potential": self.potential.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.generator.load_state_dict(state["generator"])
        self.potential.load_state_dict(state["potential"])


class _Smoothed:
    """One player: its parameters, the anchor that follows them, and the inner step."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        strength: float,
        follow: float,
        inner: str,
        maximize: bool,
    ) -> None:
        self.params = list(params)
        self.anchor = [p.detach().clone() for p in self.params] if strength else []
        self.strength, self.rate, self.sign = strength, follow, -1.0 if maximize else 1.0
        make = torch.optim.Adam if inner == "adam" else torch.optim.SGD
        self.inner = make(self.params, lr=lr, maximize=maximize) if self.params else None

    def update(self, gradient: Gradient) -> None:
        if self.inner is None:
            return
        self.inner.zero_grad(set_to_none=True)
        gradient()
        with torch.no_grad():
            for param, anchor in zip(self.params, self.anchor):
                if param.grad is None:  # nothing to learn from this batch, but the anchor pulls
                    param.grad = torch.zeros_like(param)
                param.grad.add_(param - anchor, alpha=self.sign * self.strength)
        self.inner.step()

    @torch.no_grad()
    def follow(self) -> None:
        for param, anchor in zip(self.params, self.anchor):
            anchor.lerp_(param, self.rate)

    def state_dict(self) -> dict[str, Any]:
        # Adam hands out its own moments; a stored state must not move with them.
        inner = None if self.inner is None else copy.deepcopy(self.inner.state_dict())
        return {"anchor": [a.clone() for a in self.anchor], "inner": inner}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for mine, stored in zip(self.anchor, state["anchor"], strict=True):
            mine.copy_(stored)
        if self.inner is not None:
            self.inner.load_state_dict(state["inner"])


class Adam:
    """What ``torch.optim.Adam`` does, without the second that it takes to load a compiler.

    Args:
        parameters: What to change, in place.

    Example:
        >>> weight = torch.tensor([1.0, -2.0], requires_grad=True)
        >>> weight.square().sum().backward()
        >>> Adam([weight]).step(rate=0.1)
        >>> weight
        tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        self.mean = [torch.zeros_like(one) for one in self.parameters]
        self.square = [torch.zeros_like(one) for one in self.parameters]
        self.n_steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take a step with the gradients that the parameters have now."""
        self.n_steps += 1
        moving = [
            (one, one.grad, mean, square)
            for one, mean, square in zip(self.parameters, self.mean, self.square)
            if one.grad is not None
        ]
        if not moving:
            return
        parameters, gradients, means, squares = (list(group) for group in zip(*moving))
        step = torch.tensor(float(self.n_steps), device=parameters[0].device)
        # One pass over the memory; `torch.optim.Adam(fused=True)` calls the same.
        torch._fused_adam_(  # type: ignore[attr-defined]
            parameters,
            gradients,
            means,
            squares,
            [],
            [step] * len(parameters),
            lr=rate,
            beta1=_KEEP[0],
            beta2=_KEEP[1],
            weight_decay=0.0,
            eps=_SMALL,
            amsgrad=False,
            maximize=False,
        )

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
