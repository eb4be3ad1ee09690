"""``gentle report``: a page about a saved model that a colleague can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gentle.cli.answering import load_model
from gentle.cli.console import say
from gentle.cli.options import ModelFolder, Overwrite, Threads
from gentle.cli.scoring import response_column
from gentle.cli.tables import model_columns, number_column, read_table, require_columns


def report(
    model: ModelFolder,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV or Parquet file with covariates and responses that the model has not seen.",
            show_default=False,
        ),
    ],
    train: Annotated[
        Path | None,
        typer.Option(
            "--train",
            metavar="FILE",
            help="Table that the model was fitted to. With it, models that one would try first are "
            "fitted for comparison.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="HTML file to write.")
    ] = Path("report.html"),
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Column of the responses.",
            show_default="as in gentle fit",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Column of TABLE for subgroups, a covariate or not; may be given several times.",
            show_default="every covariate",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Heading of the page.")
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows", metavar="NUMBER", min=2, help="Of a longer table, so many rows at random."
        ),
    ] = 5000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="NUMBER", min=0, help="Seed of all that is random.")
    ] = 0,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a page about a model: its data, accuracy, calibration, and where it fails.

    One HTML file that loads nothing from elsewhere, to be opened in a browser,
    printed or sent to a colleague. It has a verdict in words on top.

    Example:
        gentle report model/ test.csv --out report.html
        gentle report model/ test.csv --train train.csv --by region --by sex
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file; {str(out)!r} has to end in .html")
    if out.is_dir():
        raise ValueError(f"{str(out)!r} is a folder; name a file in it")
    if out.exists() and not overwrite:
        raise ValueError(f"{str(out)!r} exists already; add --overwrite to replace it")
    fitted = load_model(model, threads)
    frame = read_table(table)
    response = response_column(fitted, frame, table, target)
    y = number_column(frame, response, "the target", table)
    X = model_columns(fitted, frame, table, others=[response])
    require_columns(frame, by or [], table)
    pair = None
    if train is not None:
        known = read_table(train)
        responses = number_column(known, response, "the target", train)
        pair = model_columns(fitted, known, train, others=[response]), responses

    import pandas as pd

    from gentle.report import report as write

    with _progress() as tell:
        write(
            model,
            X,
            pd.Series(y, name=response),
            train=pair,
            by={name: frame[name] for name in by} if by else None,
            out=out,
            title=title,
            max_rows=rows,
            random_state=seed,
            progress=tell,
        )
    say(f"Wrote {out}.")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being done: a line that changes in a terminal, lines in a log."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: say(f"{what} ...")
        return
    with console.status("Reading") as status:
        yield lambda what: status.update(f"{what} ...")
