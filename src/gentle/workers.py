"""Work on several processor cores, by processes of one thread each or by threads."""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def finished(
    work: Callable[..., Any], items: Iterable[tuple[Any, ...]], n_workers: int
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Call ``work(*item)`` for every item; yield each item and its result as it finishes.

    With several workers each is a fresh process with one thread, as libraries that bring threads of
    their own would otherwise get in each other's way. An exception raised by ``work`` is yielded in
    place of the result, so that the other items go on; so is the death of a process. Leaving the
    loop stops the workers.

    Args:
        work: A function that a process can import.
        items: Its arguments.
        n_workers: Number of processes; 1 works here and now.

    Example:
        >>> dict(finished(pow, [(2, 3), (3, 2)], n_workers=1))
        {(2, 3): 8, (3, 2): 9}
    """
    items = list(items)
    if n_workers <= 1:
        for item in items:
            yield item, _attempt(work, item)
        return
    while items:
        left = dict(enumerate(items))
        for place, result in _in_processes(work, items, n_workers):
            yield left.pop(place), result
        # What was at work when a process died is given up, what was waiting gets another chance.
        for place in list(left)[:n_workers]:
            yield left.pop(place), RuntimeError("a worker process died; out of memory, perhaps")
        items = list(left.values())


def _in_processes(
    work: Callable[..., Any], items: list[tuple[Any, ...]], n_workers: int
) -> Iterator[tuple[int, Any]]:
    """Places of items with their results, until all are done or a process dies."""
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(n_workers, context, _obey_parent)
    try:
        with _one_thread():
            waiting = {pool.submit(_attempt, work, item): i for i, item in enumerate(items)}
        for job in concurrent.futures.as_completed(waiting):
            yield waiting[job], job.result()
    except BrokenProcessPool:
        return
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def n_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def by_threads(
    work: Callable[[slice], Any], n_items: int, step: int, multiple: int = 1
) -> list[Any]:
    """``work`` on slices of n items, in order; NumPy lets threads run at once.

    All threads get about as much to do. ``OMP_NUM_THREADS`` limits them, as it does those of other
    libraries. Work that threads ask for in their turn is done without further ones.

    Args:
        work: What it does must not depend on where slices begin and end.
        n_items: Number of items.
        step: Items of a slice at most. Short slices are slow: threads wait for each other whenever
            NumPy is called.
        multiple: Of which slices, but for the last, have a multiple, if ``step`` is one.

    Example:
        >>> by_threads(lambda some: some.stop - some.start, 5, 2)
        [2, 2, 1]
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    limit = int(given) if given.isdecimal() and int(given) > 0 else n_cores()
    n_parts = math.ceil(n_items / step)
    n_threads = min(limit, n_cores(), n_parts)
    if n_threads > 1:
        n_parts = n_threads * math.ceil(n_parts / n_threads)
        step = min(step, multiple * math.ceil(n_items / n_parts / multiple))
    parts = [slice(i, min(i + step, n_items)) for i in range(0, n_items, step)]
    if n_threads <= 1 or getattr(_here, "busy", False):
        return [work(part) for part in parts]
    with _no_further_threads():
        pool = concurrent.futures.ThreadPoolExecutor(n_threads, initializer=_be_busy)
        try:
            return list(pool.map(work, parts))
        finally:
            pool.shutdown(cancel_futures=True)


_here = threading.local()
_door, _n_within, _put_back = threading.Lock(), 0, ExitStack()


@contextmanager
def _no_further_threads() -> Iterator[None]:
    """Linear algebra and PyTorch without threads of their own, which would be in the way of ours.

    Of those who are within, the last to leave puts things back.
    """
    global _n_within, _put_back
    with _door:
        if _n_within == 0:
            _put_back = ExitStack()
            _put_back.enter_context(_linear_algebra().limit(limits=1, user_api="blas"))
            torch = sys.modules.get("torch")
            if torch is not None and (n_threads := torch.get_num_threads()) > 1:
                torch.set_num_threads(1)
                _put_back.callback(torch.set_num_threads, n_threads)
        _n_within += 1
    try:
        yield
    finally:
        with _door:
            _n_within -= 1
            if _n_within == 0:
                _put_back.close()


@lru_cache(maxsize=1)
def _linear_algebra() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _be_busy() -> None:
    _here.busy = True


def _attempt(work: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    try:
        return work(*item)
    except Exception as error:
        return error


def _obey_parent() -> None:
    """Leave interruptions to the parent process, and end when it does, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _one_thread() -> Iterator[None]:
    """The environment in which processes start that are to use one thread each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
