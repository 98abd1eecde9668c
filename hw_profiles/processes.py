"""Pools of worker processes that end with the process that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def pool(workers: int, prepare: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """A pool of spawned processes. Each calls `prepare` first, and ends at once if this process is killed.

    A worker of `ProcessPoolExecutor` alone would end only after its piece of work, which can take minutes. The
    processes are not forked, because JAX and the compilers have threads, which do not survive a fork.
    """
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(prepare,))


def _begin(prepare: Callable[[], None] | None) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)
