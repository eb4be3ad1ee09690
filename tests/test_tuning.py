import os
import random
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance

import gentle
from gentle import GENTLE, KNN, tuning
from gentle.models.gentle import PAPER
from gentle.spaces import Between, OneOf
from gentle.training import watching

SMALL = {"n_steps": 12, "hidden_widths": (8,), "n_trees": 6}
PAPERS = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"}
TINY = {"n_epochs": 12, "patience": 12, "hidden_widths": (8,), "n_levels": 51, "batch_size": 60}
TINY |= PAPERS


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(2 * X[:, 0]) + rng.normal(0, 0.4, n)


class Watched(KNN):
    """Nearest neighbours that take down what they are fitted to."""

    fits = []  # noqa: RUF012
    interrupt_at = None

    def fit(self, X, y, sample_weight=None, eval_set=None):
        Watched.fits.append((X, y, sample_weight, eval_set, self.n_neighbors))
        if len(Watched.fits) == Watched.interrupt_at:
            raise KeyboardInterrupt
        return super().fit(X, y, sample_weight, eval_set)


@pytest.fixture
def fits(monkeypatch):
    monkeypatch.setattr(Watched, "fits", [])
    return Watched.fits


def crps(model, X, y, weight=None):
    return np.average(model.predict_dist(X).crps(y), weights=weight)


# The smart search


def test_the_search_finds_the_best_number_of_neighbours():
    train, validation = table(300), table(200, seed=1)

    def score(k):
        return crps(KNN(n_neighbors=k).fit(*train), *validation)

    found = tuning.search(
        KNN(n_neighbors=250),
        *train,
        space={"n_neighbors": Between(1, 250, log=True)},
        eval_set=validation,
        n_trials=30,
        random_state=0,
    )
    assert found.best_score <= 1.01 * min(score(k) for k in range(1, 250, 3))
    assert found.best_score == pytest.approx(score(found.best_settings["n_neighbors"]))
    assert found.own_score == pytest.approx(score(250))
    assert found.own_score > 1.5 * found.best_score  # there was something to find
    assert found.trials["score"].min() == found.best_score
    # It looks where it has found something: later trials are better than the first, random ones.
    assert found.trials["score"][15:].mean() < found.trials["score"][1:11].mean()


def test_scores_are_weighted_means_over_the_responses():
    train, (X, y) = table(), table(50, seed=1)
    weight = np.random.default_rng(0).random(50)
    space = {"n_neighbors": OneOf((4,))}
    found = tuning.search(KNN(), *train, space=space, eval_set=(X, y, weight), n_trials=2)
    assert found.trials["settings"][1] == {"n_neighbors": 4}
    expected = crps(KNN(n_neighbors=4).fit(*train), X, y, weight)
    assert found.trials["score"][1] == pytest.approx(expected)


def test_the_settings_given_are_the_first_trial_and_win_if_nothing_is_better():
    found = tuning.search(
        KNN(n_neighbors=12), *table(), space={"n_neighbors": OneOf((1, 160))}, n_trials=4
    )
    assert found.trials["settings"][0] == {"n_neighbors": 12}
    assert found.best_settings == {"n_neighbors": 12}
    assert found.best_score == found.own_score == found.trials["score"][0]
    assert found.model.n_neighbors == 12
    assert "none could beat" in str(found)


def test_trials_share_held_out_rows_and_the_model_sees_the_whole_table(fits):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 12, (150, 2)), columns=["a", "b"])
    y = pd.Series(X["a"] + rng.normal(size=150), name="wage")
    weight = rng.integers(0, 3, 150).astype(float)
    found = tuning.search(
        Watched(), X, y, weight, n_trials=3, random_state=4, validation_fraction=0.3
    )
    *trials, last = fits
    assert len(trials) == 3
    for x_train, y_train, w_train, (x_held, y_held, w_held), _ in trials:
        for one, other in zip((x_train, y_train, w_train), trials[0]):
            np.testing.assert_array_equal(one, other)
        inside, outside = ({tuple(row) for row in x.to_numpy()} for x in (x_train, x_held))
        assert inside.isdisjoint(outside)
        assert len(outside) == round(0.3 * len(inside | outside))
        parts = ((x_train, y_train, w_train), (x_held, y_held, w_held))
        rows = np.vstack([np.column_stack(part) for part in parts])
        every = np.column_stack([X, y, weight])[weight > 0]
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], every[np.lexsort(every.T)])
    assert last[0] is X
    assert last[1] is y
    assert last[3] is None
    assert list(found.model.feature_names_in_) == ["a", "b"]
    assert found.model.response_name_ == "wage"
    assert found.model.random_state == 4


@pytest.mark.parametrize("settings", [SMALL, TINY], ids=["default", "paper"])
def test_with_an_eval_set_the_model_is_that_of_the_best_trial(tmp_path, settings):
    train, validation = table(), table(60, seed=1)
    space = {"lr_generator": Between(1e-3, 1e-2, log=True), "hidden_widths": OneOf(((8,), (9, 9)))}
    found = tuning.search(
        GENTLE(**settings), *train, space=space, eval_set=validation, n_trials=3, random_state=1
    )
    assert crps(found.model, *validation) == pytest.approx(found.best_score)
    assert found.best_settings.items() <= found.model.get_params().items()
    found.model.save(tmp_path / "model")
    loaded = gentle.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.sample(train[0], 2, 0), found.model.sample(train[0], 2, 0))


def test_equal_seeds_give_equal_searches_and_global_randomness_is_left_alone():
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    one, two, other = (
        tuning.search("KernelCDE", *table(), n_trials=13, random_state=seed) for seed in (1, 1, 2)
    )
    assert before == (np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
    columns = ["number", "settings", "score", "state"]
    pd.testing.assert_frame_equal(one.trials[columns], two.trials[columns])
    assert list(one.trials["settings"]) != list(other.trials["settings"])
    tried = [settings["bandwidth"] for settings in one.trials["settings"]]
    assert len(set(tried)) == 13


def test_a_search_goes_on_as_if_it_had_not_ended(tmp_path, fits):
    space = {"n_neighbors": Between(1, 99), "validation_fraction": Between(0.1, 0.5)}
    options = {"space": space, "random_state": 3}
    at_once = tuning.search(Watched(), *table(), n_trials=14, **options)
    assert len(fits) == 14 + 1
    del fits[:]
    first = tuning.search(Watched(), *table(), n_trials=12, folder=tmp_path / "study", **options)
    assert len(fits) == 12 + 1
    both = tuning.search(Watched(), *table(), n_trials=14, folder=tmp_path / "study", **options)
    assert len(fits) == 12 + 1 + 2 + 1
    pd.testing.assert_frame_equal(both.trials[:12], first.trials)
    columns = ["number", "settings", "score", "state"]
    pd.testing.assert_frame_equal(both.trials[columns], at_once.trials[columns])
    del fits[:]
    again = tuning.search(Watched(), *table(), n_trials=5, folder=tmp_path / "study", space=space)
    assert len(fits) == 1  # only the model of the end
    assert again.model.random_state == 3  # the seed of the study
    assert len(again.trials) == 14


KILLED = """
import sys, time
import numpy as np
from gentle import KNN, tuning

class Watched(KNN):
    n_fits = 0
    def fit(self, *table, **options):
        Watched.n_fits += 1
        if Watched.n_fits == 3:
            print("busy", flush=True)
            time.sleep(600)
        return super().fit(*table, **options)

X = np.linspace(0, 1, 50)[:, None]
tuning.search(Watched(), X, X[:, 0] ** 2, n_trials=5, folder=sys.argv[1], random_state=0)
"""


def test_a_killed_search_is_resumed(tmp_path, fits):
    script, folder = tmp_path / "killed.py", tmp_path / "study"
    script.write_text(KILLED)
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    # Death may also come while a line is written, under the lock of the journal.
    journal = folder / "trials.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code":')
    os.symlink(journal, f"{journal}.lock")
    X = np.linspace(0, 1, 50)[:, None]
    found = tuning.search(Watched(), X, X[:, 0] ** 2, n_trials=5, folder=folder, random_state=0)
    assert found.trials["state"].tolist() == ["finished"] * 2 + ["interrupted"] + ["finished"] * 3
    assert found.trials["score"].isna().tolist() == [False, False, True, False, False, False]
    assert len(fits) == 3 + 1


def test_two_workers_share_a_study():
    train, validation = table(), table(50, seed=1)
    found = tuning.search("KNN", *train, eval_set=validation, n_trials=7, n_workers=2)
    assert found.trials["number"].tolist() == list(range(7))
    assert found.trials["state"].eq("finished").all()
    tried = [settings["n_neighbors"] for settings in found.trials["settings"]]
    assert tried.count(None) == 1
    assert len(set(tried[1:])) > 1
    for k, score in zip(tried, found.trials["score"]):
        if k is not None:
            assert score == pytest.approx(crps(KNN(n_neighbors=k).fit(*train), *validation))


def test_hopeless_training_is_stopped_early(monkeypatch):
    epochs, score = [], gentle.models.game._validation_score

    def counted(*arguments):
        epochs.append(1)
        return score(*arguments)

    monkeypatch.setattr("gentle.models.game._validation_score", counted)
    X, _ = table(100)
    found = tuning.search(
        GENTLE(**TINY | {"batch_size": 20, "reg_weight": 0, "lr_generator": 0.02}),
        X,
        X[:, 0],
        space={"lr_generator": OneOf((0.02, 0.018, 1e-9))},
        n_trials=14,
        random_state=0,
    )
    trials = found.trials
    n_finished = trials["state"].eq("finished").sum()
    stopped = trials[trials["state"] == "stopped early"]
    assert n_finished + len(stopped) == 14
    hopeless = trials[[settings["lr_generator"] == 1e-9 for settings in trials["settings"]]]
    late = hopeless[hopeless["number"] > 5]
    assert len(late) > 0
    assert late["state"].eq("stopped early").all()
    # Those have seen 6 of 12 epochs, any other stopped trial 6 to 11.
    spent = len(epochs) - 12 * (n_finished + 1)
    assert 6 * len(stopped) <= spent <= 6 * len(late) + 11 * (len(stopped) - len(late))
    assert stopped["score"].isna().all()
    assert found.best_settings["lr_generator"] > 0.01


def test_a_watcher_can_end_a_training_and_the_model_stays_as_it_was():
    X, y = table(60)
    model = GENTLE(**TINY, random_state=0, verbose=0).fit(X, y)
    before, history = model.predict(X), model.history_
    seen = []

    def impatient(record):
        seen.append(record["epoch"])
        if record["epoch"] == 3:
            raise StopIteration

    with pytest.raises(StopIteration), watching(impatient):
        model.fit(X, y + 5)
    assert seen == [1, 2, 3]
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.history_ is history
    model.fit(X, y)  # nobody watches any more
    assert seen == [1, 2, 3]


def test_a_failed_trial_is_told_and_the_search_goes_on():
    space = {"n_neighbors": OneOf((5, -1))}
    with pytest.warns(UserWarning, match=r"trial \d \(.*-1.*n_neighbors must be an integer"):
        found = tuning.search(KNN(), *table(), space=space, n_trials=8, random_state=0)
    failed = found.trials["state"] == "failed"
    assert found.trials["score"].isna().equals(failed)
    assert [s["n_neighbors"] for s in found.trials["settings"][failed]] == [-1] * failed.sum()
    assert found.best_settings["n_neighbors"] in (None, 5)
    with (
        pytest.warns(UserWarning, match=r"trial \d .*must be an integer") as warned,
        pytest.raises(RuntimeError, match=r"no trial finished: .*must be an integer"),
    ):
        tuning.search(KNN(n_neighbors=-1), *table(), space={"n_neighbors": OneOf((-1, -2))})
    assert len(warned) == 3  # more would fail as well


def test_no_trial_begins_after_the_timeout(fits):
    with pytest.raises(RuntimeError, match="no time"):
        tuning.search(Watched(), *table(), timeout=0)
    assert fits == []
    seen = []

    def callback(trials, n_planned):
        seen.append((len(trials), n_planned))

    found = tuning.search(Watched(), *table(), n_trials=300, timeout=0.5, callback=callback)
    assert 1 <= len(found.trials) < 300
    assert {n_planned for _, n_planned in seen} == {300}
    assert sorted({n for n, _ in seen}) == list(range(len(found.trials) + 1))


@pytest.mark.parametrize("name", ["GENTLE", "KNN", "KernelCDE"])
def test_declared_spaces_are_settings_that_the_model_takes(name):
    model = getattr(gentle, name)()
    assert model.search_space
    for setting, among in model.search_space.items():
        values = among.values if isinstance(among, OneOf) else (among.low, among.high)
        for value in values:
            model.set_params(**{setting: value})._check_parameters()


# The grid of the paper


def test_the_papers_grid_varies_lambda_and_h_and_fixes_the_rest():
    grid = dict(tuning.PAPER_GRID)
    assert grid.pop("reg_weight") == (0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8)
    h = grid.pop("bandwidth")
    assert h == (0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
    for name in PAPER:
        settings = GENTLE.from_paper(name).get_params()
        assert all(values == (settings[setting],) for setting, values in grid.items())
        assert settings["bandwidth"] in h
        same = GENTLE().set_params(**{s: v for s, (v,) in grid.items()}).get_params()
        varied = {"reg_weight", "bandwidth"}
        assert all(same[key] == settings[key] for key in same if key not in varied)


def repeated(n_covariates=4, n_responses=25):
    rng = np.random.default_rng(5)
    X = np.repeat(rng.uniform(-2, 2, (n_covariates, 1)), n_responses, axis=0)
    return X, np.sin(2 * X[:, 0]) + rng.normal(0, 0.4, len(X))


def test_every_point_is_scored_by_the_wasserstein_distance():
    train, (X, y) = table(), repeated()
    grid = {"n_neighbors": [3, 30], "validation_fraction": [0.1, 0.2]}
    found = tuning.grid_search(KNN(), grid, *train, eval_set=(X, y))
    tried = [tuple(settings.values()) for settings in found.trials["settings"]]
    assert sorted(tried) == [(3, 0.1), (3, 0.2), (30, 0.1), (30, 0.2)]
    for settings, score in zip(found.trials["settings"], found.trials["score"]):
        model = KNN(n_neighbors=settings["n_neighbors"]).fit(*train)
        draws = model.predict_quantiles(X[::25], (np.arange(3000) + 0.5) / 3000)
        distances = [wasserstein_distance(draws[i], y[25 * i :][:25]) for i in range(4)]
        assert score == pytest.approx(np.mean(distances), rel=0.03)
    assert found.best_score == found.trials["score"].min()
    assert found.own_score is None
    assert found.varied == ["n_neighbors", "validation_fraction"]
    assert "the best of 4 trials (4 finished) has a validation WD of" in str(found)


def test_rare_covariates_are_refused_as_judges_by_wasserstein_distance():
    X, y = repeated()
    one_point = {"n_neighbors": [3]}
    unweighted = (np.arange(100) >= 6).astype(float)  # rows of weight 0 do not count
    for rows, fewest in [(table(50), 1), ((X[6:], y[6:]), 19), ((X, y, unweighted), 19)]:
        with pytest.raises(ValueError, match=rf"one has {fewest}\. .* Use criterion='crps'"):
            tuning.grid_search("KNN", one_point, *table(), eval_set=rows)
    with pytest.raises(ValueError, match="one has 1"):
        tuning.grid_search("KNN", one_point, *table())
    tuning.grid_search("KNN", one_point, *table(), eval_set=(X[5:], y[5:]))


def test_a_grid_is_stored_point_by_point_and_nothing_is_computed_twice(tmp_path, fits, monkeypatch):
    options = {"criterion": "crps", "folder": tmp_path / "study", "random_state": 0}
    grid = {"n_neighbors": [2, 4, 8, 16]}
    monkeypatch.setattr(Watched, "interrupt_at", 3)
    with pytest.raises(KeyboardInterrupt):
        tuning.grid_search(Watched(), grid, *table(), **options)
    monkeypatch.setattr(Watched, "interrupt_at", None)
    found = tuning.grid_search(Watched(), grid, *table(), **options)
    best = found.best_settings["n_neighbors"]
    assert [k for *_, k in fits] == [2, 4, 8, 8, 16, best]
    assert found.trials["number"].tolist() == [0, 1, 2, 3]
    del fits[:]
    larger = tuning.grid_search(Watched(), {"n_neighbors": [1, 2, 4, 8, 16]}, *table(), **options)
    assert [k for *_, k in fits] == [1, larger.best_settings["n_neighbors"]]
    np.testing.assert_array_equal(larger.trials["score"][1:], found.trials["score"])


def test_failed_points_of_a_grid_are_tried_again(tmp_path, fits):
    options = {"criterion": "crps", "folder": tmp_path / "study", "random_state": 0}
    grid = {"n_neighbors": [-2, -1, 2, -3, -4, -5, 4]}
    for n_new in (7, 5):
        with pytest.warns(
            UserWarning, match=r"^{'n_neighbors': -\d} failed with ValueError"
        ) as told:
            found = tuning.grid_search(Watched(), grid, *table(), **options)
        assert len(told) == 5
        assert found.trials["state"].value_counts().to_dict() == {"failed": 5, "finished": 2}
        assert len(fits) == n_new + 1
        del fits[:]


def test_two_workers_share_a_grid(tmp_path):
    grid = {"n_neighbors": [2, 4, 8]}
    options = {"criterion": "crps", "random_state": 0}
    one = tuning.grid_search("KNN", grid, *table(), **options)
    two = tuning.grid_search("KNN", grid, *table(), n_workers=2, folder=tmp_path / "g", **options)
    np.testing.assert_array_equal(one.trials["score"], two.trials["score"])
    assert one.best_settings == two.best_settings


# Folders and wrong arguments


def test_a_folder_belongs_to_one_search(tmp_path):
    X, y = table()
    options = {"n_trials": 1, "folder": tmp_path / "study"}
    tuning.search(KNN(), X, y, random_state=0, **options)
    for arguments, changes, named in [
        ((KNN(validation_fraction=0.3), X, y), {}, "settings"),
        (("KernelCDE", X, y), {}, "space, model, settings"),
        ((KNN(), X, y + 1), {}, "rows"),
        ((KNN(), X, y), {"validation_fraction": 0.3}, "rows"),
        ((KNN(), X, y), {"eval_set": (X, y)}, "rows"),
        ((KNN(), X, y), {"random_state": 1}, "seed, settings, rows"),
        ((KNN(), X, y), {"space": {"n_neighbors": Between(1, 9)}}, "space"),
    ]:
        with pytest.raises(ValueError, match=rf"differs in: {named}\. .* another folder"):
            tuning.search(*arguments, **(options | changes))
    grid = {"n_neighbors": [2]}
    with pytest.raises(ValueError, match="differs in: kind"):
        tuning.grid_search(KNN(), grid, X, y, criterion="crps", folder=options["folder"])
    assert len(tuning.search(KNN(device="cpu", verbose=0), X, y, **options).trials) == 1


def test_two_searches_at_once_in_a_folder_are_refused(tmp_path):
    pytest.importorskip("fcntl")

    def intrude(trials, n_planned):
        tuning.search("KNN", *table(), folder=tmp_path / "study")

    with pytest.raises(RuntimeError, match="another search is at work"):
        tuning.search("KNN", *table(), folder=tmp_path / "study", callback=intrude)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("precious")
    with pytest.raises(FileExistsError, match="other files"):
        tuning.search("KNN", *table(), folder=tmp_path)
    assert os.listdir(tmp_path) == ["precious"]
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/study.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        tuning.search("KNN", *table(), folder=tmp_path / "damaged")


@pytest.mark.parametrize(
    ("changes", "error", "expected"),
    [
        ({"model": "Forest"}, ValueError, "there is no model 'Forest'"),
        ({"model": KNN}, TypeError, "unfitted model such as GENTLE()"),
        ({"model": "Marginal"}, ValueError, "declares no search_space"),
        ({"space": {"k": OneOf((1,))}}, ValueError, "no setting 'k' .* n_neighbors"),
        ({"criterion": "ks"}, ValueError, "'crps' or 'wd', got 'ks'"),
        ({"validation_fraction": 1}, ValueError, "validation_fraction"),
        ({"X": np.zeros((200, 1))}, ValueError, "same covariates"),
        ({"X": [["a"]] * 200}, ValueError, "same covariates"),
        ({"y": [np.nan] * 200}, ValueError, "NaN"),
        ({"eval_set": (np.zeros((3, 2)), [1, 2, 3])}, ValueError, "2 features"),
    ],
)
def test_wrong_arguments(changes, error, expected):
    X, y = table()
    with pytest.raises(error, match=expected):
        tuning.search(**({"model": "KNN", "X": X, "y": y} | changes))


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"gentle-ot\[tune\]"):
        tuning.search("KNN", *table())
    grid = {"n_neighbors": [3]}
    assert tuning.grid_search("KNN", grid, *table(), criterion="crps").best_settings
