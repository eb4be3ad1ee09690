"""The command line on a Ray cluster that runs already: on its own machine, and as a guest."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gentle import load

pytestmark = pytest.mark.slow
SMALL = ("--set", "n_steps=12", "--set", "hidden_widths=(8,)", "--set", "n_trees=6", "--seed", "1")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def running():
    """Addresses of a head node that asks for a token, and the environment of those who have it."""
    pytest.importorskip("ray", reason="ray is not installed (the extra 'ray')")
    pytest.importorskip("grpc", reason="grpcio is not installed (the extra 'ray')")
    port, guests = free_port(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # names of sockets must be short
    env = os.environ | {
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    ray = Path(sys.executable).with_name("ray")
    head = subprocess.Popen(
        [ray, "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}",
         f"--ray-client-server-port={guests}", f"--temp-dir={folder}", "--num-cpus=2",
         "--include-dashboard=false"],
        env={k: v for k, v in env.items() if k != "RAY_ADDRESS"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for there in (port, guests):
            wait_for(there, head)
        yield {"auto": "auto", "ray": f"ray://127.0.0.1:{guests}"}, env
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(port, process):
    for _ in range(600):
        assert process.poll() is None, "the cluster did not start"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nobody listens at port {port}")


def run(*words, env=None):
    command = [sys.executable, "-m", "gentle", *map(str, words)]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize("way", ["auto", "ray"])
def test_the_three_jobs_give_what_one_process_gives(running, way, tmp_path):
    addresses, env = running
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    rows, here, there = (tmp_path / name for name in ("rows.csv", "here", "there"))
    X.assign(y=X["a"] + 0.3 * rng.normal(size=300)).to_csv(rows, index=False)
    on = ("--cluster", addresses[way], "--workers", 2)
    for out, where in ((here, ()), (there, on)):
        fitted = run("fit", rows, "-t", "y", "-o", out, *SMALL, *where, env=env)
        assert fitted.returncode == 0, fitted.stderr
        drawn = f"{out}.parquet"
        sampled = run("sample", here, rows, "-n", 5, "-o", drawn, "--seed", 1, *where, env=env)
        assert sampled.returncode == 0, sampled.stderr
    np.testing.assert_allclose(load(here).predict(X), load(there).predict(X), atol=2e-3)
    files = [pd.read_parquet(f"{out}.parquet") for out in (here, there)]
    pd.testing.assert_frame_equal(*files, check_exact=True)
    tuned = run("tune", rows, "-t", "y", "-o", tmp_path / "knn", "-m", "KNN", "--trials", 3, *on,
                env=env)  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    assert "the best of 3 trials (3 finished)" in " ".join((tuned.stdout + tuned.stderr).split())


def test_a_guest_without_the_token_is_told_of_it(running, tmp_path):
    addresses, env = running
    rows = tmp_path / "rows.csv"
    pd.DataFrame({"a": [0.0, 1.0, 2.0], "y": [1.0, 2.0, 3.0]}).to_csv(rows, index=False)
    stranger = {k: v for k, v in env.items() if not k.startswith("RAY_AUTH")}
    where = ("--cluster", addresses["ray"])
    refused = run("fit", rows, "-t", "y", "-o", tmp_path / "out", *SMALL, *where, env=stranger)
    assert refused.returncode == 1
    assert "RAY_AUTH_MODE=token" in refused.stderr
    assert not (tmp_path / "out").exists()
