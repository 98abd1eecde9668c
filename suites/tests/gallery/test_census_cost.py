"""What watching costs is measured, and a result that watching changes is seen."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from gradgate.suites.gallery.census import cost
from gradgate.suites.gallery.census.cost import Cost

SCRIPTS = {
    "torch": """
import os
import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


Double.apply(torch.arange(3.0).requires_grad_()).sum().backward()
""",
    "jax": """
import os
import jax
import jax.numpy as jnp


@jax.custom_vjp
def double(x):
    return 2 * x


double.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))
jax.grad(lambda x: double(x).sum())(jnp.arange(3.0))
""",
}
CHANGED = {
    "torch": "if 'GRADGATE_WATCH' in os.environ: torch.ones(2) + 1\n",
    "jax": "if 'GRADGATE_WATCH' in os.environ: jnp.ones(2) + 1\n",
}
"""A program whose results are others when it is watched."""


@pytest.mark.parametrize("changed", [False, True])
def test_results_are_hashed_with_and_without_watching(framework: str, changed: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[framework] + CHANGED[framework] * changed)
    found = cost.measured(Path(sys.executable), script, "double", times=2, runs=1)
    assert found.same is not changed
    assert found.results > 4
    assert found.calls >= 2
    assert found.plain > 0


def test_a_fifth_or_two_seconds_are_small() -> None:
    one = Cost("double", 10, True, 2, 1.0, 2.9)
    assert one.is_small
    assert not dataclasses.replace(one, watched=3.1).is_small
    assert dataclasses.replace(one, plain=20.0, watched=23.9).is_small
    assert not dataclasses.replace(one, plain=20.0, watched=24.1).is_small
    assert "TOO MUCH" in str(dataclasses.replace(one, watched=3.1))
    assert "OTHER bits" in str(dataclasses.replace(one, same=False))
