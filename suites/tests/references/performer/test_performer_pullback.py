"""Pullbacks of JAX that do not keep the weights: no weight is copied, and the cotangents are the same."""

from __future__ import annotations

from typing import Any

import pytest


def layer(p: dict[str, Any], x: Any) -> Any:
    """A layer with weights that its pullback needs, and a bias that it does not."""
    import jax.numpy as jnp

    return jnp.tanh(x @ p["w"] + p["b"]) * x


def made(jax: Any) -> tuple[dict[str, Any], Any]:
    """Weights and an input."""
    one, two = jax.random.split(jax.random.key(3))
    return {"w": jax.random.normal(one, (3, 3)), "b": jax.numpy.ones(3)}, jax.random.normal(two, (2, 3))


def test_no_weight_is_kept_and_the_cotangents_are_the_same(jax: Any) -> None:
    from gradgate.references.performer.in_jax.pullback import without

    p, x = made(jax)
    y, pull = jax.vjp(layer, p, x)
    lean = without(p, pull)
    assert not any(leaf is p["w"] for leaf in lean.residuals)
    assert len(lean.residuals) == len(jax.tree.leaves(pull)) - 1
    for ours, theirs in zip(jax.tree.leaves(lean(p, y)), jax.tree.leaves(pull(y)), strict=True):
        assert (ours == theirs).all()


def test_other_weights_give_other_cotangents(jax: Any) -> None:
    from gradgate.references.performer.in_jax.pullback import without

    p, x = made(jax)
    y, pull = jax.vjp(layer, p, x)
    _, back = without(p, pull)({"w": 2 * p["w"], "b": p["b"]}, y)
    assert not (back == pull(y)[1]).all()


@pytest.mark.parametrize("lean", [True, False])
def test_a_scan_stacks_weights_unless_they_are_taken_out(lean: bool, jax: Any) -> None:
    from gradgate.references.performer.in_jax.pullback import without

    p, x = made(jax)
    stacked = jax.tree.map(lambda leaf: jax.numpy.stack([leaf] * 4), p)

    def step(x: Any, p: Any) -> tuple[Any, Any]:
        y, pull = jax.vjp(layer, p, x)
        return y, without(p, pull) if lean else pull

    _, pulls = jax.lax.scan(step, x, stacked)
    assert any(leaf.shape == (4, 3, 3) for leaf in jax.tree.leaves(pulls)) is not lean
