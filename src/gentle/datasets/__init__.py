"""Data sets by name: ``load(name)`` gives train, validation, test and, if known, the truth."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from gentle.datasets import ecm, ldw
from gentle.datasets.base import Benchmark, ExactTruth, Listing, Table, Truth
from gentle.datasets.ecm import draw_covariates, simulate_ecm
from gentle.datasets.synthetic import PROBLEMS, Problem
from gentle.datasets.tables import TABLES, RealTable

__all__ = [
    "load",
    "names",
    "Benchmark",
    "Table",
    "Truth",
    "ExactTruth",
    "Listing",
    "simulate_ecm",
    "draw_covariates",
    "Problem",
    "PROBLEMS",
    "RealTable",
    "TABLES",
]

_CATALOGUE: dict[str, tuple[Listing, Callable[..., Benchmark]]] = {
    ldw.LISTING.name: (ldw.LISTING, ldw.load_ldw_cps),
    ecm.LISTING.name: (ecm.LISTING, ecm.load_ecm),
    **{name: (problem.listing, problem.benchmark) for name, problem in PROBLEMS.items()},
    **{name: (table.listing, table.load) for name, table in TABLES.items()},
}


def load(name: str, **options: Any) -> Benchmark:
    """Load a data set by name.

    Args:
        name: One of the names that `names` lists.
        **options: For "ecm", see `gentle.datasets.ecm.load_ecm`: n_patients, n_test_covariates,
            n_responses, control_variate, random_state. For the synthetic problems n_train, n_val,
            n_test, random_state. For the tables from the world n_train, the most training rows
            (5,000; None for all), and random_state, the number of the split. Everything has a
            default; equal options give equal data.

    Returns:
        The data set.

    Raises:
        ValueError: There is no data set of this name.

    Example:
        >>> benchmark = load("tanh-plus-gamma", n_train=500)
        >>> len(benchmark.train)
        500
        >>> benchmark.truth.quantile(benchmark.test.X, [0.05, 0.95]).shape
        (2000, 2)
        >>> load("gapminder").train.X.dtypes["year"]
        dtype('int64')
    """
    if name not in _CATALOGUE:
        closest = get_close_matches(str(name), _CATALOGUE, n=1, cutoff=0)[0]
        raise ValueError(
            f"there is no data set {name!r}; did you mean {closest!r}? "
            f"Known: {', '.join(_CATALOGUE)}."
        )
    _, loader = _CATALOGUE[name]
    return loader(**options)


def names() -> list[Listing]:
    """All data sets, one line each, without loading them.

    Returns:
        Name, description, rows, covariates, response, unit and column of each data set;
        ``pandas.DataFrame(names())`` makes a table of it.

    Example:
        >>> [listing.name for listing in names()][:3]
        ['ldw-cps', 'ecm', 'tanh-plus-gamma']
    """
    return [listing for listing, _ in _CATALOGUE.values()]
