"""Sections of a report: may the model be trusted, and where not?"""

from __future__ import annotations

from typing import Any

import numpy as np

from gentle.report import findings, pictures, words
from gentle.report.figures import cell, counted, datum, named, number, percent
from gentle.report.page import Html, folded, paragraph, picture, section, table, tag
from gentle.report.study import Study

Section = tuple[str, str, Html]

_MAX_COLUMNS = 30  # of a table with all covariates
_MANY = 12  # subgroups, too many to show unasked
_MAX_PICTURES = 4


def calibration(study: Study) -> Section:
    """Whether probabilities mean what they say, overall and by subgroup."""
    covered = study.answers.coverage
    share = covered.loc[0.9, "observed"]
    rows = [
        (
            percent(nominal),
            percent(row["observed"]),
            f"{percent(row['lower'])} to {percent(row['upper'])}",
            percent(row["inside"]),
            number(row["width"]),
        )
        for nominal, row in covered.iterrows()
    ]
    head = [
        "central interval",
        "responses inside",
        "95 % confidence",
        "ends included",
        "mean width",
    ]
    well = study.verdict == "calibrated"
    images = [
        picture(
            pictures.pit(study.answers),
            f"Histogram of the levels of the responses; overall verdict: {study.verdict}.",
            "Levels of the responses in their predicted distributions. Right predictions give a "
            "flat picture within the band; a hollow means too narrow, a hill too wide, a slope "
            "too low or too high.",
        ),
        picture(
            pictures.reliability(study.answers),
            f"Share of responses below predicted quantiles; overall verdict: {study.verdict}.",
            "Share of responses below the predicted quantile of each level. Right predictions "
            "stay within the band around the diagonal.",
        ),
    ]
    parts = [
        paragraph(
            "Calibrated: no departure that these rows could show."
            if well
            else f"Not calibrated: the distributions are {words.fault(study.verdict)}.",
            f"The 90 % intervals hold {percent(share)} of the responses.",
        ),
        tag("div", *images, class_="pictures"),
        table("Coverage of central intervals", head, rows),
        paragraph(
            "Where the end of an interval is an atom, responses that equal it count with the share "
            "of the atom that is inside, so that right predictions cover what they should; with "
            "“ends included” all of them count.",
            muted=True,
        ),
        tag("h3", "By subgroup"),
        *_by_subgroup(study),
    ]
    return section("calibration", "Calibration", *parts)


def _by_subgroup(study: Study) -> list[Html]:
    groups, wrong = study.groups, study.wrong
    if not len(groups):
        return [paragraph("The covariates do not vary, so there are no subgroups.")]
    n_columns = len(study.partitions)
    chosen = "asked for" if study.asked else "chosen automatically"
    parts = [
        paragraph(
            f"{counted(len(groups), 'subgroup')} by {counted(n_columns, 'column')}, {chosen}: "
            "levels of categories, quarters of numbers. The bands allow for their number: a model "
            "that is right has any of them called wrong with a probability of at most 5 %. So "
            "“calibrated” means that nothing else could be shown; below "
            f"{findings.FEW} rows it is not said at all."
        )
    ]
    whole = _group_table(groups, "All subgroups")
    if study.asked or len(groups) <= _MANY:
        parts.append(whole)
    else:
        if len(wrong):
            parts.append(_group_table(wrong, "Subgroups that are not calibrated"))
        else:
            parts.append(paragraph("None of them is visibly miscalibrated."))
        parts.append(folded(f"All {len(groups)} subgroups", whole))
    shown = list(study.partitions) if study.asked else list(dict.fromkeys(wrong["column"]))
    error = 0.05 / n_columns
    images = [
        picture(
            pictures.reliability(study.answers, column, study.partitions[column], error),
            f"Share of responses below predicted quantiles by subgroups of {column}.",
            f"Share of responses below predicted quantiles, by {column}.",
        )
        for column in shown[:_MAX_PICTURES]
    ]
    return [*parts, tag("div", *images, class_="pictures")] if images else parts


def _group_table(groups: Any, caption: str) -> Html:
    head = ["column", "subgroup", "verdict", "rows", "90 % covered", "95 % confidence", "CRPS"]
    rows = [
        (
            g.column,
            g.group,
            g.verdict,
            f"{g.n:,}",
            percent(g.covered),
            f"{percent(g.lower)} to {percent(g.upper)}",
            number(g.crps),
        )
        for g in groups.itertuples()
    ]
    bad = [verdict not in ("calibrated", "too few rows") for verdict in groups["verdict"]]
    return table(caption, head, rows, n_names=3, bad=bad)


def worst(study: Study) -> Section:
    """Where the model scores worse than it thinks it should."""
    answers, held = study.answers, study.held
    ratio = answers.crps.mean() / answers.expected.mean() if answers.expected.mean() else np.nan
    overall = answers.excess()
    judgement = "as it should be"
    if overall > 3:
        judgement = "more than chance: it is surer than it should be, or wrong somewhere"
    elif overall < -3:
        judgement = "less than chance would have it: it is less sure than it could be"
    parts = [
        paragraph(
            "Where responses scatter widely every model has a large CRPS. So the CRPS is compared "
            "here with what the model itself expects to score, which it would on average if its "
            f"distributions were right. Overall it is {number(float(ratio), 3)} times that "
            f"({_deviations(overall)}), {judgement}."
        )
    ]
    if len(study.groups):
        top = study.groups.sort_values("excess", ascending=False, kind="stable").head(8)
        limit = findings.rare_excess(answers, study.partitions, study.seed)
        rows = [
            (
                g.column,
                g.group,
                f"{g.n:,}",
                number(g.crps),
                number(g.expected),
                _plus(g.excess),
            )
            for g in top.itertuples()
        ]
        head = ["column", "subgroup", "rows", "CRPS", "expected", "excess in standard deviations"]
        bad = [excess > limit for excess in top["excess"]]
        caption = "Subgroups with the largest excess"
        parts += [
            table(caption, head, rows, n_names=2, bad=bad),
            paragraph(
                f"Marked if above {number(limit, 2)}, which the largest of these "
                f"{len(study.groups)} is in 1 of 20 tables whose responses are drawn from the "
                "model itself.",
                muted=True,
            ),
        ]
    parts.append(_worst_rows(study))
    n_out = int(np.sum(np.abs(answers.pit - 0.5) > 0.45))
    parts.append(
        paragraph(
            "Some rows are the worst of any model. By its own account, about "
            f"{0.1 * len(held):.0f} of {len(held):,} responses should lie outside of its 90 % "
            f"intervals; {n_out:,} do. Rows are counted from 0.",
            muted=True,
        )
    )
    return section("worst", "Where it is worst", *parts)


def _plus(excess: float) -> str:
    return number(excess) if np.isinf(excess) else f"{excess:+.1f}"


def _deviations(excess: float) -> str:
    return f"{_plus(excess)} standard deviations"


def _worst_rows(study: Study) -> Html:
    held, found = study.held, findings.worst(study.answers, study.held)
    labels = held.table.labels[:_MAX_COLUMNS]
    head = ["row", study.response, "5 %", "median", "95 %", "CRPS", "expected", "far"]
    rows = []
    for covariate, facts in found.iterrows():
        first = int(facts["first"])
        y = held.y[held.covariate == covariate]
        said = datum(float(y[0]))
        if len(y) > 1:
            said = f"{len(y):,} from {datum(y.min())} to {datum(y.max())}, mean {number(y.mean())}"
        low, middle, high = (number(q) for q in study.answers.quantiles[first])
        far = "yes" if study.answers.far[first] else ""
        scores = [number(facts["crps"]), number(facts["expected"]), far]
        cells = [cell(column, first) for column in held.table.columns[:_MAX_COLUMNS]]
        rows.append([f"{held.at[first]:,}", said, low, middle, high, *scores, *cells])
    more = len(held.table.labels) - len(labels)
    caption = "Covariates with the largest excess: responses, predicted quantiles, and the values"
    caption += f" of the first {_MAX_COLUMNS} columns" if more > 0 else " of all columns"
    return table(caption, [*head, *(named(label) for label in labels)], rows)
