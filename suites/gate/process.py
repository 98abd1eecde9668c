"""The parent's view of a side's process: it sends requests, reads the events, and ends the process in any case."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.gate.overlay import Overlay

IDLE = 120.0
"""Seconds without an event after which a side is given up, in addition to three times the larger limit of a call."""


class Unmeasurable(Exception):
    """A side could not be measured at all; exit status 2.

    Cause and remedy are in the message: a full disk, a process that died or hung, code that cannot be imported.
    """


class SideProcess:
    """A process in an overlay that answers requests, one after the other. It is started with the first one.

    It imports what is judged once, however many requests it gets. Leaving the scope ends it, with what it has started.
    """

    def __init__(self, python: str, overlay: Overlay, who: str) -> None:
        """Start nothing yet.

        Args:
            python: the interpreter; its installed packages are the toolchain.
            overlay: what the process imports, and where it runs.
            who: the name of the side in messages.
        """
        self.python, self.overlay, self.who = python, overlay, who
        self._child: subprocess.Popen[bytes] | None = None
        with contextlib.ExitStack() as opened:
            self._log = opened.enter_context(tempfile.TemporaryFile())
            self._opened = opened.pop_all()

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            _end(self._child)
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._child.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()
        self._opened.close()

    def ask(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request, and yield its events as they come. Read them all before the next request.

        Args:
            request: see `gradgate.suites.gate.side`.

        Raises:
            UsageError: the side reports that its configuration is wrong.
            Unmeasurable: the side could not go on, died, or sent no event for too long.
        """
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        patience = IDLE + 3 * max(request["limit"], request["timeout"])
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            _end(child)

        timer = threading.Timer(patience, give_up)
        try:
            timer.start()
            with contextlib.suppress(BrokenPipeError):  # it died; this is reported below
                child.stdin.write((json.dumps(request) + "\n").encode())
                child.stdin.flush()
            for line in child.stdout:
                timer.cancel()
                event = json.loads(line)
                if "usage" in event:
                    raise UsageError(f"{self.who}: {event['usage']}")
                if "broken" in event:
                    raise Unmeasurable(f"{self.who}: {event['broken']}")
                if "answered" in event:
                    return
                yield event
                timer = threading.Timer(patience, give_up)
                timer.start()
            if silent.is_set():
                raise Unmeasurable(f"{self.who}: its process sent nothing for {patience:g} s")
            status = child.wait()
            raise Unmeasurable(f"{self.who}: its process ended with status {status}{_last_words(self._log)}")
        finally:
            timer.cancel()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            try:
                self._child = subprocess.Popen(
                    [self.python, "-m", "gradgate.suites.gate.side"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    cwd=self.overlay.project,
                    env=self.overlay.environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"{self.who}: cannot run {self.python}: {error.strerror}") from None
        return self._child


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_words(log: Any) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
