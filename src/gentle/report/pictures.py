"""Pictures of a report: drawn by `gentle.plots`, kept as text in the page itself."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from gentle import plots
from gentle.columns import as_pandas, taken
from gentle.report.figures import cut
from gentle.report.findings import Answers, HeldOut
from gentle.report.rivals import MIN_RESPONSES

_DOTS_PER_INCH = 240
_N_PANELS = 6


def require_matplotlib() -> None:
    """Say what to install before any work is done."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("a report needs matplotlib: pip install 'gentle-ot[plot]'") from None


def drawn(draw: Callable[[], Any], formulas: bool = False) -> str:
    """A figure as a data URI.

    Args:
        draw: Draws it and returns one of its Axes.
        formulas: Whether texts between dollar signs are formulas; names of columns are not.
    """
    from matplotlib import rc_context

    file = BytesIO()
    with warnings.catch_warnings(), rc_context({"text.parse_math": formulas}):
        warnings.simplefilter("ignore")  # a name may have letters that no font at hand knows
        figure = draw().figure
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)
        plots.close(figure)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def responses_histogram(held: HeldOut) -> str:
    """How many covariates have how many responses."""
    return drawn(lambda: plots.responses_histogram(held.X), formulas=True)


def densities(model: Any, held: HeldOut, answers: Answers, label: str, seed: int) -> str:
    """Predicted densities beside the responses, at six covariates.

    Those with most responses; if none has 20, from the lowest to the highest predicted median.
    """
    n = min(_N_PANELS, len(held.counts))
    rows = np.flatnonzero(held.counts[held.covariate] >= MIN_RESPONSES)
    if not len(rows):
        _, first = np.unique(held.covariate, return_index=True)
        ranked = first[np.argsort(answers.quantiles[first, 1], kind="stable")]
        chosen = held.covariate[ranked[np.linspace(0, len(ranked) - 1, n).round().astype(int)]]
        rows = np.flatnonzero(np.isin(held.covariate, chosen))
    X: Any = as_pandas(taken(held.X, rows))
    X = (X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)).set_axis(held.at[rows])

    def draw() -> Any:
        axes = plots.densities(model, X, held.y[rows], label=label, n_panels=n, random_state=seed)
        chosen, grouped = plots.often_seen(X, held.y[rows], n)
        for axis, row, count in zip(axes.flat, chosen.index, grouped.counts):
            more = f": {count:,} responses" if count > 1 else ""
            axis.set_title(f"row {row}{more}", fontsize=axis.title.get_fontsize())
        return axes.flat[0]

    return drawn(draw)


def history(model: Any) -> str:
    """The training, epoch by epoch."""
    return drawn(lambda: plots.history(model))


def pit(answers: Answers) -> str:
    """The levels of the responses."""
    unit, levels = answers.levels()
    n_bins = int(np.clip(len(levels) // 15, 5, 20))
    return drawn(lambda: plots.pit(unit, None, levels, n_bins=n_bins))


def reliability(
    answers: Answers, column: str = "", groups: pd.Series | None = None, error: float = 0.05
) -> str:
    """Shares below predicted quantiles, overall or by subgroups of a column."""
    unit, levels = answers.levels()
    if groups is not None:
        groups = groups.cat.rename_categories(lambda name: f"{cut(column)} = {name}")
    return drawn(lambda: plots.reliability(unit, None, levels, groups, confidence=1 - error))
