import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import gentle
from gentle import KNN, Marginal, QuantileTable, diagnostics
from gentle.diagnostics import OutOfSupportWarning, calibration, coverage, pit, support


class Mixed:
    """The truth: 0 with probability 1/(1 + e^x), else an exponential of mean e^x."""

    grid = np.concatenate([np.linspace(0, 0.999, 200), [1.0]])

    def predict_dist(self, X):
        x = np.asarray(X, float)[:, :1]
        zero = stats.logistic.sf(x)
        levels = np.hstack([np.zeros_like(x), zero + (1 - zero) * self.grid])
        values = np.exp(x) * stats.expon.ppf(np.append(self.grid[:-1], 0.9995))
        return QuantileTable(levels, np.hstack([np.zeros_like(x), values]))

    def sample(self, X, seed):
        return self.predict_dist(X).sample(1, seed)[:, 0]


class Moved:
    """Standard normal times a factor plus a shift."""

    def __init__(self, factor=1.0, shift=0.0):
        levels = np.linspace(0, 1, 2001)
        values = stats.norm.ppf(np.clip(levels, 1e-5, 1 - 1e-5))
        self.one = QuantileTable(levels, factor * values[None] + shift)

    def predict_dist(self, X):
        return self.one.repeat(len(X))


def test_pit_is_uniform_under_the_truth_also_at_atoms():
    X = np.random.default_rng(0).normal(size=(4000, 1))
    y = Mixed().sample(X, seed=1)
    assert 0.4 < np.mean(y == 0) < 0.6
    u = pit(Mixed(), X, y)
    assert stats.kstest(u, "uniform").pvalue > 0.01
    assert stats.kstest(u[X[:, 0] > 1], "uniform").pvalue > 0.01
    plain = Mixed().predict_dist(X).cdf(y)  # without randomisation it is not
    assert stats.kstest(plain, "uniform").pvalue < 1e-6


def test_pit_of_a_coin_lies_on_the_side_that_came_up():
    coins = QuantileTable.of_sample([0.0, 1.0], [0.3, 0.7]).repeat(2000)
    y = np.arange(2000) % 2
    u = pit(coins, None, y)
    assert u[y == 0].max() < 0.3 < u[y == 1].min()
    np.testing.assert_allclose(u[y == 0].mean(), 0.15, atol=0.02)
    np.testing.assert_array_equal(pit(coins, None, y), u)
    few = QuantileTable.of_sample([0.0, 1.0], [0.3, 0.7]).repeat(9)
    np.testing.assert_array_equal(pit(few, None, y[:9]), u[:9])
    assert not np.array_equal(pit(coins, None, y, random_state=1), u)


def test_pit_of_a_continuous_distribution_is_its_cdf():
    y = np.random.default_rng(0).normal(size=50)
    expected = Moved().predict_dist(y).cdf(y)
    np.testing.assert_allclose(pit(Moved(), np.zeros((50, 1)), y), expected, atol=1e-12)


def test_true_predictions_are_called_calibrated_with_the_stated_probability():
    rng = np.random.default_rng(0)
    unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]])
    n_repeats, by, alarms = 300, np.repeat(["a", "b", "c"], [20, 50, 130]), 0
    for _ in range(n_repeats):
        table = calibration(unit.repeat(200), None, rng.random(200), by, confidence=0.9)
        alarms += (table["verdict"] != "calibrated").any()
    # At most 10 % by Bonferroni, which gives some of it away, but not all.
    assert 0.01 < alarms / n_repeats < 0.1 + 3 * np.sqrt(0.09 / n_repeats)


def test_bands_are_exact_binomial_limits_of_all_groups_and_levels_together():
    y = np.random.default_rng(0).random(100)
    unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]]).repeat(100)
    table = calibration(unit, None, y, by=y > 0.5, levels=[0.3, 0.8])
    assert list(table.index.get_level_values("group").unique()) == ["all rows", "False", "True"]
    error = 0.05 / 6
    row = table.loc[("all rows", 0.3)]
    assert row["observed"] == np.mean(y <= 0.3)
    below = stats.binom.cdf(round(row["lower"] * 100) - 1, 100, 0.3)
    above = stats.binom.sf(round(row["upper"] * 100), 100, 0.3)
    assert 0 < below <= error / 2
    assert 0 < above <= error / 2
    n_high = int(np.sum(y > 0.5))
    assert table["n"].tolist() == [100] * 2 + [100 - n_high] * 2 + [n_high] * 2


@pytest.mark.parametrize(
    ("factor", "shift", "verdict"),
    [
        (1.0, 0.0, "calibrated"),
        (0.6, 0.0, "too narrow"),
        (1.6, 0.0, "too wide"),
        (1.0, 0.5, "too high"),
        (1.0, -0.5, "too low"),
    ],
)
def test_verdicts_say_what_is_wrong(factor, shift, verdict):
    y = np.random.default_rng(0).normal(size=1000)
    table = calibration(Moved(factor, shift), y[:, None], y)
    assert set(table["verdict"]) == {verdict}


def test_a_wrong_shape_is_called_so():
    unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]])
    half = np.random.default_rng(0).uniform(0.2, 0.3, 1000)  # mean and width as they should be
    table = calibration(unit.repeat(2000), None, np.concatenate([half, 1 - half]))
    assert set(table["verdict"]) == {"wrong shape"}


def test_a_fault_in_one_group_is_found_there():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"sex": rng.choice(["f", "m"], 4000), "age": rng.uniform(20, 60, 4000)})
    X.loc[:99, "sex"] = None
    y = rng.normal(size=4000) * np.where(X["age"] > 50, 2.0, 1.0)
    by_sex = calibration(Moved(1.15), X, y, by="sex")
    assert list(by_sex.index.get_level_values(0).unique()) == ["all rows", "f", "m", "missing"]
    by_age = calibration(Moved(), X, y, by="age")
    verdicts = by_age.groupby("group", sort=False)["verdict"].first()
    assert len(verdicts) == 5
    assert verdicts.iloc[1:].tolist() == ["calibrated"] * 3 + ["too narrow"]
    older = calibration(Moved(), X, y, by=lambda frame: np.where(frame["age"] > 50, "old", "young"))
    assert older.loc["old", "verdict"].iloc[0] == "too narrow"
    assert older.loc["young", "verdict"].iloc[0] == "calibrated"
    array = X[["age"]].to_numpy()
    pd.testing.assert_frame_equal(calibration(Moved(), array, y, by=0), by_age)


def test_weights_are_copies_in_what_is_observed_and_zero_is_absence():
    rng = np.random.default_rng(0)
    y, w = rng.normal(size=300), rng.integers(0, 4, 300)
    X = y[:, None]
    for ask in (calibration, coverage):
        weighted = ask(Moved(), X, y, sample_weight=w)
        copies = ask(Moved(), np.repeat(X, w, axis=0), np.repeat(y, w))
        np.testing.assert_allclose(weighted["observed"], copies["observed"])
        assert (weighted["n"] == np.sum(w > 0)).all()
        assert (weighted["upper"] - weighted["lower"] > copies["upper"] - copies["lower"]).all()
        kept = ask(Moved(), X[w > 0], y[w > 0], sample_weight=w[w > 0])
        np.testing.assert_allclose(kept["observed"], weighted["observed"])


def test_coverage_has_clopper_pearson_intervals_and_mean_widths():
    y = np.random.default_rng(0).normal(size=400)
    table = coverage(Moved(2.0), y[:, None], y, coverages=[0.5, 0.9])
    hits = np.abs(y) <= 2 * stats.norm.ppf(0.75)
    exact = stats.binomtest(int(hits.sum()), 400).proportion_ci(0.95, method="exact")
    row = table.loc[("all rows", 0.5)]
    np.testing.assert_allclose(row["observed"], hits.mean(), atol=0.003)
    np.testing.assert_allclose([row["lower"], row["upper"]], exact, atol=0.004)
    np.testing.assert_allclose(row["width"], 4 * stats.norm.ppf(0.75), rtol=1e-3)
    all_in = coverage(Moved(100.0), y[:, None], y, coverages=[0.95]).iloc[0]
    assert all_in["observed"] == pytest.approx(1)
    assert all_in["upper"] == 1
    assert all_in["lower"] == pytest.approx(0.025 ** (1 / 400))


def test_coverage_at_atoms_is_right_randomised_and_larger_inside():
    X = np.random.default_rng(0).normal(size=(5000, 1))
    y = Mixed().sample(X, seed=2)
    table = coverage(Mixed(), X, y)
    assert (table["lower"] <= table.index.get_level_values(1)).all()
    assert (table["upper"] >= table.index.get_level_values(1)).all()
    assert (table["inside"] > table["observed"] + 0.02).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1.0, np.nan]}, "2 finite numbers"),
        ({"y": [1.0]}, r"2 finite numbers, one per row; got shape \(1,\)"),
        ({"by": "age"}, "no DataFrame"),
        ({"by": ["a"]}, "by gives 1 labels, but there are 2 rows"),
        ({"confidence": 1.5}, "confidence must lie between 0 and 1"),
        ({"levels": [0.5, 1.0]}, "levels must lie between 0 and 1"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight must not be negative"),
    ],
)
def test_bad_questions_are_refused(change, message):
    arguments = {"X": np.zeros((2, 1)), "y": [0.0, 1.0]} | change
    with pytest.raises(ValueError, match=message):
        calibration(Moved(), **arguments)


# Rows unlike the training data


def people(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "income": rng.lognormal(10, 1, n),
            "town": rng.choice(["Rome", "Oslo", "Bern"], n),
            "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 2000, n), "D"),
        }
    )


@pytest.fixture(scope="module")
def model():
    X = people(500, 0)
    return KNN(n_neighbors=5).fit(X, X["age"])


def test_rows_like_the_training_data_give_no_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error", OutOfSupportWarning)
        for seed in range(1, 6):
            model.sample(people(200, seed))
        X = people(30, 9)
        X.loc[3, "age"] = np.nan
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", OutOfSupportWarning)
        model.predict(X)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("age", 200.0, r"2 of 30 rows .* in column 'age' \(far beyond its range"),
        ("town", "Paris", r"2 of 30 rows .* in column 'town' \(values never seen in fit"),
        ("since", pd.Timestamp("2090-01-01"), "in column 'since'"),
    ],
)
def test_rows_far_away_give_one_warning_that_names_the_column(model, column, value, said):
    X = people(30, 1)
    X.loc[:1, column] = value
    for ask in (model.predict, model.sample, model.predict_dist, lambda X: model.cdf(X, 1.0)):
        with pytest.warns(OutOfSupportWarning, match=said) as caught:
            ask(X)
        assert len(caught) == 1
    table = support(model, X)
    assert table["far"].tolist() == [True, True] + [False] * 28
    assert set(table["column"][:2]) == {column}
    assert table["excess"][0] > 0.5


def test_a_column_that_was_constant_and_a_rare_level_are_told_apart():
    X = people(300, 0).assign(sex="f", name=[f"n{i}" for i in range(300)])
    with pytest.warns(UserWarning, match="carry no information"):
        model = Marginal().fit(X, X["age"])
    new = people(9, 1).assign(sex="f", name="somebody else")
    assert not support(model, new)["far"].any()
    new.loc[4, "sex"] = "m"
    table = support(model, new)
    assert table["far"].tolist() == [i == 4 for i in range(9)]
    assert table["column"][4] == "sex"


def test_the_warning_survives_saving(model, tmp_path):
    model.save(tmp_path / "m")
    X = people(3, 1)
    X.loc[0, "age"] = 500.0
    with pytest.warns(OutOfSupportWarning, match="1 of 3 rows"):
        gentle.load(tmp_path / "m").predict(X)


def test_unusual_combinations_are_found_with_the_training_rows():
    rng = np.random.default_rng(0)

    def correlated(n):
        z = rng.normal(size=(n, 1))
        return np.hstack([z, z + 0.05 * rng.normal(size=(n, 1))])

    X = correlated(2000)
    model = KNN(n_neighbors=5).fit(X, X[:, 0])
    strange = np.array([[1.5, -1.5]])
    assert not support(model, strange)["far"].any()
    assert support(model, strange, X)["far"].all()
    usual = support(model, correlated(5000), X)
    assert usual["far"].mean() < 0.02  # 1 % by design
    np.testing.assert_allclose((usual["usual"] <= 0.2).mean(), 0.2, atol=0.03)
    scale = X.std(axis=0)
    nearest = np.linalg.norm((X - strange) / scale, axis=1).min()
    assert support(model, strange, X)["distance"][0] == pytest.approx(nearest)


def test_false_alarms_of_the_range_alone_are_rarer_than_one_row_in_a_hundred():
    rng = np.random.default_rng(0)
    alarms = []
    for draw in (rng.normal, rng.lognormal, rng.exponential, rng.standard_cauchy):
        for _ in range(20):
            X = draw(size=(300, 3))
            model = Marginal().fit(X, X[:, 0])
            alarms.append(support(model, draw(size=(1000, 3)))["far"].mean())
    assert np.max(np.reshape(alarms, (4, 20)).mean(axis=1)) < 0.01


def test_wrong_columns_are_refused_like_everywhere(model):
    with pytest.raises(ValueError, match="order must be"):
        support(model, people(3, 1)[["town", "age", "income", "since"]])


def test_public_names_resolve():
    for name in diagnostics.__all__:
        assert getattr(diagnostics, name) is not None


def test_levels_called_missing_or_all_rows_keep_their_rows():
    labels = pd.Series(["missing", None, "all rows", "missing", "b", "b"])
    model, X, y = (
        Marginal().fit(np.arange(6.0)[:, None], np.arange(6.0)),
        np.zeros((6, 1)),
        np.ones(6),
    )
    table = diagnostics.coverage(model, X, y, by=labels)
    counts = table["n"].groupby(level=0).first()
    assert counts.to_dict() == {
        "all rows": 6, "'missing'": 2, "'all rows'": 1, "b": 2, "missing": 1
    }  # fmt: skip
