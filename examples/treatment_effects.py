"""What did the training programme do to earnings? LDW-CPS beside the experiment it comes from.

    python examples/treatment_effects.py --out effects

185 men took part in the NSW training programme, drawn by lot from those who wanted to. Here their
controls by lot are taken away and 15,992 men of a survey (CPS) put in their place, who are older,
better paid and hardly ever like them. Can a model of earnings, given who somebody is, still tell
what the programme did? The experiment knows the answer, so that one can see how far off it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

LEVELS = np.arange(1, 20) / 20
SHOWN = [0.1, 0.25, 0.5, 0.75, 0.9]


def experiment(n_draws: int = 2000) -> pd.DataFrame:
    """Differences of mean and quantiles between the two groups by lot, with standard errors."""
    from causaldata import nsw_mixtape

    data = nsw_mixtape.load_pandas().data
    groups = [data.loc[data["treat"] == arm, "re78"].to_numpy(float) for arm in (0, 1)]
    rng = np.random.default_rng(0)

    def differences(control: np.ndarray, treated: np.ndarray) -> np.ndarray:
        means, quantiles = ([f(g) for g in (control, treated)] for f in (np.mean, _quantiles))
        return np.append(np.diff(means), quantiles[1] - quantiles[0])

    draws = [differences(*(rng.choice(g, len(g)) for g in groups)) for _ in range(n_draws)]
    table = pd.DataFrame({"effect": differences(*groups), "error": np.std(draws, axis=0)})
    print(
        f"The experiment: {len(groups[1])} treated, {len(groups[0])} controls by lot; difference "
        f"of means ${table['effect'][0]:,.0f} (standard error ${table['error'][0]:,.0f})."
    )
    return table.set_index(pd.Index(["mean", *LEVELS.round(2)]))


def _quantiles(y: np.ndarray) -> np.ndarray:
    return np.quantile(y, LEVELS)


def all_rows() -> tuple[pd.DataFrame, pd.Series]:
    """LDW-CPS whole, in place of the three parts of the benchmark."""
    import gentle

    data = gentle.datasets.load("ldw-cps")
    parts = (data.train, data.val, data.test)
    X = pd.concat([part.X for part in parts], ignore_index=True)
    return X, pd.Series(np.concatenate([part.y for part in parts]), name="re78")


def main() -> None:
    parser = argparse.ArgumentParser(description="Effects of a training programme on earnings.")
    parser.add_argument("--out", type=Path, default=Path("effects"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="small networks, few refits")
    parser.add_argument("--workers", type=int, default=2, help="processes that share the refits")
    args = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")  # pictures go to files
    from gentle import GENTLE
    from gentle.effects import treatment_effects

    truth = experiment()
    X, y = all_rows()
    treated = X["treat"] == 1
    naive = y[treated].mean() - y[~treated].mean()
    print(f"The data here: {len(X):,} rows. Treated minus survey: ${naive:,.0f}.\n")

    # Shorter training than the default, because it is repeated for the intervals.
    model = GENTLE(n_steps=100, random_state=0, verbose=0)
    if args.quick:
        model.set_params(hidden_widths=(8,), n_trees=0)
    model.fit(X, y)
    effects = treatment_effects(
        model,
        X,
        y,
        "treat",
        population="treated",
        levels=LEVELS,
        thresholds=[0, 5000, 10_000, 20_000],
        n_boot=2 if args.quick else 24,
        confidence=0.9,
        n_workers=1 if args.quick else args.workers,
    )
    print(effects)

    by_level = effects.quantiles.set_index(LEVELS.round(2))
    beside = pd.concat([effects.mean.set_index([["mean"]]), by_level.loc[SHOWN]])
    beside = beside[["effect", "lower", "upper"]].assign(
        experiment=truth["effect"], error=truth["error"]
    )
    print("\nBeside the experiment, in dollars of 1978:")
    print(beside.to_string(float_format="{:,.0f}".format))
    quantile_effects = truth.loc[LEVELS.round(2), "effect"]
    held = quantile_effects.between(by_level["uniform_lower"], by_level["uniform_upper"])
    print(f"\n{honest(beside.loc['mean'], effects, naive)}")
    print(f"Of {len(held)} quantile effects of the experiment the band holds {held.sum()}.")

    args.out.mkdir(parents=True, exist_ok=True)
    axis = effects.plot(unit="1978 US dollars")
    bars = {"color": "#D55E00", "fmt": "o", "markersize": 4, "elinewidth": 1, "zorder": 3}
    lots = truth.loc[LEVELS.round(2)]
    axis.errorbar(
        LEVELS, lots["effect"], 1.645 * lots["error"], label="experiment, 90 %", alpha=0.7, **bars
    )
    axis.set_title("Training programme: effect on the treated, from survey controls", fontsize=10)
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    axis.figure.savefig(args.out / "effects.png", dpi=150)
    print(f"Look at {args.out}/effects.png.")


def honest(mean: pd.Series, effects, naive: float) -> str:
    """How far off the estimate is, and why, from the numbers."""
    gap, width = mean["effect"] - mean["experiment"], mean["upper"] - mean["lower"]
    inside = mean["lower"] <= mean["experiment"] <= mean["upper"]
    return (
        f"The mean effect is off by ${gap:,.0f} from the experiment's ${mean['experiment']:,.0f}, "
        f"which is itself known to ± ${1.645 * mean['error']:,.0f}; the experiment lies "
        f"{'inside' if inside else 'OUTSIDE'} the interval, which is ${width:,.0f} wide. Without "
        f"the covariates one would be off by ${naive - mean['experiment']:,.0f}. What is left has "
        "three sources: the survey's men differ from the trainees, so that the answer rests on the "
        f"few who do not ({effects.overlap.n_trimmed} trainees have hardly any counterpart and are "
        "left out, while the experiment counts them); what made men apply is not in the data; and "
        "the model: other models and other settings give other numbers from the same rows, which "
        "no interval here shows."
    )


if __name__ == "__main__":
    main()
