"""The folder of a search: one search at a time, and only the one that began there goes on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from gentle.checkpoints import keep_others_out
from gentle.streams import Seed, as_seed

Folder = str | PathLike[str] | None

_FACTS = "study.json"


class StudyFolder:
    """An open folder that belongs to one search.

    Attributes:
        path: Absolute, so that worker processes find it.
        facts: What the search that began here was; empty in a new folder.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path, self._file = path, file
        file.seek(0)
        text = file.read()
        try:
            self.facts: dict[str, Any] = json.loads(text) if text else {}
        except json.JSONDecodeError:
            raise ValueError(f"{str(path / _FACTS)!r} is damaged; delete its folder") from None

    def seed(self, random_state: Seed) -> int:
        """The seed asked for, that of the search which began here, or a new short one."""
        if random_state is not None:
            return as_seed(random_state)
        return self.facts.get("seed", as_seed(None) % 10**6)

    def agree(self, facts: dict[str, Any]) -> None:
        """Remember what is searched here, or raise a ValueError if it was something else."""
        differ = [name for name in facts if self.facts and facts[name] != self.facts.get(name)]
        if differ:
            raise ValueError(
                f"{str(self.path)!r} holds a search that differs in: {', '.join(differ)}. Trials "
                "can only be compared if all of that is the same. Choose another folder, or delete "
                "this one to start anew."
            )
        if not self.facts:
            self._file.write(json.dumps(facts, indent=1))
            self._file.flush()


@contextmanager
def study_folder(folder: Folder) -> Iterator[StudyFolder]:
    """Open a folder for one search at a time; None is a folder that vanishes afterwards."""
    if folder is None:
        with (
            tempfile.TemporaryDirectory(prefix="gentle-tuning-") as scratch,
            study_folder(scratch) as opened,
        ):
            yield opened
        return
    path = Path(folder).absolute()
    if path.is_dir() and any(path.iterdir()) and not (path / _FACTS).exists():
        raise FileExistsError(f"{str(path)!r} holds other files than a search; choose another")
    path.mkdir(parents=True, exist_ok=True)
    with (path / _FACTS).open("a+", encoding="utf-8") as file:
        keep_others_out(
            file,
            f"another search is at work in {str(path)!r}. Wait for it, choose another folder, or "
            "give that search more workers.",
        )
        yield StudyFolder(path, file)
