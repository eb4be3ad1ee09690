"""The catalogue, the tables and LDW-CPS."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from gentle.datasets import Benchmark, ExactTruth, Table, Truth, load, names

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
    if listing.name != "ecm":  # shortened above
        n_rows = len(benchmark.train) + len(benchmark.val) + len(benchmark.test)
        assert n_rows == listing.rows


def test_the_catalogue_is_a_table():
    table = pd.DataFrame(names())
    assert list(table) == ["name", "description", "rows", "covariates", "response", "unit"]
    assert table["name"].is_unique
    assert len(table) == 11
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
        "print([m for m in ('causaldata', 'scipy', 'torch', 'sklearn') if m in sys.modules])"
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
