"""Seconds to fit `GENTLE()` and engression with 200 epochs, on the paper's data, in one run.

Both get the training rows and two threads; the order changes from data set to data set. Accuracy is
that on validation covariates, so that no speed is praised without it.

    python benchmarks/fit_time.py
    python benchmarks/fit_time.py small    # GENTLE() alone on tables of 100 to 2,000 rows
"""

from __future__ import annotations

import platform
import sys
import time
from datetime import date

import numpy as np
import torch

from gentle import GENTLE, Engression, datasets
from gentle.columns import taken

THREADS = 2
MODELS = {
    "GENTLE()": lambda: GENTLE(random_state=0, verbose=0),
    "engression, 200 epochs": lambda: Engression(n_epochs=200, n_jobs=THREADS, random_state=0),
}


def small() -> None:
    """The tables of study.py and boosting.py, at most 2,000 rows each."""
    import boosting
    import study

    print("| table | rows | columns | fit, s |\n|---|---|---|---|")
    for name in [*study.TABLES, "gapminder", *boosting.TABLES, *boosting.FORMULAS]:
        if name in datasets.TABLES:
            X, y = datasets.load(name, n_train=study.N_TRAIN, random_state=0).train
        else:
            X, y, *_ = boosting.parts(name, 0)
        started = time.perf_counter()
        GENTLE(random_state=0, verbose=0).fit(X, y)
        seconds = time.perf_counter() - started
        print(f"| {name} | {len(y)} | {X.shape[1]} | {seconds:.1f} |", flush=True)


def main() -> None:
    torch.set_num_threads(THREADS)
    print(f"{platform.machine()}, {THREADS} threads, {date.today()}\n")
    if sys.argv[1:] == ["small"]:
        small()
        return
    print("| data | model | fit, s | CRPS, validation |\n|---|---|---|---|")
    for turn, name in enumerate(("ldw-cps", "ecm")):
        data = datasets.load(name)
        rows = np.random.default_rng(0).permutation(len(data.val.y))[:2000]
        X, y = taken(data.val.X, rows), np.asarray(data.val.y, float)[rows]
        for label in list(MODELS)[:: 1 - 2 * turn]:
            started = time.perf_counter()
            model = MODELS[label]().fit(data.train.X, data.train.y)
            seconds = time.perf_counter() - started
            crps = float(model.predict_dist(X).crps(y).mean())
            print(f"| {name} | {label} | {seconds:.1f} | {crps:.4g} |", flush=True)


if __name__ == "__main__":
    main()
