"""What all models made of networks share: a device, a history, saving, answers row by row."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gentle.models.base import ConditionalGenerator, Floats


class NeuralGenerator(ConditionalGenerator):
    """A model made of networks, which are fitted attributes and are saved with it.

    A model names its networks in ``_networks`` and builds one in `_network`; training sets them as
    fitted attributes, with ``_`` after the name, together with ``history_``.

    Attributes:
        history_: One record per epoch, for ``pandas.DataFrame(model.history_)`` or
            `gentle.plots.history`.
    """

    _networks: ClassVar[tuple[str, ...]]

    history_: list[dict[str, float]]

    @abstractmethod
    def _network(self, name: str, n_covariates: int, weights: torch.Generator | None) -> nn.Module:
        """An untrained network; the source of its initial weights leaves the global one alone."""

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {
            f"{name}.{key}": tensor.detach().cpu().numpy()
            for name in self._networks
            for key, tensor in getattr(self, f"{name}_").state_dict().items()
        }
        return arrays, {"history": self.history_}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        for name in self._networks:
            prefix = f"{name}."
            own = {key[len(prefix) :]: a for key, a in arrays.items() if key.startswith(prefix)}
            network = loaded(partial(self._network, name, self._n_encoded), own, self.device)
            setattr(self, f"{name}_", network)
        self.history_ = facts["history"]
        if not (
            isinstance(self.history_, list)
            and all(isinstance(record, dict) and "epoch" in record for record in self.history_)
            and all(type(v) in (int, float) for record in self.history_ for v in record.values())
        ):
            raise ValueError("its history is damaged")


def loaded(
    build: Callable[[torch.Generator | None], nn.Module], arrays: dict[str, Any], device: str
) -> Any:
    """A network with weights that may be anything.

    A ValueError unless they are those of such a network, which is built only then: settings from a
    file could ask for one that no memory holds.

    Args:
        build: Gives an untrained network, given a source of initial weights.
        arrays: The weights by name.
        device: Where the network is to be.
    """
    with torch.device("meta"):  # shapes without memory
        shapes = {name: tuple(weight.shape) for name, weight in build(None).state_dict().items()}
    if shapes != {name: array.shape for name, array in arrays.items()}:
        raise ValueError("its networks are damaged: they are not those of its settings")
    network = build(torch.Generator())
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return network.to(chosen_device(device)).eval()


@torch.no_grad()
def evaluate(
    net: Callable[[Tensor, Tensor], Tensor],
    x: Floats,
    points: Floats,
    device: torch.device,
    rows_at_once: int = 1,
) -> Floats:
    """A network at each row's points: ``(n, d)`` and ``(n, m)`` to ``(n, m)``.

    One row at a time unless told otherwise: matrix products of another height may round
    differently, and a row's answer must not depend on its company.
    """
    out = np.empty(points.shape)
    for first in range(0, len(x), rows_at_once):
        rows = slice(first, first + rows_at_once)
        pair = [torch.tensor(a[rows], dtype=torch.float32, device=device) for a in (x, points)]
        out[rows] = net(*pair).cpu().numpy()
    return out


def chosen_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is one, and else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device.type in there and not there[device.type]():
        warnings.warn(f"there is no {name!r} device here; using the CPU instead", stacklevel=4)
        return torch.device("cpu")
    return device


def is_device(name: Any) -> bool:
    """Whether this names a device that the networks can run on."""
    return name == "auto" or torch.device(name).type in ("cpu", "cuda", "mps")
