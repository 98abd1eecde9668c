"""Workers that may hang, crash or grow, and the parent that outlives them.

The parent imports no foreign code and neither framework. It hands tasks to worker processes, reads their events, kills
a worker whose call lasts longer than the limit or whose memory grows past its share, turns that into a verdict, and
goes on with a fresh worker.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.judging.engine import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.worker import PIPE_CLOSED, environment

POLL = 0.25
"""Seconds between looks at a silent worker."""
ENDING = 10.0
"""Seconds that a worker which has closed its pipe may take to end."""
WORDS = 2**28
"""Bytes that a method may write while one claim is judged: they are kept on disk, for the last words of a crash."""
LAST_WORDS = 2**16
"""Bytes of them that are read."""
SHARED = 4
"""Claims of one method that a worker must have left to do for another to take half of them."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a worker may use.

    Attributes:
        seconds: per call of foreign code, compilation included.
        memory: bytes of resident memory per worker.
    """

    seconds: float = 60.0
    memory: int = 0

    def bytes(self, jobs: int) -> int:
        """The memory limit: as set, else this machine's memory shared between the workers, less a quarter."""
        if self.memory:
            return self.memory
        return int(0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / jobs)


class Worker:
    """One child process.

    Attributes:
        call: the call of foreign code that it is in, or None.
        problems: family and framework of its tasks.
        guests: plugged-in methods that it has judged; what they left in the process may end it later.
    """

    def __init__(self) -> None:
        down, up = os.pipe(), os.pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        fcntl.fcntl(self.log, fcntl.F_SETFL, fcntl.fcntl(self.log, fcntl.F_GETFL) | os.O_APPEND)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradgate.suites.workers.worker", str(down[0]), str(up[1])],
            pass_fds=(down[0], up[1]),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment()},
            start_new_session=True,  # a Ctrl-C is the parent's to handle, and its own children die with it
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
            pass  # it died between two tasks; reading its events will tell

    def read(self) -> list[dict[str, Any]] | None:
        """The events that have arrived; None when the process has closed its pipe.

        Raises:
            ValueError: something else than events has arrived.
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
        """Bytes of resident memory, 0 where the platform does not tell."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
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

    def last_words(self) -> str:
        """What the process wrote last: the crash and the frame that it was in, or else the last line."""
        self.log.seek(max(0, os.fstat(self.log.fileno()).st_size - LAST_WORDS))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
        if fatal:
            current = [i for i, line in enumerate(lines) if i > fatal[0] and line.startswith("Current thread")]
            frames = [line for line in lines[(current or fatal)[0] :] if line.startswith("File ")]
            return ", ".join([lines[fatal[0]], *frames[:1]])[:300]
        return lines[-1][:300] if lines else ""


class Supervisor:
    """Judges tasks on `jobs` worker processes. A context manager: leaving it ends the workers."""

    def __init__(self, run: Run, jobs: int = 2, limits: Limits | None = None) -> None:
        self.run, self.jobs, self.limits = run, max(1, jobs), limits or Limits()
        self._idle: list[Worker] = []
        self._busy: dict[int, tuple[Worker, collections.deque[tuple[Task, Run]]]] = {}
        self._dead: dict[tuple[str, str], str] = {}
        self._answered: set[str] = set()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.close()
        self._idle, self._busy = [], {}

    def describe(self, target: str, family: str, framework: str | None) -> list[Task]:
        """The tasks of a plugged-in method.

        Raises:
            UsageError: the target, family or framework is wrong, or its import failed, hung or ended the process.
        """
        worker = self._idle.pop() if self._idle else Worker()
        worker.send({"describe": [target, family, framework]})
        while True:
            events, death = self._wait(worker)
            for event in events:
                if "usage" in event or "fault" in event:
                    self._idle.append(worker)
                    raise UsageError(event.get("usage") or event["fault"])
                if "described" in event:
                    self._idle.append(worker)
                    return [Task(**task) for task in event["described"]]
            if death:
                worker.close()
                raise UsageError(f"importing {target}: {death}")

    def judge(self, task: Task) -> Verdict:
        """One verdict; the worker stays for the next task, and a method that ended one is not tried again."""
        death = self._dead.get((task.owner, task.target))
        if death:
            return _not_tried(task, death)
        [verdict] = self.judge_all([task])
        return verdict

    def judge_all(
        self, tasks: Iterable[Task], progress: Callable[[Task, int], None] = lambda *_: None
    ) -> Iterator[Verdict]:
        """Yield a verdict for every task, in the order in which they finish."""
        for verdict, _ in self.judge_each(((task, self.run) for task in tasks), progress):
            yield verdict

    def judge_each(
        self, asked: Iterable[tuple[Task, Run]], progress: Callable[[Task, int], None] = lambda *_: None
    ) -> Iterator[tuple[Verdict, Run]]:
        """Yield a verdict for every task as it is asked for, with that Run, in the order in which they finish.

        Tasks of one method go to one worker, one after the other, so that they share compiled programs, and methods of
        one family and framework to one worker while there are others to do, so that they share oracles. A worker that
        would be idle takes half of what another has left to do of a method. Once a method has hung or ended its
        process, its remaining claims are not tried: each would cost another time limit.
        """
        queues: dict[tuple[str, str], collections.deque[tuple[Task, Run]]] = {}
        for task, run in asked:
            queues.setdefault((task.owner, task.target), collections.deque()).append((task, run))
        waiting = list(queues.values())
        while waiting or self._busy:
            while len(self._busy) < self.jobs:
                waiting = waiting or self._half()
                if not waiting:
                    break
                worker = self._idle.pop() if self._idle else Worker()
                taken = {other.problems for other, _ in self._busy.values()}
                ranks = [_rank(queue[0][0], worker.problems, taken) for queue in waiting]
                self._start(worker, waiting.pop(ranks.index(min(ranks))))
            yield from self._step(progress)

    def _half(self) -> list[collections.deque[tuple[Task, Run]]]:
        """The later half of the longest queue, taken out of it, as the only queue; none if no worker can give any.

        Only of a method that has had a verdict: one that hangs at once shall not hang two workers.
        """
        queues = [queue for _, queue in self._busy.values() if queue[0][0].owner in self._answered]
        longest = max(queues, key=len, default=None)
        if longest is None or len(longest) < SHARED:
            return []
        kept = (len(longest) + 1) // 2
        half = collections.deque(longest[n] for n in range(kept, len(longest)))
        while len(longest) > kept:
            longest.pop()
        return [half]

    def _start(self, worker: Worker, queue: collections.deque[tuple[Task, Run]]) -> None:
        task, run = queue[0]
        worker.problems = _problems(task)
        worker.guests |= {task.owner} if task.target else set()
        self._busy[worker.events] = (worker, queue)
        worker.send({"task": dataclasses.asdict(task), "run": dataclasses.asdict(run)})

    def _step(self, progress: Callable[[Task, int], None]) -> list[tuple[Verdict, Run]]:
        with selectors.DefaultSelector() as selector:
            for fd in self._busy:
                selector.register(fd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(POLL)}
        found: list[tuple[Verdict, Run]] = []
        for fd, (worker, queue) in list(self._busy.items()):
            events, death = self._read(worker, fd in ready)
            if death and worker.guests - {queue[0][0].owner}:
                worker.close()  # what an earlier method has left in the process may have ended it: try in a fresh one
                del self._busy[fd]
                self._start(Worker(), queue)
                continue
            for event in events:
                if "progress" in event:
                    progress(queue[0][0], event["progress"])
                elif "verdict" in event or "fault" in event or "usage" in event:
                    task, run = queue.popleft()
                    found.append((self._finish(task, event), run))
                    self._answered.add(task.owner)
                    del self._busy[fd]
                    elsewhere = self._dead.get((task.owner, task.target))
                    if elsewhere:
                        found += [(_not_tried(task, elsewhere), run) for task, run in queue]
                        queue.clear()
                    if queue:
                        self._start(worker, queue)
                    else:
                        self._idle.append(worker)
            if death:
                del self._busy[fd]
                worker.close()
                self._dead[queue[0][0].owner, queue[0][0].target] = death
                found += _given_up(queue, death, worker.call or {})
        return found

    def _finish(self, task: Task, event: dict[str, Any]) -> Verdict:
        if "verdict" in event:
            return Verdict.from_dict(event["verdict"])
        return Verdict(task, "error", profile=task.profile, reason=event.get("fault") or event["usage"])

    def _wait(self, worker: Worker) -> tuple[list[dict[str, Any]], str]:
        with selectors.DefaultSelector() as selector:
            selector.register(worker.events, selectors.EVENT_READ)
            return self._read(worker, bool(selector.select(POLL)))

    def _read(self, worker: Worker, ready: bool) -> tuple[list[dict[str, Any]], str]:
        """Events, and a sentence if the worker has to be given up."""
        try:
            events = worker.read() if ready else []
        except ValueError:
            return [], "the method wrote into the pipe on which its process answers"
        if events is None:
            return [], _how_it_ended(worker)
        if worker.call is not None and time.monotonic() - worker.since > self.limits.seconds:
            return events, f"the method hung: no answer within {self.limits.seconds:g} s"
        limit = self.limits.bytes(self.jobs)
        if worker.resident() > limit:
            return events, f"the method exhausted memory: its process grew past {limit / 2**30:.3g} GiB"
        if os.fstat(worker.log.fileno()).st_size > WORDS:
            return events, f"the method wrote more than {WORDS / 2**20:g} MiB to standard output or standard error"
        return events, ""


def _how_it_ended(worker: Worker) -> str:
    """The sentence about a worker whose pipe is closed."""
    try:
        status = worker.process.wait(ENDING)
    except subprocess.TimeoutExpired:
        status = PIPE_CLOSED
    if status == PIPE_CLOSED:
        return "the method closed the pipe on which its process answers"
    if -status == signal.SIGKILL:
        return "the method's process was killed (signal SIGKILL): by the method, from outside, or for want of memory"
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    words = worker.last_words()
    return f"the method ended its process ({how})" + (f": {words}" if words else "")


def _problems(task: Task) -> tuple[str, str]:
    return task.family, task.framework


def _rank(task: Task, own: tuple[str, str] | None, taken: Set[tuple[str, str] | None]) -> int:
    """What a worker does first: 0 its own problems, 1 those that no other worker is at, 2 what is left of another's."""
    return 0 if _problems(task) == own else 1 if _problems(task) not in taken else 2


def _given_up(
    queue: collections.deque[tuple[Task, Run]], death: str, call: dict[str, Any]
) -> list[tuple[Verdict, Run]]:
    """Verdicts on the claim that ended a worker, with the call it was in, and on the method's claims after it."""
    options = call.get("options", {}) if "spec" in call else {}
    (first, run), *rest = queue
    return [
        (Verdict(first, "error", spec=call.get("spec"), options=options, profile=first.profile, reason=death), run),
        *((_not_tried(task, death), run) for task, run in rest),
    ]


def _not_tried(task: Task, death: str) -> Verdict:
    return Verdict(task, "error", profile=task.profile, reason=f"not tried: in an earlier claim {death}")
