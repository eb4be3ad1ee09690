from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gentle import QuantileForest, QuantileTable, importance, metrics, plots
from gentle.transport import wasserstein

LEVELS = np.linspace(0, 1, 2001)
PARTS = ["0-0.1", "0.1-0.9", "0.9-1"]


class Law:
    """Y = location(x) + scale(x) Z with Z uniform on (-1, 1)."""

    response_name_ = "rent [$]"

    def __init__(self, location, scale=lambda X: 1.0):
        self.location, self.scale, self.n_calls = location, scale, 0

    def predict_dist(self, X):
        self.n_calls += 1
        centre, width = (np.broadcast_to(f(X), len(X)) for f in (self.location, self.scale))
        return QuantileTable([0.0, 1.0], np.stack([centre - width, centre + width], axis=1))


class Tail(Law):
    """Standard normal, but for the upper tenth, which moves with x."""

    def __init__(self):
        pass

    def predict_dist(self, X):
        up = np.where(LEVELS > 0.9, 1.0, 0.0) * X["x"].to_numpy()[:, None] ** 2
        return QuantileTable(LEVELS, stats.norm.ppf(LEVELS.clip(0.001, 0.999)) + up)


def numbers(n=300, d=3, seed=0):
    return pd.DataFrame(
        np.random.default_rng(seed).normal(size=(n, d)), columns=list("abcdefgh")[:d]
    )


def additive(X):
    return 2 * X["a"].to_numpy() + X["b"].to_numpy() ** 2


def test_permutation_in_wasserstein_is_the_mean_shift_of_a_location():
    X = numbers(2000)
    table = importance.permutation(Law(additive), X, metric="wasserstein", n_repeats=4)
    a, b = X["a"].to_numpy(), X["b"].to_numpy() ** 2
    expected = [2 * np.abs(a - a[:, None]).mean(), np.abs(b - b[:, None]).mean(), 0.0]
    np.testing.assert_allclose(table["mean"], expected, rtol=0.05, atol=1e-12)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["mean"])
    np.testing.assert_allclose(table["0-0.1"], 0.1 * table["mean"])  # every level moves alike
    assert np.all(np.abs(table["mean"] - expected) <= 4 * table["se"] + 1e-12)


def test_permutation_finds_the_part_of_the_distribution_that_moves():
    X = pd.DataFrame({"x": np.random.default_rng(0).normal(size=200)})
    table = importance.permutation(Tail(), X, metric="wasserstein", n_repeats=3)
    assert table.loc["x", "0.9-1"] == pytest.approx(table.loc["x", "mean"], rel=1e-9)
    assert table.loc["x", "0-0.1"] == table.loc["x", "0.1-0.9"] == 0
    halves = importance.permutation(
        Tail(), X, metric="wasserstein", n_repeats=3, parts=[0.5], verbose=0
    )
    assert halves.attrs["parts"] == ["0-0.5", "0.5-1"]
    assert halves.loc["x", "0.5-1"] == pytest.approx(table.loc["x", "mean"], rel=0.01)


def test_permutation_in_crps_is_the_rise_of_the_exact_score():
    X = numbers(400)
    law = Law(additive, lambda X: 1 + X["c"].to_numpy() ** 2)
    y = law.predict_dist(X).sample(random_state=0)[:, 0]
    table = importance.permutation(law, X, y, n_repeats=2, random_state=5)
    rng, rises = np.random.default_rng(5), []
    for _ in range(2):
        order = rng.permutation(len(X))
        for column in X:
            mixed = X.assign(**{column: X[column].to_numpy()[order]})
            rises.append(np.mean(law.predict_dist(mixed).crps(y) - law.predict_dist(X).crps(y)))
    one, two = np.reshape(rises, (2, 3))
    np.testing.assert_allclose(table["mean"], (one + two) / 2, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(table["se"], np.abs(one - two) / 2, rtol=0.02, atol=2e-3)
    assert table.attrs["unshuffled"] == pytest.approx(
        metrics.evaluate(law, X, y, n_samples=2).summary()["crps"], rel=1e-3
    )
    assert table.attrs["response"] == "rent [$]"
    # c matters only for the width: nothing at the median, all towards both tails.
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["mean"])


def test_columns_of_a_group_are_shuffled_together():
    X = numbers(500).assign(b=lambda t: t["a"])
    law = Law(lambda X: X["a"].to_numpy() - X["b"].to_numpy())  # 0, unless one goes alone
    alone = importance.permutation(law, X, metric="wasserstein", n_repeats=2)
    both = importance.permutation(
        law, X, metric="wasserstein", n_repeats=2, groups={"both": ["a", "b"]}
    )
    assert alone.loc["a", "mean"] > 1
    assert list(both.index) == ["both", "c"]
    assert both.loc["both", "mean"] == 0


def test_cells_of_every_kind_can_be_exchanged_and_nothing_else_changes():
    rng, n = np.random.default_rng(0), 200
    X = pd.DataFrame(
        {
            "number": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(["Rome", "Oslo", None], n),
            "order": pd.Categorical(rng.choice([*"abc"], n), [*"abc"], ordered=True),
            "on": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, n), "D"),
            "wait": pd.to_timedelta(rng.integers(0, 99, n), "s"),
            "flag": rng.random(n) < 0.5,
        },
        index=np.arange(n) * 7,
    )
    y = X["number"].fillna(1) + 3 * (X["town"] == "Rome") + rng.normal(size=n)
    model, before = QuantileForest(random_state=0).fit(X, y), X.copy()
    table = importance.permutation(model, X, y, n_repeats=2)
    assert table["mean"].idxmax() == "town"
    shares = importance.shapley(model, X, y, n_rows=20, background=5, n_permutations=4)
    assert shares["mean"].idxmax() == "town"
    for column in X:
        effects = importance.local_effects(model, X, column, n_bins=4)
        assert np.isfinite(effects).all(axis=None)
        assert plots.local_effects(effects).get_xlabel().startswith(column)
    pd.testing.assert_frame_equal(X, before)


@pytest.mark.parametrize("metric", ["crps", "wasserstein"])
def test_shapley_values_are_those_of_all_orders(metric):
    X, rng = numbers(12), np.random.default_rng(1)
    pool = numbers(5, seed=2)
    law = Law(
        lambda X: X["a"].to_numpy() * X["b"].to_numpy() + X["c"].to_numpy(),
        lambda X: 1 + X["b"].to_numpy() ** 2,
    )
    y = rng.normal(size=12)
    table = importance.shapley(law, X, y, metric=metric, background=pool)
    u = (np.arange(4000) + 0.5) / 4000

    def worth(known):
        total = 0.0
        nothing = law.predict_dist(pool).quantile(u).mean(axis=0)
        for i in range(12):
            mixed = pool.copy()
            for column in known:
                mixed[column] = X[column].iloc[i]
            average = law.predict_dist(mixed).quantile(u).mean(axis=0)
            if metric == "wasserstein":
                total += wasserstein(average, nothing)
            else:
                total -= QuantileTable.of_sample(average).crps([y[i]])[0]
        return total / 12

    expected = pd.Series(0.0, index=X.columns)
    for order in permutations("abc"):
        for k, column in enumerate(order):
            expected[column] += (worth(order[: k + 1]) - worth(order[:k])) / 6
    np.testing.assert_allclose(table["mean"], expected, rtol=2e-3, atol=1e-3)
    assert table["mean"].sum() == pytest.approx(table.attrs["all"] - table.attrs["none"], rel=1e-12)
    assert np.all(table["se"] == 0)


@pytest.mark.parametrize("metric", ["crps", "wasserstein"])
def test_sampled_shapley_values_add_up_exactly_whole_and_in_parts(metric):
    X = numbers(30, 8)
    law = Law(
        lambda X: X.to_numpy().prod(axis=1) + X["a"].to_numpy(), lambda X: np.exp(X["b"].to_numpy())
    )
    y = np.random.default_rng(0).normal(size=30)
    options = {"metric": metric, "background": 4, "n_permutations": 6, "random_state": 3}
    table = importance.shapley(law, X, y, **options)
    assert table["mean"].sum() == pytest.approx(table.attrs["all"] - table.attrs["none"], rel=1e-9)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["mean"], rtol=1e-9)
    assert np.all(table["se"] > 0)
    # Asking about all sets of covariates gives the exact values, near which the sampled ones are.
    exact = importance.shapley(law, X, y, **options | {"n_permutations": 64})
    assert np.all(exact["se"] == 0)
    assert exact.attrs["all"] == pytest.approx(table.attrs["all"], rel=1e-12)
    assert np.all(np.abs(table["mean"] - exact["mean"]) < 8 * table["se"])
    pd.testing.assert_frame_equal(table, importance.shapley(law, X, y, **options))


def test_shapley_takes_few_large_calls_and_some_of_the_rows():
    law = Law(additive)
    table = importance.shapley(law, numbers(5000), metric="wasserstein", n_rows=50, background=10)
    assert law.n_calls <= 2**3 + 1
    assert (table.attrs["n_rows"], table.attrs["n_background"]) == (50, 10)
    assert table.loc["c", "mean"] == pytest.approx(0, abs=1e-12)
    law = Law(additive)
    importance.permutation(law, numbers(300), metric="wasserstein", n_repeats=10)
    assert law.n_calls == 4  # once as it is, once for each column


def test_groups_share_one_shapley_value():
    X = numbers(40)
    options = {"metric": "wasserstein", "background": 6}
    table = importance.shapley(Law(additive), X, groups={"ab": ["a", "b"]}, **options)
    assert list(table.index) == ["ab", "c"]
    assert table.loc["ab", "mean"] == pytest.approx(table.attrs["all"])


def test_local_effects_of_an_additive_location_are_its_terms_at_every_level():
    rng = np.random.default_rng(0)
    a = rng.uniform(-2, 2, 4000)
    X = pd.DataFrame({"a": a, "b": a + 0.1 * rng.normal(size=4000)})  # strongly dependent
    law = Law(lambda X: np.sin(X["a"].to_numpy()) + 5 * X["b"].to_numpy())
    table = importance.local_effects(law, X, "a", levels=[0.1, 0.9], n_bins=40)
    at = table.index.get_level_values("value").to_numpy()
    np.testing.assert_allclose(table["effect"], np.sin(at) - np.sin(a).mean(), atol=2e-3)
    np.testing.assert_allclose(table["se"], 0, atol=1e-9)  # every row of a bin moves alike
    assert table["n"].groupby("level").sum().tolist() == [4000, 4000]
    wide = table["effect"].unstack("level")
    np.testing.assert_allclose(wide[0.1], wide[0.9])


def test_local_effects_of_a_width_fan_out_over_the_levels():
    X = numbers(3000, 2)
    law = Law(lambda X: X["b"].to_numpy(), lambda X: np.exp(X["a"].to_numpy()))
    levels = np.array([0.1, 0.5, 0.75])
    wide = importance.local_effects(law, X, "a", levels=levels, n_bins=50)["effect"].unstack()
    width = np.exp(wide.index.to_numpy()) - np.exp(X["a"]).mean()
    np.testing.assert_allclose(wide, np.outer(width, 2 * levels - 1), atol=0.05)
    np.testing.assert_allclose(wide[0.5], 0, atol=1e-12)


def test_standard_errors_of_local_effects_are_those_of_repetitions():
    def found(seed):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"a": np.repeat([0.0, 1, 2], 40), "b": rng.normal(size=120)})
        law = Law(lambda X: X["a"].to_numpy() * X["b"].to_numpy())
        return importance.local_effects(law, X, "a", levels=[0.5], n_bins=10)

    tables = [found(seed) for seed in range(200)]
    spread = np.std([table["effect"] for table in tables], axis=0)
    claimed = np.sqrt(np.mean([table["se"] ** 2 for table in tables], axis=0))
    np.testing.assert_allclose(claimed, spread, rtol=0.15)


def test_levels_of_a_category_stand_beside_those_with_similar_rows():
    rng, n = np.random.default_rng(0), 3000
    size = rng.integers(0, 5, n)
    names = np.array(["mid", "zeta", "alpha", "kappa", "beta"])
    X = pd.DataFrame({"town": names[size], "rooms": size + 0.3 * rng.normal(size=n)})
    effect = dict(zip(names, [0.0, 1.0, 4.0, 9.0, 16.0]))
    law = Law(lambda X: X["town"].map(effect).to_numpy(float))
    table = importance.local_effects(law, X, "town", levels=[0.5])
    order = [town for town, _ in table.index]
    assert order in (list(names), list(names)[::-1])
    shares = X["town"].value_counts(normalize=True)
    mean = sum(effect[town] * share for town, share in shares.items())
    np.testing.assert_allclose(table["effect"], [effect[town] - mean for town in order])
    assert table["n"].tolist() == X["town"].value_counts()[order].tolist()
    few = importance.local_effects(law, X, "town", levels=[0.5], n_bins=3)
    assert {town for town, _ in few.index} == set(shares.index[:3])


def test_ordered_levels_truth_values_and_steps_of_numbers_keep_their_order():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"flag": rng.random(300) < 0.3, "count": rng.integers(1, 4, 300)})
    X["grade"] = pd.Categorical(rng.choice(["low", "mid", "high"], 300), ["low", "mid", "high"])
    X["grade"] = X["grade"].cat.as_ordered()
    law = Law(lambda X: 2.0 * X["flag"].to_numpy(float) + X["count"].to_numpy() ** 2)

    def cells(column):
        table = importance.local_effects(law, X, column, levels=[0.5])
        return table["effect"].droplevel("level")

    assert list(cells("grade").index) == ["low", "mid", "high"]
    flag = cells("flag")
    assert list(flag.index) == [False, True]
    assert flag[True] - flag[False] == pytest.approx(2.0)
    count = cells("count")
    assert list(count.index) == [1, 2, 3]
    np.testing.assert_allclose(np.diff(count), [3, 5])


def test_global_random_state_stays_untouched():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    X = numbers(20)
    importance.permutation(Law(additive), X, metric="wasserstein")
    importance.shapley(Law(additive), X, metric="wasserstein", background=3)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: importance.permutation(Law(additive), X), "the CRPS needs responses"),
        (lambda X: importance.shapley(Law(additive), X, metric="wd"), "metric must be 'crps' or"),
        (lambda X: importance.permutation(Law(additive), X, X["a"][:5]), "y must be 20 finite"),
        (
            lambda X: importance.permutation(Law(additive), X, X["a"], n_repeats=1),
            "n_repeats must be at least 2, got 1",
        ),
        (
            lambda X: importance.shapley(Law(additive), X, X["a"], n_permutations=2),
            "n_permutations must be at least 4",
        ),
        (
            lambda X: importance.permutation(Law(additive), X, X["a"], parts=[0.9, 0.1]),
            "parts must be rising levels",
        ),
        (
            lambda X: importance.permutation(Law(additive), X, X["a"], groups={"g": ["a", "z"]}),
            "groups must be of different columns",
        ),
        (lambda X: importance.local_effects(Law(additive), X, "z"), "X has no column 'z'"),
        (
            lambda X: importance.local_effects(Law(additive), X.assign(a=1.0), "a"),
            "fewer than two values",
        ),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call(numbers(20))
