"""Pairs that ``gradgate watch --write`` adds to a file: they run, and a second run changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.watching.writing import HEAD, Written, merged

RULES = """
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, index, factor):
        ctx.save_for_backward(weight, index)
        ctx.factor = factor
        return factor * (x * weight)[index]

    @staticmethod
    def backward(ctx, dy):
        weight, index = ctx.saved_tensors
        dx = torch.zeros(len(weight), dtype=dy.dtype).index_add(0, index, dy)
        return ctx.factor * dx * weight, None, None, None
"""
SCRIPT = """
import torch

from rules import Scale

x, weight = torch.randn(6, requires_grad=True), torch.rand(6)
Scale.apply(x, weight, torch.tensor([0, 2, 2]), 0.5).sum().backward()
"""


def test_a_file_of_pairs_runs_and_stays(
    tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = gradgate("watch", "--write", "pairs.py", "train.py")
    assert (ran.status, "pairs.py: added scale" in ran.err) == (0, True), ran.out + ran.err
    text = (tmp_path / "pairs.py").read_text()
    assert '"index": integers("B", below=3)' in text
    assert "return rules.Scale.apply(x, weight, index, 0.5)" in text
    assert "gradient=False" in text
    ran = gradgate("verify", "pairs.py", "--claim", "gradient_exact", "--examples", 3)
    assert ran.status == 0, ran.out + ran.err
    ran = gradgate("watch", "--write", "pairs.py", "train.py")
    assert "pairs.py: nothing to add" in ran.err
    assert (tmp_path / "pairs.py").read_text() == text


WRONG = """
import torch


class Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, y)
        return factor * (x * y).sum()

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy * y, dy * x, None
"""
CALLS = """
import sys

import torch

sys.path.insert(0, "src")
from wrong import Dot

Dot.apply(torch.randn(4, requires_grad=True), torch.ones(4, requires_grad=True), 1.0)
Dot.apply(torch.randn(2, requires_grad=True), torch.ones(2, requires_grad=True), 0.5)
"""


def test_the_call_that_refutes_a_rule_is_written_and_the_path_of_its_module_is_said(
    tmp_path: Path,
    gradgate: Callable[..., Any],
    process: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    torch: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "wrong.py").write_text(WRONG)
    (tmp_path / "calls.py").write_text(CALLS)
    ran = gradgate("watch", "--write", "pairs.py", "calls.py")
    assert (ran.status, "pairs.py: added dot" in ran.err) == (1, True), ran.out + ran.err
    assert "pairs.py: gradgate verify finds what it imports with PYTHONPATH=./src" in ran.err
    text = (tmp_path / "pairs.py").read_text()
    assert "return wrong.Dot.apply(x, y, 0.5)" in text  # and not the larger call, which is right
    assert '"y": uniform("A", 0.5, 1.5)' in text
    words = ("-m", "gradgate.suites.cli", "verify", "pairs.py", "--claim", "gradient_exact", "--examples", 3)
    ran = process(*words, cwd=tmp_path)
    assert "No module named 'wrong'" in ran.err + ran.out
    ran = process(*words, cwd=tmp_path, env={"PYTHONPATH": "src"})
    assert (ran.status, "wrong gradient of" in ran.out) == (1, True), ran.out + ran.err


def _pair(module: str, variable: str = "square") -> Written:
    text = f"def call_{variable}(x):\n    return {module}.Square.apply(x)\n\n\n"
    text += f"{variable} = gradgate.Pair(\n    call_{variable},\n    reference=None,\n)\n"
    return Written(module, "", f"{module}.Square", variable, ("normal",), text)


def test_names_do_not_collide_and_what_is_there_is_kept() -> None:
    text, added = merged("", [_pair("a"), _pair("b.c")])
    assert added == ["square", "square_of_c"]
    assert text.startswith(HEAD + "import a\nimport b.c\nfrom gradgate import normal\n")
    assert "square_of_c = gradgate.Pair(\n    call_square_of_c,\n" in text
    compile(text, "pairs.py", "exec")
    changed = text.replace("reference=None", "reference='a:plain'")
    assert merged(changed, [_pair("a"), _pair("b.c")]) == (changed, [])
    longer, added = merged(changed, [_pair("b.c"), _pair("d", "cube")])
    assert added == ["cube"]
    assert longer.count("reference='a:plain'") == 2
    assert longer.count("import gradgate\n") == 1
    compile(longer, "pairs.py", "exec")
    with pytest.raises(SyntaxError):
        merged("def", [_pair("a")])
