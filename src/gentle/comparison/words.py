"""A comparison in plain words, for readers who are no statisticians."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from gentle.comparison.results import Comparison

_NOISE = 2.0  # standard errors of a difference that may be chance
_NEARLY = 0.02  # as good: a CRPS at most this share larger
_FASTER = 5.0  # times, and by at least one second
_FAR = 0.05  # from the nominal coverage
_FEW = 30  # units, too few to trust a standard error


def sentences(result: Comparison) -> Iterator[str]:
    """The findings, one sentence each, the most important first."""
    table = result.table()
    ranked = table[table["rank"].notna()].set_index("model")
    useful = [model for model in ranked.index if _beats(result, model, result.baseline)]
    if useful:
        yield from _winner(result, ranked)
        yield from _against_baseline(result, ranked, useful)
        yield from _fast(ranked, useful)
    else:
        yield _nothing_found(result)
    yield from _calibration(result, ranked)
    unranked = [*result.failed, *result.left_out]
    if unranked:
        yield f"Not compared, because they failed or are not installed: {_listed(unranked)}."
    n_units = result.records["unit"].nunique()
    if n_units < _FEW:
        yield (
            f"Caution: there are only {n_units} independent units (rows linked by equal covariates "
            "or groups), so the standard errors themselves are rough."
        )


def _beats(result: Comparison, model: str, other: str) -> bool:
    """Whether the CRPS is smaller by more than noise."""
    difference, error = result.difference(model, other)
    return difference < -_NOISE * error


def _smaller(result: Comparison, model: str, other: str) -> str:
    """By how many percent of the other's CRPS the model's is smaller."""
    difference, whole = result.difference(other, model)[0], result.mean("crps", other)[0]
    return _percent(difference / whole if whole else 0.0)


def _winner(result: Comparison, ranked: pd.DataFrame) -> Iterator[str]:
    best, second, *others = ranked.index
    gap = _smaller(result, best, second)
    if _beats(result, best, second):
        yield (
            f"{best} wins: its CRPS is {gap} smaller than {second}'s, the runner-up, "
            "more than noise."
        )
    else:
        yield (
            f"{best} has the smallest CRPS, but only {gap} smaller than {second}'s, which is "
            "within noise: these rows cannot tell the two apart."
        )
        tied = [model for model in others if not _beats(result, best, model)]
        if tied:
            yield f"Nor can they tell {best} from {_listed(tied)}."
    if "GENTLE" in others:  # what the readers of this library ask first
        gap = _smaller(result, best, "GENTLE")
        noise = "more than noise" if _beats(result, best, "GENTLE") else "which is within noise"
        yield f"{best}'s CRPS is {gap} smaller than GENTLE's, {noise}."


def _against_baseline(
    result: Comparison, ranked: pd.DataFrame, useful: Sequence[str]
) -> Iterator[str]:
    best = ranked.index[0]
    gap = _percent(ranked.loc[best, "skill"])
    yield f"{best}'s CRPS is {gap} smaller than that of a forecast that ignores the covariates."
    others = [model for model in ranked.index if model not in (*useful, result.baseline)]
    worse = [model for model in others if _beats(result, result.baseline, model)]
    equal = [model for model in others if model not in worse]
    if equal:
        yield f"{_listed(equal)} {_do(equal)} not beat that forecast by more than noise."
    if worse:
        yield f"{_listed(worse)} {_do(worse)} worse than that forecast."


def _nothing_found(result: Comparison) -> str:
    n_rows = result.records["row"].nunique()
    return (
        "None of these models beats a forecast that ignores the covariates by more than noise: "
        f"the covariates tell nothing about the response that they could find in {n_rows:,} rows."
    )


def _fast(ranked: pd.DataFrame, useful: Sequence[str]) -> Iterator[str]:
    seconds = ranked["fit_seconds"] + ranked["predict_seconds"]
    best = ranked.index[0]
    for model in ranked.index[1:]:
        worse = ranked.loc[model, "crps"] / ranked.loc[best, "crps"] - 1
        saved, times = seconds[best] - seconds[model], seconds[best] / seconds[model]
        if model in useful and worse <= _NEARLY and times >= _FASTER and saved >= 1:
            yield (
                f"{model} is nearly as good (its CRPS is {_percent(worse)} larger) and "
                f"{times:.0f} times faster: {_seconds(seconds[model])} per fold instead of "
                f"{_seconds(seconds[best])}."
            )
            return


def _calibration(result: Comparison, ranked: pd.DataFrame) -> Iterator[str]:
    """Models whose intervals hold far too many or too few responses, beyond chance."""
    weight = result.records.loc[result.records["model"] == result.baseline, "weight"].to_numpy()
    n_effective = weight.sum() ** 2 / (weight @ weight)
    for model in ranked.index:
        off = {}
        for percent in (50, 90):
            nominal = percent / 100
            coverage, error = result.mean(f"covered_{percent}", model)
            # If all responses are covered the estimate has no spread, but the truth may have.
            chance = max(error, math.sqrt(nominal * (1 - nominal) / n_effective))
            if abs(coverage - nominal) > max(_FAR, _NOISE * chance):
                off[percent] = coverage
        if off:
            percent = max(off, key=lambda p: abs(off[p] - p / 100))
            kind = "narrow" if off[percent] < percent / 100 else "wide"
            yield (
                f"{model} is badly calibrated: its {percent} % intervals hold "
                f"{_percent(off[percent])} of the responses, so its forecasts are too {kind}."
            )


def _percent(share: float) -> str:
    return f"{float(np.format_float_positional(100 * share, 2, fractional=False)):g} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
