"""Comparisons: folds keep units together, errors know of units, verdicts say what is so."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from sklearn.base import BaseEstimator

import gentle
from gentle.comparison import FIRST_CHOICE, Comparison, balanced_folds, compare, units
from gentle.distribution import QuantileTable
from gentle.metrics import evaluate, noise_floor
from gentle.models.registry import MODULES

KNN = gentle.KNN(n_neighbors=20)
TINY = gentle.GENTLE(n_steps=5, hidden_widths=(8,), n_trees=6)


def line(n=200, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 1))
    return X, X[:, 0] + noise * rng.normal(size=n)


def visits(n=300, n_patients=80, seed=0):
    """Patients with effects of their own, some covariates equal, weights."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, n_patients, n)
    X = rng.uniform(-1, 1, (n, 2))
    X[1:20:2] = X[:20:2]
    y = X[:, 0] + rng.normal(size=n_patients)[patient] + 0.3 * rng.normal(size=n)
    return X, y, rng.random(n) + 0.1, patient


class Broken(BaseEstimator):
    """Fails with an error, unless this row is in the training data."""

    def __init__(self, error=None, unless=None):
        self.error = error
        self.unless = unless

    def fit(self, X, y):
        if self.unless is None or not (self.unless == X).all(axis=1).any():
            raise self.error
        self.marginal_ = QuantileTable.of_sample(y)
        return self

    def predict_dist(self, X):
        return self.marginal_.repeat(len(X))


class Suspicious(Broken):
    """Fails if it is asked about a covariate that it has been shown."""

    def fit(self, X, y):
        self.seen_ = {tuple(row) for row in X}
        self.marginal_ = QuantileTable.of_sample(y)
        return self

    def predict_dist(self, X):
        assert not self.seen_ & {tuple(row) for row in X}
        return super().predict_dist(X)


class Zeros(BaseEstimator):
    """The truth of `zeros`: 0 with probability |x|, else uniform on (0, width).

    Its atom has gone through other units and back, so it is a rounding error away from 0.1.
    """

    def __init__(self, width=1.0):
        self.width = width

    def fit(self, X, y):
        return self

    def predict_dist(self, X):
        x = np.abs(np.asarray(X)[:, 0])
        levels = np.stack([0 * x, x, 0 * x + 1], axis=1)
        values = 0.1 + np.tile([0.0, 0.0, self.width], (len(x), 1))
        return QuantileTable(levels, (values - 1 / 3) / 0.7).affine(0.7, 1 / 3)


def zeros(n=2000):
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 0.9, n)
    return x[:, None], 0.1 + np.where(rng.random(n) < x, 0.0, rng.random(n))


# Units and folds


def linked(X, groups):
    """The unit of each row by spreading labels along links until nothing changes."""
    label = np.arange(len(X))
    while True:
        new = label.copy()
        for i in range(len(X)):
            same = (X[i] == X).all(axis=1)
            if groups is not None:
                same |= groups == groups[i]
            new[i] = new[same].min()
        if (new == label).all():
            return label
        label = new


@st.composite
def tables(draw):
    n = draw(st.integers(2, 25))
    few = st.integers(0, draw(st.sampled_from([2, 8, 40])))
    X = np.array(draw(st.lists(st.tuples(few, few), min_size=n, max_size=n)), float)
    groups = draw(st.none() | st.lists(few, min_size=n, max_size=n))
    return X, None if groups is None else np.array(groups)


@given(tables(), st.integers(0, 3))
def test_units_are_the_linked_rows_and_folds_keep_them_whole_and_balanced(table, seed):
    X, groups = table
    unit = units(X, groups)
    expected = linked(X, groups)
    np.testing.assert_array_equal(unit[:, None] == unit, expected[:, None] == expected)
    assert set(unit) == set(range(unit.max() + 1))
    sizes = np.bincount(unit)
    for n_folds in range(2, len(sizes) + 1):
        fold = balanced_folds(unit, n_folds, seed)
        assert set(fold) == set(range(n_folds))
        for which in range(len(sizes)):
            assert len(set(fold[unit == which])) == 1
        assert np.ptp(np.bincount(fold)) <= sizes.max()
        np.testing.assert_array_equal(fold, balanced_folds(unit, n_folds, seed))


def test_folds_are_shuffled_by_the_seed():
    unit = np.arange(100)
    assert not np.array_equal(balanced_folds(unit, 5, 0), balanced_folds(unit, 5, 1))
    assert np.bincount(balanced_folds(unit, 5, 0)).tolist() == [20] * 5
    # No fold is a stretch of the table, which may be sorted.
    assert max(np.ptp(np.flatnonzero(balanced_folds(unit, 5, 0) == f)) for f in range(5)) > 80


def test_signed_zeros_are_equal_and_groups_may_be_text():
    assert len(set(units([[0.0], [-0.0]]))) == 1
    assert units([[1], [2], [3]], ["a", "b", "a"]).tolist() == [0, 1, 0]
    assert units([[1], [2], [3]], pd.Series(["a", "b", "a"], dtype="category")).tolist() == [
        0,
        1,
        0,
    ]


# Running


def test_every_row_is_scored_once_by_models_that_have_not_seen_its_unit():
    X, y, weight, patient = visits()
    result = compare(X, y, {"a": KNN, "b": Suspicious()}, groups=patient)
    assert not result.failed
    unit = units(X, patient)
    for _, part in result.records.groupby("model"):
        assert sorted(part["row"]) == list(range(len(y)))
        np.testing.assert_array_equal(part["unit"], unit[part["row"]])
        np.testing.assert_array_equal(part["fold"], balanced_folds(unit)[part["row"]])
    weighted = compare(X, y, {"a": KNN}, groups=patient, sample_weight=weight, random_state=3)
    records = weighted.records.query("model == 'a'").sort_values("row")
    fold = balanced_folds(unit, 5, 3)
    np.testing.assert_array_equal(records["fold"], fold)
    for k in range(5):
        model = gentle.KNN(n_neighbors=20).fit(X[fold != k], y[fold != k], weight[fold != k])
        dist, mine = model.predict_dist(X[fold == k]), records[records["fold"] == k]
        np.testing.assert_allclose(mine["crps"], dist.crps(y[fold == k]))
        np.testing.assert_allclose(mine["pit"], dist.cdf(y[fold == k]))  # y is no atom here
        lower, upper = dist.quantile([0.05 - 1e-9, 0.95 + 1e-9]).T
        inside = (lower <= y[fold == k]) & (y[fold == k] <= upper)
        np.testing.assert_array_equal(mine["covered_90"], inside)


def test_the_number_of_workers_changes_nothing():
    X, y = line(60)
    frame = pd.DataFrame(X, columns=["age"])
    alone, together = (
        compare(frame, y, {"GENTLE": TINY, "KNN": KNN, "k": "KNN"}, n_folds=2, n_workers=n)
        for n in (1, 2)
    )
    pd.testing.assert_frame_equal(alone.records, together.records)
    times = ["fit_seconds", "predict_seconds"]
    pd.testing.assert_frame_equal(
        alone.table().drop(columns=times), together.table().drop(columns=times)
    )
    assert set(alone.records["model"]) == {"GENTLE", "KNN", "k", "Marginal"}
    again = compare(frame, y, {"GENTLE": TINY}, n_folds=2)  # its random_state is None
    one, two = (r.records.query("model == 'GENTLE'") for r in (alone, again))
    np.testing.assert_array_equal(one["crps"], two["crps"])


def test_a_seed_of_ones_own_is_kept_and_estimators_are_left_alone():
    X, y = line(60)
    seeds = {str(k): TINY.__class__(**TINY.get_params() | {"random_state": k}) for k in (0, 1)}
    records = compare(X, y, {"own": TINY} | seeds, n_folds=2, random_state=0).records
    crps = {model: part["crps"].tolist() for model, part in records.groupby("model")}
    assert crps["own"] == crps["0"] != crps["1"]
    assert TINY.random_state is None
    assert not hasattr(TINY, "generator_")


def test_a_weight_of_two_is_a_copy_and_zero_is_absence():
    X, y = line(50)
    twice = compare(np.repeat(X, 2, axis=0), np.repeat(y, 2), ["Marginal"]).table()
    double = compare(X, y, ["Marginal"], sample_weight=np.full(50, 2.0)).table()
    columns = ["crps", "crps_se", "coverage_50", "coverage_90", "calibration_error"]
    np.testing.assert_allclose(double[columns[:2]], twice[columns[:2]])
    weight = np.random.default_rng(0).integers(0, 3, 50).astype(float)
    some = weight > 0
    group = np.arange(50) // 2
    full = compare(X, y, {"KNN": KNN}, sample_weight=weight, groups=group)
    part = compare(X[some], y[some], {"KNN": KNN}, sample_weight=weight[some], groups=group[some])
    np.testing.assert_allclose(full.table()[columns].astype(float), part.table()[columns])
    assert sorted(set(full.records["row"])) == np.flatnonzero(some).tolist()


def test_a_model_that_fails_is_reported_and_the_others_go_on():
    X, y = line(40)
    models = {
        "never": Broken(ValueError("too\nhard")),
        "once": Broken(KeyError("oops"), unless=X[7]),
        "absent": Broken(ImportError("absent needs the package 'x': pip install x")),
        "KNN": KNN,
    }
    states = []
    result = compare(X, y, models, progress=states.append)
    table = result.table().set_index("model")
    assert list(table.index) == ["KNN", "Marginal", "never", "once"]
    assert table["rank"].tolist()[:2] == [1, 2]
    assert table["rank"].isna().tolist() == [False, False, True, True]
    assert table.loc["never", "reason"] == "5 of 5 folds: ValueError: too hard"
    assert table.loc["once", "reason"] == "1 of 5 folds: KeyError: 'oops'"
    assert pd.isna(table.loc["KNN", "reason"])
    assert result.left_out == {"absent": "absent needs the package 'x': pip install x"}
    assert result.verdict().splitlines()[-1].endswith("not installed: never, once and absent.")
    assert len(states) == 26
    assert list(states[0].values()) == ["running"] + ["waiting"] * 24
    assert set(states[-1].values()) == {"done", "failed"}
    failed = [cell for cell, state in states[-1].items() if state == "failed"]
    assert len(failed) == 11
    assert ("once", int(balanced_folds(units(X))[7])) in failed


def test_infinite_forecasts_are_a_failure():
    class Infinite(Zeros):
        def predict_dist(self, X):
            return QuantileTable([0.0, 1.0], np.tile([-np.inf, np.inf], (len(X), 1)))

    result = compare(*line(40), {"a": Infinite()})
    assert "NaN or infinite" in result.failed["a"]


def test_which_models_take_part():
    assert set(FIRST_CHOICE) <= set(MODULES)

    class Enough(Exception):
        pass

    def stop(states):
        raise Enough(*dict.fromkeys(model for model, _ in states))

    X, y = line(40)
    expected = {None: FIRST_CHOICE, "all": tuple(MODULES), "KNN": ("KNN", "Marginal")}
    for models, names in expected.items():
        with pytest.raises(Enough) as stopped:
            compare(X, y, models, progress=stop)
        assert stopped.value.args == names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["KNNN"]}, "there is no model 'KNNN'; the models are GENTLE"),
        ({"models": {"Marginal": KNN}}, "the label 'Marginal' is kept"),
        ({"n_folds": 1}, "n_folds must be at least 2 and at most 20"),
        ({"n_folds": 21}, "at most 20, the number of sets of rows .* got 21"),
        ({"groups": np.arange(20) // 10, "n_folds": 3}, "at most 2"),
        ({"groups": [1, 2]}, "groups has 2 entries, but X has 20 rows"),
        ({"groups": [None] + ["a"] * 19}, "groups has no value in row 0"),
        (
            {"groups": ["a"] * 19 + [None], "sample_weight": [0.0] + [1.0] * 19},
            "groups has no value in row 19",
        ),
        ({"y": np.ones(20)}, "y is constant"),
        ({"X": [[np.inf]] * 20}, "infinity"),
        ({"sample_weight": [-1.0] * 20}, "sample_weight must not be negative"),
        ({"X": [[1.0], [2.0]], "y": [1.0, 2.0], "n_folds": 2}, "not even .* at least 2 rows"),
    ],
)
def test_what_cannot_be_compared(changes, message):
    X, y = line(20)
    with pytest.raises(ValueError, match=message):
        compare(**({"X": X, "y": y, "models": ["Marginal"]} | changes))


def test_rows_that_nearly_all_hang_together_are_warned_of():
    X, y = line(40)
    with pytest.warns(UserWarning, match="75% of the rows are linked"):
        compare(X, y, ["Marginal"], groups=np.r_[np.zeros(30), np.arange(1, 11)])


# Scores


def test_standard_errors_are_those_of_resampled_units():
    X, y, weight, patient = visits()
    result = compare(X, y, {"KNN": KNN}, groups=patient, sample_weight=weight)
    table = result.table().set_index("model")
    records = result.records.pivot(index="row", columns="model", values="crps")
    crps = records[["KNN", "Marginal"]].to_numpy()
    unit = units(X, patient)
    n_units = unit.max() + 1
    sums = np.array([(weight * c) @ (unit[:, None] == np.arange(n_units)) for c in crps.T])
    total = weight @ (unit[:, None] == np.arange(n_units))
    drawn = np.random.default_rng(0).integers(0, n_units, (20_000, n_units))
    means = sums[:, drawn].sum(axis=2) / total[drawn].sum(axis=1)  # (2, repetitions)
    np.testing.assert_allclose(table.loc[["KNN", "Marginal"], "crps_se"], means.std(1), rtol=0.04)
    assert table.loc["Marginal", "difference_se"] == pytest.approx(
        (means[1] - means[0]).std(), rel=0.04
    )
    naive = np.sqrt(weight**2 @ (crps[:, 1] - np.average(crps[:, 1], weights=weight)) ** 2)
    assert table.loc["Marginal", "crps_se"] > 1.2 * naive / weight.sum()  # patients do matter
    np.testing.assert_allclose(
        table.loc[["KNN", "Marginal"], "crps"], np.average(crps, axis=0, weights=weight)
    )


def test_standard_errors_of_independent_rows_are_the_textbook_ones():
    X, y = line(100)
    result = compare(X, y, {"KNN": KNN})
    crps = result.records.pivot(index="row", columns="model", values="crps")
    table = result.table().set_index("model")
    for model in ("KNN", "Marginal"):
        assert table.loc[model, "crps_se"] == pytest.approx(crps[model].std() / 10)
    gap = crps["Marginal"] - crps["KNN"]
    assert table.loc["Marginal", "difference"] == pytest.approx(gap.mean())
    assert table.loc["Marginal", "difference_se"] == pytest.approx(gap.std() / 10)
    assert table.loc["KNN", "skill"] == pytest.approx(
        1 - crps["KNN"].mean() / crps["Marginal"].mean()
    )
    assert table.loc["Marginal", "skill"] == 0


def test_pit_values_of_a_calibrated_model_with_atoms_are_uniform():
    X, y = zeros()
    result = compare(X, y, {"truth": Zeros(), "wide": Zeros(2.0)}, n_folds=2)
    truth, wide = (result.records.query(f"model == '{m}'") for m in ("truth", "wide"))
    assert kstest(truth["pit"], "uniform").pvalue > 0.01
    at_atom = truth["pit"][y[truth["row"]] == 0.1]
    assert len(at_atom) > 500
    assert at_atom.nunique() == len(at_atom)
    assert kstest(wide["pit"], "uniform").pvalue < 1e-6
    table = result.table().set_index("model")
    assert table.loc["truth", "coverage_50"] == pytest.approx(0.5, abs=0.03)
    assert table.loc["truth", "coverage_90"] == pytest.approx(0.9, abs=0.02)
    assert table.loc["truth", "calibration_error"] < 0.015
    # The mean distance between two distributions on (0, 1) is also that of their quantiles.
    quantiles = np.quantile(wide["pit"], (np.arange(20_000) + 0.5) / 20_000, method="hazen")
    expected = np.abs(quantiles - (np.arange(20_000) + 0.5) / 20_000).mean()
    assert table.loc["wide", "calibration_error"] == pytest.approx(expected, abs=1e-3)
    assert "truth is badly" not in result.verdict()


def test_distances_are_those_of_covariates_that_repeat():
    rng = np.random.default_rng(0)
    X = np.r_[np.repeat(np.arange(12.0), 25), np.arange(100, 140)][:, None]
    y = X[:, 0] / 50 + rng.normal(size=len(X))
    weight = rng.random(len(X)) + 0.5
    result = compare(X, y, {"KNN": KNN}, sample_weight=weight, n_folds=3)
    table = result.table().set_index("model")
    assert table["n_repeated"].tolist() == [12, 12]
    fold = result.records.query("model == 'KNN'").sort_values("row")["fold"].to_numpy()
    expected = []
    for k in range(3):
        train, test = fold != k, (fold == k) & (X[:, 0] < 100)
        model = gentle.KNN(n_neighbors=20).fit(X[train], y[train], weight[train])
        expected.append(evaluate(model, X[test], y[test], weight[test]).records)
    for name in ("wd", "ks"):
        assert table.loc["KNN", name] == pytest.approx(pd.concat(expected)[name].mean())
        assert table.loc["KNN", name] > table.loc["KNN", f"{name}_floor"]
    floor = noise_floor(None, X, y, weight)
    assert table.loc["KNN", "wd_floor"] == floor.loc["wd", "mean"]
    without = compare(X, y, ["Marginal"], min_responses=26)
    assert without.floor is None
    assert without.table()[["wd", "ks", "wd_floor"]].isna().all(axis=None)


# Words


def test_the_better_model_ranks_first_and_wins():
    X, y = line(300)
    models = {"far": gentle.KNN(n_neighbors=150), "near": KNN}
    result = compare(X, y, models)
    assert result.table()["model"].tolist() == ["near", "far", "Marginal"]
    first, second = result.verdict().splitlines()[:2]
    crps = result.table().set_index("model")["crps"]
    assert first == (
        f"near wins: its CRPS is {100 * (1 - crps['near'] / crps['far']):.0f} % smaller than "
        "far's, the runner-up, more than noise."
    )
    assert f"{100 * (1 - crps['near'] / crps['Marginal']):.0f} % smaller" in second
    assert "ignores the covariates" in second


def test_on_pure_noise_nothing_beats_the_marginal():
    rng = np.random.default_rng(2)
    result = compare(rng.normal(size=(300, 2)), rng.normal(size=300), {"KNN": KNN})
    verdict = result.verdict()
    assert verdict.startswith(
        "None of these models beats a forecast that ignores the covariates by more than noise"
    )
    assert "wins" not in verdict
    only = compare(*line(40), ["Marginal"])
    assert only.verdict().startswith("None of these models")


def made(crps, seconds=None, pit=None):
    """A comparison with given scores of rows, in which every row is a unit."""
    n = len(next(iter(crps.values())))
    pit = np.random.default_rng(0).random(n) if pit is None else pit
    base = {"row": np.arange(n), "unit": np.arange(n), "weight": 1.0, "fold": 0, "pit": pit}
    base |= {"covered_50": abs(pit - 0.5) <= 0.25, "covered_90": abs(pit - 0.5) <= 0.45}
    records = pd.concat([pd.DataFrame(base | {"model": m, "crps": c}) for m, c in crps.items()])
    seconds = seconds or {}
    cells = [
        {"model": m, "fold": 0, "fit_seconds": seconds.get(m, 1.0), "predict_seconds": 0.0}
        for m in crps
    ]
    cells = pd.DataFrame(cells).assign(error=None, missing=False)
    return Comparison(records, cells, pd.DataFrame({"model": [], "wd": [], "ks": []}), None, "base")


NOISE = np.random.default_rng(0).normal(size=100)
NOISE -= NOISE.mean()


@pytest.mark.parametrize(("sd", "beyond"), [(0.4, True), (0.6, False)])
def test_noise_ends_at_two_standard_errors(sd, beyond):
    # The mean difference is 0.1, its standard error sd / 10.
    gap = 0.1 + sd * NOISE / NOISE.std(ddof=1)
    verdict = made({"a": np.ones(100), "b": 1 + gap, "base": np.full(100, 9.0)}).verdict()
    wins = "a wins: its CRPS is 9.1 % smaller than b's, the runner-up, more than noise."
    tied = "a has the smallest CRPS, but only 9.1 % smaller than b's, which is within noise"
    assert verdict.startswith(wins if beyond else tied)


def test_ties_and_losers_and_our_own_model_are_named():
    scores = {
        "a": np.ones(100),
        "b": 1.01 + NOISE,
        "c": 1.02 + NOISE,
        "GENTLE": np.full(100, 1.25),
        "d": 5 + NOISE,
        "base": np.full(100, 5.0),
        "e": np.full(100, 6.0),
    }
    verdict = made(scores).verdict().splitlines()
    assert "only 0.99 % smaller than b's, which is within noise" in verdict[0]
    assert verdict[1:] == [
        "Nor can they tell a from c.",
        "a's CRPS is 20 % smaller than GENTLE's, more than noise.",
        "a's CRPS is 80 % smaller than that of a forecast that ignores the covariates.",
        "d does not beat that forecast by more than noise.",
        "e does worse than that forecast.",
    ]


def test_who_is_nearly_as_good_but_much_faster():
    scores = {"a": np.ones(100), "b": np.full(100, 1.01), "base": np.full(100, 3.0)}
    slow = made(scores, {"a": 60.0, "b": 2.0})
    expected = "b is nearly as good (its CRPS is 1 % larger) and 30 times faster: 2 s per fold"
    assert expected in slow.verdict()
    for seconds in ({"a": 60.0, "b": 20.0}, {"a": 0.5, "b": 0.01}, {"a": 2.0, "b": 60.0}):
        assert "faster" not in made(scores, seconds).verdict()
    assert "faster" not in made(scores | {"b": np.full(100, 1.1)}, {"a": 60.0}).verdict()


def test_who_is_badly_calibrated():
    scores = {"a": np.ones(400), "base": np.full(400, 3.0)}
    uniform = (np.arange(400) + 0.5) / 400
    assert "calibrated" not in made(scores, pit=uniform).verdict()
    # Pushed to the ends, so that 1 - 2 (0.05 / 4)^(1/3) = 54 % are left between 0.05 and 0.95.
    ends = np.where(uniform < 0.5, 4 * uniform**3, 1 - 4 * (1 - uniform) ** 3)
    narrow = made(scores, pit=ends).verdict()
    assert "a is badly calibrated: its 90 % intervals hold 54 % of the responses, so" in narrow
    assert "too narrow" in narrow
    wide = made(scores, pit=0.3 + 0.4 * uniform).verdict()
    assert "its 50 % intervals hold 100 % of the responses, so its forecasts are too wide" in wide
    few = made({m: c[:8] for m, c in scores.items()}, pit=uniform[::50] * 0.4 + 0.3).verdict()
    assert "90 % intervals" not in few  # eight rows out of eight are no proof
    assert "only 8 independent units" in few
