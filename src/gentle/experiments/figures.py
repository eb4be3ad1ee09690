"""The paper's figures, drawn from stored cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gentle import datasets, plots
from gentle.distribution import QuantileTable
from gentle.experiments.run import LEVELS, N_PANELS, Store
from gentle.experiments.spec import Experiment, Profile, cells


class Kept:
    """A model as the figures see it: what was stored of it at the covariates that are shown."""

    def __init__(self, curves: dict[str, Any]) -> None:
        self._curves = curves

    def sample(self, X: Any, n_samples: int, random_state: int) -> np.ndarray:
        """Draws at the stored covariates, which are those asked for."""
        values = np.sort(self._curves["quantiles"].astype(np.float64), axis=1)
        return QuantileTable(LEVELS, values).sample(n_samples, random_state)

    def transport_map(self, X: Any, u: Any) -> np.ndarray:
        """T(x, u) at the stored covariates and levels, which are those asked for."""
        return self._curves["map"].astype(np.float64)


def draw(experiment: Experiment, profile: Profile, store: Store, folder: Path) -> bool:
    """Draw a figure from the cells of seed 0; False if none of its methods has been run.

    Args:
        experiment: The figure.
        profile: The profile under which its cells were run.
        store: Where they are.
        folder: Where ``NAME.png`` and ``NAME.pdf`` go.
    """
    models: dict[str, dict[str, Kept]] = {name: {} for name in experiment.datasets}
    for cell in cells([experiment], profile, n_seeds=1):
        if store.has(cell):
            models[cell.dataset][cell.method] = Kept(store.curves(cell))
    if experiment.methods and not any(models.values()):
        return False
    data = [datasets.load(n, **profile.datasets.get(n, {})) for n in experiment.datasets]
    figure = _DRAWINGS[experiment.plot](data, [models[d.name] for d in data], profile)
    for suffix in ("png", "pdf"):
        figure.savefig(folder / f"{experiment.name}.{suffix}", dpi=150)
    plots.close(figure)
    return True


def _whole(benchmark: datasets.Benchmark) -> tuple[pd.DataFrame, np.ndarray]:
    parts = [benchmark.train, benchmark.val, benchmark.test]
    return pd.concat([part.X for part in parts]), np.concatenate([part.y for part in parts])


def _responses(data: list[datasets.Benchmark], models: Any, profile: Profile) -> Any:
    return plots.responses_histogram(_whole(data[0])[0]).figure


def _lipschitz(data: list[datasets.Benchmark], models: Any, profile: Profile) -> Any:
    # "more than 18 observations"
    return plots.lipschitz(*_whole(data[0]), unit=data[0].unit, min_responses=19).figure


def _densities(data: list[datasets.Benchmark], models: Any, profile: Profile) -> Any:
    test = data[0].test
    unit = f"{data[0].response}, in {data[0].unit}"
    options = {"unit": unit, "n_panels": N_PANELS, "n_samples": profile.draws}
    return plots.densities(models[0], test.X, test.y, **options).flat[0].figure


def _monotonicity(data: list[datasets.Benchmark], models: Any, profile: Profile) -> Any:
    axes = plots.row_of_axes(len(data))
    for axis, benchmark, fitted in zip(axes, data, models):
        for name, model in fitted.items():
            shown, _ = plots.often_seen(benchmark.test.X, benchmark.test.y, N_PANELS)
            unit = f"{benchmark.response}\n({benchmark.unit})"
            plots.transport_map(model, shown, u=LEVELS, unit=unit, axis=axis)
            axis.set_title(f"{name} on {benchmark.name}: {axis.get_title()}", fontsize=9)
    return axes[0].figure


_DRAWINGS = {
    "responses": _responses,
    "lipschitz": _lipschitz,
    "densities": _densities,
    "monotonicity": _monotonicity,
}
