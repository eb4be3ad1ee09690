import errno
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

import gentle
from budgets import BUDGETS, kind, make
from gentle import CWGAN, GENTLE, KNN, Marginal, QuantileForest
from gentle.models import disk

SETTINGS = {
    "default": {"n_steps": 5, "n_trees": 6},
    "paper": {
        **{"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"},
        **{"n_epochs": 1, "n_levels": 21},
    },
}


def fitted(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    settings = SETTINGS[kind] | {"hidden_widths": (8, 8), "random_state": 0, "verbose": 0}
    return GENTLE(**settings).fit(X, X[:, 0] + rng.normal(size=60))


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def model(request):
    return fitted(request.param)


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_is_two_files_of_which_one_is_for_people(folder):
    assert sorted(os.listdir(folder)) == ["model.json", "weights.safetensors"]
    facts = json.loads((folder / "model.json").read_text())
    assert facts["class"] == "GENTLE"
    assert facts["format"] == 3
    assert facts["parameters"]["hidden_widths"] == [8, 8]
    assert facts["facts"]["history"][0]["epoch"] == 1
    assert "torch" in facts["versions"]
    assert facts["training"]["n_rows"] == 60
    assert [column["kind"] for column in facts["columns"]] == ["number", "number"]
    assert facts["holds"] == "no training rows"
    assert set(facts["sha256"]) == {"model.json", "weights.safetensors"}


def test_history_network_and_tree_come_back(model, folder):
    loaded = gentle.load(folder)
    assert loaded.history_ == model.history_
    assert loaded.validation_skill_ == model.validation_skill_
    if model.is_game:
        np.testing.assert_array_equal(loaded.parent_, model.parent_)
    u = [0.1, 0.7]
    X = np.zeros((1, 2))
    np.testing.assert_array_equal(loaded.transport_map(X, u), model.transport_map(X, u))


def test_an_existing_model_is_replaced_on_request_only(model, folder):
    other = KNN(n_neighbors=3, verbose=0).fit(np.eye(5), np.arange(5.0))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(folder)
    assert type(gentle.load(folder)) is GENTLE
    other.save(folder, overwrite=True)
    assert type(gentle.load(folder)) is KNN
    assert os.listdir(folder.parent) == ["model"]


def test_a_folder_with_other_things_is_never_touched(model, tmp_path):
    (tmp_path / "thesis.docx").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds other files"):
        model.save(tmp_path, overwrite=True)
    file = tmp_path / "thesis.docx"
    with pytest.raises(FileExistsError, match="not a folder"):
        model.save(file, overwrite=True)
    assert file.read_text() == "years of work"
    assert os.listdir(tmp_path) == ["thesis.docx"]


def test_an_empty_folder_may_be_filled_even_the_current_one(model, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    model.save(".")
    monkeypatch.chdir(tmp_path)
    assert type(gentle.load("empty")) is GENTLE
    assert os.listdir(tmp_path) == ["empty"]


def test_arrays_as_parameters_are_saved_and_what_cannot_be_is_refused(model, tmp_path):
    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    settings = {"hidden_widths": np.array([4, 4]), "n_steps": 5, "n_trees": 2, "verbose": 0}
    GENTLE(**settings, random_state=np.random.default_rng(0)).fit(X, y).save(tmp_path / "m")
    loaded = gentle.load(tmp_path / "m")
    assert tuple(loaded.hidden_widths) == (4, 4)
    assert loaded.random_state is None
    loaded.criterion = object()
    with pytest.raises(ValueError, match=r"criterion=.* cannot be saved"):
        loaded.save(tmp_path / "n")


def test_missing_and_foreign_folders_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no saved model in .* there is no model\.json"):
        gentle.load(tmp_path / "nothing")
    (tmp_path / "model.json").write_text('{"name": "left-pad"}')
    with pytest.raises(ValueError, match="not the description of a GENTLE model"):
        gentle.load(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_a_value_error(folder, name, share):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"damaged|cannot be read"):
        gentle.load(folder)


def edit(folder, **changes):
    """Change a description and correct its checksum."""
    facts = json.loads((folder / "model.json").read_text()) | changes
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "model.json").write_text(json.dumps(disk.sealed(facts, weights)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "Update gentle-ot"),
        ({"class": "Popen"}, "there is no model 'Popen'"),
        ({"parameters": {"shell": True}}, "damaged or was not written by this library"),
        ({"parameters": {"hidden_widths": [9]}}, "damaged"),
        ({"columns": [{"kind": "number"}]}, "damaged"),
        ({"columns": []}, "damaged"),
        ({"facts": None}, "damaged"),
        ({"response": {"name": None, "shift": 0.0, "scale": -1.0}}, "damaged"),
        ({"class": "KNN", "parameters": {}}, "damaged"),
    ],
)
def test_a_tampered_description_is_a_value_error(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        gentle.load(folder)


def test_a_description_may_be_laid_out_anew_but_not_changed(folder):
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts, indent=8, sort_keys=True))
    assert type(gentle.load(folder)) is GENTLE
    facts["training"]["n_rows"] += 1
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"model\.json does not match its checksum"):
        gentle.load(folder)


SAVED = Path(__file__).parent / "data" / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_models_of_all_formats_load_for_ever(name, tmp_path):
    """These files are never written again: a later version must read them as they are."""
    asked = EXPECTED[name]
    X = pd.DataFrame(asked["X"])
    if "since" in X:
        X["since"] = pd.to_datetime(X["since"])
    model = gentle.load(SAVED / name)
    answer = model.predict_quantiles(X, asked["levels"])
    if "gentle" in name:  # matrix products of other versions of torch may round differently
        np.testing.assert_allclose(answer, asked["quantiles"], rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(answer, asked["quantiles"])
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again/model.json").read_text())["format"] == 3
    again = gentle.load(tmp_path / "again").predict_quantiles(X, asked["levels"])
    np.testing.assert_array_equal(again, answer)


def test_every_format_has_saved_models():
    formats = [json.loads((SAVED / name / "model.json").read_text())["format"] for name in EXPECTED]
    assert set(formats) == {1, 2, 3}
    assert {path.name for path in SAVED.iterdir()} == {*EXPECTED, "expected.json"}


def test_changed_weights_do_not_load(folder):
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(weights))
    with pytest.raises(ValueError, match="checksum"):
        gentle.load(folder)
    (folder / "weights.safetensors").unlink()
    with pytest.raises(ValueError, match="missing"):
        gentle.load(folder)


def small(k, n=40):
    """A model whose two files both differ from those of another k."""
    return KNN(n_neighbors=k, verbose=0).fit(np.arange(n)[:, None], np.arange(n) + 1.0 * k)


class Faults:
    """Lets one call of the system fail, the files' writing half-way."""

    def __init__(self, monkeypatch, fail_at):
        self.calls, self.fail_at = 0, fail_at
        for name in ("replace", "fsync", "open", "mkdir"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        monkeypatch.setattr(disk, "open", self.opened, raising=False)

    def due(self):
        self.calls += 1
        return self.calls == self.fail_at

    def counted(self, function):
        def call(*args, **options):
            if self.due():
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*args, **options)

        return call

    def opened(self, path, mode):
        if self.due():
            raise OSError(errno.ENOSPC, "No space left on device")
        file = io.open(path, mode)  # noqa: SIM115, UP020
        if mode == "xb" and self.due():
            file.write(b"half")
            file.close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return file


@pytest.mark.parametrize("first", [True, False])
def test_a_save_that_fails_anywhere_leaves_the_old_model_or_the_new_one(tmp_path, first):
    folder, failures = tmp_path / "parent" / "m", 0
    for fail_at in range(1, 100):
        if not first:
            small(1).save(folder, overwrite=True)
        with pytest.MonkeyPatch.context() as patch:
            faults, said = Faults(patch, fail_at), None
            try:
                small(2).save(folder, overwrite=True)
            except OSError as error:
                failures, said = failures + 1, str(error)
        assert said is None or "No space left on device" in said
        untouched = said is not None and "what was there is as it was" in said
        left = sorted(os.listdir(folder)) if folder.exists() else []
        if untouched:
            assert left == ([] if first else ["model.json", "weights.safetensors"])
            assert first or gentle.load(folder).n_neighbors_ == 1
            assert first == (not folder.exists())
        else:
            assert gentle.load(folder).n_neighbors_ == 2
        if fail_at > faults.calls:
            assert left == ["model.json", "weights.safetensors"]
            break
        if first and folder.exists():  # the new model, with names that a crash has left
            small(3).save(folder, overwrite=True)
            assert sorted(os.listdir(folder)) == ["model.json", "weights.safetensors"]
            for name in os.listdir(folder):
                (folder / name).unlink()
            folder.rmdir()
    assert failures >= 10


KILLER = """
import os, shutil, signal, sys
import numpy as np
from gentle import KNN, load
from gentle.models import disk

def small(k):
    return KNN(n_neighbors=k, verbose=0).fit(np.arange(40)[:, None], np.arange(40) + 1.0 * k)

left, events = None, ("open", "os.rename", "os.remove", "os.mkdir", "own")
def hook(event, args):
    global left
    if left is not None and event in events:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)

fsync = os.fsync
def audited(descriptor):
    sys.audit("own")
    fsync(descriptor)
os.fsync = audited

def torn(path, content):
    with open(path, "xb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        sys.audit("own")
        file.write(content[len(content) // 2 :])
        file.flush()
        os.fsync(file.fileno())
disk._write = torn

def killed(model, folder, at):
    global left
    child = os.fork()
    if child == 0:
        left = at
        model.save(folder, overwrite=True)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL

def found(folder):
    try:
        model = load(folder)
        assert model.responses_.min() == model.n_neighbors_
        return model.n_neighbors_
    except FileNotFoundError:
        return None

one, two, three = (small(k) for k in (1, 2, 3))
root, outcomes = sys.argv[1], {}
for begin in (None, one):
    at = 0
    while True:
        shutil.rmtree(root, ignore_errors=True)
        if begin is not None:
            begin.save(root)
        dead = killed(two, root, at)
        state = found(root)
        assert state in ((1, 2) if begin else (None, 2)), (at, state)
        outcomes[state] = outcomes.get(state, 0) + 1
        again = 0
        while dead and at % 5 == 0:  # it dies once more, on top of what is there
            shutil.rmtree(root + "2", ignore_errors=True)
            if os.path.exists(root):
                shutil.copytree(root, root + "2")
            if not killed(three, root + "2", again):
                break
            assert found(root + "2") in (state, 3), (at, again)
            again += 1
            outcomes["twice"] = outcomes.get("twice", 0) + 1
        three.save(root, overwrite=True)
        assert found(root) == 3 and len(os.listdir(root)) == 2
        if not dead:
            break
        at += 1
print(outcomes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed after a fork")
def test_a_process_that_is_killed_anywhere_leaves_the_old_model_or_the_new_one(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", KILLER, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    outcomes = eval(done.stdout)
    assert all(outcomes[state] >= 5 for state in (None, 1, 2)), outcomes
    assert outcomes["twice"] >= 30


def test_reading_while_another_process_writes_gives_one_of_both(tmp_path, monkeypatch):
    folder, content = tmp_path / "m", disk._content
    small(1).save(folder)
    replaced = []

    def slow(path, most):
        found = content(path, most)
        if path.name == "model.json" and not replaced:
            replaced.append(True)
            small(2).save(folder, overwrite=True)  # right between the two files
        return found

    monkeypatch.setattr(disk, "_content", slow)
    assert gentle.load(folder).n_neighbors_ == 2


def people(n=90, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(20, 60, n), "income": rng.gamma(2, 1e4, n)})
    frame["town"] = rng.choice(["Rome", "Zürich", "Bern 🌍"], n)
    frame["grade"] = pd.Categorical(rng.choice(["low", "high"], n), ["low", "high"], ordered=True)
    frame["since"] = pd.Timestamp("2015-05-01") + pd.to_timedelta(rng.integers(0, 2000, n), "D")
    frame.loc[rng.random(n) < 0.2, ["income", "town", "since"]] = None
    y = np.where(rng.random(n) < 0.3, 0.0, frame["age"] / 10 + rng.normal(size=n))
    return frame, pd.Series(y, name="Lohn in €")


OWN = sorted(name for name in BUDGETS if not hasattr(kind(name), "_package"))


@pytest.mark.parametrize("name", OWN)
def test_every_own_model_comes_back_bit_for_bit_from_a_folder_a_pickle_and_joblib(name, tmp_path):
    X, y = people()
    model = make(name).fit(X, y)
    state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model.save(tmp_path / "folder")
    joblib.dump(model, tmp_path / "joblib")
    again = {
        "folder": gentle.load(tmp_path / "folder"),
        "pickle": pickle.loads(pickle.dumps(model)),
        "joblib": joblib.load(tmp_path / "joblib"),
    }
    assert torch.equal(state[0], torch.random.get_rng_state())
    np.testing.assert_array_equal(state[1], np.random.get_state()[1])  # noqa: NPY002
    new, at = people(seed=1)
    for way, other in again.items():
        for ask in (
            lambda m: m.predict(new),
            lambda m: m.sample(new, 7, 3),
            lambda m: m.cdf(new, at),
            lambda m: m.log_prob(new, at),
            lambda m: m.predict_quantiles(new, [0.0, 0.1, 0.5, 1.0]),
            lambda m: m.predict_dist(new).std(),
            lambda m: np.array(m.score(new, at)),
        ):
            np.testing.assert_array_equal(ask(other), ask(model), err_msg=way)
        assert other.summary() == model.summary()
        assert other.get_params() == model.get_params()
        assert other.response_name_ == "Lohn in €"
    again["folder"].save(tmp_path / "twice")
    one, two = (json.loads((tmp_path / f / "model.json").read_text()) for f in ("folder", "twice"))
    drop = ("written", "sha256")
    assert {k: v for k, v in one.items() if k not in drop} == {
        k: v for k, v in two.items() if k not in drop
    }
    assert one["sha256"]["weights.safetensors"] == two["sha256"]["weights.safetensors"]


def stored(folder):
    """All numbers in the arrays of a saved model."""
    return np.concatenate([a.ravel() for a in load_file(folder / "weights.safetensors").values()])


@pytest.mark.parametrize("name", OWN)
def test_only_models_that_say_so_hold_training_data(name, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2500, 1)), rng.normal(size=2500)
    model = make(name).fit(X, y)
    model.save(tmp_path / "m")
    held = np.isin(y, stored(tmp_path / "m")).mean()
    said = json.loads((tmp_path / "m/model.json").read_text())["holds"]
    if name in ("KNN", "KernelCDE", "QuantileForest", "Marginal"):
        assert held == 1
        assert said in ("the training rows", "the training responses")
        assert f"holds {said}" in model.summary()
    else:
        assert held < 0.25
        assert held == 0 or name in ("GENTLE", "BoostedQuantiles")  # some quantiles
        assert said == "no training rows"
        assert "holds" not in model.summary()


def test_training_rows_are_kept_on_request(tmp_path):
    X, y = people()
    settings = {"n_epochs": 1, "hidden_widths": (4,), "random_state": 0, "verbose": 0}
    without, model = CWGAN(**settings).fit(X, y), CWGAN(**settings).fit(X, y, keep_data=True)
    assert without.training_rows_ is None
    model.save(tmp_path / "m")
    loaded = gentle.load(tmp_path / "m")
    np.testing.assert_array_equal(np.sort(loaded.training_rows_.y), np.sort(y))
    assert loaded.training_rows_.x.shape == (90, loaded.covariate_encoder_.n_encoded)
    assert "holds the training rows" in loaded.summary()
    np.testing.assert_array_equal(loaded.sample(X, 3, 0), without.sample(X, 3, 0))


def test_the_summary_of_many_responses_scores_as_they_do():
    rng = np.random.default_rng(0)
    X, y = np.zeros((5000, 1)), 1e6 + np.where(rng.random(5000) < 0.3, 0, rng.gamma(2, 5, 5000))
    X[:, 0] = np.arange(5000)
    model, exact = QuantileForest(n_estimators=2, verbose=0).fit(X, y), Marginal().fit(X, y)
    short = CWGAN(n_epochs=1, hidden_widths=(2,), verbose=0).fit(X, y).marginal_
    assert len(exact.marginal_.values[0]) == len(model.marginal_.values[0]) > 7000
    assert len(short.values[0]) == 2000
    at = rng.choice(y, 200)
    np.testing.assert_allclose(short.mean(), y.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        short.repeat(200).crps(at).mean(), exact.predict_dist(X[:200]).crps(at).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(short.repeat(200).cdf(at), exact.cdf(X[:200], at), atol=1.1e-3)
