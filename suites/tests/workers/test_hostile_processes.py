"""What happens when a process dies: a worker, its supervisor, or a method inside a pytest run of several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.bugs.hostile import FAULTS
from gradgate.suites.bugs.hostile.fault import FAMILY
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.workers.supervisor import Limits, Supervisor

WAITS = """
import os, pathlib, threading, time

HERE = pathlib.Path(__file__).parent

def waits(problem):
    (HERE / "draft").write_text(str(os.getpid()))
    (HERE / "draft").rename(HERE / "pid")
    time.sleep(600)

def leaves_a_bomb(problem):
    threading.Timer(0.5, os._exit, (3,)).start()
    return good(problem)

def meets_the_bomb(problem):
    time.sleep(1)
    return good(problem)
"""


def _pid(folder: Path) -> int:
    """The process id of the worker in which `waits` waits; this waits until the method is called."""
    deadline = time.monotonic() + 120
    while not (folder / "pid").exists():
        assert time.monotonic() < deadline, "the method was never called"
        time.sleep(0.05)
    return int((folder / "pid").read_text())


def _task(target: str, claim: str = "tree") -> Task:
    return Task(FAMILY, target.rpartition(":")[2], "torch", claim, target)


def test_a_worker_killed_from_outside_costs_one_verdict(plugin: Callable[..., str], tmp_path: Path) -> None:
    path = plugin(WAITS)
    killer = threading.Thread(target=lambda: os.kill(_pid(tmp_path), signal.SIGKILL))
    killer.start()
    reference = Task(FAMILY, "backprop", "torch", "value")
    tasks = [reference, _task(f"{path}:waits"), _task(f"{path}:waits", "pure"), _task(f"{path}:good")]
    with Supervisor(Run(examples=1), jobs=1, limits=Limits(300)) as supervisor:
        first, killed, rest, last = supervisor.judge_all(tasks)
    killer.join()
    assert (first.verdict, last.verdict) == ("upheld", "upheld")
    assert killed.verdict == rest.verdict == "error"
    sentence = "the method's process was killed (signal SIGKILL): by the method, from outside, or for want of memory"
    assert killed.reason == sentence
    assert killed.spec is not None
    assert rest.reason == f"not tried: in an earlier claim {sentence}"


def test_what_a_method_leaves_behind_is_not_blamed_on_the_next(plugin: Callable[..., str]) -> None:
    path = plugin(WAITS)
    with Supervisor(Run(examples=1), jobs=1, limits=Limits(300)) as supervisor:
        found = list(supervisor.judge_all([_task(f"{path}:leaves_a_bomb"), _task(f"{path}:meets_the_bomb")]))
    assert [verdict.verdict for verdict in found][1:] == ["upheld"], found


SUPERVISES = """
import sys
from gradgate.suites.judging.run import Run
from gradgate.suites.workers.supervisor import Limits, Supervisor
from gradgate.suites.judging.verdict import Task

if __name__ == "__main__":
    with Supervisor(Run(examples=1), jobs=1, limits=Limits(600)) as supervisor:
        supervisor.judge(Task("state_space", "waits", "torch", "tree", sys.argv[1]))
"""


def test_a_worker_ends_with_its_supervisor(plugin: Callable[..., str], tmp_path: Path) -> None:
    script = tmp_path / "supervises.py"
    script.write_text(SUPERVISES)
    parent = subprocess.Popen([sys.executable, script, f"{plugin(WAITS)}:waits"], cwd=tmp_path)
    worker = _pid(tmp_path)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while _runs(worker):
        assert time.monotonic() < deadline, "the worker still runs, though its supervisor has ended"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_after_a_death_the_rest_of_the_method_is_not_tried_and_says_so() -> None:
    pytest.importorskip("torch")
    crashes = "gradgate.suites.bugs.hostile.crashes"
    with Supervisor(Run(examples=1), jobs=2, limits=Limits(300)) as supervisor:
        tasks = supervisor.describe(f"{crashes}:ends", FAMILY, "torch")
        found = list(supervisor.judge_all(tasks))
        later = supervisor.judge(tasks[0])
    first, *rest = sorted(found, key=lambda verdict: verdict.reason.startswith("not tried"))
    assert first.reason.startswith("the method ended its process (exit status 7)")
    assert all(v.reason == f"not tried: in an earlier claim {first.reason}" for v in [*rest, later])
    assert {v.verdict for v in found} == {"error"}
    assert len(found) == len(tasks)


SMALL = """
from gradgate.suites.workers.supervisor import Limits

Limits.bytes = lambda self, jobs: 2**30  # or the test would have to fill half of this machine
"""
HARD = {fault.name: fault for fault in FAULTS if fault.name in ("ends", "kills_itself", "hangs", "exits", "grows")}


@pytest.mark.parametrize("name", HARD)
def test_inside_pytest_on_two_processes_the_hard_faults_are_failures_and_the_run_goes_on(
    name: str, process: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("xdist")
    fault, path = HARD[name], tmp_path / "mine.py"
    path.write_text(f"from gradgate.suites.bugs.hostile.crashes import {name}\n")  # imports quickly: the limit is short
    (tmp_path / "small.py").write_text(SMALL)
    ran = process(
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites",
        "--method",
        f"{path}:{name}",
        "--family",
        FAMILY,
        "--framework",
        "torch",
        "--examples",
        1,
        "-n",
        2,
        "-p",
        "no:cacheprovider",
        "-q",
        "-k",
        "tree or value or pure",
        "--gradgate-timeout",
        15 if name == "hangs" else 300,
        "-p",
        "small",
        cwd=tmp_path,
        env={"PYTHONPATH": "."},
        timeout=900,
    )
    assert ran.status == 1, ran.out + ran.err
    assert "3 failed" in ran.out, ran.out
    assert any(fault.told_by(line.strip().removeprefix("reason: ")) for line in ran.out.splitlines()), ran.out
    assert "reproduce: gradgate verify" in ran.out
    assert "worker 'gw" not in ran.out, "a pytest worker died with the method"


def test_inside_pytest_a_refuted_claim_fails_alone(process: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran = process(
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites",
        "--method",
        "gradgate.suites.bugs.hostile.changes:overwrites",
        "--family",
        FAMILY,
        "--framework",
        "torch",
        "--examples",
        2,
        "-p",
        "no:cacheprovider",
        "-q",
        "-k",
        "pure or tree or value",
        cwd=tmp_path,
    )
    assert ran.status == 1, ran.out + ran.err
    assert "the call changed its input params.head" in ran.out
    assert "1 failed, 2 passed" in ran.out, ran.out


def test_inside_pytest_wrong_usage_is_told_without_a_traceback(process: Callable[..., Any], tmp_path: Path) -> None:
    ran = process(
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites",
        "--method",
        "nowhere.py:f",
        "--family",
        FAMILY,
        "-p",
        "no:cacheprovider",
        "-q",
        cwd=tmp_path,
    )
    assert ran.status in (2, 4), ran.out + ran.err
    assert "there is no file nowhere.py" in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err
