"""The default GENTLE: monotone maps on several parts of the data, trees beside them, one average.

All of it works in coordinates of the response in which atoms have width (`gentle.responses`). The
answer is an average of quantile functions, the Wasserstein barycentre on the line, whose weights
minimise the CRPS of responses that its parts have not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gentle.distribution import QuantileTable
from gentle.models.averaging import averaged, widened
from gentle.models.boosting import Boosting
from gentle.models.checks import are_widths
from gentle.models.evaluation import INNER, LEVELS, Kind, evaluated, mixed
from gentle.models.forest import LeafShares
from gentle.models.inputs import Inputs
from gentle.models.neural import loaded
from gentle.nets import MonotoneNet
from gentle.polyline import Polyline
from gentle.responses import ResponseEncoder, translation
from gentle.rowwise import rising

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 1024  # for which the answers of all parts are held in memory
_SIGHTS = {
    "straight": "values", "boosted": "boosted trees", "scores": "ranks", "pieces": "pieces"
}  # fmt: skip


@dataclass(frozen=True)
class Ensemble:
    """A fitted average of maps and trees.

    Attributes:
        net: Networks, those of one part of the data after those of another, a kind after a kind.
        kinds: The kinds of network.
        inputs: What the networks see of covariates.
        coordinates: Of the response. Networks are averaged in their own, the averages in the first.
        forest: Trees in the first coordinate, or None.
        weights: Of each kind's networks together, and of the trees, ``(n_kinds + 1,)``.
        widening: Factor of the average's distances from its median.
        boosting: Trees whose expectation is a further column for all of these, or None.
        distance: If this is one network that imitates an average, how far it is from it: the mean
            Wasserstein distance, in units of the response.
        excess: In this case, the part by which its CRPS is larger, if the average is right.
        pupil: One network that imitates this average and answers in its place, or None.
    """

    net: MonotoneNet
    kinds: list[Kind]
    inputs: Inputs
    coordinates: list[ResponseEncoder]
    forest: LeafShares | None
    weights: Floats
    widening: float
    distance: float | None = None
    boosting: Boosting | None = None
    excess: float | None = None
    pupil: Ensemble | None = None

    def table(self, x: Floats) -> QuantileTable:
        """Distributions at encoded covariates ``(n, d)``, in units of the response."""
        if self.pupil is not None:
            return self.pupil.table(x)
        if self._alone is None:
            return self.coordinates[0].table(LEVELS, self.average(x))
        number, coordinate = self._alone
        x = self._extended(x)
        found = mixed(self.net, self.kinds, self.inputs, x, self.weights[:-1])
        return coordinate.table(LEVELS, rising(found[number]))

    @cached_property
    def _alone(self) -> tuple[int, ResponseEncoder] | None:
        """The only coordinate in use, if it is not the first and nothing happens in the first."""
        used = {kind.coordinate for kind, weight in zip(self.kinds, self.weights) if weight > 0}
        if len(used) != 1 or used == {0} or self.weights[-1] > 0 or self.widening != 1:
            return None
        number = used.pop()
        return number, self.coordinates[0].seen_from(self.coordinates[number])

    def average(self, x: Floats) -> Floats:
        """The average's values z at levels, in the first coordinate, ``(n, L)``."""
        x = self._extended(x)
        found = mixed(self.net, self.kinds, self.inputs, x, self.weights[:-1])
        shares = np.bincount([kind.coordinate for kind in self.kinds], self.weights[:-1])
        parts = [self._to_first[number](z) if number else z for number, z in found.items()]
        weights = [shares[number] for number in found]
        if self.forest is not None:
            parts.append(self.forest.quantiles(x, INNER))
            weights.append(self.weights[-1])
        return widened(rising(averaged(parts, np.array(weights))), self.widening)

    def _extended(self, x: Floats) -> Floats:
        return x if self.boosting is None else self.boosting.extended(x)

    @cached_property
    def _to_first(self) -> list[Polyline]:
        """The ways from the coordinates to the first."""
        return [translation(one, self.coordinates[0]) for one in self.coordinates]

    def values(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Values z at levels: networks ``(n_folds, n_kinds, n, L)``, trees ``(n, L)``."""
        x = self._extended(x)
        values = evaluated(self.net, self.kinds, self.inputs, x)
        values = values.reshape(-1, len(self.kinds), *values.shape[1:])
        for number, kind in enumerate(self.kinds):
            if kind.coordinate:
                values[:, number] = self._to_first[kind.coordinate](values[:, number])
        return values, None if self.forest is None else self.forest.quantiles(x, INNER)

    @property
    def n_knots(self) -> int:
        """Knots of a row's table."""
        return len(LEVELS) + 2 * len(self.coordinates[0].plateaus)

    def shares(self) -> list[float]:
        """Weights of the `parts`, adding up to 1."""
        n_folds = self.net.n_members // len(self.kinds)
        networks = [float(weight) / n_folds for weight in self.weights[:-1]] * n_folds
        return networks + ([] if self.forest is None else [float(self.weights[-1])])

    def parts(self, x: Floats) -> list[tuple[float, QuantileTable]]:
        """Each network's own distributions, then those of the trees, with their weights."""
        members, trees = self.values(x)
        values = [z for fold in members for z in fold] + ([] if trees is None else [trees])
        tables = [self.coordinates[0].table(LEVELS, z) for z in values]
        return list(zip(self.shares(), tables))

    def spread(self, x: Floats) -> Floats:
        """Root mean square Wasserstein-2 distance of the parts from their average, ``(n,)``."""
        out, u = np.empty(len(x)), (np.arange(200) + 0.5) / 200
        share = np.array(self.shares())[:, None, None]
        for first in range(0, len(x), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            values = np.stack([table.quantile(u) for _, table in self.parts(x[rows])])
            centre = (share * values).sum(axis=0)
            out[rows] = np.sqrt((share * (values - centre) ** 2).sum(axis=0).mean(axis=1))
        return out

    def described(self) -> list[str]:
        """The ensemble in words."""
        parts = []
        for coordinate, seen in dict.fromkeys((kind.coordinate, kind.views) for kind in self.kinds):
            alike = [(kind.coordinate, kind.views) == (coordinate, seen) for kind in self.kinds]
            n = sum(alike) * self.net.n_members // len(self.kinds)
            sight = " and ".join(_SIGHTS[view] for view in seen)
            scale = ", response as it is" if coordinate else ""
            share = self.weights[:-1][alike].sum()
            parts.append(f"{n} networks that see {sight}{scale} ({share:.0%})")
        if self.forest is not None:
            parts.append(f"{len(self.forest.trees)} trees ({self.weights[-1]:.0%})")
        said = ["An average of " + ", ".join(parts)]
        if self.distance is not None:
            said = [f"One network that imitates an average, {self.distance:.3g} away from it"]
        if self.widening != 1:
            said[0] += f", made {self.widening - 1:.0%} wider"
        if self.pupil is not None:
            worse = f"{100 * (self.pupil.excess or 0):.1g} %"
            said.append(f"One network that imitates it answers, with a CRPS that is {worse} larger")
        atoms = self.coordinates[0].plateaus[:, 2]
        if len(atoms):
            shown = ", ".join(f"{value:g}" for value in atoms[:5])
            said.append(
                f"Atoms: {shown}" + (f" and {len(atoms) - 5} more" if len(atoms) > 5 else "")
            )
        low, high = self.coordinates[0].bounds
        limits = [f"at least {low:g}"] if np.isfinite(low) else []
        limits += [f"at most {high:g}"] if np.isfinite(high) else []
        return said + (["Responses are " + ", ".join(limits)] if limits else [])

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays, and what fits into JSON."""
        arrays = {f"net.{k}": w.detach().cpu().numpy() for k, w in self.net.state_dict().items()}
        holders = {"inputs": self.inputs}
        holders |= {f"coordinate{i}": one for i, one in enumerate(self.coordinates)}
        holders |= {} if self.forest is None else {"forest": self.forest}
        holders |= {} if self.boosting is None else {"boosting": self.boosting}
        for prefix, holder in holders.items():
            arrays |= {f"{prefix}.{name}": array for name, array in holder.arrays().items()}
        own, pupil = ({}, None) if self.pupil is None else self.pupil.state()
        arrays |= {f"pupil.{name}": array for name, array in own.items()}
        return arrays, {
            "n_members": self.net.n_members,
            "widths": self.net.widths,
            "kinds": [[kind.coordinate, list(kind.views), kind.slides] for kind in self.kinds],
            "n_coordinates": len(self.coordinates),
            "weights": self.weights.tolist(),
            "widening": self.widening,
            "distance": self.distance,
            "excess": self.excess,
            "pupil": pupil,
        }

    @classmethod
    def restored(
        cls,
        arrays: dict[str, Any],
        facts: dict[str, Any],
        n_columns: int,
        widths: Sequence[int],
        device: str,
    ) -> Ensemble:
        """From what may be anything: a ValueError unless `state` could have given it."""

        def under(prefix: str) -> dict[str, Any]:
            start = f"{prefix}."
            return {k[len(start) :]: a for k, a in arrays.items() if k.startswith(start)}

        try:
            kinds = [Kind(int(c), tuple(views), *map(bool, s)) for c, views, *s in facts["kinds"]]
            n_members, n_coordinates = int(facts["n_members"]), int(facts["n_coordinates"])
            weights, widening = np.array(facts["weights"], float), float(facts["widening"])
            distance, excess = (
                None if facts.get(name) is None else float(facts[name])
                for name in ("distance", "excess")
            )
            widths = [int(width) for width in facts.get("widths", widths)]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its ensemble is damaged ({error})") from None
        forest = under("forest")
        if not (
            kinds
            and all(0 <= kind.coordinate < n_coordinates <= 2 for kind in kinds)
            and all(view in _SIGHTS for kind in kinds for view in kind.views)
            and 0 < n_members <= 1000
            and n_members % len(kinds) == 0
            and weights.shape == (len(kinds) + 1,)
            and np.all(weights >= 0)
            and abs(weights.sum() - 1) < 1e-9
            and (bool(forest) or weights[-1] == 0)
            and are_widths(widths)
            and 0 < widening < 10
            and (distance is None or 0 <= distance < np.inf)
            and (excess is None or 0 <= excess < np.inf)
        ):
            raise ValueError("its ensemble is damaged: its parts do not fit together")
        boosting = Boosting.restored(own, n_columns) if (own := under("boosting")) else None
        n_boosted = 0 if boosting is None else 1
        inputs = Inputs.restored(under("inputs"), n_columns, n_boosted)
        slides = [kinds[member % len(kinds)].slides for member in range(n_members)]
        net = loaded(
            lambda source: MonotoneNet(
                n_members,
                len(inputs),
                widths,
                generator=source,
                slides=slides if any(slides) else None,
            ),
            under("net"),
            device,
        )
        coordinates = [
            ResponseEncoder.restored(under(f"coordinate{i}")) for i in range(n_coordinates)
        ]
        trees = LeafShares.restored(forest, n_columns + n_boosted) if forest else None
        parts = net, kinds, inputs, coordinates, trees, weights, widening, distance, boosting
        if (of_pupil := facts.get("pupil")) is None:
            return cls(*parts, excess=excess)
        if not isinstance(of_pupil, dict) or of_pupil.get("pupil") is not None:
            raise ValueError("its ensemble is damaged: its pupil is none")
        pupil = cls.restored(under("pupil"), of_pupil, n_columns, widths, device)
        if pupil.net.n_members != 1 or pupil.forest or len(pupil.coordinates) != n_coordinates:
            raise ValueError("its ensemble is damaged: its pupil is not one network of its own")
        pupil = replace(pupil, coordinates=coordinates)
        return cls(*parts, excess=excess, pupil=pupil)
