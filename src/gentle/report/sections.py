"""Sections of a report: the data, the model, its accuracy, and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np

from gentle.report import drift, pictures, rivals, words
from gentle.report.figures import counted, cut, datum, listed, number, percent, plus_minus, rounded
from gentle.report.page import (
    Html,
    bullets,
    folded,
    paragraph,
    picture,
    section,
    table,
    tag,
)
from gentle.report.study import Study

Section = tuple[str, str, Html]


def data(study: Study) -> Section:
    """What the model was tested on, beside what it remembers of its training data."""
    held, facts = study.held, getattr(study.model, "training_", None)
    trained = ""
    if facts is not None:
        covariates = counted(facts.n_covariates, "different covariate")
        trained = f"Trained on {counted(facts.n_rows, 'row')} with {covariates}."
    covariates = counted(len(held.counts), "different covariate")
    said = f"{counted(len(held), 'test row')} with {covariates} (combinations of values)"
    said += ", each with one response." if held.counts.max() == 1 else "."
    parts = [
        paragraph(said, trained),
        *_repeated(held.counts),
        *_response(study, facts),
        *_columns(study),
    ]
    if study.train is not None:
        share = float(study.answers.support["far"].mean())
        parts.append(
            paragraph(
                f"{percent(share)} of the test rows are unlike any training row (of rows like the "
                "training data about 1 % would be)."
            )
        )
    return section("data", "The data", *parts)


def _repeated(counts: Any) -> list[Html]:
    """How many covariates have how many responses."""
    if counts.max() == 1:
        return []
    rows = []
    for least, most in ((1, 1), (2, 4), (5, 19), (20, 99), (100, np.inf)):
        some = counts[(counts >= least) & (counts <= most)]
        if len(some):
            name = f"{least} or more" if most == np.inf else f"{least} to {most}"
            rows.append((name if most > 1 else "1", f"{len(some):,}", f"{some.sum():,}"))
    head = ["responses of a covariate", "covariates", "test rows"]
    return [table("Responses per covariate", head, rows)]


def _response(study: Study, facts: Any) -> list[Html]:
    y, marginal = study.held.y, study.model.marginal_
    rows = [
        ("smallest", y.min(), np.nan if facts is None else facts.low),
        ("largest", y.max(), np.nan if facts is None else facts.high),
        ("mean", y.mean(), marginal.mean()[0]),
        ("standard deviation", y.std(), marginal.std()[0]),
    ]
    shown = [(what, datum(rounded(float(a))), datum(rounded(float(b)))) for what, a, b in rows]
    parts = [table(f"The response, {study.response}", ["", "test rows", "training"], shown)]
    if not len(study.answers.atoms):
        return [*parts, paragraph("No value of the response is frequent (no atoms).")]
    known = {} if facts is None else dict(facts.atoms)
    atoms = [
        (datum(v), percent(seen), percent(predicted), percent(known.get(v, np.nan)))
        for v, seen, predicted in study.answers.atoms.itertuples(index=False)
    ]
    head = ["value", "share of the test rows", "predicted, on average", "in training"]
    return [
        *parts,
        table("The most frequent values (atoms)", head, atoms),
        paragraph(
            "A model that knows of these values predicts about the probability with which they "
            "occur. Of the training responses only the most frequent three are remembered.",
            muted=True,
        ),
    ]


def _columns(study: Study) -> list[Html]:
    columns = list(drift.columns(study.model, study.held))
    head = ["column", "kind", "in training", "in the test rows", "missing in training", "in test"]
    if any(trained or tested for *_, trained, tested in columns):
        return [table("The covariates", head, columns, n_names=6)]
    rows = [row[:4] for row in columns]
    return [table("The covariates; no value is missing", head[:4], rows, n_names=4)]


def model(study: Study) -> Section:
    """What was trained and how it went."""
    learner, versions = study.learner, study.origin.get("versions", {})
    saved = ""
    if written := study.origin.get("written"):
        packages = ", ".join(f"{name} {version}" for name, version in versions.items())
        saved = f"Saved {written.replace('T', ' ')[:16]} UTC with {packages}."
    parts = [paragraph(saved), tag("pre", study.model.summary(), tabindex="0")]
    settings = [(key, cut(repr(v))) for key, v in study.model.get_params(deep=False).items()]
    if learner is not study.model:
        settings += [(f"model: {key}", cut(repr(v))) for key, v in learner.get_params().items()]
    if settings:
        parts.append(
            folded("All settings", table("Settings", ["name", "value"], settings, n_names=2))
        )
    if history := getattr(learner, "history_", None):
        first, last = history[0], history[-1]
        alt = (
            f"Training loss over {counted(len(history), 'epoch')}, from {number(first['loss'])} to "
            f"{number(last['loss'])}."
        )
        caption = "Training, epoch by epoch: losses should fall and then level off."
        if "validation" in last:
            caption += " If the one on unseen rows rises again, the best state is kept."
        parts.append(picture(pictures.history(learner), alt, caption))
    else:
        parts.append(paragraph("This model is not trained in epochs, so there is no history."))
    caption = (
        "What predictions look like: at the covariates with most responses, titled by the first "
        "row that has them (counted from 0)."
        if study.held.counts.max() >= rivals.MIN_RESPONSES
        else "What predictions look like: at some test rows (counted from 0), chosen from the "
        "lowest to the highest predicted median."
    )
    caption += " Lines are predicted densities, stems predicted atoms; the responses are grey."
    image = pictures.densities(study.model, study.held, study.answers, study.response, study.seed)
    parts.append(picture(image, "Predicted densities beside the responses.", caption, wide=True))
    return section("model", "The model", *parts)


def accuracy(study: Study) -> Section:
    """Scores beside those of others and of a perfect model."""
    result = study.comparison
    ranked: Any = result.table()
    n_training = 0 if study.train is None else len(study.train[1])
    far = result.floor is not None
    head = ["model", "CRPS", "minus this model's", "better than the marginal by", "90 % covered"]
    head += ["WD", "KS"] if far else []
    rows = []
    for row in ranked[ranked["rank"].notna()].to_dict("records"):
        name, own = row["model"], row["model"] == study.name
        difference = "" if own else plus_minus(*result.difference(name, study.name))
        cells = [name, plus_minus(row["crps"], row["crps_se"]), difference]
        cells += ["" if name == rivals.BASELINE else percent(row["skill"])]
        cells += [percent(row["coverage_90"])]
        cells += [number(row["wd"]), number(row["ks"], 3)] if far else []
        rows.append(cells)
    if result.floor is not None:
        floors = [plus_minus(*pair) for pair in result.floor.itertuples(index=False)]
        rows.append(["noise floor", "", "", "", "", *floors])
    parts = [
        paragraph(
            "The continuous ranked probability score (CRPS) of a response is the distance between "
            "the predicted distribution and it; for a forecast of one value it is the absolute "
            f"error. It is in units of {study.response}, smaller is better. After ± stands one "
            f"standard error over {counted(len(study.held.counts), 'different covariate')}; a "
            "difference of less than two of them may be chance."
        ),
        table("Scores on the test rows", head, rows),
        *[paragraph(text) for text in _yardsticks(study, n_training)],
    ]
    if failed := [f"{name} ({why})" for name, why in result.failed.items()]:
        parts.append(paragraph(f"Could not be fitted: {listed(failed)}."))
    return section("accuracy", "Accuracy", *parts)


def _yardsticks(study: Study, n_training: int) -> list[str]:
    """What the others are, and what can be said of a perfect model."""
    said = ["Marginal is the forecast that ignores the covariates."]
    if study.train is None:
        said[0] += (
            " No training rows were given, so that no other models could be fitted for comparison."
        )
    else:
        n = min(n_training, rivals.MAX_TRAINING)
        which = f"{n:,} training rows"
        which = f"a random {which} of {n_training:,}" if n < n_training else f"the {which}"
        said[0] += (
            f" The others, as one would try them first, were fitted to {which}, as they come."
        )
        if n_training > rivals.QUICK:
            said[0] += f" BoostedQuantiles is left out with more than {rivals.QUICK:,} rows."
    least = rivals.MIN_RESPONSES
    if study.comparison.floor is None:
        said.append(
            f"No covariate has {least} test rows, so whole distributions cannot be compared with "
            "the responses, and it cannot be said what a perfect model would score: there is no "
            "Wasserstein or Kolmogorov-Smirnov distance and no noise floor here."
        )
    else:
        n = int(np.sum(study.held.counts >= least))
        said.append(
            f"WD and KS are the Wasserstein distance (in units of {study.response}) and the "
            "Kolmogorov-Smirnov distance between predicted distributions and responses, averaged "
            f"over the {counted(n, 'covariate')} with at least {least} responses. The noise floor "
            "is about what the true distributions would score here, ± one standard deviation: a "
            "model near it is as good as these rows can tell."
        )
    return said


def warnings(study: Study) -> Section:
    """What to beware of."""
    found = words.cautions(study)
    content = bullets(found, "beware") if found else paragraph("None.")
    return section("warnings", "Warnings", content)
