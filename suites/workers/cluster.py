"""Judging on the machines of a cluster: each method's claims go to one machine, which starts a worker for them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from typing import Any, Protocol

from gradgate.hw_profiles.recording import Record
from gradgate.references.errors import UsageError
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.supervisor import Limits, Supervisor

TRIES = 2
"""How many times a method's claims are handed out before they count as lost."""
Piece = list[tuple[Task, Run]]


class Judges(Protocol):
    """Whoever judges tasks: a Supervisor of local workers, or a cluster.

    Attributes:
        run: the settings of `judge_all`.
        readings: what those who judged have read: identity of a reading -> the reading.
    """

    run: Run
    readings: Record

    def judge_all(
        self, tasks: Iterable[Task], progress: Callable[[Task, int], None] = ...
    ) -> Iterator[Verdict]:  # pragma: no cover
        """Yield a verdict for every task, in the order in which they finish."""
        ...

    def judge_each(
        self, asked: Iterable[tuple[Task, Run]], progress: Callable[[Task, int], None] = ...
    ) -> Iterator[tuple[Verdict, Run]]:  # pragma: no cover
        """Yield a verdict for every task, each judged with its Run, and that Run."""
        ...


class Cluster:
    """Judges tasks on any ``concurrent.futures`` executor. If a machine dies, its tasks are handed out again."""

    def __init__(self, executor: Executor, run: Run, limits: Limits) -> None:
        self.executor, self.run, self.limits = executor, run, limits
        self.readings: Record = {}

    def judge_all(
        self, tasks: Iterable[Task], progress: Callable[[Task, int], None] = lambda *_: None
    ) -> Iterator[Verdict]:
        """Yield a verdict for every task, method by method as they finish."""
        for verdict, _ in self.judge_each(((task, self.run) for task in tasks), progress):
            yield verdict

    def judge_each(
        self, asked: Iterable[tuple[Task, Run]], progress: Callable[[Task, int], None] = lambda *_: None
    ) -> Iterator[tuple[Verdict, Run]]:
        """Yield a verdict for every task, each judged with its Run, and that Run."""
        pieces: dict[tuple[str, str], Piece] = {}
        for task, run in asked:
            pieces.setdefault((task.owner, task.target), []).append((task, run))
        waiting, why = list(pieces.values()), ""
        for _ in range(TRIES):
            lost: list[Piece] = []
            for piece, found in self._tried(waiting):
                if isinstance(found, BaseException):
                    lost.append(piece)
                    why = f"{type(found).__name__}: {found}"
                    continue
                self.readings |= found["readings"]
                for (task, run), row in zip(piece, found["rows"], strict=True):
                    yield dataclasses.replace(Verdict.from_dict(row), task=task, loaded=row["loaded"]), run
            waiting = lost
        for piece in waiting:
            for task, run in piece:
                reason = f"lost {TRIES} times by the cluster, the last time by {why}"
                yield Verdict(task, "error", profile=task.profile, reason=reason), run

    def _tried(self, pieces: list[Piece]) -> Iterator[tuple[Piece, dict[str, Any] | BaseException]]:
        limits = dataclasses.asdict(self.limits)
        plain = [[(dataclasses.asdict(task), dataclasses.asdict(run)) for task, run in piece] for piece in pieces]
        for place, found in handed_out(self.executor, judged, [(asked, limits) for asked in plain]):
            yield pieces[place], found


def handed_out(
    executor: Executor, function: Callable[..., Any], asked: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """(place of arguments, what the function returns for them, or the exception with which a machine lost them)."""
    futures: dict[Future[Any], int] = {}
    for place, arguments in enumerate(asked):
        try:
            futures[executor.submit(function, *arguments)] = place
        except RuntimeError as error:  # the executor broke or was shut down meanwhile
            yield place, error
    for future in as_completed(futures):
        failure = RuntimeError("it was cancelled") if future.cancelled() else future.exception()
        yield futures[future], future.result() if failure is None else failure


def judged(asked: list[tuple[dict[str, Any], dict[str, Any]]], limits: dict[str, Any]) -> dict[str, Any]:
    """What a worker process on this machine says of tasks, in plain JSON types.

    Returns:
        ``rows``, the verdicts in the order of the tasks, each with ``loaded``; ``readings``, on which they rest.
    """
    tasks = [(Task(**task), Run(**run)) for task, run in asked]
    with Supervisor(tasks[0][1], 1, Limits(**limits)) as supervisor:
        judged_each = supervisor.judge_each(tasks)
        found = [(v.task.name, run, v.to_dict() | {"loaded": v.loaded}) for v, run in judged_each]
    rows = []
    for task, run in tasks:
        place = next(i for i, (name, of, _) in enumerate(found) if name == task.name and of == run)
        rows.append(found.pop(place)[2])
    return {"rows": rows, "readings": supervisor.readings}


@contextlib.contextmanager
def judges(scheduler: str | None, local: Supervisor) -> Iterator[Judges]:
    """The local workers, or the machines of a cluster if a scheduler is named.

    Raises:
        UsageError: the scheduler cannot be reached, or a package is missing.
    """
    with executor(scheduler) as found:
        yield local if found is None else Cluster(found, local.run, local.limits)


@contextlib.contextmanager
def executor(scheduler: str | None) -> Iterator[Executor | None]:
    """The executor of the scheduler that is named on the command line; None if none is named.

    Raises:
        UsageError: it cannot be reached, or a package is missing.
    """
    if scheduler is None:
        yield None
        return
    from gradgate.hw_profiles import sweep

    try:
        entered = sweep.cluster_executor(scheduler)
        found = entered.__enter__()
    except (ImportError, OSError, ValueError) as error:
        raise UsageError(f"--scheduler {scheduler}: {error}") from None
    try:
        yield found
    finally:
        entered.__exit__(None, None, None)
