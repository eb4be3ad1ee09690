"""Aspirin or statin for a given patient? A model in place of the esophageal cancer simulator.

    python examples/replace_a_simulator.py --out patient

The simulator follows patients with Barrett's esophagus until they die and counts quality-adjusted
life years (QALYs). It is run once at each of many inputs; a model learns the whole distribution of
QALYs from these runs and answers for patients who were never simulated. This patient then is, many
times, to see whether the answers are right.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from gentle import metamodel
from gentle.datasets.ecm import simulate_ecm

SPACE = {
    "Barrett": (0.0, 0.1),  # yearly risk of cancer
    "aspirinEffect": (0.0, 1.0),  # relative reduction of the risk
    "statinEffect": (0.0, 1.0),
    "drugIndex": [1, 2],
    "initialAge": range(55, 81),
}
PATIENT = {"Barrett": 0.08, "aspirinEffect": 0.4, "statinEffect": 0.2, "initialAge": 60}
DRUGS = {"aspirin": 1, "statin": 2}
THRESHOLDS = (5, 10, 20)


def simulator(X: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """One life per row, in QALYs, without the benchmark's control variate."""
    return simulate_ecm(X, control_variate=False, random_state=rng)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="A model in place of a simulator.")
    parser.add_argument("--out", type=Path, default=Path("patient"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="few runs, small networks")
    parser.add_argument("--workers", type=int, default=2, help="processes that share the refits")
    args = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")  # pictures go to files
    from gentle import GENTLE

    inputs = metamodel.design(SPACE, 1024 if args.quick else 32_768)
    table = metamodel.replicate(simulator, inputs, random_state=1)
    print(f"Design and replicate: {len(table):,} lives, one at each input.")
    model = GENTLE(n_steps=100, random_state=0, verbose=0)
    if args.quick:
        model.set_params(hidden_widths=(8,), n_trees=0)
    model.fit(*table)

    n_lives = 200 if args.quick else 2000
    fresh = metamodel.design(SPACE, 10 if args.quick else 30, random_state=2)
    print(f"\nValidate.\n{metamodel.validate(model, simulator, fresh, n_lives, random_state=3)}")

    patients = pd.DataFrame([PATIENT | {"drugIndex": drug} for drug in DRUGS.values()])[list(SPACE)]
    lives = metamodel.replicate(
        simulator, patients, 2000 if args.quick else 200_000, random_state=4
    ).y.reshape(2, -1)
    risk = metamodel.risk(
        model,
        patients,
        level=0.95,
        tail="lower",
        thresholds=THRESHOLDS,
        data=(table.X, table.y),
        n_boot=2 if args.quick else 12,
        confidence=0.9,
        n_workers=1 if args.quick else args.workers,
    )
    risk.insert(0, "drug", np.array(list(DRUGS))[risk.pop("row")])
    risk["simulated"] = [value for life in lives for value in of_lives(life)]
    shown = ", ".join(f"{name} {value:g}" for name, value in PATIENT.items())
    print(f"\nThe patient: {shown}. VaR 95%: in 1 of 20 lives it is less.")
    print(risk.to_string(index=False, float_format="{:.3g}".format))
    inside = risk["simulated"].between(risk["lower"], risk["upper"])
    print(
        f"{inside.sum()} of {len(risk)} simulated values lie in the model's 90 % intervals, which "
        "know of the chance of the training runs only."
    )

    found = metamodel.contrast(model, patients[:1], patients[1:], n_draws=1000)
    print(
        f"\nStatin minus aspirin on common random numbers (the same levels u for both): "
        f"{found.difference[0]:.3f} ± {found.standard_error[0]:.3f} QALYs from 1,000 draws each "
        f"(the error of drawing, not that of the model); independent draws would give "
        f"± {found.independent_error[0]:.3f} and would have to be "
        f"{found.variance_reduction[0]:,.0f} times as many. The simulator says "
        f"{lives[1].mean() - lives[0].mean():.3f}. At {found.larger[0]:.0%} of the levels statin "
        "gives more; that is a statement about two distributions laid side by side, quantile by "
        "quantile, not about this patient's two possible lives, which nobody sees together."
    )

    many = metamodel.design(SPACE, 200, random_state=5)
    print(f"\n{metamodel.speed_up(model, simulator, many, n_draws=5 * n_lives)}")
    print("This simulator is made for speed: it draws stays in states instead of single months.")
    draw(model, patients, lives, args.out)


def of_lives(life: np.ndarray) -> list[float]:
    """The measures of `metamodel.risk` from simulated lives."""
    worst = np.sort(life)[: len(life) // 20]
    return [worst[-1], worst.mean(), *(np.mean(life > t) for t in THRESHOLDS)]


def draw(model, patients: pd.DataFrame, lives: np.ndarray, out: Path) -> None:
    from gentle import plots

    left, right = plots.row_of_axes(2)
    levels = np.linspace(0.005, 0.995, 199)
    quantiles = model.predict_quantiles(patients, levels)
    simulated = np.quantile(lives, levels, axis=1).T
    for drug, mine, true, colour in zip(DRUGS, quantiles, simulated, ("#0072B2", "#D55E00")):
        left.plot(mine, levels, color=colour, label=f"{drug}, model")
        left.plot(true, levels, color=colour, linestyle=":", label=f"{drug}, simulator")
    left.set(xlabel="QALYs", ylabel="probability of at most that")
    years = np.arange(0, 41.0)
    above = 1 - model.cdf(patients, np.tile(years, (2, 1)))
    seen = np.array([[np.mean(life > t) for t in years] for life in lives])
    right.plot(years, above[1] - above[0], color="black", label="model")
    right.plot(years, seen[1] - seen[0], color="black", linestyle=":", label="simulator")
    right.set(xlabel="QALYs", ylabel="probability of more than that:\nstatin minus aspirin")
    right.axhline(0, color="#999999", linewidth=1)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    out.mkdir(parents=True, exist_ok=True)
    left.figure.savefig(out / "patient.png", dpi=150)
    print(f"Look at {out}/patient.png.")


if __name__ == "__main__":
    main()
