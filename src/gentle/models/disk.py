"""The two files of a saved model: replaced as one whatever happens, read with suspicion.

``model.json`` describes the model and holds the checksum of ``weights.safetensors``, and one of its
own content. Both are replaced in three steps:

1. The new ones are written as ``model.json.new`` and ``weights.safetensors.new``.
2. ``model.json.new`` is renamed to ``model.json``. From here on the new model is the one that is
   read.
3. ``weights.safetensors.new`` is renamed to ``weights.safetensors``.

Each step is on the disk before the next begins. Who reads takes the weights that have the checksum,
under either name. So a process or a machine that dies before the second step leaves the old model,
and one that dies after it the new one; what else it leaves is ignored, and tidied up by the next
save. While one process writes others may read, but two must not write at the same time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from gentle.models.formats import FORMAT

FACTS, WEIGHTS = "model.json", "weights.safetensors"
_NEW_FACTS, _NEW_WEIGHTS = f"{FACTS}.new", f"{WEIGHTS}.new"
_OURS = {FACTS, WEIGHTS, _NEW_FACTS, _NEW_WEIGHTS}
MAX_TEXT_BYTES = 16 * 2**20  # of JSON, which takes up to 30 times as much memory
_MAX_DIGITS = 100
_LINE = 140


def check_target(target: Path, overwrite: bool) -> None:
    """Raise a FileExistsError unless a model may be written there."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise FileExistsError(f"{str(target)!r} exists and is not a folder")
    if not target.exists():
        return
    if _strangers(target):
        raise FileExistsError(
            f"{str(target)!r} holds other files than a saved model; choose another folder"
        )
    if not overwrite and os.path.lexists(target / FACTS):
        raise FileExistsError(
            f"{str(target)!r} holds a model already; pass overwrite=True to replace it"
        )


def write(target: Path, description: dict[str, Any], weights: bytes) -> None:
    """Put a model in place of the one in a folder, if there is one.

    Args:
        target: The folder; it and its parents are made if they are missing.
        description: All that is in ``model.json`` but the checksums.
        weights: All that is in ``weights.safetensors``.

    Raises:
        OSError: It could not be written. What was there is as it was.
    """
    text = laid_out(sealed(description, weights)).encode("utf-8", "backslashreplace")
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError(f"the description of the model has {len(text):,} bytes, too many to load")
    new_facts, new_weights = target / _NEW_FACTS, target / _NEW_WEIGHTS
    made = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        if made:
            _sync(target.parent)
        _tidy(target)
        _write(new_facts, text)
        _write(new_weights, weights)
        _sync(target)
        os.replace(new_facts, target / FACTS)
    except BaseException as error:
        if new_facts.exists():  # else the new model is in place, or nothing was written
            new_weights.unlink(missing_ok=True)
            new_facts.unlink()
        if made and target.exists() and not any(target.iterdir()):
            target.rmdir()
        if isinstance(error, OSError):
            said = f"{error.strerror or error}; nothing was saved, and what was there is as it was"
            raise OSError(error.errno, said, str(target)) from error
        raise
    _sync(target)
    os.replace(new_weights, target / WEIGHTS)
    _sync(target)


def read(source: Path) -> tuple[dict[str, Any], bytes]:
    """The description and the weights in a folder, which may hold anything.

    Raises:
        FileNotFoundError: There is no saved model in the folder.
        ValueError: What is there is damaged, or was not written by this library.
    """
    if not os.path.lexists(source / FACTS):
        raise FileNotFoundError(
            f"no saved model in {str(source)!r}: there is no {FACTS}. "
            "Pass the folder that was given to save()."
        )
    if strangers := _strangers(source):
        more = "" if len(strangers) <= 5 else f" and {len(strangers) - 5} more"
        raise ValueError(f"the folder holds files of others, {strangers[:5]}{more}; remove them")
    text = _content(source / FACTS, MAX_TEXT_BYTES)
    while True:
        description = _parsed(text)
        weights = _weights(source, description["sha256"][WEIGHTS])
        if weights is not None:
            return description, weights
        before, text = text, _content(source / FACTS, MAX_TEXT_BYTES)
        if text == before:  # else another process has replaced the model meanwhile
            break
    if not os.path.lexists(source / WEIGHTS):
        raise ValueError(f"it is damaged: {WEIGHTS} is missing")
    raise ValueError(f"{WEIGHTS} does not match its checksum; it is truncated or was changed")


def sealed(description: dict[str, Any], weights: bytes) -> dict[str, Any]:
    """A description with the checksums of both files, its own taken over all else in it."""
    sums = {WEIGHTS: _digest(weights)}
    return description | {"sha256": sums | {FACTS: _checksum(description | {"sha256": sums})}}


def laid_out(value: Any, depth: int = 0) -> str:
    """JSON for people: what fits into a line stands in one.

    Example:
        >>> print(laid_out({"format": 3, "columns": [{"name": "age", "kind": "number"}]}))
        {
         "format": 3,
         "columns": [{"name": "age", "kind": "number"}]
        }
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (dict, list)) or not value or (depth and len(line) + depth <= _LINE):
        return line
    if isinstance(value, dict):
        ends, names = "{}", [json.dumps(name, ensure_ascii=False) + ": " for name in value]
    else:
        ends, names = "[]", [""] * len(value)
    items = value.values() if isinstance(value, dict) else value
    parts = [name + laid_out(item, depth + 1) for name, item in zip(names, items)]
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    return ends[0] + inner + f",{inner}".join(parts) + outer + ends[1]


def _strangers(folder: Path) -> list[str]:
    return sorted(set(os.listdir(folder)) - _OURS)


def _tidy(target: Path) -> None:
    """Finish, or undo, what a crash interrupted; the model that is read stays the same."""
    facts, new_weights = target / FACTS, target / _NEW_WEIGHTS
    if os.path.lexists(new_weights):
        try:
            wanted = _parsed(_content(facts, MAX_TEXT_BYTES))["sha256"][WEIGHTS]
            matches = _digest(_content(new_weights, _largest())) == wanted
        except (OSError, ValueError, TypeError, KeyError):  # what is there cannot be read anyway
            matches = False
        if matches:
            os.replace(new_weights, target / WEIGHTS)
            _sync(target)
        else:
            new_weights.unlink()
    (target / _NEW_FACTS).unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of folders in other places
            raise
    finally:
        os.close(descriptor)


def _weights(source: Path, checksum: Any) -> bytes | None:
    """The weights that have the checksum; the new name first, as it may vanish meanwhile."""
    for name in (_NEW_WEIGHTS, WEIGHTS):
        try:
            content = _content(source / name, _largest())
        except FileNotFoundError:
            continue
        if _digest(content) == checksum:
            return content
    return None


def _content(path: Path, most: int) -> bytes:
    """All of a plain file; others could lead outside of the folder or block for ever."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{path.name} is not a plain file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path.name} has {size:,} bytes, more than the {most:,} allowed")
        return file.read()


def _largest() -> int:
    """Bytes of weights that may be loaded: a quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(description: dict[str, Any]) -> str:
    """Of a description's content, however it is laid out, but for the checksum itself."""
    sums = {name: value for name, value in description["sha256"].items() if name != FACTS}
    bare = description | {"sha256": sums}
    return _digest(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode())


def _parsed(text: bytes) -> dict[str, Any]:
    """A description whose checksum is right, of a format that is known."""
    try:
        description = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_once,
            parse_float=_finite,
            parse_int=_moderate,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{FACTS} is damaged or not the description of a model ({error})"
        ) from None
    if not isinstance(description, dict) or "format" not in description:
        raise ValueError(f"{FACTS} is not the description of a GENTLE model")
    found = description["format"]
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise ValueError(
            f"it has format {found!r}, this version reads up to {FORMAT}. Update gentle-ot."
        )
    if found > 2 and description["sha256"][FACTS] != _checksum(description):
        raise ValueError(f"{FACTS} does not match its checksum; it was changed")
    return description


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _moderate(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is too large")
    return int(text)
