"""Experiments: what they declare, what a run stores, what survives a kill, what the report says."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest

from gentle import experiments, metrics
from gentle.experiments import report, spec
from gentle.experiments.run import LEVELS
from gentle.models.registry import MODULES, model_class

TINY = experiments.Profile(
    name="quick",
    seeds=2,
    draws=200,
    floor_repeats=3,
    datasets={"ecm": {"n_patients": 100, "n_test_covariates": 7, "n_responses": 30}},
)
FAST = ["KNN", "KernelCDE", "Marginal"]


def table(**changes):
    chosen = dataclasses.replace(experiments.load("table4"), methods=FAST)
    return dataclasses.replace(chosen, **changes)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    store = experiments.Store(tmp_path_factory.mktemp("cells"))
    assert experiments.run(experiments.cells([table()], TINY), store) == []
    return store


def test_the_papers_tables_and_figures_are_declared():
    tables, figures = [f"table{i}" for i in range(1, 5)], [f"figure{i}" for i in range(1, 9)]
    assert experiments.names() == tables + figures
    first = experiments.load("table1")
    assert first.methods[:5] == ["GENTLE", "CWGAN", "MGAN", "WGAN-GP", "CDSB"]
    assert first.published["ecm"]["CDSB"] == {"wd": [2.04, 0.43], "ks": [0.47, 0.12]}
    assert experiments.profile("full").seeds == 10
    assert experiments.profile("full").draws == 10_000
    with pytest.raises(ValueError, match="there is no experiment 'table9'"):
        experiments.load("table9")


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_cell_names_a_model_of_the_registry_and_settings_that_it_has(profile):
    everything = [experiments.load(name) for name in experiments.names()]
    cells = experiments.cells(everything, experiments.profile(profile), n_seeds=1)
    assert len({cell.name for cell in cells}) == len(cells)  # shared, not repeated
    assert {cell.model for cell in cells} == set(MODULES)
    for cell in cells:
        assert set(cell.settings) <= set(model_class(cell.model)().get_params()), cell.method


def test_an_ablation_is_the_same_model_with_one_thing_changed():
    profile = experiments.profile("full")
    full, without, unsmoothed = experiments.cells(
        [dataclasses.replace(experiments.load("table2"), datasets=["ecm"])], profile, 1
    )
    assert without.settings == {**full.settings, "reg_weight": 0.0}
    assert unsmoothed.settings == {
        **full.settings,
        "anchor_generator": 0.0,
        "anchor_potential": 0.0,
    }
    assert full.from_paper
    assert without.from_paper


def test_stored_cells_of_the_papers_model_are_those_that_a_reproduction_would_make():
    """They took hours: no default that the model has gained may change what they stand for."""
    folder = Path(__file__).parent.parent / "benchmarks" / "reproduction" / "full" / "cells"
    everything = [experiments.load(name) for name in experiments.names()]
    cells = experiments.cells(everything, experiments.profile("full"))
    papers = [cell for cell in cells if cell.method.startswith("GENTLE") and cell.from_paper]
    stored = [cell for cell in papers if (folder / f"{cell.name}.json").exists()]
    assert {cell.method for cell in stored} == {"GENTLE", "GENTLE w/o reg", "GENTLE w/o smo"}
    for cell in stored:
        facts = json.loads((folder / f"{cell.name}.json").read_text())
        assert cell.agrees(facts), cell.name
        model, then = cell.estimator(), facts["settings"]
        assert (model.map, model.regulariser) == ("mlp", "entropic")
        known = set(model.get_params()) & set(then)
        assert len(known) > 20
        assert then.keys() <= known
        assert then.get("map", "mlp") == "mlp"


def test_a_cell_agrees_only_with_facts_on_which_the_result_depends_in_the_same_way():
    cell = experiments.cells([table()], TINY)[0]
    facts = json.loads(json.dumps(cell.facts()))
    assert cell.agrees(facts)
    changes = [
        {"settings": {"n_neighbors": 3}},
        {"seed": 9},
        {"draws": 3},
        {"options": {}},
        {"model": "KernelCDE"},
    ]
    for change in changes:
        assert not dataclasses.replace(cell, **change).agrees(facts), change
    facts["settings"].pop("validation_fraction")  # as stored before there was such a setting
    facts["settings"]["abandoned"] = 1
    assert cell.agrees(facts)


def test_stored_scores_are_those_of_evaluate(done):
    from gentle import KNN, datasets

    cell = experiments.cells([table()], TINY)[0]
    benchmark = datasets.load("ecm", **cell.options)
    model = KNN(random_state=cell.seed).fit(*benchmark.train)
    expected = metrics.evaluate(model, *benchmark.test, n_samples=200, random_state=cell.seed)
    stored = done.scores(cell)
    pd.testing.assert_frame_equal(stored.records, expected.records, rtol=1e-7, check_dtype=False)
    facts = done.facts(cell)
    assert facts["settings"]["n_neighbors"] is None
    assert facts["fit_seconds"] > 0
    curves = done.curves(cell)
    assert curves["quantiles"].shape == (6, len(LEVELS))


def test_a_finished_cell_is_never_done_again_and_a_changed_one_is(done):
    cells = experiments.cells([table()], TINY)
    paths = sorted(done.folder.rglob("*.json"))
    before = [path.stat().st_mtime_ns for path in paths]
    told = []
    experiments.run(cells, done, tell=lambda cell, error: told.append(cell.name))
    assert told == []
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert not done.has(dataclasses.replace(cells[0], settings={"n_neighbors": 3}))


def test_a_failing_cell_is_told_and_the_others_go_on(tmp_path):
    good, bad = experiments.cells([table(methods=["KNN", "Marginal"])], TINY, n_seeds=1)
    bad = dataclasses.replace(bad, method="Broken", model="KNN", settings={"n_neighbors": -1})
    store = experiments.Store(tmp_path)
    failed = experiments.run([bad, good], store)
    assert [(cell.method, str(error)[:20]) for cell, error in failed] == [
        ("Broken", "n_neighbors must be ")
    ]
    assert store.has(good)
    assert not store.has(bad)
    assert not list(tmp_path.rglob(".*"))  # no half-written file is left


def test_two_workers_store_the_same_as_one(done, tmp_path):
    cells = experiments.cells([table()], TINY)
    store = experiments.Store(tmp_path)
    assert experiments.run(cells, store, n_workers=2) == []
    for cell in cells:
        assert store.facts(cell)["records"] == done.facts(cell)["records"]


def test_tables_aggregate_seeds_beside_the_published_figures_and_the_noise_floor(done):
    published = {"ecm": {"KNN": {"mse": [1.24, 0.22]}}}
    rows = report.aggregate(table(published=published), TINY, done)
    assert rows["method"].tolist() == [*FAST, "noise floor"]
    squared = [
        np.mean(done.facts(cell)["records"]["squared_error"])
        for cell in experiments.cells([table()], TINY)
        if cell.method == "KNN"
    ]
    knn = rows.iloc[0]
    assert knn["n_seeds"] == 2
    assert knn["mse"] == pytest.approx(np.mean(squared))
    assert knn["mse_sd"] == pytest.approx(np.std(squared, ddof=1))
    assert (knn["mse_published"], knn["mse_published_sd"]) == (1.24, 0.22)
    assert 0 < rows.iloc[-1]["mse"] < knn["mse"]


def test_the_report_has_every_form_and_says_what_was_run(done, tmp_path):
    densities = dataclasses.replace(experiments.load("figure4"), methods=FAST)
    missing = dataclasses.replace(experiments.load("figure8"), methods=["GENTLE"])
    path = report.write_report([table(), densities, missing], TINY, done, tmp_path)
    text = path.read_text()
    assert "| ecm | KNN | 2 | " in text
    assert "![Densities at test covariates of ECM: the paper's methods](figure4.png)" in text
    assert "none of its methods has been run" in text
    assert "6 of the 8 fits of this profile are done" in text
    assert "This is the quick profile" in text
    assert "`KNN(n_neighbors=None, validation_fraction=0.1)`" in text
    assert r"\toprule" in (tmp_path / "table4.tex").read_text()
    assert len(pd.read_csv(tmp_path / "table4.csv")) == 4
    assert (tmp_path / "figure4.png").stat().st_size > 10_000
    assert (tmp_path / "figure4.pdf").read_bytes()[:4] == b"%PDF"


@pytest.mark.parametrize(
    ("value", "sd", "shown"),
    [
        (3145.2, 34.1, "3145 ± 34"),
        (13371.99, 3637.66, "13372 ± 3638"),
        (0.17324, 0.00057, "0.1732 ± 0.0006"),
        (-1.834, 0.13, "-1.83 ± 0.13"),
        (7.67e6, 4.8e5, "7.67e6 ± 0.48e6"),
        (0.5, 0.0, "0.5"),
        (float("nan"), float("nan"), ""),
    ],
)
def test_figures_have_the_digits_that_their_spread_allows(value, sd, shown):
    assert report.number(value, sd) == shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table9"], "there is no experiment 'table9'; there are table1, table2"),
        (["table2", "--methods", "KNN"], "no method KNN here; the methods are GENTLE, GENTLE w/o"),
    ],
)
def test_the_command_says_what_there_is(arguments, said):
    from typer.testing import CliRunner

    from gentle.cli.app import app

    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 1
    assert said in result.stderr


def run_command(folder, *options, **kwargs):
    command = [sys.executable, "-m", "gentle", "reproduce", "table4", "--methods", ",".join(FAST)]
    return subprocess.Popen(
        [*command, "--out", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **kwargs,
    )


def scores_of(folder):
    rows = pd.read_csv(folder / "quick" / "table4.csv")
    return rows.drop(columns=["fit_seconds", "sample_seconds"])


def test_a_killed_reproduction_goes_on_and_gives_the_same_table(tmp_path):
    whole = run_command(tmp_path / "whole", "--workers", "1")
    killed = run_command(tmp_path / "killed", "--workers", "1")
    cells = tmp_path / "killed" / "quick" / "cells"
    while not list(cells.rglob("*.json")):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    kept = {path: path.stat().st_mtime_ns for path in cells.rglob("*.json")}
    assert 0 < len(kept) < 6
    again = run_command(tmp_path / "killed", "--workers", "1")
    said = again.communicate(timeout=120)[0]
    assert again.returncode == 0, said
    assert f"{len(kept)} stored, {6 - len(kept)} to do" in said
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert whole.wait(timeout=120) == 0, whole.communicate()[0]
    whole.communicate()
    pd.testing.assert_frame_equal(scores_of(tmp_path / "killed"), scores_of(tmp_path / "whole"))
    facts = json.loads((cells / "ecm" / "knn-0.json").read_text())
    assert facts["options"] == spec.profile("quick").datasets["ecm"]
