"""Functions that refuse `torch.autograd.grad` are judged by ``backward()``, if the pair says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gradgate
from gradgate import normal
from gradgate.suites.tests.pairs.verdicts import judged, refuted, upheld


def plain(x: Any, w: Any) -> Any:
    """The reference."""
    return torch.sin(x @ w)


def again(x: Any, w: Any) -> Any:
    """Reentrant recomputation, which refuses `torch.autograd.grad`."""
    return checkpoint(plain, x, w, use_reentrant=True)


def doubled(x: Any, w: Any) -> Any:
    """Recomputes another function than the one that it returns."""
    calls: list[None] = []

    def run(x: Any, w: Any) -> Any:
        calls.append(None)
        return len(calls) * torch.sin(x @ w)

    return checkpoint(run, x, w, use_reentrant=True)


def _pair(function: Any, by_backward: bool) -> Any:
    return gradgate.Pair(
        function,
        reference=plain,
        inputs={"x": normal("T H"), "w": normal("H H")},
        dims={"T": (1, 3), "H": (2, 3)},
        by_backward=by_backward,
        framework="torch",
    )


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_is_judged_by_backward() -> None:
    """All claims are upheld."""
    upheld(_pair(again, True), examples=4)


def test_without_it_the_function_refuses_in_its_own_words() -> None:
    """The verdict has the function's words."""
    found = judged(_pair(again, False), ("gradient_float64",), 2)["gradient_float64"]
    assert found.verdict != "upheld"
    assert ".grad()" in found.reason


def test_a_wrong_gradient_is_refuted_by_backward() -> None:
    """The twin of the first test."""
    for claim in ("gradient_exact", "gradient_float64"):
        assert "x" in refuted(_pair(doubled, True), claim, 3)
