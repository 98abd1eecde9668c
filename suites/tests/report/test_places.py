"""Failures are shown at the lines of the source: in SARIF, and as annotations of GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.console import github
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.report import sarif
from gradgate.suites.report.model import Report


def failure(claim: str, reason: str, line: str = "", origin: str = "gradients.py:op") -> Verdict:
    task = Task("op", "op", "torch", claim, statement=f"states {claim}", origin=origin)
    return Verdict(task, "refuted", reason=reason, wrong_line=line)


WRONG = failure("gradient_exact", "wrong gradient of w (23%); at op.py:12, mul: it is 2, not 1", "src/op.py:12")
SAME = failure("gradient_float32", "wrong gradient of w (23%)")
LEAK = failure("autograd", "its graph is never freed")
NOWHERE = failure("pure", "the call printed", origin="")
RIGHT = Verdict(Task("op", "op", "torch", "tree", origin="gradients.py:op"), "upheld")
RUN = (WRONG, SAME, LEAK, NOWHERE, RIGHT)


def test_sarif_has_a_result_for_each_cause_at_its_line() -> None:
    document = json.loads(sarif.render(Report.of({"claims": len(RUN), "verdicts": [v.to_dict() for v in RUN]})))
    [run] = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert (document["version"], rules) == ("2.1.0", ["autograd", "gradient_exact", "pure"])
    found = {rules[result["ruleIndex"]]: result for result in run["results"]}
    assert all(result["ruleId"] == name and result["level"] == "error" for name, result in found.items())
    places: dict[str, Any] = {name: result.get("locations") for name, result in found.items()}
    assert places["gradient_exact"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "src/op.py"}, "region": {"startLine": 12}}}
    ]
    assert places["autograd"] == [{"physicalLocation": {"artifactLocation": {"uri": "gradients.py"}}}]
    assert places["pure"] is None
    assert "the same cause: gradient_float32" in found["gradient_exact"]["message"]["text"]
    assert "\nreproduce: gradgate verify " in found["gradient_exact"]["message"]["text"]


def test_a_run_without_failures_has_no_results() -> None:
    document = json.loads(sarif.render(Report.of({"claims": 1, "verdicts": [RIGHT.to_dict()]})))
    assert document["runs"][0]["results"] == []


def test_each_cause_is_one_annotation_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    github.annotate(RUN)
    assert capsys.readouterr().out.splitlines() == [
        "::error file=src/op.py,line=12,title=gradgate::op: wrong gradient of w (23%25)%0Aat op.py:12, mul: it is 2, "
        "not 1%0Athe same cause: gradient_float32",
        "::error file=gradients.py,title=gradgate::op: its graph is never freed",
        "::error title=gradgate::op: the call printed",
    ]


@pytest.mark.parametrize("there", [True, False])
def test_a_workflow_of_github_gets_annotations_at_the_line_to_blame(
    gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "op.py").write_text(
        "import torch\n\n\nclass Cube(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x * x\n\n"
        "    @staticmethod\n    def backward(ctx, upstream):\n        (x,) = ctx.saved_tensors\n"
        "        square = 2 * x * x\n        return square * upstream\n"
    )
    (tmp_path / "gradients.py").write_text(
        "from gradgate import Pair, normal\nfrom op import Cube\n\n"
        "cube = Pair(lambda x: Cube.apply(x), lambda x: x**3, name='cube',\n"
        "            inputs={'x': normal('N')}, dims={'N': (3, 1)})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if there else "")
    ran = gradgate("verify", "gradients.py", "--claim", "gradient_exact", "--report", "out", "--jobs", 1)
    assert ran.status == 1, ran
    marked = [line for line in ran.out.splitlines() if line.startswith("::error ")]
    assert [line.partition("::cube")[0] for line in marked] == ["::error file=op.py,line=13,title=gradgate"] * there
    document = json.loads((tmp_path / "out" / "failures.sarif").read_text())
    [result] = document["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 13}
