"""``gentle sample`` and ``gentle predict``: what a saved model says about new rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gentle.cli.clusters import writing_on
from gentle.cli.console import chosen_seed, progress, say, use_threads
from gentle.cli.options import (
    Cluster,
    ClusterWorkers,
    ModelFolder,
    NewTable,
    OutFile,
    Overwrite,
    Seed,
    Threads,
)
from gentle.cli.tables import check_free, model_columns, read_table, table_kind, table_writer

if TYPE_CHECKING:
    import pandas as pd

_VALUES_AT_ONCE = 2**20  # draws held in memory at once; 24 bytes each in the long form
_ROWS_AT_ONCE = 2**12  # few enough for a model to answer mean and quantiles from one pass
_ROWS_READ_WHOLE = 2**20  # of a longer Parquet file some rows at a time


def sample(
    model: ModelFolder,
    table: NewTable,
    n: Annotated[
        int, typer.Option("-n", "--draws", metavar="NUMBER", min=1, help="Draws for each row.")
    ] = 1000,
    out: OutFile = None,
    seed: Seed = None,
    threads: Threads = None,
    cluster: Cluster = None,
    workers: ClusterWorkers = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw responses from the model for each row of a table.

    The output has the columns row (position in TABLE, from 0), draw (from 0) and
    value. It is written piece by piece, and a long Parquet file is read so, too:
    requests of any size fit into memory. A row's draws depend on the seed, its
    position and its covariates only.

    Example:
        gentle sample model/ new.csv -n 1000 --out draws.parquet --seed 1
    """
    import numpy as np
    import pandas as pd

    from gentle.streaming import count_rows

    on_cluster = writing_on(cluster, workers, out)
    fitted, X = _prepared(model, table, out, overwrite, threads)
    seed = chosen_seed(seed)
    if on_cluster and out is not None:
        from gentle.cluster import sample_to_parquet

        on_cluster |= {"random_state": seed, "overwrite": overwrite}
        done = sample_to_parquet(fitted, X, out, n, **on_cluster)
        say(f"Wrote {n:,} draws for each of {done:,} rows to {out}, with seed {seed}.")
        return
    with table_writer(out, overwrite) as append:
        for start, dist in _pieces(fitted, X, _VALUES_AT_ONCE // n, "Sampling", out is not None):
            values = dist.sample(n, seed, first_row=start)  # (rows, n)
            rows = np.arange(start, start + len(dist))
            append(
                pd.DataFrame(
                    {
                        "row": np.repeat(rows, n),
                        "draw": np.tile(np.arange(n), len(dist)),
                        "value": values.ravel(),
                    }
                )
            )
    if out is not None:
        rows = count_rows(X)
        say(f"Wrote {n:,} draws for each of {rows:,} rows to {out}, with seed {seed}.")


def _levels(text: str) -> list[float]:
    """Quantile levels from a text such as ``.05,.5,.95``."""
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 <= level <= 1 for level in levels) or len(set(levels)) < len(levels):
        raise typer.BadParameter(
            f"{text!r} is not a list of different numbers from 0 to 1, such as .05,.5,.95",
            param_hint="--quantiles",
        )
    return levels


def predict(
    model: ModelFolder,
    table: NewTable,
    quantiles: Annotated[
        str, typer.Option("--quantiles", metavar="LEVELS", help="Levels from 0 to 1, with commas.")
    ] = ".05,.5,.95",
    out: OutFile = None,
    threads: Threads = None,
    cluster: Cluster = None,
    workers: ClusterWorkers = None,
    overwrite: Overwrite = False,
) -> None:
    """Give the mean and quantiles of the response for each row of a table.

    The output has the columns row (position in TABLE, from 0), mean, and one per
    level, such as q0.05. Between the levels .05 and .95 lie 90 % of the responses.

    Example:
        gentle predict model/ new.csv --quantiles .05,.5,.95
        gentle predict model/ new.csv --quantiles .1,.9 --out intervals.csv
    """
    import pandas as pd

    from gentle.streaming import count_rows, prediction

    levels, on_cluster = _levels(quantiles), writing_on(cluster, workers, out)
    fitted, X = _prepared(model, table, out, overwrite, threads)
    if on_cluster and out is not None:
        from gentle.cluster import predict_to_parquet

        done = predict_to_parquet(fitted, X, out, levels, overwrite=overwrite, **on_cluster)
        say(f"Wrote mean and {len(levels)} quantile(s) for each of {done:,} rows to {out}.")
        return
    with table_writer(out, overwrite) as append:
        for start, dist in _pieces(fitted, X, _ROWS_AT_ONCE, "Predicting", out is not None):
            append(pd.DataFrame(prediction(start, dist, levels)))
    if out is not None:
        rows = count_rows(X)
        say(f"Wrote mean and {len(levels)} quantile(s) for each of {rows:,} rows to {out}.")


def load_model(folder: Path, threads: int | None) -> Any:
    """A saved model, or the reason why there is none."""
    from gentle.models.persistence import load

    hint = "pass the folder that gentle fit wrote with --out"
    if not folder.exists():
        raise ValueError(f"there is no folder {str(folder)!r}; {hint}")
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is a file, not the folder of a model; {hint}")
    if not (folder / "model.json").exists():
        raise ValueError(f"the folder {str(folder)!r} holds no model; {hint}")
    use_threads(threads)
    return load(folder)


def _prepared(
    folder: Path, table: Path, out: Path | None, overwrite: bool, threads: int | None
) -> tuple[Any, pd.DataFrame | Path]:
    """The model, and the covariates, checked before the first answer is written.

    Of a long Parquet file only its columns are looked at.
    """
    if out is not None:
        check_free(out, overwrite)
    model = load_model(folder, threads)
    if table.is_file() and table_kind(table) == "parquet" and _is_long(table):
        return model, table
    X = model_columns(model, read_table(table), table)
    model.predict_dist(X)  # computes nothing yet, but names the bad row of the whole table
    return model, X


def _is_long(table: Path) -> bool:
    import pyarrow as pa

    from gentle.streaming import count_rows

    try:
        return (count_rows(table) or 0) > _ROWS_READ_WHOLE
    except (pa.ArrowException, OSError):  # reading it says what is the matter
        return False


def _pieces(
    model: Any, X: pd.DataFrame | Path, n_rows: int, label: str, show: bool
) -> Iterator[tuple[int, Any]]:
    """The distributions of a table, some rows at a time, each piece with its first row."""
    from gentle.streaming import answers, count_rows

    with progress(label, count_rows(X) or 0, show) as advance:
        for start, dist in answers(model, X, max(n_rows, 1)):
            yield start, dist
            advance(len(dist))
