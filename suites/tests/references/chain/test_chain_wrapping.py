"""Wrapped layers, and recomputation by backward: the figures are as declared, and what is not wrapped fails."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.chain.paper import wrapping
from gradgate.references.published import judge
from gradgate.references.registry import load

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("row", wrapping.ROWS, ids=lambda row: row.name)
def test_the_figures_are_as_declared(row: Any) -> None:
    judged = judge(row, load(row.measured)(**row.arguments))
    assert judged is not None
    assert judged.outcome in ("upheld", "refuted as declared")


def unwrapped(layer: Any) -> Any:
    return layer


def test_a_layer_that_is_not_wrapped_runs_once_and_its_output_is_kept() -> None:
    assert [wrapping.wrapped(which, unwrapped) for which in ("k", "k + 1")] == [0.0, 0.0]
    assert wrapping.freed("tanh", unwrapped) == 0.0


@pytest.mark.parametrize("other", [{"plain": True}, {"detached": True}])
def test_a_chain_that_recomputes_nothing_or_is_cut_off_is_not_right(other: dict[str, bool]) -> None:
    assert wrapping.by_backward(**other) == 0.0
