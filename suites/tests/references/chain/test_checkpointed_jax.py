"""`gradgate.in_jax.checkpointed`: what a share of bytes means for several kinds of call, and wrong budgets."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")

from gradgate.in_jax import checkpointed  # noqa: E402 - after the check that JAX is there
from gradgate.references.chain.schedules.solver import BudgetTooSmall  # noqa: E402
from gradgate.references.errors import IllegalOption, UsageError  # noqa: E402


def layers() -> tuple[list[Any], list[Any]]:
    """Six layers, and shapes of their parameters."""
    return [lambda p, x: jax.numpy.tanh(x @ p)] * 6, [jax.ShapeDtypeStruct((8, 8), "float32")] * 6


def rows(count: int) -> Any:
    """The shape of a batch."""
    return jax.ShapeDtypeStruct((count, 8), "float32")


def test_a_share_is_as_many_bytes_for_a_smaller_last_batch() -> None:
    functions, params = layers()
    run = checkpointed(functions, params, rows(32), budget=0.6)
    assert max(run.plan(params, rows(32)).schedule.runs()) > 1
    assert set(run.plan(params, rows(16)).schedule.runs()) == {1}  # half of the rows: everything is kept in these bytes
    alone = checkpointed(functions, params, rows(16), budget=0.6)
    assert max(alone.plan(params, rows(16)).schedule.runs()) > 1


def test_wrong_budgets_are_refused_in_words() -> None:
    functions, params = layers()
    with pytest.raises(BudgetTooSmall, match=r"at least \d+ are needed for 6 stages"):
        checkpointed(functions, params, rows(32), budget=10)
    with pytest.raises(IllegalOption, match=r"must be an integer .*; or a share .* such as 0.5; or 'least'"):
        checkpointed(functions, params, rows(32), budget="small")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="x is a tuple of 2, not one array: put what passes several into one layer"):
        checkpointed(functions, params, (rows(32), rows(32)), budget=0.5)
    with pytest.raises(UsageError, match="no sequence of layers"):
        checkpointed(functions[0], params, rows(32), budget=0.5)
