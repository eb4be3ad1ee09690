"""GENTLE: generative neural transport learning of conditional distributions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gentle.data import Grouped
from gentle.distribution import ConditionalDistribution
from gentle.models import checks, settings
from gentle.models.base import Floats
from gentle.models.checks import is_count
from gentle.models.distillation import Effort, distilled
from gentle.models.ensemble import Ensemble
from gentle.models.game import MIN_RESPONSES_FOR_SKILL, Map, map_values, play, rearranged
from gentle.models.intake import crps_of_marginal
from gentle.models.learning import learn
from gentle.models.neural import NeuralGenerator
from gentle.models.settings import PAPER
from gentle.nets import MonotoneMap, PaperMLP
from gentle.responses import Bounds, Tails
from gentle.spaces import Between, OneOf, Space
from gentle.streams import Seed, as_seed

_HELD_AT_ONCE = 6  # arrays as large as the answer, on the way to it


class GENTLE(NeuralGenerator):
    r"""A map T(x, u) that makes uniform U distributed like Y given X = x.

    As it comes, T is an average of quantile functions, the Wasserstein barycentre on the line: of
    small networks that are monotone in u by construction, several kinds of them on several parts
    of the data, fitted by CRPS, and of regression trees. Where boosted trees help, networks of one
    kind and the regression trees see what those expect as a further column. Training stops, and
    the weights of the average are chosen, by the CRPS of covariates that a part has not seen. It
    works in coordinates of the response in which atoms (zeros, top-codes, heaped values) have
    width, so that they come back exactly and with their probabilities; see
    `gentle.responses.ResponseEncoder`.

    `from_paper` is the model of the paper: one network without constraints that minimises Fit(θ) +
    λ max_φ R(θ, φ). Fit (Eq. 8) compares U with the kernel cdf of a covariate's responses at
    T(x, U). R (Eq. 10) is the entropic optimal-transport cost between the map's distributions at
    covariates that are neighbours in the minimum spanning tree, in its semi-dual form with a
    conditional potential v_φ(x, y). Both networks are trained by doubly smoothed gradient
    descent-ascent (Alg. 2). There, distinct covariates count equally, however many responses they
    have, and ``bandwidth`` and ``epsilon`` are in units of the standardised response. Any ``map``,
    ``fit_loss`` or ``regulariser`` that the default does not have is trained in this way.

    Args:
        map: "monotone", or "mlp" for the paper's free network.
        fit_loss: "crps" is the pinball loss over all u, "cdf" is Eq. 8, "w2" the squared distance
            of quantiles of Eq. 7.
        regulariser: What pulls neighbours together: "quantile" is ∫ |T(x_i, u) - T(x_j, u)|² du,
            the squared Wasserstein distance for monotone maps; "entropic" is Eq. 10; "sinkhorn" is
            Eq. 10 without its bias, the Sinkhorn divergence.
        reg_weight: λ, strength of the regulariser; 0 switches it off, "auto" chooses by the CRPS
            of unseen rows (not in the paper's game; five times the time). None is 0 for the
            default, which nothing improved on in our study, and 0.4 in the paper's game.
        tails: "extrapolate" goes on beyond the observed responses, "observed" stays within them.
        bounds: Smallest and largest possible response, None for none; "auto" takes 0 where no
            response is negative (or none positive). Never violated.
        atoms: Look for values that many responses share.
        hidden_widths: Units of the hidden layers. None is (128, 128), with more than 5,000 rows
            (96, 144, 144), or the paper's.
        n_trees: Regression trees beside the networks, half as many in fits of fewer than 600 steps;
            0 for none.
        boosting: Let some networks, and the trees, see what boosted trees expect, if unseen rows
            are predicted better for it; not below 200 covariates.
        compact: With more than 5,000 rows to learn from, those held out not counted, and at least
            600 steps: teach one network the average's answers, and let it answer if that is as
            good, if its CRPS is at most 0.2 % larger, were the average right. ``ensemble_.pupil``
            is this network, or None. False always answers with the average itself.
        n_steps: Training steps, at most (more where one epoch needs more, and half as many again
            for networks of a kind that is left alone; up to 5,000 rows fewer if there are more than
            about 100 columns, a category's levels counted).
        batch_size: Rows per step, in the paper's game covariates. None grows with the table from
            32 to 1,024; it is 250 in the paper's game.
        lr_generator: α, learning rate of T. None is 0.003, and up to 0.012 once it shows that the
            response has little noise; it is 0.001 in the paper's game.
        bandwidth: h, of the Gaussian kernels; a number, "scott" or "silverman". Like all that
            follow up to ``n_levels``, it belongs to the paper's game.
        epsilon: ε, entropic strength.
        lr_potential: β, learning rate of v_φ.
        anchor_generator: r₁, pull of θ towards its follower p; 0 switches the smoothing off.
        anchor_potential: r₂, pull of φ towards its follower q.
        follow_generator: γ, how fast p follows θ.
        follow_potential: δ, how fast q follows φ.
        inner: "adam" or "sgd", the step that a gradient becomes.
        n_draws: Draws of U per covariate and step.
        stratified: Draw U stratified over (0, 1): the same expectation with less variance.
        n_epochs: Largest number of passes over the covariates.
        early_stopping: Hold out covariates (or use ``eval_set``), validate after each epoch,
            restore the best weights.
        criterion: "crps", or "wd" where every validation covariate has at least 20 responses.
        patience: Epochs without improvement before training stops.
        validation_fraction: Share of the covariates, at most 5,000 of them, to hold out when no
            ``eval_set`` is given.
        n_levels: Resolution of the quantile tables that answer questions.
        random_state: Seed of the initial weights, the draws and the splits.
        device: "cpu", "cuda", "mps", or "auto" for CUDA where there is one and else the CPU.
        verbose: 0 is silent, 1 shows a progress bar in a terminal or notebook, 2 writes a line per
            epoch, for logs.

    Attributes:
        ensemble_: The average of networks and trees.
        generator_: The network T_θ of the paper's game, in standardised units.
        potential_: Its v_φ.
        parent_: Its tree: partner of each training covariate, -1 at the root, ``(n,)``. The minimum
            spanning tree up to 1,000,000 covariates (100,000 in more than 12 encoded columns);
            above, `gentle.graph.partners` warns, and ``history_`` has ``tree_excess``.
        history_: One record per epoch, for ``pandas.DataFrame(model.history_)`` or
            `gentle.plots.history`.
        validation_skill_: CRPS skill on unseen responses over the marginal, of the average; None if
            there were fewer than 30, or another criterion.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (200, 1))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
        >>> model = GENTLE(n_steps=50, random_state=0, verbose=0).fit(X, y)
        >>> model.sample(X[:3], n_samples=5, random_state=1).shape
        (3, 5)
    """

    search_space: ClassVar[Space] = {
        "lr_generator": Between(1e-3, 1e-2, log=True),
        "hidden_widths": OneOf(((64, 64), (128, 128), (128, 128, 128), (256, 256))),
        "reg_weight": Between(1e-4, 0.1, log=True),
    }

    ensemble_: Ensemble
    generator_: Map
    potential_: PaperMLP
    parent_: NDArray[np.int64]
    validation_skill_: float | None

    def __init__(
        self,
        *,
        map: Literal["monotone", "mlp"] = "monotone",
        fit_loss: Literal["crps", "cdf", "w2"] = "crps",
        regulariser: Literal["quantile", "entropic", "sinkhorn"] = "quantile",
        reg_weight: float | Literal["auto"] | None = None,
        tails: Tails = "extrapolate",
        bounds: Bounds | Literal["auto"] = "auto",
        atoms: bool = True,
        hidden_widths: Sequence[int] | None = None,
        n_trees: int = 100,
        boosting: bool = True,
        compact: bool = True,
        n_steps: int = 3000,
        batch_size: int | None = None,
        lr_generator: float | None = None,
        bandwidth: float | Literal["scott", "silverman"] = 0.3,
        epsilon: float = 1.0,
        lr_potential: float = 1e-3,
        anchor_generator: float = 3.0,
        anchor_potential: float = 2.0,
        follow_generator: float = 0.5,
        follow_potential: float = 0.7,
        inner: Literal["adam", "sgd"] = "adam",
        n_draws: int = 16,
        stratified: bool = True,
        n_epochs: int = 200,
        early_stopping: bool = True,
        criterion: Literal["crps", "wd"] = "crps",
        patience: int = 20,
        validation_fraction: float = 0.1,
        n_levels: int = 501,
        random_state: Seed = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.map = map
        self.fit_loss = fit_loss
        self.regulariser = regulariser
        self.reg_weight = reg_weight
        self.tails = tails
        self.bounds = bounds
        self.atoms = atoms
        self.hidden_widths = hidden_widths
        self.n_trees = n_trees
        self.boosting = boosting
        self.compact = compact
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.lr_generator = lr_generator
        self.bandwidth = bandwidth
        self.epsilon = epsilon
        self.lr_potential = lr_potential
        self.anchor_generator = anchor_generator
        self.anchor_potential = anchor_potential
        self.follow_generator = follow_generator
        self.follow_potential = follow_potential
        self.inner = inner
        self.n_draws = n_draws
        self.stratified = stratified
        self.n_epochs = n_epochs
        self.early_stopping = early_stopping
        self.criterion = criterion
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_levels = n_levels
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @classmethod
    def from_paper(cls, dataset: Literal["ldw-cps", "ecm"], **overrides: Any) -> Self:
        """The settings of the paper for one of its data sets.

        Adam, a fixed number of epochs, no early stopping, independent draws. Ablations are
        overrides: ``reg_weight=0`` is "w/o reg", ``anchor_generator=0, anchor_potential=0`` is
        "w/o smo".

        Example:
            >>> GENTLE.from_paper("ecm", reg_weight=0).bandwidth
            0.2
        """
        if dataset not in PAPER:
            raise ValueError(f"the paper has settings for {sorted(PAPER)}, not for {dataset!r}")
        return cls(**(PAPER[dataset] | overrides))

    @property
    def is_game(self) -> bool:
        """Whether the settings ask for the paper's minimax game rather than for the ensemble."""
        default = ("monotone", "crps", "quantile")
        return (self.map, self.fit_loss, self.regulariser) != default

    @property
    def _encodes_response(self) -> bool:  # type: ignore[override]
        return self.is_game

    @property
    def _networks(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("generator", "potential") if self.is_game else ()

    def setting(self, name: str) -> Any:
        """A setting, or what None stands for."""
        value = getattr(self, name)
        of = settings.OF_GAME if self.is_game else settings.OF_ENSEMBLE
        return of[name] if value is None else value

    def distilled(
        self, X: Any, *, n_steps: int = 4000, random_state: Seed = None, verbose: int | None = None
    ) -> Self:
        """A model that is one network in place of the average: smaller, faster, about as good.

        The network, which starts as one of the average, learns the quantile functions that this
        average gives at the covariates, and at mixtures of them. How far it stays from them, the
        mean Wasserstein distance at covariates that it was not taught, is in ``summary()`` and
        ``ensemble_.distance``; by what part its CRPS is larger, were the average right, in
        ``ensemble_.excess``. It has no parts that could disagree: ``predict_dist(X).spread()`` is
        this model's alone. With more than 5,000 rows, `fit` makes such a network by itself, and
        keeps the average beside it (``compact``).

        Args:
            X: Covariates like those that it will be asked about, at least 20; those of the
                training will do. Responses are not needed.
            n_steps: Training steps.
            random_state: Seed.
            verbose: As in the constructor; None takes this model's.

        Returns:
            Another model; this one stays as it is.

        Example:
            >>> import numpy as np
            >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 1))
            >>> model = GENTLE(n_steps=50, random_state=0, verbose=0).fit(X, X[:, 0] ** 2)
            >>> quick = model.distilled(X, n_steps=50, random_state=0)
            >>> quick.predict_quantiles(X[:3], [0.1, 0.9]).shape
            (3, 2)
        """
        if self.is_game:
            raise ValueError("the paper's game has one network, there is nothing to distil")
        if not is_count(n_steps):
            raise ValueError(f"n_steps must be an integer of at least 1, got {n_steps!r}")
        x = self._encoded_covariates(X)
        if len(x) < 20:
            raise ValueError(f"X must have at least 20 rows to learn answers from, it has {len(x)}")
        rng = np.random.default_rng(as_seed(random_state))
        made = copy.copy(self)
        made.ensemble_, made.history_ = distilled(
            replace(self.ensemble_, pupil=None),
            x,
            Effort(n_steps),
            rng,
            self.verbose if verbose is None else verbose,
        )
        return made

    def transport_map(self, X: Any, u: ArrayLike) -> Floats:
        """The map T(x, u) in units of y; in the paper's game the network as it is, not rearranged.

        Args:
            X: Covariates, ``(n, d)``.
            u: Levels in [0, 1], ``(m,)`` for all rows or ``(n, m)``.

        Returns:
            The map's values, ``(n, m)``.
        """
        x, levels = self._encoded_covariates(X), np.asarray(u, np.float64)
        if levels.ndim not in (1, 2) or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError("u must be an array (m,) or (n, m) of levels between 0 and 1")
        levels = np.broadcast_to(levels, (len(x), levels.shape[-1]))
        if not self.is_game:
            return self.ensemble_.table(x).ppf(levels)
        return self.response_encoder_.decode(map_values(self.generator_, x, levels))

    def _conditional(self, x: Floats) -> ConditionalDistribution:
        if self.is_game:
            return rearranged(self.generator_, x, self.n_levels)
        table = self.ensemble_.table(x)
        if self.ensemble_.distance is not None:  # one network has nobody to disagree with
            return table
        return table.with_spread(partial(self.ensemble_.spread, x))

    def _n_knots(self) -> int:
        if self.is_game:
            return self.n_levels
        return self.ensemble_.n_knots * _HELD_AT_ONCE

    def _held_out(self) -> float:
        return self.validation_fraction if self.is_game and self.early_stopping else 0.0

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        if self.is_game:
            return play(self, train, validation, rng)
        checks.varying_response(train.y, type(self).__name__)
        ensemble, history, crps, n_unseen = learn(self, train, validation, rng)
        skill = None
        if n_unseen >= MIN_RESPONSES_FOR_SKILL:
            skill = 1 - crps / crps_of_marginal(train, validation or train)
        return {"ensemble_": ensemble, "history_": history, "validation_skill_": skill}

    def _check_parameters(self) -> None:
        settings.check(self)

    def _network(self, name: str, n_covariates: int, weights: torch.Generator | None) -> Any:
        monotone = name == "generator" and self.map == "monotone"
        kind = MonotoneMap if monotone else PaperMLP
        return kind(n_covariates, self.setting("hidden_widths"), weights)

    def _describe(self) -> list[str]:
        return [] if self.is_game else self.ensemble_.described()

    def _get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, facts = super()._get_state()
        facts |= {"validation_skill": self.validation_skill_}
        if self.is_game:
            return arrays | {"parent": self.parent_}, facts
        own, more = self.ensemble_.state()
        return arrays | own, facts | {"ensemble": more}

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        super()._set_state(arrays, facts)
        self.validation_skill_ = facts.get("validation_skill")
        if not isinstance(self.validation_skill_, float | None):
            raise ValueError("its validation skill is damaged")
        if self.is_game:
            self.parent_ = _as_tree(arrays["parent"])
        else:
            widths, ensemble = self.setting("hidden_widths"), facts["ensemble"]
            self.ensemble_ = Ensemble.restored(
                arrays, ensemble, self._n_encoded, widths, self.device
            )
            if self.hidden_widths is not None and self.ensemble_.net.widths != list(widths):
                raise ValueError("it is damaged: its networks have other widths than its settings")


def _as_tree(parent: NDArray[Any]) -> NDArray[Any]:
    """Partners of covariates from a file: a ValueError unless they can be some."""
    n = len(parent)
    if not (parent.shape == (n,) and np.all((parent >= -1) & (parent < n))):
        raise ValueError("its spanning tree is damaged")
    return np.asarray(parent, np.int64)
