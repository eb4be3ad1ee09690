"""GENTLE, never tuned, against tuned rivals on the tables from the world.

    python benchmarks/tables.py                        # everything; goes on where it was stopped
    python benchmarks/tables.py --validation --tables wage1,diamonds --methods GENTLE,CatBoost
    python benchmarks/tables.py --redo GENTLE          # after a change of the model
    python benchmarks/tables.py --report               # only write the report of what is there

Five splits (60 % train, 20 % validation, 20 % test rows, equal covariates together). Every method
gets fit(train, eval_set=validation). A rival's settings are those of the best of some trials, by
the CRPS of split 0's validation rows, and serve for all splits.

With --validation no test row is looked at: 80 % of the training rows are fitted, the other 20 % are
the validation rows, and the validation rows are scored. Design choices rest on that alone.
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
from harness import GENTLE, geometric_mean, markdown, number

from gentle.datasets import TABLES, Table, load
from gentle.datasets.tables import split_rows
from gentle.streams import uniforms

COVERAGES = (50, 80, 90)


class Tables(harness.Benchmark):
    folder = Path(__file__).with_suffix("")
    datasets = tuple(TABLES)
    methods = (GENTLE, *harness.RIVALS)
    splits = "0-4"
    unit = "tables"

    def options(self, max_rows: int | None, validation: bool) -> dict[str, Any]:
        return {"n_train": max_rows or 5_000, "validation": validation}

    def parts(self, dataset: str, split: int, options: Mapping[str, Any]) -> harness.Parts:
        data = load(dataset, n_train=options["n_train"], random_state=split)
        if not options["validation"]:
            return data.train, data.val, data.test
        X, y = data.train
        fit, held_out = split_rows(X, (0.8, 0.2), split)
        train, val = (
            Table(X.iloc[rows].reset_index(drop=True), y[rows]) for rows in (fit, held_out)
        )
        return train, val, data.val

    def measured(self, model: Any, dataset: str, test: Table, split: int) -> tuple[dict, dict]:
        started = time.perf_counter()
        dist = model.predict_dist(test.X)
        crps = dist.crps(test.y)
        seconds = time.perf_counter() - started
        # An atom may come back from standardised units a few roundings away from the response.
        reach = 64 * np.finfo(float).eps * (np.abs(test.y) + np.abs(test.y).mean())
        below, up_to = dist.cdf(np.stack([test.y - reach, test.y + reach], axis=1)).T
        pit = below + uniforms(split, len(test), 1)[:, 0] * (up_to - below)
        if not (np.isfinite(crps).all() and np.isfinite(pit).all()):
            raise FloatingPointError("its forecasts are not finite")
        off_centre = 200 * np.abs(pit - 0.5)
        scores = {
            "crps": float(crps.mean()),
            **{f"coverage_{c}": float((off_centre <= c).mean()) for c in COVERAGES},
            "answer_seconds": round(seconds, 3),
        }
        return scores, {"crps": crps}

    def report(self, plan: harness.Plan) -> str:
        return report(plan)


def report(plan: harness.Plan) -> str:
    found = {
        (table, method): plan.stored(table, method)
        for table in plan.datasets
        for method in plan.methods
    }
    complete = {key: cells for key, cells in found.items() if len(cells) == len(plan.splits)}
    records = pd.DataFrame(
        {"table": table, "method": method, "split": split}
        | {name: facts[name] for name in _COLUMNS}
        for (table, method), cells in found.items()
        for split, (facts, _) in cells.items()
    )
    validation = plan.options["validation"]
    title = "Tables from the world" + (", on validation rows" if validation else "")
    lines = harness.heading(plan, title)
    if not len(records):
        return "\n\n".join(lines) + "\n"
    plan.folder.mkdir(parents=True, exist_ok=True)
    records.to_csv(plan.folder / "cells.csv", index=False, float_format="%.6g")
    keys = pd.MultiIndex.from_tuples(complete, names=["table", "method"])
    means: Any = records.groupby(["table", "method"])[_COLUMNS].mean().reindex(keys)
    crps = means["crps"].unstack().reindex(index=plan.datasets, columns=plan.methods)
    crps = crps.dropna(how="all")
    verdicts = pd.DataFrame(
        [verdict(plan, table, crps.loc[table].dropna(), complete) for table in crps.index]
    )
    verdicts.to_csv(plan.folder / "verdicts.csv", index=False, float_format="%.6g")
    lines += [_method_text(plan), "## Verdicts", _shares(verdicts), _crps_table(crps, verdicts)]
    lines += ["## Losses", _losses(verdicts), "## Methods", _method_table(crps, means, records)]
    lines += ["## Coverage of the 90 % intervals, in %", _coverage_table(means, crps)]
    missing = [f"{t} {m} ({len(c)})" for (t, m), c in found.items() if (t, m) not in complete]
    if missing:
        lines += ["## Not complete", f"Splits done: {', '.join(missing)}."]
    return "\n\n".join(lines) + "\n"


_COLUMNS = ["crps", "coverage_50", "coverage_80", "coverage_90", "fit_seconds", "answer_seconds"]
_COLUMNS += ["n_train", "n_test"]


def verdict(plan: harness.Plan, table: str, crps: pd.Series, complete: Any) -> dict[str, Any]:
    """How GENTLE compares with the best rival of a table."""
    rivals = crps.drop(GENTLE, errors="ignore")
    row: dict[str, Any] = {"table": table, "best": crps.idxmin()}
    if GENTLE not in crps or rivals.empty:
        return row | {"verdict": ""}
    best = rivals.idxmin()
    difference, error = paired(plan, table, complete[table, GENTLE], complete[table, best])
    words = "best" if difference < 0 else "within one SE" if difference <= error else "worse"
    return row | {
        "rival": best,
        "gentle_crps": crps[GENTLE],
        "rival_crps": rivals[best],
        "difference": difference,
        "standard_error": error,
        "ratio": crps[GENTLE] / rivals[best],
        "verdict": words,
    }


def paired(plan: harness.Plan, table: str, ours: Any, theirs: Any) -> tuple[float, float]:
    """Mean difference of CRPS, averaged over splits, and its standard error."""
    weighted, clusters, mean = [], [], 0.0
    for split in plan.splits:
        _, _, test = plan.benchmark.parts(table, split, plan.options)
        difference = ours[split][1]["crps"].astype(float) - theirs[split][1]["crps"]  # (n,)
        share = 1 / (len(plan.splits) * len(difference))
        mean += share * difference.sum()
        weighted.append(share * (difference - difference.mean()))
        clusters.append(pd.util.hash_pandas_object(test.X, index=False).to_numpy())
    _, cluster = np.unique(np.concatenate(clusters), return_inverse=True)
    sums = np.bincount(cluster.ravel(), np.concatenate(weighted))
    return mean, math.sqrt(len(sums) / max(len(sums) - 1, 1) * float(sums @ sums))


def _method_text(plan: harness.Plan) -> str:
    scored = "validation rows" if plan.options["validation"] else "test rows"
    return (
        f"Mean CRPS of the {scored} (smaller is better, in units of the response), averaged over "
        f"the splits {', '.join(map(str, plan.splits))}, with at most "
        f"{plan.options['n_train']:,} training rows. {GENTLE} is `{GENTLE}()` as it comes, with "
        "the number of the split as its seed. Every rival has the best of "
        f"{plan.n_trials} settings (its defaults among them) by the CRPS of split 0's validation "
        "rows; they serve for all splits, whose scored rows were thus partly seen in the rivals' "
        "tuning. All methods get the same `fit(train, eval_set=validation)`.\n\n"
        f"The difference is {GENTLE}'s CRPS minus that of the rival with the smallest, row by row, "
        "averaged within each split and then over splits. Its standard error counts all scored "
        "rows of equal covariates, in whichever splits they are, as one cluster; it does not hold "
        "what other training rows would change. Choosing the best of several rivals "
        f"after the fact favours the rivals. *best*: {GENTLE}'s mean is the smallest; *within one "
        "SE*: larger by at most one standard error; *worse*: by more."
    )


def _shares(verdicts: pd.DataFrame) -> str:
    judged = verdicts[verdicts["verdict"] != ""]
    if not len(judged):
        return f"{GENTLE} has not been run on any of these tables with a rival yet."
    counts = judged["verdict"].value_counts()
    texts = [f"{word} on {counts.get(word, 0)}" for word in ("best", "within one SE", "worse")]
    good = 1 - counts.get("worse", 0) / len(judged)
    return (
        f"{GENTLE}, of {len(judged)} tables: {', '.join(texts)}; best or within one standard "
        f"error on {good:.0%}. Geometric mean of its CRPS over the best rival's: "
        f"{geometric_mean(judged['ratio']):.4f}."
    )


def _crps_table(crps: pd.DataFrame, verdicts: pd.DataFrame) -> str:
    rows = []
    for table, line in zip(crps.index, verdicts.to_dict("records")):
        row = {"table": table}
        for method, value in crps.loc[table].items():
            text = number(value)
            row[str(method)] = f"**{text}**" if method == line["best"] else text
        if line["verdict"]:
            error = number(line["standard_error"], 2)
            row["difference (SE)"] = f"{number(line['difference'], 2)} ({error})"
            row["in %"] = f"{100 * (line['ratio'] - 1):+.1f}"
            row["verdict"] = line["verdict"]
        rows.append(row)
    return markdown(rows)


def _losses(verdicts: pd.DataFrame) -> str:
    lost = verdicts[verdicts["verdict"] == "worse"]
    if not len(lost):
        return "None so far."
    lost = lost.sort_values("ratio", ascending=False)
    return "\n".join(
        f"- {row['table']}: {row['rival']} is better by {100 * (row['ratio'] - 1):.1f} %, "
        f"{row['difference'] / row['standard_error']:.1f} standard errors"
        for row in lost.to_dict("records")
    )


def _method_table(crps: pd.DataFrame, means: Any, records: pd.DataFrame) -> str:
    best = crps.min(axis=1)
    rows = []
    for method in crps.columns[crps.notna().any()]:
        values = crps[method].dropna()
        of_method = means.xs(method, level="method")
        row = {"method": method, "tables": len(values), "best on": int((values == best).sum())}
        row["CRPS / best"] = f"{geometric_mean(values / best[values.index]):.4f}"
        if GENTLE in crps:
            both = crps[[GENTLE, method]].dropna() if method != GENTLE else crps[[GENTLE]].dropna()
            row[f"{GENTLE} / it"] = f"{geometric_mean(both[GENTLE] / both[method]):.4f}"
        for c in COVERAGES:
            row[f"covers, nominal {c} %"] = f"{100 * of_method[f'coverage_{c}'].mean():.1f}"
        times = records.loc[records["method"] == method, ["fit_seconds", "answer_seconds"]].median()
        row["fit, s"], row["answer, s"] = (f"{t:.3g}" for t in times)
        rows.append(row)
    note = "Ratios are geometric means over tables, coverages means, times medians over cells."
    return f"{markdown(rows)}\n\n{note}"


def _coverage_table(means: Any, crps: pd.DataFrame) -> str:
    coverage = 100 * means["coverage_90"].unstack().reindex_like(crps)
    coverage.loc["mean"] = coverage.mean()
    coverage.loc["mean distance from 90"] = (coverage.iloc[:-1] - 90).abs().mean()
    rows = []
    for table, line in coverage.iterrows():
        shown = {str(m): "" if math.isnan(value) else f"{value:.1f}" for m, value in line.items()}
        rows.append({"table": table, **shown})
    return markdown(rows)


if __name__ == "__main__":
    harness.main(Tables(), __doc__)
