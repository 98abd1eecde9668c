"""The court's end of a process in which a stranger's code runs, and of the nursery that forks such processes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.court import message, wall
from gradgate.suites.court.message import Array

POLL = 0.1
"""Seconds between two looks at a process that is silent."""
STARTING = 120.0
"""Seconds that the framework may take to be imported."""


class Gone(Exception):
    """A stranger's process gives no answer any more; the message says why, in words about the candidate."""


class Raised(Exception):
    """The candidate raised an exception; the message is its words."""


class Stranger:
    """One process of a candidate. Whatever arrives from it is checked for form and size, and believed in nothing.

    Attributes:
        pid: its process, as this process sees it; 0 if the system does not say.
        handle: a file that names this process, also after it ended and another one has got its number.
        walls: what it is cut off from, said before any foreign code ran: name -> how.
        gone: why it gives no answer any more; "" while it lives.
    """

    def __init__(self, connection: socket.socket, nursery: Nursery, limits: wall.Limits) -> None:
        self.connection, self.nursery, self.limits = connection, nursery, limits
        self.gone, self.pid, self.first = "", 0, b""
        self.handle: int | None = None
        self.walls: dict[str, str] = {}
        self.peak, self.processor, self.began = 0, 0.0, 0
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def greet(self) -> None:
        """Wait for its first words, which it says before foreign code runs.

        Raises:
            Gone: it ended before them.
        """
        with contextlib.suppress(OSError):
            if _ready(self.connection.fileno(), select.POLLIN, STARTING):
                self.first, sent, _, _ = self.connection.recvmsg(message.HEAD.size, socket.CMSG_SPACE(12))
                for level, kind, data in sent:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                        self.pid = struct.unpack("3i", data[:12])[0]
                        self.handle = os.pidfd_open(self.pid)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        _, text, _ = self._next(STARTING, 0)
        self.walls = json.loads(text)["wall"]
        self.began = self._resident("VmRSS")

    def ask(self, request: dict[str, Any], arrays: Sequence[Array], most: int) -> tuple[dict[str, Any], list[Array]]:
        """The reply to a request.

        Args:
            most: bytes of arrays that are accepted.

        Raises:
            Raised: the candidate raised an exception.
            Gone: it ended, hung, used up what it may use, or sent something else than a reply; it is killed.
        """
        if self.gone:
            raise Gone(self.gone)
        frame = memoryview(message.packed(message.ASK, json.dumps(request), arrays))
        until = time.monotonic() + self.limits.seconds
        while frame:
            ready = _ready(self.connection.fileno(), select.POLLOUT, POLL)
            try:
                frame = frame[self.connection.send(frame[: 1 << 20], socket.MSG_DONTWAIT) :] if ready else frame
            except BlockingIOError:
                continue
            except OSError:
                break  # it has closed its end; reading says so
            if time.monotonic() > until:
                self.end(f"it took no request within {self.limits.seconds:g} s")
        kind, text, found = self._next(self.limits.seconds, most)
        self._look()
        if kind == message.RAISED:
            raise Raised(text)
        try:
            reply = json.loads(text)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            self.end("it sent something else than a reply")
        return reply, found

    def _next(self, seconds: float, most: int) -> tuple[int, str, list[Array]]:
        until = time.monotonic() + seconds
        try:
            return message.received(self._read, until, most)
        except message.Malformed as why:
            self.end(f"it sent something else than a reply: {why}")
        except message.TooLate:
            self.end(f"it hung: no answer within {seconds:g} s")
        except (message.Closed, OSError):
            self.end("its process ended")
        raise AssertionError

    def _read(self, count: int, seconds: float) -> bytes:
        if self.first:
            found, self.first = self.first[:count], self.first[count:]
            return found
        if not _ready(self.connection.fileno(), select.POLLIN, min(POLL, seconds)):
            self._look()
            raise TimeoutError
        return self.connection.recv(count)

    def _look(self) -> None:
        """Look at what the process uses; it is ended if that is too much."""
        if not self._lives():
            return
        below = self._measure()
        if len(below) > self.limits.processes:
            self.end(f"it started {len(below)} processes; {self.limits.processes} are allowed")
        if self._resident("VmRSS") + sum(_status(pid, "VmRSS") for pid in below) > self.began + self.limits.memory:
            self.end(f"it used more than {self.limits.memory / 2**30:.3g} GiB of memory")

    def _lives(self) -> bool:
        return self.handle is not None and not _ready(self.handle, select.POLLIN, 0)

    def _measure(self) -> list[int]:
        """Read what it has used, with the processes below it, which are returned."""
        below = descendants(self.pid)
        self.peak = max(self.peak, sum(_status(pid, "VmHWM") for pid in (self.pid, *below)))
        self.processor = max(self.processor, sum(map(_processor, (self.pid, *below))))
        return below

    def _resident(self, name: str) -> int:
        return _status(self.pid, name) if self.pid else 0

    def end(self, why: str) -> None:
        """End it for a reason.

        Raises:
            Gone: always, with the reason.
        """
        self.gone = why
        self.close()
        raise Gone(why)

    def close(self) -> None:
        """End the process and everything that it started."""
        if self._lives():  # another process could have the number of one that has ended
            for pid in [self.pid, *self._measure()]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
        self.connection.close()
        self.gone = self.gone or "it was closed"
        if "processes" not in self.walls:
            self.nursery.sweep()


class Nursery:
    """A process behind the wall that has imported a framework, and forks a process for each candidate.

    If somebody kills it, the next candidate gets another one. It is a context manager: leaving it ends all processes.
    """

    def __init__(self, framework: str, kind: str, hidden: Sequence[str] = ()) -> None:
        self.framework, self.kind, self.hidden = framework, kind, tuple(hidden)
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.strangers: list[Stranger] = []

    def start(self) -> None:
        """Begin to import the framework; returns at once."""
        self.stop()
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            wall.command(self.kind, self.framework, theirs.fileno(), self.hidden),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=wall.variables(),
            start_new_session=True,
            cwd="/",
        )
        theirs.close()
        self.control = ours
        self.ready = False

    def stranger(self, limits: wall.Limits) -> Stranger:
        """A new process.

        Raises:
            OSError: no such process can be started here.
        """
        for _ in range(3):
            if self.process is None or self.process.poll() is not None:
                self.start()
            try:
                return self._forked(limits)
            except (OSError, Gone):
                self.stop()
        raise OSError("no process could be started behind the wall")

    def _forked(self, limits: wall.Limits) -> Stranger:
        assert self.control is not None
        if not self.ready:
            self.control.settimeout(STARTING)
            self.ready = self.control.recv(1) == b"r"
            if not self.ready:
                raise OSError
        ours, theirs = socket.socketpair()
        asked = {
            "bytes": limits.memory,
            "processor": limits.processor,
            "scratch": wall.SCRATCH,
            "folders": [
                *wall.folders(self.framework),
                *wall.SYSTEM,
                "/proc",
                "/dev",
                str(wall.HERE),
                str(wall.HERE.parent / "exact"),
                wall.BEHIND,
            ],
        }
        socket.send_fds(self.control, [json.dumps(asked).encode()], [theirs.fileno()])
        theirs.close()
        made = Stranger(ours, self, limits)
        made.greet()
        self.strangers = [one for one in self.strangers if not one.gone] + [made]
        return made

    def sweep(self) -> None:
        """End what closed strangers have left, where they had no namespace of processes: everything but the living."""
        if self.process is None or self.kind == "bubblewrap":
            return
        alive = {pid for one in self.strangers if not one.gone for pid in (one.pid, *descendants(one.pid))}
        for pid in descendants(self.process.pid):
            if pid not in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the nursery and all strangers."""
        for one in self.strangers:
            if not one.gone:
                one.close()
        self.strangers = []
        if self.process is not None:
            below = descendants(self.process.pid)
            for pid in (self.process.pid, *below):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
        if self.control is not None:
            self.control.close()
            self.control = None

    def __enter__(self) -> Nursery:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _ready(file: int, event: int, seconds: float) -> bool:
    """Whether a file is ready within some seconds; unlike `select.select`, also if its number is above 1023."""
    poll = select.poll()
    poll.register(file, event)
    return bool(poll.poll(1000 * seconds))


def descendants(pid: int) -> list[int]:
    """The processes below one, as far as the system lists them."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                below = [int(text) for text in path.read_text().split()]
                found += below
                waiting += below
        if len(found) > 4096:
            break
    return found


def _status(pid: int, name: str) -> int:
    """Bytes that /proc/PID/status says under a name; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _processor(pid: int) -> float:
    """Seconds of processor time of a process, and of those that it started and that have ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0
