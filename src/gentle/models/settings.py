"""The settings of GENTLE: what the paper has, what None stands for, what is possible."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from gentle.models import checks
from gentle.models.checks import are_widths, fit_into_memory, is_count
from gentle.models.neural import is_device

_PAPER_WIDTHS = (256, 256, 128, 128, 64, 64)
OF_GAME = {
    "reg_weight": 0.4, "lr_generator": 1e-3, "hidden_widths": _PAPER_WIDTHS, "batch_size": 250
}  # fmt: skip
OF_ENSEMBLE = {
    "reg_weight": 0.0, "lr_generator": 3e-3, "hidden_widths": (128, 128), "batch_size": None
}  # fmt: skip

PAPER: dict[str, dict[str, Any]] = {
    name: {
        "map": "mlp",
        "fit_loss": "cdf",
        "regulariser": "entropic",
        "lr_generator": 1e-3,
        "lr_potential": 1e-3,
        "epsilon": 1.0,
        "reg_weight": 0.4,
        "anchor_generator": 3.0,
        "anchor_potential": 2.0,
        "follow_generator": 0.5,
        "follow_potential": 0.7,
        "bandwidth": bandwidth,
        "hidden_widths": _PAPER_WIDTHS,
        "batch_size": 1000,
        "n_draws": 64,
        "stratified": False,
        "n_epochs": 50,
        "inner": "adam",
        "early_stopping": False,
        "criterion": "crps",
        "patience": 20,
        "validation_fraction": 0.1,
        "n_levels": 501,
    }
    for name, bandwidth in {"ldw-cps": 0.3, "ecm": 0.2}.items()
}


def check(model: Any) -> None:
    """A ValueError about the first setting of a GENTLE that is none."""
    require = partial(checks.require, model)
    require("map", lambda v: v in ("monotone", "mlp"), "'monotone' or 'mlp'")
    require("fit_loss", lambda v: v in ("crps", "cdf", "w2"), "'crps', 'cdf' or 'w2'")
    kinds = ("quantile", "entropic", "sinkhorn")
    require("regulariser", lambda v: v in kinds, "'quantile', 'entropic' or 'sinkhorn'")
    require("tails", lambda v: v in ("observed", "extrapolate"), "'observed' or 'extrapolate'")
    require("inner", lambda v: v in ("adam", "sgd"), "'adam' or 'sgd'")
    require("criterion", lambda v: v in ("crps", "wd"), "'crps' or 'wd'")
    require(
        "bandwidth",
        lambda v: v in ("scott", "silverman") if isinstance(v, str) else 0 < v < math.inf,
        "a positive number, 'scott' or 'silverman'",
    )
    require("bounds", _are_bounds, "'auto', or a pair (lower, upper) of numbers or None")
    require("lr_generator", lambda v: v is None or v > 0, "positive, or None")
    require("lr_potential epsilon", lambda v: v > 0, "positive")
    may_choose = not model.is_game
    require(
        "reg_weight",
        lambda v: v is None or (v == "auto" and may_choose if isinstance(v, str) else v >= 0),
        "at least 0, or None" + (", or 'auto'" if may_choose else ""),
    )
    require("anchor_generator anchor_potential", lambda v: v >= 0, "at least 0")
    require("follow_generator follow_potential", lambda v: 0 <= v <= 1, "between 0 and 1")
    require("n_draws n_epochs patience n_steps", is_count, "an integer of at least 1")
    require("n_trees", lambda v: is_count(v, 0), "an integer of at least 0")
    require("boosting compact", lambda v: isinstance(v, bool | np.bool_), "True or False")
    require("batch_size", lambda v: v is None or is_count(v), "an integer, or None")
    require("validation_fraction", lambda v: 0 < v < 1, "between 0 and 1")
    require(
        "hidden_widths",
        lambda v: v is None or are_widths(v),
        "a sequence of positive integers, at most 100, or None",
    )
    require(
        "n_levels",
        lambda v: is_count(v, 2) and fit_into_memory(v, model.setting("hidden_widths")),
        "an integer of at least 2, and not so large that a row's answer fills the memory",
    )
    require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")


def _are_bounds(bounds: Any) -> bool:
    if isinstance(bounds, str):
        return bounds == "auto"
    low, high = bounds
    return all(end is None or math.isfinite(end) for end in (low, high))
