"""What the command line says besides data: all of it on standard error, in plain lines."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer


def say(text: str) -> None:
    """Tell the user something that is not data."""
    typer.echo(text, err=True)


def complain(text: str) -> None:
    """Say what went wrong, in one line."""
    typer.secho(f"Error: {_one_line(text)}", fg=typer.colors.RED, err=True)


def in_plain_words(error: Exception) -> str:
    """An exception as a sentence for people who do not read Python."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {str(error.filename)!r}" if error.filename else "")
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this. {error}"
    if isinstance(error, (ValueError, OSError, ImportError, ArithmeticError, RuntimeError)):
        return str(error) or type(error).__name__
    return (
        f"{type(error).__name__}: {error}. This should not happen; "
        "put --traceback before the command (gentle --traceback ...) to see where, and report it."
    )


@contextmanager
def tidy_warnings() -> Iterator[None]:
    """Show each warning meant for users once, as one line; hide those meant for programmers."""
    shown = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = _one_line(str(message))
        if text not in shown:
            shown.add(text)
            typer.secho(f"Warning: {text}", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def progress(label: str, total: int, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """A progress bar over a number of rows; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (wanted and console.is_terminal):  # a log file is no place for a moving bar
        yield lambda rows: None
        return
    columns = [
        *Progress.get_default_columns()[:2],
        MofNCompleteColumn(),
        TextColumn("rows, left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda rows: bar.advance(task, rows)


@contextmanager
def working(label: str) -> Iterator[None]:
    """A sign of life during work whose length is not known."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{label} ..."):
        yield


def chosen_seed(seed: int | None) -> int:
    """The seed asked for, or a fresh one that is short enough to be typed again."""
    return secrets.randbelow(10**6) if seed is None else seed


def use_threads(threads: int | None) -> None:
    """Give torch this many processor threads; None leaves it the number of cores it has found."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _one_line(text: str) -> str:
    return " ".join(text.split())
