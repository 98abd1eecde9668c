"""What a framework raises about a handwritten rule is said with the rule's name, its argument and its line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gradgate.suites.judging.explain import by_cause
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.pairs import rules

JAX = """
import jax

@jax.custom_vjp
def scaled(x, gain):
    return x * gain

def forward(x, gain):
    return x * gain, (x, gain)

def backward(kept, dy):
    x, gain = kept
    return RETURNED

scaled.defvjp(forward, backward)

def called(x, gain):
    return scaled(x, gain)
"""
TORCH = """
import torch

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return x * gain

    @staticmethod
    def backward(ctx, dy):
        x, gain = ctx.saved_tensors
        return RETURNED

called = Scaled.apply
"""
SUM = "; sum over the axes over which it was broadcast"
NONE = "; return None for an argument without a gradient"


@pytest.fixture
def backward(tmp_path: Path) -> Callable[..., str]:
    """Call a rule that returns this; returns what is raised."""

    def raised(framework: str, returned: str) -> str:
        pytest.importorskip(framework)
        text = {"jax": JAX, "torch": TORCH}[framework].replace("RETURNED", returned)
        file = tmp_path / "ops.py"
        file.write_text(text)
        module: dict[str, Any] = {}
        exec(compile(text, str(file), "exec"), module)
        pair: Any = SimpleNamespace(where=framework, loaded={"function": module["called"]})

        def run() -> None:
            with rules.named(pair):
                if framework == "jax":
                    xp = sys.modules["jax"].numpy
                    _, pull = sys.modules["jax"].vjp(module["called"], xp.ones((3, 2)), xp.ones(2))
                    pull(xp.ones((3, 2)))
                else:
                    xp = sys.modules["torch"]
                    leaves = xp.ones((3, 2), requires_grad=True), xp.ones(2, requires_grad=True)
                    module["called"](*leaves).sum().backward()

        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            run()
        return str(caught.value)

    return raised


@pytest.mark.parametrize(
    ("framework", "returned", "said"),
    [
        ("jax", "dy * gain, dy * x", f"backward returns float32[3, 2] for gain, which is float32[2]{SUM}"),
        ("jax", "dy.T, dy.sum(0)", "backward returns float32[2, 3] for x, which is float32[3, 2]"),
        ("jax", "(dy,)", f"backward returns 1 of 2 gradients{NONE}"),
        ("torch", "dy * gain, (dy * x).sum(1)", "Scaled.backward returns [3] for gain, which is [2]"),
        ("torch", "dy.T, (dy * x).sum(0)", "Scaled.backward returns [2, 3] for x, which is [3, 2]"),
        ("torch", "dy", f"Scaled.backward returns 1 of 2 gradients{NONE}"),
    ],
)
def test_the_rule_and_its_argument_are_named(
    framework: str, returned: str, said: str, backward: Callable[..., str]
) -> None:
    assert backward(framework, returned) == f"{said}; ops.py:13: return {returned}"


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_error_of_the_rule_itself_passes_unchanged(framework: str, backward: Callable[..., str]) -> None:
    assert backward(framework, "int('no such number')") == "invalid literal for int() with base 10: 'no such number'"


def test_one_error_at_other_sizes_and_in_other_dtypes_is_one_card() -> None:
    def error(claim: str, reason: str) -> Verdict:
        return Verdict(Task("f", "m", "jax", claim, "", "", expected="upheld"), "error", reason=reason)

    same = [
        error("tree", "the method raised ValueError: back returns float64[1, 1] for w, which is float64[1]; at a.py:3"),
        error("pure", "the method raised ValueError: back returns float32[5, 4] for w, which is float32[4]; at a.py:3"),
    ]
    other = [
        error("jit", "the method raised ValueError: no · a.py:3 in f: raise"),
        error("vmap", "the method raised ValueError: no · a.py:9 in g: raise"),
        error("options", "the method raised ValueError: back returns float64[1, 1] for v, which is float64[1]"),
    ]
    groups = by_cause([*same, *other], lambda one: one)
    assert sorted(map(len, groups)) == [1, 1, 1, 2]
