import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gentle import GENTLE, KNN, Marginal, plots


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(np.repeat(rng.normal(size=(8, 2)), 25, axis=0), columns=["a", "b"])
    return X, X["a"].to_numpy() + rng.normal(size=200)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_densities_show_every_model_in_a_panel_per_covariate(table):
    X, y = table
    models = {"KNN": KNN(n_neighbors=30).fit(X, y), "Marginal": Marginal().fit(X, y)}
    axes = plots.densities(models, X, y, unit="income (dollars)", n_panels=4, n_samples=200)
    visible = [axis for axis in axes.flat if axis.get_visible()]
    assert len(visible) == 4
    assert all(len(axis.lines) == 2 for axis in visible)
    assert axes.flat[0].figure.get_supxlabel() == "income (dollars)"


def test_a_point_mass_is_a_line(table):
    X, y = table
    model = Marginal().fit(X, np.zeros(len(y)))
    axes = plots.densities({"Marginal": model}, X, y, n_panels=2, n_samples=50)
    assert axes.flat[0].lines[0].get_xdata()[0] == 0


def test_history_marks_the_best_epoch(table):
    model = GENTLE(n_steps=9, hidden_widths=(8,), n_trees=0, verbose=0, random_state=0).fit(*table)
    axis = plots.history(model)
    best = min(r["validation"] for r in model.history_)
    right = axis.figure.axes[1]
    assert right.lines[1].get_ydata()[0] == best
    assert right.get_ylabel() == "loss on unseen rows, mean over networks"
    assert axis.get_xlabel() == "epoch"


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
    axis = plots.reliability(Marginal().fit(X, y), X, y, by=np.where(X["a"] > 0, "high", "low"))
    labels = axis.get_legend_handles_labels()[1]
    assert [label.split(":")[0] for label in labels] == ["all rows", "high", "low"]
    assert labels[0].endswith("calibrated")
    assert labels[1].endswith("too low")
    assert labels[2].endswith("too high")
