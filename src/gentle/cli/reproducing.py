"""``gentle reproduce``: the paper's tables and figures, computed anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.console import complain, in_plain_words, say

if TYPE_CHECKING:
    from gentle.experiments import Cell, Store


class ProfileName(StrEnum):
    """How much work to do."""

    quick = "quick"
    full = "full"


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="table1 ... table4, figure1 ... figure8, or all.",
            show_default=False,
        ),
    ],
    profile: Annotated[
        ProfileName,
        typer.Option(
            help="quick: minutes, small data and budgets, for a look. full: the real thing, "
            "many hours on two cores."
        ),
    ] = ProfileName.quick,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for results and report.")
    ] = Path("reproduction"),
    seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Repetitions.", show_default="as in profile"),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Compute only these methods, separated by commas; the report shows all that is "
            "stored.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Processes to work in, one thread each.",
            show_default="all cores",
        ),
    ] = None,
) -> None:
    """Compute tables and figures of the paper, and write a report.

    Every finished fit is stored at once. An interrupted run goes on where it
    stopped, and tables and figures share what they have in common.

    Example:
        gentle reproduce table1
        gentle reproduce all --profile full --out full/
        gentle reproduce table1 figure3 --methods GENTLE,CWGAN --seeds 3
    """
    from gentle import experiments
    from gentle.experiments.report import write_report
    from gentle.workers import n_cores

    wanted = experiments.names() if "all" in what else list(dict.fromkeys(what))
    chosen = [experiments.load(name) for name in wanted]
    settings = experiments.profile(profile.value)
    only = None if methods is None else [name.strip() for name in methods.split(",")]
    cells = experiments.cells(chosen, settings, seeds, only)
    store = experiments.Store(out / profile.value / "cells")
    n_workers = n_cores() if workers is None else workers
    try:
        with _progress(cells, store, n_workers) as tell:
            failed = experiments.run(cells, store, n_workers, tell)
    except KeyboardInterrupt:
        say("Interrupted. What is finished is stored; the same command goes on from there.")
        raise typer.Exit(130) from None
    written = write_report(chosen, settings, store, out / profile.value)
    for cell, error in failed:
        complain(f"{cell.method} on {cell.dataset}, seed {cell.seed}: {in_plain_words(error)}")
    say(f"The report is {written}.")
    if failed:
        raise typer.Exit(1)


@contextmanager
def _progress(
    cells: Sequence[Cell], store: Store, n_workers: int
) -> Iterator[Callable[[Cell, Exception | None], None]]:
    """A table of what is done and left; yields the function that updates it by a cell."""
    from rich.console import Console
    from rich.live import Live

    board = _Board(cells, store, n_workers)
    say(f"{len(cells)} cells: {len(cells) - len(board.left)} stored, {len(board.left)} to do.")
    console = Console(stderr=True)
    if not console.is_terminal:

        def line(cell: Cell, error: Exception | None) -> None:
            board.tell(cell, error)
            ended = "done" if error is None else f"failed ({in_plain_words(error)})"
            say(
                f"[{board.clock()}] {cell.method} on {cell.dataset}, seed {cell.seed}: {ended}; "
                f"{len(board.left)} left"
            )

        yield line
        return
    with Live(board, console=console, refresh_per_second=2):
        yield board.tell


class _Board:
    """Methods by data sets, with how many seeds are done, at work, waiting."""

    def __init__(self, cells: Sequence[Cell], store: Store, n_workers: int) -> None:
        self.cells, self.n_workers, self.started = cells, n_workers, time.monotonic()
        self.left = {cell.name: cell for cell in cells if not store.has(cell)}
        self.failed: set[str] = set()

    def tell(self, cell: Cell, error: Exception | None) -> None:
        """Take note that a cell has ended."""
        self.left.pop(cell.name, None)
        if error is not None:
            self.failed.add(cell.name)

    def clock(self) -> str:
        """Time since the start, hours:minutes:seconds."""
        seconds = int(time.monotonic() - self.started)
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table

        datasets = list(dict.fromkeys(cell.dataset for cell in self.cells))
        table = Table(
            box=box.SIMPLE_HEAD,
            title_justify="left",
            min_width=48,
            title=f"{len(self.left)} of {len(self.cells)} fits left, {self.clock()} elapsed",
        )
        table.add_column("method")
        for dataset in datasets:
            table.add_column(dataset)
        at_work = set(list(self.left)[: self.n_workers])
        for method in dict.fromkeys(cell.method for cell in self.cells):
            row = [
                [c for c in self.cells if (c.method, c.dataset) == (method, dataset)]
                for dataset in datasets
            ]
            table.add_row(method, *(self._shown(cells, at_work) for cells in row))
        return table

    def _shown(self, cells: Sequence[Cell], at_work: set[str]) -> str:
        names = {cell.name for cell in cells}
        done = len(names - set(self.left) - self.failed)
        text = f"{done}/{len(names)}" if names else ""
        if names & at_work:
            text += " [cyan]running[/]"
        if names & self.failed:
            text += f" [red]{len(names & self.failed)} failed[/]"
        return f"[green]{text}[/]" if names and done == len(names) else text
