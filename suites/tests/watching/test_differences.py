"""Differences of a forward pass: how sharp they are, and rules that sixty digits cannot enter."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.watching.differences import SHARP, bend, extrapolated

RULES = """
import torch


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(__import__("numpy").sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0].cos()


class Wrong(Sine):
    @staticmethod
    def backward(ctx, dy):
        return dy * (ctx.saved_tensors[0].cos() + 0.001)


class Late(Sine):
    @staticmethod
    def backward(ctx, dy):
        return dy * (ctx.saved_tensors[0].cos() + 0.001 * (dy.dim() > 1))  # right at its first call


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(__import__("numpy").maximum(x.detach().numpy(), 0))

    @staticmethod
    def backward(ctx, dy):
        return dy * (ctx.saved_tensors[0] > 0)


class Step(Sine):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy((100 * x.detach().numpy()).round() / 100)


if __name__ == "__main__":
    import rules

    torch.manual_seed(0)
    for rule in (rules.Sine, rules.Wrong, rules.Step):
        rule.apply(torch.randn(3, requires_grad=True)).sum().backward()
    for shape in ((3,), (2, 3)):
        rules.Late.apply(torch.randn(shape, requires_grad=True)).sum().backward()
    rules.Relu.apply((torch.arange(40.0) % 3).requires_grad_()).sum().backward()
"""


@pytest.mark.parametrize("function", [math.exp, math.sin, lambda x: math.atan(3 * x), lambda x: (x - 2) ** 5])
def test_the_estimate_of_the_error_holds_and_is_small(function: Callable[[float], float]) -> None:
    right = {math.exp: 1.0, math.sin: 1.0}.get(function) or (80.0 if function(0) < 0 else 3.0)
    found, error = extrapolated(function, 0.05)
    assert abs(found - right) <= 20 * error + 1e-14
    assert error < 1e-9 * right


def test_only_a_function_without_a_derivative_is_bent() -> None:
    assert bend(lambda x: max(3 * x, x), 0.05) == pytest.approx(2)
    for smooth in (math.exp, math.sin, lambda x: x, lambda x: x**4):
        assert bend(smooth, 0.05) == 0


def test_noise_makes_the_estimate_coarse() -> None:
    _, error = extrapolated(lambda x: round(1000 * x) / 1000 + x, 0.05)
    assert error > SHARP


def test_rules_of_numpy_are_judged_by_differences(
    tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(RULES)
    ran = gradgate("watch", "--jobs", 1, "--json", "rules.json", "rules.py")
    rules = {one["name"].partition(":")[2]: one for one in json.loads((tmp_path / "rules.json").read_text())["rules"]}
    assert {name: one["state"] for name, one in rules.items()} == {
        "Sine": "by differences",
        "Wrong": "refuted",
        "Step": "refuted",
        "Late": "refuted",
        "Relu": "not judged",
    }, ran.out
    assert "sharp to" in rules["Sine"]["reason"]
    assert "its forward pass is flat" in rules["Step"]["likeness"]
    assert "called with (float32[2,3])" in ran.out
    assert ran.status == 1
