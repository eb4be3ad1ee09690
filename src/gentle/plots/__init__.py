"""Pictures of data sets, fitted models and their distributions; every function returns its Axes.

Figures are as wide as a column of a journal, 3.3 inches, unless they have several panels. Colours
are those of Okabe and Ito, which people with any colour vision can tell apart, and lines differ in
their dashes too. Names of columns become labels: "income [$]" and "income_usd" both say in which
unit.

Example:
    >>> import gentle
    >>> data = gentle.datasets.load("ldw-cps")  # doctest: +SKIP
    >>> model = gentle.GENTLE().fit(*data.train)  # doctest: +SKIP
    >>> gentle.plots.densities(model, *data.test)  # doctest: +SKIP
    >>> gentle.plots.fan(model, data.test.X, "education")  # doctest: +SKIP
"""

from gentle.plots.canvas import close, label_of, row_of_axes, style
from gentle.plots.fans import fan
from gentle.plots.laws import often_seen
from gentle.plots.results import comparison, importance, local_effects
from gentle.plots.shapes import cdfs, densities, quantiles
from gentle.plots.tables import lipschitz, responses_histogram, tree
from gentle.plots.training import history, transport_map
from gentle.plots.trust import pit, reliability

__all__ = [
    "densities",
    "quantiles",
    "cdfs",
    "fan",
    "pit",
    "reliability",
    "history",
    "transport_map",
    "tree",
    "responses_histogram",
    "lipschitz",
    "comparison",
    "importance",
    "local_effects",
    "style",
    "label_of",
    "often_seen",
    "row_of_axes",
    "close",
]
