"""Saved models of earlier formats, brought up to date one format at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Description = dict[str, Any]
Arrays = dict[str, Any]


def up_to_date(description: Description, arrays: Arrays) -> tuple[Description, Arrays]:
    """What this version would have written, from what an earlier one wrote.

    Args:
        description: Of a format up to `FORMAT`; it may hold anything beside that.
        arrays: The arrays by name.
    """
    for step in _STEPS[description["format"] - 1 :]:
        description, arrays = step(dict(description), dict(arrays))
    return description, arrays


def _from_1(description: Description, arrays: Arrays) -> tuple[Description, Arrays]:
    """1 knew numbers as covariates only, and no training facts."""
    mean = arrays["covariates.mean"]
    arrays |= {"covariates.low": mean, "covariates.high": mean}
    return description | {"covariates": [{"kind": "number"}] * len(mean)}, arrays


def _from_2(description: Description, arrays: Arrays) -> tuple[Description, Arrays]:
    """2 had the numbers of columns and response among the arrays, and the paper's GENTLE only."""
    numbers = ("mean", "scale", "low", "high")
    rows = zip(*(arrays.pop(f"covariates.{name}").tolist() for name in numbers), strict=True)
    described = zip(description.pop("covariates"), rows, strict=True)
    columns = [fact | dict(zip(numbers, row)) for fact, row in described]
    names = description["columns"]
    if description.pop("n_columns") != len(columns):
        raise ValueError("its parts disagree about the number of columns")
    if names is not None:
        columns = [{"name": name} | column for name, column in zip(names, columns, strict=True)]
    response = {"name": description["response"]}
    response["shift"] = arrays.pop("response.mean").item()
    response["scale"] = arrays.pop("response.scale").item()
    parameters = description["parameters"]
    if description["class"] == "GENTLE" and "map" not in parameters:
        parameters = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"} | parameters
    changed = {"columns": columns, "response": response, "parameters": parameters}
    return description | changed, arrays


_STEPS: tuple[Callable[[Description, Arrays], tuple[Description, Arrays]], ...] = (_from_1, _from_2)

FORMAT = len(_STEPS) + 1
