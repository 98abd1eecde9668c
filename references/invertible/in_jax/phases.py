"""The two phases of Moonwalk in JAX: the input's gradient h_0, and the walk from it forward through the chain.

In the code, x_i is ``x``, h_i = ∂J/∂x_i is ``h``, g_i = ∂J/∂θ_i is ``dp``. The units of a block are the steps of one
`jax.lax.scan`, so what a scan does not put out is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree
from gradgate.references.invertible.chain import Link, advances, finished, pulled, pushed
from gradgate.references.invertible.inverse_products import Advance, advance_by
from gradgate.references.invertible.layer import Chained
from gradgate.references.invertible.layers import in_layer
from gradgate.references.invertible.problem import Block, InvertibleProblem

CLOSED = advance_by("closed", jax.vjp)
Visit = Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]
"""(a unit's parameters, its gradient, its part of the state) -> new parameters and the new part of the state.

Both are trees of the same shapes and dtypes as before.
"""


def keep_gradient(p: Tree, dp: Tree, state: Tree) -> tuple[Tree, Tree]:
    """The visit that puts the gradient in the parameters' place."""
    return dp, state


def input_gradient_reverse(problem: InvertibleProblem) -> tuple[Any, Tree]:
    """h_0 by a backward pass by x alone, and what phase 1 hands over to phase 2.

    Each layer keeps what its own `pull_x` needs and no more: `jax.grad` would also keep the mask of every ReLU, a byte
    per number, although the output has the same signs. A user's own layers, whose `pull_x` is not known, go through
    `jax.grad`.

    Args:
        problem: any InvertibleProblem.

    Returns:
        h_0, with the shape and dtype of ``problem.x``; and per block and layer of its unit that hands anything over,
        what its `advance` takes as ``handed``, stacked.

    Source:
        Algorithm 1, phase 1, §4.2.

    Stores:
        Mx numbers per layer. What is handed over takes their place.

    Computes:
        One evaluation and one VJP of every layer and of the head.
    """
    params, x = problem.params, problem.x
    if not problem.by_hand:
        return jax.grad(lambda x: problem.head_loss(params["head"], problem.body(params, x)))(x), {}
    kept: dict[str, Any] = {}
    for block in problem.blocks:

        def unit(x: Any, p: Tree, block: Block = block) -> tuple[Any, Tree]:
            return pushed(jax.vjp, links(block.unit, p), x)

        x, kept[block.key] = jax.lax.scan(unit, x, params[block.key])
        x, after = pushed(jax.vjp, links(block.after, params), x)
        kept |= after
    h, handed = jax.grad(lambda x: problem.head_loss(params["head"], x))(x), {}
    for block in reversed(problem.blocks):
        h, _ = pulled(links(block.after, params), kept, h)
        h, handed[block.key] = _back(block, params[block.key], kept.pop(block.key), h)
    return h, handed


def _back(block: Block, params: Tree, kept: Tree, h: Any) -> tuple[Any, Tree]:
    """H at the end of a block -> h at its beginning, and what its layers hand over, which overwrites what they kept."""
    replaced = {key: kept[key] for key, layer in block.unit.items() if layer.hands_over}
    read = {key: needed for key, needed in kept.items() if key not in replaced}
    count = len(jax.tree.leaves(params)[0])

    def unit(carry: tuple[Any, Tree], given: tuple[Any, Tree, Tree]) -> tuple[tuple[Any, Tree], None]:
        (h, replaced), (i, p, read) = carry, given
        needed = {**read, **{key: leaf[i] for key, leaf in replaced.items()}}
        h, handed = pulled(links(block.unit, p), needed, h)
        return (h, {key: leaf.at[i].set(handed[key]) for key, leaf in replaced.items()}), None

    (h, replaced), _ = jax.lax.scan(unit, (h, replaced), (jnp.arange(count), params, read), reverse=True)
    return h, replaced


def input_gradient_forward(problem: InvertibleProblem, tangents: int) -> Any:
    """h_0 by one JVP per number of a sample; sample after sample where batch norm joins them.

    Args:
        problem: any InvertibleProblem.
        tangents: how many JVPs are pushed forward together, at least 1.

    Returns:
        h_0, with the shape and dtype of ``problem.x``.

    Source:
        Algorithm 1, phase 1, §4.1.

    Stores:
        The activations of one layer, and `tangents` tangents of them.

    Computes:
        n JVPs of every layer and of the head; batch·n with batch norm.
    """
    x, params = problem.x, problem.params

    def losses(x: Any) -> Any:
        return problem.head_losses(params["head"], problem.body(params, x))

    return components(losses, x, problem.spec.coupled, tangents)


def components(losses: Callable[[Any], Any], x: Any, coupled: bool, tangents: int) -> Any:
    """The gradient by x of the sum of `losses`, by one JVP per number; where `coupled`, of all samples in turn.

    Args:
        losses: x -> each sample's loss, (batch,); where samples are coupled, numbers of any shape.
        x: (batch, …).
        tangents: how many JVPs are pushed forward together.
    """

    def slopes(samples: Any, i: Any) -> Any:
        """Every sample's loss along number i of some samples, (batch,)."""
        unit = jnp.zeros(x[0].size, x.dtype).at[i].set(1).reshape(x.shape[1:])
        return jax.jvp(losses, (x,), (jnp.expand_dims(samples, tuple(range(1, x.ndim))) * unit,))[1]

    def every(slope: Callable[[Any], Any]) -> Any:
        return jax.lax.map(slope, jnp.arange(x[0].size), batch_size=min(tangents, x[0].size))

    if not coupled:
        ones = jnp.ones(len(x), x.dtype)
        return every(lambda i: slopes(ones, i)).T.reshape(x.shape)
    # Two loops, not one of batch·n steps: XLA for GPUs walks through the steps of a loop while it compiles.
    found = jax.lax.map(lambda one: every(lambda i: slopes(one, i).sum()), jnp.eye(len(x), dtype=x.dtype))
    return found.reshape(x.shape)


def walk(
    problem: InvertibleProblem,
    h: Any,
    visit: Visit = keep_gradient,
    advance: Advance = CLOSED,
    handed: Tree | None = None,
    state: Tree | None = None,
) -> tuple[Any, Tree, Tree]:
    """Phase 2: from h_0 forward through the chain; each unit's gradient goes to `visit` as soon as it exists.

    Args:
        problem: any InvertibleProblem.
        h: h_0, like ``problem.x``.
        visit: called with the parameters, the gradient and the state of each unit, of each layer between blocks, and
            last of the head. Its results are returned in place of the parameters and of the state. If it returns
            updated parameters, never more than one unit's gradient is in memory.
        advance: one layer's step.
        handed: what phase 1 handed over; None: nothing.
        state: of an optimiser, such as Adam's moments: a tree per entry of ``problem.params``, that of a block stacked
            as its parameters are; None: there is none.

    Returns:
        The loss, a scalar; a tree like ``problem.params`` and one like `state` of what `visit` returned.

    Source:
        Algorithm 1.

    Stores:
        x_i and h_i, Mθ numbers of one layer, and what `visit` returned.

    Computes:
        One evaluation and one VJP of every layer (of ψ, two evaluations and no VJP).
    """
    # Without this barrier the compiler sees that phase 1 computed the same activations, and keeps them all instead of
    # recomputing them.
    x, h, params, left = jax.lax.optimization_barrier((problem.x, h, problem.params, dict(state or {})))
    found = {}
    for block in problem.blocks:
        # Results take the parameters' and the state's place one by one: where these are donated nothing is kept twice.
        def unit(carry: tuple[Any, ...], given: tuple[Any, Tree], block: Block = block) -> tuple[tuple[Any, ...], None]:
            (x, h, kept), (i, over) = carry, given
            p, state = in_layer(kept, i)
            x, h, dp = finished(advances(advance, links(block.unit, p), x, h, over))
            return (x, h, jax.tree.map(lambda leaf, new: leaf.at[i].set(new), kept, visit(p, dp, state))), None

        given = (jnp.arange(problem.spec.layers), (handed or {}).get(block.key, {}))
        carry = (x, h, (params[block.key], left.get(block.key, {})))
        (x, h, (found[block.key], left[block.key])), _ = jax.lax.scan(unit, carry, given)
        x, h, after = finished(advances(advance, links(block.after, params), x, h))
        for key, dp in after.items():
            found[key], left[key] = visit(params[key], dp, left.get(key, {}))
    loss, d_head = jax.value_and_grad(problem.head_loss)(params["head"], x)
    found["head"], left["head"] = visit(params["head"], d_head, left.get("head", {}))
    return loss, found, left


def links(layers: Mapping[Any, Chained], params: Mapping[Any, Tree]) -> list[Link]:
    """Layers with their parameters, by their common keys."""
    return [(key, layer, params[key]) for key, layer in layers.items()]


def gathered(walked: tuple[Any, Tree, Tree]) -> tuple[Any, Tree]:
    """The loss and the gradient of a `walk` that kept it."""
    loss, grads, _ = walked
    return loss, grads
