import os
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gentle
from gentle import GENTLE, KNN, Marginal
from gentle.cli import answering
from gentle.cli.app import app
from gentle.diagnostics import OutOfSupportWarning
from gentle.streaming import answers, predict_to_parquet, sample_to_parquet


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "town": rng.choice(["Rome", "Oslo", "Bern"], n),
            "grade": pd.Categorical(rng.choice(["a", "b"], n), ["a", "b"], ordered=True),
            "children": pd.array(rng.integers(0, 3, n), "Int64"),
            "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 999, n), "D"),
        }
    )
    frame.loc[rng.random(n) < 0.1, ["age", "town", "children"]] = None
    return frame


def fitted(name="KNN"):
    X = people(200)
    y = X["age"].fillna(40).to_numpy() + np.random.default_rng(1).normal(size=200)
    if name == "KNN":
        return KNN(n_neighbors=7).fit(X, y)
    settings = {"n_steps": 10, "n_trees": 4, "hidden_widths": (8,), "verbose": 0}
    return GENTLE(random_state=0, **settings).fit(X, y)


@pytest.fixture(scope="module", params=["KNN", "GENTLE"])
def model(request):
    return fitted(request.param)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("chunk_rows", [1, 17, 64, 1000])
def test_streamed_draws_are_those_of_one_call_bit_for_bit(model, here, chunk_rows):
    X = people(150, seed=2)
    assert sample_to_parquet(model, X, "d.parquet", 5, random_state=3, chunk_rows=chunk_rows) == 150
    found = pd.read_parquet("d.parquet")
    assert list(found) == ["row", "draw", "value"]
    assert found["row"].tolist() == np.repeat(np.arange(150), 5).tolist()
    assert found["draw"].tolist() == np.tile(np.arange(5), 150).tolist()
    np.testing.assert_array_equal(found["value"], model.sample(X, 5, random_state=3).ravel())
    assert os.listdir() == ["d.parquet"]


def test_all_sources_give_the_same_draws(here):
    model, X = fitted(), people(150, seed=2)
    X = X.assign(unrelated=1.0)[["since", "unrelated", "town", "age", "grade", "children"]]
    X.to_parquet("x.parquet", row_group_size=40)
    X.to_csv("x.csv", index=False)
    X.index = np.linspace(0, 1, 150)  # not what counts
    columns = list(model.feature_names_in_)
    expected = model.sample(X[columns], 3, random_state=0)
    frames = pd.read_csv("x.csv", usecols=columns, chunksize=64)
    sources = {
        "frame": X[columns],
        "file": "x.parquet",
        "frames": (frame.assign(since=pd.to_datetime(frame["since"]))[columns] for frame in frames),
    }
    for name, source in sources.items():
        path = f"{name}.parquet"
        sample_to_parquet(model, source, path, 3, random_state=0, chunk_rows=32)
        np.testing.assert_array_equal(pd.read_parquet(path)["value"], expected.ravel(), name)


def test_lists_and_single_precision(model, here):
    X = people(50, seed=2)
    draws = model.sample(X, 4, random_state=0)
    sample_to_parquet(model, X, "l.parquet", 4, random_state=0, layout="list", chunk_rows=20)
    lists = pd.read_parquet("l.parquet")
    assert list(lists) == ["row", "draws"]
    np.testing.assert_array_equal(np.stack(lists["draws"]), draws)
    sample_to_parquet(model, X, "s.parquet", 4, random_state=0, dtype="float32")
    single = pd.read_parquet("s.parquet")["value"]
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, draws.astype(np.float32).ravel())


def test_arrays_of_models_without_names(here):
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = Marginal().fit(X, X[:, 0])
    sample_to_parquet(model, X, "d.parquet", 2, random_state=0, chunk_rows=9)
    expected = model.sample(X, 2, random_state=0).ravel()
    np.testing.assert_array_equal(pd.read_parquet("d.parquet")["value"], expected)
    pd.DataFrame(X, columns=["a", "b"]).to_parquet("x.parquet")
    sample_to_parquet(model, "x.parquet", "e.parquet", 2, random_state=0, chunk_rows=9)
    np.testing.assert_array_equal(pd.read_parquet("e.parquet")["value"], expected)


def test_predictions_are_those_of_one_call(model, here):
    X = people(150, seed=2)
    X.to_parquet("x.parquet")
    assert predict_to_parquet(model, "x.parquet", "p.parquet", [0.1, 0.5], chunk_rows=40) == 150
    found = pd.read_parquet("p.parquet")
    assert list(found) == ["row", "mean", "q0.1", "q0.5"]
    np.testing.assert_array_equal(found["row"], np.arange(150))
    np.testing.assert_array_equal(found["mean"], model.predict(X))
    np.testing.assert_array_equal(found["q0.1"], model.predict_quantiles(X, 0.1))


def test_nothing_is_left_half_written(here):
    model = fitted()

    def broken():
        yield people(50)
        raise RuntimeError("the line went dead")

    with pytest.raises(RuntimeError, match="the line went dead"):
        sample_to_parquet(model, broken(), "d.parquet", 3)
    assert os.listdir() == []
    sample_to_parquet(model, people(5), "d.parquet", 3, random_state=0)
    before = (here / "d.parquet").read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        sample_to_parquet(model, people(5), "d.parquet", 3)
    with pytest.raises(RuntimeError, match="the line went dead"):
        sample_to_parquet(model, broken(), "d.parquet", 3, overwrite=True)
    assert (here / "d.parquet").read_bytes() == before
    sample_to_parquet(model, people(5), "d.parquet", 4, overwrite=True)
    assert len(pd.read_parquet("d.parquet")) == 20
    with pytest.raises(ValueError, match="X has no rows"):
        sample_to_parquet(model, iter([]), "e.parquet")
    assert os.listdir() == ["d.parquet"]


def test_bad_rows_and_columns_are_named(here):
    model, X = fitted(), people(100)
    X.loc[70, "age"] = np.inf
    with pytest.raises(ValueError, match=r"rows from 64 on, counted anew: .*in row 6"):
        sample_to_parquet(model, X, "d.parquet", 3, chunk_rows=64)
    people(9).drop(columns="town").to_parquet("x.parquet")
    with pytest.raises(ValueError, match=r"'x\.parquet' has no column 'town'; its columns are"):
        sample_to_parquet(model, "x.parquet", "d.parquet", 3)
    for change, message in (
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"layout": "wide"}, "layout must be 'long' or 'list'"),
        ({"dtype": "float16"}, "dtype must be"),
    ):
        with pytest.raises(ValueError, match=message):
            sample_to_parquet(model, people(9), "d.parquet", **change)
    assert os.listdir() == ["x.parquet"]


def test_strangers_are_counted_once_over_all_pieces(here):
    model, X = fitted(), people(100, seed=2)
    X.loc[[3, 50, 99], "age"] = 900.0
    with pytest.warns(OutOfSupportWarning, match="3 of 100 rows .* column 'age'") as caught:
        sample_to_parquet(model, X, "d.parquet", 3, chunk_rows=10)
    assert len([one for one in caught if one.category is OutOfSupportWarning]) == 1


def test_memory_does_not_grow_with_the_number_of_rows(here):
    model = Marginal().fit(np.zeros((50, 1)) + np.arange(50)[:, None], np.arange(50.0))

    def peak(n_rows):
        frames = (np.full((1000, 1), 7.0) for _ in range(n_rows // 1000))
        tracemalloc.start()
        sample_to_parquet(
            model, frames, "d.parquet", 50, random_state=0, chunk_rows=1000, overwrite=True
        )
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1000)  # imports
    assert peak(40_000) < 1.2 * peak(4000)


def test_answers_begin_where_the_last_piece_ended():
    model = fitted()
    pieces = [(first, len(dist)) for first, dist in answers(model, iter([people(5), people(4)]), 3)]
    assert pieces == [(0, 3), (3, 2), (5, 3), (8, 1)]


@pytest.mark.parametrize("out", ["d.parquet", "d.csv"])
def test_the_command_line_reads_long_parquet_files_piece_by_piece(here, monkeypatch, out):
    model, X = fitted(), people(150, seed=2)
    model.save("m")
    X.to_parquet("x.parquet", row_group_size=33)
    monkeypatch.setattr(answering, "_ROWS_READ_WHOLE", 100)
    monkeypatch.setattr(answering, "_VALUES_AT_ONCE", 70)
    monkeypatch.setattr(answering, "_ROWS_AT_ONCE", 11)
    monkeypatch.setattr(answering, "read_table", None)  # would read all of it
    arguments = ["sample", "m", "x.parquet", "-n", "3", "--seed", "4", "-o", out]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "3 draws for each of 150 rows" in result.output
    read = pd.read_parquet if out.endswith("parquet") else pd.read_csv
    np.testing.assert_allclose(read(out)["value"], model.sample(X, 3, 4).ravel(), rtol=1e-15)
    result = CliRunner().invoke(app, ["predict", "m", "x.parquet", "-o", "p.parquet"])
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(pd.read_parquet("p.parquet")["mean"], model.predict(X))


def test_row_groups_can_be_read_one_by_one(here):
    sample_to_parquet(fitted(), people(100), "d.parquet", 3, chunk_rows=25)
    assert pq.ParquetFile("d.parquet").num_row_groups == 4
    assert gentle.streaming.count_rows("d.parquet") == 300
