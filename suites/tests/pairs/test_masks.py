"""A mask that is drawn again in the backward pass, or by an imported function, is the mask of the forward pass."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate
from gradgate import key, normal
from gradgate.suites.tests.pairs.verdicts import judged

jax = pytest.importorskip("jax")
jnp = jax.numpy
imported = jax.random.bernoulli


def plain(x: Any, k: Any) -> Any:
    return x * jax.random.bernoulli(k, 0.75, x.shape) / 0.75


def redrawing(shift: int) -> Any:
    """Dropout that keeps its key and draws the mask again in its backward pass, from the key plus `shift`."""

    @jax.custom_vjp
    def drop(x: Any, k: Any) -> Any:
        return jnp.where(imported(k, 0.75, x.shape), x / 0.75, 0)

    def forward(x: Any, k: Any) -> Any:
        return drop(x, k), k

    def backward(k: Any, dy: Any) -> Any:
        again = jax.random.fold_in(k, shift) if shift else k
        return jnp.where(jax.random.bernoulli(again, 0.75, dy.shape), dy / 0.75, 0), None

    drop.defvjp(forward, backward)
    return drop


@pytest.mark.parametrize(("shift", "expected"), [(0, "upheld"), (1, "refuted")])
def test_a_mask_drawn_again_is_judged_in_every_dtype(shift: int, expected: str) -> None:
    pair = gradgate.Pair(
        redrawing(shift),
        reference=plain,
        name="drop",
        framework="jax",
        inputs={"x": normal("T"), "k": key()},
        dims={"T": (16, 33)},
    )
    claims = ("gradient_float64", "gradient_float32", "gradient_exact")
    found = judged(pair, claims)
    assert {name: found[name].verdict for name in claims} == dict.fromkeys(claims, expected), found


def test_the_function_of_jax_is_put_back() -> None:
    from gradgate.suites.pairs import masks

    before = imported(jax.random.key(0), 0.5, (64,))
    with masks.alike():
        pass
    assert jax.random.bernoulli is imported
    assert (imported(jax.random.key(0), 0.5, (64,)) == before).all()
