"""What GENTLE() does otherwise with more than 5,000 rows, and what each of these things is worth.

Every variant goes back on one of them. Scored by the Wasserstein distance W1 to the law: on ECM's
validation covariates to 10,000 responses each, on synthetic problems (10,000 rows, draws that no
other benchmark uses) to the exact law. No test part is touched. Fits are stored at once in
``large_tables/``, and a later run does what is missing.

Example:
    python benchmarks/large_tables.py --workers 2
    python benchmarks/large_tables.py --report
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
import pandas as pd
import torch
from study import patched, run_missing

from gentle import GENTLE, datasets
from gentle.datasets import PROBLEMS, Table
from gentle.models import averaging, exam, learning, school

FOLDER = Path(__file__).with_suffix("")
DATA = ["ecm", "varying-spread", "two-branches"]
N_TRAIN, FIRST_SEED = 10_000, 2_000
LEVELS = (np.arange(1000) + 0.5) / 1000

EACH_BY_ITSELF = {(exam.Exam, "of_kinds"): lambda self, scores: scores}
BEST_MOMENT = {(school, "_TOLERANCE"): -1e9}
SAME_START = {(school, "_CALM"): 1.0}
ANY_WIDENING = {(averaging, "_WORTH"): 1.0}
FOUR_PARTS = {(learning, "_n_folds"): lambda n: 4}
NONE_SLIDES, ALL_SLIDE = ({(school, "_CLEARLY"): bar} for bar in (1e9, -1e9))
SMALL = {"hidden_widths": (128, 128)}
VARIANTS: dict[str, tuple[dict[str, Any], dict]] = {
    "GENTLE()": ({}, {}),
    "layers of 128 and 128 units": (SMALL, {}),
    "values seen from a start like the others'": ({}, SAME_START),
    "no network slides": ({}, NONE_SLIDES),
    "all networks that see values slide": ({}, ALL_SLIDE),
    "each network keeps its own best moment": ({}, EACH_BY_ITSELF),
    "the best moment, however little it is ahead of the cycle's end": ({}, BEST_MOMENT),
    "any widening that is ahead": ({}, ANY_WIDENING),
    "all of these, and four parts in place of three": (
        SMALL,
        SAME_START | NONE_SLIDES | EACH_BY_ITSELF | BEST_MOMENT | ANY_WIDENING | FOUR_PARTS,
    ),
}


def known_law(problem: str, seed: int) -> tuple[Table, pd.DataFrame, np.ndarray]:
    """Training rows, other covariates, and the law's quantiles there at the levels."""
    if problem == "ecm":
        data = datasets.load(problem)
        X, group = np.unique(data.val.X.to_numpy(float), axis=0, return_inverse=True)
        X = data.val.X.iloc[[int(np.flatnonzero(group == g)[0]) for g in range(len(X))]]
        y = [np.asarray(data.val.y, float)[group.ravel() == g] for g in range(len(X))]
        return data.train, X, np.stack([np.quantile(own, LEVELS) for own in y])
    data = datasets.load(problem, n_train=N_TRAIN, random_state=FIRST_SEED + seed)
    return data.train, data.val.X, PROBLEMS[problem].quantile(data.val.X, LEVELS)


def fit_and_score(variant: str, problem: str, seed: int) -> dict[str, Any]:
    """One fit with one thread."""
    torch.set_num_threads(1)
    train, X, true = known_law(problem, seed)
    settings, patches = VARIANTS[variant]
    with patched(patches):
        started = time.process_time()
        model = GENTLE(**settings, random_state=seed, verbose=0).fit(*train)
        seconds = time.process_time() - started
    w1 = np.abs(model.predict_quantiles(X, LEVELS) - true).mean()
    return {
        "variant": variant,
        "problem": problem,
        "seed": seed,
        "w1": float(w1),
        "cpu_seconds": seconds,
        "date": date.today().isoformat(),
    }


def path(cell: tuple[str, str, int]) -> Path:
    """Where a fit is stored."""
    variant, problem, seed = cell
    return FOLDER / f"{problem}_{list(VARIANTS).index(variant)}_{seed}.json"


def report() -> str:
    """All that is stored, as Markdown."""
    records = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    found: dict[tuple[str, str], dict[int, dict]] = {}
    for record in records:
        found.setdefault((record["variant"], record["problem"]), {})[record["seed"]] = record
    lines = [
        "# What large tables have of their own",
        "",
        "W1 to the law relative to `GENTLE()` with the same seeds (geometric mean over seeds): "
        "above 1 is worse. The first row has W1 itself.",
        "",
        "| variant | " + " | ".join(DATA) + " | all | CPU s |",
        "|---|" + "---|" * (len(DATA) + 2),
    ]
    base = {problem: found.get(("GENTLE()", problem), {}) for problem in DATA}
    for variant in [one for one in VARIANTS if any((one, data) in found for data in DATA)]:
        cells, logs, seconds = [], [], []
        for problem in DATA:
            own = found.get((variant, problem), {})
            seeds = [seed for seed in own if seed in base[problem]]
            seconds += [own[seed]["cpu_seconds"] for seed in seeds]
            ratios = [np.log(own[s]["w1"] / base[problem][s]["w1"]) for s in seeds]
            if variant == "GENTLE()":
                cells.append(f"{np.mean([own[s]['w1'] for s in seeds]):.4f}" if seeds else "")
            else:
                cells.append(f"{np.exp(np.mean(ratios)):.3f}" if seeds else "")
            logs += [np.mean(ratios)] if seeds else []
        error = np.std(logs, ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.nan
        mean = f"{np.exp(np.mean(logs)):.3f} ± {error:.3f}" if logs else ""
        lines.append(f"| {variant} | {' | '.join(cells)} | {mean} | {np.mean(seconds):.0f} |")
    days = sorted({record["date"] for record in records})
    seeds = sorted({record["seed"] for record in records})
    lines += [
        "",
        f"Seeds {', '.join(map(str, seeds))}; a synthetic problem's seed is another draw of its "
        f"{N_TRAIN:,} rows. ± is the standard error over problems. Computed {days[0]} to "
        f"{days[-1]}, {platform.machine()}, one thread a fit: `python benchmarks/large_tables.py`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, then write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="draws and seeds per problem")
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if not options.report:
        cells = [(v, p, s) for s in range(options.seeds) for p in DATA for v in VARIANTS]
        run_missing(cells, fit_and_score, path, options.workers, "w1")
    FOLDER.with_suffix(".md").write_text(report())


if __name__ == "__main__":
    main()
