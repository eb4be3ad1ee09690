"""Saved models: ``model.json`` and ``weights.safetensors``; reading them runs nothing.

``model.json`` is for people too: what the model is, what it was trained on and with which versions,
its columns, its response. All that is read from it is checked, and so are the arrays: a folder from
a stranger is either a model that answers, or a ValueError or OSError. See `gentle.models.disk` for
how the files are replaced and `gentle.models.formats` for how older ones are read.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gentle.covariates import CovariateEncoder
from gentle.data import Rows, Standardiser
from gentle.distribution import QuantileTable
from gentle.models import disk
from gentle.models.base import ConditionalGenerator
from gentle.models.disk import check_target
from gentle.models.formats import FORMAT, up_to_date
from gentle.models.intake import TrainingFacts
from gentle.models.registry import model_class
from gentle.models.summary import held_by

_DTYPES = {np.dtype(kind) for kind in (np.float32, np.float64, np.int64)}


def save(
    model: ConditionalGenerator, folder: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write a fitted model; at any moment the folder holds the old model or the new one.

    Training rows are not written, unless the model holds them: because its answers are made of
    them (`KNN`, `KernelCDE`; of the responses alone `QuantileForest` and `Marginal`), or because it
    was fitted with ``keep_data=True``. ``model.json`` and ``summary()`` say which. Of the training
    data every saved model has: names, kinds, means, standard deviations, smallest and largest
    values of the columns, with the frequent levels of categories; the smallest, the largest and
    frequent responses; the distribution of the responses, as the means of their thousandths if
    there are more than a thousand different ones. The default `GENTLE` also has quantiles of each
    column (100) and of the responses (some 500, the 20 smallest and largest among them), which are
    values of single rows; `BoostedQuantiles` has quantiles of the responses at its levels; trees
    have thresholds half-way between values of a column.

    Args:
        model: A fitted model.
        folder: Where to write; missing parents are created.
        overwrite: Replace a model that is there already. Anything that is not a saved model is
            never replaced.

    Raises:
        FileExistsError: The folder holds a model already, or other files.
        OSError: It could not be written (a full disk); what was there is as it was.
        ValueError: The model is one of another package, or has a setting that JSON cannot hold.
    """
    from safetensors.numpy import save as to_bytes
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    target = Path(folder).absolute()
    check_target(target, overwrite)
    description, arrays = taken_apart(model)
    disk.write(target, description, to_bytes(arrays))


def taken_apart(model: ConditionalGenerator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a saved model consists of: what stands in ``model.json``, and its arrays by name."""
    arrays, facts = _state(model)
    encoder, scaling = model.covariate_encoder_, model.response_encoder_
    columns = encoder.state()
    if hasattr(model, "feature_names_in_"):
        columns = [{"name": name} | fact for name, fact in zip(encoder.labels, columns)]
    description = {
        "format": FORMAT,
        "class": type(model).__name__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "training": model.training_.state() if hasattr(model, "training_") else None,
        "holds": held_by(model),
        "response": {
            "name": model.response_name_,
            "shift": float(scaling.mean),
            "scale": float(scaling.scale),
        },
        "columns": columns,
        "parameters": _parameters(model),
        "facts": facts,
    }
    return _plain(description), arrays


def load(folder: str | os.PathLike[str]) -> Any:
    """Read a model that ``model.save(folder)`` wrote.

    Nothing in the folder is run, whatever it holds.

    Raises:
        FileNotFoundError: There is no saved model in the folder.
        ValueError: What is there is damaged, or was not written by this library.
        OSError: It could not be read.
    """
    from safetensors.numpy import load as from_bytes

    source = Path(folder)
    try:
        description, weights = disk.read(source)
        if int.from_bytes(weights[:8], "little") > disk.MAX_TEXT_BYTES:
            raise ValueError("its list of arrays is too long")
        return put_together(description, from_bytes(weights))
    except OSError:
        raise
    except ValueError as error:
        raise ValueError(f"the model in {str(source)!r} cannot be read: {error}") from error
    except Exception as error:  # the files may be anything, and so may be what they lead to
        raise ValueError(
            f"the model in {str(source)!r} cannot be read: it is damaged or was not written by "
            f"this library ({type(error).__name__}: {error})"
        ) from error


def put_together(
    description: dict[str, Any], arrays: dict[str, np.ndarray]
) -> ConditionalGenerator:
    """A model from what `taken_apart` gave, or an earlier version of it; it may be anything.

    Damage is an exception of some kind, mostly a ValueError.
    """
    description, arrays = up_to_date(description, arrays)
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise ValueError(f"its array {name!r} has the type {array.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"its array {name!r} holds numbers that are not finite")
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in description["parameters"].items()
    }
    for name, value in parameters.items():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int) and abs(item) >= 2**63 and name != "random_state":
                raise ValueError(f"its setting {name} is too large")
    model = model_class(description["class"])(**parameters)
    model._check_parameters()
    _set_columns(model, description["columns"])
    _set_response(model, description["response"])
    model.marginal_ = QuantileTable(arrays["marginal.levels"], arrays["marginal.values"][None])
    if description.get("training") is not None:
        model.training_ = TrainingFacts.restored(description["training"])
    rows = part(arrays, "rows.")
    model.training_rows_ = _kept(rows, model._n_encoded) if rows else None
    facts = description["facts"]
    if not isinstance(facts, dict):
        raise ValueError("its facts are damaged")
    model._set_state(part(arrays, "model."), facts)
    if _layout(_state(model)[0]) != _layout(arrays):
        raise ValueError(f"its arrays are not those of a {type(model).__name__} with its settings")
    return model


def _set_columns(model: ConditionalGenerator, columns: Any) -> None:
    if not isinstance(columns, list) or not columns:
        raise ValueError("its description of the columns is damaged")
    names = [column.get("name") for column in columns]
    facts = [{key: v for key, v in column.items() if key != "name"} for column in columns]
    named = names[0] is not None
    distinct = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if named and not distinct:
        raise ValueError("its names of the columns are damaged")
    model.covariate_encoder_ = CovariateEncoder.restored(
        facts, names if named else range(len(names))
    )
    model.n_features_in_ = len(columns)
    if named:
        model.feature_names_in_ = np.asarray(names, dtype=object)


def _set_response(model: ConditionalGenerator, response: Any) -> None:
    name, shift, scale = (response[key] for key in ("name", "shift", "scale"))
    if not (isinstance(name, str | None) and type(shift) is type(scale) is float and scale > 0):
        raise ValueError("its description of the response is damaged")
    model.response_name_ = name
    model.response_encoder_ = Standardiser(np.asarray(shift), np.asarray(scale))


def _kept(rows: dict[str, np.ndarray], n_encoded: int) -> Rows:
    kept = Rows(**{name: np.asarray(array, np.float64) for name, array in rows.items()})
    n = len(kept.y)
    if not (
        (kept.x.shape, kept.y.shape, kept.weight.shape) == ((n, n_encoded), (n,), (n,))
        and np.all(kept.weight > 0)
    ):
        raise ValueError("its training rows are damaged")
    return kept


def _state(model: ConditionalGenerator) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays of a fitted model by name, and the facts that are its own."""
    arrays, facts = model._get_state()
    found = {f"model.{name}": array for name, array in arrays.items()}
    found["marginal.levels"] = np.atleast_2d(model.marginal_.levels)[0]
    found["marginal.values"] = model.marginal_.values[0]
    if model.training_rows_ is not None:
        found |= {f"rows.{name}": array for name, array in vars(model.training_rows_).items()}
    return {name: np.ascontiguousarray(array) for name, array in found.items()}, facts


def _layout(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: (array.dtype, array.ndim) for name, array in arrays.items()}


def part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _parameters(model: ConditionalGenerator) -> dict[str, Any]:
    """Constructor arguments for JSON; a generator as seed is remembered as no seed.

    A model around another one has it among its arrays and facts.
    """
    arguments = {
        name: None if hasattr(value, "get_params") else value
        for name, value in model.get_params(deep=False).items()
    }
    plain = {name: _plain(value) for name, value in arguments.items()}
    for name, value in arguments.items():
        if plain[name] is None and value is not None and name != "random_state":
            raise ValueError(f"{name}={value!r} cannot be saved; use numbers, text or sequences")
    return plain


def _plain(value: Any) -> Any:
    """What JSON can hold of a value, None if it cannot hold it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str, type(None))) else None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("gentle-ot", "numpy", "torch", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
