"""Where the seconds of fits and answers go, what a million rows cost: time, memory, accuracy.

Every fit has a process of its own with one thread. Its seconds are those of the processor; other
work on the machine changes them by up to a fifth, so that smaller differences mean nothing, and
the clock's beside them by much more. Peak memory is that of
Python, PyTorch and all else. Synthetic rows have ten columns, of which five matter
("varying-spread" of `gentle.datasets`), and a known law: W1 is the mean distance of quantile
functions from the true ones at 2,000 new rows, the excess CRPS is what a perfect forecast saves.

python benchmarks/scale.py                              # fits without a record; 20 minutes
python benchmarks/scale.py --fits ldw-cps,memory:100000 # these anew
python benchmarks/scale.py --before FOLDER              # also an earlier version of the package
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import cProfile
import json
import platform
import pstats
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FITS = (
    "ldw-cps", "ecm", "memory:100000", "memory:1000000", "parquet:100000", "parquet:1000000",
    "parquet:5000000",
)  # fmt: skip
REPORT = Path(__file__).with_suffix(".md")
RECORDS = Path(__file__).with_suffix(".json")
PHASES = {  # the functions whose time is a phase's
    "read, check": [("intake.py", "of"), ("sources.py", "pieces")],
    "merge, group": [("intake.py", "merged"), ("intake.py", "grouped")],
    "first pass": [("larger.py", "survey")],
    "boosted trees": [("boosting.py", "of"), ("boosting.py", "extended")],
    "encode": [("lessons.py", "__init__")],
    "networks": [("school.py", "train")],
    "trees": [("learning.py", "_grown")],
    "average": [("averaging.py", "on_unseen"), ("averaging.py", "best_average")],
    "skill": [("intake.py", "crps_of_marginal"), ("intake.py", "mean_crps")],
}
ANSWERS = {  # the same of draws and quantiles
    "check, encode": [("base.py", "_encoded_covariates")],
    "group": [("data.py", "group_rows")],
    "inputs": [("inputs.py", "encode")],
    "networks": [("nets.py", "rises")],
    "trees": [("forest.py", "quantiles"), ("boosting.py", "extended")],
    "knots to levels": [("evaluation.py", "at_levels")],
    "to the response": [("responses.py", "decode"), ("decoded.py", "_crossings")],
    "random numbers": [("streams.py", "uniforms")],
    "look up": [
        ("rowwise.py", "interpolated"), ("rowwise.py", "between_columns"), ("decoded.py", "beside"),
    ],
}  # fmt: skip
_PIECE = 250_000  # rows of a synthetic table that are drawn at once
_N_ROWS = 100_000  # that are asked about
_LEVELS = (np.arange(200) + 0.5) / 200


def problem() -> Any:
    from gentle.datasets.synthetic import PROBLEMS

    return PROBLEMS["varying-spread"]


def covariates(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.standard_normal((n, 10)), columns=[f"x{i}" for i in range(1, 11)])


def frames(n: int):
    for seed in range(-(-n // _PIECE)):
        X = covariates(min(_PIECE, n - seed * _PIECE), seed)
        yield X.assign(y=problem().sample(X, random_state=[seed, 1])[:, 0])


def write(n: int, path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer = None
    for frame in frames(n):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def fitted(name: str, file: str) -> dict[str, Any]:
    """Runs in a process of its own."""
    import resource

    import torch
    from speed import all_different, tiled

    from gentle import GENTLE, datasets

    torch.set_num_threads(1)
    kind, _, n = name.partition(":")
    if kind == "memory":
        table = pd.concat(list(frames(int(n))), ignore_index=True)
        given = (table.drop(columns="y"), table["y"])
        del table
    elif kind == "parquet":
        given = (file, "y")
    else:
        data = datasets.load(kind)
        given = (data.train.X, data.train.y)
    model, profile = GENTLE(random_state=0, verbose=0), cProfile.Profile(time.process_time)
    clock, processor = time.perf_counter(), time.process_time()
    profile.runcall(model.fit, *given)
    found: dict[str, Any] = {
        "seconds": time.process_time() - processor,
        "clock": time.perf_counter() - clock,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # Linux counts in KiB
        "epochs": len(model.history_),
    }
    found["phases"] = by_phase(profile, PHASES)
    if kind != "parquet":
        X = covariates(_N_ROWS, 10**6 + 1) if n else all_different(tiled(given[0]))
        found["answers"] = answered(model, X)
    if n:
        X = covariates(2000, 10**6)
        truth, dist = problem().quantile(X, _LEVELS), model.predict_dist(X)
        y = problem().sample(X, 100, random_state=7)
        values = dist.quantile(_LEVELS)
        found["w1"] = float(np.abs(values - truth).mean())
        best = _crps(truth, y)
        found["excess"] = float((_crps(values, y) - best) / best)
    else:
        rows = np.random.default_rng(0).permutation(len(data.val.y))[:2000]
        from gentle.columns import taken

        y = np.asarray(data.val.y, float)[rows]
        found["crps"] = float(model.predict_dist(taken(data.val.X, rows)).crps(y).mean())
    return found


def answered(model: Any, X: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Seconds by phases of 10,000 draws at 1,000 covariates and of 100 quantiles of all."""
    levels = np.linspace(0.005, 0.995, 100)
    questions = {
        "draws": lambda: model.sample(X.iloc[:1000], 10_000, random_state=0),
        "quantiles": lambda: model.predict_quantiles(X, levels),
    }
    found = {}
    for name, ask in questions.items():
        ask()  # what is prepared once is not counted
        profile = cProfile.Profile(time.process_time)
        started = time.process_time()
        profile.runcall(ask)
        seconds = time.process_time() - started
        found[name] = by_phase(profile, ANSWERS) | {"all": seconds}
    return found


def by_phase(profile: cProfile.Profile, phases: dict[str, Any]) -> dict[str, float]:
    """Seconds of the phases' functions, with all that they call."""
    times: dict[str, float] = {}
    for (path, _, function), row in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for phase, functions in phases.items():
            if (Path(path).name, function) in functions:
                times[phase] = times.get(phase, 0.0) + row[3]
    return times


def _crps(quantiles: np.ndarray, y: np.ndarray) -> float:
    """Mean CRPS of forecasts by their quantiles ``(n, L)`` at draws ``(n, m)``."""
    gap = y[:, :, None] - quantiles[:, None]
    return float(2 * np.maximum(_LEVELS * gap, (_LEVELS - 1) * gap).mean())


def measured(name: str, package: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        if name.startswith("parquet:"):
            write(int(name.split(":")[1]), file)
        path = {} if package is None else {"PYTHONPATH": str(package)}
        child = subprocess.run(
            [sys.executable, __file__, "--child", name, str(file)],
            capture_output=True,
            text=True,
            env=os.environ | path,
        )
    if child.returncode:
        raise RuntimeError(child.stderr)
    return json.loads(child.stdout.splitlines()[-1])


def records() -> list[dict[str, Any]]:
    return json.loads(RECORDS.read_text()) if RECORDS.exists() else []


def record(found: dict[str, Any]) -> None:
    """Take down what was measured, in the place of an earlier measurement, and report all."""
    who = (found["fit"], found["version"])
    results = [one for one in records() if (one["fit"], one["version"]) != who] + [found]
    order = {name: number for number, name in enumerate(FITS)}
    results.sort(key=lambda one: (order.get(one["fit"], len(FITS)), one["version"]))
    RECORDS.write_text(json.dumps(results, indent=1) + "\n")
    REPORT.write_text(report(results))


def report(results: list[dict[str, Any]]) -> str:
    days = sorted({one["date"] for one in results})
    lines = [
        "# Scale: where the seconds go, and what a million rows cost",
        "",
        f"`python benchmarks/scale.py`, {platform.machine()}, one thread, "
        f"{' to '.join(dict.fromkeys([days[0], days[-1]]))}. "
        + " ".join(__doc__.split("\n\n")[1].split()),
        "",
        "| fit | version | seconds | by the clock | peak MiB | W1 to the truth | excess CRPS "
        "| CRPS, validation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        cells = [_number(one.get(key), form) for key, form in _CELLS]
        lines.append(f"| {one['fit']} | {one['version']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Where the seconds go",
        "",
        "Seconds of the processor. Phases that a fit does not have are empty; what is left is "
        "imports (2 to 3 s, once in a process), the network that answers (2 s, from 80,000 rows "
        "on about 7 s) and bookkeeping. Rows of a file are asked of the boosted trees while they "
        "are encoded: those seconds are in both.",
        "",
        "| fit | version | " + " | ".join(PHASES) + " | all |",
        "|---|---|" + "---|" * (len(PHASES) + 1),
    ]
    for one in results:
        cells = [_number(one["phases"].get(phase), ".1f") for phase in PHASES]
        cells.append(_number(one["seconds"], ".1f"))
        lines.append(f"| {one['fit']} | {one['version']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Where the seconds of answers go",
        "",
        "Hundredths of a second of the processor, one thread: 10,000 draws at each of 1,000 "
        "covariates, and 100 quantiles of 100,000 different rows.",
        "",
        "| model of | answer | " + " | ".join(ANSWERS) + " | all |",
        "|---|---|" + "---|" * (len(ANSWERS) + 1),
    ]
    for one in results:
        for question, times in one.get("answers", {}).items():
            cells = [_number(times.get(phase, 0.0) * 100, ".1f") for phase in [*ANSWERS, "all"]]
            lines.append(f"| {one['fit']} | {question} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_CELLS = (
    ("seconds", ",.0f"), ("clock", ",.0f"), ("peak", ",.0f"), ("w1", ".4f"), ("excess", ".2%"),
    ("crps", ".4g"),
)  # fmt: skip


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", help="measure these, even if there are records of them")
    parser.add_argument("--before", type=Path, help="folder that holds an earlier package")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(fitted(*given.child)))
        return
    done = {(one["fit"], one["version"]) for one in records()}
    for name in given.fits.split(",") if given.fits else FITS:
        earlier = given.before is not None and not name.startswith("parquet")
        for version in ("before", "now") if earlier else ("now",):
            if given.fits or (name, version) not in done:
                found = measured(name, given.before if version == "before" else None)
                found |= {"fit": name, "version": version, "date": str(date.today())}
                print(json.dumps(found), flush=True)
                record(found)


if __name__ == "__main__":
    main()
