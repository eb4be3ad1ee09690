import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gentle
from gentle import diagnostics, metrics
from gentle.columns import Columns
from gentle.report import report
from gentle.report.groups import partitions
from test_cli import fails, run

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """A parsed report: raises unless every tag is closed in order."""

    def __init__(self, source):
        super().__init__()
        self.source, self.open, self.tags, self.tables = source, [], [], {}
        self.text, self._cell, self._caption = [], None, None
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th", "caption"):
            self._cell = ""
        if tag == "tr" and self._caption is not None:
            self.tables[self._caption].append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "caption":
            self._caption = self._cell
            self.tables[self._caption] = []
        elif tag in ("td", "th"):
            self.tables[self._caption][-1].append(self._cell)
        elif tag == "table":
            self._caption = None

    def handle_data(self, data):
        data = data.replace("\u00a0", " ")
        if self._cell is not None:
            self._cell += data
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def rows(self, caption):
        """The rows of a table by their first cell, or first two for subgroups."""
        head, *rows = self.tables[caption]
        n = 2 if "subgroup" in head else 1
        return {row[0] if n == 1 else tuple(row[:2]): dict(zip(head, row)) for row in rows}


def world(n, seed, noise=0.3):
    """Numbers, a category, truth values and gaps; the noise grows with x."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "x": rng.uniform(0, 1, n).round(6),
            "town": rng.choice(["Rome", "Oslo", "Bern"], n, p=[0.5, 0.3, 0.2]),
            "old": rng.random(n) < 0.4,
        }
    )
    X["gap"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    y = 3 * X["x"] + (X["town"] == "Rome") + noise * (0.5 + X["x"]) * rng.normal(size=n)
    return X, pd.Series(y, name="income")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its tables, and a report on it from the command line."""
    here = tmp_path_factory.mktemp("report")
    for name, n, seed in (("train", 400, 0), ("test", 150, 1)):
        X, y = world(n, seed)
        X.assign(income=y, region=np.arange(n) % 3).to_csv(here / f"{name}.csv", index=False)
    run(
        "fit", here / "train.csv", "-t", "income", "--drop", "region", "-o", here / "m", "-m", "KNN"
    )
    arguments = [here / "m", here / "test.csv", "--train", here / "train.csv"]
    told = run("report", *arguments, "-o", here / "page.html")
    assert "Comparing with QuantileForest" in told.stderr
    assert told.stdout == ""
    return here


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "page.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rows(folder):
    X, y = world(150, 1)
    return gentle.load(folder / "m"), X, y.to_numpy()


@pytest.fixture(autouse=True)
def _no_boosting(monkeypatch):
    """It takes seconds; the page of the command, which is made before this, has it."""
    monkeypatch.setattr("gentle.report.rivals.QUICK", 0)


def made(model, X, y, tmp_path, **options):
    path = report(model, X, y, out=tmp_path / "page.html", **options)
    assert path == tmp_path / "page.html"
    assert path.stat().st_size < 1.5e6
    return Page(path.read_text(encoding="utf-8"))


def percent(text):
    return float(text.split()[0]) / 100


# The page as a page


def test_the_page_loads_nothing_and_runs_nothing(page):
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(tags)
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        assert "style" not in attributes
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/png;base64,")
        if "href" in attributes:
            assert attributes["href"].startswith("#")
    assert not re.search(r"https?:|@import|url\(", page.source)


def test_the_page_can_be_read_without_eyes_or_mouse(page):
    anchors = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(anchors)) == len(anchors)
    links = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a"]
    assert links == anchors == ["warnings", "data", "model", "accuracy", "calibration", "worst"]
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) >= 3
    assert all(len(image["alt"]) > 20 for image in pictures)
    assert all(a.get("tabindex") == "0" for _, a in page.tags if a.get("class") == "scroll")
    assert ("html", {"lang": "en"}) in page.tags
    assert [tag for tag, _ in page.tags].count("h1") == 1


# Its numbers


def test_the_accuracy_is_that_of_the_metrics(page, rows):
    model, X, y = rows
    table = page.rows("Scores on the test rows")
    assert set(table) == {
        "this model (KNN)",
        "QuantileForest",
        "BoostedQuantiles",
        "KNN",
        "Marginal",
    }
    own = table["this model (KNN)"]
    crps = metrics.evaluate(model, X, y).summary()["crps"]
    mean, error = map(float, own["CRPS"].split(" ± "))
    assert mean == pytest.approx(crps, abs=0.006)
    scores = model.predict_dist(X).crps(y)
    assert error == pytest.approx(scores.std(ddof=1) / np.sqrt(150), rel=0.05)
    assert percent(own["better than the marginal by"]) == pytest.approx(
        model.score(X, y), abs=0.006
    )
    assert f"CRPS {own['CRPS']} in units of income" in page.words


def test_models_to_try_first_are_fitted_to_the_training_rows(page, rows):
    model, X, y = rows
    rival = gentle.QuantileForest(random_state=0).fit(*world(400, 0))
    other, own = (m.predict_dist(X).crps(y) for m in (rival, model))
    row = page.rows("Scores on the test rows")["QuantileForest"]
    assert float(row["CRPS"].split()[0]) == pytest.approx(other.mean(), abs=0.006)
    difference, error = map(float, row["minus this model's"].split(" ± "))
    assert difference == pytest.approx((other - own).mean(), abs=0.0006)
    assert error == pytest.approx((other - own).std(ddof=1) / np.sqrt(150), rel=0.05)


def test_the_coverage_is_that_of_the_diagnostics(page, rows):
    table = diagnostics.coverage(*rows, coverages=[0.5, 0.8, 0.9]).loc["all rows"]
    shown = page.rows("Coverage of central intervals")
    for nominal, row in table.iterrows():
        cells = shown[f"{100 * nominal:.0f} %"]
        assert percent(cells["responses inside"]) == pytest.approx(row["observed"], abs=0.006)
        assert percent(cells["ends included"]) == pytest.approx(row["inside"], abs=0.006)
        assert float(cells["mean width"]) == pytest.approx(row["width"], rel=1e-3)
        low, high = map(percent, cells["95 % confidence"].split(" to "))
        assert (low, high) == pytest.approx((row["lower"], row["upper"]), abs=0.006)


def test_subgroups_are_those_of_the_diagnostics(page, rows):
    model, X, y = rows
    shown = page.rows("All subgroups")
    towns = diagnostics.calibration(model, X, y, by="town", confidence=1 - 0.05 / 4)
    covered = diagnostics.coverage(model, X, y, by="town", coverages=[0.9])
    for town in ("Rome", "Oslo", "Bern"):
        cells = shown["town", town]
        assert int(cells["rows"]) == (X["town"] == town).sum()
        assert cells["verdict"] == towns["verdict"][town].iloc[0]
        observed = covered["observed"][town].iloc[0]
        assert percent(cells["90 % covered"]) == pytest.approx(observed, abs=0.006)
        crps = model.predict_dist(X).crps(y)[X["town"] == town].mean()
        assert float(cells["CRPS"]) == pytest.approx(crps, rel=1e-3)
    assert {group for column, group in shown if column == "old"} == {"False", "True"}
    assert ("gap", "missing") in shown
    assert len([group for column, group in shown if column == "x"]) == 4


def test_distances_and_the_noise_floor_stand_where_covariates_repeat(tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [1.0], [2.0], [3.0]], 25, axis=0)
    y = X[:, 0] + rng.normal(size=100)
    model = gentle.KNN(n_neighbors=25).fit(X, X[:, 0] + rng.normal(size=100))
    page = made(model, X, y, tmp_path)
    shown = page.rows("Scores on the test rows")
    scores = metrics.evaluate(model, X, y).summary()
    floor = metrics.noise_floor(None, X, y)
    assert float(shown["this model (KNN)"]["WD"]) == pytest.approx(scores["wd"], rel=1e-3)
    assert float(shown["this model (KNN)"]["KS"]) == pytest.approx(scores["ks"], rel=2e-3)
    low, error = map(float, shown["noise floor"]["WD"].split(" ± "))
    assert (low, error) == pytest.approx(tuple(floor.loc["wd"]), rel=0.05)
    assert page.rows("Responses per covariate")["20 to 99"]["covariates"] == "4"
    assert "only 4 different covariates" in page.words
    assert "No training rows were given" in page.words


def test_where_nothing_repeats_the_page_says_why_there_is_no_floor(page):
    assert "No covariate has 20 test rows" in page.words
    assert "noise floor" not in page.rows("Scores on the test rows")
    assert "Responses per covariate" not in page.tables


def test_the_worst_row_is_the_one_that_was_spoilt(tmp_path, rows):
    model, X, y = rows
    spoilt = y.copy()
    spoilt[77] += 50
    page = made(model, X, spoilt, tmp_path, by="town")
    caption = next(caption for caption in page.tables if caption.startswith("Covariates with"))
    head, first, *_ = page.tables[caption]
    row = dict(zip(head, first))
    assert row["row"] == "77"
    assert float(row["income"]) == pytest.approx(spoilt[77], rel=1e-5)
    assert row["town"] == X["town"][77]
    assert float(row["x"]) == X["x"][77]
    median = model.predict_quantiles(X[77:78], 0.5)[0]
    assert float(row["median"]) == pytest.approx(median, abs=0.0006)
    own = model.predict_dist(X[77:78])
    expected = own.crps(own.quantile((np.arange(2000) + 0.5) / 2000)).mean()
    assert float(row["expected"]) == pytest.approx(expected, rel=0.05)
    worst = page.rows("Subgroups with the largest excess")
    assert next(iter(worst)) == ("town", X["town"][77])


# Its words


def test_a_model_that_is_too_narrow_is_called_so(tmp_path):
    X, y = world(400, 2)
    page = made(gentle.KNN(n_neighbors=3).fit(*world(600, 3)), X, y, tmp_path)
    assert "Not calibrated overall: its distributions are too narrow" in page.words
    assert "Overconfident: only" in page.words
    assert "outside of all that the model thought possible" in page.words


def test_a_good_model_is_not_accused(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1900, 1))
    y = X[:, 0] + rng.normal(size=1900)
    model = gentle.KNN(n_neighbors=400).fit(X[:1500], y[:1500])
    page = made(model, X[1500:], y[1500:], tmp_path)
    assert "<h2>Warnings</h2><p>None.</p>" in page.source
    assert "Calibrated overall" in page.words


def test_what_is_unlike_the_training_data_is_named(tmp_path, rows):
    model, X, y = rows
    X = X.assign(x=X["x"] + 0.45)
    X.loc[:2, "x"] = 30.0
    X.loc[3:7, "town"] = "Atlantis"
    page = made(model, X, y, tmp_path, train=world(400, 0))
    assert "8 of 150 test rows lie far outside the training data" in page.words
    assert "never seen: town: 'Atlantis' (5 rows)" in page.words
    assert "x is on average" in page.words
    assert "standard deviations higher than in training" in page.words


def test_a_missed_atom_is_named_and_a_known_one_is_not(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    smooth = X[:, 0] + rng.normal(size=600)
    zeros = np.where(rng.random(600) < 0.3, 0.0, smooth)
    blind = gentle.KNN(n_neighbors=50).fit(X[:400], smooth[:400])
    text = "of the responses are exactly 0, but the model gives that value a probability of 0 %"
    assert text in made(blind, X[400:], zeros[400:], tmp_path).words
    aware = gentle.KNN(n_neighbors=50).fit(X[:400], zeros[:400])
    page = made(aware, X[400:], zeros[400:], tmp_path)
    assert "are exactly" not in page.words
    atom = page.rows("The most frequent values (atoms)")["0"]
    assert percent(atom["share of the test rows"]) == pytest.approx(
        np.mean(zeros[400:] == 0), abs=0.006
    )
    predicted = np.mean(aware.cdf(X[400:], np.zeros(200)) - aware.cdf(X[400:], np.full(200, -1e-9)))
    assert percent(atom["predicted, on average"]) == pytest.approx(predicted, abs=0.006)


def test_rows_that_the_model_has_seen_are_noticed(tmp_path):
    X, y = world(200, 0)
    page = made(gentle.KNN().fit(X, y), X, y, tmp_path, train=(X, y))
    assert "100 % of the test rows are in the training table too" in page.words
    short = made(gentle.KNN().fit(X, y), X, y, tmp_path, train=(X[:50], y[:50]))
    assert "The training table has 50 rows, but the model was fitted to 200" in short.words


def test_of_a_long_table_a_part_is_looked_at_and_that_is_said(tmp_path, rows):
    model, X, y = rows
    by = {"half": np.arange(150) < 75}
    page = made(model, X, y, tmp_path, max_rows=60, by=by)
    assert "Of 150 test rows a random 60 were looked at" in page.words
    assert "Only 60 test rows" in page.words
    shown = page.rows("All subgroups")
    assert sum(int(cells["rows"]) for cells in shown.values()) == 60
    assert set(shown) == {("half", "False"), ("half", "True")}


def test_divergence_is_told(tmp_path):
    X, y = world(120, 0)
    model = gentle.GENTLE(n_steps=20, hidden_widths=(8,), n_trees=4, verbose=0, random_state=0)
    model.fit(X, y)
    model.history_[-1]["rollbacks"] = 2.0
    page = made(model, X[:40], y[:40], tmp_path)
    assert "Training diverged 2 times" in page.words
    assert "Training, epoch by epoch" in page.words
    assert "missing or not" in page.words  # the model's own summary


# All kinds of models, tables and names


@pytest.mark.parametrize(
    "model",
    [
        gentle.Marginal(),
        gentle.KernelCDE(),
        gentle.ConformalGenerator(gentle.KNN(n_neighbors=5), random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_of_every_kind_have_a_page(tmp_path, model):
    X, y = world(150, 0)
    model.fit(X, y).save(tmp_path / "model")
    page = made(tmp_path / "model", *world(30, 1), tmp_path)
    assert f"this model ({type(model).__name__})" in page.rows("Scores on the test rows")
    assert re.search(r"Saved \d{4}-\d\d-\d\d \d\d:\d\d UTC with python 3", page.words)
    assert "Only 30 test rows" in page.words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("CWGAN", {"n_epochs": 2}),
        ("CDSB", {"n_iterations": 1}),
        ("BoostedQuantiles", {}),
        ("Engression", {}),
        ("CatBoost", {}),
        ("NGBoost", {}),
    ],
)
def test_models_that_train_longer_have_a_page(tmp_path, name, settings):
    X, y = world(150, 0)
    model = getattr(gentle, name)()
    known = {key: value for key, value in settings.items() if key in model.get_params()}
    try:
        model.set_params(**known).fit(X, y)
    except ImportError as error:
        pytest.skip(str(error))
    made(model, *world(60, 1), tmp_path, train=(X, y))


def test_models_of_earlier_versions_have_a_page(tmp_path):
    saved = sorted(p.parent for p in (Path(__file__).parent / "data/saved").rglob("model.json"))
    assert saved
    for source in saved[:2]:
        model = gentle.load(source)
        rng = np.random.default_rng(0)
        names = getattr(model, "feature_names_in_", None)
        X = rng.normal(size=(25, model.n_features_in_))
        X = X if names is None else pd.DataFrame(X, columns=names)
        made(model, X, model.sample(X, 1, 0)[:, 0], tmp_path)


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$\\frac{$ & _x", "a\0b"]


def test_names_are_never_taken_for_html_or_formulas(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(90, 2)), columns=HOSTILE[:2])
    X[HOSTILE[2]] = rng.choice([*HOSTILE, "missing", "all rows"], 90)
    y = pd.Series(rng.normal(size=90), name="</title><script>alert(2)</script>")
    model = gentle.KNN(n_neighbors=10).fit(X, y)
    page = made(model, X, y, tmp_path, by=HOSTILE[2], title="<b>&", train=(X, y))
    assert "script" not in [tag for tag, _ in page.tags]
    assert all(a.get("src", "data:").startswith("data:") for _, a in page.tags)
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert "\0" not in page.source
    assert "<h1>&lt;b&gt;&amp;</h1>" in page.source
    shown = page.rows("All subgroups")
    assert (HOSTILE[2], HOSTILE[0]) in shown
    for level in ("missing", "all rows"):
        assert int(shown[HOSTILE[2], level]["rows"]) == (X[HOSTILE[2]] == level).sum()


def test_one_column_of_dates_and_two_rows(tmp_path):
    days = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=60)})
    model = gentle.KNN(n_neighbors=10).fit(days, np.arange(60.0))
    page = made(model, days[20:22], [20.0, 21.0], tmp_path)
    assert page.rows("The covariates; no value is missing")["day"]["in the test rows"].startswith(
        "2020-01-21 to 2020-01-22"
    )


def test_a_constant_table_has_no_subgroups(tmp_path):
    model = gentle.Marginal().fit(np.arange(20.0)[:, None], np.arange(20.0))
    page = made(model, np.ones((30, 1)), np.arange(30.0), tmp_path)
    assert "no subgroups" in page.words


def test_subgroups_hold_every_row_once():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "many": rng.integers(0, 30, 500).astype(str),
            "number": rng.normal(size=500),
            "heaped": np.where(rng.random(500) < 0.8, 0.0, rng.normal(size=500)),
            "level": pd.Categorical(
                rng.choice(["low", "mid", "high"], 500), ["low", "mid", "high"], ordered=True
            ),
            "long": rng.choice(["a" * 60 + "1", "a" * 60 + "2"], 500),
        }
    )
    frame.loc[:9, "number"] = np.nan
    found = partitions(Columns.of(frame), None, np.arange(500), 500)
    assert list(found["level"].cat.categories) == ["low", "mid", "high"]
    assert (found["level"].astype(str) == frame["level"].astype(str)).all()
    assert len(found["many"].cat.categories) == 8
    assert found["many"].cat.categories[-1] == "23 other levels"
    assert len(found["long"].cat.categories) == 2
    assert (found["number"] == "missing").sum() == 10
    for name, groups in found.items():
        assert groups.notna().all(), name
    edges = frame["number"].groupby(found["number"], observed=True).agg(["min", "max"]).iloc[:4]
    assert (edges["max"].to_numpy()[:-1] < edges["min"].to_numpy()[1:]).all()
    sizes = found["number"].value_counts().drop("missing")
    assert sizes.max() - sizes.min() <= 1


# Randomness and errors


def test_equal_seeds_give_equal_pages_and_nothing_global_changes(tmp_path, rows):
    import torch

    model, X, y = rows
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    pages = [made(model, X, y, tmp_path, max_rows=50, random_state=s, by="x") for s in (1, 1, 2)]
    same = [re.sub(r"Written [^<]*", "", page.source) for page in pages]
    assert same[0] == same[1] != same[2]
    assert np.array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch, rows):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"gentle-ot\[plot\]"):
        report(*rows, out=tmp_path / "page.html")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "nothing"}, "by='nothing' is no column of X"),
        ({"by": {"half": [1, 2]}}, "2 labels of 'half', but there are 150 rows"),
        ({"max_rows": 1}, "max_rows must be at least 2"),
        ({"train": (np.ones((3, 1)), np.ones(3))}, "expecting 4 features"),
    ],
)
def test_what_cannot_work_is_said(tmp_path, rows, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        report(*rows, out=tmp_path / "page.html", **change)
    assert not list(tmp_path.iterdir())


def test_a_single_row_or_a_folder_that_is_not_there(tmp_path, rows):
    model, X, y = rows
    with pytest.raises(ValueError, match="at least 2 test rows"):
        report(model, X[:1], y[:1], out=tmp_path / "page.html")
    with pytest.raises(ValueError, match="does not exist"):
        report(model, X, y, out=tmp_path / "nowhere" / "page.html")


def test_the_command_takes_columns_that_are_no_covariates_for_subgroups(folder, tmp_path):
    out = tmp_path / "page.html"
    arguments = [folder / "m", folder / "test.csv", "--out", out, "--by", "region", "--by", "x"]
    run("report", *arguments, "--title", "Incomes", "--rows", 90)
    page = Page(out.read_text(encoding="utf-8"))
    assert {("region", "0"), ("region", "1"), ("region", "2")} <= set(page.rows("All subgroups"))
    assert "<h1>Incomes</h1>" in page.source
    assert "exists already" in fails("report", *arguments)
    assert not [path for path in tmp_path.iterdir() if path != out]


def test_the_command_reads_parquet_and_other_names_of_the_response(folder, tmp_path):
    X, y = world(40, 3)
    X.assign(money=y).to_parquet(tmp_path / "test.parquet")
    out = tmp_path / "page.html"
    run("report", folder / "m", tmp_path / "test.parquet", "--target", "money", "-o", out)
    assert "The response, money" in out.read_text(encoding="utf-8")


def test_errors_of_the_command_are_one_line(folder, tmp_path):
    out = ["-o", tmp_path / "page.html"]
    assert "there is no folder" in fails("report", tmp_path / "no", folder / "test.csv", *out)
    assert "holds no model" in fails("report", folder, folder / "test.csv", *out)
    X, y = world(20, 0)
    X.to_csv(tmp_path / "bare.csv", index=False)
    assert "no column 'income'" in fails("report", folder / "m", tmp_path / "bare.csv", *out)
    X.drop(columns="town").assign(income=y).to_csv(tmp_path / "short.csv", index=False)
    assert "no column 'town'" in fails("report", folder / "m", tmp_path / "short.csv", *out)
    bare = ["--train", tmp_path / "bare.csv"]
    assert "no column 'income'" in fails("report", folder / "m", folder / "test.csv", *out, *bare)
    nowhere = ["--by", "regoin"]
    assert "Did you mean 'region'?" in fails(
        "report", folder / "m", folder / "test.csv", *out, *nowhere
    )
    assert "has to end in .html" in fails(
        "report", folder / "m", folder / "test.csv", "-o", tmp_path / "page.pdf"
    )
    assert not (tmp_path / "page.html").exists()
