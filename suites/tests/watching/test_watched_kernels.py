"""Rules that launch kernels of Triton, seen in a program that runs in its interpreter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _forward(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n) * 0.5), mask=at < n)


@triton.jit
def _backward(y, dy, dx, n, factor, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(dx + at, factor * tl.load(y + at, mask=at < n) * tl.load(dy + at, mask=at < n), mask=at < n)


def run(x):
    y = torch.empty_like(x)
    _forward[(triton.cdiv(x.numel(), 4),)](x, y, x.numel(), B=4)
    return y


def back(ctx, dy, factor):
    (y,) = ctx.saved_tensors
    dx = torch.empty_like(y)
    _backward[(triton.cdiv(y.numel(), 4),)](y, dy.contiguous(), dx, y.numel(), factor, B=4)
    return dx


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = run(x.contiguous())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return back(ctx, dy, 0.5)


class Wrong(Right):
    @staticmethod
    def backward(ctx, dy):
        return back(ctx, dy, 0.501)
"""
SCRIPT = """
import torch
from kernels import Right, Wrong

for rule in (Right, Wrong):
    rule.apply(torch.randn(6, requires_grad=True)).sum().backward()
"""


def test_kernels_of_triton_are_judged_in_sixty_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradgate: Callable[..., Any], torch: Any
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    ran = gradgate("watch", "--jobs", 1, "--json", "rules.json", "env", "TRITON_INTERPRET=1", "python", "script.py")
    document = json.loads((tmp_path / "rules.json").read_text())
    rules = {rule["name"]: rule for rule in document["rules"]}
    states = {name: rule["state"] for name, rule in rules.items()}
    assert states == {"kernels:Right": "upheld", "kernels:Wrong": "refuted"}, (ran.out, rules)
    verdicts = [verdict for call in rules["kernels:Right"]["seen"] for verdict in call["verdicts"]]
    assert [one["verdict"] for one in verdicts if one["claim"] == "gradient_exact"] == ["upheld"]
