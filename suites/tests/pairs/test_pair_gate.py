"""The gate in a repository whose pyproject.toml names a file of pairs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.scratch import SUM_OF_SQUARES, Scratch

pytestmark = pytest.mark.xdist_group("pair_gate")

SETTINGS = """[project]
name = "mylib"
version = "0"
[tool.gradgate]
pairs = ["gradients.py"]
profiles = ["cpu"]
examples = 1
"""
GRADIENTS = """import gradgate
from gradgate import normal

square = gradgate.Pair(
    "mylib.ops:square", "mylib.plain:square", {"x": normal("T")}, {"T": (2, 512)}, dtypes=("float32",),
    claims=gradgate.at_most("residual_bytes", of_reference=1.5),
)
"""
PLAIN = """import torch

def square(x):
    return (x * x).sum()
"""
OPS = SUM_OF_SQUARES + "\ndef square(x):\n    return Square.apply(x)\n"
NAME = "square:square:torch@cpu"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """A project of another author, with one pair."""
    pytest.importorskip("torch")
    made = Scratch(tmp_path_factory.mktemp("library") / "repository")
    made.commit(
        {
            "pyproject.toml": SETTINGS,
            "gradients.py": GRADIENTS,
            ".gitignore": "__pycache__/\n",
            "README.md": "hello\n",
            "mylib/__init__.py": "",
            "mylib/plain.py": PLAIN,
            "mylib/ops.py": OPS,
        }
    )
    return made


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for the runs of this file only."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def gate(library: Scratch, cache: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commit a change of ops.py on a new branch, and run the gate on it."""
    monkeypatch.setenv("GRADGATE_CACHE", str(cache))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.chdir(library.root)

    def run(*changes: tuple[str, str], file: str = "mylib/ops.py", json_at: Path | None = None) -> Any:
        library.branch()
        library.replace(file, *changes)
        library.commit()
        ran = gradgate("gate", "--base", "main", *(["--json", json_at] if json_at else []))
        assert "Traceback" not in ran.out + ran.err
        return ran

    return run


def test_a_change_that_touches_nothing_passes_and_is_not_measured_again(gate: Any) -> None:
    words = (("hello", "other words"),)
    first, again = gate(*words, file="README.md"), gate(*words, file="README.md")
    assert first.status == again.status == 0, first.out + first.err
    assert "PASS: every gated figure is the same" in first.out
    assert "1 of 1 cells measured" in again.out
    assert "2 of 2 figures" in again.out
    judged, _, reused = again.out.partition(" gradient claims judged on the head; reused: ")
    assert judged.split()[-1] == reused.split()[0].rstrip(";") != "0"  # forward mode is inapplicable


def test_a_wrong_gradient_fails_and_is_told(gate: Any) -> None:
    ran = gate(("2 * upstream * x", "3 * upstream * x"))
    assert ran.status == 1, ran.out + ran.err
    assert "REFUTED square:square:torch:gradient_exact" in ran.out
    assert "upheld on the base" in ran.out
    assert 'declare it: expected={"gradient_exact": "<the reason>"}' in ran.out
    assert ran.out.rstrip().splitlines()[-1].startswith("FAIL")


def test_more_bytes_fail_and_the_command_that_is_printed_measures_them_again(
    gate: Any, process: Callable[..., Any], tmp_path: Path
) -> None:
    more = ("save_for_backward(x)", "save_for_backward(x, x.exp())"), ("x, = ctx", "x, _ = ctx")
    ran = gate(*more, json_at=tmp_path / "gate.json")
    assert ran.status == 1, ran.out + ran.err
    assert "1 of 1 claims about bytes and work judged on the head" in ran.out
    assert "REFUTED square:square:torch:residual_bytes_of_reference@cpu" in ran.out, "the law is judged on the head"
    findings = json.loads((tmp_path / "gate.json").read_text())["findings"]
    rises = {f["quantity"]: f for f in findings if f["kind"] == "rise" and f["name"] == NAME}
    assert set(rises) == {"temp_bytes", "residual_bytes"}
    assert f"RISE {NAME}" in ran.out
    for quantity, rise in rises.items():
        assert 0 < rise["head"] - rise["base"] <= 512 * 4
        words = shlex.split(rise["reproduce"])
        assert words[:2] == ["gradgate", "memory"]
        measured = ["-m", "gradgate.suites.cli", *words[1:], "--json", tmp_path / "m.json", "--jobs", "1"]
        again = process(*measured, cwd=Path.cwd())  # this process may have imported another test's mylib
        assert again.status == 0, again.out + again.err
        [cell] = json.loads((tmp_path / "m.json").read_text())["cells"]
        assert cell[quantity] == rise["head"]


def test_a_fix_is_told_and_the_bytes_that_come_with_it_do_not_fail(
    library: Scratch, gate: Any, gradgate: Callable[..., Any]
) -> None:
    library.branch()
    library.replace("mylib/ops.py", ("2 * upstream * x", "3 * upstream * x"))
    library.git("branch", "--force", "wrong", library.commit())
    library.replace("mylib/ops.py", ("3 * upstream * x", "upstream * (x + x)"))
    library.commit()
    ran = gradgate("gate", "--base", "wrong")
    assert ran.status == 0, ran.out + ran.err
    assert "fixed by this change square:square:torch:gradient_exact" in ran.out
    assert f"comes with the fix {NAME}" in ran.out
    assert "fixed by this change" in ran.out.rstrip().splitlines()[-1]


def test_a_narrower_declaration_fails(gate: Any) -> None:
    ran = gate(("(2, 512)", "(512,)"), file="gradients.py")
    assert ran.status == 1, ran.out + ran.err
    assert "NARROWER square:square:torch:dims\n  fewer sizes of T: without 2" in ran.out


def test_a_decision_that_no_problem_takes_fails(gate: Any) -> None:
    """A square is never negative, so one side cannot be reached; a decision that is reached both ways passes."""
    ran = gate(("2 * upstream * x", "torch.where(x * x > -1, 2 * upstream * x, 0 * x)"))
    assert ran.status == 1, ran.out + ran.err
    assert "NARROWER square:square:torch:decisions\n  0 of 1 decisions both ways, and 0 of 0 on the base" in ran.out
    assert "false at ops.py:12" in ran.out
    passes = gate(("2 * upstream * x", "torch.where(x > 1, 2 * upstream * x, 2 * upstream * x)"))
    assert "NARROWER" not in passes.out, passes.out


def test_a_pair_that_is_gone_fails(gate: Any) -> None:
    ran = gate(("square = gradgate", "other = gradgate"), file="gradients.py")
    assert ran.status == 1, ran.out + ran.err
    assert "GONE" in ran.out.upper()


def test_a_file_that_is_not_there_is_wrong_usage(gate: Any) -> None:
    ran = gate(('"gradients.py"', '"nowhere.py"'), file="pyproject.toml")
    assert ran.status == 3, ran.out + ran.err
    assert "nowhere.py" in ran.err
