"""Folders from strangers: a ValueError, an OSError, or a model that answers; nothing else."""

import json
import os
import pickle
import shutil
import signal
import struct
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

import gentle
from budgets import BUDGETS, kind
from budgets import make as made
from gentle.models.disk import laid_out, sealed

resource = pytest.importorskip("resource", reason="memory is limited by means of Linux here")
if not Path("/proc/self/statm").exists():
    pytest.skip("memory is limited by means of Linux here", allow_module_level=True)

OWN = sorted(name for name in BUDGETS if not hasattr(kind(name), "_package"))
OWN.append("ConformalGenerator")
N_ARRAYS, N_FACTS, N_FLIPS, N_CUTS = 30, 30, 8, 8  # for each model
GIB = 2**30
RUNS_CODE = {
    *("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork"),
    *("subprocess.Popen", "socket.connect", "ctypes.dlopen", "code.__new__"),
}
seen_events = None


def make(name, **changes):
    return gentle.ConformalGenerator(made("KNN")) if name not in BUDGETS else made(name, **changes)


def watch(event, _):
    if seen_events is not None and event in RUNS_CODE:
        seen_events.append(event)


sys.addaudithook(watch)


@pytest.fixture(autouse=True)
def _little_memory_and_time():
    """A gigabyte beyond what is in use, and a quarter of an hour."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + GIB, before[1]))

    def late(*_):
        pytest.fail("a hostile model takes for ever")  # no Exception, so that nothing catches it

    handler = signal.signal(signal.SIGALRM, late)
    signal.alarm(900)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


def people(n=80, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(20, 60, n), "income": rng.gamma(2, 1e4, n)})
    frame["town"] = rng.choice(["Rome", "Oslo", "Bern"], n)
    frame["since"] = pd.Timestamp("2015-05-01") + pd.to_timedelta(rng.integers(0, 2000, n), "D")
    frame.loc[rng.random(n) < 0.2, ["income", "town", "since"]] = None
    jump = 20.0 * frame["age"].between(30, 45)  # GENTLE then needs its trees
    y = np.where(rng.random(n) < 0.3, 0.0, jump + rng.normal(size=n))
    return frame, pd.Series(y, name="wage")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of every model: a description and weights."""
    folder, found = tmp_path_factory.mktemp("saved"), {}
    for name in OWN:
        few = {"n_steps": 1} if name == "GENTLE" else {}
        make(name, **few).fit(*people(), keep_data=name == "QRGMM").save(folder / name)
        found[name] = [
            (folder / name / file).read_bytes() for file in ("model.json", "weights.safetensors")
        ]
        outcome(folder / name)  # all that is imported on the way is imported now
    return found


def outcome(folder):
    """What becomes of a folder: "refused", or what the model in it does with three rows."""
    global seen_events
    seen_events, (X, y) = [], people(3, seed=1)
    started = time.process_time()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                model = gentle.load(folder)
            except (ValueError, OSError):
                return "refused"
            assert isinstance(model.summary(), str)
            try:
                answers = [model.sample(X, 3, 0), model.predict(X), model.cdf(X, y)]
                answers.append(model.predict_quantiles(X, [0.0, 0.5, 1.0]))
            except (ValueError, OSError):
                return "no answer"
            assert all(np.isfinite(answer).all() for answer in answers)
            return "answers"
    finally:
        assert seen_events == []
        seen_events = None
        assert time.process_time() - started < 10


def write(folder, text, weights):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "model.json").write_bytes(text)
    (folder / "weights.safetensors").write_bytes(weights)
    return folder


def repaired(folder, facts, weights):
    """As `write`, with checksums that are right, as an attacker would do it."""
    return write(folder, laid_out(sealed(facts, weights)).encode(), weights)


def changed(rng, array, others):
    """An array that is not what it was."""
    big = np.iinfo(np.int64).max if array.dtype.kind == "i" else np.finfo(array.dtype).max
    whole = np.nan_to_num(array.astype(np.float64)).clip(-9, 9)
    one = array.copy()
    if one.size:
        one.ravel()[rng.integers(one.size)] = rng.choice([-1, 0, 1, 7, big // 3, big, -big])
    return [
        None,
        array.ravel() if array.ndim > 1 else array[None],
        array[:-1],
        array[:0],
        np.concatenate([array, array]),
        array[::-1],
        np.full_like(array, big),
        np.full_like(array, -big),
        np.zeros_like(array),
        -array,
        whole.astype(rng.choice([np.float16, np.float32, np.float64, np.int8, np.int64, bool])),
        np.full(array.shape, np.nan),
        np.full(array.shape, rng.choice([np.inf, -np.inf])),
        np.empty((0, 2**40)),
        others[rng.integers(len(others))],
        *[one] * 5,
    ][rng.integers(20)]


@pytest.mark.parametrize("name", OWN)
def test_changed_arrays_with_right_checksums(saved, tmp_path, name):
    text, weights = saved[name]
    facts, arrays = json.loads(text), from_bytes(weights)
    rng, names = np.random.default_rng(0), sorted(arrays)
    for number in range(N_ARRAYS):
        at = names[number % len(names)]
        array = changed(rng, arrays[at], list(arrays.values()))
        rest = {key: value for key, value in arrays.items() if key != at}
        if array is not None:
            rest[at] = np.ascontiguousarray(array)
        found = outcome(repaired(tmp_path / "m", facts, to_bytes(rest)))
        wrong = array is None or array.dtype != arrays[at].dtype or not np.isfinite(array).all()
        assert found == "refused" or not wrong, at


def leaves(value, path=()):
    """The places in a description, outer ones too."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))


VALUES = [
    *(None, True, False, 0, 1, -1, 7, 3.5, -0.5, 1e308, -1e308, 5e-324, 10**9, 10**12, 10**99),
    *("", "x", "../../../etc/passwd", "__class__", "os.system", "auto", "nan", "1e9", "cuda:77"),
    *([], {}, [[]], [None], [0], [1, 2], [10**9], [10**9] * 3, [1] * 10**5, ["a", "a"], {"a": 1}),
]


@pytest.mark.parametrize("name", OWN)
def test_changed_descriptions_with_right_checksums(saved, tmp_path, name):
    text, weights = saved[name]
    rng = np.random.default_rng(0)
    places = [path for path in leaves(json.loads(text)) if path[0] not in ("written", "versions")]
    for number in range(N_FACTS):
        facts = json.loads(text)
        *way, last = places[rng.integers(len(places))]
        inner = facts
        for key in way:
            inner = inner[key]
        if number % 8 == 0:
            del inner[last]
        else:
            inner[last] = VALUES[rng.integers(len(VALUES))]
        found = outcome(repaired(tmp_path / "m", facts, weights))
        assert found in ("refused", "answers", "no answer")


@pytest.mark.parametrize("name", OWN)
def test_flipped_bits_are_noticed_by_the_checksums_and_harmless_with_right_ones(
    saved, tmp_path, name
):
    rng, folder = np.random.default_rng(0), tmp_path / "m"
    for _ in range(N_FLIPS):
        text, weights = (bytearray(part) for part in saved[name])
        for part in (text, weights):
            at = rng.integers(len(part))
            part[at] ^= 1 << rng.integers(8)
        assert outcome(write(folder, saved[name][0], bytes(weights))) == "refused"
        unchanged = json.loads(saved[name][0])
        outcome(repaired(folder, unchanged, bytes(weights)))
        try:
            same = json.loads(bytes(text)) == unchanged
        except ValueError:
            same = False
        found = outcome(write(folder, bytes(text), saved[name][1]))
        assert found == ("answers" if same else "refused")


@pytest.mark.parametrize("name", OWN)
def test_truncated_files_are_refused(saved, tmp_path, name):
    rng, folder = np.random.default_rng(0), tmp_path / "m"
    text, weights = saved[name]
    for number in range(N_CUTS):
        n, m = (number, number) if number < 5 else (rng.integers(len(p)) for p in (text, weights))
        assert outcome(write(folder, text[:n], weights)) == "refused"
        assert outcome(write(folder, text, weights[:m])) == "refused"
        assert outcome(repaired(folder, json.loads(text), weights[:m])) == "refused"


@pytest.mark.slow
def test_truncated_at_every_byte(saved, tmp_path):
    folder = tmp_path / "m"
    text, weights = saved["Marginal"]
    facts = json.loads(text)
    for n in range(len(text)):
        assert outcome(write(folder, text[:n], weights)) == "refused"
    for n in range(len(weights)):
        assert outcome(write(folder, text, weights[:n])) == "refused"
        assert outcome(repaired(folder, facts, weights[:n])) == "refused"


@pytest.mark.parametrize("name", OWN)
def test_files_swapped_between_models(saved, tmp_path, name):
    text, _ = saved[name]
    layout = {key: array.shape for key, array in from_bytes(saved[name][1]).items()}
    for other in OWN:
        strange = saved[other][1]
        if strange != saved[name][1]:  # KNN and KernelCDE hold the same rows
            assert outcome(write(tmp_path / "m", text, strange)) == "refused"
            found = outcome(repaired(tmp_path / "m", json.loads(text), strange))
            alike = layout == {key: array.shape for key, array in from_bytes(strange).items()}
            assert found == "refused" or alike


def test_random_bytes(saved, tmp_path):
    rng = np.random.default_rng(0)
    text, weights = saved["KNN"]
    for size in (0, 1, 7, 8, 9, 16, 100, 10_000, 10**6):
        noise = rng.bytes(size)
        assert outcome(write(tmp_path / "m", noise, weights)) == "refused"
        assert outcome(write(tmp_path / "m", text, noise)) == "refused"
        assert outcome(repaired(tmp_path / "m", json.loads(text), noise)) == "refused"


def header(text, body=b""):
    return struct.pack("<Q", len(text)) + text + body


HEADERS = {
    "longer than the file": struct.pack("<Q", 2**63) + b"{}",
    "as long as all memory": struct.pack("<Q", 2**40) + b"{}",
    "deep": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "overlapping": header(
        b'{"model.rows":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},'
        b'"model.responses":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}',
        bytes(8),
    ),
    "twice": header(
        b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}',
        bytes(8),
    ),
    "too large shapes": header(
        b'{"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}', bytes(8)
    ),
    "negative": header(b'{"a":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}', bytes(8)),
    "unknown type": header(b'{"a":{"dtype":"PICKLE","shape":[1],"data_offsets":[0,8]}}', bytes(8)),
    "16-bit floats": header(b'{"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}', bytes(8)),
    "many arrays": header(
        b"{"
        + b",".join(
            b'"%d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}' % i for i in range(50_000)
        )
        + b"}"
    ),
}


@pytest.mark.parametrize("case", sorted(HEADERS))
def test_hostile_lists_of_arrays(saved, tmp_path, case):
    facts = json.loads(saved["KNN"][0])
    assert outcome(repaired(tmp_path / "m", facts, HEADERS[case])) == "refused"


TEXTS = {
    "nothing": b"",
    "a list": b"[]",
    "a number": b"3",
    "deep lists": b"[" * 100_000,
    "deep in a name": b'{"format": 3, "class": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "moderately deep": b'{"format": 3, "class": ' + b"[" * 900 + b"]" * 900 + b"}",
    "another encoding": '{"format": 3, "ü": 1}'.encode("utf-16"),
    "broken utf-8": b'{"format": 3, "\xff": 1}',
    "NaN": b'{"format": 3, "facts": NaN}',
    "infinity": b'{"format": 3, "facts": 1e999}',
    "digits": b'{"format": ' + b"9" * 10**6 + b"}",
    "many digits": b'{"format": 3, "facts": ' + b"9" * 4000 + b"}",
    "a name twice": b'{"format": 3, "format": 3}',
    "format zero": b'{"format": 0}',
    "format true": b'{"format": true}',
    "format text": b'{"format": "3"}',
    "format 99": b'{"format": 99}',
    "format 1, empty": b'{"format": 1}',
    "format 2, empty": b'{"format": 2, "sha256": {}}',
    "bytes of zero": bytes(10_000),
    "a surrogate": b'{"format": 3, "class": "\\ud800"}',
}


@pytest.mark.parametrize("case", sorted(TEXTS))
def test_hostile_descriptions(saved, tmp_path, case):
    assert outcome(write(tmp_path / "m", TEXTS[case], saved["KNN"][1])) == "refused"


@pytest.mark.parametrize(
    "value",
    [
        *("os.system", "subprocess.Popen", "__class__", "ConditionalGenerator", "load", "MODULES"),
        *("gentle.KNN", "../KNN", "", "knn", "NeuralGenerator", "Engression", "CatBoost", "save"),
        *(None, 3, ["KNN"], {"KNN": 1}, True),
    ],
)
def test_classes_that_are_no_models(saved, tmp_path, value):
    text, weights = saved["KNN"]
    facts = json.loads(text) | {"class": value}
    assert outcome(repaired(tmp_path / "m", facts, weights)) == "refused"


HUGE = [10**9, 10**12, 10**18, 10**90]
SIZES = [
    (name, setting, value)
    for name in OWN
    for setting in ("hidden_widths", "n_levels", "n_paths", "n_steps", "n_neighbors", "n_trees")
    if setting in BUDGETS.get(name, ()) or hasattr(make(name), setting)
    for value in (
        [[w] for w in HUGE] + [[w, w] for w in HUGE] + [[1] * 10**5]
        if setting == "hidden_widths"
        else [*HUGE, 2**40]
    )
]


@pytest.mark.parametrize("name", OWN)
def test_sizes_that_no_memory_holds(saved, tmp_path, name):
    text, weights = saved[name]
    for _, setting, value in (case for case in SIZES if case[0] == name):
        facts = json.loads(text)
        facts["parameters"][setting] = value
        outcome(repaired(tmp_path / "m", facts, weights))
    facts = json.loads(text)
    for key, found in facts["facts"].items():
        for value in HUGE:
            changed = facts["facts"] | {key: value}
            if isinstance(found, (int, float, type(None))):
                outcome(repaired(tmp_path / "m", facts | {"facts": changed}, weights))


def test_files_of_many_sizes_in_which_little_is_said(saved, tmp_path):
    """Holes in files: a terabyte of weights, a gigabyte of description, on a few blocks."""
    for name, size in (("weights.safetensors", 2**40), ("model.json", 2**30)):
        folder = write(tmp_path / "m", *saved["KNN"])
        with open(folder / name, "r+b") as file:
            file.truncate(size)
        assert outcome(folder) == "refused"


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickles_are_not_opened(saved, tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    text, weights = saved["KNN"]
    bomb = pickle.dumps(Bomb(), protocol)
    assert outcome(write(tmp_path / "m", bomb, weights)) == "refused"
    assert outcome(write(tmp_path / "m", text, bomb)) == "refused"
    assert outcome(repaired(tmp_path / "m", json.loads(text), bomb)) == "refused"
    assert not Path("exploded").exists()
    pickle.loads(bomb)
    assert Path("exploded").exists()  # it would have


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors", "weights.safetensors.new"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe", "device"])
def test_what_is_no_plain_file_is_not_opened(saved, tmp_path, name, kind):
    good = write(tmp_path / "good", *saved["KNN"])
    bad = write(tmp_path / "bad", *saved["KNN"])
    (bad / name).unlink(missing_ok=True)
    if kind == "folder":
        (bad / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(bad / name)
    else:
        to = {"link": good / "weights.safetensors", "dangling link": "nowhere"}.get(
            kind, "/dev/zero"
        )
        (bad / name).symlink_to(to)
    assert outcome(bad) == "refused"
    assert outcome(good) == "answers"


@pytest.mark.parametrize("name", ["model.pkl", ".hidden", "weights.safetensors~", "modèle"])
def test_files_of_others_are_named_and_refused(saved, tmp_path, name):
    folder = write(tmp_path / "m", *saved["KNN"])
    (folder / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"holds files of others, \\['{name}'\\]"):
        gentle.load(folder)


CHAINS = {
    "a cycle": lambda a: a | {"children": np.zeros_like(a["children"])},
    "out of bounds": lambda a: a | {"children": a["children"] + 1000},
    "far out of bounds": lambda a: a | {"children": a["children"] + 2**62},
    "roots out of bounds": lambda a: a | {"root": a["root"] + 10**9},
    "the same root often": lambda a: a | {"root": np.zeros_like(a["root"])},
    "into another tree": lambda a: a | {"children": a["children"] + (a["root"][1] + 1)},
}


@pytest.mark.parametrize("name", ["QuantileForest", "BoostedQuantiles", "GENTLE"])
@pytest.mark.parametrize("case", sorted(CHAINS))
def test_trees_that_lead_astray(saved, tmp_path, name, case):
    text, weights = saved[name]
    start = "model.forest." if name == "GENTLE" else "model."
    arrays = from_bytes(weights)
    own = {key: arrays[start + key] for key in ("feature", "threshold", "children", "root")}
    bad = {start + key: np.ascontiguousarray(array) for key, array in CHAINS[case](own).items()}
    found = outcome(repaired(tmp_path / "m", json.loads(text), to_bytes(arrays | bad)))
    assert found == "refused"


def test_how_many_hostile_folders_there_are():
    per_model = N_ARRAYS + N_FACTS + 3 * N_FLIPS + 3 * N_CUTS + 2 * (len(OWN) - 1)
    assert per_model * len(OWN) + len(SIZES) + len(HEADERS) + len(TEXTS) > 1500
