"""The made-up people of `gentle explore`, and the small model of their incomes that it shows.

    python examples/explorer_demo.py [--out src/gentle/explorer/bundled]

Nobody's data: every row comes from the formulas below. Incomes are 0 for those without paid work
and cut at 100 thousand a year, as in many surveys, so that the response has an atom at each end.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import gentle

OCCUPATIONS = ["care", "crafts", "office", "teaching", "technology"]
TOP_CODE = 100.0
N_PEOPLE = 2000


def people(n, rng):
    """A table of people with their incomes."""
    age = rng.integers(20, 67, n)
    schooling = np.clip(np.round(rng.normal(12.5, 2.5, n)), 8, 20)
    leaning = np.array([0.25, 0.25, 0.25, 0.0, 0.1]) + np.outer(
        schooling - 12, [-0.02, -0.04, 0.0, 0.05, 0.04]
    )
    share = np.clip(leaning, 0.02, None).cumsum(axis=1)
    occupation = (rng.uniform(0, share[:, -1])[:, None] > share).sum(axis=1)
    children = np.minimum(rng.poisson(np.where(age < 30, 0.5, 1.2)), 4)
    partner = rng.random(n) < np.where(age < 28, 0.4, 0.7)
    commute = np.round(rng.lognormal(3.1, 0.6, n))

    middle = (age - 48) / 28
    log_income = (
        2.75
        + 0.055 * (schooling - 8)
        + 0.45 * (1 - middle**2)
        + np.array([0.0, 0.1, 0.12, 0.3, 0.38])[occupation]
        + 0.002 * np.minimum(commute, 60)
    )
    spread = np.array([0.25, 0.45, 0.35, 0.18, 0.5])[occupation] * (0.8 + 0.5 * (age > 40))
    income = np.exp(log_income + spread * rng.normal(size=n))
    reluctance = (
        -2.6
        + 0.5 * children * ~partner
        + 0.25 * children
        + 0.9 * (age < 24)
        + 0.12 * (age - 58).clip(0)
    )
    idle = rng.random(n) < 1 / (1 + np.exp(0.12 * (schooling - 12) - reluctance))
    income = np.where(idle, 0.0, np.minimum(income, TOP_CODE))
    return pd.DataFrame(
        {
            "age": age,
            "schooling_years": schooling.astype(int),
            "occupation": np.array(OCCUPATIONS)[occupation],
            "children": children,
            "partner": partner,
            "commute_minutes": np.where(rng.random(n) < 0.1, np.nan, commute),
            "income_thousand": income.round(2),
        }
    )


def main():
    """Write the table and the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(gentle.__file__).parent / "explorer" / "bundled"
    parser.add_argument("--out", type=Path, default=default, help="folder to write")
    out = parser.parse_args().out
    table = people(N_PEOPLE, np.random.default_rng(7))
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "people.csv", index=False)
    X, y = table.drop(columns="income_thousand"), table["income_thousand"]
    model = gentle.GENTLE(hidden_widths=(32, 32), n_trees=8, random_state=0, verbose=0).fit(X, y)
    model.save(out / "model", overwrite=True)
    print(model.summary())
    print(f"{sum(f.stat().st_size for f in out.rglob('*') if f.is_file()):,} bytes in {out}")


if __name__ == "__main__":
    main()
