"""Saved models: ``model.json`` and ``weights.safetensors``; reading them runs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gentle.covariates import CovariateEncoder
from gentle.data import Standardiser
from gentle.distribution import QuantileTable
from gentle.models.base import ConditionalGenerator
from gentle.models.intake import TrainingFacts
from gentle.models.registry import model_class

FORMAT = 2  # 1 knew numbers as covariates only, and no training facts
_FACTS, _WEIGHTS = "model.json", "weights.safetensors"
_MAX_FACTS_BYTES = 64 * 2**20


def save(
    model: ConditionalGenerator, folder: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write a fitted model; the folder appears whole or not at all.

    Args:
        model: A fitted model.
        folder: Where to write; missing parents are created.
        overwrite: Replace a model that is there already. Anything that is not a saved model is
            never replaced.
    """
    from safetensors.numpy import save as to_bytes
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    target = Path(folder).absolute()
    check_target(target, overwrite)
    arrays, facts = model._get_state()
    of_columns, columns = model.covariate_encoder_.state()
    arrays = {f"model.{name}": np.ascontiguousarray(array) for name, array in arrays.items()} | {
        **{f"covariates.{name}": array for name, array in of_columns.items()},
        "response.mean": np.atleast_1d(model.response_encoder_.mean),
        "response.scale": np.atleast_1d(model.response_encoder_.scale),
        "marginal.levels": np.ascontiguousarray(np.atleast_2d(model.marginal_.levels)[0]),
        "marginal.values": np.ascontiguousarray(model.marginal_.values[0]),
    }
    weights = to_bytes(arrays)
    names = getattr(model, "feature_names_in_", None)
    description = {
        "format": FORMAT,
        "class": type(model).__name__,
        "parameters": _parameters(model),
        "columns": None if names is None else [str(name) for name in names],
        "n_columns": int(model.n_features_in_),
        "covariates": _plain(columns),
        "training": _plain(model.training_.state()) if hasattr(model, "training_") else None,
        "response": model.response_name_,
        "facts": _plain(facts),
        "sha256": {_WEIGHTS: hashlib.sha256(weights).hexdigest()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (scratch / _WEIGHTS).write_bytes(weights)
        (scratch / _FACTS).write_text(
            json.dumps(description, indent=1, allow_nan=False), encoding="utf-8"
        )
        scratch.chmod(0o755)
        _put_in_place(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load(folder: str | os.PathLike[str]) -> Any:
    """Read a model that ``model.save(folder)`` wrote.

    Raises:
        FileNotFoundError: There is no saved model in the folder.
        ValueError: What is there is damaged, or was not written by this library.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    source = Path(folder)
    if not (source / _FACTS).is_file():
        raise FileNotFoundError(
            f"no saved model in {str(source)!r}: there is no {_FACTS}. "
            "Pass the folder that was given to save()."
        )
    description = _read_facts(source / _FACTS)
    found, known = description.get("format"), FORMAT
    if not isinstance(found, int) or found > known:
        raise ValueError(
            f"{str(source)!r} has format {found!r}, this version reads up to {known}. "
            "Update gentle-ot."
        )
    try:
        weights = (source / _WEIGHTS).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{str(source)!r} is damaged: {_WEIGHTS} is missing") from None
    try:
        if hashlib.sha256(weights).hexdigest() != description["sha256"][_WEIGHTS]:
            raise ValueError(
                f"{_WEIGHTS} does not match its checksum; it is truncated or was changed"
            )
        parameters = _arguments(description["class"], description["parameters"])
        model = model_class(description["class"])(**parameters)
        arrays = from_bytes(weights)
        _restore(model, arrays, description)
    except ValueError as error:
        raise ValueError(f"the model in {str(source)!r} cannot be read: {error}") from error
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise ValueError(
            f"the model in {str(source)!r} cannot be read: it is damaged or was not written by "
            "this library "
            f"({type(error).__name__}: {error})"
        ) from error
    return model


def _restore(
    model: ConditionalGenerator, arrays: dict[str, np.ndarray], description: dict[str, Any]
) -> None:
    floats = [array for array in arrays.values() if array.dtype.kind == "f"]
    if not all(np.isfinite(array).all() for array in floats):
        raise ValueError("it holds numbers that are not finite")
    model.n_features_in_ = int(description["n_columns"])
    names = description["columns"]
    labels = range(model.n_features_in_) if names is None else [str(name) for name in names]
    model.covariate_encoder_ = CovariateEncoder.restored(
        _part(arrays, "covariates."), description.get("covariates"), labels
    )
    model.response_encoder_ = Standardiser(
        arrays["response.mean"].reshape(()), arrays["response.scale"].reshape(())
    )
    model.marginal_ = QuantileTable(arrays["marginal.levels"], arrays["marginal.values"][None])
    response = description.get("response")
    model.response_name_ = None if response is None else str(response)
    if description.get("training") is not None:
        model.training_ = TrainingFacts.restored(description["training"])
    if names is not None:
        model.feature_names_in_ = np.asarray(labels, dtype=object)
    model._set_state(_part(arrays, "model."), description["facts"])


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _put_in_place(scratch: Path, target: Path) -> None:
    """Rename a finished folder to its name; a model that stood there goes only when that worked."""
    if not (target.exists() and any(target.iterdir())):
        os.replace(scratch, target)
        return
    previous = scratch.with_name(f"{scratch.name}-previous")
    os.replace(target, previous)
    try:
        os.replace(scratch, target)
    except OSError:
        os.replace(previous, target)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def check_target(target: Path, overwrite: bool) -> None:
    """Raise a FileExistsError unless a model may be written there."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise FileExistsError(f"{str(target)!r} exists and is not a folder")
    if not target.exists() or not any(target.iterdir()):
        return
    if not {entry.name for entry in target.iterdir()} <= {_FACTS, _WEIGHTS}:
        raise FileExistsError(
            f"{str(target)!r} holds other files than a saved model; choose another folder"
        )
    if not overwrite:
        raise FileExistsError(
            f"{str(target)!r} holds a model already; pass overwrite=True to replace it"
        )


def _read_facts(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MAX_FACTS_BYTES:
        raise ValueError(f"{str(path)!r} is too large to be the description of a model")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or not the description of a model ({error})"
        ) from None
    if not isinstance(description, dict) or "format" not in description:
        raise ValueError(f"{str(path)!r} is not the description of a GENTLE model")
    return description


def _parameters(model: ConditionalGenerator) -> dict[str, Any]:
    """Constructor arguments for JSON; a generator as seed is remembered as no seed."""
    arguments = model.get_params(deep=False)
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


def _arguments(model: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments from JSON, of earlier versions too."""
    if model == "GENTLE" and "map" not in parameters:  # saved when there was the paper's game only
        parameters = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"} | parameters
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in parameters.items()
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("gentle-ot", "numpy", "torch", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
