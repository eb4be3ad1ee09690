"""``gentle fit``: from a table to a model folder."""

from __future__ import annotations

import ast
import inspect
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from gentle.cli.clusters import fit_on
from gentle.cli.console import chosen_seed, say, use_threads
from gentle.cli.options import (
    Cluster,
    ClusterWorkers,
    Drop,
    Evaluation,
    ModelName,
    ModelOut,
    OverwriteModel,
    Quiet,
    Seed,
    Settings,
    Target,
    Threads,
    TrainingTable,
    Weight,
)
from gentle.cli.tables import listed, number_column, read_table, require_columns, table_kind
from gentle.models.registry import MODULES, model_class

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from gentle.sources import Source

    Rows = tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64] | None]

_PAPERS_DATA = ("ldw-cps", "ecm")
_DEVICES = ("auto", "cpu", "cuda", "mps")
_OWN_OPTIONS = {"random_state": "--seed", "device": "--device", "verbose": "--quiet"}


def fit(
    table: TrainingTable,
    target: Target,
    out: ModelOut,
    model: ModelName = "GENTLE",
    weight: Weight = None,
    evaluation: Evaluation = None,
    drop: Drop = None,
    settings: Settings = None,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET",
            help="Train GENTLE as in the paper, with its settings for ldw-cps or ecm.",
        ),
    ] = None,
    seed: Seed = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="cpu, cuda, mps, or auto: cuda if there is one, else cpu.",
        ),
    ] = "auto",
    threads: Threads = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint-dir",
            metavar="FOLDER",
            help="Where training is kept until the model is saved.",
            show_default="a hidden folder beside --out",
        ),
    ] = None,
    cluster: Cluster = None,
    workers: ClusterWorkers = None,
    overwrite: OverwriteModel = False,
    quiet: Quiet = False,
) -> None:
    """Learn the distribution of one column given the others, and save the model.

    All columns but the target, the weight and what --drop names are covariates:
    numbers, text, true or false, ISO dates. Values may be missing.

    TABLE may be a folder of Parquet files. GENTLE also learns from Parquet files
    that are larger than memory: it reads them in pieces, twice.

    After an interruption of any kind, the same command goes on where it was.

    Example:
        gentle fit patients.csv --target QALY --out model/
        gentle fit patients.csv -t QALY -o model/ --set n_steps=500 --overwrite
        gentle fit patients.csv -t QALY -o paper/ --paper ecm --set n_epochs=20
    """
    import pandas

    from gentle.checkpoints import remove, seed_in

    check_folder(out, overwrite)
    kept = checkpoint_dir or out.absolute().with_name(f".{out.absolute().name}-checkpoints")
    if device.split(":")[0] not in _DEVICES:
        raise typer.BadParameter(f"choose from {', '.join(_DEVICES)}", param_hint="--device")
    chosen, arguments = configured(model, settings or [])
    arguments = _paper_settings(chosen, paper) | arguments
    seed = chosen_seed(seed_in(kept) if seed is None else seed)
    estimator = chosen(**arguments, random_state=seed, device=device, verbose=0 if quiet else 1)
    large = _large(table, target, weight, drop or [], estimator)
    if large is None:
        X, y, weights = read_rows(table, target, weight, dropped=drop or [])
        to_fit = (X, pandas.Series(y, name=target), weights)  # the name is remembered
    else:
        to_fit = (large, target, weight)
    covariates = [name for name in to_fit[0].columns if name not in (target, weight)]
    held_out = None if evaluation is None else read_rows(evaluation, target, weight, covariates)
    use_threads(threads)

    if not quiet:
        _announce(chosen.__name__, to_fit[0], covariates, target)
    started = time.perf_counter()
    _fit_or_resume(fit_on(cluster, workers, estimator), (*to_fit, held_out), kept, overwrite)
    seconds = time.perf_counter() - started
    save_model(
        estimator,
        out,
        overwrite,
        "Make room and give the same command again: it goes on from the last checkpoint.",
    )
    remove(kept)
    if not quiet:
        _summarise(estimator, seconds, seed, held_out, evaluation)
        folder = shlex.quote(f"{out}/")
        say(f"The model is in {folder}. To go on, with tables that have these columns:")
        say(f"  gentle evaluate {folder} test.csv")
        say(f"  gentle sample {folder} new.csv -n 1000 --out draws.parquet")


def _large(
    path: Path, target: str, weight: str | None, dropped: Sequence[str], estimator: Any
) -> Source | None:
    """A folder of Parquet files, or one that is too large to be read whole, if a model can that."""
    import pandas

    from gentle.models.larger import MAX_CELLS
    from gentle.sources import Source

    is_folder = path.is_dir() and any(file.suffix in (".parquet", ".pq") for file in path.iterdir())
    if not is_folder and (not path.is_file() or table_kind(path) != "parquet"):
        return None
    source = Source.of(path)
    learns_from_pieces = not getattr(estimator, "is_game", True)
    is_large = (source.n_rows or 0) * len(source.columns) > MAX_CELLS and learns_from_pieces
    if not (is_folder or is_large):
        return None
    frame = pandas.DataFrame({name: [] for name in source.columns})
    require_columns(frame, [name for name in (target, weight, *dropped) if name is not None], path)
    _warn_of_row_numbers(list(source.columns))
    return source.without(dropped)


def _fit_or_resume(fit: Any, table: Sequence[Any], kept: Path, overwrite: bool) -> None:
    """Fit a model whose training is kept in a folder; say how to go on if it is interrupted."""
    from gentle.checkpoints import OtherFitError, remove, seed_in

    try:
        fit(*table, checkpoint_dir=kept)
    except OtherFitError as other:
        if not overwrite:
            raise ValueError(
                f"{str(kept)!r} holds checkpoints of another fit that was interrupted: "
                f"{other.difference}. Give its command again to go on with it, or add --overwrite "
                "to drop it."
            ) from None
        remove(kept)
        _fit_or_resume(fit, table, kept, overwrite)
    except KeyboardInterrupt:
        if seed_in(kept) is None:
            raise
        say("Interrupted. To go on from the last finished epoch, give the same command again.")
        raise typer.Exit(130) from None


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raise before hours of training if the model could not be saved after them."""
    from gentle.models.persistence import check_target

    check_target(folder, overwrite=True)  # refuses what is no model
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise ValueError(f"{str(folder)!r} holds a model already; add --overwrite to replace it")
    parent = folder.absolute().parent
    while not parent.exists():  # saving creates what is missing
        parent = parent.parent
    try:
        with tempfile.TemporaryDirectory(dir=parent):  # the sure test of whether one may write
            pass
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write the model ({error.strerror})", str(parent)
        ) from error


def configured(name: str, settings: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The class of a model, and its constructor arguments from texts ``name=value``."""
    by_lower_case = {known.lower(): known for known in MODULES}
    if name.lower() not in by_lower_case:
        raise typer.BadParameter(
            f"there is no model {name!r}; choose from {', '.join(MODULES)}", param_hint="--model"
        )
    chosen = model_class(by_lower_case[name.lower()])
    return chosen, dict(_setting(chosen, text) for text in settings)


def _paper_settings(chosen: Any, dataset: str | None) -> dict[str, Any]:
    if dataset is None:
        return {}
    if chosen.__name__ != "GENTLE" or dataset not in _PAPERS_DATA:
        raise typer.BadParameter(
            f"the paper has settings for GENTLE on {' and on '.join(_PAPERS_DATA)}",
            param_hint="--paper",
        )
    from gentle.models.gentle import PAPER

    return PAPER[dataset]


def _setting(chosen: type, text: str) -> tuple[str, Any]:
    name, equals, written = (part.strip() for part in text.partition("="))
    parameters = inspect.signature(chosen).parameters
    if name in _OWN_OPTIONS:
        raise typer.BadParameter(
            f"{name} has an option of its own where it can be chosen: {_OWN_OPTIONS[name]}",
            param_hint="--set",
        )
    if not equals or name not in parameters:
        known = ", ".join(sorted(set(parameters) - set(_OWN_OPTIONS))) or "none"
        wrong = (
            f"{chosen.__name__} has no setting {name!r}"
            if equals
            else f"{text!r} is not NAME=VALUE"
        )
        raise typer.BadParameter(
            f"{wrong}. Settings of {chosen.__name__}: {known}.", param_hint="--set"
        )
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        value = written  # a word needs no quotes
    if not _is_a(value, get_type_hints(chosen.__init__)[name]):
        parameter = parameters[name]
        raise typer.BadParameter(
            f"{name} cannot be {value!r}: its type is {parameter.annotation}, "
            f"its default {parameter.default!r}",
            param_hint="--set",
        )
    return name, value


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as far as constructors of models use them."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_a(value, option) for option in inner)
    if kind is Literal:
        return value in inner
    if kind is not None and issubclass(kind, Sequence):
        return isinstance(value, (list, tuple)) and all(_is_a(item, inner[0]) for item in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return hint is Any or isinstance(value, (int, float) if hint is float else hint)


def read_rows(
    path: Path,
    target: str,
    weight: str | None,
    covariates: list[str] | None = None,
    dropped: Sequence[str] = (),
) -> Rows:
    """Covariates, responses and weights of a table."""
    frame = read_table(path)
    responses = number_column(frame, target, "the target", path)
    weights = None if weight is None else number_column(frame, weight, "the weight", path)
    if covariates is None:
        require_columns(frame, dropped, path)
        covariates = [name for name in frame if name not in {target, weight, *dropped}]
        if not covariates:
            raise ValueError(
                f"{str(path)!r} has no column that could be a covariate beside {target!r}"
            )
        _warn_of_row_numbers(covariates)
    require_columns(frame, covariates, path)
    return frame.loc[:, covariates], responses, weights


def _warn_of_row_numbers(covariates: list[str]) -> None:
    import warnings

    nameless = [name for name in covariates if name.startswith("Unnamed: ")]
    if nameless:
        warnings.warn(
            f"column(s) {listed(nameless)} have no name in the file and may be row numbers; "
            "they are used as covariates unless you leave them out with --drop",
            stacklevel=2,
        )


def _announce(name: str, X: Any, covariates: list[str], target: str) -> None:
    from gentle.data import responses_per_covariate
    from gentle.sources import Source

    say(f"Fitting {name}: {target} given {', '.join(covariates)}.")
    columns = "1 column" if len(covariates) == 1 else f"{len(covariates)} columns"
    if isinstance(X, Source):
        say(f"{X.n_rows:,} rows in {columns}, read in pieces.")
        return
    n_distinct = len(responses_per_covariate(X))
    say(f"{len(X):,} rows with {n_distinct:,} distinct covariates in {columns}.")


def save_model(estimator: Any, folder: Path, overwrite: bool, advice: str = "") -> None:
    """Save the model, and if its folder has become unusable meanwhile, save it elsewhere.

    Args:
        estimator: The fitted model.
        folder: Where it is wanted.
        overwrite: Replace a model that is there.
        advice: What to tell a user whose model could be saved nowhere.
    """
    try:
        estimator.save(folder, overwrite=overwrite)
    except OSError as error:
        problem = f"{str(folder)!r} could not be written ({error})"
        rescue = _saved_elsewhere(estimator)
        if rescue is None:
            raise ValueError(f"{problem}. {advice}") from error
        raise ValueError(
            f"{problem}; the model is in {str(rescue)!r}, move it from there"
        ) from error


def _saved_elsewhere(estimator: Any) -> Path | None:
    """A folder for temporary files in which the model is now, None if there is no room either."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="gentle-"))
    except OSError:
        return None
    try:
        estimator.save(scratch / "model")
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        return None
    return scratch / "model"


def _summarise(
    estimator: Any, seconds: float, seed: int, held_out: Rows | None, evaluation: Path | None
) -> None:
    history = getattr(estimator, "history_", [])
    epochs = f" ({len(history)} epochs)" if history else ""
    say(f"Done in {seconds:.1f} seconds{epochs}, with seed {seed}.")
    if hasattr(estimator, "n_neighbors_"):
        say(f"Each answer is the responses of the {estimator.n_neighbors_} nearest rows.")
    if held_out is not None:
        say(_comparison(estimator.score(*held_out), f"On {evaluation}"))
    elif getattr(estimator, "validation_skill_", None) is not None:
        say(_comparison(estimator.validation_skill_, "On held-out rows"))


def _comparison(skill: float, where: str) -> str:
    """CRPS skill in words."""
    verdict = "smaller" if skill >= 0 else "LARGER"
    return (
        f"{where} the prediction error (CRPS) is {abs(skill):.0%} {verdict} "
        "than that of a forecast that ignores the covariates."
    )
