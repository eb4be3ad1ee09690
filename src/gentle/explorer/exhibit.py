"""A model on show, perhaps with the rows that it has learned from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gentle.columns import Label, as_pandas
from gentle.diagnostics import support
from gentle.distribution import ConditionalDistribution
from gentle.explorer import answers
from gentle.explorer.controls import Control, controls_of, rows_of

Floats = NDArray[np.float64]
Values = dict[Label, Any]  # what is chosen, by column; None is missing

_BUNDLED = Path(__file__).parent / "bundled"
_N_LANDMARKS = 2000  # rows among which it is asked how usual a covariate is: at once, each time


@dataclass(frozen=True)
class Exhibit:
    """A fitted model, its controls, and the training rows if there are any.

    Attributes:
        model: The model.
        controls: One for each covariate.
        rows: Covariates of the training rows, ``(n, d)``.
        y: Their responses, ``(n,)``, None if the table has none.
        note: What else one should know.
    """

    model: Any
    controls: list[Control]
    rows: pd.DataFrame | None = None
    y: Floats | None = None
    note: str = ""
    _encoded: Floats = field(default_factory=lambda: np.empty((0, 0)), repr=False)

    @classmethod
    def of(cls, model: Any, data: Any = None) -> Exhibit:
        """Show a fitted model.

        Args:
            model: The model.
            data: Table of the training rows: columns named like the model's covariates, and the
                response under its name.

        Raises:
            ValueError: The table lacks columns, or holds what the model cannot read.

        Example:
            >>> exhibit = Exhibit.demo()
            >>> [control.name for control in exhibit.controls][:3]
            ['age', 'schooling_years', 'occupation']
            >>> start = exhibit.start
            >>> float(exhibit.distribution(start).cdf(-1.0)[0])
            0.0
        """
        if data is None:
            return cls(model, controls_of(model))
        data = pd.DataFrame(as_pandas(data)).reset_index(drop=True)
        response = data.get(model.response_name_) if model.response_name_ else None
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            rows = data if response is None else data.drop(columns=model.response_name_)
        elif missing := [name for name in names if name not in data]:
            raise ValueError(
                f"the data lack the model's column(s) {', '.join(map(repr, missing[:5]))}; "
                f"they have {', '.join(map(repr, data.columns[:20]))}"
            )
        else:
            rows = data.loc[:, list(names)]
        model.predict_dist(rows)  # computes nothing, but says what cannot be read
        y = None if response is None else np.asarray(pd.to_numeric(response, errors="coerce"))
        encoded = model.covariate_encoder_.encode(rows)
        return cls(model, controls_of(model, rows), rows, y, _encoded=encoded)

    @classmethod
    def demo(cls) -> Exhibit:
        """The model that comes with the library, of incomes of made-up people."""
        from gentle.models import load

        shown = cls.of(load(_BUNDLED / "model"), pd.read_csv(_BUNDLED / "people.csv"))
        return replace(shown, note="A demonstration, with the incomes of people who are made up.")

    @property
    def response(self) -> str:
        """The name of the response, which no covariate has."""
        name = self.model.response_name_ or "response"
        while name in [control.label for control in self.controls]:
            name += "_"
        return name

    @property
    def start(self) -> Values:
        """The values at which one starts."""
        return {control.label: control.start for control in self.controls}

    def control(self, label: Label) -> Control:
        """The control of a column."""
        return next(control for control in self.controls if control.label == label)

    @property
    def spread(self) -> float:
        """The width of the middle nine tenths of all responses, or of all if that is nothing."""
        lowest, low, high, highest = self.model.marginal_.quantile([0.0, 0.05, 0.95, 1.0])[0]
        return float(high - low or highest - lowest)

    @property
    def digits(self) -> int:
        """Decimals of responses that are worth a look; negative for tens, hundreds, ..."""
        return answers.digits_of(self.spread)

    def said(self, y: float) -> str:
        """A response in words."""
        return answers.in_words(y, self.spread)

    def distribution(self, values: Values) -> ConditionalDistribution:
        """Of the response, given these values; one row."""
        return self.model.predict_dist(rows_of(self.controls, values))

    def intervals(self, values: Values, coverages: tuple[float, ...] = (0.8, 0.9)) -> list[str]:
        """Prediction intervals in words."""
        row = rows_of(self.controls, values)
        ends = [self.model.predict_interval(row, coverage)[0] for coverage in coverages]
        return [f"{self.said(low)} to {self.said(high)}" for low, high in ends]

    def along(self, values: Values, label: Label) -> tuple[list[Any], Floats]:
        """Quantiles along a covariate, the others fixed: its values, and ``(m, levels)``."""
        control = self.control(label)
        grid = control.grid()
        rows = rows_of(self.controls, values, len(grid))
        rows[label] = [control.cell(value) for value in grid]
        return grid, self.model.predict_quantiles(rows, answers.LEVELS)

    def draws(self, values: Values, n: int, seed: int) -> pd.DataFrame:
        """Draws as ``model.sample`` gives them with this seed, beside the covariates."""
        drawn = self.model.sample(rows_of(self.controls, values), n, seed)[0]
        table = rows_of(self.controls, values, n)
        table[self.response] = drawn
        return table

    def nearest(self, values: Values, k: int) -> pd.DataFrame:
        """The training rows nearest to these values, with their distances and responses.

        Distances are those between covariates as the model sees them: numbers in standard
        deviations, two levels of a category one apart.
        """
        assert self.rows is not None
        x = self.model.covariate_encoder_.encode(rows_of(self.controls, values))  # (1, D)
        far = np.linalg.norm(self._encoded - x, axis=1)  # (n,)
        order = np.argsort(far, kind="stable")[:k]
        found = {"distance": far[order]}
        if self.y is not None:
            found[self.response] = self.y[order]
        table = pd.DataFrame(found, index=pd.Index(order, name="row"))
        return pd.concat([table, self.rows.iloc[order]], axis=1)

    def doubts(self, values: Values) -> list[str]:
        """Why the answer for these values may be a guess, in words; nothing if it is not."""
        row = rows_of(self.controls, values)
        some = self._landmarks()
        found = support(self.model, row, some).iloc[0]
        if found["excess"] > 0:
            label = found["column"]
            control, covariate = self.control(label), self._covariate(label)
            what = f"{control.name} = {control.said(values[label])}"
            if np.isinf(found["excess"]) or covariate.kind not in ("number", "duration", "date"):
                return [f"{what} was never seen in training: this answer is a guess."]
            low, high = self._range(label)
            if found["far"]:
                return [
                    f"{what} lies far beyond the training values, which go from {low} to {high}: "
                    "this answer is a guess."
                ]
            return [f"{what} lies beyond the training values, which go from {low} to {high}."]
        if found["far"]:
            return [
                "Each of these values is usual, but together they are not: the nearest training "
                f"row is {found['distance']:.2g} away, and only {100 * found['usual']:.1g} % of "
                "the training rows are that far from all others. This answer is a guess."
            ]
        return []

    def _landmarks(self) -> pd.DataFrame | None:
        if self.rows is None or len(self.rows) <= _N_LANDMARKS:
            return self.rows
        chosen = np.random.default_rng(0).permutation(len(self.rows))[:_N_LANDMARKS]
        return self.rows.iloc[np.sort(chosen)]

    def _covariate(self, label: Label) -> Any:
        encoder = self.model.covariate_encoder_
        return encoder.covariates[encoder.labels.index(label)]

    def _range(self, label: Label) -> tuple[str, str]:
        """The ends of a column's training values, in words."""
        whole = Control.of(label, self._covariate(label))
        return whole.said(whole.low), whole.said(whole.high)
