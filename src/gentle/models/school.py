"""The training of many networks at once."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import astuple, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from gentle import teams
from gentle.data import Grouped
from gentle.graph import partners
from gentle.learners import Learner
from gentle.models.averaging import dealt_out, useful_weights
from gentle.models.evaluation import Kind, quadrature, visible
from gentle.models.exam import Exam
from gentle.models.first_layer import EmphasisNet, FirstLayer
from gentle.models.inputs import Inputs
from gentle.models.lessons import Fold, Lessons, with_unseen
from gentle.models.neural import chosen_device
from gentle.models.objective import Pinball, between
from gentle.models.rates import Cycles, affordable, quickening
from gentle.nets import MonotoneNet
from gentle.optim import Adam
from gentle.responses import ResponseEncoder
from gentle.training import train as run_epochs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TAIL_EMPHASIS = 0.5  # 1 is the CRPS; less gives outer levels more weight, which is as proper
_WINDOW = 100  # steps over which weights are averaged, a fifth of the cycle at most
_LARGE = 5000  # rows above which networks are larger, learn together, and fill vacant places
_LARGE_WIDTHS = (96, 144, 144)
_VALUES = ("straight",)  # all that some networks see
LONG = 600  # steps, from which on all that takes time of its own is worth it
_CALM = 0.6  # factor of the first weights of networks that see values, on large tables
_HOPELESS = 1.3  # times the best score, although the loss of what is taught has fallen
_PROGRESS = 0.9998  # factor of the score that a cycle must reach to be worth another one
_TOLERANCE = 0.5  # standard errors
_STRETCH = 1.5  # times as long go the cycles of one kind that is left alone
_LOOK_AFTER = 2, 3  # cycles, at what is left to learn; the same of large tables
_TRIAL_CYCLES = 3  # after which kinds of network that nobody needs give up their places
_CLEARLY = 1.0  # standard errors by which networks that slide must be better than their twins


class School(Learner):
    """All networks in training together, each on the rows and in the coordinate of its own."""

    _changing: ClassVar[tuple[str, ...]] = (
        "net", "average", "best", "best_score", "optimizer", "rate", "draws",
        "step_number", "epoch", "score_before", "loss", "loss_at_best",
    )  # fmt: skip

    def __init__(
        self,
        model: Any,
        lessons: Lessons,
        coordinates: list[ResponseEncoder],
        folds: list[Fold],
        inputs: Inputs,
        kinds: list[Kind],
        rng: np.random.Generator,
    ) -> None:
        self.model, self.coordinates, self.inputs = model, coordinates, inputs
        self.folds, self.rng, self.device = folds, rng, chosen_device(model.device)
        self.lessons, n_rows = lessons, lessons.n_rows(folds)
        self.is_large = n_rows > _LARGE
        if self.is_large and model.n_steps >= LONG:  # who sees values has a twin that slides
            kinds = kinds + [replace(one, slides=True) for one in kinds if one.views == _VALUES]
        self.kinds = kinds
        self.places = list(range(len(kinds)))  # where the kinds stood at the start
        self.members = list(itertools.product(range(len(folds)), kinds))  # fold and kind of each
        weights_seed, draws_seed = (int(seed) for seed in rng.integers(2**63, size=2))
        self.draws = torch.Generator(self.device).manual_seed(draws_seed)
        self.seen = visible(kinds, len(self.members), inputs).to(self.device)
        self.net = self._networks(torch.Generator().manual_seed(weights_seed))
        self.window = _WINDOW if self.is_large else 1
        self.average = copy.deepcopy(self.net) if self.window > 1 else self.net  # of recent weights
        self.best = {name: weight.clone() for name, weight in self.net.state_dict().items()}
        self.best_score = np.full(len(self.members), np.inf)
        self.level = self._tensor(ndtr(self.net.knots.cpu().numpy()))
        self.length = self._tensor(quadrature(self.level.cpu().numpy()))
        self.partner: Tensor | None = None
        self.strength = 0.0
        emphasis = self.length**_TAIL_EMPHASIS
        self.level_weight = emphasis / emphasis.sum()
        batch_size = model.setting("batch_size") or min(max(32, n_rows // 64), 1024)
        self.order, self.batch_size = lessons.order(folds, len(kinds), batch_size, rng)
        self.jitter = rng.random(max(len(fold.unseen.y) for fold in folds))
        self.exam = self._exam()
        self.steps_per_epoch = math.ceil(self.order.shape[1] / self.batch_size)
        n_inputs = 0 if self.is_large else int(self.seen.sum())
        self.cycles = Cycles(self.steps_per_epoch, affordable(model.n_steps, n_inputs))
        self.rate = model.setting("lr_generator")
        self.optimizer = Adam(self.net.parameters())
        self.step_number, self.epoch, self.score_before = 0, 0, np.inf
        self.loss, self.loss_at_best = 0.0, np.inf  # of what is taught, in this epoch

    def _networks(self, source: torch.Generator) -> MonotoneNet:
        """New networks, one per member.

        On large tables those that see values start from smaller weights: they learn smooth laws,
        the others rough ones.
        """
        widths = self.model.setting("hidden_widths")
        if self.is_large and self.model.hidden_widths is None:
            widths = _LARGE_WIDTHS
        slides = [kind.slides for _, kind in self.members] if self.is_large else None
        sizes = len(self.members), len(self.inputs), widths
        net = MonotoneNet(*sizes, generator=source, slides=slides)
        if not self.is_large:
            net = EmphasisNet(net, self.inputs.are_varied)
        calm = [self.is_large and kind.views == _VALUES for _, kind in self.members]
        with torch.no_grad():  # as if the inputs that a member does not see were not there
            for weight in net.weights:
                weight[calm] *= _CALM
            net.to(self.device)
            net.weights[0] *= (len(self.inputs) / self.seen.sum(2, keepdim=True)).sqrt()
        return net

    def _exam(self) -> Exam:
        levels = self.level, self.level_weight
        given = self.members, self.folds, self.coordinates, self.inputs
        return Exam(*given, self.seen, self.jitter, levels)

    def train(self) -> list[dict[str, float]]:
        """Until the last cycle of the learning rate has brought nothing."""
        history = run_epochs(
            self,
            n_items=self.order.shape[1],
            batch_size=self.batch_size,
            n_epochs=lambda: int(self.cycles.ends[-1]),
            rng=self.rng,
            validate=self.validate,
            finished=self.finished,
            label="GENTLE",
            verbose=self.model.verbose,
        )
        self._part_twins()
        self.net.load_state_dict(self.best)
        self.net = self.net.plain()
        return history

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that steps change, and which kinds of network are left."""
        kinds = [astuple(kind) for kind in self.kinds]
        more = {"kinds": kinds, "places": self.places, "ends": self.cycles.ends.tolist()}
        return super().state_dict() | more

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to what `state_dict` gave."""
        if not set(state["places"]) <= set(self.places):
            raise FloatingPointError(
                "training diverged after some networks had been dropped; lower lr_generator"
            )
        self.keep_kinds(np.array([self.places.index(place) for place in state["places"]]))
        self._take_up([Kind(*kind) for kind in state["kinds"]])
        self.cycles.end_at(state["ends"])
        super().load_state_dict(state)

    def slow_down(self, factor: float) -> None:
        """Multiply the size of all steps from now on."""
        self.rate *= factor

    def step(self, positions: NDArray[np.int64]) -> dict[str, float]:
        """One step of all members on a batch of their own rows, of which a team takes shares."""
        team, each = teams.present(), self.lessons.block
        mine, n_rows = team.share(len(positions)), each * len(positions)
        jitter = torch.rand(len(self.members), n_rows, generator=self.draws, device=self.device)
        jitter = jitter[:, each * mine.start : each * mine.stop]
        rows = self.lessons.rows(self.order, positions[mine], len(self.kinds))
        weight = self.lessons.weight(rows, len(self.kinds))  # (K, B), or a share of it
        team.add_up([total := weight.sum(1)])
        values = self.values(rows)
        loss = self.losses(values, between(*self.interval(rows), jitter), weight, total)
        if self.partner is not None:
            loss = loss + self.strength * self.distance(values, rows) / n_rows
        self.optimizer.zero_grad()
        loss.sum().backward()
        loss = loss.detach()
        team.add_up_gradients(self.net.parameters(), loss)
        self.optimizer.step(self.rate * self.cycles.factor(self.step_number))
        self.step_number += 1
        if self.average is not self.net:
            self._average_weights()
        record = {"loss": float(loss.mean())}
        self.loss += record["loss"] / self.steps_per_epoch
        return record

    @torch.no_grad()
    def _average_weights(self) -> None:
        length = self.cycles.length(self.step_number)
        new = 1 / min(self.window, length / 5, 1 + self.step_number)
        for mean, now in zip(self.average.parameters(), self.net.parameters()):
            mean.lerp_(now, new)

    def values(self, rows: Tensor) -> Tensor:
        """The members' maps at a batch of theirs, ``(K, B, M + 1)``.

        The first layer is one product for each kind of network, with the inputs that it sees.
        """
        views, n_kinds = [self.inputs.span(kind.views) for kind in self.kinds], len(self.kinds)
        x = [self.lessons.inputs(rows, i, n_kinds, view) for i, view in enumerate(views)]
        first = self.net.weights[0], self.net.biases[0], self.net.factor
        return self.net.after_first(FirstLayer.apply(*first, views, *x))

    def interval(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """First and last z of the responses of a batch, ``(K, B)`` each."""
        found = [
            self.lessons.interval(rows, number, len(self.kinds), kind.coordinate)
            for number, kind in enumerate(self.kinds)
        ]
        low, high = (torch.stack(ends, 1).flatten(0, 1) for ends in zip(*found))
        return low, high

    def losses(self, values: Tensor, z: Tensor, weight: Tensor, total: Tensor) -> Tensor:
        """Twice each member's pinball loss over all levels, outer ones emphasised, ``(K,)``."""
        share = 2 * weight / total.unsqueeze(1)
        return Pinball.apply(values, z, share, self.level, self.level_weight)

    def pull_together(self, train: Grouped) -> None:
        """From now on, pull the map of each row towards that of its covariate's partner."""
        found = partners(train.x, torch.get_num_threads()).parent
        row = train.start[:-1]  # a row of each covariate
        partner = np.where(found >= 0, row[found], row)  # the root is its own partner
        self.partner = torch.as_tensor(partner[train.group], device=self.device)  # (N,)

    def distance(self, values: Tensor, rows: Tensor) -> Tensor:
        """Squared Wasserstein distances to the partners, ∫ |T_i - T_j|² du, summed, ``(K,)``."""
        assert self.partner is not None
        there = self.values(self.partner[rows])
        return ((values - there).square() @ self.length).sum(1)

    @torch.no_grad()
    def validate(self) -> float:
        """Score the weights and their averages on unseen rows, and keep each member's best.

        On large tables all members of a kind are judged together: they learn alike, and the
        moment that is best for one of them by itself is so by chance.
        """
        self.epoch += 1
        before, found = self.best_score.mean(), []
        for net in dict.fromkeys((self.net, self.average)):
            scores = self.exam.scores(net)
            if self.is_large:
                scores = self.exam.of_kinds(scores)
            better = scores < self.best_score
            self._keep(net, better)
            self.best_score = np.where(better, scores, self.best_score)
            found.append(scores)
        now, taught, self.loss = np.min(found, axis=0), self.loss, 0.0
        if self.best_score.mean() < before:
            self.loss_at_best = taught
        self.is_overfit = taught < self.loss_at_best and np.all(now > _HOPELESS * self.best_score)
        return float(now.mean())

    def _keep(self, net: MonotoneNet, chosen: NDArray[np.bool_]) -> None:
        """Let these weights of some members be their best ones."""
        which = torch.as_tensor(np.flatnonzero(chosen), device=self.device)
        for name, weight in net.state_dict().items():
            self.best[name][which] = weight[which]

    def _prefer_the_end(self) -> None:
        """At the end of a cycle, keep its weights unless the best so far are clearly better.

        In mid-cycle weights are noisy; that they came out best may be noise as well.
        """
        now, best = self.exam.losses(self.average), self.exam.losses(self._held)
        mean, error = self.exam.excess(now, best)
        good = mean <= _TOLERANCE * error
        self._keep(self.average, good)
        scores = self.exam.of_kinds(self.exam.mean(now))
        self.best_score = np.where(good, scores, self.best_score)

    @property
    def _held(self) -> MonotoneNet:
        """The networks with the best weights so far."""
        held = copy.deepcopy(self.net)
        held.load_state_dict(self.best)
        return held

    def finished(self) -> bool:
        """Whether a whole cycle has brought nothing, or overfitting has gone far."""
        if self.is_overfit:
            return True
        ends = self.cycles.ends
        if self.epoch not in ends:
            return False
        before, self.score_before = self.score_before, float(self.best_score.mean())
        if self.is_large:
            self._prefer_the_end()
        if self.epoch in ends[_LOOK_AFTER[self.is_large] - 1 :][:1]:
            self._quicken()
        if self.score_before > _PROGRESS * before:
            return True
        if self.epoch in ends[_TRIAL_CYCLES - 1 : -1] and len(self.kinds) > 1:
            self._drop_useless_kinds()
        return False

    def _quicken(self) -> None:
        """Unless their size is given, take larger steps where little of the spread is left."""
        if self.model.lr_generator is None:
            self.rate *= quickening(self.exam.left(self.best_score), self.is_large)

    def _drop_useless_kinds(self) -> None:
        """Go on only with the kinds of network that an average of the best so far would use.

        On large tables, which have few folds, more networks of these kinds take the places of the
        others: those that differ by their start alone are worth averaging too.
        """
        self._part_twins()
        weights = useful_weights(self._held, *self.parts[1:])
        if not self.is_large:
            useful = np.flatnonzero(weights)
            self.cycles.stretch(self.epoch, max(1.0, _STRETCH / len(useful)))
            self.keep_kinds(useful)
            return
        is_last = self.epoch == self.cycles.ends[-2]  # before, any weight is enough to stay
        places = dealt_out(weights, len(self.kinds)) if is_last else (weights > 0).astype(int)
        kinds, vacant = list(self.kinds), np.flatnonzero(places == 0)
        if not len(vacant):
            return
        others = [number for number in np.argsort(-weights, kind="stable") if places[number]]
        for place, number in zip(vacant, itertools.cycle(others)):
            kinds[place] = self.kinds[number]
        self._take_up(kinds)
        new = [m for m in range(len(self.members)) if m % len(kinds) in vacant]
        fresh = self._networks(torch.Generator().manual_seed(int(self.rng.integers(2**63))))
        for name, weight in fresh.state_dict().items():
            for held in (self.net.state_dict(), self.average.state_dict(), self.best):
                held[name][new] = weight[new]
        self.best_score[new] = self.score_before = np.inf

    def _part_twins(self) -> None:
        """Of twins, go on with the one that slides only if it is clearly better."""
        for kind in [kind for kind in self.kinds if kind.slides]:
            twin, n = replace(kind, slides=False), len(self.kinds)
            if twin not in self.kinds:
                continue
            slides, stays = self.kinds.index(kind), self.kinds.index(twin)
            losses, of_twin = self.exam.losses(self._held), slice(stays, None, n)
            mean, error = self.exam.excess(losses[slides::n], losses[of_twin], of_twin)
            loser = stays if mean[0] < -_CLEARLY * error[0] else slides
            self.keep_kinds(np.delete(np.arange(n), loser))

    def _take_up(self, kinds: list[Kind]) -> None:
        """Let the networks, as many as before, be of these kinds; Adam starts afresh."""
        self.kinds = kinds
        self.members = list(itertools.product(range(len(self.folds)), kinds))
        self.seen = visible(kinds, len(self.members), self.inputs).to(self.device)
        for net in (self.net, self.average):
            net.let_slide([kind.slides for _, kind in self.members])
        self.exam = self._exam()
        self.optimizer = Adam(self.net.parameters())

    def keep_kinds(self, numbers: Ints) -> None:
        """Go on with some kinds of network only; Adam starts afresh."""
        if len(numbers) == len(self.kinds):
            return
        members = [m for m in range(len(self.members)) if m % len(self.kinds) in numbers]
        kinds = [self.kinds[number] for number in numbers]
        average, self.net = self.average, self.net.taken(members)
        self.average = average.taken(members) if self.window > 1 else self.net
        self.best = {name: weight[members] for name, weight in self.best.items()}
        self.seen, self.order = self.seen[members], self.order[members]
        self.exam.keep(members)
        self.members, self.kinds = [self.members[member] for member in members], kinds
        self.places = [self.places[number] for number in numbers]
        self.best_score = self.best_score[members]
        self.score_before = float(self.best_score.mean())
        self.optimizer = Adam(self.net.parameters())

    @property
    def parts(self) -> tuple[MonotoneNet, list[Kind], Inputs, list[ResponseEncoder], list[Fold]]:
        """Networks, their kinds, inputs, coordinates and folds, as `on_unseen` takes them."""
        return self.net, self.kinds, self.inputs, self.coordinates, self.folds

    @property
    def sees_boosted(self) -> bool:
        """Whether networks of some kind see what boosted trees expect."""
        return any("boosted" in kind.views for kind in self.kinds)

    def forget_boosted(self) -> Inputs:
        """Do without what boosted trees expect, which no network sees; the inputs that are left."""
        self.net = self.net.without_inputs(self.inputs.view("boosted"))
        self.inputs = self.inputs.without_boosted()
        d = len(self.inputs.knots)
        self.folds = with_unseen(self.folds, lambda rows: replace(rows, x=rows.x[:, :d]))
        return self.inputs

    def _tensor(self, array: Floats) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)
