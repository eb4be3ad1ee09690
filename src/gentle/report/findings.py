"""What a model says about held-out rows, and how that went: the numbers of a report."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle import diagnostics
from gentle.columns import Columns, taken
from gentle.data import group_rows
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.support import MARGIN, OutOfSupportWarning

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Frame = Any  # a DataFrame, of whose cells type checkers know too little

COVERAGES = (0.5, 0.8, 0.9)
LEVELS = (0.05, 0.5, 0.95)  # of the quantiles that are shown
FEW = 20  # rows of a subgroup, too few to say that all is well
_ERROR = 0.05  # probability that a right model has any subgroup called wrong
_N_TABLES = 1000  # simulated ones
_MIDDLES = (np.arange(50) + 0.5) / 50
_N_ATOMS = 5
_ATOM_SHARE = 0.01
_COLUMNS: Any = (
    *("column", "group", "n", "verdict", "covered", "lower", "upper"),
    *("crps", "expected", "excess"),
)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The rows that a report is about.

    Attributes:
        X: Covariates as given, ``(n, d)``.
        y: Responses, ``(n,)``.
        table: The covariates, read.
        covariate: A number for each row, equal for equal covariates, ``(n,)``.
        at: Where the rows stand in the user's table, ``(n,)``.
        n_given: Number of rows there.
    """

    X: Any
    y: Floats
    table: Columns
    covariate: Ints
    at: Ints
    n_given: int

    @classmethod
    def of(cls, X: Any, y: Floats, max_rows: int, rng: np.random.Generator) -> HeldOut:
        """All rows of a table, or if there are more than ``max_rows`` so many at random."""
        at = np.arange(len(y))
        if len(y) > max_rows:
            at = np.sort(rng.permutation(len(y))[:max_rows])
        part = taken(X, at)
        table = Columns.of(part)
        return cls(part, y[at], table, group_rows(table.keys())[1], at, len(y))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def counts(self) -> Ints:
        """Responses of each different covariate."""
        return np.bincount(self.covariate)


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says about held-out rows, and how far that is from the responses.

    Attributes:
        crps: Score of each response, ``(n,)``.
        expected: What the model itself expects to score there: the mean of the CRPS over its own
            distribution, ``(n,)``.
        imagined: The CRPS of responses at its own quantiles of levels 0.01, 0.03, ..., 0.99,
            ``(n, 50)``.
        pit: Levels of the responses, ``(n,)``.
        quantiles: At `LEVELS`, ``(n, 3)``.
        coverage: As `gentle.diagnostics.coverage` gives it.
        atoms: Frequent responses: ``value``, its share ``observed``, and the mean ``predicted``
            probability of it.
        support: As `gentle.diagnostics.support` gives it.
        said: Warnings while the model answered, but those of rows out of its support.
    """

    crps: Floats
    expected: Floats
    imagined: Floats
    pit: Floats
    quantiles: Floats
    coverage: Frame
    atoms: Frame
    support: Frame
    said: list[str]

    @classmethod
    def of(cls, model: Any, held: HeldOut, X_train: Any, seed: int) -> Answers:
        """Ask a model."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist = model.predict_dist(held.X)
        said = [
            " ".join(str(warning.message).split())
            for warning in caught
            if issubclass(warning.category, UserWarning)
            and not issubclass(warning.category, OutOfSupportWarning)
        ]
        imagined = dist.crps(dist.quantile(_MIDDLES))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they would say the same about the training rows
            support = diagnostics.support(model, held.X, X_train)
        return cls(
            crps=dist.crps(held.y),
            expected=imagined.mean(axis=1),
            imagined=imagined,
            pit=diagnostics.pit(dist, None, held.y, random_state=seed),
            quantiles=dist.quantile(LEVELS),
            coverage=diagnostics.coverage(
                dist, None, held.y, coverages=COVERAGES, random_state=seed
            ).loc["all rows"],
            atoms=_atoms(dist, held.y),
            support=support,
            said=list(dict.fromkeys(said)),
        )

    @property
    def far(self) -> NDArray[np.bool_]:
        """Rows with a value far beyond those of the training data, ``(n,)``."""
        return self.support["excess"].to_numpy() > MARGIN

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """Rows whose response is outside of all that the model thought possible, ``(n,)``."""
        return (self.pit <= 0) | (self.pit >= 1)

    def levels(self) -> tuple[ConditionalDistribution, Floats]:
        """Uniform distributions and the PIT values, which say the same as model and responses.

        All of `gentle.diagnostics` that is about levels gives the same numbers for them, and does
        not ask the model again.
        """
        return QuantileTable([0.0, 1.0], [[0.0, 1.0]]).repeat(len(self.pit)), self.pit

    def excess(self, rows: Ints | slice = slice(None)) -> float:
        """Standard deviations by which the CRPS of some rows is above what the model expects.

        Of a right model about standard normal.
        """
        surplus = np.sum(self.crps[rows] - self.expected[rows])
        noise = np.sqrt(np.sum(self.imagined[rows].var(axis=1)))
        if noise == 0:  # points, which are hit or not
            return 0.0 if surplus <= 1e-9 * np.abs(self.crps).max() else np.inf
        return float(surplus / noise)


def _atoms(dist: ConditionalDistribution, y: Floats) -> Frame:
    values, count = np.unique(y, return_counts=True)
    often = [i for i in np.argsort(-count, kind="stable")[:_N_ATOMS] if count[i] > 1]
    often = [i for i in often if count[i] >= _ATOM_SHARE * len(y)]
    value = values[often]
    # An atom may come back from standardised units a few roundings away.
    reach = 64 * np.finfo(float).eps * (np.abs(value) + np.abs(y).mean())
    ends = np.tile(np.concatenate([value - reach, value + reach]), (len(y), 1))
    mass = np.diff(dist.cdf(ends).reshape(len(y), 2, -1), axis=1)[:, 0] if often else ends
    return pd.DataFrame(
        {"value": value, "observed": count[often] / len(y), "predicted": mass.mean(axis=0)}
    )


def calibration_of(answers: Answers, by: Any = None, error: float = _ERROR) -> Frame:
    """`gentle.diagnostics.calibration`, without asking the model again."""
    unit, pit = answers.levels()
    return diagnostics.calibration(unit, None, pit, by, confidence=1 - error)


def subgroups(answers: Answers, partitions: Mapping[str, pd.Series]) -> Frame:
    """How a model does in subgroups.

    Args:
        answers: What it says.
        partitions: The subgroup of each row, by several columns.

    Returns:
        A row per column and subgroup: ``n`` rows; the ``verdict`` of
        `gentle.diagnostics.calibration`, for which all of a right model's are "calibrated" with
        probability 0.95 ("too few rows" stands for the same below 20); ``covered``, ``lower`` and
        ``upper``, the share of responses in the middle 90 % and its confidence interval; ``crps``
        and what the model itself ``expected``; ``excess``, their difference in standard deviations.
    """
    unit, pit = answers.levels()
    rows = []
    for column, groups in partitions.items():
        # Names of our own, which no level can have: a level may well be called "missing".
        codes = groups.cat.codes.astype(str).radd("group ")
        verdicts = calibration_of(answers, codes, _ERROR / len(partitions))["verdict"]
        covered = diagnostics.coverage(unit, None, pit, codes, coverages=[0.9])
        for code, name in enumerate(groups.cat.categories):
            members = np.flatnonzero(groups.cat.codes == code)
            verdict = verdicts[f"group {code}"].iloc[0]
            n, observed, lower, upper = covered.loc[f"group {code}"].iloc[0, :4]
            if verdict == "calibrated" and n < FEW:
                verdict = "too few rows"
            rows.append(
                {
                    "column": column,
                    "group": name,
                    "n": int(n),
                    "verdict": verdict,
                    "covered": observed,
                    "lower": lower,
                    "upper": upper,
                    "crps": answers.crps[members].mean(),
                    "expected": answers.expected[members].mean(),
                    "excess": answers.excess(members),
                }
            )
    return pd.DataFrame(rows, columns=_COLUMNS)


def rare_excess(answers: Answers, partitions: Mapping[str, pd.Series], seed: int) -> float:
    """What the largest ``excess`` of all subgroups is above with probability 0.05 by chance.

    By simulation: the CRPS of a row is drawn from those that the model imagines, which are skewed.
    """
    members = np.concatenate(
        [np.eye(len(g.cat.categories))[g.cat.codes].T for g in partitions.values()]
    )  # (groups, n)
    n, rng = len(answers.crps), np.random.default_rng(seed)
    noise = np.sqrt(members @ answers.imagined.var(axis=1))
    surplus = answers.imagined - answers.expected[:, None]
    largest = []
    for _ in range(_N_TABLES // 50):
        drawn = surplus[np.arange(n)[:, None], rng.integers(0, 50, (n, 50))]  # 50 tables
        z = np.divide(
            members @ drawn,
            noise[:, None],
            out=np.zeros((len(members), 50)),
            where=noise[:, None] > 0,
        )
        largest.append(z.max(axis=0))
    return float(np.quantile(largest, 1 - _ERROR))


def worst(answers: Answers, held: HeldOut, n: int = 10) -> Frame:
    """The covariates at which a model scores worst beyond what it expects itself.

    Returns:
        The ``n`` worst, by the mean difference of both: ``first`` row, ``n`` responses, their mean
        ``crps``, what was ``expected``, and ``excess``, that is the difference.
    """
    table = pd.DataFrame(
        {
            "covariate": held.covariate,
            "row": np.arange(len(held)),
            "crps": answers.crps,
            "expected": answers.expected,
        }
    )
    found: Frame = table.groupby("covariate").agg(
        first=("row", "first"),
        n=("row", "size"),
        crps=("crps", "mean"),
        expected=("expected", "mean"),
    )
    found["excess"] = found["crps"] - found["expected"]
    return found.sort_values("excess", ascending=False, kind="stable").head(n)
