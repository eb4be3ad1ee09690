"""How good is a model, on what was it trained, and where does it fail? One page to hand on.

Example:
    >>> import gentle
    >>> benchmark = gentle.datasets.load("ldw-cps")  # doctest: +SKIP
    >>> model = gentle.GENTLE().fit(*benchmark.train)  # doctest: +SKIP
    >>> gentle.report.report(model, *benchmark.test, train=benchmark.train)  # doctest: +SKIP
    PosixPath('report.html')
"""

from gentle.report.write import report

__all__ = ["report"]
