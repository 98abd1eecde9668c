"""The audit of answers: how they are read, what a kind is, and the page that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.gallery import declared
from gradgate.suites.gallery.answers import page, run, source
from gradgate.suites.tests.scratch import SQUARE

OPERATOR = "import torch\n\ndef forward(x):\n    return x\n\ndef backward(ctx, dy):\n    return dy\n"
SIGNATURE = "has another signature"
SCRIPTS = sorted((page.HERE / "findings").glob("*.py"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like the benchmark's repository, with three answers."""
    (tmp_path / source.OPERATORS).mkdir(parents=True)
    (tmp_path / source.OPERATORS / "softmax.py").write_text(f"{OPERATOR}\n{'#' * 146}\ndef test(): ...\n")
    (tmp_path / "LLM_generated/half").mkdir(parents=True)
    answer = "def backward(ctx, dy):\n    return 2 * dy\n"
    texts = [f"Here it is:\n```python\n{answer}```\nDone.", f"```python\n{answer}```", "def forward(x): ..."]
    rows = [{"label": OPERATOR.replace("    ", "  "), "predict": text} for text in texts]
    rows.append({"label": "another", "predict": answer})
    (tmp_path / "LLM_generated/half/model.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_each_text_with_a_backward_pass_is_read_once(clone: Path) -> None:
    own, twice, other = source.answers(clone)
    assert (own.operator, own.places) == ("softmax", ("benchmark",))
    assert (twice.operator, twice.places) == ("softmax", ("half/model.jsonl:1", "half/model.jsonl:2"))
    assert twice.text == "def backward(ctx, dy):\n    return 2 * dy\n"
    assert (other.operator, other.places) == ("", ("half/model.jsonl:4",))
    with pytest.raises(OSError, match="no operators"):
        source.answers(clone / "LLM_generated")


MODEL = """import torch
batch_size = 128
class Model(torch.nn.Module):
    def forward(self, x):
        return x * x
def get_inputs():
    return [torch.randn(batch_size, 3)]
def get_init_inputs():
    return []
"""
NEW = (
    SQUARE
    + """batch_size = 128
class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert len(x) == batch_size
        return Square.apply(x.to("cuda"))
"""
)


def test_answers_to_kernelbench_are_read_with_their_problems_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each text once, with a batch of four, as its problem; the right one is right, and one without its 2 is not."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    texts = (NEW, NEW, NEW.replace("2 * upstream", "upstream"), f"load_inline\n{NEW}", None, "class ModelNew: ...")
    rows = [{"level_id": 1, "task_id": 7, "ref_code": MODEL, "custom_code": text} for text in texts]
    (tmp_path / source.OPTIMIZED).mkdir()
    (tmp_path / source.OPTIMIZED / "a100.json").write_text("\n".join(map(json.dumps, rows)))
    right, wrong, in_cuda = source.answers(tmp_path)
    assert in_cuda.task == ""
    assert (right.operator, right.places) == ("level1_7", ("a100.json:1", "a100.json:2"))
    assert right.task == MODEL.replace("128", "4")
    kept: list[dict[str, Any]] = []
    monkeypatch.setattr(page, "keep", kept.append)
    report = tmp_path / "rows.jsonl"
    assert run.main([str(tmp_path), "--jobs", "1", "--keep", "--report", str(report)]) == 0
    assert kept[0]["benchmark"] == "KernelBench"
    assert kept[0]["counts"] == {"answers": 4, "texts": 3, "of_other_operators": 0, "in_cuda": 1, "judged": 2}
    kinds = {row["digest"]: row["kind"] for row in kept[0]["rows"]}
    assert kinds == {right.digest: page.RIGHT, wrong.digest: page.BACKWARD}


@pytest.mark.parametrize(
    ("verdict", "refuted", "reason", "kind", "column"),
    [
        ("upheld", [], "", "right", "right"),
        ("refuted", ["gradient_float32", "outputs"], "…", "wrong outputs", "wrong outputs"),
        ("refuted", ["layouts", "gradient_float32"], "…", "wrong gradient", "wrong gradient"),
        ("refuted", ["layouts"], "…", "ignores strides", "other faults"),
        ("refuted", ["not_finite"], "…", "hides NaN", "other faults"),
        ("refuted", ["options"], "…", "another claim: options", "other faults"),
        ("error", [], "its module raised SyntaxError: invalid syntax", "not Python", "does not run"),
        ("error", [], "its module raised TypeError: no", "raises when it is imported", "does not run"),
        ("error", [], "raised TypeError: f() missing 1 · x.py:1 in judged_candidate", SIGNATURE, "does not run"),
        ("error", [], "raised TypeError: f() missing 1 · x.py:1 in forward", page.ANOTHER, "does not run"),
        ("error", [], "raised IndexError: it reads outside of its arrays", page.OUTSIDE, "other faults"),
        ("error", [], "while its module ran, it hung: no answer", "needs more time than a call has", "does not run"),
        ("error", [], "the candidate raised ValueError: no", page.ANOTHER, "does not run"),
    ],
)
def test_an_answer_has_one_kind(verdict: str, refuted: list[str], reason: str, kind: str, column: str) -> None:
    assert page.kind(verdict, refuted, reason) == kind
    assert page.column(kind) == column


def test_a_sample_is_the_same_each_time_and_holds_the_benchmarks_own() -> None:
    pytest.importorskip("torch")
    own = source.Answer("log_softmax", "def backward(): own", (source.OWN,))
    every = [own, *(source.Answer("log_softmax", f"def backward(): {i}", ("a",)) for i in range(9))]
    first = run._sampled(every, 3, 0)
    assert first == run._sampled(list(reversed(every)), 3, 0)
    assert first[0] == own
    assert len(first) == 4
    assert run._sampled(every, 3, 1) != first
    assert len(run._sampled(every, None, 0)) == 10


def test_shares_that_run_one_after_another_leave_no_answer_out(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first share has judged must not move the answers of the second one."""
    pytest.importorskip("torch")
    (clone / source.OPERATORS / "softmax.py").rename(clone / source.OPERATORS / "log_softmax.py")
    rows = [{"label": OPERATOR, "predict": f"def backward(ctx, dy):\n    return {i} * dy\n"} for i in range(9)]
    (clone / "LLM_generated/half/model.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judged: list[str] = []

    def judge(answers: list[source.Answer], *_: object) -> Iterator[dict[str, object]]:
        for one in answers:
            judged.append(one.digest)
            yield page.row(one, {"claims": [], "verdict": "upheld", "reason": "", "seconds": 1.0})

    monkeypatch.setattr(run, "_judged", judge)
    for share in ("1/3", "2/3", "3/3"):
        assert run.main([str(clone), "--shard", share, "--report", str(tmp_path / "rows.jsonl")]) == 0
    assert sorted(judged) == sorted(one.digest for one in source.answers(clone))


def test_a_task_has_a_call_of_its_inputs() -> None:
    pytest.importorskip("torch")
    from gradgate.suites.gallery.answers import tasks

    for name, call in tasks.CALLS.items():
        compile(tasks.BEFORE + call, name, "exec")
        inputs = ", ".join(getattr(tasks, name).inputs)
        assert f"judged_candidate({inputs})" in call


def test_the_page_counts_answers_and_not_the_benchmarks_own() -> None:
    own, answer = (source.Answer("log_softmax", text, (place,)) for text, place in (("a", source.OWN), ("b", "x:1")))
    rows = {
        one.digest: page.row(one, {"claims": [], "verdict": verdict, "reason": reason, "seconds": 1.0})
        for one, verdict, reason in ((own, "upheld", ""), (answer, "error", "NameError"))
    }
    shown = page.text(page.document([own, answer], rows, "c0ffee", 1, 0), page.stored("KernelBench"))
    assert "1 answers declare a backward pass:\n1 distinct texts, 0 of them" in shown
    assert "1 were judged, at most 1 of each operator, by the seed 0. 0 of them run" in shown
    assert "| `log_softmax` | right | 1 | 0 | 0 | 0 | 0 | 1 |" in shown
    assert "- a name that is not there: 1" in shown


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_shows_its_mechanism(path: Path) -> None:
    pytest.importorskip("torch")
    assert declared.script_faults(path, path.name) == []
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_is_that_of_the_kept_rows() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(*map(page.stored, page.KEPT))


def test_every_finding_has_a_script_and_answers_that_were_refuted() -> None:
    faults = (page.FORWARD, page.BACKWARD, "other faults")
    every = [row for benchmark in page.KEPT for row in page.stored(benchmark)["rows"]]
    wrong = {row["digest"] for row in every if page.column(row["kind"]) in faults}
    assert len(page.FINDINGS) >= 5
    assert sorted(one.script for one in page.FINDINGS) == [path.name for path in SCRIPTS]
    for finding in page.FINDINGS:
        assert finding.seen
        assert set(finding.seen) <= wrong
