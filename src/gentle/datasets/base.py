"""What every data set looks like: three tables, a description and, where it is known, the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
RandomState = int | np.random.Generator | None


@dataclass(frozen=True, eq=False)
class Table:
    """Covariates with one response per row; a covariate seen several times fills several rows.

    Attributes:
        X: Covariates, ``(n, d)``: numbers and, in tables from the world, also booleans, text,
            categories and missing values.
        y: Responses, finite numbers, ``(n,)``.
        weight: Non-negative row weights, ``(n,)``, or None where all rows count alike.

    Example:
        >>> X, y = Table(pd.DataFrame({"age": [55, 60]}), np.array([20.5, 18.5]))
        >>> X.shape, y.shape
        ((2, 1), (2,))
    """

    X: pd.DataFrame
    y: Floats
    weight: Floats | None = None

    def __post_init__(self) -> None:
        for name, column in (("y", self.y), ("weight", self.weight)):
            if column is not None and column.shape != (len(self.X),):
                raise ValueError(
                    f"{name} has shape {column.shape}, but X has {len(self.X)} rows. "
                    f"Pass one value per row, shape ({len(self.X)},)."
                )

    def __len__(self) -> int:
        return len(self.X)

    def __iter__(self) -> Iterator[Any]:  # of two types: a union would blur X, y = table
        yield self.X
        yield self.y


@runtime_checkable
class Truth(Protocol):
    """A conditional law from which fresh responses can be drawn."""

    def sample(
        self, X: pd.DataFrame, n_samples: int = 1, random_state: RandomState = None
    ) -> Floats:
        """Independent responses at every row of ``X``, ``(n, n_samples)``."""
        ...


@runtime_checkable
class ExactTruth(Truth, Protocol):
    """A conditional law that is also known by its functions; ``isinstance`` tells the two apart."""

    def quantile(self, X: pd.DataFrame, alpha: ArrayLike) -> Floats:
        """Quantiles at the levels ``alpha``, ``(n, len(alpha))``."""
        ...

    def cdf(self, X: pd.DataFrame, y: ArrayLike) -> Floats:
        """P(Y ≤ y | X): ``y`` of shape ``(n,)`` or ``(n, m)``, the answer of the same shape."""
        ...

    def mean(self, X: pd.DataFrame) -> Floats:
        """E[Y | X], ``(n,)``."""
        ...


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set cut into the three parts that every method has to use alike.

    Attributes:
        name: The name under which `load` knows it.
        description: One line on what it is.
        response: What ``y`` measures.
        unit: The unit of ``y``.
        train: What a model may fit.
        val: What may choose between models.
        test: What scores them.
        truth: The law behind the responses, or None for data from the world.
    """

    name: str
    description: str
    response: str
    unit: str
    train: Table
    val: Table
    test: Table
    truth: Truth | None = None


@dataclass(frozen=True)
class Listing:
    """One line of the catalogue; ``pandas.DataFrame(names())`` turns the lines into a table.

    Attributes:
        name: What to pass to `load`.
        description: One line on what it is.
        rows: Rows of the whole data set, of which `load` may take fewer.
        covariates: Number of covariates.
        response: What ``y`` measures.
        unit: The unit of ``y``.
        column: The name of ``y`` where it stands beside the covariates, as in a file.
    """

    name: str
    description: str
    rows: int
    covariates: int
    response: str
    unit: str
    column: str = "y"

    def benchmark(
        self, train: Table, val: Table, test: Table, truth: Truth | None = None
    ) -> Benchmark:
        """The benchmark that this line announces, filled with its data."""
        return Benchmark(
            self.name, self.description, self.response, self.unit, train, val, test, truth
        )
