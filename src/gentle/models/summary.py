"""A fitted model in a few lines to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gentle.columns import Label
from gentle.covariates import Covariate

if TYPE_CHECKING:
    from gentle.models.base import ConditionalGenerator

_MAX_COLUMNS = 30
_SHOWN_COLUMNS = 25  # if there are more than that many
_SHOWN_LEVELS = 3
_WIDTHS = (24, 10, 48, 8, 60)  # of the cells of the table


class Summary(str):
    """A text that a notebook or the prompt shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary_of(model: ConditionalGenerator) -> Summary:
    """A fitted model: settings, rows, response, columns, training, and what it says itself."""
    check_is_fitted(model, "covariate_encoder_")
    lines = [
        repr(model),
        _rows(model),
        _response(model),
        *_columns(model),
        *_training(getattr(model, "history_", None)),
        f"holds {held_by(model)}" if model._holds or model.training_rows_ else "",
        *model._describe(),
    ]
    return Summary("\n".join(line for line in lines if line))


def held_by(model: ConditionalGenerator) -> str:
    """What of the training data a fitted model holds, in words."""
    kept = "the training rows" if model.training_rows_ is not None else model._holds
    return kept or "no training rows"


def _rows(model: ConditionalGenerator) -> str:
    facts = getattr(model, "training_", None)
    if facts is None:  # saved by a version that did not keep them
        return ""
    said = f"{facts.n_rows:,} rows"
    if facts.n_used < facts.n_rows:
        said += f", {facts.n_used:,} of positive weight"
    if facts.n_sampled:
        said += (
            f"; {facts.n_sampled:,} of them, drawn at random, decided how columns and response are "
            f"encoded: ranks are at most {100 * facts.rank_error:.2g} % off (with probability 95 %)"
        )
        return said
    if facts.n_distinct < facts.n_used:
        said += f", of which {facts.n_distinct:,} differ"
    said += f", with {facts.n_covariates:,} different covariates"
    if facts.n_effective < facts.n_used * (1 - 1e-9):
        said += f"; by their weights worth {facts.n_effective:,.1f} rows"
    return said


def _response(model: ConditionalGenerator) -> str:
    facts = getattr(model, "training_", None)
    if facts is None:
        return ""
    name = "" if model.response_name_ is None else f" {model.response_name_}"
    atoms = "".join(f"; {value:g} is {_percent(share)} of it" for value, share in facts.atoms)
    return f"response{name}: {facts.low:g} to {facts.high:g}{atoms}"


def _columns(model: ConditionalGenerator) -> list[str]:
    """A table with a row per column, at most about thirty."""
    encoder = model.covariate_encoder_
    columns = list(zip(encoder.labels, encoder.covariates))
    shown = columns if len(columns) <= _MAX_COLUMNS else columns[:_SHOWN_COLUMNS]
    cells = [("column", "kind", "range", "missing", "encoded as")]
    cells += [_cells(label, covariate) for label, covariate in shown]
    cells = [[_cut(cell, width) for cell, width in zip(row, _WIDTHS)] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells)]
    count = "1 column" if len(columns) == 1 else f"{len(columns):,} columns"
    lines = [f"{count}, encoded in {encoder.n_encoded:,}:"]
    for row in cells:
        lines.append("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths)).rstrip())
    if len(shown) < len(columns):
        lines.append(f"  … and {len(columns) - len(shown):,} more columns")
    return lines


def _cells(label: Label, c: Covariate) -> tuple[str, str, str, str, str]:
    missing = _percent(c.missing) if c.missing else ""
    return str(label), c.kind, _range(c), missing, _encoding(c)


def _range(c: Covariate) -> str:
    if c.missing == 1:
        return ""
    if c.kind == "category":
        pairs = list(zip(c.levels, c.shares))[:_SHOWN_LEVELS]
        parts = [f"{_cut(level, 20)} {_percent(share)}" for level, share in pairs]
        n_more = len(c.levels) - len(pairs)
        parts += [f"{n_more} more"] if n_more else []
        parts += [f"rare {_percent(c.others)}"] if c.others else []
        return ", ".join(parts)
    if c.kind == "ordered":
        return " < ".join(c.levels)
    if c.kind == "boolean":
        return f"{_percent(c.mean)} true"
    if c.kind == "date":
        low, high = (np.datetime64(int(np.floor(day)), "D") for day in (c.low, c.high))
        return f"{low} to {high}"
    unit = " s" if c.kind == "duration" else ""
    return f"{c.low:g} to {c.high:g}{unit}"


def _encoding(c: Covariate) -> str:
    if c.constant:
        return "nothing: all levels are rare" if c.others else "nothing: constant"
    if c.kind == "category":
        return f"{c.n_indicators} indicators" if c.width > 1 else "±1/2"
    what = {"ordered": "rank, standardised", "date": "days, standardised"}
    said = what.get(c.kind, "standardised") if c.scale else "constant"
    said += ", season" if c.seasonal else ""
    return said + (", missing or not" if c.missing else "")


def _training(history: Any) -> list[str]:
    if not history:
        return []
    last = history[-1]
    epochs = "1 epoch" if len(history) == 1 else f"{len(history):,} epochs"
    said = f"trained for {epochs}"
    if "seconds" in last:
        said += f" in {last['seconds']:.1f} seconds"
    scored = [record for record in history if "validation" in record]
    if scored:
        best = min(scored, key=lambda record: record["validation"])
        said += f"; best validation {best['validation']:.4g} after epoch {best['epoch']:.0f}"
    if "tree_excess" in last:
        said += (
            "; with an approximate spanning tree, whose nearest neighbours are "
            f"{last['tree_excess']:.1%} farther away than the true ones"
        )
    return [said]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.2g} %"


def _cut(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
