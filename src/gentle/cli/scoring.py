"""``gentle evaluate``: how good a saved model is on held-out responses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.answering import load_model
from gentle.cli.console import say, working
from gentle.cli.options import ModelFolder, Overwrite, Threads, Weight
from gentle.cli.tables import (
    check_free,
    listed,
    model_columns,
    number_column,
    read_table,
    table_writer,
)

if TYPE_CHECKING:
    import pandas as pd

_MIN_RESPONSES = 20  # fewer, and the distances to them reward models that are too narrow

_LABELS = {
    "crps": ("CRPS", "#.4g"),
    "skill": ("CRPS skill over the marginal", ".1%"),
    "pinball": ("pinball loss, levels 0.1 to 0.9", "#.4g"),
    "interval_score": ("interval score, 90% interval", "#.4g"),
    "coverage": ("coverage of the 90% interval", ".1%"),
    "mse": ("MSE of the conditional means", "#.4g"),
    "r2": ("R² of the conditional means", ".1%"),
    "wd": ("Wasserstein distance (WD)", "#.4g"),
    "ks": ("Kolmogorov-Smirnov distance (KS)", "#.4g"),
}


def evaluate(
    model: ModelFolder,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV or Parquet file with covariates and responses that the model has not seen.",
            show_default=False,
        ),
    ],
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
    weight: Weight = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Also write the scores of each distinct covariate."
        ),
    ] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Score a model on responses that it has not seen.

    Shows the average scores of the model beside those of the marginal, the
    forecast that ignores the covariates.

    Example:
        gentle evaluate model/ test.csv
        gentle evaluate model/ test.csv --target QALY --out scores.csv
    """
    from gentle.metrics import evaluate as score
    from gentle.metrics import noise_floor

    if out is not None:
        check_free(out, overwrite)
    fitted = load_model(model, threads)
    frame = read_table(table)
    response = response_column(fitted, frame, table, target, weight)
    y = number_column(frame, response, "the target", table)
    weights = None if weight is None else number_column(frame, weight, "the weight", table)
    X = model_columns(fitted, frame, table, others=[c for c in (response, weight) if c])

    with table_writer(out, overwrite) as append, working(f"Scoring {len(X):,} rows"):
        scores = score(fitted, X, y, weights, min_responses=_MIN_RESPONSES)
        marginal = score(_Marginal(fitted), X, y, weights, min_responses=_MIN_RESPONSES)
        floor = None
        if scores.summary()["n_repeated"]:
            floor = noise_floor(None, X, y, weights, min_responses=_MIN_RESPONSES)
        if out is not None:
            append(scores.records)
    _show(scores.summary(), marginal.summary(), floor, response)
    if out is not None:
        say(f"Wrote the scores of {len(scores.records):,} distinct covariates to {out}.")


class _Marginal:
    """The distribution of a model's training responses, whatever the covariates."""

    def __init__(self, model: Any) -> None:
        self._marginal = model.marginal_

    def predict_dist(self, X: Any) -> Any:
        return self._marginal.repeat(len(X))


def response_column(
    model: Any, frame: pd.DataFrame, path: Path, target: str | None, weight: str | None = None
) -> str:
    """The column of the responses: as told, as in ``fit``, or the only one that is left."""
    response = target or model.response_name_ or _only_other_column(model, frame, weight, path)
    if target is None and response not in frame:
        raise ValueError(
            f"{str(path)!r} has no column {response!r}, the response that the model was fitted "
            "on. Name the column of the responses with --target."
        )
    return response


def _only_other_column(model: Any, frame: pd.DataFrame, weight: str | None, path: Path) -> str:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise ValueError(
            "this model was fitted without column names; "
            "say with --target which column is the response"
        )
    others = [name for name in frame.columns if name not in {*names, weight}]
    if len(others) != 1:
        found = f"{listed(others)} are" if others else "no column is"
        raise ValueError(
            f"say with --target which column of {str(path)!r} is the response: "
            f"{found} not among the covariates of the model"
        )
    return others[0]


def _show(
    model: dict[str, float],
    marginal: dict[str, float],
    floor: pd.DataFrame | None,
    target: str,
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    responses, covariates = model["n_responses"], model["n_covariates"]
    table = Table(
        title=f"{responses:,} responses to {covariates:,} distinct covariates",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for scores in (model, marginal):
        baseline = marginal["crps"]
        scores["skill"] = 1 - scores["crps"] / baseline if baseline else float("nan")
    table.add_column("score")
    table.add_column("model", justify="right")
    table.add_column("marginal", justify="right")
    if floor is not None:
        table.add_column("noise floor", justify="right")
    for name, (label, form) in _LABELS.items():
        cells = [
            format(value, form) if value == value else "–"  # nan: not defined here
            for value in (model[name], marginal[name])
        ]
        if name in ("wd", "ks"):
            if floor is None:
                continue
            cells.append("{:#.4g} ± {:.1g}".format(*floor.loc[name]))
        table.add_row(label, *cells)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        f"Units are those of {target}, for MSE their square. "
        "Smaller is better, except that CRPS skill and R² are best at 100% and coverage at 90%. "
        "The marginal is the forecast that ignores the covariates."
    )
    if floor is None:
        console.print(
            f"No covariate has {_MIN_RESPONSES} responses, so WD and KS are not shown "
            "(they reward point masses)."
        )
    else:
        console.print(
            f"WD and KS are averages over the {model['n_repeated']:,} covariates with at least "
            f"{_MIN_RESPONSES} responses. Their noise floor is about what the true distributions "
            "would score here, give or take one standard deviation."
        )
