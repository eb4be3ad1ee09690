"""Whatever is passed: a result that makes sense, or an error that says what is wrong."""

import datetime as dt
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st

import gentle
from budgets import BUDGETS, OWN, TINY, make

CHEAP = ["Marginal", "KNN", "KernelCDE", "QuantileForest", "QRGMM"]
COSTLY = [name for name in OWN if name not in CHEAP]
TINIER = {
    "QuantileForest": {"n_estimators": 2},
    "BoostedQuantiles": {"n_levels": 3, "max_iter": 2},
    "GENTLE": {"n_steps": 3, "hidden_widths": (4,), "n_trees": 2},
    "CWGAN": {"n_epochs": 1, "n_critic": 1, "hidden_widths": (4,)},
    "WGANGP": {"n_epochs": 1, "n_critic": 1, "hidden_widths": (4,)},
    "MGAN": {"n_epochs": 1, "hidden_widths": (4,)},
    "QRGMM (neural)": {"n_epochs": 1, "hidden_widths": (4,)},
    "QRGMM": {"degree": 1},
    "KernelCDE": {"bandwidth": None},
    "KNN": {"n_neighbors": None},
}
HOMES = [Path(module.__file__).parent for module in (gentle, sklearn)]
EXTREMES = [0.0, -0.0, 1.0, 1e308, -1.7e308, 5e-324, 2.2e-308, 1e-300, 1e150, 1e16, 3.0, 2.5, -7.25]


TEXTS = st.sampled_from(["a", "b", "", "NA", "1", "2.5", "2020-01-01"]) | st.text(max_size=4)
NUMBERS = st.floats(-1e3, 1e3)
SMALL = st.integers(0, 100)
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
SPANS = st.timedeltas(dt.timedelta(days=-(10**4)), dt.timedelta(days=10**4))
ODDITIES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.dates(), MOMENTS, SPANS,
    st.decimals(), st.binary(max_size=3), st.complex_numbers(), st.lists(st.integers(), max_size=2),
    st.tuples(st.integers()), st.sampled_from([pd.NA, pd.NaT, np.float16(2), 10**400, {"a": 1}]),
)  # fmt: skip


def typed(dtype):
    return lambda values: pd.Series(values, dtype=dtype)


def arrow(dtype):
    return typed(pd.ArrowDtype(dtype))


def cast(dtype):
    return lambda values: pd.Series(np.array(values).astype(dtype))


# What a column may be made of, and how. Values are drawn from pools of a few.
KINDS = [
    *[(NUMBERS, pd.Series)] * 4,
    (st.sampled_from([0.0, 1.0, 2.0]), pd.Series),
    (st.floats(), pd.Series),
    (st.sampled_from(EXTREMES), pd.Series),
    (st.sampled_from([1.0, 2.5, np.nan]), pd.Series),
    *[
        (st.integers(0, 9), cast(kind))
        for kind in [
            "f4",
            "f2",
            ">f8",
            ">f4",
            "i1",
            ">i4",
            "i8",
            "u1",
            ">u2",
            "u8",
            "?",
            "g",
            "c16",
        ]
    ],
    *[
        (SMALL | st.none(), typed(kind))
        for kind in ["Int64", "Int8", "UInt16", "Float64", "Float32", "float64", "object"]
    ],
    (st.booleans() | st.none(), typed("boolean")),
    *[(TEXTS | st.none(), typed(kind)) for kind in ["object", "object", "string", "category"]],
    *[
        (
            st.sampled_from(["a", "b", "c", "other"]),
            lambda values, ordered=ordered: pd.Series(
                pd.Categorical(values, ["c", "a", "b", "unused"], ordered)
            ),
        )
        for ordered in (False, True)
    ],
    (SMALL, typed("category")),
    *[
        (
            MOMENTS | st.none(),
            lambda values, unit=unit: pd.Series(np.array(values, "M8[us]").astype(f"M8[{unit}]")),
        )
        for unit in ["s", "ms", "us", "ns"]
    ],
    (
        MOMENTS | st.none(),
        lambda values: pd.Series(pd.to_datetime(values, utc=True)).dt.tz_convert("Asia/Tokyo"),
    ),
    (MOMENTS, lambda values: pd.Series(pd.PeriodIndex(values, freq="M"))),
    (SPANS | st.none(), typed("m8[ns]")),
    *[(kind | st.none(), typed(object)) for kind in (st.dates(), MOMENTS, SPANS, st.decimals())],
    *[(ODDITIES, typed(object))] * 2,
    (TEXTS | st.none(), arrow(pa.string())),
    *[
        (SMALL | st.none(), arrow(kind))
        for kind in (pa.int32(), pa.float64(), pa.decimal128(12, 2), pa.uint8())
    ],
    *[
        (MOMENTS | st.none(), arrow(kind))
        for kind in (pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("s"))
    ],
    (st.dates() | st.none(), arrow(pa.date32())),
    (SPANS | st.none(), arrow(pa.duration("us"))),
    (st.lists(SMALL, max_size=2), arrow(pa.list_(pa.int64()))),
    (st.sampled_from([0.0, 1.0]), lambda values: pd.Series(pd.arrays.SparseArray(values))),
    (
        SMALL,
        lambda values: pd.Series(pd.arrays.IntervalArray.from_tuples([(a, a + 1) for a in values])),
    ),
    (st.none(), typed(object)),
    (st.just(7.5), pd.Series),
]
POOLS = [(st.lists(values, min_size=1, max_size=8), build) for values, build in KINDS]
SEEDS = st.integers(0, 2**16)


def filled(draw, pool, n):
    """n values of a pool; drawn one by one they would take too long."""
    values = draw(pool)
    at = np.random.default_rng(draw(SEEDS)).integers(0, len(values), n)
    return [values[i] for i in at]


def series(draw, n):
    """A column of n cells of any kind that pandas knows."""
    pool, build = POOLS[draw(st.integers(0, len(POOLS) - 1))]
    return build(filled(draw, pool, n))


def numbers(draw, n):
    """Numbers as they mostly are."""
    return np.random.default_rng(draw(SEEDS)).normal(size=n).round(draw(st.integers(0, 9)))


def named(draw, columns):
    """The columns side by side, under names of any kind."""
    d = len(columns)
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(0))
    how = draw(st.sampled_from(["plain", "plain", "odd", "numbers", "levels"]))
    if how == "plain":
        frame.columns = [f"x{j}" for j in range(d)]
    elif how == "odd":
        odd = ["a", "b", "", "ä ö", 0, 1.5, None, ("p", 1), "a"]
        frame.columns = pd.Index([odd[j] for j in draw(st.permutations(range(9)))[:d]], object)
    elif how == "levels" and d:
        frame.columns = pd.MultiIndex.from_tuples([("top", j) for j in range(d)])
    else:
        frame.columns = range(d)
    return frame


@st.composite
def tables(draw):
    """Covariates in any container."""
    n = draw(st.one_of(st.integers(2, 40), st.integers(0, 40)))
    d = draw(st.one_of(st.integers(1, 4), st.integers(0, 8)))
    container = draw(
        st.sampled_from(["pandas"] * 5 + ["numpy", "numpy", "arrow", "polars", "list"])
    )
    if container == "numpy":
        kind = draw(
            st.sampled_from(["f8", "f4", "f2", ">f8", ">i4", "u1", "?", "O", "U5", "M8[s]"])
        )
        with np.errstate(all="ignore"):
            values = 10 * numbers(draw, n * d).reshape(n, d)
            values = values.astype("i8").astype(kind) if kind == "M8[s]" else values.astype(kind)
        layout = draw(st.sampled_from(["C", "F", "strided", "read-only", "masked"]))
        if layout == "strided":
            values = np.repeat(values, 2, axis=0)[::-2]
        if layout == "masked":
            return np.ma.masked_array(values, mask=np.arange(n * d).reshape(n, d) % 5 == 2)
        values = np.asarray(values, order="F" if layout == "F" else "C")
        values.flags.writeable = layout != "read-only"
        return values
    frame = named(draw, [series(draw, n) for _ in range(d)])
    if container == "list":
        return frame.astype(object).to_numpy().tolist()
    if container in ("arrow", "polars"):
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if container == "arrow":
                return table
            return pytest.importorskip("polars", reason="polars is not installed").from_arrow(table)
        except Exception:  # what Arrow cannot hold, nobody can pass through it
            return frame
    if draw(st.booleans()):
        frame.index = [0] * len(frame)  # labels of rows are nobody's business
    return frame


@st.composite
def responses(draw, n):
    fine = [
        list,
        np.array,
        pa.array,
        typed("Float32"),
        lambda v: np.array(v, ">f4"),
        lambda v: np.sign(v) * 3,
    ]
    if draw(st.integers(0, 3)):
        return draw(st.sampled_from(fine))(numbers(draw, n))
    how = draw(st.sampled_from(["wild", "wild", "frame", "extreme", "long", "none"]))
    if how == "none":
        return None
    wild = series(draw, n + (how == "long"))
    if how == "extreme":
        return pd.Series(filled(draw, st.lists(st.sampled_from(EXTREMES), min_size=1), n))
    return wild.to_frame("y") if how == "frame" else wild


@st.composite
def weights(draw, n):
    how = draw(st.sampled_from(["none"] * 4 + ["counts"] * 3 + ["extreme", "wild", "long"]))
    if how == "none":
        return None
    if how == "counts":
        return np.random.default_rng(draw(SEEDS)).integers(0, 4, n)
    if how == "extreme":
        odd = st.sampled_from([0.0, 5e-324, 1e308, 1.0])
        return filled(draw, st.lists(odd, min_size=1, max_size=9), n)
    return series(draw, n + (how == "long"))


def is_clear(error):
    """Whether an error is one of ours or of scikit-learn's validation, in words for users."""
    where = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    foreign = ["torch", "ufunc", "numpy.", "NAType", "broadcast", "safetensors", "object has no"]
    foreign += ["levels must", "levels and values", "array element with", "dtype("]
    return (
        isinstance(error, (ValueError, TypeError))
        and any(home in where.parents for home in HOMES)
        and len(str(error)) > 10
        and not any(word in str(error) for word in foreign)
    )


def check_answers(model, X):
    """The answers of a fitted model agree with each other, and with those of its saved copy."""
    n = len(X)
    draws = model.sample(X, 3, random_state=1)
    levels = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
    q = model.predict_quantiles(X, levels)
    assert draws.shape == (n, 3)
    assert q.shape == (n, 5)
    assert np.isfinite(draws).all()
    assert np.isfinite(q).all()
    assert np.all(np.diff(q, axis=1) >= 0)
    assert np.all((q[:, :1] <= draws) & (draws <= q[:, -1:]))
    below = model.cdf(X, q)
    assert np.all((below >= 0) & (below <= 1))
    assert np.all(np.diff(below, axis=1) >= 0)
    assert np.all(below >= levels - 1e-6)
    mean = model.predict(X)
    assert np.all(np.isfinite(mean))
    slack = 1e-6 * np.abs(q).max(axis=1) + 1e-300
    assert np.all((q[:, 0] - slack <= mean) & (mean <= q[:, -1] + slack))
    assert not np.isnan(model.log_prob(X, draws)).any()
    assert model.summary()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        again = gentle.load(Path(folder) / "model")
    np.testing.assert_array_equal(again.sample(X, 3, random_state=1), draws)


def exercise(data, names):
    X = data.draw(tables(), "X")
    n = len(X)
    y, weight = data.draw(responses(n), "y"), data.draw(weights(n), "sample_weight")
    name = data.draw(st.sampled_from(names), "model")
    model = make(name, **TINY.get(name, {}) | TINIER.get(name, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y, weight)
        except Exception as error:
            if not is_clear(error):
                raise
            return "refused"
        try:
            check_answers(model, X)
        except ValueError as error:  # of a row that weighs nothing, and lies anywhere
            if "standard deviations from the training data" not in str(error):
                raise
    return "fitted"


def test_every_budget_is_fuzzed():
    assert set(CHEAP) | set(COSTLY) == set(OWN) <= set(BUDGETS)


@settings(max_examples=250, derandomize=True)
@given(st.data())
def test_any_table_is_modelled_or_refused_in_words(data):
    exercise(data, CHEAP)


@settings(max_examples=80, derandomize=True)
@given(st.data())
def test_any_table_is_modelled_or_refused_in_words_by_costly_models(data):
    exercise(data, COSTLY)


@pytest.mark.slow
@pytest.mark.parametrize(("names", "n"), [(CHEAP, 5000), (COSTLY, 1000)], ids=["cheap", "costly"])
def test_many_more_tables_are_modelled_or_refused_in_words(names, n):
    found = Counter()

    @settings(max_examples=n)
    @given(st.data())
    def many(data):
        found[exercise(data, names)] += 1

    many()
    print(f"{found.total()} tables: {found['fitted']} modelled, {found['refused']} refused")
    assert min(found["fitted"], found["refused"]) > n / 10


# The same table in another form is the same table.


def number_forms():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 5, 60), rng.integers(0, 2, 60), rng.integers(-9, 9, 60)])
    X = X.astype(np.float64)
    frozen = X.copy()
    frozen.flags.writeable = False
    return {
        "plain": X,
        "list": X.tolist(),
        "Fortran": np.asfortranarray(X),
        "strided": np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
        "backwards": X[::-1].copy()[::-1],
        "read-only": frozen,
        "big-endian": X.astype(">f8"),
        "half": X.astype(np.float16),
        "small": X.astype(np.int8),
        "object": X.astype(object),
        "masked": np.ma.masked_array(X, mask=False),
        "frame": pd.DataFrame(X),
        "nullable": pd.DataFrame(X).convert_dtypes(),
        "arrow dtypes": pd.DataFrame(X).convert_dtypes(dtype_backend="pyarrow"),
        "sparse": pd.DataFrame(X).astype(pd.SparseDtype(float)),
    }


@pytest.mark.parametrize("form", sorted(number_forms()))
def test_numbers_are_the_same_in_every_form(form):
    plain, same = number_forms()["plain"], number_forms()[form]
    y = plain @ [1.0, 2.0, 3.0] + np.arange(60) % 7
    one, two = (make("QuantileForest").fit(X, y) for X in (plain, same))
    np.testing.assert_array_equal(one.sample(plain, 3, 0), two.sample(same, 3, 0))
    np.testing.assert_array_equal(one.predict(same), two.predict(plain))


def people(n=60):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, n),
            "income": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(["Rome", "Oslo", None], n),
            "member": rng.choice([True, False], n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, n), "h"),
            "zoned": pd.date_range("2020-01-01", periods=n, tz="Asia/Tokyo"),
            "wait": pd.to_timedelta(rng.integers(0, 999, n), "s"),
            "grade": pd.Categorical(rng.choice(["low", "high"], n), ["low", "high"], ordered=True),
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
        }
    )


def in_polars(frame):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    enum = polars.Enum(["low", "high"])
    return polars.from_pandas(frame.astype({"grade": str})).with_columns(
        polars.col("grade").cast(enum)
    )


FORMS = {
    "polars": in_polars,
    "arrow": lambda frame: pa.Table.from_pandas(frame),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame),
    "arrow dtypes": lambda frame: frame.astype({"grade": frame["grade"].dtype}).convert_dtypes(
        dtype_backend="pyarrow", convert_string=False
    ),
    "nullable": lambda frame: frame.convert_dtypes(),
    "shuffled labels": lambda frame: frame.set_axis(range(len(frame))[::-1]),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_tables_are_the_same_in_every_library(form):
    frame = people()
    other = FORMS[form](frame)
    y = pd.Series(np.random.default_rng(2).normal(size=60), name="wage")
    one, two = (make("QuantileForest").fit(X, y) for X in (frame, other))
    assert list(two.feature_names_in_) == list(frame)
    np.testing.assert_array_equal(one.sample(frame, 3, 0), two.sample(other, 3, 0))
    np.testing.assert_array_equal(one.predict(other), two.predict(frame))
    scores = [gentle.metrics.evaluate(one, X, y).summary()["crps"] for X in (frame, other)]
    assert scores[0] == scores[1]


def test_responses_and_weights_may_come_from_any_library():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    X, y = number_forms()["plain"], np.arange(60.0) % 11
    w = np.arange(60) % 3
    expected = make("KNN").fit(X, y, w).sample(X, 2, 0)
    for form in (
        lambda v: polars.Series("wage", v),
        pa.array,
        lambda v: pa.chunked_array([v[:20], v[20:]]),
        lambda v: pd.Series(v).convert_dtypes(),
        lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.float64())),
        lambda v: v.astype(">f8"),
        list,
    ):
        model = make("KNN").fit(X, form(y), form(w))
        np.testing.assert_array_equal(model.sample(X, 2, 0), expected)
        assert model.score(X, form(y), form(w)) == make("KNN").fit(X, y, w).score(X, y, w)
    assert make("KNN").fit(X, polars.Series("wage", y)).response_name_ == "wage"
    with pytest.warns(sklearn.exceptions.DataConversionWarning):
        assert make("KNN").fit(X, polars.DataFrame({"wage": y})).response_name_ == "wage"
    with pytest.raises(ValueError, match=r"first in row 1 \(nan\)"):
        make("KNN").fit(X, polars.Series([1.0, None] + [2.0] * 58))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2, 3], None]), r"values of type list<.*> \(in 'a'\)"),
        (pa.array([{"b": 1}, {"b": 2}, None]), "values of type struct<b: int64>"),
        (pd.Series([[1], [2], [3]]), "column 'a' of X cannot be read: it holds a list"),
        (pd.Series([1j, 2j, 3j]), "column 'a' of X cannot be read: Complex data not supported"),
        (pd.Series([{1}, {2}, {3}]), "it holds a set, but a cell must be one number"),
    ],
)
def test_cells_that_are_no_single_value_are_refused_by_name(column, message):
    X = pa.table({"a": column}) if isinstance(column, pa.Array) else pd.DataFrame({"a": column})
    with pytest.raises(ValueError, match=message):
        make("KNN").fit(X, [1.0, 2.0, 3.0])


def test_masked_cells_are_missing():
    X, y = number_forms()["plain"], np.arange(60.0)
    mask = np.arange(180).reshape(60, 3) % 7 == 0
    one = make("KNN").fit(np.ma.masked_array(X, mask=mask), y)
    two = make("KNN").fit(np.where(mask, np.nan, X), y)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    days = np.ma.masked_array(np.arange(60).astype("M8[D]").astype("M8[ns]")[:, None], mask[:, :1])
    plain = np.where(mask[:, :1], np.datetime64("NaT"), np.asarray(days))
    np.testing.assert_array_equal(
        make("KNN").fit(days, y).predict(plain), make("KNN").fit(plain, y).predict(days)
    )
    with pytest.raises(ValueError, match="y contains NaN"):
        make("KNN").fit(X, np.ma.masked_array(y, mask=y == 3))


def test_rows_of_negligible_weight_are_left_out_and_huge_responses_refused():
    X, y = number_forms()["plain"], np.arange(60.0)
    w = np.where(y < 30, 1e-60, 1.0)
    one, two = make("KNN").fit(X, y, w), make("KNN").fit(X[30:], y[30:])
    np.testing.assert_array_equal(one.sample(X, 2, 0), two.sample(X, 2, 0))
    with pytest.raises(ValueError, match="y reaches 1e\\+200"):
        make("KNN").fit(X, y * 1e200 / 59)
