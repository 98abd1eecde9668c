"""Bytes and FLOPs of a PyTorch cell do not depend on what ran before it in the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles import residuals, torch_memory
from gradgate.hw_profiles.work import torch_flops

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SCRIPT = Path(__file__).with_name("orders.py")
CELL = "invertible:backprop:torch"


def test_a_cell_has_the_same_figures_first_and_last() -> None:
    """Its first gradient imports torch._dynamo, which once kept 1,024 bytes alive."""
    named = [CELL, "chain:uniform_dp:torch", "chain:uniform_dp:torch", CELL]
    ran = subprocess.run([sys.executable, str(SCRIPT), "0", *named], capture_output=True, text=True, check=True)
    first, profiled, again, last = map(json.loads, ran.stdout.splitlines())
    assert first == last == [CELL, ["measured", 17424, 2156, 36208, None, None, None]]
    assert profiled == again


class Table:
    """A function that keeps a table of sines from the largest call so far, as rotary embeddings do."""

    def __init__(self) -> None:
        self.sines = torch.zeros(0, 8)

    def __call__(self, x: Any) -> Any:
        if len(self.sines) < len(x):
            self.sines = torch.outer(torch.arange(len(x)).float(), torch.ones(8)) @ torch.eye(8)
        return (x * self.sines[: len(x)].sin()).exp()


def figures(function: Any, rows: int) -> tuple[int, int]:
    """Peak and residual bytes at x: (rows, 8)."""
    x = torch.ones(rows, 8, requires_grad=True)
    peak = torch_memory.peak(lambda x: torch.autograd.grad(function(x).sum(), x), (x,))
    return peak.total_bytes, residuals.of_torch(lambda: function(x), [x])


def test_a_table_that_a_function_keeps_changes_no_figure() -> None:
    alone, after = Table(), Table()
    figures(after, 64)
    assert figures(alone, 16) == figures(after, 16)
    x = torch.ones(16, 8)
    assert torch_memory.run(Table(), (x,))[1] == torch_memory.run(after, (x,))[1] == 0
    assert torch_flops(Table(), x) > 0  # a first call, which makes the table


def test_views_of_what_existed_before_do_not_count_and_numbers_from_python_do() -> None:
    outside, x = torch.ones(100, 8), torch.ones(4, 8)

    def reads(x: Any) -> Any:
        return x + outside.t()[:, 0]

    assert torch_memory.peak(reads, (x,)).activation_bytes == x.nbytes
    assert torch_memory.peak(lambda x: torch.tensor([1.0] * 8), (x,)).activation_bytes == 8 * 4


def test_a_gradient_that_a_tensor_holds_is_counted() -> None:
    x = torch.ones(16, 8, requires_grad=True)

    def adds_up(x: Any) -> None:
        x.sum().backward()

    assert torch_memory.peak(adds_up, (x,)).temporary_bytes >= x.nbytes
