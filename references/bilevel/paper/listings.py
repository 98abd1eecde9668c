"""The paper's programs as its listings have them, written to test why its figures differ from ours.

Listings 1 and 3, with the layers of the model in a scan or in a Python loop, at another context, or with the library's
softmax: which of these changes the bytes? And why does the paper's GPU need saved inner gradients, but today's not? A
compiler merges nothing across the iterations of a scan. In a loop it can see that the gradient that a step recomputes
and the one inside the product are the same; with saved gradients there is only one of them.

Listing 4, the motivating example, rematerialises no inner step, although §4 keeps that "enabled in all our benchmarks".
Why does mixed mode save more there? The default then keeps the activations of every step; mixed mode still keeps none.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from gradgate.references.backends import tree_map
from gradgate.references.bilevel.inner import transformer
from gradgate.references.contract import Tree

RATE, FIRST, SECOND, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def temporary(
    profile: str,
    save: bool,
    unrolled: bool,
    millions: int = 44,
    layers: int = 4,
    mixed: bool = True,
    library: bool = False,
    context: int = 2048,
    remat: bool = True,
) -> float:
    """GiB of temporaries of a meta step, T = 2, batch 4.

    Args:
        profile: the profile for which the program is compiled.
        save: inner gradients are saved.
        unrolled: layers run in a Python loop, not in a scan.
        millions, layers: a row of Table 6 and the number of layers in place of its own.
        mixed: in mixed mode; else `jax.grad` takes the place of Listing 1.
        library: attention is `library_attention`.
        context: tokens of a data point.
        remat: layers are rematerialised one by one.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.paper.scale import LIMIT, GiB

    with contextlib.ExitStack() as patches:
        if unrolled:
            patches.enter_context(mock.patch.object(transformer, "scan", _loop))
        if library:
            patches.enter_context(mock.patch.object(transformer, "attention", library_attention))
        found = measure(program(save, mixed, remat), arguments(millions, layers, context), profile, limit=LIMIT)
    if found.temp_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.temp_bytes / GiB


@functools.lru_cache(maxsize=8)
def toy_assigned(profile: str, transformations: int, fused: bool) -> tuple[Any, Any]:
    """The buffer assignments of Listing 4, default and mixed mode (B = 1024, D = 4096, T = 2).

    Raises:
        LookupError: the profile's compiler gives no assignment; says why.
    """
    from gradgate.references.bilevel.paper.buffers import assignment

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4096, 4096), *[(2, 1024, 4096)] * 2)]
    outer = [jax.ShapeDtypeStruct((1024, 4096), jnp.float32)] * 2
    default, mixed = (
        assignment(toy(transformations, mixed, False, fused), (*shapes, *outer), profile) for mixed in (False, True)
    )
    return default, mixed


def toy_saved_fused(profile: str, transformations: int, fused: bool) -> float:
    """Percent of all bytes that mixed mode saves in Listing 4, with or without loop fusion."""
    default, mixed = toy_assigned(profile, transformations, fused)
    return float(100 * (1 - mixed.total / default.total))


def toy_graph(profile: str, transformations: int, what: str) -> float:
    """Buffers or instructions of Listing 4 in mixed mode over those of the default, loop fusion on.

    Args:
        profile: the profile whose compiler is used.
        transformations: M of Eq. 9.
        what: ``buffers``, places in memory of 1 MiB or more; or ``instructions``.
    """

    def size(found: Any) -> int:
        if what == "instructions":
            return int(found.instructions)
        return len({one.place for one in found.buffers if one.bytes >= 2**20})

    default, mixed = toy_assigned(profile, transformations, True)
    return size(mixed) / size(default)


def toy_saved(profile: str, transformations: int, remat: bool) -> float:
    """Percent of all bytes that mixed mode saves compared with the default in Listing 4 (B = 1024, D = 4096, T = 2).

    Args:
        profile: the profile whose compiler is used.
        transformations: M of Eq. 9, in a scan, so that none are fused.
        remat: whether inner steps are rematerialised; Listing 4 does not.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4096, 4096), *[(2, 1024, 4096)] * 2)]
    outer = [jax.ShapeDtypeStruct((1024, 4096), jnp.float32)] * 2
    default, mixed = (
        measure(toy(transformations, mixed, remat), (*shapes, *outer), profile) for mixed in (False, True)
    )
    if default.required_bytes is None or mixed.required_bytes is None:
        raise LookupError(f"{profile}: {default.reason or mixed.reason}")
    return 100 * (1 - mixed.required_bytes / default.required_bytes)


def toy(transformations: int, mixed: bool, remat: bool, fused: bool = False) -> Callable[..., Any]:
    """The meta-gradient of Listing 4: (weights, inputs, targets, outer inputs, outer targets) -> like the weights.

    With `fused` (use_loop_fusion) the transformations run in a Python loop, so that the compiler can fuse them.
    """

    def one(y: Any, i: Any) -> tuple[Any, None]:
        return i * (2 + jnp.sin(y)) ** jnp.cos(y), None

    def loss(weights: Any, x: tuple[Any, Any]) -> Any:
        y, numbers = jnp.matmul(x[0], weights), range(1, transformations + 1)
        if fused:
            for i in numbers:
                y, _ = one(y, float(i))
        else:
            y, _ = jax.lax.scan(one, y, jnp.arange(1, transformations + 1).astype(jnp.float32))
        return jnp.mean((y - x[1]) ** 2)

    grad = fwdrev_grad(loss) if mixed else jax.grad(loss)

    def step(weights: Any, x: tuple[Any, Any]) -> tuple[Any, None]:
        return weights - RATE * grad(weights, x), None

    def meta(weights: Any, *data: Any) -> Any:
        inputs, targets, *outer = data
        weights, _ = jax.lax.scan(jax.checkpoint(step) if remat else step, weights, (inputs, targets))
        return loss(weights, (outer[0], outer[1]))

    return jax.grad(meta)


def arguments(millions: int, layers: int, context: int = 2048, batch: int = 4) -> tuple[Any, Any, Any]:
    """Shapes of η, of the tokens and targets of two steps, and of those of the outer loss."""
    size = transformer.SIZES[millions]
    theta = transformer.draws(size.width, size.ffw, size.heads, size.key_size, layers, transformer.VOCABULARY)
    inner, outer = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((2, batch, context), (batch, context)))
    shapes = tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), theta)
    return shapes, (inner, inner), (outer, outer)


def library_attention(backend: str, p: Tree, x: Any, shift: None = None) -> Any:
    """`transformer.attention` as JAX users write it: products by einsum, a triangular mask, `jax.nn.softmax`."""
    length, key_size = x.shape[1], p["query"].shape[1]
    turns, normed = transformer.rotations(jnp, length, key_size, x.dtype), transformer.rms_norm(jnp, p["norm"], x)
    query, key, value = (jnp.einsum("bsd,hkd->bhsk", normed, p[name]) for name in ("query", "key", "value"))
    query, key = transformer.rotate(jnp, query, turns), transformer.rotate(jnp, key, turns)
    scores = jnp.einsum("bhsk,bhtk->bhst", query, key) / math.sqrt(key_size)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30))
    return jnp.einsum("bhst,bhtk,hkd->bsd", weights, value, p["out"])


def program(save: bool, mixed: bool = True, remat: bool = True) -> Callable[..., Any]:
    """The meta-gradient of maml, Adam: Listing 1's rule or plain reverse mode inside Listing 3's checkpointed step."""

    def block(layer: Callable[..., Any]) -> Callable[..., Any]:
        return jax.checkpoint(layer) if remat else layer

    def loss(p: Tree, x: tuple[Any, Any]) -> Any:
        return jnp.mean(transformer.token_losses("jax", p, x[0], x[1], block=block))

    grad = fwdrev_grad(loss) if mixed else jax.grad(loss)
    policy = jax.checkpoint_policies.save_only_these_names("inner_grads") if save else None

    def meta(eta: Tree, xs: Any, y: Any) -> Any:
        def step(carry: Any, x: Any) -> tuple[Any, None]:
            theta, state, i = carry
            g = grad(theta, x)
            if save:
                g = jax.tree.map(lambda leaf: checkpoint_name(leaf, "inner_grads"), g)
            theta, state = adam(g, theta, state, i)
            return (theta, state, i + 1), None

        zeros = jax.tree.map(jnp.zeros_like, eta)
        start = (eta, (zeros, zeros), jnp.float32(0))
        (theta, _, _), _ = jax.lax.scan(jax.checkpoint(step, policy=policy), start, xs)
        return loss(theta, y)

    return lambda eta, xs, y: jax.value_and_grad(meta)(eta, xs, y)


def fwdrev_grad(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Listing 1: ∇ loss with forward mode over reverse mode for its product; tokens have no gradient."""

    @jax.custom_vjp
    def gradient(p: Tree, x: Any) -> Tree:
        return jax.grad(loss)(p, x)

    def backward(residuals: tuple[Tree, Any], ct: Tree) -> tuple[Tree, None]:
        p, x = residuals
        return jax.jvp(lambda p: jax.grad(loss)(p, x), (p,), (ct,))[1], None

    gradient.defvjp(lambda p, x: (gradient(p, x), (p, x)), backward)
    return gradient


def adam(g: Tree, theta: Tree, state: tuple[Tree, Tree], step: Any) -> tuple[Tree, tuple[Tree, Tree]]:
    """A step of Adam, counted from 0."""
    m, v = state
    m = tree_map(lambda m, g: FIRST * m + (1 - FIRST) * g, m, g)
    v = tree_map(lambda v, g: SECOND * v + (1 - SECOND) * g * g, v, g)
    c1, c2 = 1 - FIRST ** (step + 1.0), 1 - SECOND ** (step + 1.0)

    def move(p: Any, m: Any, v: Any) -> Any:
        return p - RATE * (m / c1) / (jnp.sqrt(v / c2 + 1e-16) + EPSILON)

    return tree_map(move, theta, m, v), (m, v)


def _loop(backend: str, step: Callable[..., Any], carry: Any, xs: Tree) -> tuple[Any, tuple[()]]:
    for i in range(jax.tree.leaves(xs)[0].shape[0]):
        carry, _ = step(carry, jax.tree.map(lambda leaf: leaf[i], xs))  # noqa: B023 - called at once
    return carry, ()
