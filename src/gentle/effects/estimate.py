"""Effects from a fitted model: a population under two treatments, or before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.columns import Columns, as_pandas, taken
from gentle.distribution import QuantileTable
from gentle.effects.changes import (
    Change,
    caution_of,
    changed_by,
    column_of,
    n_different,
    with_value,
)
from gentle.effects.overlap import overlap_of
from gentle.effects.results import Effects
from gentle.effects.statistic import Ask, Estimand, compared
from gentle.models import checks
from gentle.resampling import Source, numbered
from gentle.streams import Seed, as_seed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEVELS = tuple(np.arange(1, 20) / 20)
_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the responses below the thresholds, if none are given
_NO_PERSONAL_EFFECTS = (
    "Differences of quantiles are not quantiles of differences: how large the effect is for how "
    "many people cannot be read off them, unless the effect leaves everybody's rank as it is."
)
_MODEL_IS_RIGHT = (
    "The model's conditional distributions are right. Intervals know of the chance of the sample, "
    "not of a model that is wrong."
)


def treatment_effects(
    model: Any,
    X: Any,
    y: ArrayLike,
    treatment: str | int,
    *,
    treated: Any = 1,
    control: Any = 0,
    levels: Sequence[float] = _LEVELS,
    thresholds: Sequence[float] | None = None,
    population: Any = "all",
    estimand: Estimand = "population",
    trim: float | None = 0.1,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    uncertainty: Source | None = "bootstrap",
    n_boot: int = 100,
    confidence: float = 0.95,
    n_workers: int = 1,
    random_state: Seed = 0,
    verbose: int = 1,
) -> Effects:
    """Quantile, distributional and mean effects of a treatment, averaged over a population.

    All rows of the population get ``treatment = treated``, then ``treatment = control``, and the
    model's distributions of their responses are compared. With F_a(y) = mean_x F(y | a, x):

    - ``estimand="population"``: F_1⁻¹(τ) - F_0⁻¹(τ), what the treatment does to the population's
      quantiles;
    - ``estimand="conditional"``: mean_x [F⁻¹(τ | 1, x) - F⁻¹(τ | 0, x)], what it does to the
      quantiles among people alike, on average. The poor of the one are those who are poor in the
      population, of the other those who are poor for what they are; the two differ in general.

    Args:
        model: A model fitted to ``X`` and ``y``.
        X: Covariates, the treatment among them, ``(n, d)``.
        y: Responses, ``(n,)``.
        treatment: The treatment's column: its name, or its position in an array.
        treated: Its value for the treated. More than two values, or numbers, compare any two.
        control: Its value for the controls.
        levels: Of the quantiles, between 0 and 1.
        thresholds: Of the distributional effects P(Y > t); by default quantiles of ``y``.
        population: "all" rows, the "treated", the "control" rows, or covariates of others, with the
            columns of ``X`` (whatever their treatment).
        estimand: See above.
        trim: Rows are left out where the estimated probability of treatment is below ``trim`` or
            above ``1 - trim``; of the treated only above (they need controls alike, not more
            treated), of the controls only below. 0.1 is the rule of thumb of Crump et al. (2009).
            The effect is that on the rows kept. None keeps all.
        sample_weight: Weights of the rows, ``(n,)``, as in ``fit``.
        groups: Group of each row, ``(n,)``; the bootstrap draws whole groups.
        uncertainty: "bootstrap" refits the model to resampled rows, which also resamples a
            population that is part of them; "ensemble" uses the parts of a default `GENTLE`,
            without refits, and tells less; None gives no intervals.
        n_boot: Number of refits.
        confidence: Of intervals and bands.
        n_workers: Processes that share the refits; a script that asks for more than one needs
            ``if __name__ == "__main__":`` around its own work.
        random_state: Seed of resampling, refits and overlap.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        The effects; printing them prints the assumptions on which they rest.

    Example:
        >>> import pandas as pd
        >>> from gentle import KNN
        >>> rng = np.random.default_rng(0)
        >>> X = pd.DataFrame({"sex": rng.integers(0, 2, 2000), "drug": rng.integers(0, 2, 2000)})
        >>> y = X["sex"] + X["drug"] * 2.0 + rng.uniform(0, 1, 2000)
        >>> model = KNN(n_neighbors=400).fit(X, y)
        >>> found = treatment_effects(model, X, y, "drug", levels=[0.2, 0.8], uncertainty=None)
        >>> found.quantiles["effect"].round(1).tolist()
        [2.0, 2.0]
    """
    X, seed = as_pandas(X), as_seed(random_state)
    target, weight = checks.responses(y, sample_weight, len(X), "treatment_effects")
    groups = None if groups is None else numbered(groups, len(X))
    column = column_of(X, treatment)
    arm = np.select([np.asarray(column == treated), np.asarray(column == control)], [1, 0], -1)
    people, own, words = _population(X, population, arm)
    overlap = overlap_of(X, treatment, arm, weight, groups, people, own, population, trim, seed)
    kept = np.arange(len(people)) if overlap is None else np.flatnonzero(overlap.kept)
    if not len(kept):
        raise ValueError(
            "no row of the population has both treated and control rows alike, so no effect can "
            f"be learned from these data: {overlap} Pass trim=None to extrapolate."
        )
    arms = [with_value(taken(people, kept), treatment, value) for value in (control, treated)]
    ask = Ask(
        *arms,
        own=None if own is None else own[kept],
        levels=np.asarray(levels, float),
        thresholds=_thresholds(thresholds, target, weight),
        estimand=estimand,
    )
    others = [str(label) for label in Columns.of(X).labels if label != treatment]
    response = getattr(model, "response_name_", None) or "the response"
    trimmed = len(people) - len(kept)
    return compared(
        ask,
        model,
        (X, target, weight),
        ("control", "treated"),
        {
            "uncertainty": uncertainty,
            "groups": groups,
            "n_boot": n_boot,
            "n_workers": n_workers,
            "random_state": seed,
            "verbose": verbose,
        },
        confidence,
        question=f"Effect of {treatment} = {treated} against {control} on {response}",
        population=f"Population: {words}, {len(kept):,} rows."
        + f" {trimmed:,} more have no overlap; the effect is not about them." * (trimmed > 0),
        assumptions=(
            f"No unmeasured confounding: among {_alike(others)}, who is treated is as good as "
            "random.",
            "Overlap: every row of the population could have been treated or not.",
            "The covariates were fixed before the treatment, which changes none of them.",
            "No interference: nobody's response depends on the treatment of others, and the "
            "treatment is the same thing for all.",
            _MODEL_IS_RIGHT,
            _NO_PERSONAL_EFFECTS,
        ),
        caution="Overlap could not be checked: hardly any row has exactly these treatments."
        if overlap is None and others
        else "",
        overlap=overlap,
    )


def policy_effects(
    model: Any,
    X: Any,
    y: ArrayLike,
    change: Change,
    *,
    levels: Sequence[float] = _LEVELS,
    thresholds: Sequence[float] | None = None,
    population: Any = None,
    estimand: Estimand = "population",
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    uncertainty: Source | None = "bootstrap",
    n_boot: int = 100,
    confidence: float = 0.95,
    n_workers: int = 1,
    random_state: Seed = 0,
    verbose: int = 1,
) -> Effects:
    """What a change of covariates would do to the distribution of responses.

    Args:
        model: A model fitted to ``X`` and ``y``.
        X: Covariates, ``(n, d)``.
        y: Responses, ``(n,)``.
        change: From covariates to covariates under the policy: a function of the table, which must
            not change the table itself, or for some columns their new values, or functions of the
            old ones: ``{"education": lambda years: years.clip(lower=12), "union": 1}``.
        levels: Of the quantiles, between 0 and 1.
        thresholds: Of the distributional effects P(Y > t); by default quantiles of ``y``.
        population: Covariates of those whom the policy concerns; by default all rows of ``X``.
        estimand: As in `treatment_effects`.
        sample_weight: Weights of the rows, ``(n,)``, as in ``fit``.
        groups: Group of each row, ``(n,)``; the bootstrap draws whole groups.
        uncertainty: As in `treatment_effects`.
        n_boot: Number of refits.
        confidence: Of intervals and bands.
        n_workers: Processes that share the refits.
        random_state: Seed of resampling and refits.
        verbose: 0 is silent, 1 shows a progress bar in a terminal.

    Returns:
        The distributions as they are and under the policy, as the model has both. Rows that the
        policy makes unlike the data are counted in ``caution``, and there is a warning.

    Example:
        >>> import pandas as pd
        >>> from gentle import KNN
        >>> X = pd.DataFrame({"schooling": np.arange(2000) % 10})
        >>> y = X["schooling"] + np.arange(2000) / 2000
        >>> model = KNN(n_neighbors=200).fit(X, y)
        >>> at_least_5 = {"schooling": lambda years: years.clip(lower=5)}
        >>> found = policy_effects(model, X, y, at_least_5, levels=[0.1, 0.9], uncertainty=None)
        >>> found.quantiles["effect"].round(1).tolist()
        [4.2, 0.0]
    """
    X = as_pandas(X)
    target, weight = checks.responses(y, sample_weight, len(X), "policy_effects")
    people = X if population is None else as_pandas(population)
    changed = changed_by(people, change)
    ask = Ask(
        people,
        changed,
        np.arange(len(X)) if population is None else None,
        np.asarray(levels, float),
        _thresholds(thresholds, target, weight),
        estimand,
    )
    response = getattr(model, "response_name_", None) or "the response"
    return compared(
        ask,
        model,
        (X, target, weight),
        ("as_is", "policy"),
        {
            "uncertainty": uncertainty,
            "groups": groups,
            "n_boot": n_boot,
            "n_workers": n_workers,
            "random_state": random_state,
            "verbose": verbose,
        },
        confidence,
        question=f"Effect of a policy on {response}",
        population=f"Population: {len(people):,} rows; the policy changes "
        f"{n_different(people, changed):,} of them.",
        assumptions=(
            "Whoever gets new covariates responds like those who have them already: what the model "
            "has learned is cause and effect, not people's choice.",
            "The policy changes no covariate but those named, and nothing that is not in the data.",
            "No interference: responses do not depend on the covariates of others, so that prices "
            "and chances stay as they are if many change.",
            _MODEL_IS_RIGHT,
            _NO_PERSONAL_EFFECTS,
        ),
        caution=caution_of(model, people, changed, X),
        overlap=None,
    )


def _population(X: Any, population: Any, arm: Ints) -> tuple[Any, Ints | None, str]:
    """Covariates, which rows of the data these are (None: of others), and who it is in words."""
    if not isinstance(population, str):
        return as_pandas(population), None, "the rows given"
    rows = {
        "all": np.arange(len(X)),
        "treated": np.flatnonzero(arm == 1),
        "control": np.flatnonzero(arm == 0),
    }
    if population not in rows:
        raise ValueError(
            f"population must be 'all', 'treated', 'control' or a table, got {population!r}"
        )
    if not len(rows[population]):
        raise ValueError(f"no row of X is {population}; check the values of the treatment")
    words = {"all": "all rows", "treated": "the treated", "control": "the controls"}[population]
    return taken(X, rows[population]), rows[population], words


def _thresholds(given: Sequence[float] | None, y: Floats, weight: Floats) -> Floats:
    """Those given, or some quantiles of the responses."""
    if given is not None:
        return np.atleast_1d(np.asarray(given, np.float64))
    return np.unique(QuantileTable.of_sample(y, weight).quantile(_SHARES))


def _alike(names: Sequence[str]) -> str:
    if not names:
        return "all rows"
    return f"rows with equal {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}"
