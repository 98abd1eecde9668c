"""Pools of worker processes that end with the process that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor


@contextlib.contextmanager
def pool(workers: int, prepare: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of spawned processes. Each calls `prepare` first, and ends at once if this process is killed.

    A worker of `ProcessPoolExecutor` alone would end only after its piece of work, which can take minutes. The
    processes are not forked, because JAX and the compilers have threads, which do not survive a fork.

    Leaving the block waits for the pieces of work. If an exception leaves it, Ctrl-C included, or the caller of a
    generator that holds the block stops early, the processes end at once and their pieces are lost.
    """
    made = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(prepare,))
    try:
        yield made
        made.shutdown()
    except BaseException:
        for process in list((made._processes or {}).values()):
            process.kill()
        made.shutdown(cancel_futures=True)
        raise


def _begin(prepare: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)
