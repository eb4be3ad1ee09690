"""Are there treated and untreated rows everywhere? Who has no counterpart is left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns, taken
from gentle.covariates import CovariateEncoder
from gentle.effects.changes import without

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Overlap:
    """What is known about the overlap of two treatments in a population.

    Attributes:
        propensity: Probability that a row is treated rather than a control, given its covariates,
            for each row of the population before trimming, ``(n,)``.
        kept: Which of them are kept, ``(n,)``.
        n_treated: Treated rows of the data.
        n_control: Control rows of the data.
        rule: Who is kept, in words.
    """

    propensity: Floats
    kept: Bools
    n_treated: int
    n_control: int
    rule: str

    @property
    def n_trimmed(self) -> int:
        """Rows of the population that are left out."""
        return int((~self.kept).sum())

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.propensity, [0, 0.5, 1])
        return (
            f"{self.n_treated:,} treated and {self.n_control:,} control rows in the data. The "
            f"probability of treatment in the population runs from {low:.3g} to {high:.3g} (median "
            f"{middle:.3g}). Kept: {self.rule}; {self.n_trimmed:,} of {len(self.kept):,} rows "
            "trimmed."
        )


def propensity(
    X: Any,
    treated: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    X_new: Any = None,
    random_state: int = 0,
) -> Floats:
    """Probability of treatment given covariates, by a classifier that has not seen the row.

    Five classifiers are fitted to four fifths of the rows each. A row's probability comes from the
    one that has not seen it (nor, with ``groups``, its group), a new row's is the mean of all five.
    Of logistic regression and boosted trees the one whose probabilities suit unseen rows better, by
    their likelihood, is taken.

    Args:
        X: Covariates without the treatment, ``(n, d)``.
        treated: Whether each row is treated, ``(n,)``; both must occur.
        sample_weight: Weights of the rows, ``(n,)``.
        groups: Group of each row, ``(n,)``.
        X_new: Covariates of other rows, ``(m, d)``; the answer is then about them.
        random_state: Seed.

    Returns:
        The probabilities, ``(n,)`` or ``(m,)``.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 1, (2000, 1))
        >>> treated = rng.random(2000) < X[:, 0]
        >>> propensity(X, treated, X_new=[[0.1], [0.9]]).round(1).tolist()
        [0.1, 0.9]
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    table, label = Columns.of(X), np.asarray(treated, bool)
    weight = np.ones(len(label)) if sample_weight is None else np.asarray(sample_weight, float)
    n_folds = min(_N_FOLDS, int(label.sum()), int((~label).sum()))
    if n_folds < 2:
        raise ValueError(
            f"overlap needs at least 2 treated and 2 control rows, got {int(label.sum())} and "
            f"{int((~label).sum())}"
        )
    encoder = CovariateEncoder.of(table, weight)
    x = encoder.encode(table)
    new = None if X_new is None else encoder.encode(X_new)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = kind(n_folds, shuffle=True, random_state=random_state)
    folds = list(splitter.split(x, label, groups))
    if any(len(np.unique(label[seen])) < 2 for seen, _ in folds):
        raise ValueError("all treated or all control rows are in one group; overlap needs more")
    plain: Any = {"early_stopping": False, "random_state": random_state}
    found = []
    for classifier in (
        LogisticRegression(max_iter=1000),
        HistGradientBoostingClassifier(max_leaf_nodes=8, learning_rate=0.05, **plain),
    ):
        scores, of_new = np.empty(len(x)), []
        for seen, unseen in folds:
            classifier.fit(x[seen], label[seen], sample_weight=weight[seen])
            scores[unseen] = classifier.predict_proba(x[unseen])[:, 1]
            of_new += [] if new is None else [classifier.predict_proba(new)[:, 1]]
        loss = log_loss(label, scores, sample_weight=weight)
        found.append((loss, len(found), scores if new is None else np.mean(of_new, axis=0)))
    return min(found)[2]


def overlap_of(
    X: Any,
    treatment: str | int,
    arm: NDArray[np.int64],
    weight: Floats,
    groups: NDArray[np.int64] | None,
    people: Any,
    own: NDArray[np.int64] | None,
    population: Any,
    trim: float | None,
    seed: int,
) -> Overlap | None:
    """The overlap in a population.

    Args:
        X: Covariates of the data, ``(n, d)``.
        treatment: The treatment's column.
        arm: 1 for treated rows, 0 for controls, -1 for others, ``(n,)``.
        weight: Weights of the rows, ``(n,)``.
        groups: Group of each row, ``(n,)``.
        people: Covariates of the population, ``(p, d)``.
        own: Which rows of the data they are, ``(p,)``, or None.
        population: What the user calls it.
        trim: Probability of treatment from which rows are left out, and likewise from 1, or None.
        seed: Of the folds.

    Returns:
        None if a treatment occurs less than twice, or everything is known but the treatment.
    """
    if trim is not None and not 0 <= trim < 0.5:
        raise ValueError(f"trim must be at least 0 and below 0.5, or None, got {trim}")
    rows = np.flatnonzero((arm >= 0) & (weight > 0))
    n_treated, n_control = (int((arm[rows] == value).sum()) for value in (1, 0))
    if min(n_treated, n_control) < 2 or Columns.of(X).columns[1:] == ():
        return None
    covariates = without(X, treatment)
    known: dict[str, Any] = {"sample_weight": weight[rows], "random_state": seed % 2**31}
    known |= {} if groups is None else {"groups": groups[rows]}
    ask: Any = partial(propensity, taken(covariates, rows), arm[rows] == 1, **known)
    scores = np.full(len(X), np.nan)
    scores[rows] = ask()
    score = scores[own] if own is not None else ask(X_new=without(people, treatment))
    unseen = np.isnan(score)  # rows of the population with other treatments, or without weight
    if unseen.any():
        others = taken(without(people, treatment), np.flatnonzero(unseen))
        score[unseen] = ask(X_new=others)
    if not trim:
        return Overlap(score, np.full(len(score), True), n_treated, n_control, "all rows")
    low = -np.inf if isinstance(population, str) and population == "treated" else trim
    high = np.inf if isinstance(population, str) and population == "control" else 1 - trim
    limits = [f"at least {low:g}"] if low > 0 else []
    limits += [f"at most {high:g}"] if high < 1 else []
    rule = f"rows whose probability is {' and '.join(limits)}"
    return Overlap(score, (score >= low) & (score <= high), n_treated, n_control, rule)
