"""The records of `speed.py` in words, tables and a plot."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 2
LIMIT = 150  # seconds
_FIRST_DAY = "2026-11-16"  # of cells that do not say
METHODS = ("GENTLE", "engression", "quantile-forest", "NGBoost", "CatBoost", "RealMLP")
HERE = Path(__file__).with_name("speed")
SIZES = {1_000: 2, 10_000: 2, 100_000: 1, 1_000_000: 1}  # rows, repeats
STEPS = (50, 100, 200, 300, 450, 600, 1000, 3000)
EPOCHS = (20, 60, 200)
TREES = (20, 100, 200, 300)
ITERATIONS = (50, 200, 800)
SPLITS = 2
# Of the package, with their settings and the share of 100,000 rows that they are timed with.
FORESTS: dict[str, tuple[dict[str, Any], float]] = {
    "200 trees, leaves of 20, all responses of a leaf": ({}, 0.1),
    "200 trees, leaves of 20, one response of a leaf": ({"max_samples_leaf": 1}, 1.0),
    "its defaults: 100 trees, leaves of 1": (
        {"n_estimators": 100, "min_samples_leaf": 1, "max_features": 1.0, "max_samples_leaf": 1},
        1.0,
    ),
}


def curve_points(dataset: str, method: str) -> dict[int, tuple[float, float]]:
    """Fit seconds and CRPS at each budget, means over the splits."""
    found, points = records_of("curves.json"), {}
    for budget in {"GENTLE": STEPS, "engression": EPOCHS, "quantile-forest": TREES}.get(
        method, ITERATIONS
    ):
        cells = [found.get(f"{dataset} {method} {budget} {split}", {}) for split in range(SPLITS)]
        if all("crps" in cell for cell in cells):
            points[budget] = tuple(
                float(np.mean([cell[name] for cell in cells])) for name in ("fit_seconds", "crps")
            )
    return points


def report() -> None:
    lines = [
        "# Speed beside others",
        "",
        f"{_dates()}; {platform.machine()}, {os.cpu_count()} ",
    ]
    lines[-1] += f"cores, {THREADS} threads, a fresh process per fit. `python benchmarks/speed.py`"
    lines += _sizes_text() + _curves_text() + _answers_text()
    HERE.with_suffix(".md").write_text("\n".join(lines) + "\n")
    _plot()
    print(f"wrote {os.path.relpath(HERE.with_suffix('.md'))}")


def _dates() -> str:
    """When the cells were measured; the oldest do not say so themselves."""
    cells = [cell for file in ("sizes.json", "curves.json") for cell in records_of(file).values()]
    found = sorted({cell.get("date", _FIRST_DAY) for cell in cells} | {_of_answers()["date"]})
    return " to ".join(dict.fromkeys([found[0], found[-1]]))


def _of_answers() -> dict[str, Any]:
    return {"all": {}, "date": _FIRST_DAY} | records_of("answers.json")


def records_of(file: str) -> dict[str, Any]:
    path = HERE / file
    return json.loads(path.read_text()) if path.exists() else {}


def _sizes_text() -> list[str]:
    found = records_of("sizes.json")
    if not found:
        return []
    lines = ["", "## Fit, draws, memory, size", ""]
    lines += [
        "Ten columns; CRPS on 5,000 new rows. A ratio is the method's over GENTLE's of the same"
    ]
    lines += ["repeat: median (smallest to largest).", "", _days_of_sizes(found), ""]
    lines += [
        "| rows | method | fit, s | ratio | draws a second, millions | peak, MiB | size, MiB "
    ]
    lines[-1] += "| CRPS | ratio |"
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for n_rows, repeats in SIZES.items():
        if not any(f"{method} {n_rows} 0" in found for method in METHODS):
            lines.append(f"| {n_rows:,} | all | not run | | | | | | |")
            continue
        ours = [found.get(f"GENTLE {n_rows} {r}") for r in range(repeats)]
        for method in METHODS:
            cells = [found.get(f"{method} {n_rows} {r}") for r in range(repeats)]
            good = [(c, o) for c, o in zip(cells, ours) if c and o and "crps" in c and "crps" in o]
            if not good:
                said = next((c["error"] for c in cells if c and "error" in c), "not run")
                lines.append(f"| {n_rows:,} | {method} | {said} | | | | | | |")
                continue
            numbers = [name for name in good[0][0] if name != "date"]
            median = {name: float(np.median([c[name] for c, _ in good])) for name in numbers}
            lines.append(
                f"| {n_rows:,} | {method} | {median['fit_seconds']:.1f} "
                f"| {_ratio(good, 'fit_seconds')} | {median['draws_per_second'] / 1e6:.2f} "
                f"| {median['peak_mib']:.0f} | {median['size_mib']:.1f} | {median['crps']:.4g} "
                f"| {_ratio(good, 'crps')} |"
            )
    return lines


def _days_of_sizes(found: dict[str, Any]) -> str:
    """When cells were measured: the machine's speed varies."""
    days: dict[str, set[str]] = {}
    for key, cell in found.items():
        if "crps" in cell:
            days.setdefault(cell.get("date", _FIRST_DAY), set()).add(key.rsplit(" ", 1)[0])
    if len(days) < 2:
        return f"All measured on {next(iter(days), 'no day')}."
    said = [f"{day}: {', '.join(sorted(cells))}" for day, cells in sorted(days.items())]
    return "Measured, method and rows: " + "; ".join(said) + ". Ratios across days are rough."


def _ratio(pairs: list[tuple[dict[str, Any], dict[str, Any]]], name: str) -> str:
    ratios = sorted(theirs[name] / ours[name] for theirs, ours in pairs)
    text = f"{np.median(ratios):.3g}"
    return text if len(ratios) < 2 else f"{text} ({ratios[0]:.3g} to {ratios[-1]:.3g})"


def _curves_text() -> list[str]:
    found = records_of("curves.json")
    lines = ["", "## Accuracy against fit time", ""]
    lines += [
        f"Means over {SPLITS} splits of the training rows, four to one; the budget is steps, "
    ]
    lines[-1] += "epochs, trees or iterations. [speed.png](speed.png)"
    lines += ["", "| data | method | budget | fit, s | CRPS |", "|---|---|---|---|---|"]
    for dataset in ("ldw-cps", "ecm"):
        for method in ("GENTLE", "engression", "quantile-forest", "CatBoost"):
            lines += [
                f"| {dataset} | {method} | {budget} | {seconds:.1f} | {crps:.4g} |"
                for budget, (seconds, crps) in curve_points(dataset, method).items()
            ]
    for dataset in ("ldw-cps", "ecm"):
        ours = curve_points(dataset, "GENTLE")
        if settings := found.get(f"{dataset} forest"):
            words = ", ".join(f"`{name}={value}`" for name, value in settings.items())
            lines += ["", f"{dataset}: the forest has {words}."]
        for rival, budgets in (("engression", EPOCHS[-1:]), ("quantile-forest", TREES[1:])):
            for budget in budgets:
                theirs = curve_points(dataset, rival).get(budget)
                if theirs is None:
                    continue
                words = f"{dataset}: the CRPS of {rival} with {budget} ({theirs[1]:.4g} after "
                words += f"{theirs[0]:.1f} s) "
                reached = [seconds for seconds, crps in ours.values() if crps <= theirs[1]]
                if reached:
                    words += f"is reached by GENTLE in {min(reached):.1f} s, "
                    words += f"{min(reached) / theirs[0]:.2f} of the time."
                else:
                    words += "is not reached."
                lines += ["", words]
    return lines if found else []


def _answers_text() -> list[str]:
    found = _of_answers()["all"]
    if not found:
        return []
    lines = ["", "## Answers of `GENTLE()`, and of its average (`compact=False`)", ""]
    for dataset in ("ldw-cps", "ecm"):
        rate, of_bare = np.array(found[f"{dataset} draws"]).T / [[1e6], [1.0]]
        lines.append(
            f"- {dataset}, 1,000 covariates × 10,000 draws: {np.median(rate):.1f} million a second "
            f"({rate.min():.1f} to {rate.max():.1f}), {np.median(of_bare):.2f} of a bare "
            "`rng.random`."
        )
    lines += [
        "",
        "Quantiles of 100,000 rows × 100 levels, beside quantile-forest's `predict` with two jobs. "
        "Rows are those of the training, again and again, as in a table of people or designs in "
        "which covariates repeat (GENTLE answers for those that differ), or all different. Of "
        "three repeats the median, and the smallest and largest ratio; the forest that keeps all "
        "responses is timed with 10,000 rows, times ten.",
        "",
        "| data, rows | model | s | the forest | its s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for key, pairs in found.items():
        if key.endswith("draws"):
            continue
        dataset, rows, who, forest = key.split(", ", 3)
        ours, its = np.array(pairs).T
        low, middle, high = (_times(f(its / ours)) for f in (np.min, np.median, np.max))
        lines.append(
            f"| {dataset}, {rows} | {who} | {np.median(ours):.2f} | {forest} "
            f"| {np.median(its):.1f} | {middle} ({low} to {high}) |"
        )
    return lines


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _plot() -> None:
    if not all(curve_points(dataset, "GENTLE") for dataset in ("ldw-cps", "ecm")):
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    colours = {"GENTLE": "#0072B2", "engression": "#D55E00", "quantile-forest": "#009E73"}
    for axis, dataset in zip(axes, ("ldw-cps", "ecm")):
        for method, marker in zip((*colours, "CatBoost"), "osv^"):
            points = list(curve_points(dataset, method).values())
            if points:
                axis.plot(
                    *zip(*points), marker=marker, label=method, color=colours.get(method, "#CC79A7")
                )
        unit = "dollars" if dataset == "ldw-cps" else "quality-adjusted years"
        axis.set(xscale="log", xlabel="seconds to fit, two threads", title=dataset)
        best = min(crps for method in colours for _, crps in curve_points(dataset, method).values())
        axis.set_ylim(0.995 * best, 1.08 * best)  # far worse ones are in the table
        axis.set_ylabel(f"CRPS of held-out rows\n({unit})")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(HERE.with_suffix(".png"), dpi=110)
