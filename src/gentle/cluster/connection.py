"""A Ray cluster to work on: one of this machine's own, or one that is there."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

Call = Callable[..., Any]

MAX_DEATHS = 5  # of worker processes in one job; after that, it is no accident
_MAX_REFUSALS, _PAUSE = 2, 3.0  # before a cluster is believed to want no guests; seconds


@contextmanager
def connect(cluster: str = "local", n_cpus: int | None = None) -> Iterator[Call]:
    """Use a cluster for some work.

    The functions of `gentle.cluster` connect by themselves. Around several of them, this saves
    starting a local cluster more than once: within it they use the cluster that is there.

    Args:
        cluster: "local" starts a cluster on this machine, reachable from here only, and stops it at
            the end. "auto" joins the running one that this machine is part of (``ray start``).
            "ray://host:10001" talks to one elsewhere.
        n_cpus: Processor cores of a local cluster; None takes those of this machine.

    Yields:
        A function that calls another one, with its arguments, where the cluster can be reached:
        here, or for ``ray://`` on the cluster itself, where files are then read and written.

    Example:
        >>> with connect("local") as call:  # doctest: +SKIP
        ...     call(sum, [1, 2])
        3
    """
    ray = import_ray()
    if not (cluster in ("local", "auto") or cluster.startswith("ray://")):
        raise ValueError(f"cluster must be 'local', 'auto' or 'ray://host:port', got {cluster!r}")
    if ray.is_initialized():  # within another connection
        yield _call
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster == "local":
        n_cpus = n_cpus or os.cpu_count()
        options |= {"num_cpus": n_cpus, "include_dashboard": False}
        options["_node_ip_address"] = "127.0.0.1"
    try:
        _join(lambda: ray.init(address=cluster, **options))
    except ImportError as error:  # the client has needs of its own
        raise ImportError(f"{_ADVICE} ({error})") from error
    except ConnectionError as error:
        raise ConnectionError(
            f"there is no cluster at {cluster!r} that answers: {error}. If it asks for a token, "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment"
        ) from error
    try:
        yield _call
    finally:
        ray.shutdown()


def _join(init: Callable[[], Any]) -> None:
    """Join a cluster, again if it answers but was too busy to start a process for its guest."""
    for _ in range(_MAX_REFUSALS):
        try:
            init()
            return
        except ConnectionAbortedError:
            time.sleep(_PAUSE)
    init()


def import_ray() -> Any:
    """The package, or an ImportError that names the extra."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to its makers
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # and nothing printed unless asked for
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C is what it always is
    os.environ.setdefault("RAY_worker_niceness", "0")  # its own services would go first
    try:
        import ray
    except ImportError as error:
        raise ImportError(_ADVICE) from error
    return ray


def require_cpus(n_workers: int, n_each: int = 1) -> None:
    """Raise a ValueError if the cluster is too small, in place of waiting for ever."""
    if n_workers < 1 or n_each < 1:
        raise ValueError(f"n_workers and n_threads must be positive, got {n_workers} and {n_each}")
    there = int(import_ray().cluster_resources().get("CPU", 0))
    if n_workers * n_each > there:
        raise ValueError(
            f"{n_workers} worker(s) with {n_each} processor core(s) each want more than the "
            f"{there} of the cluster; ask for fewer"
        )


def aside(work: Callable[[], Any], meanwhile: Callable[[], None]) -> Any:
    """The result of some work in a thread of its own; in this one, something is done meanwhile.

    In the main thread Ray would change for good what Ctrl-C does.
    """
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not result.done():
        wait([result], timeout=1)
        meanwhile()
    return result.result()


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Let a part of Ray keep its log to itself; what goes wrong becomes an exception."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


_ADVICE = "a cluster needs the package 'ray': pip install 'gentle-ot[ray]'"


def _call(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    ray = import_ray()
    if not ray.util.client.ray.is_connected():
        return work(*arguments, **options)
    job = ray.remote(num_cpus=0)(_pickled)  # tensors of the result would want the cluster's devices
    return pickle.loads(ray.get(job.remote(work, *arguments, **options)))


def _pickled(work: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    return pickle.dumps(work(*arguments, **options))
