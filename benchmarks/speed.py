"""Speed beside that of others, never without accuracy: fit, draws, memory, size; time to accuracy.

    python benchmarks/speed.py            # all of it; goes on where it was stopped
    python benchmarks/speed.py sizes      # seconds, draws a second, MiB, CRPS at 10³-10⁶ rows
    python benchmarks/speed.py curves     # CRPS against fit seconds, LDW-CPS and ECM
    python benchmarks/speed.py answers    # draws and quantiles a second
    python benchmarks/speed.py report     # only write speed.md and speed.png

Every fit runs alone in a fresh process with two threads, within `LIMIT` seconds; the import of
libraries is not counted. The methods take turns, so that a slow moment of the machine hits them
alike. Data of `sizes`: the synthetic problem "varying-spread" with five more columns of noise, ten
in all. `curves` splits the training rows, four to one, and looks at no test row; the forest has the
best of twelve settings of leaves and features, by the CRPS of other rows of the first split.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from speed_report import (
    EPOCHS,
    FORESTS,
    HERE,
    ITERATIONS,
    LIMIT,
    SIZES,
    SPLITS,
    STEPS,
    THREADS,
    TREES,
    records_of,
    report,
)


def estimators() -> dict[str, Callable[[int], Any]]:
    """Every method as users meet it, by name; the argument is a seed."""
    import gentle

    threads = {"n_jobs": THREADS}
    return {
        "GENTLE": lambda seed: gentle.GENTLE(random_state=seed, verbose=0),
        "engression": lambda seed: gentle.Engression(n_epochs=200, random_state=seed, **threads),
        "quantile-forest": lambda seed: Forest(seed),
        "NGBoost": lambda seed: gentle.NGBoost(random_state=seed),
        "CatBoost": lambda seed: gentle.CatBoost(random_state=seed, **threads),
        "RealMLP": lambda seed: gentle.RealMLP(random_state=seed, **threads),
    }


LIBRARIES = {  # whose import is not counted, as each has to be imported once in a day
    "GENTLE": ("torch", "sklearn.ensemble"),
    "engression": ("engression",),
    "quantile-forest": ("quantile_forest",),
    "NGBoost": ("ngboost",),
    "CatBoost": ("catboost",),
    "RealMLP": ("pytabkit",),
}


class Forest:
    """The package quantile-forest, all responses of a leaf kept, 200 trees with leaves of 20."""

    def __init__(self, seed: int, **settings: Any) -> None:
        from quantile_forest import RandomForestQuantileRegressor

        given = {"n_estimators": 200, "min_samples_leaf": 20, "max_features": 0.5}
        given |= {"max_samples_leaf": None} | settings
        self.forest = RandomForestQuantileRegressor(**given, n_jobs=THREADS, random_state=seed)

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Forest:
        self.forest.fit(X.to_numpy(float), y)
        return self

    def predict_quantiles(self, X: pd.DataFrame, levels: np.ndarray) -> np.ndarray:
        return np.asarray(self.forest.predict(X.to_numpy(float), quantiles=list(levels)))

    def crps(self, X: pd.DataFrame, y: np.ndarray) -> np.ndarray:
        levels = (np.arange(200) + 0.5) / 200
        gap = y[:, None] - self.predict_quantiles(X, levels)
        return 2 * np.maximum(levels * gap, (levels - 1) * gap).mean(axis=1)

    def sample(self, X: pd.DataFrame, n_samples: int, random_state: int) -> np.ndarray:
        u = np.random.default_rng(random_state).random(n_samples)  # the same for all rows
        return self.predict_quantiles(X, np.sort(u))


def problem(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    from gentle import datasets

    data = datasets.load("varying-spread", n_train=n_rows, random_state=seed)
    X = data.train.X.copy()
    noise = np.random.default_rng(seed).normal(size=(len(X), 5))
    for column in range(5):
        X[f"noise{column}"] = noise[:, column]
    return X, data.train.y


def crps_of(model: Any, X: pd.DataFrame, y: np.ndarray) -> float:
    scores = model.crps(X, y) if isinstance(model, Forest) else model.predict_dist(X).crps(y)
    return float(scores.mean())


def size_on_disk(model: Any) -> float:
    """MiB of what has to be kept: our folder where there is one, else the smallest pickle."""
    import joblib

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        try:
            model.save(folder)
        except Exception:  # what has no folder format is pickled
            folder.mkdir(exist_ok=True)
            try:
                joblib.dump(model, folder / "model.joblib")
            except Exception:  # nor can it be pickled
                return float("nan")
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def peak_mib() -> float:
    """Of this process alone: what ``getrusage`` tells starts with the parent's."""
    import resource

    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def size_cell(method: str, n_rows: int, seed: int) -> dict[str, Any]:
    X, y = problem(n_rows, seed)
    X_test, y_test = problem(5_000, 10_000 + seed)
    for library in LIBRARIES[method]:
        import_module(library)
    started = time.perf_counter()
    model = estimators()[method](seed).fit(X, y)
    seconds = time.perf_counter() - started
    peak = peak_mib()
    some, draws = X_test.iloc[:1000], 1_000
    model.sample(some.iloc[:10], 10, random_state=0)
    started = time.perf_counter()
    model.sample(some, draws, random_state=0)
    rate = len(some) * draws / (time.perf_counter() - started)
    crps = crps_of(model, X_test, y_test)  # first, for an attempt to save may leave a model broken
    return {
        "fit_seconds": seconds, "peak_mib": peak, "draws_per_second": rate,
        "size_mib": size_on_disk(model), "crps": crps,
    }  # fmt: skip


def split_of(dataset: str, split: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]:
    from gentle import datasets

    train = datasets.load(dataset).train
    rows = np.random.default_rng(split).permutation(len(train.y))
    held_out, seen = np.split(rows, [len(rows) // 5])
    X, y = train.X, np.asarray(train.y, float)
    return X.iloc[seen], y[seen], X.iloc[held_out], y[held_out]


def forest_cell(dataset: str) -> dict[str, Any]:
    """The best of twelve settings, of 50 trees each."""
    X, y, _, _ = split_of(dataset, 0)
    n = len(y) // 5
    found = []
    for leaf in (5, 10, 20, 40):
        for features in (0.33, 0.5, 1.0):
            settings = {"min_samples_leaf": leaf, "max_features": features}
            forest = Forest(0, n_estimators=50, **settings).fit(X.iloc[n:], y[n:])
            found.append((float(forest.crps(X.iloc[:n][:2000], y[:n][:2000]).mean()), settings))
    return min(found, key=lambda pair: pair[0])[1]


def curve_cell(dataset: str, method: str, budget: int, split: int) -> dict[str, Any]:
    import gentle

    for library in LIBRARIES[method]:
        import_module(library)
    forest = records_of("curves.json").get(f"{dataset} forest", {})
    models = {
        "GENTLE": lambda: gentle.GENTLE(n_steps=budget, random_state=0, verbose=0),
        "engression": lambda: gentle.Engression(n_epochs=budget, n_jobs=THREADS, random_state=0),
        "quantile-forest": lambda: Forest(0, n_estimators=budget, **forest),
        "CatBoost": lambda: gentle.CatBoost(n_estimators=budget, n_jobs=THREADS, random_state=0),
    }
    X, y, X_new, y_new = split_of(dataset, split)
    model = models[method]()
    started = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - started
    return {"fit_seconds": seconds, "crps": crps_of(model, X_new, y_new)}


def answers() -> dict[str, Any]:
    """Draws and quantiles a second of the default GENTLE, beside a bare generator and a forest."""
    import gentle
    from gentle import datasets

    found: dict[str, Any] = {}
    for name in ("ldw-cps", "ecm"):
        data = datasets.load(name)
        model = gentle.GENTLE(random_state=0, verbose=0).fit(data.train.X, data.train.y)
        model.sample(data.train.X.iloc[:10], 10, random_state=0)
        found[f"{name} draws"] = [drawn(model, data.train.X, seed) for seed in range(5)]
        average = copy.copy(model)
        average.ensemble_ = replace(model.ensemble_, pupil=None)  # what compact=False gives
        different = all_different(tiled(data.train.X))
        for label, (settings, share) in FORESTS.items():
            forest = Forest(0, **settings).fit(data.train.X, data.train.y)
            for who, one in (("GENTLE", model), ("its average", average)):
                for rows, X in {"again": tiled(data.train.X), "different": different}.items():
                    pairs = [answered(one, forest, X, share) for _ in range(3)]
                    found[f"{name}, {rows}, {who}, {label}"] = pairs
    return found


def drawn(model: Any, X: pd.DataFrame, seed: int) -> tuple[float, float]:
    """Draws a second for 1,000 covariates × 10,000, and the share of it of a bare generator."""
    rng = np.random.default_rng(seed)
    bare = _seconds(lambda: rng.random((1000, 10_000)))
    ours = _seconds(lambda: model.sample(X.iloc[:1000], 10_000, random_state=seed))
    return 1e7 / ours, bare / ours


def answered(model: Any, forest: Forest, X: pd.DataFrame, share: float) -> tuple[float, float]:
    """Seconds of both for 100,000 rows × 100 levels, the forest's by a share of the rows."""
    levels = np.linspace(0.005, 0.995, 100)
    ours = _seconds(lambda: model.predict_quantiles(X, levels))
    some = X.iloc[: round(share * len(X))]
    return ours, _seconds(lambda: forest.predict_quantiles(some, levels)) / share


def tiled(X: pd.DataFrame) -> pd.DataFrame:
    """100,000 rows: those of the training again and again."""
    return X.iloc[np.arange(100_000) % len(X)]


def all_different(X: pd.DataFrame) -> pd.DataFrame:
    """The same rows, told apart by a millionth of a spread in the column of most values."""
    column = X.nunique().idxmax()
    step = 1e-6 * float(X[column].std()) / len(X)
    return X.assign(**{column: X[column].to_numpy(float) + step * np.arange(len(X))})


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_a_process(kind: str, *arguments: Any) -> dict[str, Any]:
    """A cell of work in a fresh process, or what kept it from an answer."""
    command = [sys.executable, __file__, "cell", kind, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT + 60
        )
    except subprocess.TimeoutExpired:
        return {"error": f"over {LIMIT} s"}
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "died"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def recorded(file: str, key: str, work: Callable[[], Any]) -> Any:
    """A result from the records, or new ones at once written there."""
    path = HERE / file
    records = json.loads(path.read_text()) if path.exists() else {}
    if key not in records:
        records[key] = work()
        if "fit_seconds" in records[key] or file == "answers.json":
            stamped = records if file == "answers.json" else records[key]
            stamped["date"] = date.today().isoformat()
        HERE.mkdir(exist_ok=True)
        path.write_text(json.dumps(records, indent=1) + "\n")
        print(f"{date.today()} {key}: {json.dumps(records[key])[:200]}", flush=True)
    return records[key]


def sizes() -> None:
    for n_rows, repeats in SIZES.items():
        for repeat in range(repeats):
            for method in estimators():
                smaller = [
                    recorded("sizes.json", f"{method} {n} 0", dict) for n in SIZES if n < n_rows
                ]
                first = {} if repeat == 0 else recorded("sizes.json", f"{method} {n_rows} 0", dict)
                if "error" in first:  # nor would it end this time
                    recorded("sizes.json", f"{method} {n_rows} {repeat}", lambda f=first: f)
                    continue
                failed = any("error" in cell for cell in smaller)
                if failed or (method != "GENTLE" and _too_slow(smaller, n_rows)):
                    said = {"error": f"over {LIMIT} s, by its growth"}
                    recorded("sizes.json", f"{method} {n_rows} {repeat}", lambda s=said: s)
                    continue
                recorded(
                    "sizes.json",
                    f"{method} {n_rows} {repeat}",
                    lambda m=method, n=n_rows, r=repeat: in_a_process("size", m, n, r),
                )


def _too_slow(smaller: list[dict[str, Any]], n_rows: int) -> bool:
    """Whether seconds pass the limit that grow as they did before, or in proportion to the rows."""
    if not smaller or n_rows <= 10_000:
        return False
    before, last = (cell["fit_seconds"] for cell in smaller[-2:])
    return min(10.0, last / before) * last > LIMIT


def curves() -> None:
    budgets = {
        "GENTLE": STEPS, "engression": EPOCHS, "quantile-forest": TREES, "CatBoost": ITERATIONS,
    }  # fmt: skip
    for dataset in ("ldw-cps", "ecm"):
        recorded("curves.json", f"{dataset} forest", lambda d=dataset: in_a_process("forest", d))
        for split in range(SPLITS):
            for place in range(max(map(len, budgets.values()))):
                for method, all_budgets in budgets.items():
                    for budget in all_budgets[place : place + 1]:
                        cell = ("curve", dataset, method, budget, split)
                        key = f"{dataset} {method} {budget} {split}"
                        recorded("curves.json", key, lambda c=cell: in_a_process(*c))


def main() -> None:
    wanted = sys.argv[1:] or ["sizes", "curves", "answers", "report"]
    warnings.simplefilter("ignore")
    if wanted[0] == "cell":
        kind, *arguments = wanted[1:]
        work = {"size": size_cell, "curve": curve_cell, "forest": forest_cell}[kind]
        print(json.dumps(work(*(int(a) if a.isdigit() else a for a in arguments))))
        return
    for what in wanted:
        if what == "answers":
            recorded("answers.json", "all", answers)
        else:
            {"sizes": sizes, "curves": curves, "report": report}[what]()
    if "report" not in wanted:
        report()


if __name__ == "__main__":
    main()
