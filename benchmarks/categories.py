"""What it is worth that long categories keep up to 200 levels, on validation data.

Every problem is fitted by GENTLE() as it is, and with the narrower rule that it had before: at most
50 levels, each with half a percent of the weight. "cars" are made up: 3,000 rows of 400 models with
unequal frequencies, an effect of the model with a standard deviation of 1, 0.3 or 0 beside a spread
of about 1; "gapminder" has 142 countries, about six rows each.

    python benchmarks/categories.py       # a quarter of an hour on one core
"""

from __future__ import annotations

import platform
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from harness import markdown
from tables import Tables

from gentle import GENTLE, covariates

RULES = {"narrow": (50, 10**9), "now": (covariates._MAX_LEVELS, covariates._SURE_ROWS)}
CARS = {"cars, strong effect": 1.0, "cars, weak effect": 0.3, "cars, no effect": 0.0}
SEEDS = range(3)
REPORT = Path(__file__).with_suffix(".md")


def cars(effect: float, seed: int, n_rows: int = 3000) -> tuple[Any, ...]:
    """Rows to fit, and 3,000 to score."""
    rng, n_models = np.random.default_rng(seed), 400
    share = np.arange(1, n_models + 1) ** -0.7
    n = n_rows + 3000
    model = rng.choice(n_models, n, p=share / share.sum())
    of_model = effect * rng.normal(size=n_models)
    age, km = rng.uniform(0, 15, n), rng.gamma(2, 50, n)
    sold_by_dealer = rng.integers(0, 2, n)
    middle = of_model[model] - 0.1 * age - 0.005 * km + 0.5 * sold_by_dealer * (age > 7)
    y = middle + (0.5 + 0.05 * age) * rng.normal(size=n)
    names = [f"model {number}" for number in model]
    X = pd.DataFrame({"model": names, "age": age, "km": km, "dealer": sold_by_dealer})
    return X[:n_rows], y[:n_rows], None, X[n_rows:], y[n_rows:]


def gapminder(seed: int) -> tuple[Any, ...]:
    """Parts of the training and validation rows; no test row is looked at."""
    table = Tables()
    options = table.options(max_rows=2000, validation=True)
    train, val, scored = table.parts("gapminder", seed, options)
    return train.X, train.y, (val.X, val.y), scored.X, scored.y


def crps(rule: str, parts: tuple[Any, ...], seed: int) -> float:
    X, y, eval_set, X_new, y_new = parts
    most, sure = RULES[rule]
    with (
        patch.object(covariates, "_MAX_LEVELS", most),
        patch.object(covariates, "_SURE_ROWS", sure),
    ):
        model = GENTLE(random_state=seed, verbose=0).fit(X, y, eval_set=eval_set)
        return float(model.predict_dist(X_new).crps(y_new).mean())


def main() -> None:
    torch.set_num_threads(1)
    lines = []
    for name in ("gapminder", *CARS):
        found: dict[str, list[float]] = {rule: [] for rule in RULES}
        for seed in SEEDS:
            parts = gapminder(seed) if name == "gapminder" else cars(CARS[name], seed)
            for rule in RULES:
                found[rule].append(crps(rule, parts, seed))
        ratio = np.array(found["now"]) / np.array(found["narrow"])
        low, middle, high = np.sort(ratio)
        lines.append(
            {"problem": name}
            | {f"CRPS, {rule}": f"{np.mean(found[rule]):.4g}" for rule in RULES}
            | {"ratio": f"{middle:.3f} ({low:.3f} to {high:.3f})"}
        )
        print(lines[-1], flush=True)
    said = (
        f"`python benchmarks/categories.py`, {date.today()}, {platform.machine()}, one thread. "
        "CRPS on validation rows, mean of three seeds, with at most 50 levels that have half a "
        "percent of the weight each, and as it is now; the ratio is the median of three with the "
        "smallest and the largest, below 1 where more levels help."
    )
    text = f"# Long categories\n\n{said}\n\n{markdown(lines)}\n"
    REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
