"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gentle.models.registry import MODULES

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

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Work on a Ray cluster: local starts one here, auto joins the running one, "
        "ray://HOST:PORT is one elsewhere.",
    ),
]
ClusterWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="NUMBER",
        min=1,
        help="Processes to work in with --cluster, one thread each.",
        show_default="the cores of this machine",
    ),
]

# Of the commands that learn from a table and save a model
TrainingTable = Annotated[
    Path,
    typer.Argument(metavar="TABLE", help="CSV or Parquet file to learn from.", show_default=False),
]
Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="COLUMN", help="Column of the responses.", show_default=False
    ),
]
ModelOut = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the model.", show_default=False),
]
ModelName = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME", help=f"One of {', '.join(MODULES)}.")
]
Evaluation = Annotated[
    Path | None,
    typer.Option(
        "--eval",
        metavar="FILE",
        help="Table to validate on, in place of held-out rows of TABLE.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to leave out; may be given several times."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of the model, such as n_steps=500; may be given several times. "
        "A name that does not exist lists those that do.",
    ),
]
OverwriteModel = Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
