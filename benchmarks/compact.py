"""What is lost where GENTLE() answers with one network in place of its average.

Each fit of more than 5,000 rows teaches a network, whatever it is worth; it would answer if its
excess is at most 0.2 %: by so much its CRPS is larger, were the average right. Beside that stands
what the network really scores, relative to the average: on ECM and synthetic problems the
Wasserstein distance W1 to the law, on the other tables the CRPS of validation rows. No test part is
touched. Fits are stored at once in ``compact/``, and a later run does what is missing.

Example:
    python benchmarks/compact.py --workers 2
    python benchmarks/compact.py --report
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from large_tables import LEVELS, known_law
from study import patched, run_missing

from gentle import GENTLE, datasets
from gentle.datasets import PROBLEMS
from gentle.models import distillation

FOLDER = Path(__file__).with_suffix("")
TABLES = ["happiness", "401ksubs", "credit-cards", "elections", "scorecard", "diamonds"]
DATA = ["ldw-cps", *TABLES, "ecm", *PROBLEMS]
SPLIT, MAX_ROWS = 7, 20_000
ENOUGH = distillation._AS_GOOD


def fit_and_score(problem: str, seed: int) -> dict[str, Any]:
    """One fit with one thread, its network and its average."""
    torch.set_num_threads(1)
    has_law = problem == "ecm" or problem in PROBLEMS
    if has_law:
        train, X, true = known_law(problem, seed)
    else:
        split = {} if problem == "ldw-cps" else {"n_train": None, "random_state": SPLIT + seed}
        data = datasets.load(problem, **split)
        train, (X, true) = data.train, data.val
    rows = np.random.default_rng(seed).permutation(len(train.y))[:MAX_ROWS]
    X_train, y = train.X.iloc[rows], np.asarray(train.y, float)[rows]
    with patched({(distillation, "_AS_GOOD"): np.inf}):
        pupil = GENTLE(random_state=seed, verbose=0).fit(X_train, y)
    average = copy.copy(pupil)
    average.ensemble_ = replace(pupil.ensemble_, pupil=None)

    def score(model: GENTLE) -> np.ndarray:
        if has_law:
            return np.abs(model.predict_quantiles(X, LEVELS) - true).mean(axis=1)
        return model.predict_dist(X).crps(np.asarray(true, float))

    ours, theirs, ensemble = score(pupil), score(average), pupil.ensemble_
    error = (ours - theirs).std() / len(ours) ** 0.5
    return {
        "problem": problem,
        "seed": seed,
        "n_rows": len(y),
        "excess": ensemble.pupil.excess,
        "trees": float(ensemble.weights[-1]),
        "boosted": ensemble.boosting is not None,
        "average": float(theirs.mean()),
        "ratio": float(ours.mean() / theirs.mean()),
        "error": float(error / theirs.mean()),
        "date": date.today().isoformat(),
    }


def path(cell: tuple[str, int]) -> Path:
    """Where a fit is stored."""
    return FOLDER / f"{cell[0]}_{cell[1]}.json"


def report() -> str:
    """All that is stored, as Markdown."""
    records = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    records.sort(key=lambda record: record["excess"])
    lines = [
        "# One network in place of the average",
        "",
        "Excess: by how much its CRPS would be larger, were the average right. Score: W1 to the "
        "law (ECM, synthetic problems) or CRPS of validation rows; the network's over the "
        "average's, with the standard error over rows.",
        "",
        "| data | rows | trees in the average | boosted | excess | answers | average | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        answers, boosted = record["excess"] <= ENOUGH, record["boosted"]
        lines.append(
            f"| {record['problem']} | {record['n_rows']:,} | {record['trees']:.0%} "
            f"| {'yes' if boosted else 'no'} | {record['excess']:.3%} "
            f"| {'yes' if answers else 'no'} | {record['average']:.4g} "
            f"| {record['ratio']:.4f} ± {record['error']:.4f} |"
        )
    kept = [record["ratio"] for record in records if record["excess"] <= ENOUGH]
    days = sorted({record["date"] for record in records})
    lines += [
        "",
        f"Geometric mean of the ratios where the network answers: {np.exp(np.log(kept).mean()):.4f}"
        f" ({min(kept):.3f} to {max(kept):.3f}). Computed {days[0]} to {days[-1]}, "
        f"{platform.machine()}, one thread a fit: `python benchmarks/compact.py`.",
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
        cells = [(problem, seed) for seed in range(options.seeds) for problem in DATA]
        run_missing(cells, fit_and_score, path, options.workers, "ratio")
    FOLDER.with_suffix(".md").write_text(report())


if __name__ == "__main__":
    main()
