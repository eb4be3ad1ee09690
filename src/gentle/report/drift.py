"""Held-out rows beside what a model remembers of its training data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gentle.columns import Column, Columns, Kind
from gentle.covariates import Covariate
from gentle.data import group_rows
from gentle.report.figures import cell, counted, cut, listed, named, number, percent, rounded, value
from gentle.report.findings import HeldOut

_SHIFT = 0.25  # standard deviations that matter
_MOVED = 0.1  # share of the rows that matters
_SURE = 4.0  # standard errors that are no chance, however many columns there are
_COPIED = 0.5  # share of rows that are in the training table, too, which matters


def columns(model: Any, held: HeldOut) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Each column: name, kind, its values in training and in the rows, and what is missing."""
    encoder = model.covariate_encoder_
    for label, c, column in zip(encoder.labels, encoder.covariates, held.table.columns):
        gap = float(np.isnan(column.values).mean())
        if c.kind in ("category", "ordered"):
            known = dict(zip([*c.levels, None], [*c.shares, c.others]))
            trained, found = _levels(known), _levels(_shares(c, column))
        else:
            trained = _range(c.low, c.high, c.mean, c.kind) if c.missing < 1 else "–"
            found = "–"
            if gap < 1:
                values = column.as_numbers(c.kind, label)
                found = _range(np.nanmin(values), np.nanmax(values), np.nanmean(values), c.kind)
        yield named(label), c.kind, trained, found, _gap(c.missing), _gap(gap)


def _range(low: Any, high: Any, mean: Any, kind: Kind) -> str:
    if kind == "boolean":
        return f"{percent(mean)} true"
    if low == high:
        return f"always {value(float(low), kind)}"
    centre = np.floor(mean) if kind == "date" else rounded(float(mean))
    low, high, centre = (value(float(one), kind) for one in (low, high, centre))
    return f"{low} to {high}, mean {centre}"


def _levels(shares: dict[str | None, float]) -> str:
    often = sorted(((level, p) for level, p in shares.items() if p), key=lambda pair: -pair[1])
    names = [f"{'others' if level is None else cut(level)} ({percent(p)})" for level, p in often]
    return listed(names, most=4) if names else "–"


def _shares(c: Covariate, column: Column) -> dict[str | None, float]:
    """Shares of the levels that the model knows, and of all others (None)."""
    place = column.as_positions(c.levels, len(c.levels))  # -1 is missing
    count = np.bincount(place + 1, minlength=len(c.levels) + 2)[1:]
    return dict(zip([*c.levels, None], (count / len(place)).tolist()))


def _gap(share: float) -> str:
    return percent(share) if share else ""


def unseen(model: Any, held: HeldOut) -> Iterator[str]:
    """Categories that the model does not know by name, in words."""
    encoder = model.covariate_encoder_
    for label, c, column in zip(encoder.labels, encoder.covariates, held.table.columns):
        if c.kind not in ("category", "ordered") or c.missing == 1 or c.others:
            continue  # levels that were rare in training have no names
        new = np.flatnonzero(column.as_positions(c.levels, len(c.levels)) == len(c.levels))
        if len(new):
            names = list(dict.fromkeys(repr(cell(column, row)) for row in new))
            yield f"{named(label)}: {listed(names, most=3)} ({counted(len(new), 'row')})"


def shifts(model: Any, held: HeldOut) -> list[str]:
    """How the rows differ from the training data more than by chance, the largest first."""
    encoder, facts = model.covariate_encoder_, getattr(model, "training_", None)
    n_train = np.inf if facts is None else facts.n_covariates
    noise = np.sqrt(1 / len(held.counts) + 1 / n_train)  # equal covariates are not independent
    found: list[tuple[float, str]] = []
    for label, c, column in zip(encoder.labels, encoder.covariates, held.table.columns):
        name, gap = named(label), float(np.isnan(column.values).mean())
        moved = abs(gap - c.missing)
        if moved > max(_MOVED, _SURE * noise * np.sqrt(max(c.missing * (1 - c.missing), 0.01))):
            found.append((moved / _MOVED, f"{name} is missing {_shares_of(gap, c.missing)}"))
        if c.kind in ("category", "ordered"):
            known, own = dict(zip([*c.levels, None], [*c.shares, c.others])), _shares(c, column)
            moved = sum(abs(own[key] - p) for key, p in known.items()) / 2
            usual = (
                sum(np.sqrt(max(p * (1 - p), 0) / np.pi * 2) for p in known.values()) / 2 * noise
            )
            if moved > max(_MOVED, _SURE * usual):
                most = max(known, key=lambda key: abs(own[key] - known[key]))
                which = "other levels" if most is None else repr(cut(most))
                text = f"{name} is {which} {_shares_of(own[most], known[most])}"
                found.append((moved / _MOVED, text))
        elif c.scale > 0 and gap < 1:
            shift = (np.nanmean(column.as_numbers(c.kind, label)) - c.mean) / c.scale
            found += _moved(name, float(shift), noise)
    deviation = float(model.marginal_.std()[0])
    if deviation > 0:
        shift = (held.y.mean() - float(model.marginal_.mean()[0])) / deviation
        found += _moved("the response", shift, noise)
    return [text for _, text in sorted(found, key=lambda pair: -pair[0])]


def _shares_of(now: float, then: float) -> str:
    return f"in {percent(now)} of the rows, in training in {percent(then)}"


def _moved(name: str, shift: float, noise: float) -> list[tuple[float, str]]:
    if abs(shift) <= max(_SHIFT, _SURE * noise):
        return []
    where = "higher" if shift > 0 else "lower"
    text = (
        f"{name} is on average {number(abs(shift), 2)} standard deviations {where} than in training"
    )
    return [(abs(shift) / _SHIFT, text)]


def copied(held: HeldOut, train: tuple[Any, Any]) -> float | None:
    """Share of the rows that are training rows, too, response included; None if that is usual."""
    n_train = len(train[1])
    keys = np.concatenate([Columns.of(train[0]).keys(), held.table.keys()])
    y = np.concatenate([np.asarray(train[1], np.float64).ravel(), held.y])
    _, group = group_rows(np.column_stack([keys, y]))
    often = np.bincount(group[:n_train], minlength=group.max() + 1)
    share = float(np.mean(often[group[n_train:]] > 0))
    usual = float(np.mean(often[group[:n_train]] > 1))  # in a table of few values all rows repeat
    return share if share > max(_COPIED, usual + 0.2) else None
