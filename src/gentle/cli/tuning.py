"""``gentle tune``: the settings of a model chosen by validation, then a model folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.clusters import searches_on
from gentle.cli.console import say
from gentle.cli.fitting import check_folder, configured, read_rows, save_model
from gentle.cli.options import (
    Cluster,
    Drop,
    Evaluation,
    ModelName,
    ModelOut,
    OverwriteModel,
    Quiet,
    Settings,
    Target,
    TrainingTable,
    Weight,
)

if TYPE_CHECKING:
    import pandas as pd

    from gentle.tuning import TuningResult

_TRIALS = 50
_SHOWN = 10  # of the best trials


class Search(StrEnum):
    """How to look for settings."""

    smart = "smart"
    paper = "paper"


class Criterion(StrEnum):
    """What to judge settings by."""

    crps = "crps"
    wd = "wd"


def tune(
    table: TrainingTable,
    target: Target,
    out: ModelOut,
    model: ModelName = "GENTLE",
    search: Annotated[
        Search,
        typer.Option(
            help="smart: learns from its trials where to look. paper: the paper's grid for GENTLE."
        ),
    ] = Search.smart,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="Trials of the smart search, earlier ones in the study included.",
            show_default=str(_TRIALS),
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", min=0, help="Begin no trial after that time."),
    ] = None,
    criterion: Annotated[
        Criterion | None,
        typer.Option(
            help="Judge by CRPS, or by Wasserstein distance where each validation covariate has "
            "20 responses.",
            show_default="crps; for the paper's grid wd",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="Processes to work in, one thread each.",
            show_default="all cores",
        ),
    ] = None,
    weight: Weight = None,
    evaluation: Evaluation = None,
    drop: Drop = None,
    settings: Settings = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="STUDY", help="Folder for the trials.", show_default="that of --out with .study"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=0,
            help="With one worker equal seeds give equal results.",
            show_default="that of the study, or random",
        ),
    ] = None,
    cluster: Cluster = None,
    overwrite: OverwriteModel = False,
    quiet: Quiet = False,
) -> None:
    """Choose the settings of a model by validation, and save the best model.

    Every trial is kept. An interrupted search goes on when the same command is
    given again; with a larger --trials and --overwrite so does a finished one.
    Settings given by --set stay as they are in all trials.

    Example:
        gentle tune patients.csv --target QALY --out model/ --trials 100
        gentle tune patients.csv -t QALY -o knn/ --model KNN --timeout 10
        gentle tune train.csv -t re78 -o paper/ --search paper --eval val.csv
    """
    import pandas

    from gentle.workers import n_cores

    check_folder(out, overwrite)
    chosen, fixed = configured(model, settings or [])
    run = _chosen_search(search, chosen, fixed, trials, cluster)
    rows = read_rows(table, target, weight, dropped=drop or [])
    held_out = None if evaluation is None else read_rows(evaluation, target, weight, list(rows[0]))
    study = folder or out.with_name(f"{out.name}.study")
    judged_by = {} if criterion is None else {"criterion": criterion.value}
    try:
        with _progress(chosen.__name__, quiet) as tell:
            found = run(
                rows[0],
                pandas.Series(rows[1], name=target),  # the name is remembered
                rows[2],
                eval_set=held_out,
                timeout=None if timeout is None else 60 * timeout,
                n_workers=n_cores() if workers is None else workers,
                folder=study,
                random_state=seed,
                callback=tell,
                **judged_by,
            )
    except KeyboardInterrupt:
        say(f"Interrupted. The trials are kept in {study}/; the same command goes on from there.")
        raise typer.Exit(130) from None
    save_model(found.model, out, overwrite)
    if quiet:
        return
    _show(found)
    say(f"The model is in {shlex.quote(f'{out}/')}, the trials in {shlex.quote(f'{study}/')}.")
    say("The same model without a search:")
    options = {"--target": target, "--out": f"{out}/", "--model": chosen.__name__}
    options |= {"--weight": weight, "--eval": evaluation, "--seed": found.model.random_state}
    pairs = [(name, value) for name, value in options.items() if value is not None]
    pairs += [("--drop", name) for name in drop or []]
    pairs += [("--set", text) for text in _texts(fixed | found.best_settings, repr)]
    words = ["gentle", "fit", table, *(word for pair in pairs for word in pair), "--overwrite"]
    say("  " + shlex.join(map(str, words)))


def _chosen_search(
    search: Search, chosen: Any, fixed: dict[str, Any], trials: int | None, cluster: str | None
) -> Callable[..., TuningResult]:
    """The search asked for, lacking only the rows to search on."""
    from gentle.tuning import PAPER_GRID

    place, options = searches_on(cluster)
    if search is Search.smart:
        space = {name: among for name, among in chosen.search_space.items() if name not in fixed}
        if not space:
            raise typer.BadParameter(
                f"{chosen.__name__} has no settings to search over, or --set fixes all of them",
                param_hint="--model",
            )
        estimator = chosen(**fixed, verbose=0)
        options |= {"space": space, "n_trials": trials or _TRIALS}
        return partial(place.search, estimator, **options)
    if chosen.__name__ != "GENTLE":
        raise typer.BadParameter("the paper has a grid for GENTLE only", param_hint="--search")
    if trials is not None:
        raise typer.BadParameter("the paper's grid has its own number", param_hint="--trials")
    grid = {**PAPER_GRID, **{name: (value,) for name, value in fixed.items()}}
    return partial(place.grid_search, chosen(verbose=0), grid, **options)


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[pd.DataFrame, int], None] | None]:
    """How far the search is; yields the function that takes the trials so far."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    if quiet:
        yield None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda trials, total: say(f"{_n_done(trials)} of {total} trials done{_best(trials)}")
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("trials{task.fields[best]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"Tuning {name}", total=None, best="")

        def tell(trials: pd.DataFrame, total: int) -> None:
            bar.update(task, completed=_n_done(trials), total=total, best=_best(trials))

        yield tell


def _n_done(trials: pd.DataFrame) -> int:
    return int(trials["state"].isin(["finished", "stopped early"]).sum())


def _best(trials: pd.DataFrame) -> str:
    scored = trials.dropna(subset=["score"])
    if scored.empty:
        return ""
    best = scored.loc[scored["score"].idxmin()]
    return f", best score {best['score']:#.5g} in trial {best['number']}"


def _show(found: TuningResult) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title="The best trials", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("trial", found.criterion.upper(), "seconds"):
        table.add_column(name, justify="right")
    table.add_column("settings")
    best = found.trials.dropna(subset=["score"]).sort_values("score", kind="stable").head(_SHOWN)
    for number, settings, score, seconds, _ in best.itertuples(index=False):
        varied = {name: settings.get(name) for name in found.varied}
        texts = _texts(varied, lambda value: f"{value:.4g}")
        table.add_row(str(number), f"{score:#.5g}", f"{seconds:.1f}", ", ".join(texts))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(str(found))


def _texts(settings: dict[str, Any], of_float: Callable[[float], str]) -> list[str]:
    """Settings as ``--set`` takes them: name=value."""
    return [
        f"{name}={of_float(value) if isinstance(value, float) else value}"
        for name, value in settings.items()
    ]
