"""What ``--cluster`` makes of the commands that have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from gentle.cli.tables import table_kind


def fit_on(cluster: str | None, workers: int | None, estimator: Any) -> Callable[..., Any]:
    """The model's own fit, or that on a cluster."""
    options = _chosen(cluster, workers)
    if not options:
        return estimator.fit
    from gentle.cluster import fit

    return partial(fit, estimator, **options)


def searches_on(cluster: str | None) -> tuple[Any, dict[str, Any]]:
    """The module that has the searches, and what to tell them beside the number of workers."""
    if cluster is None:
        from gentle import tuning

        return tuning, {}
    from gentle import cluster as on_cluster

    return on_cluster, {"cluster": cluster}


def writing_on(cluster: str | None, workers: int | None, out: Path | None) -> dict[str, Any]:
    """Which cluster is to write answers; empty without one."""
    options = _chosen(cluster, workers)
    if options and (out is None or table_kind(out) != "parquet"):
        raise typer.BadParameter(
            "it writes Parquet: add --out FILE.parquet", param_hint="--cluster"
        )
    return options


def _chosen(cluster: str | None, workers: int | None) -> dict[str, Any]:
    from gentle.workers import n_cores

    if cluster is None:
        if workers is not None:
            raise typer.BadParameter("only a --cluster has workers", param_hint="--workers")
        return {}
    return {"cluster": cluster, "n_workers": n_cores() if workers is None else workers}
