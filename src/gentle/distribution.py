"""Conditional distributions as objects: the one place for draws, quantiles, cdf, density, CRPS."""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gentle.rowwise import between_columns, interpolated, pick, search
from gentle.streams import Seed, as_seed, uniforms
from gentle.workers import by_threads

Floats = NDArray[np.float64]

_LARGEST = np.finfo(np.float64).max / 2  # sums and differences of two values stay finite
_CELLS_AT_ONCE = 2**17  # few enough for a cache, many enough that threads seldom wait


class ConditionalDistribution(ABC):
    """The distributions of Y given each of n rows of covariates.

    Attributes:
        event_shape: Shape of one response: ``()`` for a number. ``sample`` appends it last.
    """

    event_shape: tuple[int, ...] = ()

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows n."""

    @abstractmethod
    def ppf(self, u: Floats) -> Floats:
        """Quantile function of each row at its own levels: ``(n, m)`` to ``(n, m)``."""

    @abstractmethod
    def _at(self, question: str, points: Floats) -> Floats:
        """Answer "cdf", "log_prob" or "crps" at each row's own points, ``(n, m)``."""

    @abstractmethod
    def mean(self) -> Floats:
        """E[Y | x], ``(n,)``."""

    @abstractmethod
    def std(self) -> Floats:
        """Standard deviation of Y given x, ``(n,)``."""

    @abstractmethod
    def atoms(self, min_probability: float = 0.0) -> list[tuple[Floats, Floats]]:
        """The values that have a probability of their own, row by row.

        Args:
            min_probability: Only atoms with a larger probability.

        Returns:
            For each row its atoms, increasing, and their probabilities.
        """

    @abstractmethod
    def affine(self, scale: float, shift: float) -> ConditionalDistribution:
        """The distributions of scale · Y + shift, for a positive scale."""

    def spread(self) -> Floats:
        """How far the parts of an average of distributions disagree, in units of y, ``(n,)``.

        The root mean square Wasserstein-2 distance of the parts from their average. It is large
        where the model has little to go by, as far away from its training data.

        Raises:
            ValueError: The distribution is no average.
        """
        raise ValueError("this distribution is made of one part, so it has no spread")

    def cdf(self, y: ArrayLike) -> Floats:
        """P(Y ≤ y | x): y ``(n,)`` or a number gives ``(n,)``, ``(n, m)`` gives ``(n, m)``."""
        points, shape = self._per_row(y)
        return self._at("cdf", points).reshape(shape)

    def log_prob(self, y: ArrayLike) -> Floats:
        """Log density, at an atom the log of its probability; shapes as for `cdf`.

        The density is with respect to Lebesgue measure plus counting measure on the row's atoms:
        over all y but the atoms it integrates to one minus their probabilities.
        """
        points, shape = self._per_row(y)
        return self._at("log_prob", points).reshape(shape)

    def crps(self, y: ArrayLike) -> Floats:
        """Continuous ranked probability score, E|Y - y| - E|Y - Y'|/2; shapes as for `cdf`."""
        points, shape = self._per_row(y)
        return self._at("crps", points).reshape(shape)

    def quantile(self, alpha: ArrayLike) -> Floats:
        """Quantiles at common levels: a number gives ``(n,)``, ``(m,)`` gives ``(n, m)``."""
        levels = np.asarray(alpha, np.float64)
        if levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"quantile levels must be numbers between 0 and 1, got {alpha!r}")
        values = self._quantiles(np.atleast_1d(levels))
        return values[:, 0] if levels.ndim == 0 else values

    def _quantiles(self, levels: Floats) -> Floats:
        """Quantiles at common levels, ``(m,)`` to ``(n, m)``: what `ppf` gives there."""
        return self.ppf(np.broadcast_to(levels, (len(self), levels.size)))

    def interval(self, coverage: float = 0.9) -> Floats:
        """Central interval of the given probability: lower and upper end, ``(n, 2)``."""
        if not 0 <= coverage <= 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def sample(
        self,
        n_samples: int = 1,
        random_state: Seed = None,
        u: ArrayLike | None = None,
        first_row: int = 0,
    ) -> Floats:
        """Independent draws, ``(n, n_samples)``.

        Args:
            n_samples: Draws per row.
            random_state: Seed. Row i's draws depend on the seed, i and x_i only.
            u: Levels in [0, 1] to use instead of random ones: ``(n, m)``, or ``(m,)`` to give all
                rows the same (common random numbers).
            first_row: Position of this object's first row in a larger request.
        """
        if u is None:
            n_samples = operator.index(n_samples)
            if n_samples < 1:
                raise ValueError(f"n_samples must be at least 1, got {n_samples}")
            seed, draws = as_seed(random_state), np.empty((len(self), n_samples))

            def fill(rows: slice) -> None:
                n_rows = rows.stop - rows.start
                draws[rows] = uniforms(seed, n_rows, n_samples, first_row + rows.start)

            by_threads(fill, len(self), 256)
            return self.ppf(draws)
        levels = np.asarray(u, np.float64)
        if levels.ndim not in (1, 2) or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError("u must be an array (m,) or (n, m) of levels between 0 and 1")
        if levels.ndim == 2 and len(levels) != len(self):
            raise ValueError(
                f"u has {len(levels)} rows, but there are {len(self)} rows of covariates"
            )
        return self.ppf(np.broadcast_to(levels, (len(self), levels.shape[-1])))

    def _per_row(self, y: ArrayLike) -> tuple[Floats, tuple[int, ...]]:
        """Responses as ``(n, m)``, and the shape in which the answer is due."""
        values = np.asarray(y, np.float64)
        if values.ndim == 0:
            return np.full((len(self), 1), float(values)), (len(self),)
        if values.ndim > 2 or len(values) != len(self):
            raise ValueError(
                f"y has shape {values.shape}, but there are {len(self)} rows of covariates: "
                "pass (n,) or (n, m)"
            )
        if np.isnan(values).any():
            raise ValueError("y contains NaN")
        return (values[:, None] if values.ndim == 1 else values), values.shape


class QuantileTable(ConditionalDistribution):
    """Monotone piecewise-linear quantile functions on the line, one per row.

    The knots of a row are points (level, value), both nondecreasing, from level 0 to level 1. Two
    knots with one value are a plateau: an atom whose probability is the difference of their levels.
    Two knots with one level are a jump: a gap in the support. Between knots the distribution is
    uniform; nothing lies beyond the first and the last value.

    Args:
        levels: ``(K,)``, common to all rows, or ``(n, K)``.
        values: ``(n, K)``.
        spread: Gives the spread, ``(n,)``, if the distributions are averages.

    Example:
        >>> # P(Y = 0) = 1/4, otherwise uniform on (0, 3)
        >>> table = QuantileTable([0.0, 0.25, 1.0], [[0.0, 0.0, 3.0]])
        >>> table.cdf([[-1.0, 0.0, 1.0, 3.0]]).tolist()
        [[0.0, 0.25, 0.5, 1.0]]
        >>> float(table.mean()[0])
        1.125
    """

    def __init__(
        self, levels: ArrayLike, values: ArrayLike, spread: Callable[[], Floats] | None = None
    ) -> None:
        self._spread = spread
        self.levels = np.asarray(levels, np.float64)
        self.values = np.asarray(values, np.float64)
        if self.values.ndim != 2 or self.values.shape[1] < 2:
            raise ValueError(f"values must be (n, K) with K of at least 2, got {self.values.shape}")
        if self.levels.shape not in {self.values.shape, self.values.shape[1:]}:
            raise ValueError(
                f"levels must be (K,) or (n, K), got {self.levels.shape} beside values "
                f"{self.values.shape}"
            )
        if np.any(self.levels[..., 0] != 0) or np.any(self.levels[..., -1] != 1):
            raise ValueError("levels must start at 0 and end at 1")
        if not all(
            np.all(knots[..., 1:] >= knots[..., :-1]) for knots in (self.levels, self.values)
        ) or not np.all(np.abs(self.values[:, [0, -1]]) <= _LARGEST):
            raise ValueError(
                "levels and values must not decrease along a row, nor be NaN or infinite"
            )

    @classmethod
    def of_sample(cls, y: ArrayLike, weights: ArrayLike | None = None) -> QuantileTable:
        """The empirical distributions of weighted samples ``(n, m)`` or ``(m,)``: all atoms."""
        y = np.atleast_2d(np.asarray(y, np.float64))
        weights = (
            np.ones_like(y)
            if weights is None
            else np.broadcast_to(np.asarray(weights, np.float64), y.shape)
        )
        order = np.argsort(y, axis=1)
        y, weights = np.take_along_axis(y, order, 1), np.take_along_axis(weights, order, 1)
        after = np.cumsum(weights, axis=1)
        after = np.minimum(after / after[:, -1:], 1.0)
        before = np.concatenate([np.zeros((len(y), 1)), after[:, :-1]], axis=1)
        levels = np.stack([before, after], axis=2).reshape(
            len(y), -1
        )  # (n, 2m): each point a plateau
        return cls(levels, np.repeat(y, 2, axis=1))

    def affine(self, scale: float, shift: float) -> QuantileTable:  # noqa: D102
        spread = None if self._spread is None else lambda: scale * self.spread()
        return QuantileTable(self.levels, self.values * scale + shift, spread)

    def with_spread(self, spread: Callable[[], Floats]) -> QuantileTable:
        """The same distributions, which are averages with this spread, ``(n,)`` when asked."""
        found = copy.copy(self)
        found._spread = spread
        return found

    def row(self, index: int = 0) -> QuantileTable:
        """One row as a table of its own."""
        one = slice(index, index + 1)
        spread = None if self._spread is None else lambda: self.spread()[one]
        return QuantileTable(self._row_levels[index], self.values[one], spread)

    def repeat(self, n_rows: int) -> RepeatedDistribution:
        """The first row's distribution for n rows."""
        return RepeatedDistribution(self.row(0), n_rows)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def _row_levels(self) -> Floats:
        return np.broadcast_to(self.levels, self.values.shape)

    @cached_property
    def _integral(self) -> Floats:
        """∫₀^level Q(u) du at each knot, ``(n, K)``."""
        pieces = np.diff(self._row_levels) * (self.values[:, 1:] + self.values[:, :-1]) / 2
        return np.concatenate([np.zeros((len(self), 1)), np.cumsum(pieces, axis=1)], axis=1)

    def ppf(self, u: Floats) -> Floats:  # noqa: D102
        return self._by_rows(u.shape[1], lambda rows: u[rows])

    def _by_rows(self, n_points: int, points: Callable[[slice], Floats]) -> Floats:
        """Values at the points of rows, a few rows at a time, ``(n, n_points)``."""
        out = np.empty((len(self), n_points))

        def fill(rows: slice) -> None:
            levels = self.levels if self.levels.ndim == 1 else self.levels[rows]
            out[rows] = interpolated(levels, self.values[rows], points(rows))

        by_threads(fill, len(out), max(1, _CELLS_AT_ONCE // max(1, n_points)))
        return out

    def _quantiles(self, levels: Floats) -> Floats:
        if self.levels.ndim > 1:
            return self._by_rows(levels.size, lambda _: levels)
        return between_columns(self.levels, self.values, levels)

    def _at(self, question: str, points: Floats) -> Floats:
        answers = {"log_prob": self._log_prob, "crps": self._crps}
        return self._cdf(points)[0] if question == "cdf" else answers[question](points)

    def _cdf(self, points: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """P(Y ≤ y) and the last knot at or below y (-1 if there is none), both ``(n, m)``."""
        left = search(self.values, points, "right") - 1
        inside = (left >= 0) & (left < self.values.shape[1] - 1)
        j = np.where(inside, left, 0)
        l0, l1 = pick(self._row_levels, j), pick(self._row_levels, j + 1)
        v0, v1 = pick(self.values, j), pick(self.values, j + 1)
        t = np.divide(points - v0, v1 - v0, out=np.zeros_like(v0), where=inside & (v1 > v0))
        return np.where(inside, l0 + t * (l1 - l0), (left >= 0).astype(float)), left

    def _log_prob(self, points: Floats) -> Floats:
        last = self.values.shape[1] - 1
        after = search(self.values, points, "right")  # first knot above y
        first = search(self.values, points, "left")  # first knot at or above y
        atom = pick(self._row_levels, np.maximum(after - 1, 0)) - pick(
            self._row_levels, np.minimum(first, last)
        )
        on_knot = after > first
        # The piece to the right of y, or to the left at the very end of the support.
        j = np.clip(after, 1, last)
        rise = pick(self._row_levels, j) - pick(self._row_levels, j - 1)
        run = pick(self.values, j) - pick(self.values, j - 1)
        density = np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)
        supported = (points >= self.values[:, :1]) & (points <= self.values[:, -1:])
        mass = np.where(on_knot & (atom > 0), atom, np.where(supported, density, 0.0))
        with np.errstate(divide="ignore"):
            return np.log(mass)

    def spread(self) -> Floats:  # noqa: D102
        return super().spread() if self._spread is None else self._spread()

    def atoms(  # noqa: D102
        self, min_probability: float = 0.0
    ) -> list[tuple[Floats, Floats]]:
        found = []
        for levels, values in zip(self._row_levels, self.values):
            points, first = np.unique(values, return_index=True)
            end = np.append(first[1:], len(values)) - 1
            mass = levels[end] - levels[first]
            keep = mass > min_probability
            found.append((points[keep], mass[keep]))
        return found

    def mean(self) -> Floats:  # noqa: D102
        return self._integral[:, -1].copy()

    def std(self) -> Floats:  # noqa: D102
        a, b = self.values[:, :-1] - self.mean()[:, None], self.values[:, 1:] - self.mean()[:, None]
        return np.sqrt((np.diff(self._row_levels) * (a * a + a * b + b * b)).sum(axis=1) / 3)

    def _crps(self, points: Floats) -> Floats:
        level, left = self._cdf(points)
        j = np.maximum(left, 0)
        # ∫₀^F Q, where Q climbs from the knot j to y itself.
        below = (
            pick(self._integral, j)
            + (level - pick(self._row_levels, j)) * (pick(self.values, j) + points) / 2
        )
        below = np.where(
            left < 0, 0.0, np.where(left == self.values.shape[1] - 1, self._integral[:, -1:], below)
        )
        distance = self._integral[:, -1:] - points + 2 * (points * level - below)
        return distance - self._half_spread[:, None]

    @cached_property
    def _half_spread(self) -> Floats:
        """E|Y - Y'|/2 = ∫ (2u - 1) Q(u) du, ``(n,)``."""
        l0, l1 = self._row_levels[:, :-1], self._row_levels[:, 1:]
        v0, v1 = self.values[:, :-1], self.values[:, 1:]
        width = l1 - l0
        return (width * (l0 + l1 - 1) * (v0 + v1) / 2 + width**2 * (v1 - v0) / 6).sum(axis=1)


class RepeatedDistribution(ConditionalDistribution):
    """One distribution for n rows, held and asked once."""

    def __init__(self, one: QuantileTable, n_rows: int) -> None:
        self._one, self._n_rows = one, n_rows

    def __len__(self) -> int:
        return self._n_rows

    def ppf(self, u: Floats) -> Floats:  # noqa: D102
        return self._one.ppf(np.reshape(u, (1, -1))).reshape(u.shape)

    def mean(self) -> Floats:  # noqa: D102
        return np.repeat(self._one.mean(), self._n_rows)

    def std(self) -> Floats:  # noqa: D102
        return np.repeat(self._one.std(), self._n_rows)

    def atoms(  # noqa: D102
        self, min_probability: float = 0.0
    ) -> list[tuple[Floats, Floats]]:
        return self._one.atoms(min_probability) * self._n_rows

    def spread(self) -> Floats:  # noqa: D102
        return np.repeat(self._one.spread(), self._n_rows)

    def affine(self, scale: float, shift: float) -> RepeatedDistribution:  # noqa: D102
        return RepeatedDistribution(self._one.affine(scale, shift), self._n_rows)

    def _at(self, question: str, points: Floats) -> Floats:
        return self._one._at(question, points.reshape(1, -1)).reshape(points.shape)
