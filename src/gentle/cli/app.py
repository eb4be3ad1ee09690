"""The ``gentle`` command: its subcommands, and how errors and interruptions reach the user."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gentle.cli import (
    answering,
    comparing,
    exploring,
    fitting,
    providing,
    reporting,
    reproducing,
    scoring,
    tuning,
)
from gentle.cli.console import complain, in_plain_words, say, tidy_warnings


class _Commands(TyperGroup):
    """Runs a subcommand; what goes wrong in it becomes one line of text and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with tidy_warnings():
                result = super().invoke(ctx)
                sys.stdout.flush()  # here, where a reader that has gone away can be dealt with
            return result
        except KeyboardInterrupt:
            say("Interrupted. Files appear only once they are complete, so none is half written.")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # `| head` has read enough. Python flushes again at exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None  # as of any tool that a closed pipe ends
        except Exception as error:
            ours = not (hasattr(error, "exit_code") or isinstance(error, typer.Abort))
            if not ours or ctx.params.get("traceback"):  # typer shows its usage errors itself
                raise
            complain(in_plain_words(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from gentle import __version__

        typer.echo(f"gentle {__version__}")
        raise typer.Exit()


@app.callback()
def gentle(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the program an error arose.")
    ] = False,
) -> None:
    """Learn the whole distribution of a response given covariates from a table.

    Tables are CSV (.csv, .csv.gz) or Parquet (.parquet, .pq) files with a header.

    Example:
        gentle simulate ecm -n 2000 --out patients.csv
        gentle fit patients.csv --target QALY --out model/
        gentle simulate ecm -n 500 --out test.csv
        gentle evaluate model/ test.csv
        gentle predict model/ test.csv --quantiles .05,.5,.95
        gentle sample model/ test.csv -n 1000 --out draws.parquet
    """


for _command in (
    fitting.fit,
    tuning.tune,
    answering.sample,
    answering.predict,
    scoring.evaluate,
    comparing.compare,
    reporting.report,
    exploring.explore,
    reproducing.reproduce,
    providing.simulate,
    providing.datasets,
):
    app.command()(_command)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters is no error
    app(prog_name="gentle")
