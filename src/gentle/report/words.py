"""The verdict and the warnings of a report, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

from gentle.report import drift
from gentle.report.figures import counted, datum, listed, named, percent, plus_minus
from gentle.report.rivals import BASELINE
from gentle.report.study import Study

_FEW_ROWS, _FEW_COVARIATES = 100, 30
_SURE = 4.0  # standard errors
_BEYOND = 0.01  # share of responses that no distribution foresees
_ATOM = 0.05  # share of an atom that no model should miss
_FAR = 0.03  # share of rows unlike the training data; one in a hundred is usual


def verdict(study: Study) -> Iterator[str]:
    """The model in a few sentences."""
    yield accuracy(study)
    if len(ranked := first_tries(study)):
        best = ranked[0]
        gap, sure = study.gap(best)
        which = f"{best}'s, the best of the models that one would try first"
        if sure:
            yield f"That is {_smaller(gap)} than {which}."
        else:
            yield f"That is within noise of {which} ({_smaller(gap)})."
    share = study.answers.coverage.loc[0.9, "observed"]
    held = f"its 90 % intervals hold {percent(share)} of the responses"
    if study.verdict == "calibrated":
        yield f"Calibrated overall, as far as {counted(len(study.held), 'row')} can tell: {held}."
    else:
        yield f"Not calibrated overall: its distributions are {fault(study.verdict)}; {held}."
    yield _subgroups(study)
    if n_far := int(study.answers.far.sum()):
        rows = "row lies" if n_far == 1 else "rows lie"
        yield f"{n_far:,} of {len(study.held):,} test {rows} far outside the training data."


def accuracy(study: Study) -> str:
    """The CRPS in a sentence."""
    crps, error = study.comparison.mean("crps", study.name)
    gap, sure = study.gap(BASELINE)
    noise = "" if sure else ", which is within noise"
    return (
        f"CRPS {plus_minus(crps, error)} in units of {study.response}, "
        f"{_smaller(gap)} than that of a forecast that ignores the covariates{noise}."
    )


def first_tries(study: Study) -> list[str]:
    """The models fitted for comparison, the best first."""
    ranked = study.comparison.table()
    scored = ranked.loc[ranked["rank"].notna(), "model"]
    return [name for name in scored if name not in (study.name, BASELINE)]


def fault(verdict: str) -> str:
    """What is wrong, as the end of a sentence about distributions."""
    return "of the wrong shape" if verdict == "wrong shape" else verdict


def _smaller(gap: float) -> str:
    return f"{percent(abs(gap))} {'smaller' if gap >= 0 else 'larger'}"


def _subgroups(study: Study) -> str:
    wrong, n = study.wrong, len(study.groups)
    if not n:
        return "There are no subgroups to look at: the covariates do not vary."
    if not len(wrong):
        return f"None of the {counted(n, 'subgroup')} looked at is visibly miscalibrated."
    return f"Not calibrated for {listed(_named(wrong), most=4)}."


def _named(groups: pd.DataFrame) -> list[str]:
    return [
        f"{column} = {group} ({'' if verdict == 'wrong shape' else 'distributions '}{verdict})"
        for column, group, verdict in zip(groups["column"], groups["group"], groups["verdict"])
    ]


def cautions(study: Study) -> list[str]:
    """What to beware of, the gravest first."""
    return [
        *_usefulness(study),
        *_calibration(study),
        *_support(study),
        *_responses(study),
        *_training(study),
        *_table(study),
        *(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in study.answers.said),
    ]


def _usefulness(study: Study) -> Iterator[str]:
    gap, sure = study.gap(BASELINE)
    if gap <= 0 or not sure:
        yield (
            "The model is not better than a forecast that ignores the covariates by more than "
            "noise: these rows do not show that it has learned anything from them."
        )
    for name in first_tries(study):
        gap, sure = study.gap(name)
        if gap < 0 and sure:
            yield f"{name}, fitted to the training rows, is better: the CRPS is {_smaller(gap)}."


def _calibration(study: Study) -> Iterator[str]:
    row = study.answers.coverage.loc[0.9]
    inside = f"{percent(row['observed'])} of the responses are inside its 90 % intervals"
    between = f"(95 % confidence interval {percent(row['lower'])} to {percent(row['upper'])})"
    if row["upper"] < 0.9:
        yield f"Overconfident: only {inside} {between}."
    elif row["lower"] > 0.9:
        yield f"Too cautious: {inside} {between}."
    if study.verdict != "calibrated":
        yield f"Overall its distributions are {fault(study.verdict)}; see Calibration."
    if len(wrong := study.wrong):
        these = "this subgroup" if len(wrong) == 1 else "these subgroups"
        yield f"Do not trust its probabilities in {these}: {listed(_named(wrong), most=8)}."


def _support(study: Study) -> Iterator[str]:
    answers, n = study.answers, len(study.held)
    if n_far := int(answers.far.sum()):
        columns = answers.support.loc[answers.far, "column"].value_counts().index
        where = listed([named(column) for column in columns], most=3)
        yield (
            f"{counted(n_far, 'test row')} of {n:,} lie far outside the training data, in {where}: "
            "answers about them are guesses."
        )
    if study.train is not None and (share := float(answers.support["far"].mean())) > _FAR:
        yield (
            f"{percent(share)} of the test rows are farther from all training rows than 99 % of "
            "these are from each other."
        )
    if new := list(drift.unseen(study.model, study.held)):
        yield f"Categories that the model has never seen: {'; '.join(new)}."
    if moved := drift.shifts(study.model, study.held):
        more = f"; and {len(moved) - 5} more" if len(moved) > 5 else ""
        yield f"The test rows differ from the training data: {'; '.join(moved[:5])}{more}."


def _responses(study: Study) -> Iterator[str]:
    y, n = study.held.y, len(study.held)
    n_out = int(study.answers.impossible.sum())
    if n_out > _BEYOND * n:
        yield (
            f"{counted(n_out, 'response')} of {n:,} lie outside of all that the model thought "
            "possible there."
        )
    facts = getattr(study.model, "training_", None)
    beyond = 0 if facts is None else int(np.sum((y < facts.low) | (y > facts.high)))
    usual = 0 if facts is None else 2 * n / (facts.n_used + 1)  # of rows like the training rows
    if facts is not None and beyond > usual + 3 * np.sqrt(usual):
        yield (
            f"{counted(beyond, 'response')} of {n:,} lie outside of the range of the training "
            f"responses, {datum(facts.low)} to {datum(facts.high)}."
        )
    for value, observed, predicted in study.answers.atoms.itertuples(index=False):
        error = np.sqrt(observed * (1 - observed) / n)
        if observed >= _ATOM and predicted < observed / 2 and observed - predicted > _SURE * error:
            yield (
                f"{percent(observed)} of the responses are exactly {datum(value)}, but the model "
                f"gives that value a probability of {percent(predicted)} on average."
            )


def _training(study: Study) -> Iterator[str]:
    history: Sequence[dict[str, Any]] = getattr(study.learner, "history_", None) or [{}]
    if n := int(history[-1].get("rollbacks", 0)):
        yield (
            f"Training diverged {'once' if n == 1 else f'{n} times'} and went on from an earlier "
            "state with smaller steps; lower learning rates may do better."
        )
    losses = [value for record in history for value in record.values()]
    if not np.isfinite(losses).all():
        yield "The training history holds numbers that are not finite."
    here = version("gentle-ot")
    if (written := study.origin.get("versions", {}).get("gentle-ot", here)) != here:
        yield f"The model was saved by version {written} of this library; this is {here}."


def _table(study: Study) -> Iterator[str]:
    held = study.held
    if len(held) < held.n_given:
        yield (
            f"Of {held.n_given:,} test rows a random {len(held):,} were looked at, to save time; "
            "all that is said here is about these."
        )
    if len(held) < _FEW_ROWS:
        yield (
            f"Only {counted(len(held), 'test row')}: faults that are not gross cannot be seen, and "
            "standard errors are rough."
        )
    elif len(held.counts) < _FEW_COVARIATES:
        yield (
            f"The test rows have only {counted(len(held.counts), 'different covariate')}, so "
            "standard errors are rough, and little is known about others."
        )
    if study.train is None:
        return
    if (share := drift.copied(held, study.train)) is not None:
        yield (
            f"{percent(share)} of the test rows are in the training table too, response included. "
            "Scores on rows that a model has seen say little about new ones."
        )
    facts, n_train = getattr(study.model, "training_", None), len(study.train[1])
    around = study.learner is not study.model  # such a model calibrates on the other rows
    if facts is not None and n_train != facts.n_rows and not around:
        yield (
            f"The training table has {n_train:,} rows, but the model was fitted to "
            f"{facts.n_rows:,}: the models beside it were not fitted to the same rows."
        )
