"""The weights of an average of quantile functions, by the CRPS of rows unseen by its parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gentle.models.evaluation import INNER, MEDIAN, Kind, evaluated, quadrature
from gentle.models.forest import LeafShares
from gentle.models.inputs import Inputs
from gentle.models.lessons import Fold
from gentle.nets import MonotoneNet
from gentle.responses import ResponseEncoder, translated
from gentle.workers import by_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOLERANCE = 0.5  # standard errors
_SPREADS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3)
_WORTH = 0.9998  # factor of the CRPS that more widening must reach
_WORTH_BOOSTING = 0.998  # the same for boosted trees, which take time
_ROWS_AT_ONCE = 768  # long enough that threads seldom wait, short enough for a cache


def on_unseen(
    net: MonotoneNet,
    kinds: list[Kind],
    inputs: Inputs,
    coordinates: list[ResponseEncoder],
    folds: list[Fold],
    forests: list[LeafShares],
) -> tuple[list[Floats | None], ResponseEncoder, Floats, Floats]:
    """What `best_average` needs: the parts' z at unseen rows, their responses and weights.

    Where all folds have the same unseen rows, it is the mean of their answers that counts.

    Args:
        net: Networks, those of one fold after those of another, a kind after a kind.
        kinds: Their kinds.
        inputs: What they see of covariates.
        coordinates: Of the response.
        folds: Parts of the data.
        forests: The trees of each fold, or none.
    """

    def answers(number: int, x: Floats) -> list[Floats | None]:
        own = net.taken(range(number * len(kinds), (number + 1) * len(kinds)))
        parts: list[Floats | None] = [
            translated(z, coordinates[kind.coordinate], coordinates[0]) if kind.coordinate else z
            for z, kind in zip(evaluated(own, kinds, inputs, x), kinds)
        ]
        return [*parts, forests[number].quantiles(x, INNER) if forests else None]

    found = zip(*(answers(number, fold.unseen.x) for number, fold in enumerate(folds)))
    unseen = [fold.unseen for fold in folds]
    shared = all(rows is unseen[0] for rows in unseen)
    unseen = unseen[:1] if shared else unseen
    gather = partial(np.mean, axis=0) if shared else np.concatenate
    parts = [None if part[0] is None else gather(part) for part in found]
    y, weight = (np.concatenate([getattr(rows, a) for rows in unseen]) for a in ("y", "weight"))
    return parts, coordinates[0], y, weight


def useful_weights(
    net: MonotoneNet,
    kinds: list[Kind],
    inputs: Inputs,
    coordinates: list[ResponseEncoder],
    folds: list[Fold],
) -> Floats:
    """Weights of the kinds in an average of networks alone; boosted trees must be worth it."""
    parts, first, y, weight = on_unseen(net, kinds, inputs, coordinates, folds, [])
    weights, _, score = best_average(parts, first, y, weight)
    boosted = ["boosted" in kind.views for kind in kinds]
    if any(boosted) and not all(boosted):
        others = [None if b else part for b, part in zip([*boosted, False], parts)]
        without, _, score_without = best_average(others, first, y, weight)
        if score > _WORTH_BOOSTING * score_without:
            weights = without
    return weights[:-1]


def best_average(
    parts: Sequence[Floats | None], coordinate: ResponseEncoder, y: Floats, weight: Floats
) -> tuple[Floats, float, float]:
    """Weights and widening of small CRPS on unseen responses, from a grid.

    Of the weights whose CRPS is within half a standard error (of the difference) of the smallest,
    the most even ones are taken: what cannot be told apart is averaged.

    Args:
        parts: z of each part at the levels, ``(n, L)``; None for a part that is not there.
        coordinate: To which z belong.
        y: Responses, ``(n,)``.
        weight: Their weights, ``(n,)``.

    Returns:
        Weights that sum to 1, one per part, the factor, and the CRPS that they reach.
    """
    there = [i for i, part in enumerate(parts) if part is not None]
    step = 8 if len(there) < 3 else 6
    splits = [s for s in itertools.product(range(step + 1), repeat=len(there)) if sum(s) == step]
    choices = np.zeros((len(splits), len(parts)))
    choices[:, there] = np.array(splits) / step
    share, of_levels = weight / weight.sum(), quadrature(INNER)

    def crps(z: Floats, y: Floats) -> Floats:
        gap = y[:, None] - coordinate.decode(z)
        return 2 * np.maximum(INNER * gap, (INNER - 1) * gap) @ of_levels

    def of_choices(rows: slice) -> list[Floats]:
        some = [None if part is None else part[rows] for part in parts]
        return [crps(averaged(some, weights), y[rows]) for weights in choices]

    each = np.hstack(by_threads(of_choices, len(y), _ROWS_AT_ONCE))  # (C, n)
    excess = each - each[np.argmin(each @ share)]
    mean = excess @ share
    error = np.sqrt((excess - mean[:, None]) ** 2 @ share**2)
    unevenness = np.where(mean <= _TOLERANCE * error, (choices**2).sum(axis=1), np.inf)
    weights = choices[np.lexsort([mean, unevenness])[0]]
    z = averaged(parts, weights)
    scores = [float(crps(widened(z, factor), y) @ share) for factor in _SPREADS]
    score, widening = next(
        (score, factor) for score, factor in zip(scores, _SPREADS) if _WORTH * score <= min(scores)
    )
    return weights, widening, score


def dealt_out(weights: Floats, n_places: int) -> Ints:
    """Places in proportion to weights that sum to 1; the last ones go to the largest remainders.

    >>> dealt_out(np.array([1 / 6, 5 / 6, 0]), 3)
    array([0, 3, 0])
    """
    quota = np.round(weights * n_places, 9)
    places = np.floor(quota).astype(np.int64)
    places[np.lexsort([-weights, places - quota])[: n_places - places.sum()]] += 1
    return places


def averaged(parts: Sequence[Floats | None], weights: Floats) -> Floats:
    """The weighted mean of quantile functions."""
    if len(parts) == 1 and weights[0] == 1:
        return parts[0]  # type: ignore[return-value]
    return sum(weight * part for weight, part in zip(weights, parts) if weight > 0)  # type: ignore


def widened(z: Floats, factor: float) -> Floats:
    """Quantile functions whose distances from the median are multiplied."""
    if factor == 1:
        return z
    middle = z[..., MEDIAN : MEDIAN + 1]
    return middle + factor * (z - middle)
