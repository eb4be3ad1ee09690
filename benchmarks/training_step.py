"""One training step, vectorised against the same step written as a loop over covariates.

    python benchmarks/training_step.py --covariates 1000 --draws 64

Both update equal copies of the networks on the same batch with the same draws; the script checks
that they end in the same weights before it compares their times. The time of a step is the smallest
of several, taken in turns in one run.
"""

from __future__ import annotations

import argparse
import copy
import os
import platform
import time

import numpy as np
import torch

from gentle import GENTLE
from gentle.data import Grouped
from gentle.graph import spanning_tree
from gentle.models.game import Game
from gentle.nets import PaperMLP


def looped_step(game: Game, covariates: np.ndarray, u: torch.Tensor, careful: bool = False) -> None:
    """Algs. 1 and 2 as they are printed: covariate after covariate, in plain torch.

    The plain way differentiates the whole loss, as ``loss.backward()`` does; ``careful`` asks for
    the gradient of the player who moves only.
    """
    data, model = game.data, game.model

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        fits, regs = [], []
        for b, i in enumerate(covariates):
            x_i = game.x[i : i + 1]
            draws = game.generator(x_i, u[b : b + 1])[0]  # (m,)
            responses = game.y[data.start[i] : data.start[i + 1]]
            share = game.share[data.start[i] : data.start[i + 1]]
            z = (draws[:, None] - responses) / game.bandwidth[i]
            cdf = (torch.special.ndtr(z) * share).sum(dim=1)
            fits.append((u[b] - cdf).square().mean())
            j = game.parent[i]
            if j >= 0:
                partner_draws = game.generator(game.x[j : j + 1], u[b : b + 1])[0]
                v = game.potential(x_i, draws[None])[0]
                cost = (partner_draws[:, None] - draws).square()
                score = (v - cost) / model.epsilon
                transform = -model.epsilon * (score.logsumexp(dim=1) - np.log(len(draws)))
                regs.append(transform.mean() + v.mean())
        return torch.stack(fits).mean(), torch.stack(regs).mean()

    def generator_gradient() -> None:
        fit, reg = losses()
        backward(fit + model.reg_weight * reg, game.theta)

    def potential_gradient() -> None:
        fit, reg = losses()
        backward(fit + model.reg_weight * reg, game.phi)

    def backward(loss: torch.Tensor, params: list[torch.Tensor]) -> None:
        for param in game.theta + game.phi:
            param.grad = None
        loss.backward(inputs=params if careful else None)

    game.optimizer.step(generator_gradient, potential_gradient)


def make_game(n_covariates: int, n_draws: int, inner: str) -> Game:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_covariates, 9)).repeat(rng.geometric(0.9, n_covariates), axis=0)
    data = Grouped.of(X, X[:, 0] + rng.normal(size=len(X)))
    seed = torch.Generator().manual_seed(0)
    model = GENTLE.from_paper("ldw-cps", n_draws=n_draws, inner=inner)
    nets = [PaperMLP(9, model.setting("hidden_widths"), seed) for _ in range(2)]
    return Game(model, data, spanning_tree(data.x), *nets, seed)


def difference(n_covariates: int, n_draws: int) -> float:
    """Largest difference between the weights after one plain gradient step done either way."""
    one = make_game(n_covariates, n_draws, "sgd")
    two = make_game(n_covariates, n_draws, "sgd")
    batch, u = np.arange(n_covariates), copy.deepcopy(one).draw(n_covariates)
    one.draw = lambda n: u
    one.step(batch)
    looped_step(two, batch, u)
    moved = zip(one.theta + one.phi, two.theta + two.phi)
    return max((a - b).detach().abs().max().item() for a, b in moved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--covariates", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    print(
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, "
        f"{args.threads} thread(s)"
    )
    print(f"largest difference of weights after one step: {difference(300, args.draws):.1e}")
    fast, slow = (make_game(args.covariates, args.draws, "adam") for _ in range(2))
    batch = np.arange(args.covariates)
    times: dict[str, list[float]] = {"vectorised": [], "loop": [], "careful loop": []}
    for _ in range(args.repeats):
        u = slow.draw(args.covariates)
        for name, step in (
            ("vectorised", lambda: fast.step(batch)),
            ("loop", lambda u=u: looped_step(slow, batch, u)),
            ("careful loop", lambda u=u: looped_step(slow, batch, u, careful=True)),
        ):
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    best = {name: min(values) for name, values in times.items()}
    print(f"a step with {args.covariates} covariates × {args.draws} draws:")
    for name, seconds in best.items():
        print(f"{name:>14}: {seconds:6.2f} s, {seconds / best['vectorised']:4.1f} times vectorised")


if __name__ == "__main__":
    main()
