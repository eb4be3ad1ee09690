import importlib.util
import io
import signal
import socket
import subprocess
import sys
from datetime import date
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from gentle import KNN, QuantileTable
from gentle.cli import app
from gentle.explorer import answers, server
from gentle.explorer.controls import MISSING, OTHER, controls_of, rows_of
from gentle.explorer.exhibit import Exhibit

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = Path(server.__file__).with_name("page.py")


def example(name):
    """A script of the examples as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs(*packages):
    """Skips where a package is missing."""
    gone = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(gone), reason=f"{', '.join(gone)} not installed")


def mixed(n=400, seed=0):
    """A table with every kind of column, and what a model may know of it."""
    rng = np.random.default_rng(seed)
    size = pd.Categorical.from_codes(rng.integers(0, 3, n), ["small", "mid", "large"], ordered=True)
    return pd.DataFrame(
        {
            "number": rng.normal(0, 1, n).round(3),
            "count": rng.integers(0, 31, n),
            "dummy": (rng.random(n) < 0.3).astype(int),
            "gap": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 1, n)),
            "truth": rng.random(n) < 0.7,
            "town": rng.choice(["Rome", "Oslo", "*Bonn*"], n, p=[0.6, 0.3, 0.1]),
            "size": size,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "wait": pd.to_timedelta(rng.integers(0, 5000, n), "s"),
            "same": 7.0,
            "cost": rng.exponential(10, n) * (rng.random(n) < 0.8),
        }
    )


@pytest.fixture(scope="module")
def table():
    return mixed()


@pytest.fixture(scope="module")
def exhibit(table):
    with pytest.warns(UserWarning, match="same"):
        model = KNN(n_neighbors=30).fit(table.drop(columns="cost"), table["cost"])
    return Exhibit.of(model, table)


@pytest.fixture(scope="module")
def demo():
    return Exhibit.demo()


# What can be chosen


def test_controls_offer_what_the_data_hold(exhibit, table):
    by = {c.label: c for c in exhibit.controls}
    assert list(by) == list(table.columns[:-1])
    widgets = ["slider", "slider", "choice", "slider", "choice", "choice", "order", "date"]
    assert [c.widget for c in exhibit.controls] == [*widgets, "slider", "fixed"]
    assert (by["count"].low, by["count"].high, by["count"].step) == (0, 30, 1)
    assert by["count"].start == table["count"].median()
    assert isinstance(by["count"].start, int)
    assert abs(by["number"].start - table["number"].median()) <= by["number"].step
    assert table["number"].min() <= by["number"].low < by["number"].high <= table["number"].max()
    assert by["dummy"].choices == {"0": 0.0, "1": 1.0}
    assert by["truth"].choices == {"yes": True, "no": False}
    assert list(by["town"].choices) == ["Rome", "Oslo", "*Bonn*"]
    assert list(by["size"].choices) == ["small", "mid", "large"]
    assert by["size"].start == table["size"].mode()[0]
    assert table["day"].min().date() <= by["day"].low < by["day"].high <= table["day"].max().date()
    assert by["day"].start == np.sort(table["day"])[199].astype("datetime64[D]")
    assert by["wait"].unit == "minutes"
    assert by["wait"].cell(2) == pd.Timedelta("2min")
    assert [c.label for c in exhibit.controls if c.missing] == ["gap"]
    assert by["same"].start == 7


def test_without_data_the_ranges_are_those_of_the_model(exhibit, table):
    by = {c.label: c for c in controls_of(exhibit.model)}
    assert (by["count"].low, by["count"].high) == (table["count"].min(), table["count"].max())
    assert by["count"].start == round(table["count"].mean())
    assert by["day"].low == table["day"].min().date()
    assert by["dummy"].widget == "choice"


def test_what_is_chosen_reaches_the_model_as_its_own_kind_of_value(exhibit):
    chosen = exhibit.start | {"gap": None, "town": "Oslo", "day": date(2021, 5, 5), "wait": 3}
    row = rows_of(exhibit.controls, chosen)
    direct = pd.DataFrame(
        {
            **{name: [chosen[name]] for name in ("number", "count", "town", "size", "same")},
            "dummy": 0,
            "gap": np.nan,
            "truth": True,
            "day": "2021-05-05",
            "wait": "3min",
        }
    )[list(row)]
    encode = exhibit.model.covariate_encoder_.encode
    np.testing.assert_array_equal(encode(row), encode(direct))


def test_rare_and_missing_levels_can_be_chosen(recwarn):
    town = ["Rome"] * 60 + ["Oslo"] * 40 + [None] * 20 + [f"village {i}" for i in range(10)]
    X = pd.DataFrame({"town": town, "x": np.linspace(0, 1, 130)})
    model = KNN(n_neighbors=5).fit(X, X["x"])
    control = controls_of(model)[0]
    assert list(control.choices) == ["Rome", "Oslo", OTHER, MISSING]
    encode = model.covariate_encoder_.encode
    for chosen, same in ((OTHER, "village 3"), (MISSING, None)):
        row = rows_of(controls_of(model), {"town": chosen, "x": 0.5})
        np.testing.assert_array_equal(encode(row), encode(row.assign(town=[same])))
    assert not recwarn.list


def test_a_fraction_is_not_taken_for_a_dummy_nor_a_few_numbers_for_counts():
    X = np.column_stack([np.r_[0, np.linspace(0.1, 0.9, 98), 1], np.linspace(0.5, 9.5, 100)])
    model = KNN(n_neighbors=5).fit(X, X[:, 0])
    fraction, number = controls_of(model)
    assert fraction.widget == number.widget == "slider"
    assert (fraction.low, fraction.high, fraction.step) == (0, 1, 0.01)
    assert fraction.name == "column 0"
    assert isinstance(number.low, float)


@pytest.mark.parametrize(("low", "high"), [(-3e-7, 8e-7), (0.013, 0.987), (137, 98_765), (-1, 1e9)])
def test_sliders_stay_within_the_range_and_have_about_a_hundred_steps(low, high):
    values = np.linspace(low, high, 50)
    model = KNN(n_neighbors=5).fit(values[:, None], values)
    control = controls_of(model)[0]
    assert low <= control.low <= control.start <= control.high <= high
    assert 45 <= (control.high - control.low) / control.step <= 100
    assert float(control.said(float(control.low))) == pytest.approx(control.low)
    assert (np.diff(control.grid()) > 0).all()


# What is said


def test_the_shape_of_a_distribution_holds_all_of_its_mass():
    levels = np.r_[0, 0.2, np.linspace(0.2, 0.9, 50), 0.9, 1]
    values = np.r_[0, 0, stats.gamma(3).ppf(np.linspace(0.01, 0.99, 50)), 20, 20]
    shape = answers.Shape.of(QuantileTable(levels, values[None]))
    np.testing.assert_allclose(shape.masses, [0.2, 0.1], atol=1e-12)
    assert shape.points.tolist() == [0, 20]
    assert shape.heights @ np.diff(shape.edges) == pytest.approx(0.7, abs=1e-9)
    smooth = np.abs(shape.levels - 0.9) > 1e-9  # where it jumps, either end is right
    expected = np.interp(shape.levels, levels, values)
    np.testing.assert_allclose(shape.values[smooth], expected[smooth], rtol=1e-12)


def test_the_shape_follows_the_density():
    levels = np.linspace(0, 1, 2001)
    values = stats.norm.ppf(levels.clip(1e-6, 1 - 1e-6))
    shape = answers.Shape.of(QuantileTable(levels, values[None]))
    middle = (shape.edges[1:] + shape.edges[:-1]) / 2
    np.testing.assert_allclose(shape.heights, stats.norm.pdf(middle), atol=0.01)


def test_many_single_values_are_a_histogram_and_one_that_stands_out_a_stem():
    y = np.r_[np.zeros(30), np.random.default_rng(0).normal(10, 1, 100)]
    shape = answers.Shape.of(QuantileTable.of_sample(y))
    assert shape.points.tolist() == [0]
    assert shape.masses[0] == pytest.approx(30 / 130)
    assert shape.heights @ np.diff(shape.edges) == pytest.approx(100 / 130, abs=1e-9)
    only = answers.Shape.of(QuantileTable.of_sample([5.0]))
    assert only.points.tolist() == [5]
    assert len(only.heights) == 0


def test_a_distribution_is_compared_with_the_pinned_one():
    a, b = stats.expon.rvs(size=(2, 400), random_state=1) * [[1], [3]]
    now, pinned = QuantileTable.of_sample(a), QuantileTable.of_sample(b)
    assert answers.distance(now, pinned) == pytest.approx(stats.wasserstein_distance(a, b))
    assert answers.exceedance(now, 0.7) == pytest.approx(np.mean(a > 0.7))
    found = answers.quantile_table(now, pinned)
    expected = np.quantile(a, 0.9, method="inverted_cdf") - np.quantile(
        b, 0.9, method="inverted_cdf"
    )
    assert found.loc["90 %", "now − pinned"] == pytest.approx(expected)
    assert found.loc["mean", "now − pinned"] == pytest.approx(a.mean() - b.mean())


def test_draws_are_those_of_the_model(demo):
    values = demo.start | {"age": 30, "commute_minutes": None}
    drawn = demo.draws(values, 50, 3)
    row = drawn[:1].drop(columns="income_thousand")
    assert row["occupation"][0] == values["occupation"]
    np.testing.assert_array_equal(drawn["income_thousand"], demo.model.sample(row, 50, 3)[0])
    read = pd.read_csv(io.StringIO(drawn.to_csv(index=False)), float_precision="round_trip")
    np.testing.assert_array_equal(read["income_thousand"], drawn["income_thousand"])
    assert (read["age"] == 30).all()


def test_the_nearest_rows_are_those_that_scikit_learn_finds(exhibit, table):
    from sklearn.neighbors import NearestNeighbors

    chosen = exhibit.start | {"gap": None}
    found = exhibit.nearest(chosen, 12)
    encode = exhibit.model.covariate_encoder_.encode
    searcher = NearestNeighbors(n_neighbors=12).fit(encode(table.drop(columns="cost")))
    far, _ = searcher.kneighbors(encode(rows_of(exhibit.controls, chosen)))
    np.testing.assert_allclose(found["distance"], far[0])
    pd.testing.assert_frame_equal(
        found[["number", "town", "cost"]], table.loc[found.index, ["number", "town", "cost"]],
        check_names=False,
    )  # fmt: skip


def test_the_fan_is_what_the_model_says_at_each_value(demo):
    grid, quantiles = demo.along(demo.start, "occupation")
    assert grid[0] == "care"
    row = rows_of(demo.controls, demo.start | {"occupation": grid[2]})
    np.testing.assert_array_equal(
        quantiles[2], demo.model.predict_quantiles(row, answers.LEVELS)[0]
    )
    assert len(demo.along(demo.start, "age")[0]) == 47  # every year


def test_doubts_are_said_in_words(demo):
    assert demo.doubts(demo.start) == []
    (far,) = demo.doubts(demo.start | {"age": 150})
    assert "age = 150 lies far beyond" in far
    assert "20 to 66" in far
    assert "guess" in far
    (near,) = demo.doubts(demo.start | {"age": 70})
    assert "guess" not in near
    strange = demo.start | {"age": 20, "schooling_years": 20, "children": 4, "commute_minutes": 130}
    (together,) = demo.doubts(strange)
    assert "together they are not" in together
    assert Exhibit.of(demo.model).doubts(strange) == []  # which only the rows can tell


def test_data_without_the_columns_are_refused(demo):
    with pytest.raises(ValueError, match=r"lack the model's column.*'children'"):
        Exhibit.of(demo.model, demo.rows.drop(columns="children"))
    assert Exhibit.of(demo.model, demo.rows).y is None


# The bundled model


def test_the_bundled_model_is_small_and_of_the_present_format(demo):
    from gentle.models.formats import FORMAT

    folder = PAGE.parent / "bundled"
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 1_000_000
    assert f'"format": {FORMAT}' in (folder / "model" / "model.json").read_text()
    kinds = {c.kind for c in demo.model.covariate_encoder_.covariates}
    assert {"number", "category", "boolean"} <= kinds
    assert demo.distribution(demo.start).atoms(0.01)[0][0].tolist()[0] == 0
    assert demo.model.score(demo.rows, demo.y) > 0.15  # it has learned something


def test_the_bundled_people_are_those_of_the_script(demo):
    script = example("explorer_demo")
    people = script.people(script.N_PEOPLE, np.random.default_rng(7))
    pd.testing.assert_frame_equal(people.drop(columns="income_thousand"), demo.rows)
    np.testing.assert_allclose(people["income_thousand"], demo.y)


# The command


def complaint(*arguments):
    result = CliRunner().invoke(app, ["explore", *map(str, arguments)])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    return result.stderr


@needs("streamlit", "plotly")
def test_what_is_wrong_is_said_before_anything_starts(tmp_path, demo):
    assert "there is no folder" in complaint(tmp_path / "none")
    folder = tmp_path / "model"
    demo.model.save(folder)
    people = tmp_path / "people.csv"
    demo.rows.drop(columns="age").to_csv(people, index=False)
    assert "has no column 'age'" in complaint(folder, "--data", people)
    with socket.socket() as taken:
        taken.bind((server.ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} cannot be used" in complaint(folder, "--port", port)
        assert server.free_port() != port
    (folder / "weights.safetensors").write_bytes(b"nonsense")
    assert "cannot be read" in complaint(folder)
    assert CliRunner().invoke(app, ["explore", "--data", str(people)]).exit_code == 2


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert "pip install 'gentle-ot[explore]'" in complaint()


def test_the_page_can_be_read_without_streamlit():
    code = (
        "import sys; sys.modules['streamlit'] = sys.modules['plotly'] = None;"
        "import gentle.explorer.view, gentle.explorer.page, gentle.explorer.figures"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The page without a browser


def page(exhibit):
    testing = import_module("streamlit.testing.v1")
    server._shown[:] = [exhibit]
    shown = testing.AppTest.from_file(str(PAGE), default_timeout=120).run()
    assert not shown.exception
    return shown


def metrics(shown):
    return {metric.label: metric.value for metric in shown.metric}


@needs("streamlit", "plotly")
def test_the_page_shows_what_the_model_says_and_compares(demo):
    shown = page(demo)
    row = rows_of(demo.controls, demo.start)
    assert metrics(shown)["median"] == f"{demo.model.predict_quantiles(row, 0.5)[0]:.2f}"
    low, high = demo.model.predict_interval(row, 0.8)[0]
    assert metrics(shown)["80 % interval"] == f"{low:.2f} to {high:.2f}"
    before = shown.table[0].value["now"]
    next(b for b in shown.button if b.label == "Pin to compare").click().run()
    shown.slider(key="slider-0").set_value(30)
    shown.selectbox(key="choice-2").set_value("technology")
    shown.number_input(key="threshold").set_value(40.0).run()
    assert not shown.exception
    moved = rows_of(demo.controls, demo.start | {"age": 30, "occupation": "technology"})
    table = shown.table[0].value
    assert list(table) == ["now", "pinned", "now − pinned"]
    assert table["pinned"].tolist() == before.tolist()
    expected = demo.model.predict_quantiles(moved, 0.9) - demo.model.predict_quantiles(row, 0.9)
    assert table.loc["90 %", "now − pinned"] == f"{expected[0]:.2f}"
    found = metrics(shown)
    for who, x in (("now", moved), ("pinned", row)):
        chance = 100 * (1 - demo.model.cdf(x, [40.0])[0])
        assert found[f"P(income_thousand > 40.00), {who}"] == f"{chance:.1f} %"
    u = np.linspace(0, 1, 20_001)
    gap = np.abs(demo.model.sample(moved, u=u) - demo.model.sample(row, u=u)).mean()
    assert float(found["Wasserstein distance of the two"]) == pytest.approx(gap, abs=0.02)
    assert any("age 43, occupation care" in caption.value for caption in shown.caption)
    next(b for b in shown.button if b.label == "Unpin").click().run()
    assert list(shown.table[0].value) == ["now"]


@needs("streamlit", "plotly")
@pytest.mark.filterwarnings("ignore::gentle.diagnostics.OutOfSupportWarning")
def test_numbers_can_be_typed_beyond_the_data(demo):
    shown = page(demo)
    shown.slider(key="slider-0").set_value(33).run()
    shown.toggle(key="typed").set_value(True).run()
    assert shown.number_input(key="typed-0").value == 33  # what was chosen stays
    assert not shown.warning
    shown.number_input(key="typed-0").set_value(150).run()
    assert "far beyond the training values" in shown.warning[0].value
    shown.number_input(key="typed-0").set_value(60).run()
    shown.toggle(key="typed").set_value(False).run()
    assert shown.slider(key="slider-0").value == 60


@needs("streamlit", "plotly")
def test_every_kind_of_column_has_its_control(exhibit):
    shown = page(exhibit)
    assert [s.label for s in shown.sidebar.selectbox] == ["dummy", "truth", "town"]
    assert "\\*Bonn\\*" not in shown.selectbox(key="choice-5").options  # escaped where it is text
    shown.checkbox(key="missing-3").set_value(True)
    shown.select_slider(key="order-6").set_value("large")
    shown.date_input(key="date-7").set_value(date(2021, 5, 5))
    for along in range(9):
        shown.selectbox(key="along").select_index(along)
        shown.run()
        assert not shown.exception
    said = shown.caption[0].value
    assert "gap (missing)" in said
    assert "size large, day 2021-05-05" in said
    assert shown.text_input[0].disabled
    expected = exhibit.start | {"gap": None, "size": "large", "day": date(2021, 5, 5)}
    mean = exhibit.model.predict(rows_of(exhibit.controls, expected))[0]
    assert metrics(shown)["mean cost"] == exhibit.said(mean)


@needs("streamlit", "plotly")
@pytest.mark.filterwarnings("ignore::gentle.diagnostics.OutOfSupportWarning")
def test_a_number_beyond_all_reason_is_refused_on_the_page(exhibit):
    shown = page(exhibit)
    shown.toggle(key="typed").set_value(True).run()
    shown.number_input(key="typed-0").set_value(1e30).run()
    assert not shown.exception
    assert "standard deviations from the training data in column 'number'" in shown.error[0].value
    shown.number_input(key="typed-0").set_value(0.5).run()
    assert not shown.error
    assert shown.metric


@needs("streamlit", "plotly")
def test_a_model_without_names_and_data_has_a_page_too():
    X = np.random.default_rng(0).normal(size=(60, 2))
    shown = page(Exhibit.of(KNN(n_neighbors=7).fit(X, X[:, 0])))
    assert [slider.label for slider in shown.slider] == ["column 0", "column 1"]
    assert "mean response" in metrics(shown)
    assert not shown.dataframe


# The page in a browser


@pytest.fixture(scope="module")
def driver():
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    return example("explorer_screenshots")


@pytest.fixture(scope="module")
def chromium(driver):
    from playwright.sync_api import Error

    try:
        with driver.browser() as found:
            yield found
    except Error as error:
        pytest.skip(f"there is no Chromium: {str(error).splitlines()[0]}")


@pytest.fixture(scope="module")
def url(driver):
    with driver.served() as address:
        yield address


def curve(page, which, name):
    """The points of a curve, as plotly in the browser has them."""
    code = """([which, name]) => {
        const plot = document.querySelectorAll('.js-plotly-plot')[which];
        const trace = plot._fullData.find(t => t.name === name && t.mode === 'lines');
        return [Array.from(trace.x), Array.from(trace.y)];
    }"""
    return np.array(page.evaluate(code, [which, name]), float)


def quiet(page):
    """No complaint in the console, and nothing asked of any other machine."""
    assert [text for kind, text in page.said if kind in ("error", "warning")] == []
    hosts = {address.split("/")[2].split(":")[0] for address in page.asked if "//" in address}
    assert hosts == {"127.0.0.1"}


@pytest.mark.slow
def test_in_a_browser_the_curve_follows_the_keyboard_and_is_compared(driver, chromium, url, demo):
    page = driver.opened(chromium, url)
    row = rows_of(demo.controls, demo.start)
    levels, at = curve(page, 1, "now")[::-1]
    np.testing.assert_allclose(
        at[1:-1], demo.model.predict_quantiles(row, levels[1:-1])[0], atol=1e-6
    )
    before = curve(page, 0, "now")
    driver.press(page, "age", "ArrowRight", 5)
    after = curve(page, 0, "now")
    assert np.abs(after - before).max() > 0.001
    older = demo.start | {"age": demo.start["age"] + 5}
    levels, at = curve(page, 1, "now")[::-1]
    expected = demo.model.predict_quantiles(rows_of(demo.controls, older), levels[1:-1])[0]
    np.testing.assert_allclose(at[1:-1], expected, atol=1e-6)

    page.get_by_role("button", name="Pin to compare").press("Enter")
    page.get_by_role("button", name="Unpin").wait_for()
    driver.choose(page, "occupation", "technology", "occupation technology")
    np.testing.assert_allclose(curve(page, 0, "pinned"), after)
    assert np.abs(curve(page, 0, "now") - after).max() > 0.001
    assert page.get_by_text("A difference of quantiles is not a quantile").is_visible()
    assert page.get_by_role("cell").count() == 8 * 3
    assert page.get_by_text("Wasserstein distance of the two").is_visible()

    page.get_by_role("combobox", name="Covariate to move").scroll_into_view_if_needed()
    driver.choose(page, "Covariate to move", "schooling_years", "schooling_years")
    page.locator("text.xtitle", has_text="schooling_years").wait_for()
    grid, middle = curve(page, 2, "median")
    assert (grid[0], grid[-1]) == (8, 19)
    rows = rows_of(demo.controls, older | {"occupation": "technology"}, len(grid))
    rows["schooling_years"] = grid
    np.testing.assert_allclose(middle, demo.model.predict_quantiles(rows, 0.5), atol=1e-6)
    quiet(page)
    page.close()


@pytest.mark.slow
def test_in_a_browser_draws_are_downloaded(driver, chromium, url, demo):
    page = driver.opened(chromium, url)
    X = rows_of(demo.controls, demo.start)
    driver.enter(
        page, "Seed", 11, f"The first of them: {demo.said(demo.model.sample(X, 1, 11)[0, 0])}"
    )
    few = ", ".join(demo.said(y) for y in demo.model.sample(X, 3, 11)[0])
    driver.enter(page, "Number of draws", 3, f"The first of them: {few};")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download draws as CSV").click()
    found = pd.read_csv(download.value.path(), float_precision="round_trip")
    assert list(found) == [*X, "income_thousand"]
    np.testing.assert_array_equal(found["income_thousand"], demo.model.sample(X, 3, 11)[0])
    pd.testing.assert_frame_equal(
        found[list(X)], pd.concat([X] * 3, ignore_index=True), check_dtype=False
    )
    quiet(page)
    page.close()


@pytest.mark.slow
def test_in_a_browser_typed_numbers_beyond_the_data_are_warned_of(driver, chromium, url):
    page = driver.opened(chromium, url)
    assert page.get_by_role("alert").count() == 0
    page.get_by_role("switch", name="Type numbers").press("Space")
    driver.enter(page, "age", 150, "far beyond the training values")
    assert page.get_by_role("alert").count() == 1
    quiet(page)
    page.close()


@pytest.mark.slow
def test_on_a_telephone_nothing_is_wider_than_the_screen(driver, chromium, url):
    page = driver.opened(chromium, url, 390, 844)
    page.get_by_role("button", name="Expand sidebar").press("Enter")
    driver.press(page, "age", "ArrowLeft", 3)
    page.get_by_role("button", name="Collapse sidebar").press("Enter")
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_role("button", name="Unpin").wait_for()
    driver.settled(page)
    wide = """() => [document.documentElement, document.querySelector('[data-testid=stMain]')]
        .map(e => e.scrollWidth - e.clientWidth)"""
    assert page.evaluate(wide) == [0, 0]
    inside = """() => Array.from(document.querySelectorAll('.js-plotly-plot, table, h1, button'))
        .filter(e => e.offsetParent).map(e => e.getBoundingClientRect().right)"""
    assert max(page.evaluate(inside)) <= 390
    quiet(page)
    page.close()


@pytest.mark.slow
def test_all_controls_are_named_and_reached_by_the_tab_key_in_order(driver, chromium, url, demo):
    page = driver.opened(chromium, url)
    page.locator("body").press("Tab")
    reached = []
    code = """() => { const e = document.activeElement;
        return [e.tagName, e.getAttribute('aria-label') || e.labels?.[0]?.innerText
                || e.innerText || ''] }"""
    for _ in range(60):
        reached.append(page.evaluate(code))
        page.keyboard.press("Tab")
    order = [
        *("Type numbers", *(c.name for c in demo.controls), "Pin to compare"),
        *("Threshold for income_thousand", "Covariate to move, the others fixed"),
        *("Nearest rows", "Number of draws", "Seed", "Download draws as CSV"),
    ]
    found = [name for _, name in reached if name in order]
    assert list(dict.fromkeys(found)) == order
    assert all(name for tag, name in reached if tag in ("INPUT", "BUTTON"))
    page.close()


@pytest.mark.slow
@needs("streamlit", "plotly")
def test_the_command_serves_a_model_with_its_data_and_ends_with_ctrl_c(tmp_path, exhibit, table):
    from urllib.request import urlopen

    exhibit.model.save(tmp_path / "model")
    table.to_parquet(tmp_path / "train.parquet")
    port = server.free_port()
    command = [sys.executable, "-m", "gentle", "explore", "model", "--data", "train.parquet"]
    running = subprocess.Popen(
        [*command, "--port", str(port)], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert running.stderr is not None
    assert f"http://127.0.0.1:{port} " in running.stderr.readline()
    assert urlopen(f"http://127.0.0.1:{port}/_stcore/health").read() == b"ok"
    with socket.socket() as other:  # a server of all addresses would answer here, too
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port)) != 0
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "Traceback" not in said
