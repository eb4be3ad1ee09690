"""Checkpoints: how far the trainings of a fit have come, in files that a crash cannot spoil.

Each training within a fit has a file of its own: the weights, the moments of the optimisers, the
random numbers' sources and the history at the end of an epoch, as safetensors and JSON behind a
checksum. It is replaced as a whole, every ten seconds or so, at the end, and on Ctrl-C; the one
before is kept beside it, for the case that the last is damaged. What is not trained, such as trees,
is computed again. If a file cannot be written, training goes on with a warning.

After success the folder stays, and the same fit gives the same model at once; it is the user's to
delete. A folder that belongs to another fit (model, settings, seed or data) is refused. If
``random_state`` is None, the seed that was drawn is kept in the folder, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

import numpy as np

from gentle.data import Grouped
from gentle.streams import as_seed

Folder = str | os.PathLike[str]

FORMAT = 1
EVERY = 10.0  # seconds between two checkpoints of a training, at least
_DIGEST_BYTES = 32
_IRRELEVANT = ("random_state", "verbose")  # settings: what came of the first is stored by itself


class OtherFitError(ValueError):
    """A folder holds the checkpoints of another fit.

    Attributes:
        folder: The folder.
        difference: What sets the two apart, in words.
    """

    def __init__(self, folder: Path, difference: str) -> None:
        self.folder, self.difference = folder, difference
        super().__init__(
            f"{str(folder)!r} holds checkpoints of another fit: {difference}. "
            "Choose another folder, or delete this one to start anew."
        )

    def __reduce__(self) -> tuple[Any, ...]:  # from process to process
        return type(self), (self.folder, self.difference)


class _Kept:
    """The folder in which the trainings of one fit are kept."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.facts, self.n_trainings, self.has_warned = path, facts, 0, False

    def warn_once(self, error: OSError) -> None:
        if not self.has_warned:
            warnings.warn(
                f"checkpoints cannot be written to {str(self.path)!r} ({error.strerror or error}); "
                "training goes on, but if it is interrupted it will resume from an earlier epoch",
                stacklevel=2,
            )
        self.has_warned = True


_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)


class Checkpoint:
    """The file of one training: its last state, and beside it the one before."""

    def __init__(self, kept: _Kept, number: int) -> None:
        self.kept, self.file = kept, kept.path / f"training-{number}.checkpoint"
        self.due = time.monotonic() + EVERY

    def read(self) -> Any:
        """The last state that can be read, None if there is none."""
        damaged = False
        for file in (self.file, self.file.with_suffix(".previous")):
            stored = _read(file)
            if stored is not None and stored["fit"] == self.kept.facts:
                if damaged:
                    self._complain("is damaged; the one before it is used")
                return stored["state"]
            damaged |= file.exists()
        if damaged:
            self._complain("is damaged; this training starts anew")
        return None

    def offer(self, state: Any) -> None:
        """Write a state if the last one was written long ago."""
        if time.monotonic() >= self.due:
            self.write(state)

    def write(self, state: Any) -> None:
        """Write a state; where that fails, a warning says so once and the last file stays."""
        try:
            _write(self.file, {"fit": self.kept.facts, "state": state})
        except OSError as error:
            self.kept.warn_once(error)
        self.due = time.monotonic() + EVERY

    def _complain(self, what: str) -> None:
        warnings.warn(f"the checkpoint {str(self.file)!r} {what}", stacklevel=3)


@contextmanager
def kept_in(
    folder: Folder | None, model: Any, tables: Sequence[Grouped | None]
) -> Iterator[np.random.Generator]:
    """Keep the trainings of one fit in a folder, and let them go on from what is there.

    Args:
        folder: Where the checkpoints are; it is made if need be. None keeps nothing.
        model: The estimator to be fitted.
        tables: What it learns from, and what it is validated on, if anything.

    Yields:
        The source of the fit's random numbers, from ``model.random_state``. If this is None, the
        seed is that of the fit that began in the folder, or a new one.

    Raises:
        OtherFitError: The folder belongs to a fit of another model or on other data. It is left
            as it is.
        RuntimeError: Another process is at work in the folder.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from gentle import CWGAN
        >>> X, y = np.arange(8.0)[:, None], np.arange(8.0)
        >>> model = CWGAN(n_epochs=2, verbose=0)
        >>> with TemporaryDirectory() as folder:
        ...     once = model.fit(X, y, checkpoint_dir=folder).predict(X)
        ...     again = model.fit(X, y, checkpoint_dir=folder).predict(X)
        >>> bool((once == again).all())  # nothing was trained a second time
        True
    """
    if folder is None:
        token = _kept.set(None)  # a fit within another one must not write to the other's folder
        try:
            yield np.random.default_rng(as_seed(model.random_state))
        finally:
            _kept.reset(token)
        return
    path = Path(folder).absolute()
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with _alone_in(path):
        facts, found = _facts(model, tables), _facts_in(path)
        if model.random_state is None and found is not None:
            facts["seed"] = found["seed"]
        if found is not None and found != facts:
            raise OtherFitError(path, _difference(found, facts))
        token = _kept.set(_Kept(path, facts))
        try:
            yield np.random.default_rng(facts["seed"])
        finally:
            _kept.reset(token)
            if is_new and not any(path.iterdir()):
                path.rmdir()


def next_training() -> Checkpoint | None:
    """The checkpoint of the training that begins now; None outside of `kept_in`.

    Trainings are known by their number: a fit begins the same ones in the same order.
    """
    kept = _kept.get()
    if kept is None:
        return None
    kept.n_trainings += 1
    return Checkpoint(kept, kept.n_trainings - 1)


def seed_in(folder: Folder) -> int | None:
    """The seed of the fit whose checkpoints are in a folder, None if there are none."""
    facts = _facts_in(Path(folder))
    return None if facts is None else facts["seed"]


def remove(folder: Folder) -> None:
    """Delete the checkpoints in a folder, and the folder unless it holds other files."""
    path = Path(folder)
    for file in _files(path, "checkpoint", "previous", "tmp"):
        file.unlink(missing_ok=True)
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()


def _facts(model: Any, tables: Sequence[Grouped | None]) -> dict[str, Any]:
    """What a fit depends on."""
    digest = hashlib.sha256()
    for table in tables:
        for array in () if table is None else (table.x, table.y, table.weight, table.start):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(b"end")
    settings = model.get_params(deep=False)
    return {
        "format": FORMAT,
        "model": type(model).__name__,
        "settings": {name: repr(settings[name]) for name in settings if name not in _IRRELEVANT},
        "data": digest.hexdigest(),
        "seed": as_seed(model.random_state),
    }


def _difference(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    """What sets two fits apart, in words."""
    if (theirs["format"], theirs["model"]) != (mine["format"], mine["model"]):
        return f"a {theirs['model']}, in format {theirs['format']}"
    before, now = theirs["settings"], mine["settings"]
    names = [name for name in before | now if before.get(name) != now.get(name)]
    found = [f"{name} was {before.get(name)}, now it is {now.get(name)}" for name in names]
    if theirs["seed"] != mine["seed"]:
        found.append(f"the seed was {theirs['seed']}, now it is {mine['seed']}")
    if theirs["data"] != mine["data"]:
        found.append("the data are others")
    return "; ".join(found)


def _facts_in(path: Path) -> dict[str, Any] | None:
    """Which fit the checkpoints in a folder are of, None if none can be read."""
    stored = (_read(file) for file in _files(path, "checkpoint", "previous"))
    return next((one["fit"] for one in stored if one is not None), None)


def _files(path: Path, *endings: str) -> list[Path]:
    return [file for ending in endings for file in sorted(path.glob(f"training-*.{ending}"))]


def _write(file: Path, content: Any) -> None:
    """Write a file whole or not at all; the file that was there becomes the previous one."""
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_packed(content, arrays))
    arrays["text"] = np.frombuffer(text.encode(), np.uint8)
    payload = to_bytes(arrays)
    scratch = file.with_suffix(".tmp")
    try:
        with scratch.open("wb") as stream:
            stream.write(hashlib.sha256(payload).digest())
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        if file.exists():
            os.replace(file, file.with_suffix(".previous"))
        os.replace(scratch, file)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _read(file: Path) -> Any:
    """What `_write` wrote; None if there is nothing, or if it is not as it was written."""
    from safetensors.numpy import load as from_bytes

    try:
        stored = file.read_bytes()
    except OSError:
        return None
    digest, payload = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    arrays = from_bytes(payload)
    return _unpacked(json.loads(arrays["text"].tobytes()), arrays)


def _packed(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as JSON can hold it; its arrays and tensors are put aside."""
    import torch

    if isinstance(value, (np.ndarray, torch.Tensor)):
        name, kind = str(len(arrays)), "array" if isinstance(value, np.ndarray) else "tensor"
        array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        arrays[name] = np.asarray(array, order="C")
        return {kind: name}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(item, arrays)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_packed(item, arrays) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value that `_packed` was given."""
    import torch

    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "dict":
        return {key: _unpacked(item, arrays) for key, item in inner}
    if kind == "tuple":
        return tuple(_unpacked(item, arrays) for item in inner)
    array = arrays[inner].copy()
    return array if kind == "array" else torch.from_numpy(array)


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """Keep other fits out of a folder."""
    descriptor = os.open(path, os.O_RDONLY) if os.name == "posix" else None
    try:
        if descriptor is not None:  # Windows opens no folders
            message = "another fit is at work in {!r}. Wait for it, or choose another folder."
            keep_others_out(descriptor, message.format(str(path)))
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def keep_others_out(file: int | IO[str], message: str) -> None:
    """Lock an open file or folder until it is closed, by whatever end this process comes to.

    Args:
        file: What is open.
        message: Of the RuntimeError if another process has locked it.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock; there, two at once would mix
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError(message) from None
