"""GENTLE, never tuned, against rivals on the nine problems whose law is known exactly.

    python benchmarks/synthetic.py                     # everything; goes on where it was stopped
    python benchmarks/synthetic.py --problems two-branches --methods GENTLE,RealMLP
    python benchmarks/synthetic.py --report            # only write the report of what is there

10,000 training and 2,000 validation rows; a split is another draw of all rows. Rivals whose trials
take seconds are tuned by the CRPS of the validation responses, as one would without knowing the
truth. Scored against the truth at 2,000 fresh covariates: the Wasserstein distance W1, quantiles
far out, and the CVaR.

With --validation all rows are other draws (seeds 1000, 1001, ...): use it to choose defaults.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pandas as pd
from harness import GENTLE, geometric_mean, markdown

from gentle.datasets import PROBLEMS, Table, load

FAR = (0.001, 0.01, 0.99, 0.999)
TAIL = 0.99
_STEPS = 100  # per piece
_SCORES = {
    "w1": "W1",
    **{f"quantile_{level}": f"q {level}" for level in FAR},
    "cvar": f"CVaR {TAIL}",
}


class Synthetic(harness.Benchmark):
    folder = Path(__file__).with_suffix("")
    datasets = tuple(PROBLEMS)
    methods = (GENTLE, *harness.RIVALS)
    splits = "0-2"
    unit = "problems"
    untuned = ("BoostedQuantiles", "RealMLP", "Engression", "NGBoost")  # a trial may take minutes

    def options(self, max_rows: int | None, validation: bool) -> dict[str, Any]:
        return {"n_train": max_rows or 10_000, "first_seed": 1_000 if validation else 0}

    def parts(self, dataset: str, split: int, options: Mapping[str, Any]) -> harness.Parts:
        n_train, seed = options["n_train"], options["first_seed"] + split
        data = load(dataset, n_train=n_train, n_val=max(2, n_train // 5), random_state=seed)
        return data.train, data.val, data.test

    def measured(self, model: Any, dataset: str, test: Table, split: int) -> tuple[dict, dict]:
        levels, weights = fine_levels()
        asked = np.concatenate([levels, FAR])
        started = time.perf_counter()
        found = model.predict_quantiles(test.X, asked)  # (n, m)
        seconds = time.perf_counter() - started
        true = PROBLEMS[dataset].quantile(test.X, asked)
        distance = np.abs(found - true)
        if not np.isfinite(distance).all():
            raise FloatingPointError("its quantiles are not finite")
        tail = np.where(levels > TAIL, weights, 0.0) / (1 - TAIL)
        cvar = np.abs((found - true)[:, : len(levels)] @ tail)  # (n,)
        spread = np.diff(PROBLEMS[dataset].quantile(test.X, [0.1, 0.9])).mean()
        w1 = distance[:, : len(levels)] @ weights  # (n,)
        far = distance[:, len(levels) :].mean(axis=0)
        scores = [w1.mean(), *far, cvar.mean()]
        return {
            **{name: float(score / spread) for name, score in zip(_SCORES, scores)},
            "spread": float(spread),
            "answer_seconds": round(seconds, 3),
        }, {"w1": w1, "cvar": cvar}

    def report(self, plan: harness.Plan) -> str:
        return report(plan)


def fine_levels() -> tuple[Any, Any]:
    """Levels and weights of a midpoint rule on (0, 1), finer towards both ends; 0.99 is an edge."""
    half = [0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5]
    edges = np.array([*half, *(1 - edge for edge in half[-2::-1])])
    width = np.repeat(np.diff(edges) / _STEPS, _STEPS)
    return np.cumsum(width) - width / 2, width


def report(plan: harness.Plan) -> str:
    found = {
        (problem, method): plan.stored(problem, method)
        for problem in plan.datasets
        for method in plan.methods
    }
    records = pd.DataFrame(
        {"problem": problem, "method": method, "split": split, "fit_seconds": facts["fit_seconds"]}
        | {name: facts[name] for name in (*_SCORES, "spread", "answer_seconds")}
        for (problem, method), cells in found.items()
        for split, (facts, _) in cells.items()
    )
    lines = harness.heading(plan, "Synthetic problems, against the exact law")
    if not len(records):
        return "\n\n".join(lines) + "\n"
    plan.folder.mkdir(parents=True, exist_ok=True)
    records.to_csv(plan.folder / "cells.csv", index=False, float_format="%.6g")
    lines.append(
        f"Trained on {plan.options['n_train']:,} rows, averaged over the splits "
        f"{', '.join(map(str, plan.splits))}; a method that has fewer of them on a problem stands "
        f"in the summary only, beside {GENTLE} on the same. Every figure is a mean over test "
        "covariates of the distance from the exact conditional law, in units of the problem's mean "
        f"distance between the true quantiles 0.1 and 0.9. {GENTLE} is `{GENTLE}()` as it comes; "
        f"rivals have the best of {plan.n_trials} settings by validation CRPS, but for "
        f"{', '.join(plan.benchmark.untuned)}, which take longest and are taken as they come "
        "(their defaults were chosen on other data). W1 is the integral of the distance of the "
        "quantile functions, the CVaR the mean beyond the quantile, both by a midpoint rule that "
        "is finer towards the ends."
    )
    lines += ["## Summary", _summary(records, plan)]
    means = _complete(records, plan)
    for name, label in _SCORES.items():
        lines += [f"## {label}", _table(means[name].unstack(), plan)]
    return "\n\n".join(lines) + "\n"


def _complete(records: pd.DataFrame, plan: harness.Plan) -> Any:
    """Means over splits, of the problems and methods that have them all."""
    cells = records.groupby(["problem", "method"])
    return cells[[*_SCORES]].mean()[cells.size() == len(plan.splits)]


def _summary(records: pd.DataFrame, plan: harness.Plan) -> str:
    rows = []
    ours = records[records["method"] == GENTLE].set_index(["problem", "split"])
    best = _complete(records, plan)["w1"].unstack().idxmin(axis=1)
    for method in plan.methods:
        own = records[records["method"] == method].set_index(["problem", "split"])
        if own.empty:
            continue
        row: dict[str, Any] = {
            "method": method,
            "best W1 on": int((best == method).sum()),
            "problems": own.index.get_level_values("problem").nunique(),
            "fits": len(own),
            "fit, s": f"{own['fit_seconds'].median():.3g}",
        }
        for name, label in _SCORES.items() if method != GENTLE else ():
            both = ours[[name]].join(own[[name]], rsuffix=" its", how="inner")
            means = both.groupby("problem").mean()
            ratio = geometric_mean(means[name] / means[f"{name} its"])
            row[f"{label}, {GENTLE} / it"] = f"{ratio:.3f}"
        rows.append(row)
    note = f"Geometric means over problems; below 1 {GENTLE} is closer to the truth."
    return f"{markdown(rows)}\n\n{note}"


def _table(scores: pd.DataFrame, plan: harness.Plan) -> str:
    rows = []
    for problem in (p for p in plan.datasets if p in scores.index):
        line = scores.loc[problem].reindex([m for m in plan.methods if m in scores])
        texts = {m: "" if math.isnan(value) else f"{value:.4f}" for m, value in line.items()}
        best = line.idxmin()
        rows.append({"problem": problem, **texts, best: f"**{texts[best]}**"})
    return markdown(rows)


if __name__ == "__main__":
    harness.main(Synthetic(), __doc__)
