"""Where to run a simulator, and running it there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.datasets.base import Table
from gentle.streams import Seed, as_seed

Floats = NDArray[np.float64]
Simulator = Callable[[pd.DataFrame, np.random.Generator], Any]
Space = Mapping[str, tuple[float, float] | Sequence[Any]]


def design(
    space: Space,
    n: int,
    method: Literal["sobol", "lhs", "uniform"] = "sobol",
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Inputs that fill a space.

    Args:
        space: For each input a pair ``(low, high)`` of numbers, a ``range`` of whole numbers, or a
            list of what it may be, each value as often as the others.
        n: Number of inputs.
        method: "sobol" (Sobol' points, shifted at random; best if n is a power of 2), "lhs" (a
            Latin hypercube) or independent "uniform" ones.
        random_state: Seed.

    Returns:
        The inputs, ``(n, d)``.

    Example:
        >>> inputs = design({"rate": (0.5, 1.5), "rule": ["fifo", "lifo"]}, 8)
        >>> inputs["rule"].value_counts().tolist(), inputs["rate"].between(0.5, 1.5).all().item()
        ([4, 4], True)
    """
    from scipy.stats import qmc

    if n < 1 or not space:
        raise ValueError(f"a design needs inputs and at least 1 point, got {n} of {list(space)}")
    rng = np.random.default_rng(as_seed(random_state))
    if method == "uniform":
        u = rng.random((n, len(space)))
    elif method == "lhs":  # one point in each n-th of every input
        u = (rng.permuted(np.tile(np.arange(n)[:, None], len(space)), axis=0) + 0.5) / n
        u += (rng.random(u.shape) - 0.5) / n
    elif method == "sobol":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The balance properties")
            u = (qmc.Sobol(len(space), scramble=False).random(n) + rng.random(len(space))) % 1
    else:
        raise ValueError(f"method must be 'sobol', 'lhs' or 'uniform', got {method!r}")
    columns = zip(space.items(), u.T)
    return pd.DataFrame({name: _scaled(name, values, share) for (name, values), share in columns})


def _scaled(name: str, values: Any, u: Floats) -> Any:
    """From (0, 1) to the values of an input, ``(n,)``."""
    if isinstance(values, tuple):
        if len(values) != 2 or not values[0] < values[1]:
            raise ValueError(f"input {name!r} must run from low to high, got {values}")
        return values[0] + u * (values[1] - values[0])
    if not isinstance(values, Sequence) or isinstance(values, str) or not len(values):
        raise ValueError(
            f"input {name!r} must be a pair (low, high), a range or a list, got {values!r}"
        )
    return pd.Series(list(values)).to_numpy()[(u * len(values)).astype(int)]


def replicate(
    simulator: Simulator, X: pd.DataFrame, n_replications: int = 1, random_state: Seed = 0
) -> Table:
    """Run a simulator several times at every input.

    Args:
        simulator: Called with inputs ``(n, d)`` and a random generator, gives one output per row,
            ``(n,)``.
        X: Inputs, ``(n, d)``.
        n_replications: Runs per input, each on random numbers of its own.
        random_state: Seed.

    Returns:
        Inputs and outputs, ``n * n_replications`` rows, those of one input together:
        ``model.fit(*table)``.

    Raises:
        ValueError: An output is missing or no finite number.
        RuntimeError: The simulator failed; the message says at which input.

    Example:
        >>> def queue(inputs, rng):
        ...     return rng.exponential(1 / inputs["rate"])
        >>> table = replicate(queue, design({"rate": (0.5, 1.5)}, 100), n_replications=3)
        >>> len(table)
        300
    """
    if n_replications < 1:
        raise ValueError(f"n_replications must be at least 1, got {n_replications}")
    X = X.reset_index(drop=True)
    streams = np.random.default_rng(as_seed(random_state)).spawn(n_replications)
    y = np.column_stack([outputs(simulator, X, rng) for rng in streams])  # (n, n_replications)
    repeated = X.loc[X.index.repeat(n_replications)].reset_index(drop=True)
    return Table(repeated, y.ravel())


def outputs(simulator: Simulator, X: pd.DataFrame, rng: np.random.Generator) -> Floats:
    """One output per row, ``(n,)``; an error says what is wrong with which row."""
    try:
        y = np.asarray(simulator(X, rng), np.float64)
    except Exception as error:
        raise RuntimeError(_culprit(simulator, X, rng, error)) from error
    if y.shape != (len(X),):
        raise ValueError(
            f"the simulator gave outputs of shape {y.shape} for {len(X)} rows; it must give one "
            f"number per row, ({len(X)},)"
        )
    wrong = ~np.isfinite(y)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"the simulator gave {y[row]} at row {row}, {X.iloc[row].to_dict()}; outputs must be "
            "finite numbers"
        )
    return y


def _culprit(
    simulator: Simulator, X: pd.DataFrame, rng: np.random.Generator, error: Exception
) -> str:
    """At which row a simulator fails, in words."""
    for row in range(len(X)):
        try:
            simulator(X.iloc[[row]], rng)
        except Exception as again:
            return f"the simulator failed at row {row}, {X.iloc[row].to_dict()}: {again!r}"
    return f"the simulator failed, though at no single row: {error!r}"
