"""The report as a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from gentle.report import pictures, sections, trust, words
from gentle.report.groups import By
from gentle.report.page import bullets, document
from gentle.report.study import Study
from gentle.streams import Seed


def report(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    train: tuple[Any, Any] | None = None,
    by: By = None,
    out: str | os.PathLike[str] = "report.html",
    title: str | None = None,
    max_rows: int = 5000,
    random_state: Seed = 0,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write a page about a model: its data, accuracy, calibration, worst rows, and warnings.

    The page is one HTML file that loads nothing from elsewhere, for people who know statistics but
    not this library. It needs the extra ``plot``.

    Args:
        model: A fitted model, or the folder of a saved one, of which the page then also says when
            and with which versions it was saved.
        X: Covariates, array or DataFrame, ``(n, d)``.
        y: Responses that the model has not seen, ``(n,)``.
        train: The training rows ``(X, y)``; with them, models that one would try first are fitted
            for comparison, and test rows unlike any training row are found.
        by: Columns of X for subgroups, or labels of the rows by name, ``{name: (n,)}``. None looks
            at every column, at most 20 of them.
        out: The file; one that is there is replaced.
        title: Heading of the page.
        max_rows: Of more test rows, so many at random are looked at; the page says so.
        random_state: Seed of the models to compare with, of sampling rows and of randomised levels.
        progress: Called with a few words about what is being done.

    Returns:
        The path of the file.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The rows are not such as the model was fitted to.

    Example:
        >>> import numpy as np, tempfile
        >>> from gentle import KNN
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(300, 2))
        >>> y = X[:, 0] + rng.normal(0, 0.1, 300)
        >>> model = KNN(n_neighbors=20).fit(X[:200], y[:200])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = report(model, X[200:], y[200:], out=f"{folder}/knn.html")
        ...     "<h2>Calibration</h2>" in page.read_text()
        True
    """
    target = Path(out)
    if not target.absolute().parent.is_dir():
        raise ValueError(f"the folder {str(target.parent)!r} does not exist; create it first")
    pictures.require_matplotlib()
    tell = progress or (lambda what: None)
    study = Study.of(model, X, y, train, by, max_rows, random_state, tell)
    tell("Drawing")
    return _written(target, page(study, title))


def page(study: Study, title: str | None = None) -> str:
    """The HTML of a report."""
    kind = type(study.model).__name__
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        sections.warnings(study),
        sections.data(study),
        sections.model(study),
        sections.accuracy(study),
        trust.calibration(study),
        trust.worst(study),
    ]
    return document(
        title or f"{kind}: {study.response} given {len(study.held.table.labels)} covariates",
        f"A {kind} model of the distribution of {study.response}, tested on "
        f"{len(study.held):,} rows that it has not seen.",
        bullets(words.verdict(study), "verdict"),
        parts,
        f"Written {now} by gentle {version('gentle-ot')}. This page is complete in itself.",
    )


def _written(path: Path, text: str) -> Path:
    """The file, which appears or is replaced once all of it is there."""
    target = Path(os.path.realpath(path))  # a link stays one
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
    return path
