"""Judging on executors: a cluster gives the same verdicts as local workers, even if a machine dies."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.errors import UsageError
from gradgate.suites.commands import calibrate
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers import cluster
from gradgate.suites.workers.cluster import Cluster
from gradgate.suites.workers.supervisor import Limits

pytestmark = pytest.mark.xdist_group("cluster")
RUN = Run(examples=1)
TASKS = [Task("f", method, "torch", claim) for method in ("a", "b") for claim in ("tree", "value")]


class Dies(Executor):
    """An executor whose first tasks are lost, as if their machine had died."""

    def __init__(self, times: int) -> None:
        self.times = times

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.times -= 1
        if self.times >= 0:
            future.set_exception(RuntimeError("the machine is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def upheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim is upheld without being judged."""

    def judged(asked: list[Any], limits: dict[str, Any]) -> dict[str, Any]:
        verdicts = [Verdict(Task(**task), "upheld", run["seed"], record=("a",)) for task, run in asked]
        return {"rows": [verdict.to_dict() | {"loaded": {}} for verdict in verdicts], "readings": {"a": {}}}

    monkeypatch.setattr(cluster, "judged", judged)


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_what_a_machine_that_dies_had_to_do_is_handed_out_again(deaths: int, upheld: None) -> None:
    judges = Cluster(Dies(deaths), RUN, Limits())
    found = list(judges.judge_all(TASKS))
    assert {identity for verdict in found for identity in verdict.record} == judges.readings.keys() == {"a"}
    assert sorted(v.task.name for v in found) == sorted(task.name for task in TASKS)
    assert {v.verdict for v in found} == {"upheld"}


def test_what_is_lost_each_time_is_an_error_with_a_reason_and_no_silence(upheld: None) -> None:
    found = list(Cluster(Dies(99), RUN, Limits()).judge_all(TASKS))
    assert [v.verdict for v in found] == ["error"] * len(TASKS)
    assert all("lost 2 times by the cluster" in v.reason and "the machine is gone" in v.reason for v in found)


def test_each_verdict_comes_with_the_run_that_it_was_asked_for(upheld: None) -> None:
    asked = [(task, Run(1, seed)) for seed in (1, 2, 3) for task in TASKS]
    found = list(Cluster(Dies(0), RUN, Limits()).judge_each(asked))
    assert len(found) == len(asked)
    assert all(verdict.examples == run.seed for verdict, run in found)


def test_a_thread_with_a_worker_of_its_own_judges_a_method(torch: Any) -> None:
    [method] = registry.methods("chain", "sqrt_n", "torch")
    tasks = [Task.of(method, method.claim(name)) for name in ("tree", "value")]
    with ThreadPoolExecutor(1) as executor:
        found = list(Cluster(executor, RUN, Limits(120)).judge_all(tasks))
    assert [(v.task, v.verdict) for v in found] == [(task, "upheld") for task in tasks]


def test_a_scheduler_that_is_not_there_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorlib", None)
    with pytest.raises(UsageError, match="--scheduler slurm: SLURM needs executorlib"), cluster.executor("slurm"):
        pass


@pytest.mark.parametrize("deaths", [0, 1])
def test_a_calibration_loses_no_piece_of_work(deaths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Dies(deaths)
    monkeypatch.setattr(cluster, "executor", lambda _: contextlib.nullcontext(machines))
    monkeypatch.setattr(calibrate, "measure_apart", lambda *asked: {"piece": asked[-1]})
    pieces: list[calibrate.Piece] = [("alarms", "torch", "0"), ("alarms", "torch", "250")]
    chosen = argparse.Namespace(scheduler="tcp://there", jobs=1)
    found = dict(calibrate._measured("chain", 1, 500, pieces, chosen))
    assert found == {piece: {"piece": piece} for piece in pieces}


def test_a_process_apart_that_fails_says_how() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)status 1: .*unknown family 'nowhere'"):
        calibrate.measure_apart("nowhere", 1, 2, ("alarms", "torch", "0"))


DASK = """
import json, os, sys
from distributed import LocalCluster
from gradgate.suites import cli

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        sys.exit(cli.main([*sys.argv[1:], "--scheduler", cluster.scheduler_address]))
"""


def test_a_dask_cluster_judges_as_local_workers_do(torch: Any, process: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'gradgate[dask]'")
    (tmp_path / "cluster.py").write_text(DASK)
    asked = ("verify", "--family", "chain", "--method", "sqrt_n", "--framework", "torch", "--claim", "tree")
    ran = process("cluster.py", *asked, "--examples", 1, "--json", "v.json", cwd=tmp_path)
    assert ran.status == 0, ran.err[-2000:]
    assert "1 of 1 claims as declared" in ran.out
