"""Train GENTLE on LDW-CPS and see how close it comes to held-out responses (`make demo`).

    python examples/demo.py --out demo

The data: 16,177 people of the LaLonde-Dehejia-Wahba study and the Current Population Survey; nine
covariates, the response is what they earned in 1978. Held out are the twelve covariate vectors that
occur more than 30 times, so that whole distributions can be compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train GENTLE on LDW-CPS and compare.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for what it writes")
    parser.add_argument("--steps", type=int, default=3000, help="largest number of training steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    console.print("Loading torch and the data …")
    import matplotlib
    import torch

    import gentle
    from gentle import GENTLE, KNN, Marginal, metrics, plots

    matplotlib.use("Agg")  # pictures go to files
    torch.set_num_threads(os.cpu_count() or 1)
    started = time.perf_counter()
    data = gentle.datasets.load("ldw-cps")
    console.print(
        f"{data.description}: {len(data.train):,} rows to train on, {len(data.val)} to validate, "
        f"{len(data.test)} held out."
    )

    verbose = 1 if sys.stderr.isatty() else 2  # a bar for people, lines for logs
    models = {
        "Marginal": Marginal(random_state=args.seed),
        "KNN": KNN(n_neighbors=100, random_state=args.seed),
        "GENTLE": GENTLE(n_steps=args.steps, random_state=args.seed, verbose=verbose),
    }
    seconds = {}
    for name, model in models.items():
        begin = time.perf_counter()
        model.fit(*data.train, eval_set=tuple(data.val))
        seconds[name] = time.perf_counter() - begin

    console.print("Scoring 10,000 draws for each held-out covariate …")
    scores = {name: metrics.evaluate(m, *data.test).summary() for name, m in models.items()}
    floor = metrics.noise_floor(models["KNN"], *data.test)

    labels = {
        "Marginal": "marginal of y",
        "KNN": "100 neighbours",
        "GENTLE": "GENTLE",
    }
    table = Table(title="How close to the held-out responses? Smaller is better.")
    for column in ("", "WD (dollars)", "KS", "CRPS (dollars)", "fit"):
        table.add_column(column, justify="left" if not column else "right")
    for name, label in labels.items():
        s = scores[name]
        table.add_row(
            label,
            f"{s['wd']:,.0f}",
            f"{s['ks']:.3f}",
            f"{s['crps']:,.0f}",
            f"{seconds[name]:.1f} s",
        )
    wd, ks, crps = (floor.loc[metric] for metric in ("wd", "ks", "crps"))
    table.add_row(
        "noise floor",
        f"{wd['mean']:,.0f} ± {wd['sd']:,.0f}",
        f"{ks['mean']:.3f} ± {ks['sd']:.3f}",
        f"{crps['mean']:,.0f} ± {crps['sd']:,.0f}",
        "",
    )
    console.print(table)
    closest = min(scores, key=lambda name: scores[name]["crps"])
    console.print(f"Closest by CRPS, the proper score of the three: {labels[closest]}.")
    console.print(
        "WD: mean 1-Wasserstein distance between draws and held-out responses; KS: "
        "Kolmogorov-Smirnov distance; CRPS: continuous ranked probability score. The marginal "
        "ignores the covariates. The noise floor is what a perfect model would score: fresh draws "
        "of the neighbours' responses against their own distribution.",
        style="dim",
    )

    args.out.mkdir(parents=True, exist_ok=True)
    shown = {name: models[name] for name in ("GENTLE", "KNN")}
    axes = plots.densities(shown, *data.test, unit=f"{data.response}, {data.unit}")
    axes.flat[0].figure.savefig(args.out / "densities.png", dpi=150)
    plots.history(models["GENTLE"]).figure.savefig(args.out / "training.png", dpi=150)
    models["GENTLE"].save(args.out / "model", overwrite=True)
    console.print(
        f"Done in {time.perf_counter() - started:.0f} s. Look at {args.out}/densities.png and "
        f"{args.out}/training.png; the model is in {args.out}/model:\n"
        f"    gentle.load('{args.out}/model').sample(X, n_samples=1000)"
    )


if __name__ == "__main__":
    main()
