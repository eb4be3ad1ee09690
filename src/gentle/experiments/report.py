"""The report of a reproduction: tables as Markdown, LaTeX and CSV, figures as PNG and PDF."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gentle.experiments import figures
from gentle.experiments.run import Store
from gentle.experiments.spec import Cell, Experiment, Profile, cells, note

_HEADS = {"wd": "WD", "ks": "KS", "mse": "MSE", "r2": "R²"}
_HIDDEN = {"random_state", "device", "verbose", "n_jobs"}  # of a method's settings
_FLOOR = "noise floor"


def write_report(
    experiments: Sequence[Experiment], profile: Profile, store: Store, folder: Path
) -> Path:
    """Write everything that is stored of some experiments.

    Args:
        experiments: The tables and figures.
        profile: The profile under which they were run.
        store: Where their cells are.
        folder: Where the report goes: ``report.md``, and for each experiment ``NAME.csv`` and
            ``NAME.tex``, or ``NAME.png`` and ``NAME.pdf``.

    Returns:
        The path of ``report.md``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    planned = cells(experiments, profile)
    stored = [cell for cell in planned if store.has(cell)]
    facts = [store.facts(cell) for cell in stored]
    parts = [_heading(experiments, profile, facts, len(planned))]
    for experiment in experiments:
        if experiment.kind == "table":
            table = aggregate(experiment, profile, store)
            table.to_csv(folder / f"{experiment.name}.csv", index=False, float_format="%.6g")
            (folder / f"{experiment.name}.tex").write_text(_latex(experiment, table))
            body = _markdown(experiment, table)
        elif figures.draw(experiment, profile, store, folder):
            body = f"![{experiment.title}]({experiment.name}.png)"
        else:
            body = "Not drawn: none of its methods has been run with seed 0."
        parts.append(f"## {_label(experiment.name)}. {experiment.title}\n\n{body}\n")
    if facts:
        parts += [_notes(experiments, profile), _settings(facts)]
    path = folder / "report.md"
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    return path


def aggregate(experiment: Experiment, profile: Profile, store: Store) -> pd.DataFrame:
    """A table of means and standard deviations over seeds beside the published ones.

    Returns:
        One row per data set and method, and one for the noise floor of a data set: ``dataset``,
        ``method``, ``n_seeds``, for each metric ``M``, ``M_sd``, ``M_published``,
        ``M_published_sd``, and the mean times ``fit_seconds`` and ``sample_seconds``.
    """
    by_row: dict[tuple[str, str], list[Cell]] = {
        (dataset, method): [] for dataset in experiment.datasets for method in experiment.methods
    }
    for cell in cells([experiment], profile):
        if store.has(cell):
            by_row[cell.dataset, cell.method].append(cell)
    rows = []
    for dataset in experiment.datasets:
        for method in experiment.methods:
            rows.append(_row(experiment, store, dataset, method, by_row[dataset, method]))
        floor = store.floor(dataset, profile)
        row: dict[str, Any] = {"dataset": dataset, "method": _FLOOR}
        for metric in experiment.metrics:
            row |= {metric: floor.loc[metric, "mean"], f"{metric}_sd": floor.loc[metric, "sd"]}
        rows.append(row)
    return pd.DataFrame(rows)


def _row(
    experiment: Experiment, store: Store, dataset: str, method: str, stored: Sequence[Cell]
) -> dict[str, Any]:
    row: dict[str, Any] = {"dataset": dataset, "method": method, "n_seeds": len(stored)}
    seeds = pd.DataFrame([store.scores(cell).summary() for cell in stored])
    published = experiment.published.get(dataset, {}).get(method, {})
    for metric in experiment.metrics:
        values = seeds[metric].to_numpy() if len(seeds) else np.array([])
        mean, sd = published.get(metric, (math.nan, math.nan))
        row |= {
            metric: values.mean() if len(values) else math.nan,
            f"{metric}_sd": values.std(ddof=1) if len(values) > 1 else math.nan,
            f"{metric}_published": mean,
            f"{metric}_published_sd": sd,
        }
    for name in ("fit_seconds", "sample_seconds"):
        times = [store.facts(cell)[name] for cell in stored]
        row[name] = float(np.mean(times)) if times else math.nan
    return row


def _heading(
    experiments: Sequence[Experiment], profile: Profile, facts: list[Any], n_planned: int
) -> str:
    names = " ".join(e.name for e in experiments) if len(experiments) < 8 else "all"
    text = f"# Reproduction, {profile.name} profile\n\n"
    text += f"`gentle reproduce {names} --profile {profile.name}`"
    if not facts:
        return text + "\n"
    dates = sorted({fact["date"] for fact in facts})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    text += (
        f", {'; '.join(sorted({fact['machine'] for fact in facts}))}, {when}.\n\n"
        f"Each figure is the mean over test covariates, then the mean ± standard deviation over "
        f"seeds of the method on the same data, with {profile.draws:,} draws per test covariate. "
        "What the paper's ± ranges over is not said. The noise floor is what a perfect model would "
        "score on as many held-out responses: the simulator for ECM; for LDW-CPS, where the truth "
        "is not known, the responses of the 100 nearest neighbours in its place. WD is in dollars "
        "(LDW-CPS) and QALYs (ECM), MSE in their squares. Times are seconds of one thread, "
        "measured while other work ran on the machine; sampling is that of all draws at all test "
        "covariates.\n"
    )
    if len(facts) < n_planned:
        text += (
            f"\n{len(facts)} of the {n_planned} fits of this profile are done; a row says how many "
            "seeds it has.\n"
        )
    if profile.name == "quick":
        text += (
            "\n**This is the quick profile: small data and budgets, to see that all works. Its "
            "figures say nothing about which method is better.**\n"
        )
    return text


def _markdown(experiment: Experiment, table: pd.DataFrame) -> str:
    heads = ["data", "method", "seeds"]
    for metric in experiment.metrics:
        heads += [_HEADS[metric], "published"]
    heads += ["fit, s", "sampling, s"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in _shown(experiment, table, "±")]
    return "\n".join(lines)


def _latex(experiment: Experiment, table: pd.DataFrame) -> str:
    columns = "ll" + "rr" * len(experiment.metrics) + "rr"
    heads = ["Data", "Method"]
    for metric in experiment.metrics:
        heads += [_HEADS[metric].replace("²", "$^2$"), "published"]
    lines = [
        f"% {experiment.title}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join([*heads, "fit (s)", "sampling (s)"]) + r" \\",
    ]
    previous = None
    for row in _shown(experiment, table, r"$\pm$"):
        dataset = row.pop(0)
        row.pop(1)  # the number of seeds
        if dataset != previous:
            lines.append(r"\midrule")
        lines.append(" & ".join(["" if dataset == previous else dataset, *row]) + r" \\")
        previous = dataset
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _shown(experiment: Experiment, table: pd.DataFrame, plus_minus: str) -> Iterable[list[str]]:
    """The cells of each row as text."""
    for row in table.to_dict("records"):
        floor = row["method"] == _FLOOR
        shown = [row["dataset"], row["method"], "" if floor else f"{row['n_seeds']:.0f}"]
        for metric in experiment.metrics:
            shown.append(number(row[metric], row[f"{metric}_sd"], plus_minus))
            published = row[f"{metric}_published"], row[f"{metric}_published_sd"]
            shown.append(
                ""
                if math.isnan(published[0])
                else f" {plus_minus} ".join(map(_as_printed, published))
            )
        shown += [number(row[name]) for name in ("fit_seconds", "sample_seconds")]
        yield shown


def number(value: float, sd: float = math.nan, plus_minus: str = "±") -> str:
    """A figure to the digits that its spread allows, millions as in the paper.

    Example:
        >>> number(3145.2, 34.1), number(0.4462, 0.0571), number(7.67e6, 0.48e6), number(12.3)
        ('3145 ± 34', '0.446 ± 0.057', '7.67e6 ± 0.48e6', '12.3')
    """
    if math.isnan(value):
        return ""
    if abs(value) >= 1e5:
        return f"{value / 1e6:.2f}e6" + (
            "" if math.isnan(sd) else f" {plus_minus} {sd / 1e6:.2f}e6"
        )
    if math.isnan(sd) or sd == 0:
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    digits = 1 - math.floor(math.log10(sd))
    if value:  # more than four digits of the figure itself say nothing
        digits = min(digits, 3 - math.floor(math.log10(abs(value))))
    digits = max(0, digits)
    return f"{value:.{digits}f} {plus_minus} {sd:.{digits}f}"


def _as_printed(value: float) -> str:
    """A figure as the paper prints it."""
    return f"{value / 1e6:.2f}e6" if abs(value) >= 1e5 else f"{value:.10g}"


def _notes(experiments: Sequence[Experiment], profile: Profile) -> str:
    if profile.name != "full":
        return ""
    methods = dict.fromkeys(method for e in experiments for method in e.methods)
    told = [f"- **{method}.** {note(method)}" for method in methods if note(method)]
    return "\n".join(["## How the rows differ from the published ones, and why\n", *told, ""])


def _settings(facts: list[Any]) -> str:
    """What each method was run with."""
    lines = ["## Settings\n"]
    seen = set()
    for fact in facts:
        settings = {k: v for k, v in fact["settings"].items() if k not in _HIDDEN}
        shown = f"`{fact['model']}({', '.join(f'{k}={v!r}' for k, v in settings.items())})`"
        line = f"- {fact['method']} on {fact['dataset']} ({fact['n_train']:,} rows): {shown}"
        if line not in seen:
            seen.add(line)
            lines.append(line)
    origins = sorted({fact["origin"] for fact in facts if "origin" in fact})
    for origin in origins:
        which = [
            f"{f['method']} {f['dataset']} {f['seed']}" for f in facts if f.get("origin") == origin
        ]
        lines.append(f"\nOf these, {', '.join(which)} (method, data set, seed) were {origin}.")
    return "\n".join([*lines, ""])


def _label(name: str) -> str:
    """``table1`` as "Table 1"."""
    kind = name.rstrip("0123456789")
    return f"{kind.capitalize()} {name[len(kind) :]}"
