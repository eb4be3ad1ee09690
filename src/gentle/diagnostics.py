"""May a model be trusted? Calibration overall and by subgroup, coverage, and rows unlike any seen.

All of it wants responses that the model has not seen. The probability integral transform (PIT) of a
response is the level that it has in its predicted distribution. If predictions are right, these
levels are independent and uniform on (0, 1), whatever the covariates, and all that is said here
about errors of a test follows from that alone: no large numbers are needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from gentle.columns import as_pandas
from gentle.distribution import ConditionalDistribution
from gentle.streams import Seed, as_seed, uniforms
from gentle.support import MARGIN, OutOfSupportWarning, excess

__all__ = ["OutOfSupportWarning", "calibration", "coverage", "pit", "support"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
By = str | ArrayLike | Callable[[Any], ArrayLike] | None

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_ALL, _MISSING = "all rows", "missing"
_MAX_DISTINCT = 8  # a column of more numbers is cut into quarters
_MAX_LANDMARKS = 20_000  # training rows to which distances are taken
_RARE = 0.01  # share of rows like the training data that count as far away


def pit(model: Any, X: Any, y: ArrayLike, *, random_state: Seed = 0) -> Floats:
    r"""Levels of responses in their predicted distributions, randomised at atoms.

    P(Y < y | x) + U · P(Y = y | x) with U uniform: exactly uniform on (0, 1) if the distributions
    are right, also where they have atoms.

    Args:
        model: A fitted model, or the `ConditionalDistribution` of the rows.
        X: Covariates, ``(n, d)``; not looked at if distributions are given.
        y: Responses, ``(n,)``.
        random_state: Seed of U; row i's depends on it and i only.

    Returns:
        The levels, ``(n,)``.

    Example:
        >>> from gentle import QuantileTable
        >>> fair_coins = QuantileTable.of_sample([0.0, 1.0]).repeat(4)
        >>> pit(fair_coins, None, [0.0, 0.0, 1.0, 1.0]).round(2)
        array([0.32, 0.15, 0.56, 0.76])
    """
    dist = model if isinstance(model, ConditionalDistribution) else model.predict_dist(X)
    target = _numbers("y", y, len(dist))
    below, upto = dist.cdf(np.column_stack([np.nextafter(target, -np.inf), target])).T
    return below + uniforms(as_seed(random_state), len(dist), 1)[:, 0] * (upto - below)


def calibration(
    model: Any,
    X: Any,
    y: ArrayLike,
    by: By = None,
    *,
    levels: ArrayLike = LEVELS,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Compare the levels of responses with what they should be, overall and by subgroup.

    Of right predictions a share α of the responses has a `pit` of at most α. The bands are those
    outside of which no share of the whole table lies with probability ``confidence`` if predictions
    are right: exact binomial limits, corrected for the number of levels and subgroups (Bonferroni).

    Args:
        model: A fitted model, or the `ConditionalDistribution` of the rows.
        X: Covariates, ``(n, d)``; not looked at if distributions are given, unless ``by`` needs it.
        y: Responses that the model has not seen, ``(n,)``.
        by: Subgroups: a column of X by name (by position in an array), labels ``(n,)``, or a
            function of X that gives them. Numbers of many values are cut into quarters. Rows of
            all subgroups together come first.
        levels: Nominal levels α between 0 and 1.
        confidence: Probability that all verdicts are "calibrated" if predictions are right, at
            least.
        sample_weight: Weights of the rows, ``(n,)``. Bands then take the effective number of rows,
            (Σw)² / Σw², for their number, and are no longer exact.
        random_state: Seed of the randomisation at atoms.

    Returns:
        A row per subgroup and level: ``n`` rows, ``observed`` share with a level of at most the
        nominal one, its band ``lower`` to ``upper``, and a ``verdict`` on the subgroup:

        - "calibrated": no share is outside its band;
        - "too narrow", "too wide": responses are in the tails of their distributions too often, or
          too rarely;
        - "too low", "too high": the model's distributions are, compared with the responses;
        - "wrong shape": something else is the matter.

    Example:
        >>> from gentle import QuantileTable
        >>> rng = np.random.default_rng(0)
        >>> unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]]).repeat(2000)
        >>> narrow = np.arange(2000) % 2  # these responses are spread over (-1/2, 3/2)
        >>> y = rng.uniform(-0.5 * narrow, 1 + 0.5 * narrow)
        >>> table = calibration(unit, None, y, by=np.where(narrow, "b", "a"), levels=[0.1, 0.9])
        >>> table[["n", "observed", "lower", "upper", "verdict"]].round(2)
                           n  observed  lower  upper     verdict
        group    level
        all rows 0.1    2000       0.2   0.08   0.12  too narrow
                 0.9    2000       0.8   0.88   0.92  too narrow
        a        0.1    1000       0.1   0.08   0.13  calibrated
                 0.9    1000       0.9   0.87   0.92  calibrated
        b        0.1    1000       0.3   0.08   0.13  too narrow
                 0.9    1000       0.7   0.87   0.92  too narrow
    """
    _shares("confidence", [confidence])
    alpha, u = _shares("levels", levels), pit(model, X, y, random_state=random_state)
    weight = _weights(sample_weight, len(u))
    groups = _groups(by, X, weight)
    error = (1 - confidence) / (len(groups) * len(alpha))

    def asked(rows: Ints) -> dict[str, Any]:
        w, n = weight[rows], max(1, round(_n_effective(weight[rows])))
        observed = w @ (u[rows, None] <= alpha) / w.sum()
        lower, upper = stats.binom.ppf([[error / 2], [1 - error / 2]], n, alpha) / n
        fine = (observed >= lower - 1e-9) & (
            observed <= upper + 1e-9
        )  # sums of weights are rounded
        verdict = "calibrated" if fine.all() else _fault(u[rows], w)
        return {"observed": observed, "lower": lower, "upper": upper, "verdict": verdict}

    return _table(groups, "level", alpha, asked)


def _fault(u: Floats, weight: Floats) -> str:
    """What is wrong with levels that should be uniform, by the more significant of two means."""
    n, share = _n_effective(weight), weight / weight.sum()
    shift = (share @ u - 1 / 2) * np.sqrt(12 * n)  # both are standard normal under the truth
    width = (share @ np.abs(u - 1 / 2) - 1 / 4) * np.sqrt(48 * n)
    if max(abs(shift), abs(width)) < 2:
        return "wrong shape"
    if abs(width) > abs(shift):
        return "too narrow" if width > 0 else "too wide"
    return "too low" if shift > 0 else "too high"


def coverage(
    model: Any,
    X: Any,
    y: ArrayLike,
    by: By = None,
    *,
    coverages: ArrayLike = (0.5, 0.8, 0.9, 0.95),
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
    random_state: Seed = 0,
) -> pd.DataFrame:
    """How many responses lie in central prediction intervals, overall and by subgroup.

    Args:
        model: A fitted model, or the `ConditionalDistribution` of the rows.
        X: Covariates, ``(n, d)``.
        y: Responses that the model has not seen, ``(n,)``.
        by: Subgroups, as in `calibration`.
        coverages: Nominal coverages between 0 and 1.
        confidence: Of each row's confidence interval by itself.
        sample_weight: Weights of the rows, ``(n,)``, with the caveat of `calibration`.
        random_state: Seed of the randomisation at atoms.

    Returns:
        A row per subgroup and nominal coverage:

        - ``n``: rows;
        - ``observed``: share of responses whose `pit` is in the middle, which is the nominal
          coverage for right predictions with atoms too; ``lower``, ``upper``: its Clopper-Pearson
          interval;
        - ``inside``: share of responses in the interval or on its ends, which is larger for right
          predictions if these ends are atoms;
        - ``width``: mean width of the intervals, in units of y.

    Example:
        >>> from gentle import QuantileTable
        >>> coins = QuantileTable.of_sample([0.0, 1.0]).repeat(100)
        >>> table = coverage(coins, None, np.arange(100) % 2, coverages=[0.5])
        >>> table.round(2)
                            n  observed  lower  upper  inside  width
        group    coverage
        all rows 0.5       100      0.55   0.45   0.65     1.0    1.0
    """
    dist = model if isinstance(model, ConditionalDistribution) else model.predict_dist(X)
    _shares("confidence", [confidence])
    target, nominal = _numbers("y", y, len(dist)), _shares("coverages", coverages)
    weight = _weights(sample_weight, len(dist))
    middle = np.abs(pit(dist, None, target, random_state=random_state) - 1 / 2)  # (n,)
    both = dist.quantile(np.concatenate([(1 - nominal) / 2, (1 + nominal) / 2]))  # (n, 2k)
    low, high = both[:, : len(nominal)], both[:, len(nominal) :]
    inside = (low <= target[:, None]) & (target[:, None] <= high)

    def asked(rows: Ints) -> dict[str, Any]:
        share, n = weight[rows] / weight[rows].sum(), _n_effective(weight[rows])
        observed = share @ (2 * middle[rows, None] <= nominal)
        hits, error = observed * n, (1 - confidence) / 2
        return {
            "observed": observed,
            "lower": np.nan_to_num(stats.beta.ppf(error, hits, n - hits + 1), nan=0.0),
            "upper": np.nan_to_num(stats.beta.ppf(1 - error, hits + 1, n - hits), nan=1.0),
            "inside": share @ inside[rows],
            "width": share @ (high - low)[rows],
        }

    return _table(_groups(by, X, weight), "coverage", nominal, asked)


def support(model: Any, X: Any, X_train: Any = None) -> pd.DataFrame:
    """Which rows are unlike the training data?

    A fitted model remembers the range of each column, not the rows. It warns by itself
    (`OutOfSupportWarning`) of values that are beyond the range by half of it, or farther where a
    column has a long tail, and of levels never seen before. Rows whose values are each usual but
    together are not are found if the training covariates are given.

    Args:
        model: A fitted model.
        X: Covariates, ``(n, d)``.
        X_train: The covariates that the model was fitted to, ``(N, d)``; of more than 20,000 rows a
            random part.

    Returns:
        A row per row of X, in its order:

        - ``excess``: how far beyond the training values it is, in units of their range (on the side
          of a long tail of a multiple), in the ``column`` where it is farthest, None for none;
        - ``distance``: with X_train, the distance to the nearest training row, numbers measured in
          standard deviations and two levels of a category one apart;
        - ``usual``: the share of training rows that are at least as far from all others. Of new
          rows like the training data about a share s has a value of at most s;
        - ``far``: an excess above 0.5, or a share of less than 0.01.

    Example:
        >>> from gentle import KNN
        >>> X = np.linspace(0, 10, 200)[:, None] * [1.0, -1.0]
        >>> model = KNN(n_neighbors=5).fit(X, X[:, 0])
        >>> support(model, [[5.0, -5.02], [9.0, -1.0], [18.0, 0.0]], X).round(2)
           excess column  distance  usual    far
        0     0.0   None      0.01    1.0  False
        1     0.0   None      1.95    0.0   True
        2     0.8      0      4.39    0.0   True
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutOfSupportWarning)  # they are the answer
        x = model._encoded_covariates(X)
    encoder = model.covariate_encoder_
    beyond = excess(encoder, X)  # (n, d)
    most = beyond.max(axis=1)
    where = np.array([*encoder.labels, None], object)
    found = {"excess": most, "column": where[np.where(most > 0, beyond.argmax(axis=1), -1)]}
    far = most > MARGIN
    if X_train is not None:
        found |= _distances(x, model._encoded_covariates(X_train))
        far = far | (found["usual"] < _RARE)
    return pd.DataFrame(found | {"far": far})


def _distances(x: Floats, train: Floats) -> dict[str, Floats]:
    """Distances to the nearest training row, and how usual such distances are; both ``(n,)``."""
    from sklearn.neighbors import NearestNeighbors

    if len(train) > _MAX_LANDMARKS:
        train = train[np.random.default_rng(0).permutation(len(train))[:_MAX_LANDMARKS]]
    nearest = NearestNeighbors(n_neighbors=1).fit(train)
    distance = nearest.kneighbors(x)[0][:, 0]
    among = np.sort(nearest.kneighbors()[0][:, 0])  # each row's to the others
    at_least = len(among) - np.searchsorted(among, distance * (1 - 1e-9))
    return {"distance": distance, "usual": (at_least + 1) / (len(among) + 1)}


def _table(
    groups: list[tuple[str, Ints]],
    name: str,
    values: Floats,
    asked: Callable[[Ints], dict[str, Any]],
) -> pd.DataFrame:
    """What is asked about the rows of each subgroup, a row per nominal value."""
    parts = [
        pd.DataFrame(
            {"n": len(rows), **asked(rows)},
            index=pd.MultiIndex.from_product([[group], values], names=["group", name]),
        )
        for group, rows in groups
    ]
    return pd.concat(parts)


def _groups(by: By, X: Any, weight: Floats) -> list[tuple[str, Ints]]:
    """Names of the subgroups and their rows of positive weight, that of all rows first."""
    found = {_ALL: np.arange(len(weight))}
    if by is not None:
        labels = by(X) if callable(by) else _column(X, by) if isinstance(by, (str, int)) else by
        series: Any = pd.Series(
            labels.array if isinstance(labels, pd.Series) else np.asarray(labels)
        )
        if len(series) != len(weight):
            raise ValueError(f"by gives {len(series)} labels, but there are {len(weight)} rows")
        of_numbers = pd.api.types.is_numeric_dtype(series) and series.nunique() > _MAX_DISTINCT
        if of_numbers:
            quarter: Any = pd.qcut(series, 4, labels=False, duplicates="drop")
            ends = series.groupby(quarter).agg(["min", "max"])
            names = {q: f"{low:.15g} to {high:.15g}" for q, low, high in ends.itertuples()}
            series = pd.Series(pd.Categorical(quarter.map(names), list(names.values())))
        found |= {_MISSING: np.flatnonzero(series.isna())}
        for level, rows in series.groupby(series, observed=True).indices.items():
            name = str(level)
            found[repr(level) if name in found else name] = rows  # a level may be called "missing"
        found[_MISSING] = found.pop(_MISSING)  # at the end
    used = {name: rows[weight[rows] > 0] for name, rows in found.items()}
    return [(name, rows) for name, rows in used.items() if len(rows)]


def _column(X: Any, label: str | int) -> Any:
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame):
        if label not in X:
            raise ValueError(f"X has no column {label!r}; its columns are {list(X.columns)}")
        return X[label]
    if X is None or isinstance(label, str):
        raise ValueError(f"by={label!r} names a column, but X is no DataFrame with such a column")
    return np.asarray(X)[:, label]


def _numbers(name: str, values: ArrayLike, n_rows: int) -> Floats:
    array = np.asarray(values, np.float64)
    if array.size != n_rows or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be {n_rows} finite numbers, one per row; got shape {array.shape}"
            + ("" if np.isfinite(array).all() else " with NaN or infinity")
        )
    return array.ravel()


def _weights(sample_weight: ArrayLike | None, n_rows: int) -> Floats:
    weight = np.ones(n_rows) if sample_weight is None else sample_weight
    weight = _numbers("sample_weight", weight, n_rows)
    if np.any(weight < 0) or not np.any(weight > 0):
        raise ValueError("sample_weight must not be negative, and positive for at least one row")
    return weight


def _n_effective(weight: Floats) -> float:
    return float(weight.sum() ** 2 / (weight**2).sum())


def _shares(name: str, values: ArrayLike) -> Floats:
    shares = np.asarray(values, np.float64)
    if shares.ndim != 1 or not len(shares) or not np.all((shares > 0) & (shares < 1)):
        raise ValueError(f"{name} must lie between 0 and 1, got {values!r}")
    return shares
