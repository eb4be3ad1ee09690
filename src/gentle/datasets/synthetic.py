"""Nine problems whose conditional law is known exactly.

Every one of them reads Y = location(x) + scale(x)·Z for a noise Z, one of them inside a tanh. A
negative scale turns the noise round, a scale of zero leaves a single point. Those that begin with
"tanh" are used in the MGAN and CDSB papers, "linear-normal" and "sine-laplace" by Hong et al.
(QRGMM); the four others have five covariates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gentle.datasets.base import Benchmark, Floats, Listing, RandomState, Table

_N_TRAIN, _N_VAL, _N_TEST = 10_000, 2_000, 2_000


class _Law(Protocol):
    """A law on the line without atoms; a parameter of shape ``(n, 1)`` gives each row its own."""

    @property
    def mean(self) -> float: ...

    def quantile(self, level: Floats) -> Floats: ...  # (n, m) -> (n, m), as the next one

    def cdf(self, z: Floats) -> Floats: ...

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats: ...


class _Exponential:
    """Γ of shape and scale one."""

    mean = 1.0

    def quantile(self, level: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return -np.log1p(-level)

    def cdf(self, z: Floats) -> Floats:
        return -np.expm1(-np.maximum(z, 0))

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return rng.standard_exponential(shape)


class _Normal:
    """N(0, 1)."""

    mean = 0.0

    def quantile(self, level: Floats) -> Floats:
        from scipy.special import ndtri

        return ndtri(level)

    def cdf(self, z: Floats) -> Floats:
        from scipy.special import ndtr

        return ndtr(z)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return rng.standard_normal(shape)


class _Laplace:
    """The density exp(-|z|) / 2."""

    mean = 0.0

    def quantile(self, level: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            distance = -np.log(2 * np.minimum(level, 1 - level))
        return np.copysign(distance, level - 0.5)

    def cdf(self, z: Floats) -> Floats:
        tail = np.exp(-np.abs(z)) / 2
        return np.where(z < 0, tail, 1 - tail)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return rng.laplace(size=shape)


@dataclass(frozen=True)
class _TwoNormals:
    """The equal mixture of N(-shift, 1) and N(shift, 1)."""

    shift: Floats | float
    mean = 0.0

    def quantile(self, level: Floats) -> Floats:
        shift = np.abs(self.shift)
        middle = _Normal().quantile(level)
        low, high = middle - shift, middle + shift  # the components' own quantiles enclose it
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def cdf(self, z: Floats) -> Floats:
        normal = _Normal()
        return (normal.cdf(z - self.shift) + normal.cdf(z + self.shift)) / 2

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        side = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        return side * self.shift + rng.standard_normal(shape)


class _LogTwoNormals:
    """exp(Z / 2) for the equal mixture Z of N(-2, 1) and N(2, 1)."""

    mean = math.exp(1 / 8) * math.cosh(1)
    _exponent = _TwoNormals(2.0)

    def quantile(self, level: Floats) -> Floats:
        return np.exp(self._exponent.quantile(level) / 2)

    def cdf(self, z: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return self._exponent.cdf(2 * np.log(np.maximum(z, 0)))

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return np.exp(self._exponent.draw(shape, rng) / 2)


@dataclass(frozen=True)
class Problem:
    """Covariates x1, x2, ... and the response Y = location(x) + scale(x)·Z.

    Attributes:
        name: The name under which `load` knows it.
        description: Its formula.
        bounds: Range of each covariate, independent and uniform; standard normal where infinite.
        location: Function of the covariates.
        scale: Function of the covariates, of any sign.
        noise: The law of Z, given the covariates.

    Example:
        >>> problem = PROBLEMS["tanh-times-gamma"]
        >>> X = pd.DataFrame({"x1": [-2.0, 0.0, 2.0]})
        >>> problem.quantile(X, [0.1, 0.5, 0.9]).round(2) + 0.0
        array([[-0.67, -0.2 , -0.03],
               [ 0.  ,  0.  ,  0.  ],
               [ 0.03,  0.2 ,  0.67]])
        >>> problem.cdf(X, [-0.2, -0.2, 0.2]).round(2)
        array([0.5, 0. , 0.5])
    """

    name: str
    description: str
    bounds: tuple[tuple[float, float], ...]
    location: Callable[..., Floats | float]
    scale: Callable[..., Floats | float]
    noise: Callable[..., _Law]

    @property
    def columns(self) -> list[str]:
        """Names of the covariates."""
        return [f"x{i}" for i in range(1, len(self.bounds) + 1)]

    @property
    def listing(self) -> Listing:
        """Its line in the catalogue."""
        rows = _N_TRAIN + _N_VAL + _N_TEST
        return Listing(self.name, self.description, rows, len(self.bounds), "y", "dimensionless")

    def sample_x(self, n: int, random_state: RandomState = None) -> pd.DataFrame:
        """Covariates of n rows, ``(n, d)``."""
        rng = np.random.default_rng(random_state)
        columns = [
            rng.uniform(low, high, n) if math.isfinite(high - low) else rng.standard_normal(n)
            for low, high in self.bounds
        ]
        return pd.DataFrame(dict(zip(self.columns, columns)))

    def sample(
        self, X: pd.DataFrame, n_samples: int = 1, random_state: RandomState = None
    ) -> Floats:
        """Independent responses at every row of ``X``, ``(n, n_samples)``."""
        location, scale, noise = self._parts(X)
        draws = noise.draw((len(X), n_samples), np.random.default_rng(random_state))
        return location + scale * draws

    def quantile(self, X: pd.DataFrame, alpha: ArrayLike) -> Floats:
        """Quantiles at the levels ``alpha`` in [0, 1], ``(n, len(alpha))``."""
        alpha = np.atleast_1d(np.asarray(alpha, float))
        if not np.all((alpha >= 0) & (alpha <= 1)):
            raise ValueError(f"alpha must be levels from 0 to 1, got {alpha}")
        location, scale, noise = self._parts(X)
        z = noise.quantile(np.where(scale < 0, 1 - alpha, alpha))  # (n, m)
        with np.errstate(invalid="ignore"):
            return np.where(scale == 0, location, location + scale * z)

    def cdf(self, X: pd.DataFrame, y: ArrayLike) -> Floats:
        """P(Y ≤ y | X): ``y`` of shape ``(n,)`` or ``(n, m)``, the answer of the same shape."""
        y = np.asarray(y, float)
        if y.ndim not in (1, 2) or len(y) != len(X):
            raise ValueError(
                f"y has shape {y.shape}, but X has {len(X)} rows. Pass one value or one row of "
                f"values per row of X: ({len(X)},) or ({len(X)}, m)."
            )
        location, scale, noise = self._parts(X)
        rows = y.reshape(len(X), -1)  # (n, m)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = noise.cdf((rows - location) / scale)
        level = np.where(scale < 0, 1 - level, level)
        return np.where(scale == 0, rows >= location, level).reshape(y.shape)

    def mean(self, X: pd.DataFrame) -> Floats:
        """E[Y | X], ``(n,)``."""
        location, scale, noise = self._parts(X)
        return (location + scale * noise.mean)[:, 0]

    def benchmark(
        self,
        n_train: int = _N_TRAIN,
        n_val: int = _N_VAL,
        n_test: int = _N_TEST,
        random_state: RandomState = 0,
    ) -> Benchmark:
        """Three tables drawn from the problem, one response to each covariate.

        The parts use separate streams of random numbers: the size of one leaves the others alone.
        """
        parts = []
        streams = np.random.default_rng(random_state).spawn(3)
        for n, stream in zip((n_train, n_val, n_test), streams):
            X = self.sample_x(n, stream)
            parts.append(Table(X, self.sample(X, random_state=stream)[:, 0]))
        return self.listing.benchmark(*parts, truth=self)

    def _parts(self, X: pd.DataFrame) -> tuple[Floats, Floats, _Law]:
        """Location and scale, ``(n, 1)`` each, and noise at the rows of ``X``."""
        missing = [name for name in self.columns if name not in X]
        if missing:
            raise ValueError(
                f"{self.name} needs the columns {', '.join(self.columns)}; "
                f"X lacks {', '.join(missing)}."
            )
        x = [X[[name]].to_numpy(float) for name in self.columns]  # (n, 1) each
        location, scale = (np.broadcast_to(f(*x), x[0].shape) for f in (self.location, self.scale))
        return location, scale, self.noise(*x)


class TanhOfNormal(Problem):
    """Y = tanh(location(x) + scale(x)·Z) for a standard normal Z."""

    def sample(
        self, X: pd.DataFrame, n_samples: int = 1, random_state: RandomState = None
    ) -> Floats:
        """Independent responses at every row of ``X``, ``(n, n_samples)``."""
        return np.tanh(super().sample(X, n_samples, random_state))

    def quantile(self, X: pd.DataFrame, alpha: ArrayLike) -> Floats:
        """Quantiles at the levels ``alpha`` in [0, 1], ``(n, len(alpha))``."""
        return np.tanh(super().quantile(X, alpha))

    def cdf(self, X: pd.DataFrame, y: ArrayLike) -> Floats:
        """P(Y ≤ y | X): ``y`` of shape ``(n,)`` or ``(n, m)``, the answer of the same shape."""
        with np.errstate(divide="ignore"):
            return super().cdf(X, np.arctanh(np.clip(y, -1, 1)))

    def mean(self, X: pd.DataFrame) -> Floats:
        """E[Y | X] by Gauss-Hermite quadrature, exact to rounding for so smooth a function."""
        location, scale, _ = self._parts(X)
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        return np.tanh(location + scale * nodes) @ weights / math.sqrt(2 * math.pi)


_GAUSSIAN = ((-math.inf, math.inf),)

PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem(
            "tanh-plus-gamma",
            "y = tanh(x) + Γ(1, 0.3), x uniform on (-3, 3)",
            bounds=((-3, 3),),
            location=lambda x: np.tanh(x),
            scale=lambda x: 0.3,
            noise=lambda x: _Exponential(),
        ),
        TanhOfNormal(
            "tanh-of-normal",
            "y = tanh(x + N(0, 0.05)), x uniform on (-3, 3)",
            bounds=((-3, 3),),
            location=lambda x: x,
            scale=lambda x: math.sqrt(0.05),
            noise=lambda x: _Normal(),
        ),
        Problem(
            "tanh-times-gamma",
            "y = Γ(1, 0.3) tanh(x), x uniform on (-3, 3)",
            bounds=((-3, 3),),
            location=lambda x: 0.0,
            scale=lambda x: 0.3 * np.tanh(x),
            noise=lambda x: _Exponential(),
        ),
        Problem(
            "constant-spread",
            "y = x1² + exp(x2 + x3/3) + sin(x4 + x5) + N(0, 1), x standard normal",
            bounds=5 * _GAUSSIAN,
            location=lambda x1, x2, x3, x4, x5: x1**2 + np.exp(x2 + x3 / 3) + np.sin(x4 + x5),
            scale=lambda *x: 1.0,
            noise=lambda *x: _Normal(),
        ),
        Problem(
            "varying-spread",
            "y = x1² + exp(x2 + x3/3) + x4 - x5 + (1 + x2² + x5²)/2 · N(0, 1), x standard normal",
            bounds=5 * _GAUSSIAN,
            location=lambda x1, x2, x3, x4, x5: x1**2 + np.exp(x2 + x3 / 3) + x4 - x5,
            scale=lambda x1, x2, x3, x4, x5: 0.5 + x2**2 / 2 + x5**2 / 2,
            noise=lambda *x: _Normal(),
        ),
        Problem(
            "log-mixture",
            "y = (5 + x1²/3 + x2² + x3² + x4 + x5) exp(N(±2, 1)/2), x standard normal",
            bounds=5 * _GAUSSIAN,
            location=lambda *x: 0.0,
            scale=lambda x1, x2, x3, x4, x5: 5 + x1**2 / 3 + x2**2 + x3**2 + x4 + x5,
            noise=lambda *x: _LogTwoNormals(),
        ),
        Problem(
            "two-branches",
            "y = N(±x1, 0.25²), either sign with probability ½, x five standard normals",
            bounds=5 * _GAUSSIAN,
            location=lambda *x: 0.0,
            scale=lambda *x: 0.25,
            noise=lambda x1, *others: _TwoNormals(x1 / 0.25),
        ),
        Problem(
            "linear-normal",
            "y = N(5 + x1 + 2 x2 + x3/2, (1 + x1/10 + x2/5 + x3/20)²), x uniform on a box",
            bounds=((0, 10), (-5, 5), (0, 5)),
            location=lambda x1, x2, x3: 5 + x1 + 2 * x2 + 0.5 * x3,
            scale=lambda x1, x2, x3: 1 + 0.1 * x1 + 0.2 * x2 + 0.05 * x3,
            noise=lambda *x: _Normal(),
        ),
        Problem(
            "sine-laplace",
            "y = Laplace(x1 x2 / 20, 5 sin²(x1 + x2) + 5), x uniform on a box",
            bounds=((0, 10), (-5, 5)),
            location=lambda x1, x2: 0.05 * x1 * x2,
            scale=lambda x1, x2: 5 * np.sin(x1 + x2) ** 2 + 5,
            noise=lambda *x: _Laplace(),
        ),
    )
}
