"""Whatever file is passed, users see a result or one line that says what is wrong with it."""

import gzip
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gentle.cli import app

LEARN = {
    "fit": ["-t", "y", "-o", "new", "--overwrite", "-m", "KNN", "--seed", "1"],
    "compare": ["-t", "y", "--models", "KNN,Marginal", "--folds", "2", "--workers", "1"],
    "tune": ["-t", "y", "-o", "new", "--overwrite", "-m", "KNN", "--trials", "1", "--workers", "1"],
}
ANSWER = {"sample": ["-n", "2"], "predict": [], "evaluate": []}


def table(n=40):
    rng = np.random.default_rng(0)
    x1, x2 = rng.uniform(-1, 1, n).round(3), rng.integers(0, 3, n)
    return pd.DataFrame({"x1": x1, "x2": x2, "y": (x1 + x2 + rng.normal(0, 0.1, n)).round(3)})


GOOD = table().to_csv(index=False)
PARQUET = table().to_parquet()
LISTS = table().assign(x1=[[1, 2]] * 40).to_parquet()
JUNK = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8).tobytes()


def spoilt(**columns):
    return table().assign(**columns).to_csv(index=False)


def without(*columns):
    return table().drop(columns=list(columns)).to_csv(index=False)


# A file, its content, and the complaint of a command that learns and of one that answers;
# None where there is nothing to complain about.
FILES = {
    "latin.csv": (GOOD.replace("x1", "größe").encode("latin-1"), "not text in UTF-8", ...),
    "utf16.csv": (GOOD.encode("utf-16"), "if it is in UTF-16, save it in UTF-8", ...),
    "utf16-plain.csv": (GOOD.encode("utf-16-le"), "holds zero bytes", ...),
    "zeros.csv": (bytes(1000), "holds zero bytes", ...),
    "nul.csv": (GOOD.replace("1", "\0"), "holds zero bytes", ...),
    "junk.csv": (JUNK.replace(b"\0", b"\xff"), "not text in UTF-8", ...),
    "bytes.csv": (JUNK, "so", ...),
    "parquet.csv": (PARQUET, "so it is not text", ...),
    "long.csv": (GOOD + "1,2,3,4\n", "Expected 3 fields in line 42, saw 4", ...),
    "longer.csv": (GOOD.replace("\n", "\n1,2,3,4,5\n", 1), "more fields than its header", ...),
    "short.csv": (GOOD + "1,2\n", "nothing stands in row 40", {"evaluate": ...}),
    "quote.csv": (GOOD + '1,"2,3\n' + GOOD, "EOF inside string", ...),
    "empty.csv": ("", "is empty", ...),
    "blank.csv": ("\n\n \n", "is empty", ...),
    "header.csv": ("x1,x2,y\n", "no rows below its header", ...),
    "same.csv": (GOOD.replace("x2", "x1", 1), "more than one column named 'x1'", ...),
    "targets.csv": (GOOD.replace("x2", "y", 1), "more than one column named 'y'", ...),
    "semicolon.csv": (GOOD.replace(",", ";"), "something else than commas", ...),
    "tab.csv": (GOOD.replace(",", "\t"), "something else than commas", ...),
    "bar.csv": (GOOD.replace(",", "|"), "something else than commas", ...),
    "bom.csv": (GOOD.encode("utf-8-sig"), None, None),
    "crlf.csv": (GOOD.replace("\n", "\r\n"), None, None),
    "cr.csv": (GOOD.replace("\n", "\r"), None, None),
    "unfinished.csv": (GOOD.rstrip(), None, None),
    "upper.CSV": (GOOD, None, None),
    "missing.csv": (spoilt(y=np.nan), "nothing stands in row 0", {"evaluate": ...}),
    "text.csv": (spoilt(y="much"), "'much' stands in row 0", {"evaluate": ...}),
    "infinite.csv": (spoilt(y=np.inf), "'inf' stands in row 0", {"evaluate": ...}),
    "dates.csv": (spoilt(y="2020-01-01"), "must hold numbers", {"evaluate": ...}),
    "far.csv": (spoilt(x1=np.inf), "X contains infinity: column 'x1'", ...),
    "words.csv": (spoilt(x1="31/02/2020"), None, "in fit() it held numbers"),
    "huge.csv": (GOOD + f"1,{'9' * 300_000},3\n", None, "column 'x2' of X holds '999"),
    "field.csv": (GOOD + f"1,{'a' * 300_000},3\n", None, "column 'x2' of X holds 'aaa"),
    "name.csv": (GOOD.replace("x1", "x" * 100_000), None, "has no column 'x1'"),
    "names.csv": (GOOD.replace("x1", "x3"), None, "has no column 'x1'"),
    "nameless.csv": (GOOD.replace("x1", ""), None, "has no column 'x1'"),
    "target.csv": (without("x1", "x2"), "no column that could be a cov", "no columns 'x1', 'x2'"),
    "covariates.csv": (without("y"), "has no column 'y'", {"evaluate": ...}),
    "csv.parquet": (GOOD, "damaged or not a Parquet file", ...),
    "empty.parquet": ("", "damaged or not a Parquet file", ...),
    "cut.parquet": (PARQUET[:-100], "damaged or not a Parquet file", ...),
    "torn.parquet": (PARQUET[:200] + PARQUET[300:], "damaged or not a Parquet file", ...),
    "magic.parquet": (b"PAR1" + bytes(99) + b"PAR1", "damaged or not a Parquet file", ...),
    "lists.parquet": (LISTS, "column 'x1' of X cannot be read: it holds a", ...),
    "plain.csv.gz": (GOOD, "damaged or not a gzip file", ...),
    "cut.csv.gz": (gzip.compress(GOOD.encode())[:-20], "damaged or not a gzip file", ...),
    "sheet.xlsx": (GOOD, "does not tell what kind of table", ...),
    "nothing": (GOOD, "does not tell what kind of table", ...),
    "folder.csv": ("folder", "is a folder, but a file is needed", ...),
    "absent.csv": ("absent", "there is no file 'absent.csv'", ...),
}  # fmt: skip


def run(*arguments):
    """Run a command: a result, or one line of complaint, and never a traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, (SystemExit, type(None)))
    assert result.exit_code in (0, 1), result.stderr
    assert "Traceback" not in result.stderr
    if result.exit_code == 1:
        complaint = result.stderr.splitlines()[-1]
        assert complaint.startswith("Error: ")
        assert len(complaint) < 1000
        assert "This should not happen" not in complaint
        return complaint
    return None


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "train.csv").write_text(GOOD)
    run("fit", folder / "train.csv", "-o", folder / "model", "-m", "KNN", "-t", "y", "--seed", 1)
    return folder / "model"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, name):
    content = FILES[name][0]
    if content == "folder":
        (folder / name).mkdir()
    elif content != "absent":
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", sorted(FILES))
def test_malformed_files_are_complained_about_in_one_line(here, fitted, name):
    write(here, name)
    _, when_learning, when_answering = FILES[name]
    for command, options in LEARN.items():
        complaint = run(command, name, *options)
        assert (complaint is None) == (when_learning is None), complaint
        assert when_learning is None or when_learning in complaint
    for command, options in ANSWER.items():
        expected = when_answering
        if isinstance(expected, dict):
            expected = expected.get(command)
        expected = when_learning if expected is ... else expected
        complaint = run(command, fitted, name, *options)
        assert (complaint is None) == (expected is None), complaint
        assert expected is None or expected in complaint


def test_ten_thousand_columns_are_read_and_modelled(here):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.integers(0, 9, (20, 10_000)), columns=[f"c{j}" for j in range(10_000)])
    wide.assign(y=rng.normal(size=20)).to_csv("wide.csv", index=False)
    started = time.perf_counter()
    assert run("fit", "wide.csv", "-t", "y", "-o", "model", "-m", "KNN") is None
    assert run("predict", "model", "wide.csv") is None
    assert "… and 9983 more" in run("fit", "wide.csv", "-t", "z", "-o", "other", "-m", "KNN")
    assert time.perf_counter() - started < 120


@settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_damage_anywhere_in_a_file_is_no_crash(here, fitted, data):
    ending = data.draw(st.sampled_from(["csv", "parquet"]))
    content = bytearray(GOOD.encode() if ending == "csv" else PARQUET)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=20))
    (here / f"damaged.{ending}").write_bytes(content)
    run("fit", f"damaged.{ending}", "-t", "y", "-o", "new", "--overwrite", "-m", "Marginal")
    run("predict", fitted, f"damaged.{ending}")
