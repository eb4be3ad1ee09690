"""What the optimal-transport regulariser buys: few responses, and LDW-CPS; with error bars.

    python benchmarks/regulariser.py              # goes on where it was stopped
    python benchmarks/regulariser.py --report     # only write regulariser.md

Each model is fitted with several strengths λ of its regulariser; the figure is its CRPS on held-out
rows over that with λ = 0, data and seed being the same. Few responses: 200 rows of three synthetic
problems and 500 of ECM, scored on 2,000 new rows. LDW-CPS: training rows are split four to one. No
test row is looked at. "average" is `GENTLE()` with ∫|T(x_i, u) - T(x_j, u)|² du along the spanning
tree; "network" is one monotone network fitted by CRPS with the paper's entropic term or with the
Sinkhorn divergence.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gentle import GENTLE, datasets
from gentle.workers import finished

FOLDER = Path(__file__).with_suffix("")
MODELS: dict[str, dict[str, Any]] = {
    "average, quantile": {},
    "network, entropic": {"regulariser": "entropic"},
    "network, sinkhorn": {"regulariser": "sinkhorn"},
}
STRENGTHS = (0.0, 0.01, 0.1, 1.0)
SEEDS = {"sine-laplace": 5, "varying-spread": 5, "two-branches": 5, "ecm": 5, "ldw-cps": 2}


def parts(problem: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """Rows to fit, and rows to score."""
    rng = np.random.default_rng(seed)
    if problem == "ldw-cps":
        train = datasets.load(problem).train
        new, seen = np.split(rng.permutation(len(train.y)), [len(train.y) // 5])
    elif problem == "ecm":
        train = datasets.load(problem).train
        seen, new = np.split(rng.permutation(len(train.y))[:2500], [500])
    else:
        train = datasets.load(problem, n_train=2200, random_state=seed).train
        seen, new = np.split(rng.permutation(len(train.y)), [200])
    y = np.asarray(train.y, float)
    return train.X.iloc[seen], y[seen], train.X.iloc[new], y[new]


def cell(problem: str, model: str, strength: float, seed: int) -> dict[str, Any]:
    """One fit with one thread."""
    torch.set_num_threads(1)
    X, y, X_new, y_new = parts(problem, seed)
    started = time.process_time()
    settings = MODELS[model] | {"reg_weight": strength, "random_state": seed, "verbose": 0}
    fitted = GENTLE(**settings).fit(X, y)
    seconds = time.process_time() - started
    crps = float(fitted.predict_dist(X_new).crps(y_new).mean())
    return {"crps": crps, "cpu_seconds": seconds, "date": date.today().isoformat()}


def name_of(problem: str, model: str, strength: float, seed: int) -> str:
    return f"{problem} {model} {strength:g} {seed}"


def report(records: dict[str, Any]) -> str:
    lines = ["# What the regulariser buys", "", *(__doc__ or "").split("\n\n")[-1].splitlines(), ""]
    lines += ["Means over seeds ± standard error; below 1 is better than no regulariser.", ""]
    lines += ["| data | seeds | model | " + " | ".join(f"λ = {s:g}" for s in STRENGTHS[1:]) + " |"]
    lines += ["|---" * (len(STRENGTHS) + 2) + "|"]
    for problem, n_seeds in SEEDS.items():
        for model in MODELS:
            texts, most = [], 0
            for strength in STRENGTHS[1:]:
                logs = [
                    np.log(one["crps"] / base["crps"])
                    for seed in range(n_seeds)
                    if (one := records.get(name_of(problem, model, strength, seed)))
                    and (base := records.get(name_of(problem, model, 0.0, seed)))
                ]
                most = max(most, len(logs))
                error = np.std(logs, ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.nan
                texts.append(f"{np.exp(np.mean(logs)):.3f} ± {error:.3f}" if logs else "")
            if most:
                lines.append(f"| {problem} | {most} | {model} | " + " | ".join(texts) + " |")
    dates = sorted({record["date"] for record in records.values()})
    lines += ["", f"`python benchmarks/regulariser.py`, {dates[0]} to {dates[-1]}, "]
    lines[-1] += f"{platform.machine()}, one thread per fit."
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / "records.json"
    records = json.loads(file.read_text()) if file.exists() else {}
    todo = [
        (problem, model, strength, seed)
        for problem, n_seeds in SEEDS.items()
        for seed in range(n_seeds)
        for model in MODELS
        for strength in STRENGTHS
        if name_of(problem, model, strength, seed) not in records
        and (problem != "ldw-cps" or model.startswith("average") or strength < 1)
    ]
    for what, found in finished(cell, [] if options.report else todo, options.workers):
        if isinstance(found, Exception):
            print(f"{what}: {found!r}", flush=True)
            continue
        records[name_of(*what)] = found
        file.write_text(json.dumps(records, indent=1) + "\n")
        print(f"{name_of(*what)}: CRPS {found['crps']:.5g}", flush=True)
    if records:
        FOLDER.with_suffix(".md").write_text(report(records))


if __name__ == "__main__":
    main()
