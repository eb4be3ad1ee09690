"""The models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gentle.models.base import ConditionalGenerator

MODULES: dict[str, str] = {
    "GENTLE": "gentle.models.gentle",
    "CWGAN": "gentle.models.adversarial",
    "WGANGP": "gentle.models.adversarial",
    "MGAN": "gentle.models.adversarial",
    "CDSB": "gentle.models.bridge",
    "QRGMM": "gentle.models.quantile",
    "QuantileForest": "gentle.models.trees",
    "BoostedQuantiles": "gentle.models.trees",
    "KernelCDE": "gentle.models.reference",
    "KNN": "gentle.models.reference",
    "Marginal": "gentle.models.reference",
    "Engression": "gentle.models.adapters",
    "NGBoost": "gentle.models.adapters",
    "CatBoost": "gentle.models.adapters",
    "RealMLP": "gentle.models.adapters",
}
AROUND_MODELS: dict[str, str] = {"ConformalGenerator": "gentle.models.conformal"}


def model_class(name: str) -> type[ConditionalGenerator]:
    """The class of a model, imported when it is asked for."""
    from importlib import import_module

    homes = MODULES | AROUND_MODELS
    if name not in homes:
        raise ValueError(f"there is no model {name!r}; the models are {', '.join(homes)}")
    return getattr(import_module(homes[name]), name)
