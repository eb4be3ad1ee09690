"""Speed and memory of what is not training: one line per claim, one thread.

python benchmarks/parts.py
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import platform
import resource
import subprocess
import sys
import time

import numpy as np


def timed(label: str, work, unit: str = "s", amount: float | None = None) -> None:
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    rate = "" if amount is None else f", {amount / seconds:,.0f} {unit} a second"
    print(f"{label}: {seconds:.2f} s{rate}", flush=True)


def import_time() -> None:
    code = (
        "import time, numpy; begin = time.perf_counter(); import gentle; "
        "print(f'import gentle, beyond numpy: {time.perf_counter() - begin:.3f} s')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, one thread, Python {sys.version.split()[0]}"
    )
    import_time()

    from gentle import datasets, metrics
    from gentle.graph import spanning_tree

    patients = datasets.draw_covariates(1_000_000, random_state=0)
    for control in (True, False):
        timed(
            f"simulate_ecm, 1,000,000 patients, control_variate={control}",
            lambda c=control: datasets.simulate_ecm(patients, control_variate=c, random_state=0),
            "patients",
            1_000_000,
        )

    X = datasets.load("ldw-cps").train.X.drop_duplicates().to_numpy(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed(f"spanning tree of {X.shape[0]:,} × {X.shape[1]} covariates", lambda: spanning_tree(X))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"    peak memory grew by {grown:.0f} MB")

    ecm = datasets.load("ecm")
    from gentle import KNN

    model = KNN(n_neighbors=30).fit(*ecm.train)
    timed(
        "metrics.evaluate, 200 covariates × 10,000 responses × 10,000 draws (30-NN)",
        lambda: metrics.evaluate(model, *ecm.test),
    )
    rng = np.random.default_rng(0)
    rows = ecm.train.X.iloc[rng.integers(0, len(ecm.train), 100_000)]
    draws = 100
    timed(
        "KNN.sample, 100,000 rows × 100 draws",
        lambda: model.sample(rows, draws, random_state=0),
        "draws",
        len(rows) * draws,
    )


if __name__ == "__main__":
    main()
