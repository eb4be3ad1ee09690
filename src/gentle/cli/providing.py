"""``gentle simulate`` and ``gentle datasets``: data to try things on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.console import chosen_seed, progress, say
from gentle.cli.options import OutFile, Overwrite, Seed
from gentle.cli.tables import check_free, read_table, require_columns, table_writer

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Draw = Callable[[pd.DataFrame, int, np.random.Generator], NDArray[np.float64]]

_VALUES_AT_ONCE = 2**20  # responses simulated and written at once


def simulate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="ecm, or a synthetic problem that gentle datasets lists.",
            show_default=False,
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n",
            metavar="NUMBER",
            min=1,
            help="Distinct covariates to draw (patients, for ecm).",
            show_default="1000",
        ),
    ] = None,
    at: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of covariates to use in place of drawing them."),
    ] = None,
    responses: Annotated[
        int,
        typer.Option(
            "--responses", metavar="NUMBER", min=1, help="Responses for each of them, one row each."
        ),
    ] = 1,
    control_variate: Annotated[
        bool | None,
        typer.Option(
            "--control-variate/--plain",
            help="For ecm: QALYs with the paper's control variate (same mean, less spread, "
            "may be negative), or plain QALYs.",
            show_default="control variate",
        ),
    ] = None,
    out: OutFile = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Simulate a table of covariates and responses.

    ecm simulates the quality-adjusted life of patients with Barrett's esophagus
    under aspirin or statin; its response is the column QALY. The synthetic problems
    have a known conditional distribution; their response is the column y.

    Example:
        gentle simulate ecm -n 1000 --out patients.csv --seed 1
        gentle simulate ecm --at patients.csv --responses 50 --out lives.parquet
        gentle simulate sine-laplace -n 5000 --out training.csv
    """
    import numpy as np
    import pandas as pd

    if n is not None and at is not None:
        raise typer.BadParameter(
            "cannot be combined: --at brings its own covariates", param_hint="-n and --at"
        )
    if out is not None:
        check_free(out, overwrite)
    covariates, draw = _source(name, control_variate)
    seed = chosen_seed(seed)
    rng = np.random.default_rng(seed)
    X = covariates(1000 if n is None else n, rng)
    if at is not None:
        given = read_table(at)
        require_columns(given, X, at)
        X = given.loc[:, list(X)]
    column = _listing(name).column
    step = max(1, _VALUES_AT_ONCE // responses)
    with (
        table_writer(out, overwrite) as append,
        progress("Simulating", len(X), out is not None) as advance,
    ):
        for start in range(0, len(X), step):
            part = X.iloc[start : start + step]
            y = draw(part, responses, rng)  # (rows, responses)
            repeated = part.loc[part.index.repeat(responses)].reset_index(drop=True)
            append(pd.concat([repeated, pd.Series(y.ravel(), name=column)], axis=1))
            advance(len(part))
    if out is not None:
        say(
            f"Wrote {len(X) * responses:,} rows to {out}, with the response in the column "
            f"{column} and seed {seed}."
        )


def _source(name: str, control_variate: bool | None) -> tuple[Callable[..., pd.DataFrame], Draw]:
    """Functions that draw covariates, and responses at covariates."""
    from gentle.datasets import PROBLEMS, draw_covariates, simulate_ecm

    if name == "ecm":
        plain = control_variate is False
        return draw_covariates, lambda X, k, rng: simulate_ecm(X, k, not plain, rng)
    if control_variate is not None:
        raise typer.BadParameter(
            f"{name} has no control variate, only ecm has", param_hint="--control-variate/--plain"
        )
    if name not in PROBLEMS:
        raise ValueError(_unknown(name, ["ecm", *PROBLEMS]))
    return PROBLEMS[name].sample_x, PROBLEMS[name].sample


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    from gentle.datasets import TABLES

    if name in ("ldw-cps", *TABLES):
        return (
            f"{name} is data from the world and cannot be simulated; "
            f"gentle datasets {name} --out FOLDER writes it"
        )
    closest = get_close_matches(name, known, n=1)
    hint = f" Did you mean {closest[0]!r}?" if closest else ""
    return f"there is nothing called {name!r}.{hint} There are {', '.join(known)}."


def _listing(name: str) -> Any:
    from gentle.datasets import names

    return next(listing for listing in names() if listing.name == name)


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Data set to write.", show_default="list all"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Folder to write NAME to.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """List the data sets of the library, or write one to files.

    A data set is written as train.csv, val.csv and test.csv into a folder. Of a
    large table from the world that is a part; gentle.datasets.load has all options.

    Example:
        gentle datasets
        gentle datasets ldw-cps --out ldw/
    """
    from gentle.datasets import load, names

    if name is None and out is None:
        _show(names())
        return
    if name is None or out is None:
        raise typer.BadParameter(
            "writing a data set needs both of them", param_hint="NAME and --out"
        )
    known = [listing.name for listing in names()]
    if name not in known:
        raise ValueError(_unknown(name, known))
    files = {part: out / f"{part}.csv" for part in ("train", "val", "test")}
    out.mkdir(parents=True, exist_ok=True)
    for file in files.values():
        check_free(file, overwrite)
    benchmark = load(name)
    column = _listing(name).column
    for part, file in files.items():
        table = getattr(benchmark, part)
        with (
            table_writer(file, overwrite) as append,
            progress(f"Writing {file}", len(table)) as advance,
        ):
            for start in range(0, len(table), _VALUES_AT_ONCE // 8):
                rows = slice(start, start + _VALUES_AT_ONCE // 8)
                append(table.X.iloc[rows].assign(**{column: table.y[rows]}))
                advance(len(table.y[rows]))
        say(f"Wrote {len(table):,} rows to {file}, with the response in the column {column}.")


def _show(listings: list[Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from gentle.datasets import PROBLEMS, TABLES

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("description → response")
    section = None
    for line in listings:
        if section not in (None, section := (line.name in PROBLEMS, line.name in TABLES)):
            table.add_section()
        contents = line.description
        if line.response != "y":  # of which the formulas speak already
            contents += f"\n→ {line.response}, in {line.unit}"
        table.add_row(line.name, f"{line.rows:,} × {line.covariates:>2}", contents)
    Console(highlight=False).print(table)
    say("The size is rows × covariates. gentle datasets NAME --out FOLDER writes one to files.")
