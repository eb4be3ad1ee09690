"""Which model predicts a table best? Cross-validation of several on the same folds, and a verdict.

Example:
    >>> import gentle
    >>> train = gentle.datasets.load("tanh-plus-gamma").train  # doctest: +SKIP
    >>> result = gentle.comparison.compare(*train, n_workers=2)  # doctest: +SKIP
    >>> result.table()  # doctest: +SKIP
    >>> print(result.verdict())  # doctest: +SKIP
"""

from gentle.comparison.folds import balanced_folds, units
from gentle.comparison.results import Comparison
from gentle.comparison.run import FIRST_CHOICE, compare

__all__ = ["compare", "Comparison", "units", "balanced_folds", "FIRST_CHOICE"]
