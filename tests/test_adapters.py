"""Models of other packages: what they answer is the package's, and they leave no trace."""

import json
import logging
import os
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import laplace, norm, t

import gentle
from gentle.data import Rows
from gentle.models.disk import sealed
from gentle.models.levels import even_levels
from gentle.models.registry import model_class

SETTINGS = {
    "Engression": {"n_epochs": 60, "hidden_width": 50, "noise_width": 20, "n_draws": 200},
    "NGBoost": {"n_estimators": 100, "learning_rate": 0.05},
    "CatBoost": {"n_levels": 9, "n_estimators": 100, "learning_rate": 0.1, "max_depth": 4},
    "RealMLP": {"n_levels": 9, "n_epochs": 15, "hidden_widths": (32, 32), "batch_size": 64},
}


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def name(request):
    package = model_class(request.param)._package
    pytest.importorskip(package, reason=f"{request.param} needs the package {package!r}")
    return request.param


def make(name, **changes):
    return model_class(name)(**{"random_state": 0, "device": "cpu"} | SETTINGS[name] | changes)


@pytest.fixture(scope="module")
def benchmark():
    return gentle.datasets.load("tanh-plus-gamma", n_train=800, n_val=100, n_test=100)


@pytest.fixture(scope="module")
def fitted(name, benchmark):
    return make(name).fit(*benchmark.train)


def encoded(model, X):
    return model.covariate_encoder_.encode(X.to_numpy(float))


def test_a_known_law_is_recovered(fitted, benchmark):
    X, y = benchmark.test
    levels = [0.1, 0.5, 0.9]
    truth = benchmark.truth.quantile(X, levels)
    marginal = np.quantile(benchmark.train.y, levels)
    error = np.abs(fitted.predict_quantiles(X, levels) - truth).mean()
    assert error < 0.3 * np.abs(marginal - truth).mean()
    assert fitted.score(X, y) > 0.5


def test_quantiles_are_those_of_the_package(fitted, name, benchmark):
    X, _ = benchmark.test
    x, n = encoded(fitted, X), len(X)
    if name == "Engression":
        levels = (np.arange(fitted.n_draws) + 0.5) / fitted.n_draws
        expected = np.empty((n, fitted.n_draws))
        with torch.random.fork_rng():
            for i in range(n):
                torch.manual_seed(0)
                expected[i] = fitted.model_.sample(x[i : i + 1], fitted.n_draws)[0, 0]
    elif name == "NGBoost":
        levels = np.array([1e-5, 0.2, 0.5, 0.99])
        stage = fitted.model_.best_val_loss_itr + 1
        loc, log_scale = fitted.model_.pred_param(x, max_iter=stage).T
        expected = norm.ppf(levels, loc[:, None], np.exp(log_scale)[:, None])
    else:
        levels, expected = even_levels(9), fitted.model_.predict(x)
    expected = fitted.response_encoder_.decode(np.sort(expected, axis=1))
    # NGBoost's quantile function is known everywhere and cut into 200 pieces.
    tolerance = 1e-3 if name == "NGBoost" else 1e-6
    np.testing.assert_allclose(fitted.predict_quantiles(X, levels), expected, atol=tolerance)


def test_random_states_threads_logs_and_the_folder_stay_as_they_were(
    name, benchmark, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    X, y = benchmark.train

    def outside():
        numpy = np.random.get_state()  # noqa: NPY002
        states = random.getstate(), numpy, torch.get_rng_state().tolist()
        return repr((states, torch.get_num_threads(), logging.root.manager.disable))

    before, filters = outside(), list(warnings.filters)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model = make(name, n_epochs=2) if "n_epochs" in SETTINGS[name] else make(name)
        model.fit(X[:200], y[:200]).sample(X[:5], 3)
    assert outside() == before
    assert warnings.filters == filters
    assert not heard
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr() == ("", "")


def test_threads_ask_the_package_one_after_the_other(fitted, benchmark, monkeypatch, capfd):
    X, _ = benchmark.test
    whole = fitted.predict_quantiles(X, [0.1, 0.5, 0.9])
    monkeypatch.setattr("gentle.models.base._CHUNK_CELLS", 5 * fitted._n_knots())
    monkeypatch.setattr("gentle.workers.n_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = sys.stdout, torch.get_num_threads(), torch.get_rng_state().tolist()
    for _ in range(3):
        np.testing.assert_array_equal(fitted.predict_quantiles(X, [0.1, 0.5, 0.9]), whole)
    assert (sys.stdout, torch.get_num_threads(), torch.get_rng_state().tolist()) == before
    assert capfd.readouterr() == ("", "")


def test_the_global_seed_does_not_matter(name, benchmark):
    X, y = benchmark.train
    answers = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        model = make(name, n_epochs=2) if "n_epochs" in SETTINGS[name] else make(name)
        answers.append(model.fit(X[:150], y[:150]).predict(X[:20]))
    np.testing.assert_array_equal(*answers)


def test_weights_matter(name):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (600, 1)), rng.normal(size=600)
    model = make(name).fit(X, y, sample_weight=np.exp(y))  # so weighted, they are N(1, 1)
    assert model.predict(X[:100]).mean() == pytest.approx(1, abs=0.25)


def test_an_eval_set_decides_when_training_has_been_enough(name, benchmark):
    X, y = benchmark.train
    held_out, responses = benchmark.val
    good = make(name).fit(X, y, eval_set=(held_out, responses))
    bad = make(name).fit(X, y, eval_set=(held_out, -responses))  # best not to learn at all
    assert good.score(*benchmark.test) > bad.score(*benchmark.test) + 0.03


def test_where_covariates_do_not_vary_the_answer_is_the_marginal(name):
    y = np.array([1.0, 1.0, 2.0, 7.0])
    with pytest.warns(UserWarning, match="constant column"):
        model = make(name).fit(np.ones((4, 2)), y, sample_weight=[1, 2, 3, 2])
    np.testing.assert_allclose(model.cdf(np.ones((3, 2)), 1.5), 3 / 8)
    np.testing.assert_allclose(model.predict(np.ones((3, 2))), 23 / 8)


def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    package = model_class(name)._package
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ImportError,
        match=rf"{name} needs the package '{package}': pip install 'gentle-ot\[bench\]'",
    ):
        make(name).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])


def test_a_saved_model_that_claims_to_be_an_adapter_is_refused(name, tmp_path):
    folder = tmp_path / "model"
    gentle.KNN(n_neighbors=1).fit(np.eye(3), np.arange(3.0)).save(folder)
    facts = json.loads((folder / "model.json").read_text()) | {"class": name, "parameters": {}}
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "model.json").write_text(json.dumps(sealed(facts, weights)))
    with pytest.raises(ValueError, match="cannot be saved without pickle"):
        gentle.load(folder)


@pytest.mark.parametrize(("kind", "law"), [("laplace", laplace), ("student", t(3))])
def test_ngboost_has_other_laws(kind, law):
    pytest.importorskip("ngboost", reason="NGBoost needs the package 'ngboost'")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 1))
    y = 2 * X[:, 0] + law.rvs(size=600, random_state=1)
    model = make("NGBoost", distribution=kind).fit(X, y)
    levels = np.array([0.05, 0.3, 0.7, 0.95])
    expected = 2 * X + law.ppf(levels)
    assert np.abs(model.predict_quantiles(X, levels) - expected).mean() < 0.6
    dist = model.model_.pred_dist(model.covariate_encoder_.encode(X), max_iter=None)
    assert type(dist).__name__ == {"laplace": "Laplace", "student": "TFixedDf"}[kind]


def test_resampled_rows_come_as_often_as_their_weights_say():
    rng = np.random.default_rng(0)
    weight = rng.gamma(0.5, size=300)
    rows = Rows(np.arange(300.0)[:, None], np.arange(300.0), weight / weight.mean())
    for seed in range(20):
        often = np.bincount(
            rows.resampled(np.random.default_rng(seed)).y.astype(int), minlength=300
        )
        assert often.sum() == 300
        assert np.all(np.abs(often - rows.weight) < 1)
    even = Rows(rows.x, rows.y, np.ones(300))
    np.testing.assert_array_equal(even.resampled(rng).y, even.y)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("CatBoost", {"n_levels": 1}, "n_levels must be an integer of at least 2, got 1"),
        ("CatBoost", {"n_jobs": 0}, "n_jobs must be an integer of at least 1, got 0"),
        ("NGBoost", {"distribution": "cauchy"}, "distribution must be 'normal', 'laplace' or"),
        ("NGBoost", {"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ("Engression", {"n_layers": 1}, "n_layers must be an integer of at least 2, got 1"),
        ("Engression", {"device": "abacus"}, "device must be 'auto', 'cpu', 'cuda' or 'mps'"),
        ("RealMLP", {"hidden_widths": ()}, "hidden_widths must be a sequence of positive integers"),
        ("RealMLP", {"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused_by_name(name, changes, message):
    with pytest.raises(ValueError, match=message):
        make(name, **changes).fit([[0.0], [1.0]], [0.0, 1.0])
