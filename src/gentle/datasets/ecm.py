"""ECM: quality-adjusted life of patients with Barrett's esophagus, simulated.

The model is that of Hur, Nishioka and Gazelle (2004) and Choi et al. (2014) with the US life table
of 2011 (Arias 2015), as used by Shen, Hong and Zhang (2021). A patient walks month by month over
eight states until death:

====================================  ============================================
state                                 next month
====================================  ============================================
0 Barrett's esophagus (BE)            1 with p1, else 0
1 cancer                              2 with p2(age) = 1.1035 - 0.0023 age, else 3
2 esophagectomy performed             3 with .80, 4 with .16, 5 with .04
3 post esophagectomy                  3
4 inoperable or unresectable          5 with p3, else 4
5 dead                                5
6 BE with chemoprevention             1 with p1', 7 with p4, else 6
7 complication of chemoprevention     0 with p5 (the drug is stopped), else 5
====================================  ============================================

Natural death comes independently of the chain, in the middle of a year of age. No state is entered
twice and the months spent in one are geometric, so a life is a short sum of stays, each cut off by
natural death, and no month has to be stepped through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gentle.datasets.base import Benchmark, Floats, Listing, RandomState, Table

COVARIATES = ("Barrett", "aspirinEffect", "statinEffect", "drugIndex", "initialAge")
LISTING = Listing(
    name="ecm",
    description="Simulated life with Barrett's esophagus under aspirin or statin",
    rows=20_000 + 2 * 200 * 10_000,
    covariates=len(COVARIATES),
    response="quality-adjusted life",
    unit="QALYs",
    column="QALY",
)

_FIRST_AGE, _LAST_AGE = 55, 100
_RANGES = {
    "Barrett": (0.0, 0.99),  # leaves room for the yearly complication rate beside it
    "aspirinEffect": (0.0, 1.0),
    "statinEffect": (0.0, 1.0),
    "drugIndex": (0, 2),
    "initialAge": (_FIRST_AGE, _LAST_AGE),
}
_INTEGERS = ("drugIndex", "initialAge")

# Probability of dying within the year, ages 55 to 100.
_MORTALITY = np.array(
    [
        *(0.007779, 0.008415, 0.009074, 0.009727, 0.010371, 0.011034, 0.011738, 0.012489),
        *(0.013335, 0.014319, 0.015482, 0.016824, 0.018330, 0.019900, 0.021539, 0.023396),
        *(0.025476, 0.027794, 0.030350, 0.033204, 0.036345, 0.039788, 0.043720, 0.048335),
        *(0.053650, 0.059565, 0.065848, 0.072956, 0.080741, 0.089357, 0.099650, 0.110901),
        *(0.123146, 0.136412, 0.150710, 0.166038, 0.182374, 0.199676, 0.217880, 0.236903),
        *(0.256636, 0.276954, 0.297713, 0.318755, 0.339914, 1.0),
    ]
)
_SURVIVAL = np.cumprod(1 - _MORTALITY)  # (46,), P(alive after that age), from age 55
_REACHED = np.append(1.0, _SURVIVAL[:-1])  # (46,), P(alive at that age)
# E[whole years survived + ½ | alive at that age]
_LIFE_EXPECTANCY = np.cumsum(_SURVIVAL[::-1])[::-1] / _REACHED + 0.5

# By drugIndex: none, aspirin, statin. Without a drug nothing is complicated.
_COMPLICATION_RATE = np.array([0.0, 0.0024, 0.001])  # per year
_COMPLICATION_SURVIVAL = np.array([1.0, 0.9576, 0.998])  # p5
_LASTING_HARM = np.array([0.0, 0.058, 0.0])  # probability, after a survived complication
_HARM_WEIGHT = 0.61
_CANCER_WEIGHT, _OPERATED_WEIGHT = 0.5, 0.97
_CONTROL_COEFFICIENT = 0.9
_BLOCK = 65_536  # lives simulated together: their arrays stay in the processor's cache


def simulate_ecm(
    X: pd.DataFrame | None = None,
    n_samples: int = 1,
    control_variate: bool = True,
    random_state: RandomState = None,
    **covariates: ArrayLike,
) -> Floats:
    """Simulated quality-adjusted life years (QALYs).

    Every month alive, the first included, weighs 0.5 in states 1, 2 and 4, 0.97 in state 3 and 1 in
    states 0, 6 and 7; the QALYs are the sum over 12. With aspirin, a survived complication lowers
    the weight of all later months by a further 0.61 with probability 0.058. Conventions:

    - Natural death falls after the sixth transition of a year of age, so that life is cut after
      12 k + 6 months, and the month of the chain's own death no longer counts.
    - p2 takes the patient's age, in whole years, in the month of the cancer.
    - A patient in state 1 who is not operated on (1 - p2) goes on to state 3. The model's published
      diagram sends this branch to state 4; the published simulator, and hence the benchmark, to 3.

    Args:
        X: Covariates with the columns Barrett (yearly risk of cancer, 0 to 0.99; the benchmark uses
            0 to 0.1), aspirinEffect and statinEffect (relative reduction of the risk, 0 to 1),
            drugIndex (0 none, 1 aspirin, 2 statin) and initialAge (whole years, 55 to 100; the
            benchmark uses 55 to 80), ``(n, 5)``. Leave it out to pass them by keyword.
        n_samples: Independent lives per row.
        control_variate: Return QALY - 0.9 (N - E[N | initialAge]), where N is the length of life in
            years that the life table alone would have given: the same mean with less spread, at the
            price of values that may be negative. This is the paper's benchmark; False gives QALYs.
        random_state: Seed or generator.
        **covariates: The five covariates by name, each a number or ``(n,)``, in place of ``X``.

    Returns:
        The responses, ``(n, n_samples)``.

    Raises:
        ValueError: A covariate is missing, unknown or out of its range.

    Example:
        >>> patient = {"Barrett": 0.08, "aspirinEffect": 0.4, "statinEffect": 0.2, "initialAge": 55}
        >>> qalys = simulate_ecm(**patient, drugIndex=[0, 1], n_samples=20_000, random_state=0)
        >>> [f"{mean:.0f}" for mean in qalys.mean(axis=1)]
        ['22', '23']
    """
    if X is not None and covariates:
        raise ValueError("pass the covariates either as X or by keyword, not both")
    columns = _checked(covariates if X is None else X)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    rng = np.random.default_rng(random_state)
    patients = _patients(columns)
    qalys = np.empty(len(patients.age) * n_samples)
    for start in range(0, qalys.size, _BLOCK):
        block = slice(start, min(start + _BLOCK, qalys.size))
        row = np.arange(block.start, block.stop) // n_samples
        qalys[block] = _lives(patients.take(row), control_variate, rng)
    return qalys.reshape(-1, n_samples)


def draw_covariates(n: int, random_state: RandomState = None) -> pd.DataFrame:
    """Patients of the benchmark.

    Barrett is uniform on (0, 0.1), both effects on (0, 1), drugIndex on {1, 2} and initialAge on
    55, ..., 80, all independent.

    Args:
        n: Number of patients.
        random_state: Seed or generator.

    Returns:
        Their covariates, ``(n, 5)``.

    Example:
        >>> draw_covariates(1000, random_state=0)["initialAge"].agg(["min", "max"]).tolist()
        [55, 80]
    """
    rng = np.random.default_rng(random_state)
    return pd.DataFrame(
        {
            "Barrett": rng.uniform(0, 0.1, n),
            "aspirinEffect": rng.uniform(0, 1, n),
            "statinEffect": rng.uniform(0, 1, n),
            "drugIndex": rng.integers(1, 3, n),
            "initialAge": rng.integers(55, 81, n),
        }
    )


@dataclass(frozen=True)
class EcmTruth:
    """The simulator as the law behind the benchmark: it can be drawn from, but has no formula.

    Attributes:
        control_variate: Whether the responses carry the control variate of `simulate_ecm`.

    Example:
        >>> EcmTruth().sample(draw_covariates(3, random_state=0), n_samples=2).shape
        (3, 2)
    """

    control_variate: bool = True

    def sample(
        self, X: pd.DataFrame, n_samples: int = 1, random_state: RandomState = None
    ) -> Floats:
        """Fresh lives at every row of ``X``, ``(n, n_samples)``."""
        return simulate_ecm(X, n_samples, self.control_variate, random_state)


def load_ecm(
    n_patients: int = 10_000,
    n_test_covariates: int = 200,
    n_responses: int = 10_000,
    control_variate: bool = True,
    random_state: RandomState = 0,
) -> Benchmark:
    """The ECM benchmark.

    Training rows 2i and 2i + 1 are patient i, simulated once under aspirin and once under statin.
    The three parts use separate streams of random numbers: the size of one leaves the others alone.

    Args:
        n_patients: Patients in the training part, two rows each.
        n_test_covariates: Covariates in the validation part, and as many in the test part.
        n_responses: Responses to each of these covariates, in contiguous rows.
        control_variate: See `simulate_ecm`.
        random_state: Seed or generator; the default always gives the same benchmark.

    Returns:
        The benchmark, whose truth can be sampled.

    Example:
        >>> benchmark = load_ecm(n_patients=100, n_test_covariates=5, n_responses=20)
        >>> len(benchmark.train), len(benchmark.val), len(benchmark.test)
        (200, 100, 100)
    """
    truth = EcmTruth(control_variate)
    streams = np.random.default_rng(random_state).spawn(3)
    patients = _repeated(draw_covariates(n_patients, streams[0]), 2)
    patients["drugIndex"] = np.tile([1, 2], n_patients)
    train = Table(patients, truth.sample(patients, random_state=streams[0])[:, 0])

    def held_out(stream: np.random.Generator) -> Table:
        X = draw_covariates(n_test_covariates, stream)
        y = truth.sample(X, n_responses, stream).ravel()  # row by row, as the covariates repeat
        return Table(_repeated(X, n_responses), y)

    return LISTING.benchmark(train, held_out(streams[1]), held_out(streams[2]), truth)


@dataclass(frozen=True, eq=False)
class _Patients:
    """What the chain needs to know of each patient, every field ``(n,)``."""

    age: NDArray[np.int64]
    drug: NDArray[np.int64]
    p1: Floats  # monthly probability of cancer without a drug
    leave: Floats  # monthly probability of leaving state 6, p1' + p4
    complication: Floats  # probability that it is left for a complication, p4 / (p1' + p4)

    def take(self, row: NDArray[np.int64]) -> _Patients:
        return _Patients(**{name: column[row] for name, column in vars(self).items()})


def _patients(columns: dict[str, NDArray]) -> _Patients:
    """Monthly probabilities from the checked covariates."""
    risk, drug = columns["Barrett"], columns["drugIndex"]
    effect = np.select([drug == 1, drug == 2], [columns["aspirinEffect"], columns["statinEffect"]])
    reduced = risk * (1 - effect)  # per year
    rate = _COMPLICATION_RATE[drug]
    both = reduced + rate  # positive under a drug
    # With k = reduced / rate, p4 = monthly(both) / (1 + k) and p1' = k p4: in sum monthly(both).
    complication = np.divide(rate, both, out=np.zeros_like(both), where=both > 0)
    return _Patients(columns["initialAge"], drug, _monthly(risk), _monthly(both), complication)


def _lives(patients: _Patients, control_variate: bool, rng: np.random.Generator) -> Floats:
    """One life of each patient in QALYs, ``(n,)``."""
    age, drug = patients.age, patients.drug
    n = len(age)
    natural = _natural_months(age, rng)
    left = natural.copy()  # months still to live if nothing but natural death interferes
    quality = np.zeros(n)  # weighted months

    def stay(months: NDArray | float, weight: Floats | float) -> None:
        nonlocal quality, left
        lived = np.minimum(months, left)
        left = left - lived
        quality += weight * lived

    def happens(probability: Floats | float) -> NDArray[np.bool_]:
        return rng.random(n) < probability

    # On a drug (state 6), which may end in a complication (7) that kills, harms or stops the drug.
    treated = drug > 0
    stay(np.where(treated, _geometric(patients.leave, n, rng), 0), 1.0)
    complicated = treated & happens(patients.complication)
    stay(complicated, 1.0)
    survived = happens(_COMPLICATION_SURVIVAL[drug])
    left = np.where(complicated & ~survived, 0, left)
    harmed = complicated & happens(_LASTING_HARM[drug])
    health = np.where(harmed, _HARM_WEIGHT, 1.0)  # factor on the weight of every later month

    # Without a drug (0). Whoever left state 6 for cancer stays no month here.
    stay(np.where(complicated | ~treated, _geometric(patients.p1, n, rng), 0), health)

    # Cancer (1). Whoever has died has no month left, and what is drawn below changes nothing.
    age_now = age + (natural - left) // 12
    operated = happens(1.1035 - 0.0023 * age_now)
    stay(1, _CANCER_WEIGHT * health)

    # Esophagectomy (2), which is fatal (5), finds an inoperable tumour (4) or succeeds (3).
    stay(operated, _CANCER_WEIGHT * health)
    outcome = rng.random(n)
    dead = operated & (outcome < 0.04)
    inoperable = operated & (outcome >= 0.04) & (outcome < 0.20)
    left = np.where(dead, 0, left)
    stay(np.where(inoperable, _geometric(_monthly(0.29), n, rng), 0), _CANCER_WEIGHT * health)
    left = np.where(inoperable, 0, left)
    stay(np.inf, _OPERATED_WEIGHT * health)

    qalys = quality / 12
    if control_variate:
        qalys -= _CONTROL_COEFFICIENT * (natural / 12 - _LIFE_EXPECTANCY[age - _FIRST_AGE])
    return qalys


def _natural_months(age: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Months until natural death, 12 k + 6, for patients of the given age, ``(n,)``."""
    level = (1 - rng.random(len(age))) * _REACHED[age - _FIRST_AGE]  # uniform, and above zero
    # Inverse transform: the patient dies at the first age with P(alive after it) below the level.
    death_age = _LAST_AGE + 1 - np.searchsorted(_SURVIVAL[::-1], level)
    return (12 * (death_age - age) + 6).astype(float)


def _geometric(p: Floats | float, n: int, rng: np.random.Generator) -> Floats:
    """Months until an event of monthly probability p, that month included; infinite for p = 0."""
    with np.errstate(divide="ignore"):
        return np.floor(rng.standard_exponential(n) / np.abs(np.log1p(-p))) + 1


def _monthly(yearly: Floats | float) -> Floats:
    """Monthly probability of what has the given probability in a year."""
    return -np.expm1(np.log1p(-np.asarray(yearly, float)) / 12)


def _repeated(X: pd.DataFrame, times: int) -> pd.DataFrame:
    return X.loc[X.index.repeat(times)].reset_index(drop=True)


def _checked(covariates: pd.DataFrame | Mapping[str, ArrayLike]) -> dict[str, NDArray]:
    """The five columns as arrays of one length, or a ValueError that says what is wrong."""
    missing = [name for name in COVARIATES if name not in covariates]
    unknown = [str(name) for name in covariates if name not in COVARIATES]
    if missing or unknown:
        raise ValueError(
            f"ECM covariates are {', '.join(COVARIATES)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}."
        )
    columns: dict[str, NDArray] = {}
    for name, (low, high) in _RANGES.items():
        column = np.atleast_1d(np.asarray(covariates[name], float))
        whole = name in _INTEGERS
        wrong = ~((column >= low) & (column <= high))  # catches nan
        if whole:
            wrong |= column != np.floor(column)
        if wrong.any():
            raise ValueError(
                f"{name} must be {'a whole number' if whole else 'a number'} from {low} to {high}, "
                f"got {column[wrong][0]:g}."
            )
        columns[name] = column.astype(np.int64) if whole else column
    shapes = {column.shape for column in columns.values()} - {(1,)}
    if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
        raise ValueError(
            "covariates must be numbers or sequences of one common length, got the shapes "
            f"{ {name: column.shape for name, column in columns.items()} }."
        )
    return dict(zip(columns, np.broadcast_arrays(*columns.values())))
