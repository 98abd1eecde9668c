"""Every claim as one pytest test: of the references, or of the method given by ``--method``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from gradgate.references import registry
from gradgate.references.contract import UsageError
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.outcomes import FAILED
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.workers.supervisor import Limits, Supervisor


def _supervisor(config: pytest.Config) -> Supervisor:
    run = Run(config.getoption("--examples"), config.getoption("--gradgate-seed"))
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # each has a worker; they share the memory
    return Supervisor(run, jobs=1, limits=Limits(config.getoption("--gradgate-timeout"), Limits().bytes(processes)))


def _tasks(config: pytest.Config) -> list[Task]:
    target, family, framework = (config.getoption(name) for name in ("--method", "--family", "--framework"))
    if not target:
        found = registry.methods(family, None, framework)
        return [Task.of(method, claim) for method in found for claim in method.claims]
    if not family:
        raise UsageError(f"say which problems {target} solves: --family {' | '.join(registry.families())}")
    with _supervisor(config) as supervisor:
        return supervisor.describe(target, family, framework)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per claim. The tests of one method form a group for ``-n N --dist loadgroup``."""
    try:
        tasks = _tasks(metafunc.config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    grouped = metafunc.config.pluginmanager.hasplugin("xdist")
    marks = {task.owner: [pytest.mark.xdist_group(task.owner)] if grouped else [] for task in tasks}
    metafunc.parametrize("task", [pytest.param(task, id=task.name, marks=marks[task.owner]) for task in tasks])


@pytest.fixture(scope="session")
def supervisor(request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    """One worker process per pytest process, replaced when a method hangs or ends it."""
    with _supervisor(request.config) as made:
        yield made


def test_claim(task: Task, supervisor: Supervisor, record_property: Callable[[str, object], None]) -> None:
    """The verdict on a claim is the declared one. A finding passes; ``pytest -rP`` shows its words."""
    verdict = supervisor.judge(task)
    for name, value in verdict.to_dict().items():
        record_property(name, value)
    words = "\n".join([task.name, *explain(verdict).lines()])
    if verdict.outcome == "inapplicable":
        pytest.skip(verdict.reason)
    if verdict.outcome in FAILED:
        pytest.fail(words, pytrace=False)
    if verdict.outcome == "finding":
        print(words)
