"""``gentle compare``: which model predicts a table best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.console import say
from gentle.cli.fitting import configured, read_rows
from gentle.cli.options import Drop, Overwrite, Target, TrainingTable, Weight
from gentle.cli.tables import check_free, require_columns, table_writer
from gentle.models.registry import MODULES

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from gentle.comparison import Comparison

    States = dict[tuple[str, int], str]

_SIGNS = {"waiting": "·", "done": "✓", "failed": "✗"}


def compare(
    table: TrainingTable,
    target: Target,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            "-m",
            metavar="NAMES",
            help=f"Names with commas, or all: {', '.join(MODULES)}.",
            show_default="GENTLE and what one would try first",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="COLUMN",
            help="Column of what rows have in common, such as the patient. Rows of one group are "
            "held out together; the column is not a covariate.",
        ),
    ] = None,
    weight: Weight = None,
    drop: Drop = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="MODEL.NAME=VALUE",
            help="Setting of a model, such as GENTLE.n_steps=500; may be given several times.",
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option("--folds", metavar="NUMBER", min=2, help="Parts of the table.")
    ] = 5,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="NUMBER",
            min=1,
            help="Models to fit at the same time.",
            show_default="all cores",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="NUMBER", min=0, help="Equal seeds give equal folds and models."
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write the ranked table."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records", metavar="FILE", help="Also write the score of every model on every row."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Find out which model predicts a table best, by cross-validation.

    The table is cut into folds. Every model is fitted without one fold and
    predicts it, in turn, so that each response is predicted once by models that
    have not seen it. Rows with equal covariates or of one group stay together.

    Example:
        gentle compare patients.csv --target QALY
        gentle compare visits.csv -t cost --group patient --models GENTLE,KNN
        gentle compare patients.csv -t QALY --set GENTLE.n_steps=500 --out ranks.csv
    """
    from gentle.comparison import FIRST_CHOICE
    from gentle.comparison import compare as cross_validate
    from gentle.workers import n_cores

    files = [path for path in (out, records) if path is not None]
    for path in files:
        check_free(path, overwrite)
    if len(set(files)) < len(files):
        raise typer.BadParameter("--out and --records name the same file", param_hint="--records")
    chosen = _with_settings(_names(models, FIRST_CHOICE), settings or [])
    X, y, weights = read_rows(table, target, weight, dropped=drop or [])
    X, groups = _without_group(X, group, table)
    with _progress() as progress:
        result = cross_validate(
            X,
            y,
            chosen,
            sample_weight=weights,
            groups=groups,
            n_folds=folds,
            n_workers=workers or n_cores(),
            random_state=seed,
            progress=progress,
        )
    _show(result, target, folds)
    for path, frame in ((out, result.table()), (records, result.records)):
        if path is not None:
            with table_writer(path, overwrite) as append:
                append(frame)
            say(f"Wrote {len(frame):,} rows to {path}.")


def _names(text: str | None, first_choice: Sequence[str]) -> list[str]:
    """Names of models as the registry writes them."""
    if text is None:
        return list(first_choice)
    by_lower_case = {known.lower(): known for known in MODULES}
    wanted = [part.strip().lower() for part in text.split(",")]
    if wanted == ["all"]:
        return list(MODULES)
    for name in wanted:
        if name not in by_lower_case:
            raise typer.BadParameter(
                f"there is no model {name!r}; choose from {', '.join(MODULES)}, or all",
                param_hint="--models",
            )
    return [by_lower_case[name] for name in wanted]


def _with_settings(names: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """The models by name: estimators where there are settings, else names."""
    by_lower_case = {name.lower(): name for name in names}
    texts: dict[str, list[str]] = {}
    for text in settings:
        model, dot, setting = text.partition(".")
        if not dot or "=" in model:
            raise typer.BadParameter(
                f"{text!r} is not MODEL.NAME=VALUE, such as GENTLE.n_steps=500", param_hint="--set"
            )
        if model.strip().lower() not in by_lower_case:
            raise typer.BadParameter(
                f"{model.strip()!r} of {text!r} is not among the models to compare, "
                f"{', '.join(names)}",
                param_hint="--set",
            )
        texts.setdefault(by_lower_case[model.strip().lower()], []).append(setting)
    chosen: dict[str, Any] = dict(zip(names, names))
    for name, parts in texts.items():
        model_class, arguments = configured(name, parts)
        chosen[name] = model_class(**arguments)
    return chosen


def _without_group(X: pd.DataFrame, group: str | None, path: Path) -> tuple[pd.DataFrame, Any]:
    if group is None:
        return X, None
    require_columns(X, [group], path)
    if X.shape[1] == 1:
        raise ValueError(f"{str(path)!r} has no column that could be a covariate beside {group!r}")
    return X.drop(columns=group), X[group]


@contextmanager
def _progress() -> Iterator[Callable[[States], None]]:
    """What is done and what is running: a living table in a terminal, else a line for each end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            yield lambda states: live.update(_grid(states))
        return
    told = set()

    def tell(states: States) -> None:
        for (model, fold), state in states.items():
            if state in ("done", "failed") and (model, fold) not in told:
                told.add((model, fold))
                say(f"{len(told)} of {len(states)}: {model}, fold {fold + 1}, {state}")

    yield tell


def _grid(states: States) -> Table:
    from rich import box
    from rich.spinner import Spinner
    from rich.table import Table

    models = list(dict.fromkeys(model for model, _ in states))
    folds = sorted({fold for _, fold in states})
    n_done = sum(state in ("done", "failed") for state in states.values())
    caption = "· waiting, ✓ done, ✗ failed"
    title = f"{n_done} of {len(states)} done"
    grid = Table("fold", *(str(fold + 1) for fold in folds), box=box.SIMPLE_HEAD)
    grid.title, grid.caption = title, caption
    for model in models:
        cells = (states[model, fold] for fold in folds)
        grid.add_row(model, *(_SIGNS.get(state) or Spinner("dots") for state in cells))
    return grid


def _show(result: Comparison, target: str, n_folds: int) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 100
    ranked = result.table()
    console.print(_ranking(result, ranked))
    for line in _legend(result, target, n_folds):
        console.print(line)
    console.print()
    console.print(result.verdict())
    for model, reason in result.failed.items():
        console.print(f"{model} failed in {reason}")
    for model, reason in result.left_out.items():
        console.print(f"{model} was left out: {reason}")


def _ranking(result: Comparison, ranked: pd.DataFrame) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    floor = None if result.floor is None else result.floor["mean"].to_dict()
    table.add_column("")
    table.add_column("model")
    columns = [
        "CRPS",
        "behind",
        "skill",
        *(["WD", "KS"] if floor else []),
        "50/90%",
        "off",
        "fit s",
    ]
    for name in [*columns, "pred s"]:
        table.add_column(name, justify="right")
    row: Any
    for _, row in ranked.iterrows():
        if isinstance(row["reason"], str):
            table.add_row("–", row["model"], "failed")
            continue
        first = row["rank"] == 1
        seconds = row["fit_seconds"], row["predict_seconds"]
        distances = [f"{row['wd']:.4g}", f"{row['ks']:.3f}"] if floor else []
        table.add_row(
            str(row["rank"]),
            row["model"],
            _with_error(row["crps"], row["crps_se"]),
            "–" if first else _with_error(row["difference"], row["difference_se"]),
            f"{row['skill']:.1%}",
            *distances,
            f"{100 * row['coverage_50']:.0f}/{100 * row['coverage_90']:.0f}",
            f"{row['calibration_error']:.3f}",
            *(f"{s:.2f}" if s < 10 else f"{s:.0f}" for s in seconds),
        )
    if floor:
        cells = [f"{floor['wd']:.4g}", f"{floor['ks']:.3f}"]
        table.add_row("", "noise floor", "", "", "", *cells)
    return table


def _legend(result: Comparison, target: str, n_folds: int) -> Iterator[str]:
    records = result.records
    n_rows, n_units = records["row"].nunique(), records["unit"].nunique()
    yield (
        f"From {n_rows:,} rows in {n_folds} folds; rows with equal covariates or groups taken "
        f"together, {n_units:,} are independent. ± is a standard error."
    )
    yield (
        f"CRPS: prediction error in units of {target}, smaller is better; behind: how much larger "
        "than the best. skill: how much smaller than the CRPS of Marginal, the forecast that "
        "ignores the covariates."
    )
    if result.floor is not None:
        yield (
            "WD, KS: Wasserstein and Kolmogorov-Smirnov distance to the responses of covariates "
            "that repeat; the true distributions would score about the noise floor."
        )
    yield (
        "50/90%: share of the responses inside the central 50% and 90% intervals. off: how far the "
        "predicted probabilities are off on average, 0 is perfect. fit, pred: seconds per fold."
    )


def _with_error(value: float, error: float) -> str:
    """A number and its standard error, to two digits of the latter."""
    if not error > 0:
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > 6:
        return f"{value:.2e} ± {error:.0e}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"
