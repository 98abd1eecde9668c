"""Many candidates in one call: none is lost, none is judged twice, whatever is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import UsageError, installed
from gradgate.suites.bugs import strangers
from gradgate.suites.bugs.strangers import __main__ as program
from gradgate.suites.bugs.strangers.exploits import TORCH
from gradgate.suites.court import cases
from gradgate.suites.court.cases import Case, Settings, answered, cases_of, judge_cases
from gradgate.suites.court.court import unanswered
from gradgate.suites.court.stranger import descendants

TASK = "gradgate.suites.bugs.strangers.task_torch:task"
RIGHT = TORCH.replace("return 2 * dy", "return dy")
needs_torch = pytest.mark.skipif(not installed("torch"), reason="torch is not installed")


def listed(path: Path, *lines: dict[str, Any] | str) -> Path:
    """A file of cases."""
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_a_list_names_tasks_and_candidates_beside_it(tmp_path: Path) -> None:
    one = {"task": "task.py:norm", "candidate": "right.py"}
    two = {"task": "package.module:task", "candidate": "sub/wrong.py", "name": "second", "function": "run"}
    found = cases_of(listed(tmp_path / "cases.jsonl", one, "", two, {**one, "task": "definition.json"}))
    assert [case.task for case in found] == [
        f"{tmp_path}/task.py:norm",
        "package.module:task",
        f"{tmp_path}/definition.json",
    ]
    assert [case.name for case in found] == ["right.py", "second", "right.py"]
    assert found[1].candidate == tmp_path / "sub/wrong.py"
    assert found[1].function == "run"


@pytest.mark.parametrize("line", ["{", '{"task": "a"}', '{"task": "a", "candidate": "b", "jobs": 2}', "[]"])
def test_a_line_that_is_no_case_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2 of .* is no case"):
        cases_of(listed(tmp_path / "cases.jsonl", {"task": "a", "candidate": "b"}, line))


def test_what_a_kill_cut_off_is_no_answer(tmp_path: Path) -> None:
    case = Case(TASK, RIGHT)
    whole = json.dumps(unanswered(TASK, "one", RIGHT, "", "why"))
    (tmp_path / "lines.jsonl").write_text(whole + "\n" + whole[: len(whole) // 2])
    assert list(answered(tmp_path / "lines.jsonl")) == [case.key]
    assert answered(tmp_path / "none.jsonl") == {}


def test_another_text_function_or_task_is_another_question(tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text("task = 1\n")
    first = Case(f"{task}:task", "x = 1\n")
    asked = {first.key, Case(f"{task}:task", "x = 2\n").key, Case(f"{task}:task", "x = 1\n", function="f").key}
    assert Case(f"{task}:task", "x = 1\n", name="another name").key == first.key
    task.write_text("task = 2\n")
    assert len({*asked, first.key}) == 4


def test_every_case_is_in_one_portion_and_a_portion_has_one_task() -> None:
    asked = [([[0, 1, 2, 3, 4]], 2), ([[0], [1, 2], [3]], 2), ([[0]], 4), ([list(range(7))], 3), ([list(range(99))], 2)]
    for runs, jobs in asked:
        portions = list(cases._portions(runs, jobs))
        assert sorted(i for portion in portions for i in portion) == [i for run in runs for i in run]
        assert all(any(set(portion) <= set(run) for run in runs) for portion in portions)
        assert len(portions) >= min(jobs, sum(map(len, runs)))
        assert len(runs) >= jobs or max(map(len, portions)) <= cases.PORTION


@needs_torch
def test_a_court_that_is_killed_loses_no_candidate() -> None:
    """With two jobs, one process is killed after the first answer."""
    asked = [Case(TASK, f"# {i}\n" + (TORCH if i % 2 else RIGHT), f"candidate {i}") for i in range(6)]
    found: dict[int, dict[str, Any]] = {}
    for i, answer in judge_cases(asked, Settings(), jobs=2):
        if not found:
            os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        assert i not in found
        found[i] = answer
    assert [found[i]["name"] for i in range(6)] == [case.name for case in asked]
    assert [found[i]["verdict"] for i in range(6)] == ["upheld", "refuted"] * 3


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_cluster_is_asked_again_for_what_a_machine_has_lost(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine answers about one candidate of its portion, or, the first times, about none."""
    asked = [Case(TASK, f"# {i}\n", f"candidate {i}") for i in range(cases.PORTION + 1)]
    calls: list[int] = []

    def judged_apart(settings: dict[str, Any], listed: list[dict[str, str]]) -> Any:
        calls.append(len(listed))
        if len(calls) <= lost:
            raise RuntimeError("the machine is gone")
        whole = len(calls) > 2
        found = {place: unanswered("there", one["name"], "", "", "why") for place, one in enumerate(listed)}
        return (found, "") if whole or len(listed) == 1 else ({3: found[3]}, "status 9: killed")

    monkeypatch.setattr(cases, "judged_apart", judged_apart)
    with ThreadPoolExecutor(1) as executor:
        found = dict(cases.judge_apart(asked, Settings(), executor))
    assert [found[i]["name"] for i in range(len(asked))] == [case.name for case in asked]
    assert {answer["task"] for answer in found.values()} == {TASK}
    assert {answer["reason"] for answer in found.values()} == {"why"}


def test_what_a_cluster_loses_each_time_gets_an_answer_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "judged_apart", lambda *_: ({}, "status 9: killed"))
    with ThreadPoolExecutor(1) as executor:
        [(place, answer)] = cases.judge_apart([Case(TASK, RIGHT)], Settings(), executor)
    assert (place, answer["verdict"]) == (0, "error")
    assert answer["reason"] == "lost 2 times by the cluster, the last time by: status 9: killed"


DASK = """
import sys
from distributed import LocalCluster
from gradgate.suites import cli

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        sys.exit(cli.main([*sys.argv[1:], "--scheduler", cluster.scheduler_address]))
"""


@needs_torch
def test_a_dask_cluster_judges_as_this_process_does(tmp_path: Path, process: Any) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'gradgate[dask]'")
    (tmp_path / "cluster.py").write_text(DASK)
    (tmp_path / "task.py").write_text((Path(strangers.__path__[0]) / "task_torch.py").read_text())
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(TORCH)
    ran = process("cluster.py", "judge", "task.py:task", "right.py", "wrong.py", "--lines", "lines.jsonl", cwd=tmp_path)
    assert ran.status == 1, ran.err[-2000:]
    assert "1 upheld, 1 refuted" in ran.out
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert {one["name"]: one["verdict"] for one in lines} == {"right.py": "upheld", "wrong.py": "refuted"}
    assert [one["task"] for one in lines] == ["task.py:task"] * 2
    assert [one["claims"] == [] for one in lines] == [False] * 2


@needs_torch
def test_a_court_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a process nor a folder, though a candidate hangs."""
    hangs = TORCH + "def before(x, w):\n    while True:\n        pass\n"
    program = f"from gradgate import Court\nprint(Court({TASK!r}, wall='plain').judge({hangs!r}))\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as court:
        below: set[int] = set()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not busy(below):
            time.sleep(0.2)
            below |= set(descendants(court.pid))
        assert busy(below), "the candidate did not begin"
        court.kill()
    deadline = time.monotonic() + 30
    while any(map(alive, below)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in below if alive(pid)]
    assert not [path.name for path in tmp_path.iterdir() if "court" in path.name]


def test_what_a_candidate_leaves_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of exploits and of courts have "court" in their names; others' files come and go."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "descendants", lambda _: [])
    before = program._entries()
    (tmp_path / "somebody's.txt").touch()
    assert program._left(before) == []
    (tmp_path / "court0.bin").touch()
    assert program._left(before) == [str(tmp_path / "court0.bin")]
    monkeypatch.setattr(program, "ENDING", 0.0)
    monkeypatch.setattr(program, "descendants", lambda _: [77])
    assert program._left(before)[0] == "process 77"


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def busy(pids: set[int]) -> bool:
    """Whether the nursery has forked, and a fork has worked for a second."""
    return len(pids) >= 2 and any(seconds(pid) > 1.0 for pid in pids if alive(pid) and not descendants(pid))


def seconds(pid: int) -> float:
    """Processor time of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@needs_torch
def test_the_command_takes_a_list_resumes_and_shares(tmp_path: Path, gradgate: Any) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(TORCH)
    one, two = ({"task": TASK, "candidate": f"{name}.py"} for name in ("right", "wrong"))
    asked = listed(tmp_path / "cases.jsonl", one, two)
    lines = tmp_path / "answers.jsonl"
    first = gradgate("judge", "--cases", asked, "--lines", lines, "--shard", "1/2", "--json")
    assert [answer["name"] for answer in json.loads(first.out)["answers"]] == ["right.py"]
    assert first.status == 0
    with lines.open("a") as file:
        file.write('{"task": "cut o')
    whole = gradgate("judge", "--cases", asked, "--lines", lines, "--resume", "--json")
    assert whole.status == 1
    assert [answer["verdict"] for answer in json.loads(whole.out)["answers"]] == ["upheld", "refuted"]
    written = lines.read_text().splitlines()
    assert [json.loads(line)["name"] for line in (written[0], written[2])] == ["right.py", "wrong.py"]
    assert len(written) == 3
    for wrong in (("--resume", TASK, tmp_path / "right.py"), (TASK,), ("--cases", asked, TASK), ()):
        assert gradgate("judge", *wrong).status == 3
