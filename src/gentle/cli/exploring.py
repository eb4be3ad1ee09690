"""``gentle explore``: a saved model on a page in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gentle.cli.answering import load_model
from gentle.cli.console import say
from gentle.cli.tables import model_columns, read_table


def explore(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="Folder that gentle fit wrote.",
            show_default="a small model that comes with gentle",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="Table that MODEL was fitted to. Shows the rows on which an answer rests.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=65535,
            help="Port of the page.",
            show_default="the first free one from 8501 on",
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only tell the address, open no browser.")
    ] = False,
) -> None:
    r"""Explore a model in the browser: move a covariate, see the distribution change.

    The page is served to this computer only and fetches nothing from elsewhere.
    Ctrl-C ends it. It needs the extra explore: pip install 'gentle-ot\[explore]'.

    Example:
        gentle explore
        gentle explore model/ --data train.csv
    """
    from gentle.explorer import server

    server.require_extra()
    if model is None and data is not None:
        raise typer.BadParameter("it needs the MODEL that was fitted to it", param_hint="--data")
    fitted = table = None
    if model is not None:
        fitted = load_model(model, None)
        if data is not None:
            table = read_table(data)
            response = [fitted.response_name_] if fitted.response_name_ in table else []
            model_columns(fitted, table, data, response)
    server.explore(
        fitted,
        table,
        port=port,
        open_browser=not no_browser and sys.stdout.isatty(),
        say=say,
    )
