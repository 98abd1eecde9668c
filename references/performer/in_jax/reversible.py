"""Algorithm 1 over reversible layers in JAX: Φ^(n) keeps the last layer's output alone.

A layer of two streams, Y₁ = X₁ + attention(X₂) and Y₂ = X₂ + feed_forward(Y₁), is undone from Y: first X₂, then X₁. In
the words of the code, ``H`` is Y₁; the rest is as in `methods`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree, check_integer
from gradgate.references.performer.in_jax.attention import Attention, attention
from gradgate.references.performer.in_jax.methods import Before, in_slices
from gradgate.references.performer.problem import PerformerProblem
from gradgate.references.performer.slicing import check_reversible


def slim_reversible(problem: PerformerProblem, *, chunk: int) -> tuple[Any, Tree]:
    """Loss and exact gradient as by `slim`, but a slice keeps only its last layer's output and undoes layer by layer.

    Args:
        problem: a `PerformerProblem` of JAX arrays with ``residual="reversible"``, float64, float32 or bfloat16; its
            class lists the shapes.
        chunk: C, tokens per slice, an integer of at least 1. The last slice may be shorter. L and more means one slice.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is not an integer of at least 1.
        UsageError: the layers of the problem are not reversible.

    Source:
        §5: "compatible with the reversible layer design"; the layers are those of Kitaev et al. (2020). Attention is by
        masked products of matrices in blocks of min(64, C) tokens.

    Stores:
        States and their cotangents as `slim`, and the states before a slice once more. For one slice, the last layer's
        output, 2·C·d_model numbers per sequence, and the activations of one layer.

    Computes:
        As `slim`, and s·L more evaluations of F and of both halves of G.

    Not for:
        Layers with one stream: use `slim_checkpointed`. Many layers in few digits: each layer's input is computed by a
        subtraction, whose rounding errors add up over the layers.
    """
    check_reversible(problem.spec.residual)
    inside = attention("matrix")

    def pull(before: Before, cotangents: Any, grads: Tree, start: Any, count: int) -> tuple[Any, Any, Any, Tree]:
        return _pull_slice(problem, inside, before, cotangents, grads, start, count)

    return in_slices(problem, check_integer("chunk", chunk, 1), inside, None, pull)


def _pull_slice(
    problem: PerformerProblem, inside: Attention, before: Before, cotangents: Any, grads: Tree, start: Any, count: int
) -> tuple[Any, Any, Any, Tree]:
    """Algorithm 2: one slice forward once more, and back with each layer's input computed from its output."""
    params = problem.params
    X, pull_embedding = jax.vjp(lambda e: problem.embed(e, start, count), params["embedding"])

    def forward(X: Any, xs: tuple[Tree, Any]) -> tuple[Any, Any]:
        p, r = xs
        prepared = inside.prepare(*problem.project(p, X))
        state = before(r, lambda: inside.total(prepared))
        return problem.finish(p, X, inside.attend(prepared, state)[0], r, start), state

    layers, numbers = params["layers"], problem.layer_numbers()
    Y, states = jax.lax.scan(forward, X, (layers, numbers))
    loss, pull_loss = jax.vjp(lambda head, X: problem.slice_loss({"head": head}, X, start), params["head"], Y)
    d_head, g = pull_loss(jnp.ones_like(loss))

    def backward(carry: tuple[Any, Any, Tree], xs: tuple[Any, ...]) -> tuple[tuple[Any, Any, Tree], Any]:
        Y, g, grads = carry
        p, r, cotangent, state = xs
        X, pulled, (g, cotangent) = _pull_layer(problem, inside, p, r, start, state, Y, g, cotangent)
        grads = jax.tree.map(lambda leaf, d: leaf.at[r].add(d.astype(leaf.dtype)), grads, pulled)
        return (X, g, grads), cotangent

    (_, g, d_layers), cotangents = jax.lax.scan(
        backward, (Y, g, grads["layers"]), (layers, numbers, cotangents, states), reverse=True
    )
    (d_embedding,) = pull_embedding(g)
    grads = {
        "layers": d_layers,
        "head": jax.tree.map(jnp.add, grads["head"], d_head),
        "embedding": grads["embedding"] + d_embedding,
    }
    return loss, states, cotangents, grads


def _pull_layer(
    problem: PerformerProblem,
    inside: Attention,
    p: Tree,
    r: Any,
    start: Any,
    state: Any,
    Y: Any,
    g: Any,
    cotangent: Any,
) -> tuple[Any, Tree, tuple[Any, Any]]:
    """Y and its cotangent -> X, the gradient of the layer's parameters, and the cotangents of X and of its state."""
    D = problem.spec.width
    H, g_second = Y[..., :D], g[..., D:]
    grown, pull_fed = jax.vjp(lambda p, H: problem.fed(p, H, r, start), p, H)
    second = Y[..., D:] - grown
    d_fed, d_H = pull_fed(g_second)
    g_first = g[..., :D] + d_H

    def attended(p: Tree, second: Any, state: Any) -> tuple[Any, Any]:
        both = jnp.concatenate([second, second], axis=-1)  # only the second stream is read
        out, after = inside.attend(inside.prepare(*problem.project(p, both)), state)
        return problem.attended(p, out, r, start), after

    (grown, _), pull_attended = jax.vjp(attended, p, second, state)
    d_attended, d_second, cotangent = pull_attended((g_first, cotangent))
    X = jnp.concatenate([H - grown, second], axis=-1)
    g = jnp.concatenate([g_first, g_second + d_second], axis=-1)
    return X, jax.tree.map(jnp.add, d_fed, d_attended), (g, cotangent)
