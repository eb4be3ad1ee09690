"""LDW-CPS: earnings of trainees and of a survey sample (LaLonde 1986; Dehejia and Wahba 1999)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gentle.datasets.base import Benchmark, Listing, Table

COVARIATES = (
    "treat",
    "age",
    "education",
    "re74",
    "re75",
    "black",
    "hispanic",
    "married",
    "nodegree",
)
LISTING = Listing(
    name="ldw-cps",
    description="Earnings of trainees and of a survey sample; split by how often a covariate "
    "vector occurs",
    rows=16_177,
    covariates=len(COVARIATES),
    response="earnings in 1978 (re78)",
    unit="1978 US dollars",
    column="re78",
)

# Distinct covariate vectors and rows that the rule below must give. The paper prints 20 test
# covariates, which cannot share 434 rows with more than 30 rows each.
_EXPECTED = {"train": (13_745, 15_255), "val": (19, 488), "test": (12, 434)}


def load_ldw_cps() -> Benchmark:
    """LDW-CPS, rebuilt from the package ``causaldata``.

    The 185 treated rows of the Dehejia-Wahba sample of the NSW training programme, followed by the
    15,992 rows of the CPS survey, in their original order. A covariate vector that occurs more than
    30 times belongs to the test part, one that occurs 21 to 30 times to the validation part, all
    others to the training part. Values are those of the source, stored there in single precision:
    the survey's top-code 25,564.67 reads 25564.669921875.

    Returns:
        The benchmark. Its covariates are treat (1 = trained, the paper's t), age, education (years
        of schooling), re74 and re75 (earnings in 1974 and 1975), black, hispanic, married and
        nodegree (indicators), in this order.

    Raises:
        ImportError: ``causaldata`` is not installed.
        RuntimeError: The installed ``causaldata`` yields other data than the benchmark's.

    Example:
        >>> benchmark = load_ldw_cps()
        >>> len(benchmark.train), len(benchmark.val), len(benchmark.test)
        (15255, 488, 434)
    """
    data = _source()
    X = data[list(COVARIATES)]
    y = data["re78"].to_numpy(dtype=np.float64)  # (n,)
    occurrences = data.groupby(list(COVARIATES))["re78"].transform("size").to_numpy()  # (n,)
    is_test, is_val = occurrences > 30, (occurrences > 20) & (occurrences <= 30)
    masks = {"train": ~is_test & ~is_val, "val": is_val, "test": is_test}
    parts = {
        part: Table(X.loc[mask].reset_index(drop=True), y[mask]) for part, mask in masks.items()
    }
    found = {part: (len(table.X.drop_duplicates()), len(table)) for part, table in parts.items()}
    if found != _EXPECTED:
        raise RuntimeError(
            f"the installed causaldata does not yield LDW-CPS: {_counts(found)} instead of "
            f"{_counts(_EXPECTED)}. Install the release it was checked with: "
            "pip install causaldata==0.1.5"
        )
    return LISTING.benchmark(parts["train"], parts["val"], parts["test"])


def _source() -> pd.DataFrame:
    """Trainees, then survey, with this module's column names and in double precision."""
    try:
        from causaldata import cps_mixtape, nsw_mixtape
    except ImportError as error:
        raise ImportError(
            "LDW-CPS is rebuilt from the package causaldata, which could not be imported. "
            "Install it with: pip install gentle-ot[data]"
        ) from error
    experiment, survey = (pd.DataFrame(s.load_pandas().data) for s in (nsw_mixtape, cps_mixtape))
    data = pd.concat([experiment.query("treat == 1"), survey], ignore_index=True)
    data = data.rename(columns={"educ": "education", "hisp": "hispanic", "marr": "married"})
    dollars = {"re74", "re75", "re78"}
    return data.astype({name: float if name in dollars else int for name in (*COVARIATES, "re78")})


def _counts(parts: dict[str, tuple[int, int]]) -> str:
    """The sizes of all parts in words."""
    return ", ".join(
        f"{n_covariates:,} covariates/{n_rows:,} rows for {part}"
        for part, (n_covariates, n_rows) in parts.items()
    )
