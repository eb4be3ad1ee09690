"""Is a metamodel as good as its simulator, and how much faster is it?"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gentle.metamodel.designs import Simulator, outputs, replicate
from gentle.metrics import evaluate, noise_floor
from gentle.streams import Seed, as_seed

_N_WORST = 5
_QUANTILES = (0.05, 0.5, 0.95)
_BEYOND_CHANCE = 3.0  # standard errors of the simulated mean


@dataclass(frozen=True, eq=False)
class Validation:
    """A model against fresh runs of its simulator.

    Attributes:
        points: A row per input: its values, then the simulator's ``mean`` and ``sd``, the model's
            ``predicted_mean``, ``z`` = (predicted_mean - mean) in standard errors of the simulated
            mean, ``wd`` and ``ks``, the Wasserstein and Kolmogorov-Smirnov distances of the two
            distributions.
        summary: Averages over the inputs (``score``) of ``wd``, ``ks``, root mean squared error of
            the mean (``rmse``) and ``coverage`` of 90 % intervals, beside the ``noise`` floor: what
            the simulator itself would score against as many runs.
        n_replications: Fresh runs per input.
    """

    points: pd.DataFrame
    summary: pd.DataFrame
    n_replications: int

    def worst(self, n: int = _N_WORST) -> pd.DataFrame:
        """The inputs where the distributions are farthest apart."""
        return self.points.sort_values("wd", ascending=False, kind="stable").head(n)

    def verdict(self) -> str:
        """The findings in words."""
        wd, noise = self.summary.loc["wd"].to_numpy()
        spread = float(self.points["sd"].mean())
        coverage = self.summary.loc["coverage", "score"]
        beyond = int((self.points["z"].abs() > _BEYOND_CHANCE).sum())
        return (
            f"At {len(self.points):,} inputs that were simulated afresh, {self.n_replications:,} "
            f"times each, the model's distribution is {wd:.3g} away from the simulator's on "
            f"average (Wasserstein), {wd / spread:.1%} of the typical standard deviation "
            f"{spread:.3g}; {noise:.2g} of it would be chance even for the simulator itself. Its "
            f"mean is wrong beyond chance (more than {_BEYOND_CHANCE:g} standard errors) at "
            f"{beyond:,} inputs. Its 90 % intervals hold {coverage:.1%} of the outputs."
        )

    def __str__(self) -> str:
        shown = [t.to_string(float_format="{:.4g}".format) for t in (self.summary, self.worst())]
        return f"{textwrap.fill(self.verdict(), 100)}\n\n{shown[0]}\n\nFarthest apart:\n{shown[1]}"


def validate(
    model: Any,
    simulator: Simulator,
    X: pd.DataFrame,
    n_replications: int = 1000,
    random_state: Seed = 0,
) -> Validation:
    """Compare a model with fresh runs of its simulator.

    Args:
        model: The fitted model.
        simulator: As in `replicate`.
        X: Inputs, ``(n, d)``, as a rule a `design` with another seed than that of the training.
        n_replications: Runs per input, at least 20.
        random_state: Seed; not that of the training runs.

    Returns:
        The validation; printing it prints what it found.

    Example:
        >>> from gentle import KNN
        >>> from gentle.metamodel import design
        >>> def queue(inputs, rng):
        ...     return rng.exponential(1 / inputs["rate"])
        >>> space = {"rate": (0.5, 1.5)}
        >>> model = KNN(n_neighbors=100).fit(*replicate(queue, design(space, 2000)))
        >>> found = validate(model, queue, design(space, 10, random_state=1), random_state=1)
        >>> bool(found.summary.loc["ks", "score"] < 0.2)
        True
    """
    if n_replications < 20:
        raise ValueError(f"distances need at least 20 runs per input, got {n_replications}")
    X = X.drop_duplicates().reset_index(drop=True)
    runs, y = replicate(simulator, X, n_replications, random_state)
    scores = evaluate(model, runs, y, random_state=random_state)
    floor = noise_floor(None, runs, y, n_repeats=5, random_state=random_state)["mean"]
    sd = y.reshape(-1, n_replications).std(axis=1, ddof=1)
    found = scores.records.sort_values("first_row", ignore_index=True)
    gap = found["predicted_mean"] - found["mean"]
    with np.errstate(divide="ignore", invalid="ignore"):  # an output that is always the same
        z = np.nan_to_num(gap * np.sqrt(n_replications) / sd, posinf=np.inf, neginf=-np.inf)
    points = X.assign(mean=found["mean"], sd=sd, predicted_mean=found["predicted_mean"], z=z)
    points = points.assign(wd=found["wd"], ks=found["ks"])
    score = scores.summary()
    names = ["wd", "ks", "coverage"]
    scored = {name: score[name] for name in names} | {"rmse": np.sqrt(score["mse"])}
    noise = {name: floor[name] for name in names} | {
        "rmse": np.sqrt((sd**2).mean() / n_replications)
    }
    summary = pd.DataFrame({"score": scored, "noise": noise})
    return Validation(points, summary, n_replications)


@dataclass(frozen=True)
class SpeedUp:
    """A simulator and its model, measured side by side.

    Attributes:
        simulator: Outputs per second of the simulator.
        model: Outputs per second of the model.
        answers: How many times faster the model gives quantiles at all inputs, for which it needs
            no outputs, than the simulator runs ``n_draws`` times at each.
        n_rows: Inputs.
        n_draws: Outputs per input.
    """

    simulator: float
    model: float
    answers: float
    n_rows: int
    n_draws: int

    @property
    def factor(self) -> float:
        """How many times faster the model gives outputs; below 1 it is slower."""
        return self.model / self.simulator

    def __str__(self) -> str:
        return (
            f"For {self.n_draws:,} outputs at each of {self.n_rows:,} inputs: the simulator gives "
            f"{self.simulator:,.0f} per second, the model {self.model:,.0f}, {self.factor:.3g} "
            "times as many. Quantiles at all inputs, for which the simulator needs those outputs, "
            f"the model gives {self.answers:.3g} times as fast."
        )


def speed_up(
    model: Any,
    simulator: Simulator,
    X: pd.DataFrame,
    n_draws: int = 1000,
    n_repeats: int = 3,
    random_state: Seed = 0,
) -> SpeedUp:
    """Measure a simulator and its model, by turns in one run.

    The simulator is called once, on all inputs ``n_draws`` times over, and so may use all that it
    gains from large tables; the model predicts and draws. The median of the repeats counts.

    Args:
        model: The fitted model.
        simulator: As in `replicate`.
        X: Inputs, ``(n, d)``.
        n_draws: Outputs per input.
        n_repeats: Repeats.
        random_state: Seed.

    Example:
        >>> import time
        >>> from gentle import Marginal
        >>> def slow(inputs, rng):
        ...     time.sleep(0.05)
        ...     return rng.normal(inputs["a"])
        >>> X = pd.DataFrame({"a": np.arange(10.0)})
        >>> speed_up(Marginal().fit(*replicate(slow, X)), slow, X, n_draws=10).factor > 1
        True
    """
    seed = as_seed(random_state)
    many = X.loc[X.index.repeat(n_draws)].reset_index(drop=True)
    seconds = []  # of simulating, drawing, answering
    for repeat in range(n_repeats):
        rng = np.random.default_rng([seed, repeat])
        work = (
            lambda rng=rng: outputs(simulator, many, rng),
            lambda repeat=repeat: model.sample(X, n_draws, repeat),
            lambda: model.predict_quantiles(X, _QUANTILES),
        )
        seconds.append([_seconds(one) for one in work])
    simulated, drawn, answered = np.median(seconds, axis=0).tolist()
    n = len(many)
    return SpeedUp(n / simulated, n / drawn, simulated / answered, len(X), n_draws)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
