"""Every model, each a scikit-learn estimator that answers with whole conditional distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gentle.models.registry import AROUND_MODELS, MODULES

if TYPE_CHECKING:
    from gentle.models.adapters import CatBoost, Engression, NGBoost, RealMLP
    from gentle.models.adversarial import CWGAN, MGAN, WGANGP
    from gentle.models.base import ConditionalGenerator
    from gentle.models.bridge import CDSB
    from gentle.models.conformal import ConformalGenerator
    from gentle.models.gentle import GENTLE
    from gentle.models.persistence import load
    from gentle.models.quantile import QRGMM
    from gentle.models.reference import KNN, KernelCDE, Marginal
    from gentle.models.trees import BoostedQuantiles, QuantileForest

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
    "ConditionalGenerator",
    "load",
]

_HOMES = {
    **MODULES,
    **AROUND_MODELS,
    "ConditionalGenerator": "gentle.models.base",
    "load": "gentle.models.persistence",
}


def __getattr__(
    name: str,
) -> Any:  # models are imported when they are asked for: torch takes a second
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
