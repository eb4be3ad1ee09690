"""All that a report knows, gathered before a word of it is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.comparison import Comparison
from gentle.models import ConditionalGenerator, checks
from gentle.report import findings, rivals
from gentle.report.figures import cut
from gentle.report.findings import Answers, Frame, HeldOut
from gentle.report.groups import By, partitions
from gentle.streams import Seed, as_seed

_NOISE = 2.0  # standard errors of a difference that may be chance


@dataclass(frozen=True, eq=False)
class Study:
    """What was found about a model.

    Attributes:
        model: The model.
        origin: When it was ``written`` and with which ``versions``, as its folder says, if it came
            from one.
        name: What the tables call it.
        response: What the response is called.
        held: The rows that it was tested on.
        train: Covariates and responses of the training rows, if they were given.
        answers: What it says about the test rows.
        comparison: Its scores, and those of others.
        overall: Its calibration.
        asked: Whether the subgroups were asked for.
        partitions: The subgroup of each row, by column.
        groups: How it does in them.
        seed: Of all that is random.
    """

    model: Any
    origin: dict[str, Any]
    name: str
    response: str
    held: HeldOut
    train: tuple[Any, Any] | None
    answers: Answers
    comparison: Comparison
    overall: Frame
    asked: bool
    partitions: dict[str, pd.Series]
    groups: Frame
    seed: int

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        y: ArrayLike,
        train: tuple[Any, Any] | None,
        by: By,
        max_rows: int,
        random_state: Seed,
        tell: Callable[[str], None],
    ) -> Study:
        """Examine a model; the arguments are those of `gentle.report.report`."""
        model, origin = _opened(model)
        seed = as_seed(random_state)
        held = _held_out(model, X, y, max_rows, seed)
        if train is not None:
            train = train[0], checks.responses(train[1], None, len(train[0]), "report (train)")[0]
        tell(f"Asking the model about {len(held):,} rows")
        answers = Answers.of(model, held, None if train is None else train[0], seed)
        groups = partitions(held.table, by, held.at, held.n_given)
        name = f"this model ({type(model).__name__})"
        return cls(
            model,
            origin,
            name,
            cut(getattr(y, "name", None) or model.response_name_ or "the response"),
            held,
            train,
            answers,
            rivals.compared(model, name, held, answers, train, seed, tell),
            findings.calibration_of(answers),
            by is not None,
            groups,
            findings.subgroups(answers, groups),
            seed,
        )

    @property
    def learner(self) -> Any:
        """The model that was trained: that inside of a model around another."""
        inner = getattr(self.model, "model_", None)
        return inner if isinstance(inner, ConditionalGenerator) else self.model

    @property
    def verdict(self) -> str:
        """On the calibration overall."""
        return self.overall["verdict"].iloc[0]

    @property
    def wrong(self) -> Frame:
        """Subgroups in which the model is not calibrated."""
        return self.groups[~self.groups["verdict"].isin(["calibrated", "too few rows"])]

    def gap(self, other: str) -> tuple[float, bool]:
        """By which share of the other's CRPS the model's is smaller, and whether beyond noise."""
        difference, error = self.comparison.difference(self.name, other)
        whole = self.comparison.mean("crps", other)[0]
        return (-difference / whole if whole else 0.0), abs(difference) > _NOISE * error


def _opened(model: Any) -> tuple[Any, dict[str, Any]]:
    """A model, and what its folder says about it."""
    if not isinstance(model, (str, Path)):
        return model, {}
    from gentle.models.persistence import load

    fitted = load(model)
    facts = json.loads((Path(model) / "model.json").read_text(encoding="utf-8"))
    kinds = {"written": str, "versions": dict}  # nobody has checked these
    return fitted, {key: facts[key] for key in kinds if isinstance(facts.get(key), kinds[key])}


def _held_out(model: Any, X: Any, y: ArrayLike, max_rows: int, seed: int) -> HeldOut:
    if max_rows < 2:
        raise ValueError(f"max_rows must be at least 2, got {max_rows}")
    table = checks.covariates(X, "report")
    target, _ = checks.responses(y, None, len(table), "report")
    if len(target) < 2:
        raise ValueError("a report needs at least 2 test rows, got 1")
    return HeldOut.of(X, target, max_rows, np.random.default_rng(seed))
