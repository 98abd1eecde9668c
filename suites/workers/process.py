"""The parent's view of a child process in which foreign code runs: requests, events, memory, and how it ended."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gradgate.suites.workers.posix import need_processes
from gradgate.suites.workers.variables import PIPE_CLOSED, environment

ENDING = 10.0
"""Seconds within which a worker that has closed its pipe has to end."""
WORDS = 2**28
"""Bytes that a method may write while one claim is judged. They are kept on disk, for the message after a crash."""
LAST_WORDS = 2**16
"""How many of these bytes are read, from the end."""


class Worker:
    """One child process.

    Attributes:
        call: the call of foreign code that is running, or None.
        problems: family and framework of its tasks.
        device: the device of the pairs that the process is for; "" for all other methods.
        guests: plugged-in methods that it has judged; something they left in the process may end it later.
    """

    def __init__(self, device: str = "") -> None:
        need_processes()
        import fcntl  # Windows has none

        self.device = device
        down, up = os.pipe(), os.pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        fcntl.fcntl(self.log, fcntl.F_SETFL, fcntl.fcntl(self.log, fcntl.F_GETFL) | os.O_APPEND)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradgate.suites.workers.start", str(down[0]), str(up[1])],
            pass_fds=(down[0], up[1]),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment(device)},
            start_new_session=True,  # Ctrl-C goes to the parent only, and its own children die with it
        )
        os.close(down[0])
        os.close(up[1])
        self.requests, self.events = os.fdopen(down[1], "w"), up[0]
        self.buffer = b""
        self.call: dict[str, Any] | None = None
        self.problems: tuple[str, str] | None = None
        self.guests: set[str] = set()
        self.since = time.monotonic()

    def send(self, request: dict[str, Any]) -> None:
        """Hand over one request."""
        self.call, self.since = None, time.monotonic()
        self.log.truncate(0)
        try:
            self.requests.write(json.dumps(request) + "\n")
            self.requests.flush()
        except BrokenPipeError:
            pass  # it died between two tasks; reading its events shows it

    def read(self) -> list[dict[str, Any]] | None:
        """The events that have arrived; None if the process has closed its pipe.

        Raises:
            ValueError: something other than events has arrived.
        """
        chunk = os.read(self.events, 1 << 16)
        if not chunk:
            return None
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        events: list[dict[str, Any]] = []
        for line in lines:
            events.append(json.loads(line))
            if "call" in events[-1]:
                self.call, self.since = events[-1]["call"], time.monotonic()
        return events

    def resident(self) -> int:
        """Bytes of resident memory; 0 if the platform does not report it."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return _resident_elsewhere(self.process.pid)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """End the process and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.events)
        with contextlib.suppress(BrokenPipeError):
            self.requests.close()
        self.log.close()

    def written(self) -> int:
        """Bytes that the process has written to standard output and standard error since the last request."""
        return os.fstat(self.log.fileno()).st_size

    def last_words(self) -> str:
        """What the process wrote last: after a crash, the error and its frame, otherwise the last line."""
        self.log.seek(max(0, self.written() - LAST_WORDS))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
        if fatal:
            current = [i for i, line in enumerate(lines) if i > fatal[0] and line.startswith("Current thread")]
            frames = [line for line in lines[(current or fatal)[0] :] if line.startswith("File ")]
            return ", ".join([lines[fatal[0]], *frames[:1]])[:300]
        return lines[-1][:300] if lines else ""

    def how_it_ended(self) -> str:
        """The sentence about a process that has closed its pipe."""
        try:
            status = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            status = PIPE_CLOSED
        if status == PIPE_CLOSED:
            return "the method closed the pipe on which its process answers"
        if -status == signal.SIGKILL:
            return (
                "the method's process was killed (signal SIGKILL): by the method, from outside, or for want of memory"
            )
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        words = self.last_words()
        return f"the method ended its process ({how})" + (f": {words}" if words else "")


def _resident_elsewhere(pid: int) -> int:
    """Bytes of resident memory of a process on a system without /proc, such as macOS; 0 if psutil is not installed."""
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return 0
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # it has ended
        return 0
