"""Covariates of every kind: how they are read, encoded, kept, and shown."""

import json
import warnings
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import gentle
from gentle import QuantileForest, covariates
from gentle.columns import Columns, taken
from gentle.comparison import compare, units
from gentle.covariates import CovariateEncoder, year_angle
from gentle.data import Standardiser, responses_per_covariate
from gentle.metrics import evaluate

NUMBERS = [0.0, -3.5, 7.0, 1e6, 12.25, 3.0]
TEXTS = ["Rome", "Oslo", "", "nan", "1", "long " * 30]
DAYS = [datetime(2000 + 3 * i, 1 + i, 5 + i, 7) for i in range(6)]


def column(kind, codes, gaps):
    """A column of some dtype; code -1 is missing where the dtype can say so."""

    def pick(values):
        return [None if gap else values[code] for code, gap in zip(codes, gaps)]

    return {
        "int": lambda: pd.Series([code * 3 - 4 for code in codes]),
        "float32": lambda: pd.Series(pick(NUMBERS), dtype="float32"),
        "float": lambda: pd.Series(pick(NUMBERS), dtype=float),
        "Int64": lambda: pd.Series(pick(list(range(6))), dtype="Int64"),
        "bool": lambda: pd.Series([code > 2 for code in codes]),
        "boolean": lambda: pd.Series(pick([True, False] * 3), dtype="boolean"),
        "category": lambda: pd.Series(pick(TEXTS), dtype=pd.CategoricalDtype([*TEXTS, "unused"])),
        "numbers": lambda: pd.Series(pick([3, 1, 2, 9, 8, 7]), dtype="category"),
        "ordered": lambda: pd.Series(pick(TEXTS), dtype=pd.CategoricalDtype(TEXTS, ordered=True)),
        "datetime": lambda: pd.Series(pd.to_datetime(pick(DAYS))),
        "seconds": lambda: pd.Series(pd.to_datetime(pick(DAYS))).astype("datetime64[s]"),
        "zoned": lambda: pd.Series(pd.to_datetime(pick(DAYS))).dt.tz_localize("Asia/Tokyo"),
        "dates": lambda: pd.Series(pick([day.date() for day in DAYS]), dtype=object),
        "timedelta": lambda: pd.Series(pd.to_timedelta(pick(NUMBERS), unit="s")),
        "string": lambda: pd.Series(pick(TEXTS), dtype="string"),
        "object": lambda: pd.Series(pick(TEXTS), dtype=object),
        "mixed": lambda: pd.Series(pick([1, "a", 2.5, True, (1, 2), "1"]), dtype=object),
        "decimal": lambda: pd.Series(pick([Decimal(i) / 3 for i in range(6)]), dtype=object),
        "empty": lambda: pd.Series([None] * len(codes), dtype=object),
        "NaN": lambda: pd.Series([np.nan] * len(codes)),
    }[kind]()


KINDS = [
    "int",
    "float32",
    "float",
    "Int64",
    "bool",
    "boolean",
    "category",
    "numbers",
    "ordered",
    "datetime",
    "seconds",
    "zoned",
    "dates",
    "timedelta",
    "string",
    "object",
    "mixed",
    "decimal",
    "empty",
    "NaN",
]


@st.composite
def mixed_frames(draw, least=2):
    n = draw(st.integers(least, 25))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    codes = st.lists(st.integers(0, 5), min_size=n, max_size=n)
    gaps = st.lists(st.booleans(), min_size=n, max_size=n)
    none = [False] * n
    made = [
        column(kind, draw(codes), draw(st.one_of(st.just(none), gaps))).rename(f"{i} {kind}")
        for i, kind in enumerate(kinds)
    ]
    return pd.concat(made, axis=1)


def weights_for(frame, seed=0):
    return np.random.default_rng(seed).integers(1, 4, len(frame)).astype(float)


def round_trip(encoder):
    return CovariateEncoder.restored(json.loads(json.dumps(encoder.state())), encoder.labels)


@given(mixed_frames())
def test_any_table_is_encoded_and_the_encoder_survives_json_bit_for_bit(frame):
    encoder = CovariateEncoder.of(frame, weights_for(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the training table itself has nothing new
        x = encoder.encode(frame)
    assert x.shape == (len(frame), encoder.n_encoded) == (len(frame), len(encoder.owners))
    assert x.dtype == np.float64
    assert np.isfinite(x).all()
    again = round_trip(encoder)
    assert again == encoder
    np.testing.assert_array_equal(again.encode(frame), x)


@given(mixed_frames(), st.randoms(use_true_random=False))
def test_row_order_changes_no_encoding_and_columns_are_encoded_alone(frame, random):
    w = weights_for(frame)
    order = np.array(random.sample(range(len(frame)), len(frame)))
    one, two = CovariateEncoder.of(frame, w), CovariateEncoder.of(frame.iloc[order], w[order])
    assert [c.levels for c in one.covariates] == [c.levels for c in two.covariates]
    x = one.encode(frame)
    np.testing.assert_allclose(two.encode(frame), x, atol=1e-9)
    alone = [CovariateEncoder.of(frame[[name]], w).encode(frame[[name]]) for name in frame]
    np.testing.assert_allclose(np.hstack(alone), x, atol=1e-9)


@given(mixed_frames())
def test_equal_rows_have_equal_keys_and_different_ones_do_not(frame):
    keys = Columns.of(frame).keys()
    for name, key in zip(frame, keys.T):
        texts = [None if pd.isna(v) else v for v in frame[name]]
        if not all(isinstance(v, (int, float, type(None))) for v in texts):  # True is the number 1
            texts = [None if v is None else str(v) for v in texts]
        for i in range(len(frame)):
            for j in range(i):
                same = (
                    texts[i] == texts[j]
                    if None not in (texts[i], texts[j])
                    else (texts[i] is texts[j])
                )
                assert same == (key[i] == key[j] or (np.isnan(key[i]) and np.isnan(key[j])))
    company = pd.concat([frame.iloc[:1], frame.iloc[::-1]])
    np.testing.assert_array_equal(Columns.of(company).keys()[1:], keys[::-1])


@settings(max_examples=25)
@given(mixed_frames(least=6), st.sampled_from(["KNN", "KernelCDE", "Marginal", "QuantileForest"]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_models_take_any_table_and_answer_for_any_gap(frame, name):
    model = getattr(gentle, name)(random_state=0, verbose=0)
    if name == "QuantileForest":
        model.set_params(n_estimators=3, min_samples_leaf=1)
    model.fit(frame, np.arange(len(frame), dtype=float), weights_for(frame))
    empty = pd.DataFrame({column: [None] * 3 for column in frame}, dtype=object)
    assert np.isfinite(model.sample(pd.concat([frame.astype(object), empty]), 2, 0)).all()


def test_numbers_are_standardised_exactly_as_they_always_were():
    rng = np.random.default_rng(0)
    X, w = rng.gamma(2, 1e4, (500, 7)), rng.random(500)
    X[:, 3] = 7.1
    expected = Standardiser.of(X, w).encode(X)
    for table in (X, pd.DataFrame(X), pd.DataFrame(X).astype("Float64"), X.astype(object)):
        np.testing.assert_array_equal(CovariateEncoder.of(table, w).encode(table), expected)


def test_extreme_scales_work_or_are_refused():
    X = np.array([[1e-300, 1e150], [2e-300, 2e150], [4e-300, 3e150]])
    x = CovariateEncoder.of(X * [1e200, 1.0], np.ones(3)).encode(X * [1e200, 1.0])
    np.testing.assert_allclose(x.std(axis=0), 1)
    with pytest.raises(ValueError, match="rescale"):
        CovariateEncoder.of([[1e308], [-1e308], [1e308]], np.ones(3))


def test_levels_are_one_unit_apart_and_the_rare_and_the_new_ones_are_others():
    town = ["Rome"] * 500 + ["Oslo"] * 400 + ["Bern"] * 99 + ["Kyiv"]
    X = pd.DataFrame({"town": town})
    encoder = CovariateEncoder.of(X, np.ones(1000))
    assert encoder.covariates[0].levels == ("Rome", "Oslo", "Bern")
    new = encoder.encode(pd.DataFrame({"town": ["Rome", "Bern", "Kyiv", "Paris"]}))
    assert new.shape == (4, 4)
    np.testing.assert_array_equal(new[2], new[3])
    np.testing.assert_allclose([np.linalg.norm(new[i] - new[i + 1]) for i in range(2)], 1)
    known = CovariateEncoder.of(X.iloc[:-1], np.ones(999))
    np.testing.assert_array_equal(known.encode(X.iloc[-1:]), [[0, 0, 0]])
    two = CovariateEncoder.of(X.iloc[:900], np.ones(900))
    both = two.encode(pd.DataFrame({"town": ["Rome", "Oslo", "Paris"]}))
    np.testing.assert_array_equal(both, [[0.5], [-0.5], [0.0]])


def test_at_most_two_hundred_levels_and_weight_decides_which():
    X = pd.DataFrame({"a": [f"{i:03d}" for i in range(240)] * 20})
    w = np.tile(np.arange(240.0, 0, -1), 20)
    levels = CovariateEncoder.of(X, w).covariates[0].levels
    assert levels == tuple(f"{i:03d}" for i in range(200))
    assert CovariateEncoder.of(X, 1e-9 * w).covariates[0].levels == levels
    equal = CovariateEncoder.of(X.iloc[::-1], np.ones(4800)).covariates[0]
    assert equal.levels == levels  # of equally frequent ones the alphabet's first
    assert equal.others == pytest.approx(1 / 6)


def test_fifty_levels_where_more_would_fill_the_memory(monkeypatch):
    monkeypatch.setattr(covariates, "_MAX_CELLS", 20_000)
    for n_columns, n_levels in ((1, 100), (2, 50), (3, 50)):  # of 200 rows each
        X = pd.DataFrame({f"{j}": [f"{i:03d}" for i in range(100)] * 2 for j in range(n_columns)})
        encoder = CovariateEncoder.of(X, np.ones(200))
        assert [len(column.levels) for column in encoder.covariates] == [n_levels] * n_columns


def test_five_rows_are_enough_for_a_level_of_a_long_table():
    rare = ["four"] * 4 + ["five"] * 5
    X = pd.DataFrame({"a": rare + ["often"] * 20_000})
    column = CovariateEncoder.of(X, np.ones(len(X))).covariates[0]
    assert column.levels == ("often", "five")
    assert column.others == pytest.approx(4 / len(X))


def test_a_level_of_a_long_category_has_a_distribution_of_its_own():
    rng = np.random.default_rng(0)
    town = np.repeat(np.arange(120), 12)
    y = 3.0 * rng.normal(size=120)[town] + 0.1 * rng.normal(size=len(town))
    X = pd.DataFrame({"town": [f"town {i}" for i in town]})
    new = X.iloc[::12]
    forest = QuantileForest(min_samples_leaf=3, random_state=0).fit(X, y)
    assert np.corrcoef(forest.predict(new), y.reshape(120, 12).mean(1))[0, 1] > 0.95


def test_orders_are_ranks_of_the_levels_in_use():
    sizes = pd.CategoricalDtype(["none", "S", "M", "L"], ordered=True)
    X = pd.DataFrame({"size": pd.Series(["S", "L", "M", "S"], dtype=sizes)})
    encoder = CovariateEncoder.of(X, np.ones(4))
    expected = Standardiser.of(np.array([0.0, 2, 1, 0]), np.ones(4)).encode(
        np.array([0.0, 2, 1, 0])
    )
    np.testing.assert_allclose(encoder.encode(X)[:, 0], expected)
    np.testing.assert_array_equal(encoder.encode(X.astype(str)), encoder.encode(X))


def test_dates_are_days_and_from_two_years_on_seasons_too():
    days = pd.date_range("2015-01-01", "2019-12-31", freq="7D")
    X = pd.DataFrame({"day": days})
    encoder = CovariateEncoder.of(X, np.ones(len(X)))
    x = encoder.encode(X)
    assert x.shape == (len(X), 3)
    np.testing.assert_allclose(np.hypot(x[:, 1], x[:, 2]), 1)
    assert (
        np.allclose(
            np.diff(x[:, 0]), 7 / days.to_series().diff().dt.days.mean() * x[1, 0] - x[0, 0]
        )
        or np.ptp(np.diff(x[:, 0])) < 1e-9
    )
    same = [pd.DataFrame({"day": days.tz_localize("UTC").tz_convert("Asia/Tokyo")})]
    same += [X.astype(str), X.astype("datetime64[s]"), X.astype(object)]
    for other in same:
        np.testing.assert_allclose(encoder.encode(other), x, atol=1e-9)
    assert CovariateEncoder.of(X.iloc[:90], np.ones(90)).n_encoded == 1
    yearly = pd.DataFrame({"day": [date(year, 12, 31) for year in range(2000, 2020)]})
    assert CovariateEncoder.of(yearly, np.ones(20)).n_encoded == 1
    at = np.array(["1999-01-01", "2000-07-02", "2001-04-02T06"], "M8[h]").astype(float) / 24
    np.testing.assert_allclose(year_angle(at), [0, np.pi, np.pi / 2])
    far = pd.DataFrame({"day": [date(1, 1, 1), date(9999, 12, 31), None]}, dtype=object)
    assert np.isfinite(CovariateEncoder.of(far, np.ones(3)).encode(far)).all()


def test_gaps_are_the_mean_and_say_so():
    X = pd.DataFrame({"a": [1.0, np.nan, 3.0, 5.0], "b": ["u", None, "v", "u"]})
    encoder = CovariateEncoder.of(X, np.array([1.0, 9.0, 1.0, 2.0]))
    x = encoder.encode(X)
    np.testing.assert_array_equal(x[:, 1], [0, 1, 0, 0])
    assert x[1, 0] == 0
    assert np.average(x[[0, 2, 3], 0], weights=[1, 1, 2]) == pytest.approx(0)
    assert x.shape == (4, 5)  # u, v and missing have an indicator each
    np.testing.assert_array_equal((x[:, 2:] > 0).sum(axis=1), 1)


def test_gaps_that_are_new_are_filled_and_named_once():
    X = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "w"], "c": [1, 1, None]})
    encoder = CovariateEncoder.of(X, np.ones(3))
    new = pd.DataFrame({"a": [None, 2.0], "b": [None, "u"], "c": [None, 1]})
    with pytest.warns(UserWarning, match=r"missing .* in column\(s\) \['a', 'b'\]") as said:
        x = encoder.encode(new)
    assert len(said) == 1
    np.testing.assert_array_equal(x[0, :4], 0)


@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]),
        ([1, 2, 3, 4], ["1", "2.0", "3", "4"]),
        ([1, 2, 3, 4], pd.Categorical([1, 2, 3, 4])),
        ([True, False, True, True], [1, 0, 1, 1]),
        ([True, False, True, True], ["true", "False", "TRUE", "1"]),
        (pd.Categorical(list("abca")), list("abca")),
        (pd.Categorical([1, 2, 3, 1]), [1.0, 2.0, 3.0, 1.0]),
        (["1", "2", "x", "1"], [1, 2, "x", 1]),
        (pd.to_timedelta([1, 2, 3, 9], "h"), ["1h", "2h", "3h", "9h"]),
        (["2020-01-01", "b", "c", "d"], ["2020-01-01", "b", "c", "d"]),
        (
            [date(2020, 1, i) for i in (1, 2, 5, 9)],
            ["2020-01-01", "2020-01-02", "2020-01-05T00:00Z", "2020-01-09"],
        ),
        (
            [datetime(2020, 1, i, tzinfo=timezone(timedelta(hours=2))) for i in (1, 2, 5, 9)],
            pd.to_datetime(
                ["2019-12-31 22:00", "2020-01-01 22:00", "2020-01-04 22:00", "2020-01-08 22:00"]
            ),
        ),
    ],
)
def test_the_dtype_may_change_as_long_as_the_values_do_not(trained, asked):
    encoder = CovariateEncoder.of(pd.DataFrame({"a": trained}), np.ones(4))
    expected = encoder.encode(pd.DataFrame({"a": trained}))
    np.testing.assert_allclose(encoder.encode(pd.DataFrame({"a": asked})), expected)
    assert np.ptp(expected) > 0


@pytest.mark.parametrize(
    ("trained", "asked", "message"),
    [
        (
            [1, 2, 3],
            ["1", "many", "3"],
            "column 'a' of X holds 'many', but in fit() it held numbers",
        ),
        ([1, 2, 3], ["inf", "1", "2"], "holds 'inf'"),
        ([1, 2, 3], pd.to_datetime(["2020-01-01"] * 3), "'2020-01-01' (a date), but"),
        ([True, False, True], ["yes", "no", "yes"], "held true or false"),
        (
            pd.to_datetime(["2020-01-01", "2021-02-02", "2020"], format="mixed"),
            ["x", "y", "z"],
            "held dates",
        ),
        (
            pd.to_datetime(["2020-01-01", "2021-02-02", "2020"], format="mixed"),
            [1, 2, 3],
            "held dates",
        ),
        (pd.to_timedelta([1, 2, 3], "h"), ["soon", "now", "later"], "held durations"),
    ],
)
def test_what_a_column_cannot_hold_is_named(trained, asked, message):
    encoder = CovariateEncoder.of(pd.DataFrame({"a": trained}), np.ones(3))
    with pytest.raises(ValueError) as error:  # noqa: PT011
        encoder.encode(pd.DataFrame({"a": asked}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([[1.0], [np.inf]]), "infinity: column 0 has 1 such value"),
        (pd.DataFrame({"a": [1, 10**400]}, dtype=object), "infinity: column 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column named 'a'"),
        (np.array([[1j]]), "Complex data"),
        (np.zeros((0, 2)), "table with rows and columns"),
        (np.zeros(3), "table with rows and columns"),
    ],
)
def test_bad_tables_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        Columns.of(X)


def test_arrays_of_texts_and_objects_are_read_column_by_column():
    found = Columns.of([[1.5, "a"], [2.5, "b"]])  # numpy makes texts of both
    assert [c.kind for c in found.columns] == ["number", "category"]
    found = Columns.of(np.array([[1, "a", None, True], [None, "b", None, False]], dtype=object))
    assert [c.kind for c in found.columns] == ["number", "category", "number", "boolean"]
    assert found.names is None
    assert taken([[1], [2], [3]], np.array([2, 0])).tolist() == [[3], [1]]


def test_equal_columns_and_many_columns_do_no_harm():
    rng = np.random.default_rng(0)
    column = rng.choice(["a", "b", "c"], 50)
    X = pd.DataFrame({f"c{i}": column for i in range(120)})
    model = gentle.KNN(n_neighbors=5).fit(X, np.arange(50.0))
    shown = model.summary()
    assert "120 columns, encoded in 360" in shown
    assert "… and 95 more columns" in shown
    assert len(shown.splitlines()) < 40


HOSTILE = [
    {"kind": "shell"},
    {"kind": None},
    {"levels": "abc"},
    {"levels": ["a"]},
    {"levels": ["a", "a"], "shares": [0.5, 0.5]},
    {"levels": [1], "shares": [0.5]},
    {"shares": [[0.5]], "levels": ["a"]},
    {"shares": [float("nan"), 0.1, 0.1]},
    {"missing": 2.0},
    {"missing": "much"},
    {"others": -0.5},
    {"seasonal": True},
    {"seasonal": 1},
    {"unknown": 1},
    {"levels": [str(i) for i in range(9999)], "shares": [0.0] * 9999},
]


@pytest.mark.parametrize("change", HOSTILE)
def test_hostile_descriptions_are_value_errors(change):
    X = pd.DataFrame({"town": ["a", "b", "c"] * 5})
    facts = CovariateEncoder.of(X, np.ones(15)).state()
    with pytest.raises(ValueError, match="description of the columns is damaged"):
        CovariateEncoder.restored([facts[0] | change], ["town"])


def test_hostile_files_are_value_errors():
    X = pd.DataFrame({"a": [1.0, 2.0, None], "b": [1, 2, 4]})
    facts = CovariateEncoder.of(X, np.ones(3)).state()
    for bad in (None, 3, [], facts[:1], [None, None], "ab", {"a": 1}):
        with pytest.raises(ValueError, match=r"damaged|disagree"):
            CovariateEncoder.restored(bad, ["a", "b"])
    for changed in (
        {"scale": -1.0},
        {"scale": float("nan")},
        {"mean": [1.0]},
        {"low": "a"},
        {"low": 9.0},
        {"mean": 1},
        {"unknown": 1},
        {"kind": "date", "high": 1e12},
    ):
        with pytest.raises(ValueError, match="damaged"):
            CovariateEncoder.restored([facts[0], facts[1] | changed], ["a", "b"])
    with pytest.raises(ValueError, match="disagree about the number of columns"):
        CovariateEncoder.restored(facts, ["a"])


def visits(n=200, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "town": rng.choice(["Rome", "Oslo", None], n),
            "age": np.where(rng.random(n) < 0.3, np.nan, rng.integers(3, 6, n)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2, n), "D"),
        }
    )
    return frame, (frame["town"] == "Rome") + 0.1 * rng.normal(size=n)


def test_equal_rows_of_mixed_tables_are_one_covariate_everywhere():
    X, y = visits()
    n_distinct = len(X.drop_duplicates())  # to pandas too, missing values are equal
    assert len(responses_per_covariate(X)) == n_distinct
    assert units(X).max() + 1 == n_distinct
    model = gentle.KNN(n_neighbors=10, verbose=0).fit(X, y)
    scores = evaluate(model, X, y, n_samples=50, min_responses=5)
    assert scores.summary()["n_covariates"] == n_distinct
    backwards = evaluate(model, X.iloc[::-1], y[::-1], n_samples=50, min_responses=5)
    assert backwards.summary() == pytest.approx(scores.summary())
    X["dose"] = np.random.default_rng(1).random(len(X))  # else folds differ in their towns
    result = compare(X, y, {"KNN": gentle.KNN(n_neighbors=10)}, n_folds=3)
    table = result.table().set_index("model")["crps"]
    assert table["KNN"] < 0.9 * table["Marginal"]


def test_settings_are_tuned_on_mixed_tables():
    from gentle import tuning

    X, y = visits()
    grid = {"n_neighbors": [2, 20]}
    found = tuning.grid_search("KNN", grid, X, y, criterion="crps", random_state=0)
    assert found.model.n_features_in_ == 3
    found = tuning.grid_search(
        "KNN", grid, X, y, eval_set=visits(seed=1), criterion="crps", random_state=0
    )
    assert np.isfinite(found.best_score)


def test_lipschitz_pairs_of_mixed_tables():
    from gentle.covariates import lipschitz_pairs

    X, y = visits(600)
    pairs = lipschitz_pairs(X[["town"]], y)
    np.testing.assert_allclose(pairs["distance"], 1)  # Rome, Oslo and nowhere
    assert sorted(pairs["w2"].round()) == [0, 1, 1]


def test_columns_in_another_order_are_refused_as_ever():
    X, y = visits()
    model = gentle.KNN(n_neighbors=10).fit(X, y)
    with pytest.raises(ValueError, match=r"their order must be 'town', 'age', 'day'"):
        model.predict(X[["age", "town", "day"]])


def test_columns_without_information_are_named():
    X, y = visits(300)
    X = X.assign(id=[f"{i}" for i in range(300)], gone=None, same="x")
    with pytest.warns(UserWarning, match="no information") as said:
        model = gentle.KNN(n_neighbors=10).fit(X, y)
    texts = [str(warning.message) for warning in said]
    assert any("constant column(s) ['gone', 'same'] carry no information" in t for t in texts)
    assert any("all values rare: column(s) ['id'] carry no information" in t for t in texts)
    moved = X.assign(id="7", gone="anything", same=3)
    np.testing.assert_array_equal(model.predict(moved), model.predict(X))


def test_the_summary_tells_rows_response_columns_and_training():
    X, y = visits()
    y = y.where(y > 0.5, 0.0).rename("cost")
    w = np.where(np.arange(200) < 20, 0.0, 1.0 + (np.arange(200) % 2))
    settings = {"n_epochs": 2, "hidden_widths": (8, 8), "n_levels": 21, "random_state": 0}
    model = gentle.CWGAN(**settings, verbose=0).fit(X, y, w)
    shown = model.summary()
    lines = shown.splitlines()
    assert "n_epochs=2" in shown
    assert "200 rows, 180 of positive weight, of which " in shown
    assert "worth 162.0 rows" in shown
    assert any(line.startswith("response cost: 0 to ") and "; 0 is " in line for line in lines)
    assert "3 columns, encoded in 6:" in lines
    (town,) = [line for line in lines if line.startswith("  town")]
    assert "Oslo 32 %, Rome 27 %" in town
    assert "41 %" in town  # are missing
    assert "3 indicators" in town
    assert "trained for 2 epochs in" in shown
    assert repr(shown) == shown
    with pytest.raises(NotFittedError):
        gentle.KNN().summary()


def test_a_model_adds_its_own_lines_to_the_summary():
    class Own(gentle.KNN):
        def _describe(self):
            return [f"{self.n_neighbors_} neighbours"]

    X, y = visits()
    assert Own(n_neighbors=7).fit(X, y).summary().splitlines()[-1] == "7 neighbours"
