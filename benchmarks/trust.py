"""Figures of trust: coverage after recalibration, false alarms, what checkpoints cost.

python benchmarks/trust.py
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator

from gentle import GENTLE, KNN, QRGMM, ConformalGenerator, Marginal, checkpoints
from gentle.diagnostics import OutOfSupportWarning, support

N_SETS = 400
COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(size=n),
}


def drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 1))
    return X, X[:, 0] + (0.5 + np.abs(X[:, 0])) * rng.normal(size=n)


def coverage_of_bad_models() -> None:
    print(f"\n90 % intervals of ConformalGenerator, {N_SETS} calibration sets, 100 new rows each")
    rng = np.random.default_rng(0)
    X, y = drawn(300, rng)
    models = {
        "KNN(5)": KNN(n_neighbors=5).fit(X, y),
        "KNN(50)": KNN(n_neighbors=50).fit(X, y),
        "Marginal": Marginal().fit(X, y),
        "QRGMM of halved responses": QRGMM(n_levels=9, verbose=0).fit(X, y / 2),
    }
    for n in (30, 199):
        for name, model in models.items():
            inside = []
            for seed in range(N_SETS):
                made = ConformalGenerator(FrozenEstimator(model), random_state=seed)
                low, high = made.fit(*drawn(n, rng)).predict_interval((new := drawn(100, rng))[0]).T
                inside.append(np.mean((low <= new[1]) & (new[1] <= high)))
            error = np.std(inside) / np.sqrt(N_SETS)
            print(f"  {n} rows, {name}: {np.mean(inside):.4f} ± {error:.4f}", flush=True)


def false_alarms(n_tables: int = 200, n_new: int = 1000) -> None:
    print("\nRows like the training data that are said to be far from it, three columns")
    for n in (60, 500):
        for name, column in COLUMNS.items():
            rng = np.random.default_rng(0)
            share = np.mean([_flagged(column, n, n_new, rng) for _ in range(n_tables)])
            print(f"  {n} training rows, {name}: {100 * share:.3f} %", flush=True)


def _flagged(column: Callable, n: int, n_new: int, rng: np.random.Generator) -> float:
    X, new = (np.column_stack([column(rng, m) for _ in range(3)]) for m in (n, n_new))
    model = Marginal().fit(X, rng.normal(size=n))
    return float(support(model, new)["far"].mean())


def cost_of_checkpoints() -> None:
    print("\nCheckpoints of the default GENTLE, written after every epoch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 5))
    y = X[:, 0] + X[:, 1] ** 2 + rng.normal(size=5000)
    seconds, written, write = {}, [], checkpoints.Checkpoint.write

    def timed(self: checkpoints.Checkpoint, state: object) -> None:
        started = time.perf_counter()
        write(self, state)
        written.append(time.perf_counter() - started)

    checkpoints.Checkpoint.write, checkpoints.EVERY = timed, 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for folder in (None, scratch):
            started = time.perf_counter()
            GENTLE(random_state=0, verbose=0).fit(X, y, checkpoint_dir=folder)
            seconds[folder] = time.perf_counter() - started
        size = max(file.stat().st_size for file in Path(scratch).glob("*.checkpoint"))
    print(f"  {size / 1e6:.1f} MB, {1000 * np.mean(written):.0f} ms each, {len(written)} of them")
    print(f"  fit without them {seconds[None]:.1f} s, with them {seconds[scratch]:.1f} s")


if __name__ == "__main__":
    warnings.simplefilter("ignore", OutOfSupportWarning)
    print(f"{platform.machine()}, one thread, Python {platform.python_version()}, {date.today()}")
    cost_of_checkpoints()
    false_alarms()
    coverage_of_bad_models()
