"""Workers of a pool end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gradgate.hw_profiles import processes

SCRIPT = """
import os, time
from gradgate.hw_profiles import processes

if __name__ == "__main__":
    with processes.pool(1) as workers:
        print(workers.submit(os.getpid).result(), flush=True)
        workers.submit(time.sleep, 600)
        time.sleep(600)
"""


def test_a_pool_prepares_its_workers_and_returns_results() -> None:
    with processes.pool(1, _prepare) as workers:
        assert workers.submit(os.getenv, "PREPARED").result() == "yes"


def _prepare() -> None:
    os.environ["PREPARED"] = "yes"


def test_an_exception_ends_the_workers_and_what_they_do() -> None:
    begun, running, pieces = time.monotonic(), set(), []

    def interrupted() -> None:
        with processes.pool(2) as workers:
            started = [workers.submit(os.getpid) for _ in range(2)]
            pieces.extend(workers.submit(time.sleep, 600) for _ in range(9))
            running.update(one.result() for one in started)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begun < 60, "no piece of work is waited for"
    assert not any(map(_runs, running))
    assert all(piece.done() for piece in pieces)


def test_a_generator_that_is_closed_early_ends_its_workers() -> None:
    def pieces() -> Iterator[int]:
        with processes.pool(1) as workers:
            yield workers.submit(os.getpid).result()
            yield workers.submit(time.sleep, 600).result()

    results = pieces()
    worker = next(results)
    results.close()
    assert not _runs(worker)


def test_a_worker_ends_at_once_when_its_parent_is_killed() -> None:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=quiet, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.5)  # its next piece of work has begun
        assert _runs(worker)
        parent.send_signal(signal.SIGKILL)
    limit = time.monotonic() + 30
    while _runs(worker) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
