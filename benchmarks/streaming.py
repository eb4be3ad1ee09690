"""Peak memory and speed of sampling many rows × draws from a saved model into a Parquet file.

A model is fitted to 500 rows with five covariates and saved, covariates of new rows are written
to a Parquet file, and a process of its own, with one thread, reads the one and streams draws for
the other into a third file. Its peak resident memory is that of Python, PyTorch and all else.

python benchmarks/streaming.py
python benchmarks/streaming.py --models KNN --rows 1000000 --draws 100
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

_CHILD = """
import json, resource, sys, time
import gentle
model, table, out, draws = gentle.load(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
begin = time.perf_counter()
rows = gentle.streaming.sample_to_parquet(model, table, out, draws, random_state=0)
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
print(json.dumps({"rows": rows, "seconds": seconds, "peak": peak}))
"""


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = {name: rng.normal(size=n) for name in ("age", "income", "height", "weight")}
    return pd.DataFrame(numbers | {"town": rng.choice(["Rome", "Oslo", "Bern"], n)})


def measured(name: str, n_rows: int, n_draws: int, folder: Path) -> str:
    import gentle

    X = table(500, seed=0)
    y = X["age"] + np.exp(X["income"] / 2) * np.random.default_rng(1).normal(size=len(X))
    model = getattr(gentle, name)(random_state=0, verbose=0)
    model.fit(X, y.clip(0)).save(folder / name)
    table(n_rows, seed=2).to_parquet(folder / "rows.parquet")
    arguments = [folder / name, folder / "rows.parquet", folder / "draws.parquet", n_draws]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(child.stdout)
    size = (folder / "draws.parquet").stat().st_size
    (folder / "draws.parquet").unlink()
    return (
        f"{name}: {found['rows']:,} rows × {n_draws} draws in {found['seconds']:,.0f} s "
        f"({found['rows'] * n_draws / found['seconds']:,.0f} draws a second), "
        f"peak memory {found['peak']:,.0f} MiB, file {size / 2**20:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="KNN,GENTLE")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    print(f"{platform.machine()}, one thread, Python {platform.python_version()}", flush=True)
    for name in given.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(measured(name, given.rows, given.draws, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
