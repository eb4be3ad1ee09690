"""GENTLE: the whole conditional distribution of Y given X = x, learned from a table.

Example:
    >>> import gentle
    >>> benchmark = gentle.datasets.load("tanh-plus-gamma")  # doctest: +SKIP
    >>> model = gentle.GENTLE().fit(*benchmark.train)  # doctest: +SKIP
    >>> draws = model.sample(benchmark.test.X, n_samples=1000)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gentle.models.registry import AROUND_MODELS, MODULES

if TYPE_CHECKING:
    from gentle import (
        cluster,
        comparison,
        datasets,
        diagnostics,
        effects,
        experiments,
        importance,
        metamodel,
        metrics,
        models,
        plots,
        report,
        streaming,
        tuning,
    )
    from gentle.distribution import ConditionalDistribution, QuantileTable
    from gentle.models import (
        CDSB,
        CWGAN,
        GENTLE,
        KNN,
        MGAN,
        QRGMM,
        WGANGP,
        BoostedQuantiles,
        CatBoost,
        ConditionalGenerator,
        ConformalGenerator,
        Engression,
        KernelCDE,
        Marginal,
        NGBoost,
        QuantileForest,
        RealMLP,
        load,
    )

__version__ = "0.1.0"

__all__ = [
    "GENTLE",
    "CWGAN",
    "WGANGP",
    "MGAN",
    "CDSB",
    "QRGMM",
    "QuantileForest",
    "BoostedQuantiles",
    "KernelCDE",
    "KNN",
    "Marginal",
    "Engression",
    "NGBoost",
    "CatBoost",
    "RealMLP",
    "ConformalGenerator",
    "load",
    "ConditionalGenerator",
    "ConditionalDistribution",
    "QuantileTable",
    "cluster",
    "comparison",
    "datasets",
    "diagnostics",
    "effects",
    "experiments",
    "importance",
    "metamodel",
    "metrics",
    "models",
    "plots",
    "report",
    "streaming",
    "tuning",
]

_HOMES = {
    "ConditionalDistribution": "gentle.distribution",
    "QuantileTable": "gentle.distribution",
    "ConditionalGenerator": "gentle.models",
    "load": "gentle.models",
    **dict.fromkeys(MODULES | AROUND_MODELS, "gentle.models"),
}


def __getattr__(name: str) -> Any:  # nothing is imported before it is asked for
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"gentle.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
