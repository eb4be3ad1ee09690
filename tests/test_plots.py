import sys
from itertools import pairwise
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from gentle import GENTLE, KNN, Marginal, QuantileForest, QuantileTable, metrics, plots
from gentle.comparison import compare
from gentle.diagnostics import calibration
from snapshots import FOLDER, MOST, assert_same_picture, difference, pixels

LEVELS = np.linspace(0, 1, 401)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(np.repeat(rng.normal(size=(8, 2)), 25, axis=0), columns=["a", "b"])
    return X, X["a"].to_numpy() + rng.normal(size=200)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


class Known:
    """Income that is 0 with a probability that falls with age; else it rises with it."""

    response_name_ = "income_usd"

    def predict_dist(self, X):
        age = X["age_years"].to_numpy(float)[:, None]
        town = X["town"].map({"Oslo": 0.0, "Rome": 2.0, "San Francisco": 5.0}).to_numpy()[:, None]
        none = np.clip(0.6 - age / 100, 0.1, 0.9)
        values = np.exp(0.4 * stats.norm.ppf(np.clip(LEVELS, 0.001, 0.999))) * (1 + age / 20) + town
        levels = np.concatenate([0 * none, none + (1 - none) * LEVELS], axis=1)
        return QuantileTable(levels, np.concatenate([0 * none, 0 * none, values[:, 1:]], axis=1))


def people(n=60):
    rng = np.random.default_rng(1)
    ages = rng.integers(20, 60, n)
    towns = rng.choice(["Oslo", "Rome", "San Francisco"], n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame({"age_years": ages, "town": towns})


def three():
    rows = pd.DataFrame({"age_years": [25, 40, 55], "town": "Oslo"})
    X = rows.iloc[np.repeat([0, 1, 2], [40, 30, 5])].reset_index(drop=True)
    return X, Known().predict_dist(X).sample(random_state=0)[:, 0]


def test_names_of_columns_become_labels_with_units():
    expected = {
        "income [$]": "income ($)",
        "age (years)": "age (years)",
        "age_years": "age (years)",
        "price_usd": "price ($)",
        "share_pct": "share (%)",
        "fit_seconds": "fit (seconds)",
        "hours": "hours",
        "number_of_rooms": "number of rooms",
        "re74": "re74",
    }
    assert {name: plots.label_of(name) for name in expected} == expected


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'gentle-ot\[plot\]'"):
        plots.responses_histogram(np.zeros((2, 1)))


def test_densities_show_every_model_in_a_panel_per_covariate(table):
    X, y = table
    models = {"KNN": KNN(n_neighbors=30).fit(X, y), "Marginal": Marginal().fit(X, y)}
    axes = plots.densities(models, X, y, unit="income (dollars)", n_panels=4, n_samples=200)
    visible = [axis for axis in axes.flat if axis.get_visible()]
    assert len(visible) == 4
    assert all(len(axis.lines) == 2 for axis in visible)
    assert axes.flat[0].figure.get_supxlabel() == "income (dollars)"


def test_densities_and_atoms_have_together_the_probability_of_one():
    X, _ = three()
    axis = plots.densities(Known(), X.iloc[[0]]).flat[0]
    right = next(other for other in axis.figure.axes if other is not axis)
    grid, density = axis.lines[0].get_data()
    inside = np.isfinite(density)
    continuous = integrate.trapezoid(density[inside], grid[inside])
    atom, mass = right.lines[0].get_data()
    np.testing.assert_allclose([atom[0], mass[0]], [0.0, 0.35], atol=1e-9)  # the only one
    seen = Known().predict_dist(X.iloc[[0]]).cdf([[grid[-1]]])[0, 0]  # the rest is out of view
    assert continuous == pytest.approx(seen - 0.35, abs=0.01)
    assert right.get_ylabel() == "probability of atoms"
    # The density at its highest is about that of the log-normal: no atom is a spike.
    truth = 0.65 * stats.lognorm(0.4, scale=1 + 25 / 20).pdf(grid[inside])
    np.testing.assert_allclose(density[inside].max(), truth.max(), rtol=0.1)
    np.testing.assert_allclose(density[inside], truth, atol=0.08 * truth.max())


def test_a_density_ends_with_the_support():
    unit = QuantileTable([0.0, 1.0], [[0.0, 1.0]])
    grid, density = plots.densities(unit, None).flat[0].lines[0].get_data()
    assert np.isnan(density[(grid < 0) | (grid > 1)]).all()
    np.testing.assert_allclose(density[(grid > 0) & (grid < 1)], 1, atol=0.02)


def test_a_point_mass_is_a_stem(table):
    X, y = table
    model = Marginal().fit(X, np.zeros(len(y)))
    axes = plots.densities({"Marginal": model}, X, np.zeros(len(y)), n_panels=2)
    held_out, own = axes.flat[0].figure.axes[2].lines
    assert held_out.get_ydata() == own.get_ydata() == [1.0]
    assert np.isnan(axes.flat[0].lines[0].get_ydata()).all()


def test_held_out_responses_are_bars_of_their_share_or_a_rug():
    X, y = three()
    axes = plots.densities(Known(), X, y)
    panels = {int(axis.get_title().split()[1].rstrip(":")): axis for axis in axes.flat}
    rug = panels[55].collections[0].get_segments()
    np.testing.assert_array_equal(sorted(s[0, 0] for s in rug), np.sort(y[X["age_years"] == 55]))
    assert not panels[55].patches
    for age in (25, 40):
        own, bars = y[X["age_years"] == age], panels[age].patches
        assert (own == 0).sum() >= 3  # an atom, which is no bar
        area = sum(bar.get_width() * bar.get_height() for bar in bars)
        ends = bars[0].get_x(), bars[-1].get_x() + bars[-1].get_width()
        assert area == pytest.approx(np.mean((own != 0) & (own >= ends[0]) & (own <= ends[1])))


def test_a_distribution_is_drawn_like_the_model_it_came_from():
    X, y = three()
    of_model = plots.densities({"same": Known()}, X, y)
    of_law = plots.densities({"same": Known().predict_dist(X)}, X, y)
    for one, other in zip(of_model.flat, of_law.flat):
        np.testing.assert_array_equal(one.lines[0].get_ydata(), other.lines[0].get_ydata())
    with pytest.raises(ValueError, match="the distribution has 2 rows, but X has 75"):
        plots.cdfs(Known().predict_dist(X[:2]), X)


def test_models_known_by_their_draws_are_drawn_too():
    class Coin:
        def sample(self, X, n_samples, random_state):
            rng = np.random.default_rng(random_state)
            return rng.integers(0, 2, (len(X), n_samples)).astype(float)

    axis = plots.densities({"coin": Coin()}, np.zeros((3, 1)), n_samples=2000).flat[0]
    atoms = axis.figure.axes[1].lines[0]
    np.testing.assert_allclose(atoms.get_xdata(), [0, 1])
    np.testing.assert_allclose(atoms.get_ydata(), [0.5, 0.5], atol=0.05)


def test_covariates_share_an_axis_that_is_given():
    _, axis = plt.subplots()
    X, y = three()
    assert plots.densities(Known(), X, y, axis=axis) is axis
    assert axis.get_xlabel() == "income ($)"
    labels = axis.get_legend_handles_labels()[1]
    assert sorted(labels) == ["age_years 25", "age_years 40", "age_years 55"]
    looks = {(line.get_color(), str(line.get_linestyle())) for line in axis.lines}
    assert len(looks) == 3


def test_cdfs_and_quantiles_are_those_of_the_distribution_and_steps_those_of_the_responses():
    X, y = three()
    only = X["age_years"] == 40
    dist = Known().predict_dist(X[only][:1])
    axis = plots.cdfs(Known(), X[only], y[only])
    values, levels = axis.lines[0].get_data()
    np.testing.assert_allclose(values, dist.quantile(levels)[0])
    away = values > 0
    np.testing.assert_allclose(dist.cdf(values[None])[0][away], levels[away], atol=1e-9)
    steps, heights = axis.lines[1].get_data()
    shares = stats.ecdf(y[only]).cdf
    for value in np.unique(y[only]):
        assert heights[steps == value].max() == pytest.approx(shares.evaluate(value))
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("income ($)", "probability")
    axis = plots.quantiles(Known(), X[only], y[only], label="pay")
    np.testing.assert_array_equal(axis.lines[0].get_data(), [levels, values])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("level", "pay")


def test_lines_of_several_covariates_and_models_can_be_told_apart_without_colours():
    X, _ = three()
    axis = plots.quantiles(Known(), X)
    assert len({str(line.get_linestyle()) for line in axis.lines}) == 3
    axis = plots.quantiles({"one": Known(), "two": Known()}, X)
    assert len(axis.lines) == 6
    looks = {(line.get_color(), str(line.get_linestyle())) for line in axis.lines}
    assert len(looks) == 6


def test_a_fan_shows_the_models_quantiles_along_a_number_all_else_typical():
    X = people()
    axis = plots.fan(Known(), X, "age_years", coverages=[0.5, 0.9])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("age (years)", "income ($)")
    assert axis.get_legend_handles_labels()[1] == ["90%", "50%", "median"]
    at, median = axis.lines[0].get_data()
    np.testing.assert_allclose([at[0], at[-1]], X["age_years"].quantile([0.01, 0.99]))
    rows = pd.DataFrame({"age_years": at, "town": "Oslo"})  # the most frequent
    expected = Known().predict_dist(rows).quantile([0.05, 0.5, 0.95])
    np.testing.assert_allclose(median, expected[:, 1])
    outline = axis.collections[0].get_paths()[0].vertices
    assert outline[:, 1].max() == pytest.approx(expected[:, 2].max())
    assert outline[:, 1].min() == pytest.approx(expected[:, 0].min())


def test_a_fan_has_intervals_for_each_level_of_a_category():
    X = people()
    axis = plots.fan(Known(), X, "town", coverages=[0.8])
    names = [text.get_text() for text in axis.get_xticklabels()]
    assert names == ["Oslo", "Rome", "San Francisco"]
    age = np.sort(X["age_years"])[(len(X) - 1) // 2]
    rows = pd.DataFrame({"age_years": age, "town": names})
    expected = Known().predict_dist(rows).quantile([0.1, 0.5, 0.9])
    segments = np.array(axis.collections[0].get_segments())  # (levels, 2 ends, x and y)
    np.testing.assert_allclose(segments[:, :, 1], expected[:, [0, 2]])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), expected[:, 1])


def test_a_fan_of_one_row_goes_over_the_range_of_the_training_data_and_keeps_the_row():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(2, 7, 300), "kind": rng.choice(["a", "b"], 300)})
    X["on"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 300), "D")
    model = QuantileForest(random_state=0).fit(X, X["x"] * (1 + (X["kind"] == "b")))
    row = pd.DataFrame({"x": [3.0], "kind": ["b"], "on": [pd.Timestamp("2021-01-01")]})
    at, median = plots.fan(model, row, "x", n_points=7).lines[0].get_data()
    np.testing.assert_allclose(at, np.linspace(X["x"].min(), X["x"].max(), 7))
    rows = row.iloc[[0] * 7].assign(x=at)
    np.testing.assert_allclose(median, model.predict_quantiles(rows, 0.5))
    assert plots.fan(model, row, "kind").lines[0].get_ydata().shape == (2,)
    dates = plots.fan(model, row, "on", n_points=5).lines[0].get_xdata()
    assert pd.Timestamp(dates[0]) == X["on"].min()
    with pytest.raises(ValueError, match="X has no column 'age'; its columns are"):
        plots.fan(model, row, "age")


def test_durations_are_drawn_in_seconds():
    X = pd.DataFrame({"wait": pd.to_timedelta(np.arange(30.0), "min"), "a": 1.0})
    dist = QuantileTable([0.0, 1.0], np.arange(30.0)[:, None] + [0.0, 1.0])
    axis = plots.fan(dist, X, "wait", np.arange(30.0))
    np.testing.assert_allclose(axis.lines[0].get_xdata(), 60 * np.arange(30.0))
    assert axis.get_xlabel() == "wait (seconds)"


def test_a_fan_of_a_distribution_averages_its_rows():
    X = people()
    dist = Known().predict_dist(X)
    axis = plots.fan(dist, X, "town", X["age_years"], label="y")
    own = dist.quantile(0.5)[(X["town"] == "Rome").to_numpy()]
    assert axis.lines[0].get_ydata()[1] == pytest.approx(own.mean())


def test_history_marks_the_best_epoch(table):
    model = GENTLE(n_steps=9, hidden_widths=(8,), n_trees=0, verbose=0, random_state=0).fit(*table)
    axis = plots.history(model)
    best = min(r["validation"] for r in model.history_)
    right = axis.figure.axes[1]
    assert right.lines[1].get_ydata()[0] == best
    assert right.get_ylabel() == "loss on unseen rows (dashed),\nmean over networks"
    assert axis.get_xlabel() == "epoch"
    with pytest.raises(ValueError, match="KNN has no training history"):
        plots.history(KNN())


def test_the_papers_figures_1_and_2_are_functions_of_a_table(table):
    X, y = table
    axis = plots.responses_histogram(X)
    assert sum(patch.get_height() for patch in axis.patches) == 8
    axis = plots.lipschitz(X, y, unit="dollars")
    assert "28 pairs" in axis.get_title()
    assert "dollars" in axis.get_ylabel()


def test_every_method_has_a_style_of_its_own_and_keeps_it():
    from gentle.models.registry import MODULES

    styles = [tuple(plots.style(name).values()) for name in MODULES]
    assert len(set(styles)) == len(MODULES)
    assert plots.style("WGANGP") == plots.style("WGAN-GP")  # the class and the paper's name
    assert plots.style("New") == plots.style("New")


def test_the_transport_map_is_drawn_as_it_is_with_the_share_of_falling_steps():
    class Wave:
        def transport_map(self, X, u):
            return np.sin(2 * np.pi * np.asarray(u))[None].repeat(len(X), axis=0)

    axis = plots.transport_map(Wave(), np.zeros((3, 1)), unit="dollars")
    assert len(axis.lines) == 3
    assert axis.get_title() == "50.0% of the steps fall"
    assert axis.get_ylabel() == "T(x, u): dollars"


def test_pit_shows_bars_of_mean_one_and_a_band(table):
    X, y = table
    axis = plots.pit(Marginal().fit(X, y), X, y, n_bins=10)
    heights = [bar.get_height() for bar in axis.patches if bar.get_width() < 0.2]
    assert len(heights) == 10
    assert np.mean(heights) == pytest.approx(1)
    band = next(bar for bar in axis.patches if bar.get_width() > 0.2)
    assert band.get_y() < 1 < band.get_y() + band.get_height()
    assert all(band.get_y() < h < band.get_y() + band.get_height() for h in heights)


def test_reliability_has_a_line_and_a_verdict_for_each_group(table):
    X, y = table
    model, by = Marginal().fit(X, y), np.where(X["a"] > 0, "high", "low")
    axis = plots.reliability(model, X, y, by=by)
    labels = axis.get_legend_handles_labels()[1]
    assert [label.split(":")[0] for label in labels] == ["all rows", "high", "low"]
    assert labels[0].endswith("calibrated")
    assert labels[1].endswith("too low")
    assert labels[2].endswith("too high")
    levels, shares = axis.lines[1].get_data()
    expected = calibration(model, X, y, by, levels=levels).loc["high"]
    np.testing.assert_array_equal(shares, expected["observed"])
    outline = axis.collections[1].get_paths()[0].vertices[:, 1]
    assert set(expected["upper"]) | set(expected["lower"]) <= set(outline)


def test_a_tree_has_the_shortest_edges_and_the_places_of_its_covariates():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)) * [1, 50], columns=["height_cm", "weight_kg"])
    X = pd.concat([X, X[:5]])  # covariates that repeat are one point
    y = np.arange(45.0)
    axis = plots.tree(X, y, label="strength")
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("height (cm)", "weight (kg)")
    edges = np.array(axis.collections[0].get_segments())  # (39, 2 ends, 2)
    places = axis.collections[1].get_offsets()
    np.testing.assert_allclose(np.sort(places, axis=0), np.sort(X[:40], axis=0))
    from scipy.sparse.csgraph import minimum_spanning_tree
    from scipy.spatial.distance import cdist

    scale = X.std(ddof=0).to_numpy()
    shortest = minimum_spanning_tree(cdist(X[:40] / scale, X[:40] / scale)).sum()
    length = np.linalg.norm((edges[:, 0] - edges[:, 1]) / scale, axis=1).sum()
    assert length == pytest.approx(shortest)
    colours = axis.collections[1].get_array()
    assert colours[0] == pytest.approx(np.mean([0, 40]))  # the mean of both responses


def test_a_tree_of_many_columns_is_seen_along_its_principal_components():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(50, 1)) + 0.01 * rng.normal(size=(50, 4))).add_prefix("x")
    X["rare"] = np.arange(50) == 7
    axis = plots.tree(X, max_covariates=30)
    assert axis.get_xlabel().startswith("first principal component (")
    assert len(axis.collections[1].get_offsets()) == 30
    model = KNN(n_neighbors=3).fit(X, X["x0"])
    with pytest.raises(ValueError, match="keep_data=True"):
        plots.tree(model)
    kept = KNN(n_neighbors=3).fit(X, X["x0"].rename("income_usd"), keep_data=True)
    bar = plots.tree(kept).figure.axes[1]
    assert bar.get_ylabel() == "mean income ($)"


def test_comparisons_rank_methods_with_their_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 1))
    found = compare(X, X[:, 0] + 0.1 * rng.normal(size=120), ["Marginal", "KNN"], n_folds=2)
    axis = plots.comparison(found, label="rent ($)")
    names = [text.get_text() for text in axis.get_yticklabels()]
    assert names == ["KNN", "Marginal"]
    assert axis.get_xlabel().startswith("CRPS: rent ($)\nbars: two standard errors\nof the diff")
    table = found.table().set_index("model")
    bar = axis.containers[1].lines[2][0].get_segments()[0][:, 0]
    expected = table.loc["Marginal", "crps"] + 2 * table.loc[
        "Marginal", "difference_se"
    ] * np.array([-1, 1])
    np.testing.assert_allclose(bar, expected)
    with pytest.raises(ValueError, match="the table has no column 'nonsense'"):
        plots.comparison(found, "nonsense")


def test_comparisons_take_scores_and_tables_of_scores(table):
    X, y = table
    models = {"KNN": KNN(n_neighbors=9).fit(X, y), "Marginal": Marginal().fit(X, y)}
    scores = {name: metrics.evaluate(model, X, y, n_samples=50) for name, model in models.items()}
    axis = plots.comparison(scores, "wd")
    assert axis.get_xlabel() == "Wasserstein distance"
    dots = [container.lines[0].get_xdata()[0] for container in axis.containers]
    assert dots == sorted(s.summary()["wd"] for s in scores.values())
    best_first = pd.DataFrame({"r2": [0.1, 0.9, np.nan], "r2_floor": 0.95}, index=[*"abc"])
    axis = plots.comparison(best_first, "r2")
    assert [text.get_text() for text in axis.get_yticklabels()] == ["b", "a"]  # c has none
    assert axis.get_legend_handles_labels()[1] == ["noise floor"]


def importances():
    found = {"mean": [2.0, -0.5, 1.0], "se": [0.2, 0.1, 0.3]}
    found |= {"0-0.1": [0.5, 0.0, 0.1], "0.1-0.9": [1.0, -0.4, 0.6], "0.9-1": [0.5, -0.1, 0.3]}
    table = pd.DataFrame(found, index=["age_years", "town", "rooms"])
    table.attrs |= {"kind": "shapley", "metric": "crps", "response": "rent [$]"}
    table.attrs["parts"] = ["0-0.1", "0.1-0.9", "0.9-1"]
    return table


def effects(kind):
    values = {"number": np.linspace(20, 60, 9), "category": ["Oslo", "Rome", "San Francisco"]}[kind]
    levels = [0.1, 0.5, 0.9]
    index = pd.MultiIndex.from_product([values, levels], names=["value", "level"])
    place = np.repeat(np.linspace(-1, 1, len(values)), 3)
    table = pd.DataFrame({"effect": place * (1 + np.tile(levels, len(values)))}, index=index)
    table["se"], table["n"] = 0.1, 5
    table.attrs |= {"kind": kind, "column": "age_years", "response": "rent [$]"}
    return table


def test_importance_is_drawn_with_its_parts_the_largest_on_top():
    axis = plots.importance(importances())
    assert [text.get_text() for text in axis.get_yticklabels()] == ["age (years)", "rooms", "town"]
    assert [bar.get_width() for bar in axis.patches] == [2.0, 1.0, -0.5]
    assert axis.get_xlabel() == "share of the fall of the CRPS (Shapley):\nrent ($)"
    parts = dict(zip(axis.get_legend_handles_labels()[1], axis.get_legend_handles_labels()[0]))
    np.testing.assert_array_equal(parts["levels 0.9-1"].get_xdata(), [0.5, 0.3, -0.1])
    assert len(plots.importance(importances(), n_columns=2).patches) == 2


@pytest.mark.parametrize("kind", ["number", "category"])
def test_local_effects_are_drawn_level_by_level(kind):
    table = effects(kind)
    axis = plots.local_effects(table)
    handles, labels = axis.get_legend_handles_labels()
    assert labels == ["90%", "50%", "10%"]
    lines = [h if kind == "number" else h.lines[0] for h in handles]
    for line, level in zip(lines, [0.9, 0.5, 0.1]):
        np.testing.assert_array_equal(line.get_ydata(), table.xs(level, level="level")["effect"])
    assert axis.get_xlabel() == "age (years)"
    assert axis.get_ylabel() == "effect on quantiles of\nrent ($)"
    if kind == "category":
        names = [text.get_text() for text in axis.get_xticklabels()]
        assert names == ["Oslo", "Rome", "San Francisco"]


def drawings():
    X, y = three()
    law, many = Known(), people(400)
    unseen = law.predict_dist(many).sample(random_state=3)[:, 0]
    epochs = [{"epoch": k, "loss": 1 / k, "validation": 1 + (k - 5) ** 2 / 20} for k in range(1, 9)]
    trained = SimpleNamespace(history_=epochs)
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3))).add_prefix("x")
    scores = {"crps": [1.0, 1.2, 2.0], "difference_se": [0.0, 0.15, 0.2], "crps_floor": 0.9}
    scores = pd.DataFrame(scores, index=["GENTLE", "KNN", "Marginal"])
    return {
        "densities": lambda: plots.densities(law, X, y),
        "densities_one": lambda: plots.densities({"GENTLE": law, "KNN": law}, X[:40], y[:40]),
        "quantiles": lambda: plots.quantiles(law, X, y),
        "cdfs": lambda: plots.cdfs(law, X, y),
        "fan": lambda: plots.fan(law, many, "age_years", unseen),
        "fan_levels": lambda: plots.fan(law, many, "town"),
        "pit": lambda: plots.pit(law, many, unseen),
        "reliability": lambda: plots.reliability(law, many, unseen, by="town"),
        "history": lambda: plots.history(trained),
        "tree": lambda: plots.tree(numbers, numbers["x0"]),
        "comparison": lambda: plots.comparison(scores),
        "importance": lambda: plots.importance(importances()),
        "local_effects": lambda: plots.local_effects(effects("number")),
        "local_effects_levels": lambda: plots.local_effects(effects("category")),
    }


@pytest.mark.parametrize("name", sorted(drawings()))
def test_pictures_look_as_they_did(name):
    assert_same_picture(drawings()[name](), name)


def test_every_snapshot_has_a_picture():
    assert {path.stem for path in FOLDER.glob("*.png")} == set(drawings())


def test_a_visible_change_is_noticed():
    picture = drawings()["cdfs"]
    same, moved, gone, dashed = (picture() for _ in range(4))
    line = moved.lines[0]
    line.set_xdata(line.get_xdata() + 0.4)
    gone.lines[1].remove()
    dashed.lines[0].set_linestyle(":")
    reference = pixels(picture().figure)
    assert difference(reference, pixels(same.figure)) == 0
    for changed in (moved, gone, dashed):
        assert difference(reference, pixels(changed.figure)) > 2 * MOST


def test_figures_fit_a_column_and_letters_do_not_overlap():
    for name, draw in drawings().items():
        axis = np.ravel(draw())[0]
        figure = axis.figure
        assert figure.get_size_inches()[0] <= 3.3 or name.startswith("densities")
        figure.canvas.draw()
        width, height = figure.canvas.get_width_height()
        ticks = [text for one in figure.axes for text in one.get_xticklabels()]
        shown = [one.xaxis.label for one in figure.axes] + [one.yaxis.label for one in figure.axes]
        for text in [text for text in shown + ticks if text.get_visible() and text.get_text()]:
            assert text.get_fontsize() >= 7
        for label in [text for text in shown if text.get_text()]:
            box = label.get_window_extent()
            assert box.x0 >= -1, name
            assert box.x1 <= width + 1, name
            assert box.y0 >= -1, name
            assert box.y1 <= height + 1, name
        for one in figure.axes:
            boxes = [
                text.get_window_extent()
                for text in one.get_xticklabels()
                if text.get_text() and not text.get_rotation()
            ]
            assert all(a.x1 <= b.x0 for a, b in pairwise(boxes)), name
