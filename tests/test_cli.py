import errno
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gentle
from gentle.cli import answering, app
from gentle.cli.fitting import _is_a
from gentle.models.registry import MODULES, model_class

COMMANDS = ["fit", "sample", "predict", "evaluate", "simulate", "datasets", "reproduce"]
TINY = ["--set", "n_steps=5", "--set", "hidden_widths=(8, 8)", "--set", "n_trees=6"]


def run(*arguments, code=0):
    """Run a command; whatever happens, users see no traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    shown = result.stdout + result.stderr
    assert result.exit_code == code, shown
    assert "Traceback" not in shown
    assert isinstance(result.exception, (SystemExit, type(None)))
    return result


def fails(*arguments, code=1):
    """The complaint of a command that must fail: one line unless the usage was wrong."""
    result = run(*arguments, code=code)
    assert result.stdout == ""
    if code == 1:
        assert result.stderr.startswith("Error: ") or "\nError: " in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: ")
    return " ".join(result.stderr.replace("│", " ").split())


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.integers(0, 3, n)
    return pd.DataFrame({"x1": x1, "x2": x2, "y": x1 + x2 + rng.normal(0, 0.1, n)})


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Tables and fitted models that no test changes."""
    folder = tmp_path_factory.mktemp("shared")
    table().to_csv(folder / "train.csv", index=False)
    table(40, seed=1).assign(note="text").to_csv(folder / "new.csv", index=False)
    run("fit", folder / "train.csv", "-t", "y", "-o", folder / "knn", "-m", "KNN", "--seed", 1)
    run("fit", folder / "train.csv", "-t", "y", "-o", folder / "gentle", "--seed", 1, *TINY)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Round trips


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "pq"])
def test_every_kind_of_file_goes_round(here, ending):
    out = run("simulate", "two-branches", "-n", 40, "--seed", 3, "--out", f"data.{ending}")
    assert "40 rows" in out.stderr
    assert out.stdout == ""
    run("fit", f"data.{ending}", "-t", "y", "-o", "model", "-m", "KNN", "--seed", 0)
    run("sample", "model", f"data.{ending}", "-n", 7, "--seed", 2, "--out", f"draws.{ending}")
    run("predict", "model", f"data.{ending}", "--out", f"quantiles.{ending}")
    run("evaluate", "model", f"data.{ending}", "--out", f"records.{ending}")
    read = pd.read_parquet if ending in ("parquet", "pq") else pd.read_csv
    data, draws = read(f"data.{ending}"), read(f"draws.{ending}")
    quantiles, records = read(f"quantiles.{ending}"), read(f"records.{ending}")
    model, X = gentle.load("model"), data.drop(columns="y")
    assert list(draws) == ["row", "draw", "value"]
    assert draws["row"].tolist() == np.repeat(np.arange(40), 7).tolist()
    assert draws["draw"].tolist() == np.tile(np.arange(7), 40).tolist()
    np.testing.assert_allclose(draws["value"], model.sample(X, 7, random_state=2).ravel())
    assert list(quantiles) == ["row", "mean", "q0.05", "q0.5", "q0.95"]
    np.testing.assert_allclose(quantiles["mean"], model.predict(X))
    np.testing.assert_allclose(quantiles["q0.5"], model.predict_quantiles(X, 0.5))
    assert len(records) == 40
    names = {f"data.{ending}", f"draws.{ending}", f"quantiles.{ending}", f"records.{ending}"}
    assert set(os.listdir()) == {"model"} | names  # no scratch files


def test_fit_says_what_was_done_and_what_to_do_next(here, shared):
    table(20).to_csv("small.csv", index=False)
    result = run("fit", "small.csv", "--target", "y", "--out", "my model", *TINY)
    assert result.stdout == ""
    text = result.stderr
    for expected in ["GENTLE", "y given x1, x2", "20 rows", "20 distinct", " epochs)", "seed"]:
        assert expected in text
    assert "gentle sample 'my model/' new.csv" in text
    assert "held-out rows" not in text  # a dozen of them tell nothing
    table(400).to_csv("large.csv", index=False)
    more = run("fit", "large.csv", "--target", "y", "--out", "large", *TINY).stderr
    assert re.search(r"held-out rows .* \d+% (smaller|LARGER)", more)
    parameters = json.loads(Path("my model/model.json").read_text())["parameters"]
    assert parameters["hidden_widths"] == [8, 8]
    assert f"seed {parameters['random_state']}" in text


def test_fit_is_the_library_call_with_the_same_seed(here, shared):
    model = gentle.load(shared / "gentle")
    train = table()
    settings = {"n_steps": 5, "hidden_widths": (8, 8), "n_trees": 6, "verbose": 0}
    same = gentle.GENTLE(**settings, random_state=1).fit(train[["x1", "x2"]], train["y"])
    X = train[["x1", "x2"]]
    np.testing.assert_allclose(model.predict(X), same.predict(X), rtol=1e-4)


def test_the_papers_model_with_its_settings(here, shared):
    fit = ["fit", shared / "train.csv", "-t", "y", "-o", "m", "--seed", 0]
    smaller = ["--set", "n_epochs=1", "--set", "hidden_widths=(8, 8)", "--set", "n_levels=51"]
    run(*fit, "--paper", "ecm", *smaller)
    expected = gentle.GENTLE.from_paper("ecm", n_epochs=1, hidden_widths=(8, 8), n_levels=51)
    own = {"random_state": 0}
    assert gentle.load("m").get_params() == expected.get_params() | own
    assert "GENTLE on ldw-cps and on ecm" in fails(*fit, "--paper", "iris", "--overwrite", code=2)
    assert "GENTLE on" in fails(*fit, "--paper", "ecm", "--overwrite", "-m", "KNN", code=2)


def test_quiet_is_quiet(here, shared):
    result = run("fit", shared / "train.csv", "-t", "y", "-o", "m", "-m", "marginal", "-q")
    assert result.stdout == result.stderr == ""
    assert type(gentle.load("m")).__name__ == "Marginal"


def test_fit_drops_weights_and_validates(here):
    data = table().assign(w=1.0, name="text")
    data.to_csv("d.csv", index=False)
    table(30, seed=5).assign(w=2.0).to_csv("v.csv", index=False)
    options = ["--weight", "w", "--drop", "name", "--drop", "x2", "--eval", "v.csv", "--threads", 1]
    result = run("fit", "d.csv", "-t", "y", "-o", "m", *options, *TINY)
    model = gentle.load("m")
    assert list(model.feature_names_in_) == ["x1"]
    validation = table(30, seed=5)
    skill = model.score(validation[["x1"]], validation["y"])
    assert f"On v.csv the prediction error (CRPS) is {abs(skill):.0%}" in result.stderr


def test_overwriting_a_model_is_a_decision(here, shared):
    fit = ["fit", shared / "train.csv", "-t", "y", "-o", "m", "-m", "KNN"]
    run(*fit)
    before = Path("m/model.json").read_bytes()
    assert "--overwrite" in fails(*fit)
    assert Path("m/model.json").read_bytes() == before
    run(*fit, "--overwrite", "--set", "n_neighbors=3")
    assert gentle.load("m").n_neighbors_ == 3


@pytest.mark.parametrize("name", ["knn", "gentle"])
def test_draws_in_pieces_are_those_of_one_call(here, shared, name, monkeypatch):
    monkeypatch.setattr(answering, "_VALUES_AT_ONCE", 75)  # 7 rows of 10 draws, 6 pieces
    run("sample", shared / name, shared / "new.csv", "-n", 10, "--seed", 4, "--out", "d.parquet")
    model = gentle.load(shared / name)
    whole = model.sample(table(40, seed=1)[["x1", "x2"]], 10, random_state=4)
    found = pd.read_parquet("d.parquet")["value"].to_numpy().reshape(40, 10)
    np.testing.assert_allclose(found, whole, rtol=1e-5)
    if name == "knn":
        np.testing.assert_array_equal(found, whole)


def test_without_a_seed_the_one_used_is_told(here, shared):
    sample = ["sample", shared / "knn", shared / "new.csv", "-n", 3]
    seed = re.search(r"seed (\d+)", run(*sample, "-o", "a.csv").stderr).group(1)
    run(*sample, "-o", "b.csv", "--seed", seed)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_data_goes_to_standard_output_and_nothing_else_does(here, shared):
    for command in (
        ["predict", shared / "knn", shared / "new.csv", "--quantiles", ".1,.9"],
        ["sample", shared / "knn", shared / "new.csv", "-n", 2, "--seed", 1],
        ["simulate", "ecm", "-n", 5],
    ):
        result = run(*command)
        assert result.stderr == ""
        lines = result.stdout.splitlines()
        assert len({line.count(",") for line in lines}) == 1
    assert run(
        "predict", shared / "knn", shared / "new.csv", "--quantiles", ".1,.9"
    ).stdout.startswith("row,mean,q0.1,q0.9\n0,")


def test_evaluate_shows_the_library_scores(here, shared):
    result = run("evaluate", shared / "knn", shared / "train.csv")
    train, model = table(), gentle.load(shared / "knn")
    X, y = train[["x1", "x2"]], train["y"]
    summary = gentle.metrics.evaluate(model, X, y).summary()
    assert f"{summary['crps']:#.4g}" in result.stdout
    assert f"{model.score(X, y):.1%}" in result.stdout
    assert f"{summary['coverage']:.1%}" in result.stdout
    assert "No covariate has 20 responses" in result.stdout
    assert "Wasserstein" not in result.stdout


def test_evaluate_shows_distances_and_their_floor_where_covariates_repeat(here, shared):
    seen = pd.DataFrame({"x1": [0.0, 0.5], "x2": [1, 2]})
    data = seen.loc[seen.index.repeat(25)].reset_index(drop=True)
    rng = np.random.default_rng(0)
    data["y"] = data["x1"] + data["x2"] + rng.normal(0, 0.1, 50)
    data.to_parquet("test.parquet")
    text = run("evaluate", shared / "knn", "test.parquet", "--out", "r.csv").stdout
    assert all(word in text for word in ["Wasserstein", "Kolmogorov", "noise floor", "±"])
    assert "No covariate" not in text
    assert pd.read_csv("r.csv")["n_responses"].tolist() == [25, 25]


def test_evaluate_remembers_the_target(here, shared):
    extra = table().assign(w=1.0)
    extra.to_csv("t.csv", index=False)
    remembered = run("evaluate", shared / "knn", "t.csv").stdout
    assert remembered == run("evaluate", shared / "knn", "t.csv", "--target", "y").stdout
    assert remembered == run("evaluate", shared / "knn", "t.csv", "--weight", "w").stdout
    extra[["x1", "x2"]].to_csv("x.csv", index=False)
    assert "no column 'y'" in fails("evaluate", shared / "knn", "x.csv")


def test_evaluate_finds_the_target_of_a_model_that_does_not_know_it_or_asks(here):
    data = table()
    gentle.KNN(n_neighbors=3).fit(data[["x1", "x2"]], data["y"].to_numpy()).save("m")
    data.to_csv("t.csv", index=False)
    assert "CRPS" in run("evaluate", "m", "t.csv").stdout
    data.assign(w=1.0).to_csv("w.csv", index=False)
    assert "--target" in fails("evaluate", "m", "w.csv")
    data[["x1", "x2"]].to_csv("x.csv", index=False)
    assert "no column is" in fails("evaluate", "m", "x.csv")


def test_a_model_without_column_names_takes_columns_in_order(here):
    data = table()
    gentle.KNN(n_neighbors=3).fit(data[["x1", "x2"]].to_numpy(), data["y"].to_numpy()).save("m")
    data[["x1", "x2"]].to_csv("x.csv", index=False)
    data.to_csv("t.csv", index=False)
    assert run("predict", "m", "x.csv").stdout.count("\n") == 61
    assert "--target" in fails("evaluate", "m", "t.csv")
    assert "CRPS" in run("evaluate", "m", "t.csv", "-t", "y").stdout
    assert "3 features" in fails("predict", "m", "t.csv")


# Data to try things on


def test_simulated_patients(here):
    run("simulate", "ecm", "-n", 6, "--responses", 3, "--seed", 1, "--out", "a.csv")
    data = pd.read_csv("a.csv")
    assert list(data) == [*gentle.datasets.draw_covariates(1), "QALY"]
    assert len(data) == 18
    assert data.drop(columns="QALY").drop_duplicates().index.tolist() == list(range(0, 18, 3))
    rng = np.random.default_rng(1)
    X = gentle.datasets.draw_covariates(6, rng)
    np.testing.assert_allclose(data["QALY"], gentle.datasets.simulate_ecm(X, 3, True, rng).ravel())
    run("simulate", "ecm", "--plain", "-n", 200, "--out", "plain.csv")
    assert (pd.read_csv("plain.csv")["QALY"] >= 0).all()


def test_simulation_at_given_covariates(here):
    X = gentle.datasets.draw_covariates(4, 0)
    X.assign(note="text").to_csv("x.csv", index=False)
    run("simulate", "ecm", "--at", "x.csv", "--responses", 2, "--out", "y.parquet")
    data = pd.read_parquet("y.parquet")
    np.testing.assert_allclose(data.drop(columns="QALY")[::2], X)
    assert "cannot be combined" in fails("simulate", "ecm", "--at", "x.csv", "-n", 3, code=2)
    table().to_csv("other.csv", index=False)
    assert "'Barrett'" in fails("simulate", "ecm", "--at", "other.csv")
    X.assign(initialAge=10).to_csv("young.csv", index=False)
    assert "initialAge" in fails("simulate", "ecm", "--at", "young.csv", "--out", "z.csv")
    assert "z.csv" not in os.listdir()


def test_simulation_of_what_cannot_be_simulated(here):
    assert "Did you mean 'ecm'" in fails("simulate", "ecn")
    assert "gentle datasets ldw-cps --out" in fails("simulate", "ldw-cps")
    assert "gentle datasets wage1 --out" in fails("simulate", "wage1")
    assert "only ecm" in fails("simulate", "sine-laplace", "--plain", code=2)


def test_datasets_are_listed_and_written(here):
    listing = run("datasets").stdout
    for entry in gentle.datasets.names():
        assert entry.name in listing
        assert f"{entry.rows:,}" in listing
    run("datasets", "sine-laplace", "--out", "folder")
    benchmark = gentle.datasets.load("sine-laplace")
    for part in ("train", "val", "test"):
        written = pd.read_csv(f"folder/{part}.csv")
        np.testing.assert_allclose(written["y"], getattr(benchmark, part).y)
    assert "--overwrite" in fails("datasets", "sine-laplace", "--out", "folder")
    run("datasets", "diamonds", "--out", "diamonds")  # which has a covariate y
    written, part = pd.read_csv("diamonds/val.csv"), gentle.datasets.load("diamonds").val
    np.testing.assert_allclose(written["price"], part.y)
    np.testing.assert_allclose(written["y"], part.X["y"])
    assert "Did you mean" in fails("datasets", "sine-laplac", "--out", "other")
    assert "other" not in os.listdir()
    fails("datasets", "sine-laplace", code=2)


# Help


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_has_an_example(command):
    text = run(*command, "--help").stdout
    assert "Example" in text
    assert " ".join(["gentle", *command]) in text


def test_help_and_version_are_fast():
    script = (
        "import sys; from gentle.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'pandas', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    for option in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-c", script, option], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0
        assert done.stdout.endswith("[]\n")
    assert gentle.__version__ in done.stdout


# Errors


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.csv", None, "there is no file 'none.csv'"),
        ("t.xlsx", b"", "has to end in one of .csv"),
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,y\n", "no rows"),
        ("t.csv", b"a,y\n1,2\n3,4,5\n", "line 3"),
        ("t.csv", b"a,y\n1,2,3\n3,4,5\n", "more fields than its header"),
        ("t.csv", b"a;y\n1;2\n", "commas"),
        ("t.csv", b"\xff\xfe\x00,\x01", "UTF-8"),
        ("t.csv", b"a,b\n1,2\n3,4\n", "has no column 'y'"),
        ("t.csv", b"a,Y\n1,2\n3,4\n", "Did you mean 'Y'? Its columns are 'a', 'Y'"),
        ("t.csv", b"y\n1\n2\n", "no column that could be a covariate"),
        ("t.csv", b"a,y\n1,1\ninf,3\n", "X contains infinity: column 'a'"),
        ("t.csv", b"a,y\n1,1\n2,\n", "nothing stands in row 1"),
        ("t.csv", b"a,y\n1,1\n2,many\n", "'many' stands in row 1"),
        ("t.csv", b"a,y\n1,1\n2,inf\n", "inf"),
        ("t.csv", b"a,y\n1,2\n", "at least 2 rows"),
        ("t.csv.gz", b"a,y\n1,2\n", "gzip"),
        ("t.csv.gz", gzip.compress(b"a,y\n1,2\n" * 99, mtime=0)[:-9], "gzip"),
        ("t.parquet", b"PAR1 and no more", "Parquet"),
        ("t.parquet", b"", "Parquet"),
    ],
)
def test_unusable_tables(here, name, content, expected):
    if content is not None:
        Path(name).write_bytes(content)
    assert expected in fails("fit", name, "-t", "y", "-o", "model", "-m", "KNN")
    assert set(os.listdir()) <= {name}


def test_a_folder_is_not_a_file(here, shared):
    Path("t.csv").mkdir()
    assert "is a folder" in fails("fit", "t.csv", "-t", "y", "-o", "m")
    out = fails("predict", shared / "knn", shared / "new.csv", "--out", "t.csv")
    assert "is a folder" in out
    assert "is a file" in fails("predict", shared / "new.csv", shared / "knn")


def test_wrong_columns_are_named(here, shared):
    fit = ["fit", shared / "train.csv", "-o", "m", "-m", "KNN"]
    assert "'weigth'" in fails(*fit, "-t", "y", "--weight", "weigth")
    assert "Did you mean 'x1'" in fails(*fit, "-t", "y", "--drop", "X1")
    table()[["x1", "y"]].to_csv("t.csv", index=False)
    assert "no column 'x2'" in fails(*fit, "-t", "y", "--eval", "t.csv")
    assert "no column 'x2'" in fails("predict", shared / "knn", "t.csv")
    assert "no column 'x2'" in fails("sample", shared / "knn", "t.csv", "--out", "d.csv")
    assert "no column 'x2'" in fails("evaluate", shared / "knn", "t.csv")
    assert os.listdir() == ["t.csv"]


def test_an_error_names_the_row_of_the_whole_table(here, shared, monkeypatch):
    monkeypatch.setattr(answering, "_VALUES_AT_ONCE", 10)
    data = table()
    data.loc[50, "x1"] = np.inf
    data.to_csv("t.csv", index=False)
    assert "row 50" in fails("sample", shared / "knn", "t.csv", "-n", 2, "-o", "d.csv")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("epochs=3", "hidden_widths"),
        ("n_epochs", "not NAME=VALUE"),
        ("n_epochs=many", "its type is int"),
        ("n_epochs=True", "its type is int"),
        ("n_epochs=1.5", "its type is int"),
        ("hidden_widths=8", "Sequence[int]"),
        ("hidden_widths=('a',)", "Sequence[int]"),
        ("bandwidth=scot", "silverman"),
        ("stratified=false", "bool"),
        ("random_state=1", "--seed"),
    ],
)
def test_wrong_settings(here, shared, setting, expected):
    fit = ["fit", shared / "train.csv", "-t", "y", "-o", "m"]
    assert expected in fails(*fit, "--set", setting, code=2)
    assert os.listdir() == []


def test_settings_outside_their_range_are_the_models_to_refuse(here, shared):
    fit = ["fit", shared / "train.csv", "-t", "y", "-o", "m"]
    assert "n_epochs must be an integer of at least 1" in fails(*fit, "--set", "n_epochs=0")
    assert "GENTLE, CWGAN" in fails(*fit, "--model", "forest", code=2)
    assert "cuda" in fails(*fit, "--device", "gpu", code=2)


@pytest.mark.parametrize("name", MODULES)
def test_defaults_of_every_model_are_of_their_annotated_types(name):
    hints = get_type_hints(model_class(name).__init__)
    for parameter, value in model_class(name)().get_params().items():
        assert _is_a(value, hints[parameter]), parameter


def test_the_output_folder_is_checked_before_training(here, shared, monkeypatch):
    monkeypatch.setattr(gentle.KNN, "fit", lambda *_, **__: pytest.fail("trained"))
    fit = ["fit", shared / "train.csv", "-t", "y", "-m", "KNN", "-o"]
    Path("file").write_text("precious")
    Path("folder").mkdir()
    Path("folder/precious").write_text("precious")
    assert "not a folder" in fails(*fit, "file")
    assert "cannot write the model" in fails(*fit, "file/model")
    assert "other files" in fails(*fit, "folder", "--overwrite")
    assert files(here) == ["file", "folder", "folder/precious"]

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "scratch")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert "Permission denied" in fails(*fit, "somewhere")


def test_a_trained_model_is_not_lost_if_its_folder_is(here, shared, monkeypatch):
    save = gentle.KNN.save

    def full(model, folder, overwrite=False):
        if Path(folder).name == "m":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        save(model, folder, overwrite)

    monkeypatch.setattr(gentle.KNN, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(here))
    message = fails("fit", shared / "train.csv", "-t", "y", "-m", "KNN", "-o", "m")
    rescued = re.search(r"the model is in '(.*)'", message).group(1)
    assert gentle.load(rescued).n_features_in_ == 2


def test_damaged_models(here, shared):
    new = shared / "new.csv"
    assert "no folder 'nowhere'" in fails("predict", "nowhere", new)
    Path("m").mkdir()
    assert "holds no model" in fails("predict", "m", new)
    for name in ("model.json", "weights.safetensors"):
        Path("m", name).write_bytes((shared / "knn" / name).read_bytes())
    Path("m/weights.safetensors").write_bytes(b"short")
    assert "checksum" in fails("sample", "m", new, "--out", "d.csv")
    Path("m/model.json").write_text("{")
    assert "damaged" in fails("evaluate", "m", new, "-t", "y")
    assert "d.csv" not in os.listdir()


@pytest.mark.parametrize("levels", ["5,95", "a", "", ".5,.5", "nan"])
def test_wrong_quantile_levels(shared, levels):
    command = ["predict", shared / "knn", shared / "new.csv", "--quantiles", levels]
    assert ".05,.5,.95" in fails(*command, code=2)


def test_outputs_are_replaced_only_on_request_and_only_when_complete(here, shared, monkeypatch):
    commands = {
        "sample": ["sample", shared / "knn", shared / "new.csv", "-n", 2],
        "predict": ["predict", shared / "knn", shared / "new.csv"],
        "evaluate": ["evaluate", shared / "knn", shared / "new.csv", "-t", "y"],
        "simulate": ["simulate", "tanh-plus-gamma", "-n", 5],
    }
    Path("o.csv").write_text("precious")
    for command in commands.values():
        assert "--overwrite" in fails(*command, "--out", "o.csv")
        assert "does not exist" in fails(*command, "--out", "nowhere/o.csv")
        assert "has to end in" in fails(*command, "--out", "o.txt")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "to_csv", full)
        for command in commands.values():
            message = fails(*command, "--out", "o.csv", "--overwrite")
            assert message.endswith("No space left on device: 'o.csv'")
    assert files(here) == ["o.csv"]
    assert Path("o.csv").read_text() == "precious"
    for command in commands.values():
        run(*command, "--out", "o.csv", "--overwrite")
        assert Path("o.csv").read_text() != "precious"
        Path("o.csv").write_text("precious")


def test_a_linked_output_stays_a_link(here, shared):
    Path("elsewhere").mkdir()
    Path("o.csv").symlink_to(Path("elsewhere/real.csv"))
    run("predict", shared / "knn", shared / "new.csv", "--out", "o.csv")
    assert Path("o.csv").is_symlink()
    assert len(pd.read_csv("elsewhere/real.csv")) == 40


def test_an_interruption_leaves_everything_as_it_was(here, shared, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    Path("d.parquet").write_text("precious")
    monkeypatch.setattr(gentle.KNN, "_conditional", interrupted)
    sample = ["sample", shared / "knn", shared / "new.csv", "-o", "d.parquet", "--overwrite"]
    assert run(*sample, code=130).stderr.startswith("Interrupted")
    monkeypatch.setattr(gentle.KNN, "_fit", interrupted)
    run("fit", shared / "train.csv", "-t", "y", "-o", "m", "-m", "KNN", code=130)
    assert files(here) == ["d.parquet"]
    assert Path("d.parquet").read_text() == "precious"


def test_unforeseen_errors_point_to_the_traceback(here, shared, monkeypatch):
    def broken(*_, **__):
        raise KeyError("oops")

    monkeypatch.setattr(gentle.KNN, "_fit", broken)
    fit = ["fit", shared / "train.csv", "-t", "y", "-o", "m", "-m", "KNN"]
    assert "gentle --traceback" in fails(*fit)
    result = CliRunner().invoke(app, ["--traceback", *map(str, fit)])
    assert isinstance(result.exception, KeyError)


def test_warnings_are_one_tidy_line(here):
    table().assign(c=1.0).to_csv("t.csv")  # with nameless row numbers
    text = run("fit", "t.csv", "-t", "y", "-o", "m", "-m", "KNN").stderr
    warnings = [line for line in text.splitlines() if "arning" in line]
    assert [line[:9] for line in warnings] == ["Warning: ", "Warning: "]
    assert "'Unnamed: 0'" in warnings[0]
    assert "constant column(s) ['c']" in warnings[1]
    assert ".py" not in text


def test_a_reader_that_stops_early_is_no_error(here, shared):
    table(5000).to_csv("t.csv", index=False)
    script = Path(sys.executable).with_name("gentle")
    command = (
        [str(script)]
        if script.exists()
        else [sys.executable, "-c", "from gentle.cli import main; main()"]
    )
    process = subprocess.Popen(
        [*command, "predict", str(shared / "knn"), "t.csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout.readline() == b"row,mean,q0.05,q0.5,q0.95\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141


def people(seed=0, n=80):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "town": rng.choice(["Rome", "Oslo", "Bern"], n),
            "member": rng.choice(["True", "False", ""], n),
            "since": pd.Timestamp("2019-03-01") + pd.to_timedelta(rng.integers(0, 1500, n), "D"),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.integers(20, 60, n)),
            "note": rng.choice(["2020-01-01", "soon"], n),
        }
    )
    return frame.assign(y=(frame["town"] == "Rome") + rng.normal(0, 0.1, n))


def test_text_truth_values_dates_and_gaps_are_covariates(here):
    for seed, name in enumerate(["train.csv", "new.csv"]):
        people(seed).to_csv(name, index=False)
    run("fit", "train.csv", "-t", "y", "-o", "m", "-m", "KNN", "--eval", "new.csv", "--seed", 0)
    model = gentle.load("m")
    kinds = [covariate.kind for covariate in model.covariate_encoder_.covariates]
    assert kinds == ["category", "boolean", "date", "number", "category"]
    run("predict", "m", "new.csv", "--out", "p.csv")
    X = people(1).drop(columns="y").replace({"True": True, "False": False, "": None})
    np.testing.assert_allclose(pd.read_csv("p.csv")["mean"], model.predict(X))
    run("sample", "m", "new.csv", "-n", 2, "--out", "d.csv", "--seed", 1)
    np.testing.assert_allclose(pd.read_csv("d.csv")["value"], model.sample(X, 2, 1).ravel())
    assert "CRPS skill" in run("evaluate", "m", "new.csv").stdout
    assert "KNN" in run("compare", "train.csv", "-t", "y", "--models", "KNN", "--workers", 1).stdout
    options = ["--model", "KNN", "--trials", 2, "--workers", 1, "--quiet"]
    run("tune", "train.csv", "-t", "y", "-o", "tuned", *options)
    assert gentle.load("tuned").n_features_in_ == 5
    people(2).assign(age="old").to_csv("bad.csv", index=False)
    assert "column 'age' of X holds 'old'" in fails("predict", "m", "bad.csv")
