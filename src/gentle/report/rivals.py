"""The model beside those that one would try first, fitted to the same rows and scored alike."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from gentle import diagnostics
from gentle.columns import taken
from gentle.comparison import Comparison
from gentle.metrics import evaluate, noise_floor
from gentle.models.registry import model_class
from gentle.report.findings import Answers, Floats, HeldOut

BASELINE = "Marginal"
MIN_RESPONSES = 20  # of a covariate, for distances between distributions
MAX_TRAINING = 20_000  # rows, for models that are tried first
QUICK = 3_000  # training rows up to which boosting takes seconds
_DISTANCES = ["row", "n_responses", "wd", "ks"]


class KnownMarginal:
    """The distribution of a model's training responses, whatever the covariates."""

    def __init__(self, model: Any) -> None:
        self._marginal = model.marginal_

    def predict_dist(self, X: Any) -> Any:
        """The same for each row."""
        return self._marginal.repeat(len(X))


def compared(
    model: Any,
    name: str,
    held: HeldOut,
    answers: Answers,
    train: tuple[Any, Any] | None,
    seed: int,
    tell: Callable[[str], None],
) -> Comparison:
    """Scores of a model, of the marginal and, with training rows, of models to try first.

    Args:
        model: A fitted model.
        name: What to call it.
        held: Rows to score on.
        answers: What it says about them.
        train: Covariates and responses to fit the others to.
        seed: Of the others.
        tell: Hears what is being done.

    Returns:
        The scores as of a cross-validation with one fold. Standard errors are over covariates, or
        over rows if there is only one covariate.
    """
    n_training = 0 if train is None else len(train[1])
    names = [BASELINE]
    if train is not None:
        boosting = ["BoostedQuantiles"] if n_training <= QUICK else []
        names = ["QuantileForest", *boosting, "KNN", BASELINE]
        if n_training > MAX_TRAINING:
            rows = np.random.default_rng(seed).permutation(n_training)[:MAX_TRAINING]
            train = taken(train[0], rows), np.asarray(train[1])[rows]
    often = np.flatnonzero(held.counts[held.covariate] >= MIN_RESPONSES)
    cells, records, distances = [], [], []
    for label in [name, *names]:
        cell: dict[str, Any] = {"model": label, "fold": 0, "error": None, "missing": False}
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what matters about the model is said elsewhere
                fitted, scores = model, (answers.crps, answers.pit)
                if label != name:
                    tell(f"Comparing with {label}")
                    fitted = KnownMarginal(model)
                    if train is not None:
                        fitted = _unfitted(label, seed).fit(*train)
                        cell["fit_seconds"] = time.perf_counter() - started
                    dist = fitted.predict_dist(held.X)
                    pit = diagnostics.pit(dist, None, held.y, random_state=seed)
                    scores = dist.crps(held.y), pit
                records.append(_records(label, held, *scores))
                if len(often):
                    distances.append(_distances(fitted, label, held, often, seed))
        except Exception as error:  # a model that is only there for comparison may fail
            if label in (name, BASELINE):
                raise
            cell["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        cells.append({"fit_seconds": np.nan, "predict_seconds": np.nan} | cell)
    floor = None
    if len(often):
        tell("Estimating the noise floor")
        X, y = taken(held.X, often), held.y[often]
        floor = noise_floor(None, X, y, random_state=seed, min_responses=MIN_RESPONSES)
        floor = floor.loc[["wd", "ks"]]
    nothing = pd.DataFrame({key: [] for key in ["model", "fold", *_DISTANCES]})
    return Comparison(
        pd.concat(records, ignore_index=True),
        pd.DataFrame(cells),
        pd.concat(distances, ignore_index=True) if distances else nothing,
        floor,
        BASELINE,
    )


def _unfitted(name: str, seed: int) -> Any:
    model: Any = model_class(name)()
    known = model.get_params()
    return model.set_params(**{"random_state": seed} if "random_state" in known else {})


def _records(label: str, held: HeldOut, crps: Floats, pit: Floats) -> pd.DataFrame:
    off_centre = np.abs(pit - 0.5)
    one_covariate = held.covariate.max() == 0
    return pd.DataFrame(
        {
            "model": label,
            "fold": 0,
            "row": held.at,
            "unit": np.arange(len(held)) if one_covariate else held.covariate,
            "weight": 1.0,
            "crps": crps,
            "pit": pit,
            "covered_50": off_centre <= 0.25,
            "covered_90": off_centre <= 0.45,
        }
    )


def _distances(model: Any, label: str, held: HeldOut, often: Any, seed: int) -> pd.DataFrame:
    X, y = taken(held.X, often), held.y[often]
    scores: Any = evaluate(model, X, y, random_state=seed, min_responses=MIN_RESPONSES).records
    found = scores.assign(model=label, fold=0, row=held.at[often[scores["first_row"]]])
    return found[["model", "fold", *_DISTANCES]]
