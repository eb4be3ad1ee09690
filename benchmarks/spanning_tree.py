"""Time, peak memory and length of the Euclidean spanning tree of 10⁴, 10⁵ and 10⁶ points.

Three kinds of points in 9 columns: random (normal), clustered (1,000 tight clusters), and LDW-like
(rows of LDW-CPS drawn with replacement, ages and earnings moved a little but still whole numbers,
so that equal points and equal distances abound). Each tree is grown in a process of its own by
Borůvka's algorithm with two threads, at 10⁴ also by Prim's, and from 10⁵ on approximated, too, as
`gentle.graph.partners` does above its limits. Results go to spanning_tree/*.json as soon as they
are there, and a later run does what is missing; the report is spanning_tree.md.

python benchmarks/spanning_tree.py
python benchmarks/spanning_tree.py --kinds clustered --sizes 10000,100000
python benchmarks/spanning_tree.py --report
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # threads are those of the k-d tree only

import argparse
import itertools
import json
import math
import platform
import resource
import subprocess
import sys
import time
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("random", "clustered", "LDW-like", "random, 30 columns")
SIZES = (10_000, 100_000, 1_000_000)
N_THREADS = 2
HERE = Path(__file__).resolve().parent


def points(kind: str, n: int) -> np.ndarray:
    """Points of a kind, ``(n, 9)``."""
    rng = np.random.default_rng(n)
    if kind == "random":
        return rng.normal(size=(n, 9))
    if kind == "random, 30 columns":
        return rng.normal(size=(n, 30))
    if kind == "clustered":
        centres = 10 * rng.normal(size=(1000, 9))
        return centres[rng.integers(1000, size=n)] + 0.05 * rng.normal(size=(n, 9))
    from gentle.datasets import load

    X = load("ldw-cps").train.X
    X = X.iloc[rng.integers(len(X), size=n)].astype(float)
    X["age"] += rng.integers(-1, 2, n)
    for name in ("re74", "re75"):
        moved = (X[name] + 10 * rng.integers(-20, 21, n)).round(-1).clip(0)
        X[name] = moved.where(X[name] > 0, 0.0)  # no earnings remain none
    return ((X - X.mean()) / X.std(ddof=0)).to_numpy()


def grown(kind: str, n: int, method: str) -> dict[str, Any]:
    """Grow one tree and measure that, in this process."""
    from gentle import graph

    x = points(kind, n)
    facts: dict[str, Any] = {"kind": kind, "n": n, "d": x.shape[1], "method": method}
    before, wall, cpu = _peak(), time.perf_counter(), time.process_time()
    if method == "approximate":
        graph.TREE_UP_TO = graph.WIDE_TREE_UP_TO = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", graph.ApproximateTreeWarning)
            found = graph.partners(x, N_THREADS)
        parent, facts["nearest"] = found.parent, found.excess
    else:
        graph.PRIM_UP_TO = n if method == "Prim" else 0
        parent = graph.spanning_tree(x, n_jobs=N_THREADS)
    facts |= {
        "seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "mib": round(_peak()),
        "mib_before": round(before),
    }
    lengths = graph.edge_lengths(x, parent)
    assert np.sum(parent == -1) == 1
    facts |= {"weight": float(lengths.sum()), "equal": (int(np.sum(lengths == 0)) - 1) / n}
    packages = {name: version(name) for name in ("numpy", "scipy")}
    load = os.getloadavg()[0]
    return facts | {"date": date.today().isoformat(), "load": load, "versions": packages}


def cells(kinds: list[str], sizes: list[int]) -> list[tuple[str, int, str]]:
    """What is to be measured, cheap trees first."""
    wanted = []
    for n, kind in itertools.product(sizes, kinds):
        wide = kind == KINDS[-1]
        if wide and n != 100_000:
            continue
        wanted.append((kind, n, "Prim" if wide else "Borůvka"))
        wanted.append((kind, n, "Prim" if n <= 10_000 else "approximate"))
    return sorted(wanted, key=lambda cell: (cell[1], cell[2] == "approximate"))


def record(folder: Path, cell: tuple[str, int, str]) -> Path:
    kind, n, method = cell
    name = f"{kind}-{n}-{method}".lower().replace(", ", "-").replace(" ", "-").replace("ů", "u")
    return folder / f"{name}.json"


def report(found: list[dict[str, Any]]) -> str:
    by = {(facts["kind"], facts["n"], facts["method"]): facts for facts in found}
    dates = sorted({facts["date"] for facts in found})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    packages = ", ".join(f"{name} {number}" for name, number in found[-1]["versions"].items())
    loads = [facts["load"] for facts in found]
    lines = [
        "# The Euclidean spanning tree at scale",
        f"`python benchmarks/spanning_tree.py`, {when}; 2 x86-64 cores, {N_THREADS} threads, on "
        f"which other work ran at the same time (load {min(loads):.0f} to {max(loads):.0f} at the "
        "end of a cell): seconds of the clock are much more than on an idle machine, CPU "
        f"seconds are of both threads together; Python {platform.python_version()}, {packages}. "
        "Peak memory is that of the whole process, with Python and the points.",
        "| points | n × d | algorithm | load | seconds | CPU seconds | peak MiB | total length | "
        "against the exact tree |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    table = []
    for (kind, n, method), facts in sorted(
        by.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1], item[0][2])
    ):
        exact = by.get((kind, n, "Prim")) or by.get((kind, n, "Borůvka"))
        against = ""
        if exact and exact is not facts:
            share = facts["weight"] / exact["weight"] - 1
            against = f"{share:+.1e}" if method == "Borůvka" else f"{share:+.2%}"
        table.append(
            f"| {kind.split(',')[0]} | {n:,} × {facts['d']} | {method} | {facts['load']:.0f} | "
            f"{facts['seconds']:,.1f} | "
            f"{facts['cpu_seconds']:,.1f} | {facts['mib']:,} | {facts['weight']:,.6g} | {against} |"
        )
    lines.append("\n".join(table))
    lines[2:] = ["\n".join(lines[2:])]
    growth = []
    for kind, method in itertools.product(KINDS, ("Borůvka", "approximate")):
        sizes = sorted(n for (k, n, m) in by if (k, m) == (kind, method))
        steps = [
            f"{_exponent(by[kind, a, method], by[kind, b, method]):.2f} from {a:,} to {b:,}"
            for a, b in itertools.pairwise(sizes)
        ]
        growth += [f"- {kind}, {method}: {', '.join(steps)}"] if steps else []
    if growth:
        lines.append("Growth of the CPU seconds, as the exponent of n:")
        lines.append("\n".join(growth))
    equal = [f"{f['n']:,}: {f['equal']:.0%}" for f in found if _is(f, "LDW-like", "Borůvka")]
    if equal:
        lines.append(f"LDW-like points that are copies of others: {', '.join(equal)}.")
    return "\n\n".join(lines) + "\n"


def _is(facts: dict[str, Any], kind: str, method: str) -> bool:
    return (facts["kind"], facts["method"]) == (kind, method)


def _exponent(small: dict[str, Any], large: dict[str, Any]) -> float:
    return math.log(large["cpu_seconds"] / small["cpu_seconds"]) / math.log(large["n"] / small["n"])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=";".join(KINDS), help="separated by ;")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--folder", type=Path, default=HERE / "spanning_tree")
    parser.add_argument("--report", action="store_true", help="only write the report")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        kind, n, method = given.cell
        print(json.dumps(grown(kind, int(n), method)))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    wanted = cells(given.kinds.split(";"), [int(n) for n in given.sizes.split(",")])
    for cell in [] if given.report else wanted:
        path = record(given.folder, cell)
        if not path.exists():
            command = [sys.executable, __file__, "--cell", *map(str, cell)]
            child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            path.write_text(json.dumps(json.loads(child.stdout), indent=1) + "\n")
            print(path.name, child.stdout.strip(), flush=True)
    paths = [record(given.folder, cell) for cell in cells(list(KINDS), list(SIZES))]
    found = [json.loads(path.read_text()) for path in paths if path.exists()]
    notes = given.folder / "notes.md"  # written by hand
    text = report(found) + (f"\n{notes.read_text()}" if notes.exists() else "")
    given.folder.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
