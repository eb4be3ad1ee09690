"""What a comparison found: at the finest grain, as a ranked table, and in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gentle.comparison import words
from gentle.transport import wasserstein

_UNIFORM = (np.arange(1000) + 0.5) / 1000


@dataclass(frozen=True, eq=False)
class Comparison:
    """The scores of several models on the same held-out rows.

    Attributes:
        records: One row per model and held-out row:

            - ``model``, ``fold``, ``row``, ``unit``, ``weight``: who predicted which row of the
              table; the rows of one unit depend on each other;
            - ``crps``: the exact CRPS of the response;
            - ``pit``: the predicted probability of less than the response, uniform if the model is
              calibrated; where the model has an atom, a random point inside its step;
            - ``covered_50``, ``covered_90``: whether the response lies in the central 50 % and 90 %
              of the forecast, that is whether ``pit`` lies in the middle. An atom at the end of an
              interval thus counts with its share inside, and calibrated models cover 50 % and 90 %.

        cells: One row per model and fold: ``fit_seconds``, ``predict_seconds`` (of the held-out
            fold, scoring included), ``error`` (None, or why it failed), ``missing`` (whether that
            was a package that is not installed).
        distances: One row per model and covariate that repeats often enough: Wasserstein and
            Kolmogorov-Smirnov distance ``wd`` and ``ks``, as in `gentle.metrics.evaluate`.
        floor: About what the true distributions would score: ``mean`` and ``sd`` of ``wd`` and
            ``ks``; None if no covariate repeats often enough.
        baseline: The model that ignores the covariates.

    Example:
        >>> import gentle
        >>> X, y = np.arange(40.0)[:, None] % 20, np.arange(40.0) % 20
        >>> result = gentle.comparison.compare(X, y, ["Marginal"], n_folds=2)
        >>> len(result.records), result.records["unit"].nunique()
        (40, 20)
    """

    records: pd.DataFrame
    cells: pd.DataFrame
    distances: pd.DataFrame
    floor: pd.DataFrame | None
    baseline: str

    def table(self) -> pd.DataFrame:
        """One row per model, the smallest mean CRPS first, models that failed last.

        Columns, all weighted: ``rank``; ``model``; ``crps`` and its standard error ``crps_se``;
        ``difference`` to the best with its paired ``difference_se``; ``skill``, the share by which
        the CRPS is smaller than the baseline's; ``wd`` and ``ks``, averages over the
        ``n_repeated`` covariates that have them, and their noise floor ``wd_floor``, ``ks_floor``;
        ``coverage_50`` and ``coverage_90``; ``calibration_error``, the mean distance between the
        distribution of ``pit`` and the uniform one; ``fit_seconds`` and ``predict_seconds``, the
        medians over the folds; ``reason`` why a model failed.
        """
        best, marginal = next(iter(self._ranked)), self.mean("crps", self.baseline)[0]
        floor = {} if self.floor is None else self.floor["mean"].to_dict()
        rows = []
        for rank, (model, part) in enumerate(self._ranked.items(), start=1):
            crps, crps_se = self.mean("crps", model)
            difference, difference_se = self.difference(model, best)
            distances = self.distances[self.distances["model"] == model]
            pit, weight = part["pit"].to_numpy(), part["weight"].to_numpy()
            rows.append(
                {
                    "rank": rank,
                    "model": model,
                    "crps": crps,
                    "crps_se": crps_se,
                    "difference": difference,
                    "difference_se": difference_se,
                    "skill": 1 - crps / marginal,
                    "wd": distances["wd"].mean(),
                    "ks": distances["ks"].mean(),
                    "wd_floor": floor.get("wd", np.nan),
                    "ks_floor": floor.get("ks", np.nan),
                    "n_repeated": len(distances),
                    "coverage_50": self.mean("covered_50", model)[0],
                    "coverage_90": self.mean("covered_90", model)[0],
                    "calibration_error": float(wasserstein(pit, _UNIFORM, weight)),
                    **self._seconds.loc[model],
                    "reason": None,
                }
            )
        rows += [{"model": model, "reason": reason} for model, reason in self.failed.items()]
        return pd.DataFrame(rows).astype({"rank": "Int64", "n_repeated": "Int64"})

    def verdict(self) -> str:
        """Who wins, by how much, whether that is more than noise, and what to beware of.

        One sentence per line. "More than noise" is more than two standard errors of the paired
        difference, the rows of one unit counted as dependent; that the folds share training rows is
        not part of these errors.
        """
        return "\n".join(words.sentences(self))

    def mean(self, score: str, model: str) -> tuple[float, float]:
        """Weighted mean of a column of ``records`` for a model, and its standard error."""
        return self._mean(self._ranked[model][score])

    def difference(self, model: str, other: str) -> tuple[float, float]:
        """Mean CRPS of a model minus that of another, row by row, and its standard error."""
        return self._mean(self._ranked[model]["crps"] - self._ranked[other]["crps"])

    @property
    def failed(self) -> dict[str, str]:
        """Models that failed on some fold, with the reason."""
        return {
            model: f"{len(part)} of {self.cells['fold'].nunique()} folds: {part['error'].iloc[0]}"
            for model, part in self._errors[~self._errors["missing"]].groupby("model", sort=False)
        }

    @property
    def left_out(self) -> dict[str, str]:
        """Models that need a package that is not installed, with the reason."""
        missing = self._errors[self._errors["missing"]]
        return dict(zip(missing["model"], missing["error"]))

    @property
    def _errors(self) -> Any:
        return self.cells[self.cells["error"].notna()]

    @property
    def _seconds(self) -> Any:
        """Median seconds of each model; the first fit of a process may include slow imports."""
        return self.cells.groupby("model")[["fit_seconds", "predict_seconds"]].median()

    @cached_property
    def _ranked(self) -> dict[str, Any]:
        """The records of each model that has scored all rows, in order of rows, best first."""
        complete: Any = self.records[~self.records["model"].isin(self._errors["model"])]
        by_model = {
            model: part.set_index("row").sort_index()
            for model, part in complete.groupby("model", sort=False)
        }
        crps = {m: np.average(part["crps"], weights=part["weight"]) for m, part in by_model.items()}
        return {model: by_model[model] for model in sorted(crps, key=crps.__getitem__)}

    def _mean(self, values: pd.Series) -> tuple[float, float]:
        part = self._ranked[self.baseline]  # every model has the same rows
        share = part["weight"].to_numpy() / part["weight"].sum()  # (N,)
        scores = values.to_numpy(np.float64)
        mean = share @ scores
        # The estimate moves with whole units: the sandwich with one term for each of n of them.
        influence = np.bincount(part["unit"], share * (scores - mean))  # (n,)
        n = len(influence)
        return float(mean), float(np.sqrt(n / (n - 1) * influence @ influence))
