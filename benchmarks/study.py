"""Which ingredient of the default GENTLE is worth what, on validation data only.

Every variant changes one thing. Models are fitted to the training part of a problem and scored by
CRPS on its validation part; test parts are never touched. Each fit is stored at once in
``study/cells``, and a later run does what is missing. The report compares every variant with
``GENTLE()``: ratios of CRPS, geometric mean over problems, standard error over problems.

Example:
    python benchmarks/study.py
    python benchmarks/study.py --variants "no trees;no atoms" --problems wage1,ecm --seeds 3
    python benchmarks/study.py --report
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ingredients import ParameterSharing, Retrieving, periodic

import gentle
from gentle import GENTLE, datasets
from gentle.models import averaging, exam, learning, rates, school
from gentle.models.evaluation import Kind
from gentle.models.inputs import Inputs
from gentle.workers import finished

FOLDER = Path(__file__).parent / "study"
TABLES = (
    "diabetes engel wage1 hprice2 mlb1 nhefs recid bwght2 card charity gpa2 fertil2 cps91".split()  # noqa: SIM905
)
PROBLEMS = [*TABLES, *datasets.PROBLEMS, "ldw-cps", "ecm"]
N_TRAIN = 2000  # rows of tables and synthetic problems

Patches = dict[tuple[Any, str], Any]


def _kinds(*kinds: Kind) -> Patches:
    def chosen(coordinates: list, inputs: Any) -> list[Kind]:
        last = len(coordinates) - 1
        return [Kind(min(kind.coordinate, last), kind.views) for kind in kinds]

    return {(learning, "_kinds"): chosen}


def _activation(name: str) -> Callable[[], Patches]:
    return lambda: {(torch.nn.functional, "silu"): getattr(torch.nn.functional, name)}


def _even(low: torch.Tensor, high: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return low + (high - low) * u


def _normal(low: torch.Tensor, high: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    first, last = torch.special.ndtr(low), torch.special.ndtr(high)
    normal = torch.special.ndtri(first + (last - first) * u)
    return torch.where(high > low, torch.clamp(normal, low, high), low)


def _between(place: Callable[..., torch.Tensor]) -> Patches:
    return {(part, "between"): place for part in (school, exam)}


PAPER = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic", "n_epochs": 50}
VARIANTS: dict[str, tuple[dict[str, Any], Callable[[], Patches]]] = {
    "GENTLE()": ({}, dict),
    "no trees": ({"n_trees": 0}, dict),
    "no boosted trees": ({"boosting": False}, dict),
    "boosted trees for both kinds that see ranks": (
        {},
        lambda: _kinds(
            Kind(0, ("boosted", "scores")),
            Kind(1, ("straight",)),
            Kind(0, ("boosted", "scores", "pieces")),
        ),
    ),
    "steps stay as small as where there is much noise": (
        {},
        lambda: {(school, "quickening"): lambda left, is_large: 1.0},
    ),
    "inputs cannot be emphasised": (
        {},
        lambda: {(school, "EmphasisNet"): lambda plain, free: plain},
    ),
    "no network slides": ({}, lambda: {(school, "_CLEARLY"): 1e9}),
    "all networks that see values slide": ({}, lambda: {(school, "_CLEARLY"): -1e9}),
    "kinds left alone learn no longer": ({}, lambda: {(school, "_STRETCH"): 1}),
    "one network of each kind": ({}, lambda: {(learning, "_n_folds"): lambda n: 2}),
    "networks see ranks only": ({}, lambda: _kinds(Kind(0, ("scores",)))),
    "networks see values only": ({}, lambda: _kinds(Kind(0, ("straight",)))),
    "networks see ranks and pieces only": ({}, lambda: _kinds(Kind(0, ("scores", "pieces")))),
    "response as it is only": ({}, lambda: _kinds(Kind(1, ("scores",)), Kind(1, ("straight",)))),
    "periodic functions in place of pieces": ({}, lambda: {(Inputs, "encode"): periodic}),
    "quantiles of neighbours as further columns": ({"of": Retrieving}, dict),
    "parameter-shared ensemble (tabm), no trees": ({"of": ParameterSharing}, dict),
    "no atoms": ({"atoms": False}, dict),
    "all levels count equally": ({}, lambda: {(school, "_TAIL_EMPHASIS"): 1.0}),
    "averaging of weights everywhere": ({}, lambda: {(school, "_LARGE"): 0}),
    "averaging of weights nowhere": ({}, lambda: {(school, "_WINDOW"): 1}),
    "no widening": ({}, lambda: {(averaging, "_SPREADS"): (1.0,)}),
    "one cycle of the learning rate": ({}, lambda: {(rates, "_N_CYCLES"): 1}),
    "atoms spread evenly": ({}, lambda: _between(_even)),
    "atoms spread like a normal": (
        {},
        lambda: _between(_normal),
    ),
    "ReLU": ({}, _activation("relu")),
    "GELU": ({}, _activation("gelu")),
    "three hidden layers": ({"hidden_widths": (128, 128, 128)}, dict),
    "hidden layers of 64": ({"hidden_widths": (64, 64)}, dict),
    "regulariser 0.01": ({"reg_weight": 0.01}, dict),
    "regulariser 0.1": ({"reg_weight": 0.1}, dict),
    "one monotone network, CRPS": (
        {"map": "monotone", "regulariser": "entropic", "reg_weight": 0},
        dict,
    ),
    "one free network, CRPS": ({"map": "mlp", "reg_weight": 0}, dict),
    "one free network, Eq. 8 (paper, no regulariser)": (PAPER | {"reg_weight": 0}, dict),
    "the paper's game": (PAPER, dict),
    "the paper's game, debiased": (PAPER | {"regulariser": "sinkhorn"}, dict),
}


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Constants of the program changed for a while."""
    with ExitStack() as stack:
        for (module, name), value in patches.items():
            stack.enter_context(patch.object(module, name, value))
        yield


def data(problem: str, seed: int) -> tuple[Any, Any]:
    """Training and validation part; tables are split anew for every seed."""
    if problem in ("ldw-cps", "ecm"):
        loaded = datasets.load(problem)
    else:
        loaded = datasets.load(problem, n_train=N_TRAIN, random_state=seed)
    return loaded.train, loaded.val


def fit_and_score(variant: str, problem: str, seed: int) -> dict[str, Any]:
    """One fit with one thread."""
    torch.set_num_threads(1)
    train, val = data(problem, seed)
    rows = np.random.default_rng(0).permutation(len(val.y))[:5000]
    X = val.X.iloc[rows] if hasattr(val.X, "iloc") else val.X[rows]
    y = np.asarray(val.y, float)[rows]
    settings, patches = VARIANTS[variant]
    with patched(patches()):
        started = time.process_time()
        own = dict(settings)
        model = own.pop("of", GENTLE)(**own, random_state=seed, verbose=0).fit(train.X, train.y)
        seconds = time.process_time() - started
        dist = model.predict_dist(X)
        low, high = dist.interval(0.9).T
        return {
            "variant": variant,
            "problem": problem,
            "seed": seed,
            "crps": float(dist.crps(y).mean()),
            "coverage": float(np.mean((low <= y) & (y <= high))),
            "cpu_seconds": seconds,
            "n_train": len(train.y),
            "version": gentle.__version__,
            "date": date.today().isoformat(),
        }


def path(cell: tuple[str, str, int]) -> Path:
    """Where a fit is stored."""
    variant, problem, seed = cell
    name = "".join(c if c.isalnum() else "-" for c in variant).strip("-").lower()
    return FOLDER / "cells" / f"{problem}_{name}_{seed}.json"


def run_missing(
    cells: list[tuple[str, str, int]],
    work: Callable[..., dict[str, Any]],
    path: Callable[[tuple[str, str, int]], Path],
    n_workers: int,
    score: str,
) -> None:
    """Do what is not stored yet, and store it at once."""
    todo = [cell for cell in cells if not path(cell).exists()]
    for number, (cell, record) in enumerate(finished(work, todo, n_workers), 1):
        if isinstance(record, Exception):
            print(f"{number} of {len(todo)}: {cell} failed: {record!r}", flush=True)
            continue
        path(cell).write_text(json.dumps(record, indent=1) + "\n")
        print(f"{number} of {len(todo)}: {cell} {score} {record[score]:.5g}", flush=True)


def report() -> str:
    """All that is stored, as Markdown."""
    records = [json.loads(file.read_text()) for file in sorted((FOLDER / "cells").glob("*.json"))]
    scores: dict[str, dict[tuple[str, int], dict]] = {}
    for record in records:
        scores.setdefault(record["variant"], {})[record["problem"], record["seed"]] = record
    base = scores["GENTLE()"]
    lines = [
        "# Study of the ingredients",
        "",
        "CRPS on validation parts relative to `GENTLE()`: above 1 is worse. Geometric mean over "
        "problems (seeds of a problem averaged first), ± standard error over problems. Coverage is "
        "that of nominal 90 % intervals, mean over problems. CPU seconds are one thread's.",
        "",
        "| variant | real tables | synthetic | LDW-CPS | ECM | coverage | CPU s | problems |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for variant in VARIANTS:
        own = scores.get(variant, {})
        common = [key for key in own if key in base]
        if not common:
            continue
        ratios: dict[str, list[float]] = {}
        for key in common:
            ratios.setdefault(key[0], []).append(np.log(own[key]["crps"] / base[key]["crps"]))
        mean = {problem: float(np.mean(found)) for problem, found in ratios.items()}
        cells = [_ratio([mean[p] for p in part if p in mean]) for part in _parts()]
        coverage = np.mean([own[key]["coverage"] for key in common])
        seconds = np.mean([own[key]["cpu_seconds"] for key in common])
        lines.append(
            f"| {variant} | "
            + " | ".join(cells)
            + f" | {coverage:.3f} | {seconds:.1f} | {len(mean)} |"
        )
    dates = sorted({record["date"] for record in records})
    done = [table for table in TABLES if any(table == problem for problem, _ in base)]
    lines += [
        "",
        f"Real tables so far: {', '.join(done)} (of {len(TABLES)}); at most {N_TRAIN} training "
        f"rows. Synthetic: problems of `gentle.datasets.PROBLEMS`, {N_TRAIN} rows. Nothing in a "
        "column, or no row: not computed yet with the default as it is now. "
        "`python benchmarks/study.py` makes this table. "
        f"Computed {dates[0]} to {dates[-1]}, {platform.machine()}, one thread.",
    ]
    return "\n".join(lines) + "\n"


def _parts() -> list[list[str]]:
    return [list(TABLES), list(datasets.PROBLEMS), ["ldw-cps"], ["ecm"]]


def _ratio(logs: list[float]) -> str:
    if not logs:
        return ""
    text = f"{np.exp(np.mean(logs)):.3f}"
    return text if len(logs) == 1 else f"{text} ± {np.std(logs, ddof=1) / len(logs) ** 0.5:.3f}"


def main() -> None:
    """Run what is missing, then write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", help="names separated by semicolons; all if not given")
    parser.add_argument("--problems", help="names separated by commas; all if not given")
    parser.add_argument("--seeds", type=int, default=1, help="splits and seeds per problem")
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    variants = options.variants.split(";") if options.variants else list(VARIANTS)
    problems = options.problems.split(",") if options.problems else PROBLEMS
    (FOLDER / "cells").mkdir(parents=True, exist_ok=True)
    if not options.report:
        cells = [(v, p, s) for s in range(options.seeds) for p in problems for v in variants]
        run_missing(cells, fit_and_score, path, options.workers, "crps")
    (FOLDER / "report.md").write_text(report())


if __name__ == "__main__":
    main()
