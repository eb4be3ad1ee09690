import json
import os

import numpy as np
import pytest

import gentle
from gentle import GENTLE, KNN

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
    assert facts["format"] == 2
    assert facts["parameters"]["hidden_widths"] == [8, 8]
    assert facts["facts"]["history"][0]["epoch"] == 1
    assert "torch" in facts["versions"]


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


def test_a_failed_save_leaves_the_old_model_and_no_rubbish(model, folder, monkeypatch):
    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(folder, overwrite=True)
    assert type(gentle.load(folder)) is GENTLE
    assert os.listdir(folder.parent) == ["model"]


def test_the_old_model_comes_back_if_the_new_one_cannot_be_put_in_place(model, folder, monkeypatch):
    replace = os.replace

    def refuse_new(source, target):
        if target == folder and not str(source).endswith("-previous"):
            raise OSError(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_new)
    with pytest.raises(OSError, match="Permission denied"):
        model.save(folder, overwrite=True)
    monkeypatch.undo()
    assert type(gentle.load(folder)) is GENTLE
    assert os.listdir(folder.parent) == ["model"]


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
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "Update gentle-ot"),
        ({"class": "Popen"}, "there is no model 'Popen'"),
        ({"parameters": {"shell": True}}, "damaged or was not written by this library"),
        ({"parameters": {"hidden_widths": [9]}}, "damaged"),
        ({"n_columns": 7}, "disagree about the number of columns"),
        ({"facts": None}, "damaged"),
        ({"sha256": {}}, "damaged"),
        ({"class": "KNN", "parameters": {}}, "damaged"),
    ],
)
def test_a_tampered_description_is_a_value_error(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        gentle.load(folder)


@pytest.mark.parametrize("format", [1, 2])
def test_a_model_saved_when_there_was_only_the_papers_game_loads_as_that(tmp_path, format):
    model = fitted("paper")
    model.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model/model.json").read_text())
    new = ("map", "regulariser", "tails", "bounds", "atoms", "n_trees", "n_steps")
    old = {name: value for name, value in facts["parameters"].items() if name not in new}
    edit(tmp_path / "model", parameters=old, format=format)
    loaded = gentle.load(tmp_path / "model")
    assert loaded.is_game
    assert loaded.get_params() == model.get_params()
    X = np.random.default_rng(1).normal(size=(5, 2))
    np.testing.assert_array_equal(loaded.sample(X, 3, 0), model.sample(X, 3, 0))


def test_changed_weights_do_not_load(folder):
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(weights))
    with pytest.raises(ValueError, match="checksum"):
        gentle.load(folder)
    (folder / "weights.safetensors").unlink()
    with pytest.raises(ValueError, match="missing"):
        gentle.load(folder)
