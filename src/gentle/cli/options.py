"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder that gentle fit wrote.", show_default=False)
]
NewTable = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet file with the model's covariates, which are found by name; "
        "other columns are ignored.",
        show_default=False,
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="CSV or Parquet file to write.",
        show_default="CSV on standard output",
    ),
]
Weight = Annotated[
    str | None, typer.Option("--weight", metavar="COLUMN", help="Column of row weights.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        min=0,
        help="Equal seeds give equal results (with equal --threads).",
        show_default="random",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="NUMBER",
        min=1,
        help="Processor threads for PyTorch.",
        show_default="all cores",
    ),
]
