"""``gradgate verify`` a second time: what is reused, what is judged again, and what is never kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles import recording
from gradgate.hw_profiles.cache import Cache
from gradgate.hw_profiles.recording import Record
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.keeping.store import Store
from gradgate.suites.workers import supervisor, worker

pytestmark = pytest.mark.xdist_group("verify_again")

Verify = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def verify(gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Run ``gradgate verify`` on claims of two problems and read what it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(target: str, *arguments: object, family: str = "state_space", status: int = 0) -> list[dict[str, Any]]:
        words = ["--family", family] if family else []
        ran = gradgate("verify", target, *words, "--examples", 2, "--jobs", 1, "--json", "v.json", *arguments)
        assert ran.status == status, ran
        rows: list[dict[str, Any]] = json.loads(Path("v.json").read_text())["verdicts"]
        some = sum(row["reused"] for row in rows)
        assert (f"{some} of {len(rows)} verdicts reused" in ran.err) == bool(some)
        return rows

    return run


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Judge in this process, with a record of the files beside the plug-in: starting a worker takes seconds."""
    monkeypatch.syspath_prepend(str(tmp_path))
    with contextlib.suppress(ImportError):
        import jax  # noqa: F401 - its first import sets variables of TPUs, which are a part of every question

    def ignore(*_: object) -> None:
        pass

    def described(_: object, *asked: object) -> dict[str, Any]:
        found = worker._serve({"describe": list(asked)}, ignore, ignore)
        return {"tasks": found["described"], "places": found["places"], "record": read(tmp_path, "bystander.py")}

    def judged(self: supervisor.Supervisor, tasks: Any, progress: object = None) -> Iterator[Verdict]:
        for task in tasks:
            request = {"task": dataclasses.asdict(task), "run": dataclasses.asdict(self.run), "keep": 2**40}
            record = read(tmp_path, "bystander.py")
            verdict = Verdict.from_dict(worker._serve(request, ignore, ignore)["verdict"])
            self.readings |= record
            yield dataclasses.replace(verdict, record=tuple(record))

    monkeypatch.setattr(supervisor.Supervisor, "describe_fully", described)
    monkeypatch.setattr(supervisor.Supervisor, "judge_all", judged)


def read(folder: Path, *without: str) -> Record:
    """The record of a process that has read every module in a folder, except some."""
    paths = [path for path in folder.glob("*.py") if path.name not in without]
    reading = {"files": {path.name: recording.file_digest(str(path)) for path in paths}}
    return {recording.digest(json.dumps(reading, sort_keys=True)): reading}


def reused(rows: list[dict[str, Any]]) -> set[bool]:
    return {row["reused"] for row in rows}


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "reused"} for row in rows]


def no_worker(*_: object) -> None:
    raise AssertionError("a worker was started")


def test_a_second_run_starts_no_worker_and_says_the_same(
    plugin: Callable[..., str], verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"{plugin()}:good"
    first = verify(target, "--claim", "value")
    assert reused(first) == {False}
    with monkeypatch.context() as patched:
        patched.setattr(supervisor, "Worker", no_worker)
        second = verify(target, "--claim", "value")
    assert reused(second) == {True}
    assert plain(second) == plain(first)
    assert reused(verify(target, "--claim", "value", "--fresh")) == {False}


def test_one_character_of_the_method_or_of_a_module_beside_it_is_judged_again(
    inside: None, plugin: Callable[..., str], verify: Verify, tmp_path: Path
) -> None:
    path = Path(plugin("\nimport beside\n"))
    (tmp_path / "beside.py").write_text("x = 1\n")
    (tmp_path / "bystander.py").write_text("x = 1\n")
    asked = (f"{path}:good", "--claim", "value")
    assert reused(verify(*asked)) == {False}
    path.write_text(path.read_text() + " ")
    assert reused(verify(*asked)) == {False}
    (tmp_path / "bystander.py").write_text("x = 2\n")
    assert reused(verify(*asked)) == {True}
    (tmp_path / "beside.py").write_text("x = 2\n")
    assert reused(verify(*asked)) == {False}
    assert reused(verify(*asked, "--seed", 1)) == {False}
    assert reused(verify(*asked, "--examples", 3)) == {False}
    assert reused(verify(*asked, "--timeout", 50)) == {False}
    assert reused(verify(*asked)) == {True}


def test_a_refuted_claim_is_reused_and_fails_again(inside: None, plugin: Callable[..., str], verify: Verify) -> None:
    target = f"{plugin(HALF)}:half"
    assert reused(verify(target, "--claim", "gradient_float64", status=1)) == {False}
    [row] = verify(target, "--claim", "gradient_float64", status=1)
    assert row["reused"]
    assert row["verdict"] == "refuted"


def test_an_error_is_never_kept(inside: None, plugin: Callable[..., str], verify: Verify) -> None:
    ends = "\ndef ends(problem):\n    raise RuntimeError('this machine alone')\n"
    target = f"{plugin(ends)}:ends"
    for _ in range(2):
        [row] = verify(target, "--claim", "value", status=2)
        assert (row["verdict"], row["reused"]) == ("error", False)


@pytest.mark.parametrize(("words", "kept"), [("no NaN here", True), ("cannot allocate memory", False)])
def test_an_error_that_the_method_raises_and_declares_is_kept(
    inside: None, verify: Verify, tmp_path: Path, words: str, kept: bool
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "pairs.py").write_text(
        "import torch\n\nimport gradgate\n\n\ndef twice(x):\n    if x.isnan().any() or x.isinf().any():\n"
        f"        raise ValueError({words!r})\n    return 2 * x\n\n\n"
        "def plain(x):\n    return x + x\n\n\n"
        "pair = gradgate.Pair(twice, reference=plain, inputs={'x': gradgate.normal('N')}, dims={'N': (3,)},\n"
        "    expected={'not_finite': 'it refuses them'})\n"
    )
    asked = ("pairs.py", "--claim", "not_finite")
    [first] = verify(*asked, family="")
    [again] = verify(*asked, family="")
    assert (first["verdict"], first["reused"]) == (again["verdict"], False) == ("error", False)
    assert again["reused"] == kept


def test_one_problem_by_its_spec_is_always_judged(inside: None, plugin: Callable[..., str], verify: Verify) -> None:
    for _ in range(2):
        assert reused(verify(f"{plugin()}:good", "--claim", "value", "--spec", "{}")) == {False}


def test_a_file_of_pairs_is_reused_too(inside: None, verify: Verify, torch: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.py").write_text(PAIR)
    asked = ("pairs.py", "--claim", "tree")
    assert reused(verify(*asked, family="")) == {False}
    assert reused(verify(*asked, family="")) == {True}
    (tmp_path / "pairs.py").write_text(PAIR.replace("2 * x", "2  * x"))
    assert reused(verify(*asked, family="")) == {False}


def test_a_damaged_entry_is_no_entry(inside: None, plugin: Callable[..., str], verify: Verify) -> None:
    target = f"{plugin()}:good"
    first = verify(target, "--claim", "value")
    entries = list(Cache().folder.rglob("*.json"))
    assert entries
    for entry in entries:
        entry.write_text(entry.read_text().replace("upheld", "refuted")[:-9])
    again = verify(target, "--claim", "value")
    assert reused(again) == {False}
    assert [row["verdict"] for row in again] == [row["verdict"] for row in first] == ["upheld"]


def write_often(cache: str, number: int) -> None:
    os.environ["GRADGATE_CACHE"] = cache
    for _ in range(200):
        Store().put("key", {"writer": number, "padding": "x" * 5000})


def test_of_two_writers_at_once_a_reader_sees_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path))
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_often, args=(str(tmp_path), number)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    store, seen = Store(), set()
    while any(writer.is_alive() for writer in writers):
        found = store.get("key")
        if found is not None:
            assert len(found["padding"]) == 5000
            seen.add(found["writer"])
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen <= {1, 2}
    assert store.get("key") is not None


def test_the_telling_claims_come_first_and_a_wrong_gradient_is_said_at_once(
    inside: None, plugin: Callable[..., str], gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, order = f"{plugin(HALF)}:half", []
    judge_all = supervisor.Supervisor.judge_all

    def watched(self: Any, tasks: Any, progress: Any) -> Any:
        for verdict in judge_all(self, tasks, progress):
            order.append(verdict.task.claim)
            yield verdict

    monkeypatch.setattr(supervisor.Supervisor, "judge_all", watched)
    ran = gradgate("verify", target, "--family", "state_space", "--examples", 2, "--jobs", 1, "--fail-fast")
    assert ran.status == 1
    assert order == ["tree", "value", "gradient_float64"]
    assert "plainly wrong: half torch gradient_float64: " in ran.err
    assert "plainly wrong: half torch gradient_float64: wrong gradient of head (50%)" in ran.err
    assert "claims were not judged" in ran.err
    right = gradgate("verify", target.replace(":half", ":good"), "--family", "state_space", "--claim", "tree")
    assert "plainly wrong" not in right.err
    assert "not judged" not in right.err


def test_a_kept_verdict_is_read_back_as_it_was(inside: None, plugin: Callable[..., str], verify: Verify) -> None:
    [row] = verify(f"{plugin()}:good", "--claim", "gradient_float64")
    [kept] = [
        found
        for path in Cache().folder.rglob("*.json")
        for answer in json.loads(path.read_text())["value"].get("answers", ())
        if "verdict" in (found := answer["value"])
    ]
    assert Verdict.from_dict(kept).to_dict() | {"record": row["record"]} == plain([row])[0]


HALF = (
    "\ndef half(problem):\n    loss, grads = good(problem)\n    return loss, {**grads, 'head': grads['head'] * 0.5}\n"
)
PAIR = """
import torch

import gradgate


def double(x):
    return 2 * x


def plain(x):
    return x + x


pair = gradgate.Pair(double, plain, {"x": gradgate.normal("N")}, dims={"N": (3, 1, 0)})
"""
