import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import gentle
from gentle import KNN, tuning
from gentle.cli import tuning as command
from test_cli import fails, run, table

TINY = ["--set", "n_steps=5", "--set", "n_trees=6", "--set", "hidden_widths=(8,)"]
ALONE = ["--workers", 1]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table(80)
    data.to_csv("d.csv", index=False)
    return data


def told_command(result):
    """The words after ``gentle`` of the command that repeats a fit."""
    program, *words = shlex.split(result.stderr.splitlines()[-1])
    assert program == "gentle"
    return words


def test_tune_searches_saves_and_says_what_it_found(here):
    result = run("tune", "d.csv", "-t", "y", "-o", "m", "-m", "knn", "--trials", 6, *ALONE)
    lines = result.stderr.splitlines()
    assert lines[0] == "0 of 6 trials done"
    assert re.fullmatch(r"6 of 6 trials done, best score 0\.\d+ in trial \d", lines[6])
    assert "KNN: the best of 6 trials (6 finished)" in result.stdout
    rows = re.findall(r"^ +(\d) +(0\.\d+) +\d+\.\d +n_neighbors=(\w+)", result.stdout, re.MULTILINE)
    assert sorted(number for number, *_ in rows) == list("012345")
    scores = [float(score) for _, score, _ in rows]
    assert scores == sorted(scores)
    model = gentle.load("m")
    assert str(model.n_neighbors) == rows[0][2]
    assert model.response_name_ == "y"
    assert list(model.feature_names_in_) == ["x1", "x2"]
    X, y = here[["x1", "x2"]], here["y"]
    same = tuning.search("KNN", X, y, n_trials=6, random_state=model.random_state)
    assert same.best_settings == {"n_neighbors": model.n_neighbors}
    np.testing.assert_array_equal(same.model.predict(X), model.predict(X))
    assert set(os.listdir()) == {"d.csv", "m", "m.study"}


@pytest.mark.parametrize("evaluation", [None, "v.csv"])
def test_the_command_told_at_the_end_gives_the_same_model(here, evaluation):
    here.assign(w=np.arange(80) % 4, note="text").to_csv("my data.csv", index=False)
    table(30, seed=5).assign(w=2.0).to_csv("v.csv", index=False)
    options = ["--weight", "w", "--drop", "note", *TINY, "--set", "tails=observed"]
    options += [] if evaluation is None else ["--eval", evaluation]
    tune = ["tune", "my data.csv", "-t", "y", "-o", "m", "--trials", 2, "--seed", 3, *options]
    result = run(*tune, *ALONE)
    first = gentle.load("m")
    words = told_command(result)
    assert words[:2] == ["fit", "my data.csv"]
    assert "tails=observed" in words
    run(*words)
    again = gentle.load("m")
    assert again.get_params() == first.get_params() | {"verbose": 1}
    X = here[["x1", "x2"]]
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert first.tails == "observed"
    assert "hidden_widths" not in result.stdout  # what --set fixes is not searched over
    assert "lr_generator=" in result.stdout


def test_quiet_is_quiet(here):
    result = run("tune", "d.csv", "-t", "y", "-o", "m", "-m", "KNN", "--trials", 2, "-q", *ALONE)
    assert result.stdout == result.stderr == ""
    assert type(gentle.load("m")).__name__ == "KNN"


def test_an_interrupted_search_goes_on_with_the_same_command(here, monkeypatch):
    fit, n_fits = KNN.fit, []

    def interrupted(model, *arguments, **options):
        n_fits.append(model.random_state)
        if len(n_fits) == 3:
            raise KeyboardInterrupt
        return fit(model, *arguments, **options)

    monkeypatch.setattr(KNN, "fit", interrupted)
    tune = ["tune", "d.csv", "-t", "y", "-o", "m", "-m", "KNN", "--trials", 5, *ALONE]
    stopped = run(*tune, code=130)
    assert "the same command goes on" in stopped.stderr
    assert not Path("m").exists()
    result = run(*tune)
    assert result.stderr.startswith("2 of 5 trials done, best score ")
    assert "6 trials (5 finished, 1 interrupted)" in " ".join(result.stdout.split())
    assert len(n_fits) == 3 + 3 + 1
    assert len(set(n_fits)) == 1  # the random seed was kept
    assert "add --overwrite" in fails(*tune)
    run(*tune[:-4], "--trials", 7, *ALONE, "--overwrite")
    assert len(n_fits) == 7 + 2 + 1


def test_the_study_may_stand_elsewhere_and_belongs_to_one_search(here):
    tune = ["tune", "d.csv", "-t", "y", "-m", "KNN", "--trials", 1, "--folder", "s", *ALONE]
    run(*tune, "-o", "m")
    assert set(os.listdir()) == {"d.csv", "m", "s"}
    assert "differs in: rows" in fails(*tune, "-o", "other", "--drop", "x1")
    assert "other" not in os.listdir()


def test_the_papers_grid(here):
    seen = here.loc[[1, 2], ["x1", "x2"]].loc[[1] * 25 + [2] * 25]
    seen.assign(y=np.random.default_rng(0).normal(size=50)).to_csv("v.csv", index=False)
    changes = ("reg_weight=0", "hidden_widths=(4,)", "n_epochs=2", "n_levels=21", "n_draws=4")
    fixed = [word for change in changes for word in ("--set", change)]
    tune = ["tune", "d.csv", "-t", "y", "-o", "m", "--search", "paper", *fixed, *ALONE]
    result = run(*tune, "--eval", "v.csv")
    assert "13 of 13 trials done" in result.stderr
    assert "validation WD of" in " ".join(result.stdout.split())
    model = gentle.load("m")
    assert model.bandwidth in tuning.PAPER_GRID["bandwidth"]
    assert model.reg_weight == 0
    assert model.is_game
    assert model.early_stopping is False  # as in the paper
    words = told_command(result)
    run(*words)
    assert gentle.load("m").get_params() == model.get_params() | {"verbose": 1}
    other = ["--overwrite", "--folder", "other"]
    assert "criterion='crps'" in fails(*tune, *other)
    assert "GENTLE only" in fails(*tune[:8], *other, "--model", "KNN", code=2)
    assert "--trials" in fails(*tune, *other, "--trials", 3, code=2)
    assert "CRPS of" in " ".join(run(*tune, *other, "--criterion", "crps").stdout.split())


def test_wrong_usage(here):
    tune = ["tune", "d.csv", "-t", "y", "-o", "m"]
    assert "has no settings to search" in fails(*tune, "-m", "Marginal", code=2)
    fixed = ["-m", "KNN", "--set", "n_neighbors=3"]
    assert "--set fixes all of them" in fails(*tune, *fixed, code=2)
    assert "no model 'forest'" in fails(*tune, "-m", "forest", code=2)
    assert "'smart', 'paper'" in fails(*tune, "--search", "random", code=2)
    assert "no column 'z'" in fails("tune", "d.csv", "-t", "z", "-o", "m", "-m", "KNN")
    assert "no time" in fails(*tune, "-m", "KNN", "--timeout", 0, *ALONE)
    assert "m" not in os.listdir()


def test_a_terminal_sees_a_bar(here, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = run("tune", "d.csv", "-t", "y", "-o", "m", "-m", "KNN", "--trials", 3, *ALONE).stderr
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "Tuning KNN" in text
    assert "3/3 trials, best score 0." in text
    assert "of 3 trials done" not in text


def test_floats_are_told_to_the_last_bit():
    assert command._texts({"a": 0.1 + 0.2, "b": "x", "c": (1, 2), "d": None}, repr) == [
        "a=0.30000000000000004",
        "b=x",
        "c=(1, 2)",
        "d=None",
    ]


def test_help_has_an_example():
    text = run("tune", "--help").stdout
    assert "Example" in text
    assert "gentle tune" in text
