"""Known answers, written independently of the library."""

import numpy as np
import torch
from scipy.stats import norm


def looped_losses(generator, potential, data, parent, u, *, bandwidth, epsilon):
    """Alg. 1 as it is printed, covariate by covariate: Fit and R of all covariates of a data set.

    u is (n, m); returns the mean over covariates and the mean over edges and draws.
    """
    fits, regs = [], []
    for i in range(len(data)):
        here = generator(data.x[i], u[i])  # (m,)
        responses = data.y[data.start[i] : data.start[i + 1]]
        weights = data.weight[data.start[i] : data.start[i + 1]]
        cdf = np.array(
            [np.average(norm.cdf((t - responses) / bandwidth), weights=weights) for t in here]
        )
        fits.append(np.mean((u[i] - cdf) ** 2))
        if parent[i] < 0:
            continue
        there = generator(data.x[parent[i]], u[i])
        v = potential(data.x[i], here)
        for m in range(len(here)):
            inner = np.mean(
                [np.exp((v[k] - (there[m] - here[k]) ** 2) / epsilon) for k in range(len(here))]
            )
            regs.append(-epsilon * np.log(inner) + v[m])
    return np.mean(fits), np.mean(regs)


def as_function(net):
    """A network as a float64 function of one covariate and its points."""
    net = net.double()

    def f(x, s):
        with torch.no_grad():
            return net(torch.tensor(x)[None], torch.tensor(s)[None])[0].numpy()

    return f


def plain_mlp(net, x, s):
    """The layers of the paper's network one by one, on the concatenated input."""
    inputs = np.append(x, s)
    h = np.zeros(0)
    weights = [w.detach().double().numpy() for w in net.weights]
    biases = [b.detach().double().numpy() for b in net.biases]
    for layer, (w, b) in enumerate(zip(weights, biases), start=1):
        if layer in (1, 2, 4, 6):
            h = np.concatenate([h, inputs])
        h = w @ h + b
        if layer < len(weights):
            h = np.maximum(h, 0)
    return h[0]
