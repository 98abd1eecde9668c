"""The parent's view of a side's process: it sends one request, reads the events, and ends the process in any case."""

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


def ask(python: str, overlay: Overlay, request: dict[str, Any], who: str) -> Iterator[dict[str, Any]]:
    """Send one request to a new process in an overlay, and yield its events as they come.

    Args:
        python: the interpreter; its installed packages are the toolchain.
        overlay: what the process imports, and where it runs.
        request: see `gradgate.suites.gate.side`.
        who: the name of the side in messages.

    Raises:
        UsageError: the side reports that its configuration is wrong.
        Unmeasurable: the side could not go on, died, or sent no event for too long.
    """
    patience = IDLE + 3 * max(request["limit"], request["timeout"])
    with tempfile.TemporaryFile() as log:
        try:
            child = subprocess.Popen(
                [python, "-m", "gradgate.suites.gate.side"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=overlay.project,
                env=overlay.environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{who}: cannot run {python}: {error.strerror}") from None
        assert child.stdin is not None
        assert child.stdout is not None
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            _end(child)

        timer = threading.Timer(patience, give_up)
        try:
            timer.start()
            with contextlib.suppress(BrokenPipeError):  # it died at once; this is reported below
                child.stdin.write((json.dumps(request) + "\n").encode())
                child.stdin.flush()
            for line in child.stdout:
                timer.cancel()
                event = json.loads(line)
                if "usage" in event:
                    raise UsageError(f"{who}: {event['usage']}")
                if "broken" in event:
                    raise Unmeasurable(f"{who}: {event['broken']}")
                yield event
                timer = threading.Timer(patience, give_up)
                timer.start()
            if silent.is_set():
                raise Unmeasurable(f"{who}: its process sent nothing for {patience:g} s")
            if child.wait():
                raise Unmeasurable(f"{who}: its process ended with status {child.returncode}{_last_words(log)}")
        finally:
            timer.cancel()
            _end(child)
            child.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_words(log: Any) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
