"""Many candidates of many tasks in one call: in several processes, resumed after a kill, or a share of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gradgate.references.errors import UsageError
from gradgate.references.loading import is_path
from gradgate.suites.court.court import Court, candidate_text, task_digest, text_digest, unanswered
from gradgate.suites.workers import cluster
from gradgate.suites.workers.variables import environment

DEATHS = 2
"""How often one candidate may take the court's own process with it before it gets no answer."""
PORTION = 16
"""Most candidates of one task that are handed out together, to a machine of a cluster, which opens a court for them."""


@dataclass(frozen=True)
class Case:
    """A candidate for a task.

    Attributes:
        task: the target of a task, such as ``task.py:norm``.
        candidate: the text of its module, or its file.
        name: what the answer calls it; by default the file's name.
        function: the name of its function, as in `Court.judge`.
    """

    task: str
    candidate: str | Path
    name: str = ""
    function: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """(task, digest of the task's file, digest of the candidate's text, function): equal keys, equal questions.

        Raises:
            UsageError: the candidate's file cannot be read.
        """
        text, _ = candidate_text(self.candidate, self.name)
        return self.task, task_digest(self.task), text_digest(text), self.function


@dataclass(frozen=True)
class Settings:
    """How courts are opened; the attributes are those of `Court`."""

    wall: str = "auto"
    seconds: float = 20.0

    def open(self, task: str) -> Court:
        """A court for a task."""
        return Court(task, wall=self.wall, seconds=self.seconds)


class _Listed(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a file of cases."""

    task: str
    candidate: str
    name: str = ""
    function: str = ""


def cases_of(path: Path) -> list[Case]:
    """The cases that a file lists: in each line a JSON object with ``task``, ``candidate``, ``name``, ``function``.

    The last two may be missing. Paths, of files of tasks and candidates, are relative to the folder of the list.

    Raises:
        UsageError: the file cannot be read, or a line is no such object; says which.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=_Listed)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"line {number} of {path} is no case: {error}") from None
        task = absolute(one.task, path.parent)
        found.append(Case(task, path.parent / one.candidate, one.name or one.candidate, one.function))
    return found


def answered(path: Path) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """The answers in a file of lines, by the `Case.key` that they belong to. What a kill cut off is left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                one = json.loads(line)
                found[one["task"], one["task_digest"], one["digest"], one["function"]] = one
    return found


def judge_cases(cases: Sequence[Case], settings: Settings, jobs: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index of a case, its answer), as soon as each is known.

    With one job everything happens in this process. With more, each has a process of its own, and if that is killed,
    another one takes its place. Cases of one task should be neighbours: a court is opened for each run of them.

    Raises:
        UsageError: a task is none for strangers, or a candidate's file cannot be read.
    """
    runs = _runs(cases)
    if jobs == 1:
        for run in runs:
            with settings.open(cases[run[0]].task) as court:
                for i in run:
                    yield i, court.judge(cases[i].candidate, cases[i].name, cases[i].function)
        return
    waiting = deque(_portions(runs, jobs))
    answers: queue.SimpleQueue[tuple[int, dict[str, Any]] | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()
    threads = [
        threading.Thread(target=_work, args=(cases, settings, waiting, answers, stop), daemon=True) for _ in range(jobs)
    ]
    for thread in threads:
        thread.start()
    try:
        left = len(threads)
        while left:
            found = answers.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def judge_apart(
    cases: Sequence[Case], settings: Settings, executor: concurrent.futures.Executor
) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `judge_cases`, on the machines of a cluster. What a machine loses is handed out again.

    The texts of candidates are sent. The tasks' files have to be there under the same paths.
    """
    waiting = [run[i : i + PORTION] for run in _runs(cases) for i in range(0, len(run), PORTION)]
    why = ""
    for _ in range(DEATHS):
        asked = [(dataclasses.asdict(settings), [_sent(cases[i]) for i in portion]) for portion in waiting]
        lost = []
        for place, found in cluster.handed_out(executor, judged_apart, asked):
            answers, reason = ({}, str(found)) if isinstance(found, BaseException) else found
            for number, answer in answers.items():
                i = waiting[place][number]
                yield i, {**answer, "task": cases[i].task}
            left = [i for number, i in enumerate(waiting[place]) if number not in answers]
            lost += [left] if left else []
            why = reason or why
        waiting = lost
    for i in itertools.chain.from_iterable(waiting):
        yield i, _unanswered(cases[i], f"lost {DEATHS} times by the cluster, the last time by: {why}")


def judged_apart(settings: dict[str, Any], listed: list[dict[str, str]]) -> tuple[dict[int, dict[str, Any]], str]:
    """(place of a case -> its answer, what the process said if it failed), from a new process on this machine."""
    ran = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import print_answers; print_answers()"],
        env={**os.environ, **environment()},
        input=json.dumps([settings, listed]),
        capture_output=True,
        text=True,
        check=False,
    )
    answers = {}
    for line in ran.stdout.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a task may print
            place, answer = json.loads(line)
            answers[place] = answer
    return answers, f"status {ran.returncode}: {ran.stderr[-500:]}" if ran.returncode else ""


def print_answers() -> None:
    """Judge the cases that standard input lists, and print (place, answer) of each as a line of JSON."""
    settings, listed = json.load(sys.stdin)
    for found in judge_cases([Case(**one) for one in listed], Settings(**settings)):
        print(json.dumps(found), flush=True)


def _sent(case: Case) -> dict[str, str]:
    text, name = candidate_text(case.candidate, case.name)
    return {"task": absolute(case.task, Path.cwd()), "candidate": text, "name": name, "function": case.function}


def _unanswered(case: Case, reason: str) -> dict[str, Any]:
    text, name = candidate_text(case.candidate, case.name)
    return unanswered(case.task, name, text, case.function, reason)


def absolute(task: str, folder: Path) -> str:
    """A task's target, whose file is relative to a folder, with the whole path of its file."""
    of_file = task.endswith(".json") or is_path(task.rpartition(":")[0])
    return str(folder / task) if of_file else task


def _runs(cases: Sequence[Case]) -> list[list[int]]:
    """The places of neighbours that have the same task."""
    return [list(run) for _, run in itertools.groupby(range(len(cases)), key=lambda i: cases[i].task)]


def _portions(runs: Sequence[Sequence[int]], jobs: int) -> Iterator[list[int]]:
    """The work, in portions of one task each; a task is divided only if there are fewer tasks than jobs.

    Then there are more portions than jobs, so that a court that was killed, or got the slow ones, does not end alone.
    """
    least = 1 if len(runs) >= jobs else -(-jobs // max(1, len(runs)))
    for run in runs:
        parts = least if least == 1 else max(least, -(-len(run) // PORTION))
        for part in range(parts):
            portion = list(run[part::parts])
            if portion:
                yield portion


def _work(
    cases: Sequence[Case],
    settings: Settings,
    waiting: deque[list[int]],
    answers: queue.SimpleQueue[Any],
    stop: threading.Event,
) -> None:
    """Let one process after another judge what waits."""
    pool = _pool()
    try:
        while waiting and not stop.is_set():
            try:
                portion = waiting.popleft()
            except IndexError:
                break
            for i in portion:
                for death in range(DEATHS):
                    if stop.is_set():
                        return
                    try:
                        answers.put((i, pool.submit(_judged, cases[i], settings).result()))
                        break
                    except BrokenProcessPool:
                        pool.shutdown()
                        pool = _pool()
                        if death == DEATHS - 1:
                            reason = f"the court's own process ended {DEATHS} times while this candidate was judged"
                            answers.put((i, _unanswered(cases[i], reason)))
    except BaseException as error:
        answers.put(error)
    finally:
        pool.shutdown()
        answers.put(None)


def _pool() -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


_OPEN: dict[tuple[str, Settings], Court] = {}
"""The court of this process, if it is one of several."""


def _judged(case: Case, settings: Settings) -> dict[str, Any]:
    key = case.task, settings
    if key not in _OPEN:
        while _OPEN:
            _OPEN.popitem()[1].close()
        _OPEN[key] = settings.open(case.task)
    return _OPEN[key].judge(case.candidate, case.name, case.function)
