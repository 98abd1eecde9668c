"""Workers that may hang, crash or run out of memory, and the parent that survives them.

The parent imports no foreign code and neither framework. It gives tasks to worker processes and reads their events. It
kills a worker whose call lasts longer than the limit or whose memory grows past its share, makes a verdict of that, and
continues with a new worker.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from gradgate.hw_profiles.recording import Record
from gradgate.references.contract import UsageError
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.process import WORDS, Worker

ANSWERS = frozenset(("verdict", "fault", "usage"))
"""Keys of the events that end a claim."""
POLL = 0.25
"""Seconds between checks of a worker that sends nothing."""
SHARED = 4
"""A worker with at least this many claims of one method left gives half of them to an idle worker."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a worker may use.

    Attributes:
        seconds: seconds per call of foreign code, compilation included.
        memory: bytes of resident memory per worker; 0 for a share of this machine's memory.
    """

    seconds: float = 60.0
    memory: int = 0

    def bytes(self, jobs: int) -> int:
        """The memory limit of a worker: as set, or else three quarters of this machine's memory over the workers."""
        if self.memory:
            return self.memory
        return int(0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / jobs)


class Supervisor:
    """Judges tasks on `jobs` worker processes. It is a context manager: leaving it ends the workers."""

    def __init__(self, run: Run, jobs: int = 2, limits: Limits | None = None) -> None:
        self.run, self.jobs, self.limits = run, max(1, jobs), limits or Limits()
        self._idle: list[Worker] = []
        self._busy: dict[int, tuple[Worker, collections.deque[tuple[Task, Run]]]] = {}
        self._dead: dict[tuple[str, str], str] = {}
        self._answered: set[str] = set()
        self._devices: dict[tuple[str, str], str] = {}
        self._warm: list[str | None] = []  # what was described last: a second worker imports it, if it is judged
        self.readings: Record = {}
        """What the workers have read: identity of a reading -> the reading."""

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
            worker.close()
        self._idle, self._busy = [], {}

    def describe(self, target: str, family: str, framework: str | None) -> list[Task]:
        """The tasks of a plugged-in method.

        Raises:
            UsageError: as `describe_fully`.
        """
        return [Task(**task) for task in self.describe_fully(target, family, framework)["tasks"]]

    def describe_fully(self, target: str, family: str, framework: str | None) -> dict[str, Any]:
        """The ``tasks`` of a plugged-in method; ``places``, owner -> modules and files of its declaration; ``record``.

        Raises:
            UsageError: the target, family or framework is wrong, or its import failed, hung or ended the process.
        """
        worker = self._worker()
        worker.send({"describe": [target, family, framework]})
        while True:
            events, death = self._wait(worker)
            for event in events:
                if "usage" in event or "fault" in event:
                    self._idle.append(worker)
                    raise UsageError(event.get("usage") or event["fault"])
                if "described" in event:
                    self._idle.append(worker)
                    self._warm = [target, family, framework]
                    record = {identity: self.readings[identity] for identity in event["record"]}
                    return {"tasks": event["described"], "places": event["places"], "record": record}
            if death:
                worker.close()
                raise UsageError(f"importing {target}: {death}")

    def check_spec(self, origin: str, spec: str) -> None:
        """Check that JSON is a problem of a class that a worker has to import.

        Raises:
            UsageError: it names an unknown field, or a wrong value.
        """
        worker = self._worker()
        worker.send({"spec": [origin, spec]})
        while True:
            events, death = self._wait(worker)
            for event in events:
                if "usage" in event or "legal" in event:
                    self._idle.append(worker)
                    if "usage" in event:
                        raise UsageError(event["usage"])
                    return
            if death or any("fault" in event for event in events):  # the verdicts will say what happened
                worker.close()
                return

    def judge(self, task: Task) -> Verdict:
        """One verdict. The worker stays for the next task. A method that hung or ended a worker is not tried again."""
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
        """Yield a verdict for every task, each judged with its Run, and that Run, in the order in which they finish.

        The tasks of one method go to one worker, one after the other, so that they share compiled programs. Methods of
        one family go to one worker while there are others to do, so that they share oracles; the truth is one for both
        frameworks. A worker that would be idle takes half of the tasks that another worker has left of a method. Once a
        method has hung or ended its process, its remaining claims are not tried: each would cost another time limit.
        """
        queues: dict[tuple[str, str], collections.deque[tuple[Task, Run]]] = {}
        for task, run in asked:
            queues.setdefault((task.owner, task.target), collections.deque()).append((task, run))
        waiting = list(queues.values())
        if waiting and self._warm and self.jobs > 1 and len(self._idle) == 1:
            self._idle.insert(0, Worker())  # a framework takes longer to import than most claims to judge
            self._idle[0].send({"warm": self._warm})
        while waiting or self._busy:
            while len(self._busy) < self.jobs:
                waiting = waiting or self._half()
                if not waiting:
                    break
                problems = self._idle[-1].problems if self._idle else None
                taken = {other.problems for other, _ in self._busy.values()}
                ranks = [_rank(queue[0][0], problems, taken) for queue in waiting]
                queue = waiting.pop(ranks.index(min(ranks)))
                self._start(self._worker(self._device(queue[0][0])), queue)
            yield from self._step(progress)

    def _device(self, task: Task) -> str:
        """The device that a method has requested for its process; "" if it has requested none."""
        return self._devices.get((task.owner, task.target), "")

    def _worker(self, device: str = "") -> Worker:
        """The worker of a device that became idle last, or a new one, for which an idle one of another device ends."""
        for place in reversed(range(len(self._idle))):
            if self._idle[place].device == device:
                return self._idle.pop(place)
        if self._idle:
            self._idle.pop(0).close()
        return Worker(device)

    def _half(self) -> list[collections.deque[tuple[Task, Run]]]:
        """The later half of the longest queue, taken out of it, as the only queue; [] if no worker can give any.

        Only a method that has had a verdict is shared, so that a method that hangs at once does not hang two workers.
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
        keep = self.limits.bytes(self.jobs) // 2  # what a worker keeps of earlier tasks must not end this one
        worker.send({"task": dataclasses.asdict(task), "run": dataclasses.asdict(run), "keep": keep})

    def _step(self, progress: Callable[[Task, int], None]) -> list[tuple[Verdict, Run]]:
        with selectors.DefaultSelector() as selector:
            for fd in self._busy:
                selector.register(fd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(POLL)}
        found: list[tuple[Verdict, Run]] = []
        for fd, (worker, queue) in list(self._busy.items()):
            events, death = self._read(worker, fd in ready)
            answered = any(event.keys() & ANSWERS for event in events)  # before it died: it is not to blame
            if death and not answered and worker.guests - {queue[0][0].owner}:
                worker.close()  # something that an earlier method left may have ended it: try in a fresh one
                del self._busy[fd]
                self._start(Worker(worker.device), queue)
                continue
            for event in events:
                if "progress" in event:
                    progress(queue[0][0], event["progress"])
                elif "elsewhere" in event:
                    del self._busy[fd]
                    self._idle.append(worker)
                    self._devices[queue[0][0].owner, queue[0][0].target] = event["elsewhere"]
                    self._start(self._worker(event["elsewhere"]), queue)
                elif event.keys() & ANSWERS:
                    task, run = queue.popleft()
                    found.append((self._finish(task, event), run))
                    self._answered.add(task.owner)
                    del self._busy[fd]
                    elsewhere = self._dead.get((task.owner, task.target))
                    if elsewhere:
                        found += [(_not_tried(task, elsewhere), run) for task, run in queue]
                        queue.clear()
                    if death:
                        worker.close()
                    if queue:
                        self._start(Worker(worker.device) if death else worker, queue)
                    elif not death:
                        self._idle.append(worker)
            if death and not answered:
                del self._busy[fd]
                worker.close()
                self._dead[queue[0][0].owner, queue[0][0].target] = death
                found += _given_up(queue, death, worker.call or {})
        return found

    def _finish(self, task: Task, event: dict[str, Any]) -> Verdict:
        if "verdict" in event:
            verdict = Verdict.from_dict(event["verdict"])
            return dataclasses.replace(verdict, record=tuple(event["record"]), loaded=event["loaded"])
        return Verdict(task, "error", profile=task.profile, reason=event.get("fault") or event["usage"])

    def _wait(self, worker: Worker) -> tuple[list[dict[str, Any]], str]:
        with selectors.DefaultSelector() as selector:
            selector.register(worker.events, selectors.EVENT_READ)
            return self._read(worker, bool(selector.select(POLL)))

    def _read(self, worker: Worker, ready: bool) -> tuple[list[dict[str, Any]], str]:
        """The events of a worker, and a sentence if it has to be given up, else ""."""
        try:
            events = worker.read() if ready else []
        except ValueError:
            return [], "the method wrote into the pipe on which its process answers"
        if events is None:
            return [], worker.how_it_ended()
        for event in events:
            self.readings |= event.get("readings", {})
        if worker.call is not None and time.monotonic() - worker.since > self.limits.seconds:
            return events, f"the method hung: no answer within {self.limits.seconds:g} s"
        limit = self.limits.bytes(self.jobs)
        if worker.resident() > limit:
            return events, f"the method exhausted memory: its process grew past {limit / 2**30:.3g} GiB"
        if worker.written() > WORDS:
            return events, f"the method wrote more than {WORDS / 2**20:g} MiB to standard output or standard error"
        return events, ""


def _problems(task: Task) -> tuple[str, str]:
    return task.family, task.framework


def _rank(task: Task, own: tuple[str, str] | None, taken: Set[tuple[str, str] | None]) -> tuple[bool, ...]:
    """What a worker takes first: the least of its ranks.

    First its own problems, then those that no other worker has: of its own family before others, and of a family that
    no other worker has before one that is shared.
    """
    problems, families = _problems(task), {other[0] for other in taken if other}
    return problems != own, problems in taken, own is None or task.family != own[0], task.family in families


def _given_up(
    queue: collections.deque[tuple[Task, Run]], death: str, call: dict[str, Any]
) -> list[tuple[Verdict, Run]]:
    """Verdicts on the claim that ended a worker, with the call that was running, and on the method's later claims."""
    options = call.get("options", {}) if "spec" in call else {}
    (first, run), *rest = queue
    return [
        (Verdict(first, "error", spec=call.get("spec"), options=options, profile=first.profile, reason=death), run),
        *((_not_tried(task, death), run) for task, run in rest),
    ]


def _not_tried(task: Task, death: str) -> Verdict:
    return Verdict(task, "error", profile=task.profile, reason=f"not tried: in an earlier claim {death}")
