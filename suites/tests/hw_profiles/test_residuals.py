"""Bytes that are kept between the forward and the backward pass, against figures counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradgate.hw_profiles import residuals

ROWS, WIDTH = 6, 10
FLOAT32 = 4
WHOLE = ROWS * WIDTH * FLOAT32
"""Bytes of one array of the size of x."""
ROW = ROWS * FLOAT32


def kept_by_torch(forward: Callable[..., Any], *, more: tuple[Any, ...] = ()) -> int:
    """Bytes that PyTorch keeps for a function of one leaf of ROWS × WIDTH numbers."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH).requires_grad_()
    return residuals.of_torch(lambda: forward(x), [x, *more])


def kept_by_jax(forward: Callable[..., Any]) -> int:
    """Bytes that JAX keeps for a function of one array of ROWS × WIDTH numbers."""
    jax = pytest.importorskip("jax")
    return residuals.of_jax(forward, [jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")])


def function_of(save: Callable[[Any, Any], None]) -> Callable[[Any], Any]:
    """A function that computes 2x by an autograd.Function whose forward pass also calls `save(ctx, x)`."""
    torch = pytest.importorskip("torch")

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            save(ctx, x)
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *upstream: Any) -> Any:
            return 2 * upstream[0]

    return Twice.apply  # type: ignore[no-any-return]


def test_what_is_given_does_not_count() -> None:
    assert kept_by_torch(function_of(lambda ctx, x: ctx.save_for_backward(x))) == 0


def test_a_saved_tensor_counts() -> None:
    assert kept_by_torch(function_of(lambda ctx, x: ctx.save_for_backward(x.exp()))) == WHOLE
    assert kept_by_torch(function_of(lambda ctx, x: ctx.save_for_backward(x.exp(), x.sum(1)))) == WHOLE + ROW


def test_a_tensor_kept_on_ctx_counts_as_a_saved_one_does() -> None:
    def keep(ctx: Any, x: Any) -> None:
        ctx.saved_by_hand = x.exp()

    assert kept_by_torch(function_of(keep)) == WHOLE


def test_a_tensor_kept_in_a_global_counts() -> None:
    kept: list[Any] = []
    assert kept_by_torch(function_of(lambda ctx, x: kept.append(x.exp()))) == WHOLE


def test_a_tensor_that_is_dropped_does_not_count() -> None:
    assert kept_by_torch(function_of(lambda ctx, x: x.exp().sum().item())) == 0


def test_a_view_costs_nothing_and_what_two_save_counts_once() -> None:
    def save(ctx: Any, x: Any) -> None:
        y = x.exp()
        ctx.save_for_backward(y, y[0], y.T, x.T)

    assert kept_by_torch(function_of(save)) == WHOLE


def test_a_view_keeps_the_whole_storage_alive() -> None:
    assert kept_by_torch(function_of(lambda ctx, x: ctx.save_for_backward(x.exp()[0]))) == WHOLE


def test_a_narrow_copy_counts_its_own_width() -> None:
    torch = pytest.importorskip("torch")
    assert kept_by_torch(function_of(lambda ctx, x: ctx.save_for_backward(x.to(torch.bfloat16)))) == WHOLE // 2


def test_autograd_of_torch_itself_is_counted() -> None:
    assert kept_by_torch(lambda x: x.exp()) == 0, "exp saves its output"
    assert kept_by_torch(lambda x: x.exp().sum()) == WHOLE
    assert kept_by_torch(lambda x: x.exp().sin().sum()) == WHOLE, "exp's output is saved by exp and by sin"
    assert kept_by_torch(lambda x: x.exp().sin().cos().sum()) == 2 * WHOLE


def test_checkpointing_keeps_nothing() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    assert kept_by_torch(lambda x: checkpoint(lambda x: x.exp().sin().sum(), x, use_reentrant=False)) == 0
    assert kept_by_torch(lambda x: torch.exp(x).sin().sum()) == WHOLE


def test_jax_keeps_what_its_vjp_closes_over() -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    assert kept_by_jax(lambda x: x * 2) == 0
    assert kept_by_jax(lambda x: x * x) == 0, "x is an input"
    assert kept_by_jax(jnp.exp) == 0, "the output is in memory anyway"
    assert kept_by_jax(lambda x: jnp.exp(x).sum()) == WHOLE
    assert kept_by_jax(lambda x: jnp.sin(jnp.exp(x)).sum()) == 2 * WHOLE, "exp's output and the cosine of it"


def test_jax_counts_a_transposed_array_once_and_that_of_an_input_not_at_all() -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    assert kept_by_jax(lambda x: x @ x.T) == 0
    assert kept_by_jax(lambda x: (jnp.exp(x) @ jnp.exp(x).T).sum()) >= WHOLE
    assert kept_by_jax(lambda x: (lambda y: y @ y.T)(jnp.exp(x)).sum()) == WHOLE


def test_jax_counts_what_a_custom_vjp_keeps() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def keeping(*kept: Callable[[Any], Any]) -> Callable[[Any], Any]:
        twice = jax.custom_vjp(lambda x: 2 * x)
        twice.defvjp(lambda x: (2 * x, [f(x) for f in kept]), lambda kept, upstream: (2 * upstream,))
        return twice  # type: ignore[no-any-return]

    assert kept_by_jax(keeping(lambda x: x)) == 0
    assert kept_by_jax(keeping(jnp.exp)) == WHOLE
    assert kept_by_jax(keeping(jnp.exp, lambda x: x.sum(1))) == WHOLE + ROW
    assert kept_by_jax(keeping(lambda x: jnp.exp(x).astype(jnp.bfloat16))) == WHOLE // 2


def test_jax_with_checkpointing_keeps_nothing() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    assert kept_by_jax(jax.checkpoint(lambda x: jnp.sin(jnp.exp(x)).sum())) == 0


def test_float64_counts_twice_as_much() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    given = [jax.ShapeDtypeStruct((ROWS, WIDTH), "float64")]
    assert residuals.of_jax(lambda x: jnp.exp(x).sum(), given, x64=True) == 2 * WHOLE


def test_a_storage_that_is_freed_by_hand_does_not_count() -> None:
    """As a reversible layer frees its input; the twin keeps it."""
    torch = pytest.importorskip("torch")

    x = torch.randn(100, requires_grad=True)
    sizes = []
    for freed in (True, False):

        def forward(freed: bool = freed) -> Any:
            kept = x * 2
            y = kept + 1
            y.input = kept
            if freed:
                kept.untyped_storage().resize_(0)
            return y

        sizes.append(residuals.of_torch(forward, [x]))
    assert sizes == [0, 400]
