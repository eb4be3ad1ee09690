"""Models of other packages behind the same contract; ``gentle-ot[bench]`` installs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.special import ndtr

from gentle.data import Rows
from gentle.distribution import QuantileTable
from gentle.models import checks
from gentle.models.base import Floats
from gentle.models.checks import is_count
from gentle.models.levels import even_levels, table_through
from gentle.models.neural import chosen_device
from gentle.models.thirdparty import Adapter
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed

_DENSE = ndtr(np.linspace(-5, 5, 201))  # levels for known quantile functions, dense in the tails
_DISTRIBUTIONS = {"normal": "Normal", "laplace": "Laplace", "student": "TFixedDf"}


class Engression(Adapter):
    """Engression (Shen & Meinshausen): a network of covariates and noise, by the energy score.

    A row's distribution is that of ``n_draws`` outputs for one fixed set of noise, the same for all
    rows, straight between their order statistics. The package cannot weigh rows: one of weight w
    enters n w / Σw times, rounded up or down at random; rows of equal weights enter once each.
    Defaults were chosen by held-out CRPS; the package's own train far too little on most tables.

    Args:
        n_layers: Number of layers.
        hidden_width: Units of the hidden layers.
        noise_width: Noise inputs of each hidden layer.
        learning_rate: Of Adam.
        batch_size: Rows per step; more than half of the table means all rows.
        n_epochs: Passes over the rows; the weights of smallest held-out energy score are kept.
        n_draws: Resolution of a row's distribution.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        n_jobs: Threads; one unless told.
        random_state: Seed of the split, the initial weights and the noise.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: Not used; every model takes it.

    Attributes:
        model_: The package's ``Engressor``, in standardised units.

    Example:
        >>> model = Engression(random_state=0).fit(X, y)  # doctest: +SKIP
        >>> draws = model.sample(X, n_samples=100)  # doctest: +SKIP
    """

    _package: ClassVar[str] = "engression"
    _counts: ClassVar[str] = "hidden_width noise_width batch_size n_epochs n_jobs"
    _counts_above_one: ClassVar[str] = "n_layers n_draws"
    search_space: ClassVar[Space] = {
        "n_layers": Between(2, 5),
        "hidden_width": OneOf((50, 100, 200)),
        "learning_rate": Between(3e-4, 1e-2, log=True),
        "batch_size": OneOf((128, 256, 512)),
    }

    def __init__(
        self,
        *,
        n_layers: int = 4,
        hidden_width: int = 100,
        noise_width: int = 100,
        learning_rate: float = 3e-3,
        batch_size: int = 256,
        n_epochs: int = 200,
        n_draws: int = 1000,
        validation_fraction: float = 0.1,
        n_jobs: int = 1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_layers = n_layers
        self.hidden_width = hidden_width
        self.noise_width = noise_width
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.n_draws = n_draws
        self.validation_fraction = validation_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _train(self, package: Any, rows: Rows, held_out: Rows | None, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        rows, held_out = rows.resampled(rng), held_out and held_out.resampled(rng)
        return package.engression(
            rows.x,
            rows.y[:, None],
            x_val=held_out and held_out.x,
            y_val=held_out and held_out.y[:, None],
            num_layer=self.n_layers,
            hidden_dim=self.hidden_width,
            noise_dim=self.noise_width,
            lr=self.learning_rate,
            batch_size=self.batch_size,
            num_epochs=self.n_epochs,
            device=chosen_device(self.device),
            standardize=False,
            verbose=False,
        )

    def _n_knots(self) -> int:
        return self.n_draws

    def _table(self, x: Floats) -> QuantileTable:
        draws = np.empty((len(x), self.n_draws))
        for i in range(len(x)):  # one by one: a matrix product of another height rounds otherwise
            torch.manual_seed(0)
            draws[i] = self.model_.sample(x[i : i + 1], self.n_draws)[0, 0].cpu().numpy()
        return table_through((np.arange(self.n_draws) + 0.5) / self.n_draws, draws)


class NGBoost(Adapter):
    """Natural gradient boosting (Duan et al.): trees for the parameters of a distribution.

    The number of trees is the one of smallest CRPS on held-out covariates; the log score, by which
    the package itself stops, gives up far too early where the distribution does not fit.

    Args:
        distribution: "normal", "laplace", or "student" with three degrees of freedom.
        n_estimators: Largest number of boosting steps.
        learning_rate: Factor of each step.
        max_depth: Depth of the trees.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        random_state: Seed of the split and of ties between splits.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Attributes:
        model_: The package's ``NGBRegressor``, in standardised units.

    Example:
        >>> model = NGBoost(random_state=0).fit(X, y)  # doctest: +SKIP
        >>> draws = model.sample(X, n_samples=100)  # doctest: +SKIP
    """

    _package: ClassVar[str] = "ngboost"
    _counts: ClassVar[str] = "n_estimators max_depth"
    search_space: ClassVar[Space] = {
        "distribution": OneOf(("normal", "laplace", "student")),
        "learning_rate": Between(0.005, 0.1, log=True),
        "max_depth": Between(2, 6),
    }

    def __init__(
        self,
        *,
        distribution: Literal["normal", "laplace", "student"] = "normal",
        n_estimators: int = 1000,
        learning_rate: float = 0.02,
        max_depth: int = 3,
        validation_fraction: float = 0.1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.distribution = distribution
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        known = "'normal', 'laplace' or 'student'"
        checks.require(self, "distribution", lambda v: v in _DISTRIBUTIONS, known)

    def _train(self, package: Any, rows: Rows, held_out: Rows | None, seed: int) -> Any:
        from sklearn.tree import DecisionTreeRegressor

        model = package.NGBRegressor(
            Dist=getattr(package.distns, _DISTRIBUTIONS[self.distribution]),
            Base=DecisionTreeRegressor(max_depth=int(self.max_depth), random_state=seed),
            n_estimators=self.n_estimators,
            learning_rate=self.learning_rate,
            random_state=seed,
            verbose=False,
        )
        # Boosting starts at the marginal, for which the package forgets the weights.
        typical = rows.resampled(np.random.default_rng(seed)).y
        start = type(model).fit_init_params_to_marginal
        model.fit_init_params_to_marginal = lambda y: start(model, typical)
        model.fit(rows.x, rows.y, sample_weight=rows.weight)
        del model.fit_init_params_to_marginal
        if held_out is not None:
            scores = [
                held_out.weight @ _quantiles(stage, _DENSE[::10]).crps(held_out.y)
                for stage in model.staged_pred_dist(held_out.x)[9::10]
            ]
            model.best_val_loss_itr = 10 * int(np.argmin(scores)) + 9 if scores else None
        return model

    def _table(self, x: Floats) -> QuantileTable:
        best = self.model_.best_val_loss_itr
        found = self.model_.pred_dist(x, max_iter=None if best is None else best + 1)
        return _quantiles(found, _DENSE)


def _quantiles(found: Any, levels: Floats) -> QuantileTable:
    """Quantile functions of the package's distributions."""
    return table_through(levels, found.dist.ppf(levels[:, None]).T)


class CatBoost(Adapter):
    """CatBoost (Prokhorenkova et al.): symmetric trees, one pinball loss for many levels at once.

    Predictions are sorted along the levels, straight in between, and go on in the same direction
    beyond the first and the last. Boosting stops when the loss of held-out covariates no longer
    falls; the best number of trees is used.

    Args:
        n_levels: Number of levels k/(n_levels + 1).
        n_estimators: Largest number of trees.
        learning_rate: Factor of each tree.
        max_depth: Depth of the trees.
        patience: Trees without improvement after which boosting stops.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        n_jobs: Threads; one unless told.
        random_state: Seed of the split and of the boosting.
        device: Not used; every model takes it.
        verbose: Not used; every model takes it.

    Attributes:
        model_: The package's ``CatBoostRegressor``, in standardised units.

    Example:
        >>> model = CatBoost(random_state=0).fit(X, y)  # doctest: +SKIP
        >>> draws = model.sample(X, n_samples=100)  # doctest: +SKIP
    """

    _package: ClassVar[str] = "catboost"
    _counts: ClassVar[str] = "n_estimators max_depth patience n_jobs"
    _counts_above_one: ClassVar[str] = "n_levels"
    search_space: ClassVar[Space] = {
        "learning_rate": Between(0.01, 0.2, log=True),
        "max_depth": Between(3, 8),
    }

    def __init__(
        self,
        *,
        n_levels: int = 39,
        n_estimators: int = 500,
        learning_rate: float = 0.03,
        max_depth: int = 6,
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_jobs: int = 1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_levels = n_levels
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _train(self, package: Any, rows: Rows, held_out: Rows | None, seed: int) -> Any:
        model = package.CatBoostRegressor(
            loss_function=f"MultiQuantile:alpha={_listed(self.n_levels)}",
            iterations=self.n_estimators,
            learning_rate=self.learning_rate,
            depth=self.max_depth,
            random_seed=seed,
            thread_count=self.n_jobs,
            allow_writing_files=False,
            logging_level="Silent",
        )
        train, *rest = (package.Pool(r.x, r.y, weight=r.weight) for r in (rows, held_out) if r)
        stopping = {"eval_set": rest[0], "early_stopping_rounds": self.patience} if rest else {}
        return model.fit(train, **stopping)

    def _table(self, x: Floats) -> QuantileTable:
        predicted = self.model_.predict(x, thread_count=self.n_jobs)
        return table_through(even_levels(self.n_levels), predicted)


class RealMLP(Adapter):
    """RealMLP (Holzmüller et al.): a tuned network, here with one pinball loss for many levels.

    Predictions are sorted along the levels, straight in between, and go on in the same direction
    beyond the first and the last. The epoch of smallest held-out loss is kept. The package cannot
    weigh rows: one of weight w enters n w / Σw times, rounded up or down at random; rows of equal
    weights enter once each.

    Args:
        n_levels: Number of levels k/(n_levels + 1).
        n_epochs: Passes over the rows; the package's schedules stretch over all of them.
        batch_size: Rows per step.
        hidden_widths: Units of the hidden layers.
        learning_rate: Base rate of the package's schedule.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        n_jobs: Threads; one unless told.
        random_state: Seed of the split, the initial weights and the batches.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: Not used; every model takes it.

    Attributes:
        model_: The package's ``RealMLP_TD_Regressor``, in standardised units.

    Example:
        >>> model = RealMLP(random_state=0).fit(X, y)  # doctest: +SKIP
        >>> draws = model.sample(X, n_samples=100)  # doctest: +SKIP
    """

    _package: ClassVar[str] = "pytabkit"
    _counts: ClassVar[str] = "n_epochs batch_size n_jobs"
    _counts_above_one: ClassVar[str] = "n_levels"
    search_space: ClassVar[Space] = {
        "learning_rate": Between(0.02, 0.3, log=True),
        "hidden_widths": OneOf(((64, 64), (256, 256, 256), (512, 512))),
        "batch_size": OneOf((128, 256, 512)),
    }

    def __init__(
        self,
        *,
        n_levels: int = 39,
        n_epochs: int = 256,
        batch_size: int = 256,
        hidden_widths: Sequence[int] = (256, 256, 256),
        learning_rate: float = 0.14,
        validation_fraction: float = 0.1,
        n_jobs: int = 1,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_levels = n_levels
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.hidden_widths = hidden_widths
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        widths = "a sequence of positive integers"
        checks.require(
            self, "hidden_widths", lambda v: len(v) > 0 and all(map(is_count, v)), widths
        )

    def _train(self, package: Any, rows: Rows, held_out: Rows | None, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        rows, held_out = rows.resampled(rng), held_out and held_out.resampled(rng)
        loss = f"multi_pinball({_listed(self.n_levels)})"
        model = package.RealMLP_TD_Regressor(
            train_metric_name=loss,
            val_metric_name=loss,
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            predict_batch_size=1,  # a row's answer must not depend on its company
            hidden_sizes=[int(width) for width in self.hidden_widths],
            lr=self.learning_rate,
            val_fraction=0.0,
            n_threads=self.n_jobs,
            random_state=seed,
            device=chosen_device(self.device).type,
        )
        return model.fit(rows.x, rows.y, held_out and held_out.x, held_out and held_out.y)

    def _table(self, x: Floats) -> QuantileTable:
        return table_through(even_levels(self.n_levels), self.model_.predict(x))


def _listed(n_levels: int) -> str:
    """Levels as packages want them in the name of a loss."""
    return ",".join(str(float(level)) for level in even_levels(n_levels))
