"""Which covariates move which part of the distribution?

Effects are measured on quantile functions: as a change of the CRPS, which needs responses, or as a
Wasserstein distance between distributions, which does not. Both are integrals over levels u,

    CRPS(Q, y) = ∫ 2 (1{y < Q(u)} - u) (Q(u) - y) du,    W₁(Q, Q') = ∫ |Q(u) - Q'(u)| du,

so that each is the sum of what happens at low, middle and high levels.

Example:
    >>> import gentle
    >>> data = gentle.datasets.load("ldw-cps")  # doctest: +SKIP
    >>> model = gentle.GENTLE().fit(*data.train)  # doctest: +SKIP
    >>> table = gentle.importance.permutation(model, *data.test)  # doctest: +SKIP
    >>> gentle.plots.importance(table)  # doctest: +SKIP
    >>> effects = gentle.importance.local_effects(model, data.test.X, "age")  # doctest: +SKIP
    >>> gentle.plots.local_effects(effects)  # doctest: +SKIP
"""

from gentle.importance.local import local_effects
from gentle.importance.shares import shapley
from gentle.importance.shuffling import permutation

__all__ = ["permutation", "shapley", "local_effects"]
