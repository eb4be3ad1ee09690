"""The pictures and formulas of ``docs/method.md``.

    python docs/tools/pictures.py

Formulas are drawn by matplotlib, so that the pages need no program from elsewhere to show them.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the files: equal pictures are equal files

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image

PICTURES = Path(__file__).parents[1] / "pictures"
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"

FORMULAS = {
    "eq02": r"$W_2^2(\mu,\nu) \;=\; \int_0^1 \, "
    r"\left| F_\mu^{-1}(t) - F_\nu^{-1}(t) \right|^2 dt \qquad (2)$",
    "eq05": r"$v^\varepsilon(y) \;=\; -\varepsilon\,\log \int\, "
    r"\exp\left( \frac{v(y') - |y - y'|^2}{\varepsilon} \right) d\nu(y') \qquad (5)$",
    "eq06": r"$\min_\theta \; \mathrm{Fit}(\theta) + \lambda\,\mathrm{Reg}(\theta) \qquad (6)$",
    "eq08": r"$\mathrm{Fit}(\theta) \;=\; \mathbb{E}_X\,\mathbb{E}_U "
    r"\left| U - F_{\mu_X}\left(T_\theta(X,U)\right) \right|^2 \qquad (8)$",
    "eq10": r"$\mathrm{Reg}(\theta) = \max_\phi \; \sum_{(x_i,x_j)\in\mathcal{E}} \left( "
    r"\int\, v_\phi^\varepsilon(x_i,y)\,d\mathbb{P}_{\theta,j} + "
    r"\int\, v_\phi(x_i,y)\,d\mathbb{P}_{\theta,i} \right) \quad (10)$",
    "eq12": r"$\mathcal{L} \;=\; \mathrm{Fit}(\theta) + \lambda\,\mathcal{R}(\theta,\phi) "
    r"+ \frac{r_1}{2}\Vert\theta - p\Vert^2 - \frac{r_2}{2}\Vert\phi - q\Vert^2 \qquad (12)$",
    "crps": r"$\mathrm{CRPS}(T,y) \;=\; \int_0^1 \, 2\,\left(1_{\{y < T(u)\}} - u\right)"
    r"\left(T(u) - y\right) du$",
    "average": r"$T(x,u) \;=\; \sum_k w_k\,T_k(x,u), \qquad w_k \geq 0, \quad \sum_k w_k = 1$",
}


def formulas() -> None:
    """Write each formula as an SVG with letters as outlines."""
    font = FontProperties(size=17, math_fontfamily="stix")
    for name, text in FORMULAS.items():
        math_to_image(text, PICTURES / f"{name}.svg", prop=font, format="svg")


def idea() -> None:
    """Data, the map T(x, u) at three x, and the distributions that it makes."""
    from gentle import GENTLE

    rng = np.random.default_rng(0)
    age = rng.uniform(20, 65, 1500)
    working = rng.random(1500) < 0.25 + 0.6 * np.exp(-(((age - 42) / 14) ** 2))
    wage = np.where(working, np.exp(rng.normal(2.2 + 0.02 * (age - 20), 0.35, 1500)), 0.0)
    model = GENTLE(random_state=0, verbose=0).fit(age[:, None], wage)
    shown = {25: BLUE, 42: ORANGE, 60: GREEN}
    u = np.linspace(0, 1, 1001)
    figure, (data, maps, laws) = _row(3)
    data.plot(age, wage, ".", color=GREY, markersize=2)
    for x, colour in shown.items():
        data.axvline(x, color=colour, linewidth=2)
        maps.plot(u, model.transport_map([[x]], u)[0], color=colour, label=f"x = {x}")
        draws = model.sample([[x]], 20_000, random_state=0)[0]
        share = np.mean(draws == 0)
        laws.hist(
            draws[draws > 0], np.linspace(0, 60, 61), histtype="step", color=colour, linewidth=1.5,
            weights=np.full(np.sum(draws > 0), 1 / len(draws)), label=f"P(Y = 0) = {share:.0%}",
        )  # fmt: skip
    data.set(xlabel="x: age", ylabel="y: hourly wage, 0 if none", title="1. the table")
    maps.set(xlabel="u, uniform on (0, 1)", ylabel="T(x, u)", title="2. the map that is learned")
    laws.set(xlabel="y", ylabel="probability per dollar", title="3. the distributions it makes")
    for axis in (maps, laws):
        axis.legend(frameon=False, fontsize=8)
    _save(figure, "idea")


def neighbours() -> None:
    """The spanning tree of forty covariates."""
    from gentle.graph import spanning_tree

    x = np.random.default_rng(3).normal(size=(40, 2))
    figure, (axis,) = _row(1)
    for i, j in enumerate(spanning_tree(x)):
        if j >= 0:
            axis.annotate(
                "", x[j], x[i], arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkB": 3}
            )
    axis.plot(*x.T, "o", color=BLUE, markersize=5)
    axis.set(xlabel="first covariate", ylabel="second covariate")
    axis.set_title("each covariate and its partner")
    _save(figure, "neighbours")


def average() -> None:
    """Two distributions, their mixture, and the average of their quantile functions."""
    from scipy.stats import norm

    y, u = np.linspace(-4, 10, 600), np.linspace(0.0005, 0.9995, 4000)
    first, second = norm(0, 1), norm(6, 0.5)
    quantiles = (first.ppf(u) + second.ppf(u)) / 2
    figure, (left, right) = _row(2)
    for law, colour in ((first, BLUE), (second, ORANGE)):
        left.plot(u, law.ppf(u), color=colour)
        right.plot(y, law.pdf(y), color=colour)
    left.plot(u, quantiles, color="black", label="average of quantiles")
    middle = norm(quantiles.mean(), quantiles.std())
    right.plot(y, middle.pdf(y), color="black", label="average of quantiles")
    right.plot(y, (first.pdf(y) + second.pdf(y)) / 2, ":", color=GREY, label="mixture")
    left.set(xlabel="level u", ylabel="y", title="quantile functions")
    right.set(xlabel="y", ylabel="density", title="densities")
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=8)
    _save(figure, "average")


def coordinate() -> None:
    """The coordinate of a response with zeros and a top-code."""
    from gentle.responses import ResponseEncoder

    y = np.random.default_rng(0).gamma(2, 6, 4000).clip(max=25)
    y[:900] = 0
    code = ResponseEncoder.of(y, np.ones(len(y)))
    figure, (axis,) = _row(1)
    axis.plot(code.z, code.y, color=BLUE)
    for value, words, place in ((0, "zeros", (-2.2, 2)), (25, "top-code", (0.1, 25.6))):
        inside = code.z[code.y == value]
        axis.plot(inside, np.full(len(inside), value), color=ORANGE, linewidth=3)
        axis.annotate(words, place, color=ORANGE)
    axis.set(xlabel="z, where the model works", ylabel="y, the response", ylim=(-1, 28))
    _save(figure, "coordinate")


def _row(n: int) -> tuple[plt.Figure, list[plt.Axes]]:
    size = (3.6 * n + (0.6 if n == 1 else 0), 3.0)
    figure, axes = plt.subplots(1, n, figsize=size, layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
    return figure, list(axes[0])


def _save(figure: plt.Figure, name: str) -> None:
    figure.savefig(PICTURES / f"{name}.png", dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw everything."""
    PICTURES.mkdir(exist_ok=True)
    formulas()
    for draw in (idea, neighbours, average, coordinate):
        draw()
        print(f"drew {draw.__name__}")


if __name__ == "__main__":
    main()
