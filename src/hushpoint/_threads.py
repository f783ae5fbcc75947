"""Both cores: compiled work that lets go of Python's lock, cut into parts that any number of threads may take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


def threads() -> int:
    """How many threads to use: HUSHPOINT_THREADS, or as many as this process has cores."""
    asked = os.environ.get("HUSHPOINT_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_thread() -> AbstractContextManager[object]:
    """Linear algebra on one thread: its last digits depend on how many there are."""
    return cast(AbstractContextManager[object], _libraries().limit(limits=1, user_api="blas"))


def share(work: Callable[[int, int], object], count: int, worth: bool = True) -> None:
    """Call ``work(start, stop)`` over parts of ``range(count)``, on all threads where they are worth it.

    Which thread takes which part must not matter: whoever calls this gives every part its own place to write to.
    """
    workers = min(threads(), count) if worth else 1
    if workers <= 1:
        work(0, count)
        return
    pieces = min(count, 4 * workers)
    bounds = [count * k // pieces for k in range(pieces + 1)]
    parts = iter(list(pairwise(bounds)))

    def drain() -> None:
        for start, stop in parts:  # an iterator over a list hands out each entry once, whoever asks
            work(start, stop)

    waiting = [_pool(os.getpid(), workers - 1).submit(drain) for _ in range(workers - 1)]
    drain()
    for other in waiting:
        other.result()


def ahead(work: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
    """Each item with ``work(item)``, which another thread does while the caller is busy with the item before."""
    if threads() <= 1 or len(items) <= 1:
        for item in items:
            yield item, work(item)
        return
    pool = _pool(os.getpid(), 1)
    coming = pool.submit(work, items[0])
    for item, after in zip(items, [*items[1:], None], strict=True):
        ready = coming.result()
        if after is not None:
            coming = pool.submit(work, after)
        yield item, ready


@lru_cache(maxsize=1)
def _libraries() -> Any:
    """Those of linear algebra that NumPy has loaded: finding them takes milliseconds."""
    import numpy  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(maxsize=4)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    """Threads of this process: those of a parent do not live on in a fork."""
    return ThreadPoolExecutor(workers, thread_name_prefix="hushpoint")
