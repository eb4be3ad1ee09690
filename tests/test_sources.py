"""Tables in files and pieces: the same model as from a frame, or one that never held all rows."""

import math
import os
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gentle
from gentle import GENTLE, KNN, sources
from gentle.cli.app import app
from gentle.models import larger, lessons
from gentle.models.school import School
from gentle.sources import RandomRows, Source, hashed

QUICK = {"n_steps": 40, "hidden_widths": (8,), "n_trees": 6, "verbose": 0, "random_state": 0}


def table(n=3000, seed=0):
    """Numbers, dates, texts, truth values, gaps and repeated covariates."""
    rng = np.random.default_rng(seed)
    age, town = rng.integers(20, 60, n).astype(float), rng.choice(["Rome", "Oslo", "Bern"], n)
    frame = pd.DataFrame({"age": age, "town": town, "member": rng.random(n) < 0.3})
    frame["since"] = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), "D")
    frame["y"] = age / 10 + (town == "Rome") + rng.normal(size=n)
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "town"] = None
    frame["w"] = rng.integers(0, 4, n).astype(float)
    return frame


def law(n, seed):
    """Y = 2x + (1 + x)·N(0, 1) on (0, 1), and its quantiles at a given x."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    return pd.DataFrame({"x": x, "other": rng.random(n), "y": 2 * x + (1 + x) * rng.normal(size=n)})


def written(frame, folder, n_files=3):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[part].to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder


def in_pieces(frame, size):
    return [frame.iloc[first : first + size] for first in range(0, len(frame), size)]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Tables of more than 6,000 cells are not read whole; scratch files are in a known folder."""
    monkeypatch.setattr(larger, "MAX_CELLS", 6000)
    monkeypatch.setattr(larger, "SAMPLE_CELLS", 6000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return scratch


# What fits into memory


FORMS = {
    "frame": lambda frame, folder: frame,
    "folder": lambda frame, folder: str(written(frame, folder)),
    "files": lambda frame, folder: sorted(written(frame, folder).iterdir()),
    "frames": lambda frame, folder: in_pieces(frame, 99),
    "other order": lambda frame, folder: [frame[:90], frame[90:][list(frame.columns[::-1])]],
    "function": lambda frame, folder: lambda: iter(in_pieces(frame, 77)),
}


@pytest.mark.parametrize(
    ("model", "form"),
    [*((KNN(n_neighbors=9), form) for form in FORMS), (GENTLE(**QUICK), "folder")],
)
def test_a_source_gives_the_model_of_the_frame(model, form, tmp_path):
    frame = table(300)
    X, y = frame[["age", "town", "member", "since"]], frame["y"]
    expected = model.fit(X, y, frame["w"]).predict_quantiles(X, [0.1, 0.9])
    model.fit(FORMS[form](frame, tmp_path / "files"), "y", "w")
    assert model.response_name_ == "y"
    assert list(model.feature_names_in_) == list(X.columns)
    assert np.array_equal(model.predict_quantiles(X, [0.1, 0.9]), expected)
    model.fit(FORMS[form](frame[:100], tmp_path / "others"), "y", "w")
    assert not np.array_equal(model.predict_quantiles(X, [0.1, 0.9]), expected)


def test_long_pieces_are_cut(monkeypatch):
    monkeypatch.setattr(sources, "ROWS_AT_ONCE", 100)
    frame = table(250)
    found = list(Source.of([frame.iloc[:0], frame]).pieces())
    assert [len(piece) for piece in found] == [100, 100, 50]
    assert pd.concat(found, ignore_index=True).equals(frame)


# What does not


def test_the_sample_is_uniform_and_the_same_for_all_pieces():
    n, size = 20_000, 2000
    drawn = []
    for step in (n, 1000, 333):
        sample = RandomRows(size)
        for first in range(0, n, step):
            number = np.arange(first, min(first + step, n))
            sample.add(number, pd.DataFrame({"row": number}))
        drawn.append(sample.frame()["row"].tolist())
    assert drawn[0] == drawn[1] == drawn[2] == sorted(drawn[0])
    assert len(set(drawn[0])) == size
    counts = np.bincount(np.array(drawn[0]) * 20 // n)  # χ² of 19 degrees of freedom
    expected, spared = size / 20, 1 - size / n
    assert (
        (counts - expected) ** 2 / expected / spared
    ).sum() < 43.8  # exceeded once in a thousand
    parity = np.mean(np.array(drawn[0]) % 2)
    assert abs(parity - 0.5) < 4 * math.sqrt(0.25 * spared / size)


def test_how_often_each_row_is_drawn():
    """Over many tables, whose rows are numbered elsewhere, every place is drawn equally often."""
    keys = hashed(np.arange(500 * 40)).reshape(500, 40)
    drawn = np.argsort(keys, axis=1)[:, :10]
    counts = np.bincount(drawn.ravel(), minlength=40)
    assert ((counts - 125) ** 2 / 125 / 0.75).sum() < 72.1  # χ² of 39, once in a thousand


def test_a_large_table_gives_the_model_that_memory_would(small):
    frame = law(6000, seed=0)
    settings = QUICK | {"n_steps": 400, "hidden_widths": (32,)}
    whole = GENTLE(**settings).fit(frame[["x", "other"]], frame["y"])
    pieces = GENTLE(**settings).fit(in_pieces(frame, 999), "y")
    assert pieces.training_.n_sampled == 3000
    assert pieces.training_.n_rows == pieces.training_.n_used == 6000
    assert (pieces.training_.low, pieces.training_.high) == (frame["y"].min(), frame["y"].max())
    x, u = np.linspace(0.05, 0.95, 19), np.linspace(0.05, 0.95, 19)
    at = pd.DataFrame({"x": x, "other": 0.5})
    normal = np.array([float(v) for v in _normal_quantiles(u)])
    truth = 2 * x[:, None] + (1 + x[:, None]) * normal
    error = [np.abs(one.predict_quantiles(at, u) - truth).mean() for one in (whole, pieces)]
    assert error[1] < 1.5 * error[0] + 0.02
    assert error[1] < 0.15  # the spread of the responses is 1.5


def _normal_quantiles(u):
    from statistics import NormalDist

    return [NormalDist().inv_cdf(level) for level in u]


def test_the_model_depends_on_the_rows_and_the_seed_only(small, tmp_path):
    frame = table()
    X = frame.drop(columns=["y", "w"]).head(50)
    forms = [
        in_pieces(frame, 3000),
        in_pieces(frame, 170),
        lambda: iter(in_pieces(frame, 501)),
        written(frame, tmp_path / "files"),
    ]
    state = np.random.get_state()[1].tobytes()  # noqa: NPY002
    answers = [GENTLE(**QUICK).fit(one, "y", "w").predict_quantiles(X, [0.1, 0.9]) for one in forms]
    assert all(np.array_equal(one, answers[0]) for one in answers[1:])
    assert np.random.get_state()[1].tobytes() == state  # noqa: NPY002
    other = GENTLE(**QUICK | {"random_state": 1}).fit(forms[0], "y", "w")
    assert not np.array_equal(other.predict_quantiles(X, [0.1, 0.9]), answers[0])
    assert os.listdir(small) == []


def test_weights_are_heeded(small):
    """Of two groups of rows with other responses, the one of weight 0 might not be there."""
    frame = law(5000, seed=1)
    other = frame.assign(y=frame["y"] + 100, w=0.0)
    both = pd.concat([frame.assign(w=1.0), other]).sample(frac=1, random_state=0)
    model = GENTLE(**QUICK).fit(in_pieces(both, 1000), "y", "w")
    assert (model.training_.n_rows, model.training_.n_used) == (10_000, 5000)
    assert model.training_.high == frame["y"].max()
    assert model.predict(frame[["x", "other"]]).max() < 20
    heavier = both.assign(w=np.where(both["w"] == 0, 1.0, 9.0))
    mean = GENTLE(**QUICK).fit(in_pieces(heavier, 1000), "y", "w").predict(frame[["x", "other"]])
    assert abs(mean.mean() - (frame["y"].mean() + 10)) < 3
    with pytest.raises(ValueError, match="zero for every row"):
        GENTLE(**QUICK).fit(in_pieces(other, 1000), "y", "w")


def test_every_kind_of_column_arrives(small):
    frame = table(3000).drop(columns="w")
    frame["y"] += 5 * (frame["town"] == "Rome")
    model = GENTLE(**QUICK | {"n_steps": 300}).fit(in_pieces(frame, 1000), "y")
    kinds = [covariate.kind for covariate in model.covariate_encoder_.covariates]
    assert kinds == ["number", "category", "boolean", "date"]
    ages = model.covariate_encoder_.covariates[0]
    assert (ages.low, ages.high) == (frame["age"].min(), frame["age"].max())
    X = frame.drop(columns="y")
    mean = pd.Series(model.predict(X)).groupby(frame["town"].to_numpy()).mean()
    assert mean["Rome"] - mean["Oslo"] > 4
    saved = model.predict(X[:5])
    model.save(small / "model")
    loaded = gentle.load(small / "model")
    assert np.array_equal(loaded.predict(X[:5]), saved)
    assert loaded.training_ == model.training_


def test_rows_with_a_held_out_covariate_are_not_learned_from(small, monkeypatch):
    """Also those beyond the sample: a covariate is held out with all its responses."""
    frame = law(4000, seed=2).round({"x": 2, "other": 1})  # about 1,100 covariates
    school, content = _what_networks_see(frame, monkeypatch)
    encoded, weight = content[:, : school.lessons.n_inputs], content[:, -school.lessons.n_folds :]
    for number, fold in enumerate(school.folds):
        unseen = {row.tobytes() for row in school.inputs.encode(fold.unseen.x).astype(np.float32)}
        held_out = np.array([row.tobytes() in unseen for row in encoded])
        assert 0 < held_out.sum() < len(frame) / 4
        assert held_out.sum() > len(fold.unseen.y)  # some are not of the sample
        assert np.array_equal(weight[:, number] == 0, held_out)
    assert len(content) == len(frame)  # every row once, in another order
    z = np.sort(content[:, school.lessons.n_inputs])
    low, _ = school.coordinates[0].interval(frame["y"].to_numpy())
    assert np.array_equal(z, np.sort(low.astype(np.float32)))


def _what_networks_see(frame, monkeypatch):
    """The networks of a fit, untrained, and the rows in their file."""
    seen = []

    def read(school):
        content = np.empty((school.lessons.n, school.lessons.width), np.float32)
        school.lessons._read(0, content)
        seen.append((school, content))
        return [{"epoch": 1.0}]

    monkeypatch.setattr(School, "train", read)
    GENTLE(**QUICK).fit(in_pieces(frame, 1000), "y")
    return seen[0]


def test_rows_of_a_sorted_table_are_mixed(small, monkeypatch):
    frame = law(8000, seed=3).sort_values("y")
    monkeypatch.setattr(lessons, "_REGION", 2**15)  # many regions
    school, content = _what_networks_see(frame, monkeypatch)
    z = content[:, school.lessons.n_inputs]
    halves = np.abs(z.reshape(80, 100).mean(axis=1) - z.mean()) / z.std() * 10
    assert halves.max() < 4.5  # means of blocks of a hundred, in standard errors
    assert abs(np.corrcoef(z[1:], z[:-1])[0, 1]) < 4 / math.sqrt(len(z))


def test_memory_stays_bounded(tmp_path, monkeypatch):
    """A table of 300,000 rows: not a fourth of what the encoded rows alone would take."""
    import tracemalloc

    monkeypatch.setattr(larger, "MAX_CELLS", 50_000)
    monkeypatch.setattr(larger, "SAMPLE_CELLS", 20_000)
    monkeypatch.setattr(sources, "ROWS_AT_ONCE", 4096)
    monkeypatch.setattr(lessons, "_REGION", 2**20)
    step, n_steps = School.step, []

    def some_steps(school, positions):
        n_steps.append(1)
        return step(school, positions) if len(n_steps) < 5 else {"loss": 1.0}

    monkeypatch.setattr(School, "step", some_steps)
    monkeypatch.setattr(School, "finished", lambda school: True)
    rng, n = np.random.default_rng(0), 300_000
    frame = pd.DataFrame({f"x{i}": rng.random(n) for i in range(10)}).assign(y=rng.random(n))
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=10_000)
    model = GENTLE(**QUICK).fit(frame[:100], "y")  # imports are not what is measured
    del frame
    tracemalloc.start()
    model.fit(tmp_path / "t.parquet", "y")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.training_.n_rows == n
    assert peak < n * 100 * 4 / 4


def test_bounds_are_those_of_all_rows(small):
    """A single negative response is enough for there to be no bound at 0."""
    frame = law(5000, seed=4)
    frame["y"] = frame["y"].abs()
    assert GENTLE(**QUICK).fit([frame], "y").summary().count("at least 0") == 1
    outside = np.setdiff1d(np.arange(5000), np.argsort(hashed(np.arange(5000)))[:3000])[0]
    frame.loc[outside, "y"] = -1.0
    pieces = in_pieces(frame, 1000)
    assert "at least 0" not in GENTLE(**QUICK).fit(pieces, "y").summary()
    with pytest.raises(ValueError, match=r"responses lie between -1 and .* declared bounds"):
        GENTLE(**QUICK, bounds=(0, None)).fit(pieces, "y")


def test_the_summary_says_how_far_ranks_are_off(small):
    model = GENTLE(**QUICK).fit(in_pieces(law(5000, seed=5), 1000), "y")
    error = math.sqrt(math.log(40) / (2 * 3000))
    assert model.training_.rank_error == pytest.approx(error)
    assert "5,000 rows; 3,000 of them" in model.summary()
    assert f"at most {100 * error:.2g} % off" in model.summary()


def test_an_eval_set_is_in_memory(small):
    frame, held_out = law(5000, seed=6), law(300, seed=7)
    eval_set = (held_out[["x", "other"]], held_out["y"])
    model = GENTLE(**QUICK).fit(in_pieces(frame, 1000), "y", eval_set=eval_set)
    assert 0 < model.validation_skill_ < 1


@pytest.mark.parametrize("moment", ["encode", "step"])
def test_nothing_is_left_on_disk_whatever_happens(moment, small, monkeypatch):
    made, make = [], tempfile.TemporaryFile

    def interrupted(*args, **kwargs):
        assert not made[0].closed
        assert made[0].tell() > 0 or moment == "encode"
        assert os.listdir(small) == []  # it has no name, so that it goes even if power does
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: made.append(make()) or made[-1])
    target = (lessons.OnDisk, "_encoded") if moment == "encode" else (School, "step")
    monkeypatch.setattr(*target, interrupted)
    with pytest.raises(KeyboardInterrupt):
        GENTLE(**QUICK).fit(in_pieces(law(5000, seed=8), 1000), "y")
    assert made[0].closed


def test_an_interrupted_fit_goes_on_where_it_was(small, tmp_path, monkeypatch):
    pieces = in_pieces(law(5000, seed=9), 1000)
    at = law(20, seed=10)[["x", "other"]]
    settings = QUICK | {"n_steps": 240}  # some epochs
    step, n_steps, fatal = School.step, [], None

    def counted(self, positions):
        if len(n_steps) == fatal:
            raise KeyboardInterrupt
        n_steps.append(1)
        return step(self, positions)

    monkeypatch.setattr(School, "step", counted)
    expected = GENTLE(**settings).fit(pieces, "y").predict(at)
    whole = len(n_steps)
    fatal = whole + 3 * whole // 4
    with pytest.raises(KeyboardInterrupt):
        GENTLE(**settings).fit(pieces, "y", checkpoint_dir=tmp_path / "kept")
    first, fatal = len(n_steps), None
    found = GENTLE(**settings).fit(pieces, "y", checkpoint_dir=tmp_path / "kept")
    assert np.array_equal(found.predict(at), expected)
    assert len(n_steps) - first < whole  # not from the start
    outside = np.argsort(hashed(np.arange(5000)))[-1]  # a row beyond the sample
    pieces[outside // 1000].loc[outside, "other"] += 0.1
    with pytest.raises(ValueError, match="the data are others"):
        GENTLE(**settings).fit(pieces, "y", checkpoint_dir=tmp_path / "kept")


# Errors


def test_only_the_default_gentle_learns_from_pieces(small):
    pieces = in_pieces(law(5000, seed=0), 1000)
    for model in (KNN(), GENTLE.from_paper("ecm", verbose=0)):
        with pytest.raises(ValueError, match=r"more than 6,000 cells.*sample of its rows"):
            model.fit(pieces, "y")
    with pytest.raises(ValueError, match="leave keep_data at False"):
        GENTLE(**QUICK).fit(pieces, "y", keep_data=True)
    with pytest.raises(ValueError, match="leave reg_weight at 0"):
        GENTLE(**QUICK, reg_weight=0.1).fit(pieces, "y")


def test_what_is_wrong_is_said(tmp_path):
    frame, model = law(50, seed=0), KNN()
    cases = [
        (frame, "z", None, r"y is 'z', but the table has the columns 'x', 'other', 'y'"),
        (frame, "y", "w", r"sample_weight is 'w', but"),
        (frame, "y", np.ones(50), "must be sample_weight"),
        (frame[["y"]], "y", None, "no column that could be a covariate beside 'y'"),
        (iter([frame]), "y", None, "read once only, but the rows are needed twice"),
        ([], "y", None, "list of length 0"),
        ([frame.iloc[:0]], "y", None, "the table has no rows"),
        (lambda: iter([]), "y", None, "the table has no rows"),
        ([frame, frame.rename(columns={"x": "v"})], "y", None, r"row 50 .* missing: \['x'\]"),
        ([frame, 5], "y", None, "must be a frame, not int"),
        (17, "y", None, "it is int"),
        (tmp_path / "nowhere.parquet", "y", None, "there is no file"),
        (tmp_path, "y", None, "holds no Parquet files"),
        (tmp_path / "t.parquet", frame["y"], None, "name the column of the responses"),
        (lambda: iter([frame]), frame["y"], None, "X is a function, not a table"),
    ]
    for source, y, weight, message in cases:
        with pytest.raises(ValueError, match=message):
            model.fit(source, y, weight)
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="no Parquet file by its name"):
        model.fit(tmp_path / "t.csv", "y")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.parquet").write_bytes(b"PAR1 or so")
    with pytest.raises(ValueError, match="damaged or not a Parquet file"):
        model.fit(tmp_path / "bad", "y")


def test_files_must_have_the_same_columns(tmp_path):
    frame, folder = law(60, seed=0), tmp_path / "files"
    written(frame, folder)
    frame.astype({"x": str}).to_parquet(folder / "zz.parquet")
    with pytest.raises(ValueError, match=r"zz.parquet' has other columns .*'x', 'double'"):
        KNN().fit(folder, "y")


def test_a_table_must_not_change_between_the_passes(small):
    frames, lock = iter([law(5000, 0), law(4000, 0)]), threading.Lock()

    def read():
        with lock:
            return iter([next(frames)])

    with pytest.raises(ValueError, match="5,000 rows when it was read first, but 4,000"):
        GENTLE(**QUICK).fit(read, "y")
    assert os.listdir(small) == []


def test_a_bad_row_is_named(small):
    pieces = in_pieces(law(5000, seed=0), 1000)
    pieces[3] = pieces[3].assign(y=np.where(np.arange(1000) == 7, np.nan, 1.0))
    with pytest.raises(ValueError, match=r"rows from 3000 on, counted anew: .* in row 7"):
        GENTLE(**QUICK).fit(pieces, "y")


def test_a_full_disk_is_known_before(small, monkeypatch):
    monkeypatch.setattr(lessons.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="Make room, or choose another folder"):
        GENTLE(**QUICK).fit(in_pieces(law(5000, seed=0), 1000), "y")


# The command line


def test_the_command_reads_large_files_in_pieces(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = law(4000, seed=0).assign(row=np.arange(4000))
    frame.to_parquet("t.parquet")
    written(frame.head(300), Path("files"))
    options = "-t y -o m --seed 0 --drop row --set n_steps=40 --set hidden_widths=(8,)"
    result = CliRunner().invoke(app, ["fit", "t.parquet", *options.split()])
    assert result.exit_code == 0, result.output
    assert "4,000 rows in 2 columns, read in pieces." in result.stderr
    model = gentle.load("m")
    assert list(model.feature_names_in_) == ["x", "other"]
    assert model.training_.n_sampled == 3000  # 6,000 cells of covariates
    options = options.replace("-o m", "-o k").split("--set")[0]
    result = CliRunner().invoke(app, ["fit", "files", *options.split(), "-m", "KNN"])
    assert result.exit_code == 0, result.output
    assert gentle.load("k").training_.n_rows == 300
    result = CliRunner().invoke(app, ["fit", "t.parquet", "-t", "z", "-o", "n"])
    assert result.exit_code
    assert "has no column 'z'" in result.stderr
    assert sorted(os.listdir()) == ["files", "k", "m", "scratch", "t.parquet"]
