"""How tasks are distributed to workers; `test_hostile_methods.py` tests what happens when a worker dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.process import Worker
from gradgate.suites.workers.supervisor import Supervisor


class _Worker(Worker):
    """A stand-in for a worker, without a process."""

    made = 0

    def __init__(self, device: str = "") -> None:
        _Worker.made += 1
        self.device = device
        self.events, self.problems = _Worker.made, None

    def send(self, request: object) -> None:
        pass

    def close(self) -> None:
        pass


class _Supervisor(Supervisor):
    """A supervisor in which the busy worker with the largest number answers first; it records what each one judged."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs=jobs, run=None)  # type: ignore[arg-type]
        self.judged: dict[int, list[str]] = {}

    def _start(self, worker: Worker, queue: object) -> None:
        task, _ = queue[0]  # type: ignore[index]
        worker.problems = (task.family, task.framework)
        self._busy[worker.events] = (worker, queue)  # type: ignore[assignment]

    def _step(self, progress: object) -> list[tuple[Verdict, Run]]:
        worker, queue = self._busy.pop(max(self._busy))
        self.judged.setdefault(worker.events, []).extend(task.family + task.framework[0] for task, _ in queue)
        self._idle.append(worker)
        return [(Verdict(task, "upheld"), run) for task, run in queue]


def test_methods_of_one_family_go_to_one_worker_until_it_alone_has_work(monkeypatch) -> None:
    monkeypatch.setattr("gradgate.suites.workers.supervisor.Worker", _Worker)
    tasks = [
        Task(family, method, framework, "tree")
        for family in "ab"
        for framework in ("jax", "torch")
        for method in ("x", "y", "z")
    ]
    supervisor = _Supervisor(jobs=2)
    _Worker.made = 0
    found = list(supervisor.judge_all(tasks))
    assert {(v.task.owner) for v in found} == {task.owner for task in tasks}
    assert len(found) == len(tasks)
    first, second = supervisor.judged[1], supervisor.judged[2]
    # Only the second worker answers: it does its own family, then the framework that the first has not begun of its
    # family, then the first's own tasks.
    assert second == ["bj"] * 3 + ["bt"] * 3 + ["at"] * 3 + ["aj"] * 2
    assert first == ["aj"]


class _Dying(_Worker):
    """A worker that must be given up after every answer: the answer and that message arrive together."""

    def __init__(self, device: str = "") -> None:
        super().__init__(device)
        self.events, end = os.pipe()
        os.close(end)
        self.call, self.guests, self.closed = None, set(), False
        made.append(self)

    def close(self) -> None:
        os.close(self.events)
        self.closed = True


made: list[_Dying] = []


@pytest.mark.parametrize("claims", [1, 3])
def test_a_worker_that_dies_after_its_answer_takes_no_claim_with_it(
    claims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.clear()
    monkeypatch.setattr("gradgate.suites.workers.supervisor.Worker", _Dying)
    tasks = [Task("a", "x", "jax", f"claim{n}") for n in range(claims)]
    waiting = [Verdict(task, "upheld").to_dict() for task in tasks]
    supervisor = Supervisor(Run(), 1)
    read: dict[str, Any] = {"record": [], "readings": {}, "loaded": {}}
    monkeypatch.setattr(
        supervisor, "_read", lambda *_: ([{"verdict": waiting.pop(0)} | read], "its memory is exhausted")
    )
    found = list(supervisor.judge_all(tasks))
    assert [(v.task.claim, v.verdict) for v in found] == [(task.claim, "upheld") for task in tasks]
    assert len(made) == claims
    assert all(worker.closed for worker in made)


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_workers_import_a_target_as_soon_as_something_of_it_is_judged(jobs: int, plugin, tmp_path: Path) -> None:
    target = plugin(f"""
import os
with open({str(tmp_path / "imported")!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
""")
    with Supervisor(Run(examples=1), jobs) as supervisor:
        tasks = supervisor.describe(f"{target}:good", "state_space", "torch")
        [first] = supervisor._idle  # a wrong claim or problem would be refused now
        assert {verdict.verdict for verdict in supervisor.judge_all(tasks[:1])} == {"upheld"}
        for spare in [worker for worker in supervisor._idle if worker is not first]:
            while not any("warm" in event for event in supervisor._wait(spare)[0]):
                pass
    assert len(set((tmp_path / "imported").read_text().split())) == jobs


def test_two_workers_share_the_claims_of_a_single_method(plugin, patient: Supervisor) -> None:
    tasks = patient.describe(f"{plugin()}:good", "state_space", "torch")
    with Supervisor(Run(examples=2), jobs=2) as two:
        found = list(two.judge_all(tasks))
        assert len(two._idle) == 2
    assert sorted(v.task.claim for v in found) == sorted(task.claim for task in tasks)
    assert {v.verdict for v in found} == {"upheld"}


def test_a_method_that_ends_one_worker_is_not_tried_on_by_the_other(plugin, patient: Supervisor) -> None:
    ends = """
import os
calls = []
def ends(problem):
    calls.append(0)
    return good(problem) if len(calls) < 8 else os._exit(3)
"""
    tasks = patient.describe(f"{plugin(ends)}:ends", "state_space", "torch")
    with Supervisor(Run(examples=6), jobs=2) as two:
        found = list(two.judge_all(tasks))
    assert sorted(v.task.claim for v in found) == sorted(task.claim for task in tasks)
    errors = [v.reason for v in found if v.verdict == "error"]
    assert (
        1 <= sum("ended its process (exit status 3)" in reason and "not tried" not in reason for reason in errors) <= 2
    )
    assert any("not tried" in reason for reason in errors)


def test_programs_are_dropped_when_the_process_has_grown(process: Callable[..., Any], jax: Any, tmp_path: Path) -> None:
    code = """
import jax
from gradgate.suites.workers.worker import relieve
doubled = jax.jit(lambda x: 2 * x)
for keep in (2**60, 0):
    doubled(1.0)
    relieve(keep)
    print(doubled._cache_size())
"""
    ran = process("-c", code, cwd=tmp_path)
    assert ran.out.split() == ["1", "0"], ran.err
