"""``gentle compare``: the ranked table, the verdict, files and errors."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gentle
from gentle.cli import app

QUICK = ["--models", "KNN,Marginal", "--set", "KNN.n_neighbors=10", "--workers", 1]


def run(*arguments, code=0, env=None):
    result = CliRunner(env=env).invoke(app, ["compare", *map(str, arguments)])
    shown = result.stdout + result.stderr
    assert result.exit_code == code, shown
    assert "Traceback" not in shown
    return result


def fails(*arguments, code=1):
    result = run(*arguments, code=code)
    assert result.stdout == ""
    return " ".join(result.stderr.replace("│", " ").split())


def table(n=80):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, n)
    patient = [f"p{k}" for k in rng.integers(0, 40, n)]
    y = 1000 * (x + rng.normal(0, 0.1, n))
    return pd.DataFrame({"x": x, "patient": patient, "y": y, "w": rng.random(n)})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("t.csv", index=False)
    return tmp_path


def test_ranking_and_verdict_are_those_of_the_library():
    out = ["--out", "ranks.csv", "--records", "rows.parquet"]
    options = ["--group", "patient", "--weight", "w", "--folds", 4, "--seed", 3]
    result = run("t.csv", "--target", "y", *QUICK, *options, *out)
    data = table()
    expected = gentle.comparison.compare(
        data[["x"]],
        data["y"].to_numpy(),
        {"KNN": gentle.KNN(n_neighbors=10), "Marginal": "Marginal"},
        sample_weight=data["w"].to_numpy(),
        groups=data["patient"],
        n_folds=4,
        random_state=3,
    )
    ranks, same = pd.read_csv("ranks.csv"), expected.table()
    assert list(ranks) == list(same)
    assert ranks["model"].tolist() == ["KNN", "Marginal"]
    for column in ("crps", "crps_se", "difference_se", "skill", "coverage_90"):
        np.testing.assert_allclose(ranks[column], same[column].astype(float))
    pd.testing.assert_frame_equal(pd.read_parquet("rows.parquet"), expected.records)
    words = " ".join(result.stdout.split())
    assert " ".join(expected.verdict().split()) in words
    first = result.stdout.splitlines()[2]
    assert first.startswith(f"1 KNN      {same.loc[0, 'crps']:.1f} ± {same.loc[0, 'crps_se']:.1f}")
    assert "units of y" in words
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "8 of 8: Marginal, fold 4, done" in result.stderr
    assert "Wrote 160 rows to rows.parquet." in result.stderr


def test_the_group_is_no_covariate_and_columns_can_be_dropped():
    data = table().drop(columns="w").assign(note="text")
    data.to_csv("t.csv", index=False)
    assert (
        "KNN wins" in run("t.csv", "-t", "y", *QUICK, "--group", "patient", "--drop", "note").stdout
    )
    assert "KNN" in run("t.csv", "-t", "y", *QUICK).stdout  # texts are covariates like others


def test_repeating_covariates_show_distances_and_large_numbers_fit():
    rng = np.random.default_rng(0)
    x = np.repeat(np.arange(10.0), 21)
    data = pd.DataFrame({"x": x, "y": 12345.678 * x + 54321.0 * rng.normal(size=210)})
    data.to_csv("r.csv", index=False)
    text = run("r.csv", "-t", "y", *QUICK, "--folds", 2).stdout
    assert "noise floor" in text
    assert "Wasserstein" in text
    assert max(map(len, text.splitlines())) <= 100


def test_failures_are_shown_with_their_reasons(monkeypatch):
    def needy(*_, **__):
        raise ImportError("KernelCDE needs the package 'kernels': pip install kernels")

    monkeypatch.setattr(gentle.KernelCDE, "_fit", needy)
    models = ["--models", "knn,kernelcde", "--workers", 1, "--drop", "patient"]
    result = run("t.csv", "-t", "y", *models, "--set", "knn.n_neighbors=0")
    text = " ".join(result.stdout.split())
    assert "– KNN failed" in text
    assert "KNN failed in 5 of 5 folds: ValueError: n_neighbors must be an integer" in text
    assert "KernelCDE was left out: KernelCDE needs the package 'kernels'" in text
    assert "1 of 15: KNN, fold 1, failed" in result.stderr


def test_a_terminal_shows_a_living_table():
    result = run("t.csv", "-t", "y", *QUICK, "--drop", "patient", env={"FORCE_COLOR": "1"})
    assert "10 of 10 done" in result.stderr
    assert result.stderr.count("✓") > 10
    assert "fold 1, done" not in result.stderr


@pytest.mark.parametrize(
    ("options", "expected", "code"),
    [
        (["--models", "KNN,forest"], "there is no model 'forest'; choose from GENTLE", 2),
        (["--models", "KNN", "--set", "GENTLE.n_steps=2"], "not among the models to compare", 2),
        (["--set", "n_epochs=2"], "is not MODEL.NAME=VALUE", 2),
        (["--set", "lr=0.5"], "is not MODEL.NAME=VALUE", 2),
        (["--set", "GENTLE.epochs=2"], "GENTLE has no setting 'epochs'", 2),
        (["--set", "GENTLE.n_steps=2.5"], "its type is int", 2),
        (["--set", "GENTLE.random_state=2"], "--seed", 2),
        (["--folds", 1], "--folds", 2),
        (["--out", "a.csv", "--records", "a.csv"], "same file", 2),
        (["--out", "t.csv"], "--overwrite", 1),
        (["--out", "a.txt"], "has to end in", 1),
        (["--group", "pateint"], "Did you mean 'patient'?", 1),
        (["--group", "patient", "--drop", "x", "--drop", "w"], "could be a covariate", 1),
        (["--models", "Marginal", "--group", "patient", "--folds", 70], "at most", 1),
    ],
)
def test_errors_say_what_to_do(options, expected, code):
    assert expected in fails("t.csv", "--target", "y", *options, code=code)
    assert os.listdir() == ["t.csv"]


def test_files_are_replaced_on_request_only():
    Path("o.csv").write_text("precious")
    command = ["t.csv", "-t", "y", *QUICK, "--drop", "patient", "--out", "o.csv"]
    assert "--overwrite" in fails(*command)
    assert Path("o.csv").read_text() == "precious"
    run(*command, "--overwrite")
    assert pd.read_csv("o.csv")["model"].tolist() == ["KNN", "Marginal"]


def test_help_has_an_example():
    assert "gentle compare patients.csv --target QALY" in run("--help").stdout
