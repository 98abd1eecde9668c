"""How work and bytes depend on n, on d and on the largest layer; what a device needs at least for the paper's seconds.

Bytes and FLOPs are those of programs in JAX, compiled for the A4500 or counted; nothing is run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Tree
from gradgate.references.invertible.paper import rows
from gradgate.references.invertible.problem import InvertibleSpec

NARROW: dict[str, Any] = {"dtype": "float32", "layers": 4, "batch": 8, "depth": 2, "activation": "tanh"}
"""Spec of the networks on which work is counted over n and d."""


def work_over_backprop(method: str, channels: int, hidden: int = 16) -> float:
    """FLOPs of a method over backprop's, 4 layers, n = `channels` (§1, §3.2).

    `method` may be ``by_suffixes`` too.
    """
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    problem = shapes(InvertibleSpec(**NARROW, channels=channels, hidden=hidden))
    program = by_suffixes if method == "by_suffixes" else rows._method(method)
    return work.of(program, (problem,)).flops / work.of(rows._method("backprop"), (problem,)).flops


def small_over_large(method: str, few: int = 2, many: int = 32) -> float:
    """`work_over_backprop` at a small n over that at a large one (§1)."""
    return work_over_backprop(method, few) / work_over_backprop(method, many)


def work_curve(method: str, channels: tuple[int, ...] = (2, 4, 8, 16, 32)) -> dict[str, list[Any]]:
    """The same over n."""
    return {"n": list(channels), "times backprop's": [work_over_backprop(method, n) for n in channels]}


def work_with_wide(method: str, few: int = 4, many: int = 16) -> float:
    """FLOPs over backprop's with `many` hidden numbers over those with `few`, n = 4: with d above n in both (§3.2)."""
    return work_over_backprop(method, 4, many) / work_over_backprop(method, 4, few)


def by_suffixes(problem: Any) -> tuple[Any, Tree]:
    """Loss and gradient in forward mode with n tangents from each layer on, in place of d: min(n, d) where d > n.

    Each h_i is found by one JVP per number of x_i through all that follows; a VJP of one layer gives g_i.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.invertible.in_jax.phases import components

    chain, x, found = problem.chain(problem.params), problem.x, []
    for i, (layer, p) in enumerate(chain):
        y = layer(p, x)

        def rest(y: Any, following: Any = chain[i + 1 :]) -> Any:
            for layer, p in following:
                y = layer(p, y)
            return problem.head_losses(problem.params["head"], y)

        h = components(rest, y, problem.spec.coupled, 1)
        found.append(jax.vjp(lambda p, layer=layer, x=x: layer(p, x), p)[1](h)[0])
        x = y
    loss, d_head = jax.value_and_grad(problem.head_loss)(problem.params["head"], x)
    [key] = problem.spec.block_unit(0, "jax")
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *found)
    return loss, {"block0": {key: stacked}, "head": d_head}


def worst_case(hidden: int = 256, layers: int = 16, batch: int = 512) -> float:
    """Peak bytes of mixed Moonwalk over those of plain autograd, in PyTorch, where the two need the same (§4.2).

    Inside a coupling of 4 numbers are `hidden` outputs of tanh, which the derivative of tanh and that by the next
    matrix read. The gradients that both return are left out.
    """
    import torch

    from gradgate.references.backends import leaves, tree_map
    from gradgate.references.chain.in_torch.profile import LiveBytes
    from gradgate.references.invertible.in_torch import methods

    spec = InvertibleSpec(
        dtype="float32", layers=layers, channels=8, batch=batch, depth=2, hidden=hidden, activation="tanh", classes=10
    )
    problem: Any = spec.build("torch")
    gradients = sum(leaf.nbytes for leaf in leaves(problem.params))

    def autograd(problem: Any) -> Any:
        params = tree_map(lambda leaf: leaf.detach().requires_grad_(), problem.params)
        return torch.autograd.grad(problem.loss(params), leaves(params))

    def peak(method: Callable[..., Any]) -> int:
        with LiveBytes() as meter:
            method(problem)
        return int(meter.peak) - gradients

    return peak(methods.moonwalk_mixed) / peak(autograd)


WIDTHS = {"one wide": (16,) * 7 + (1024,), "all wide": (1024,) * 8}
"""Hidden numbers inside each of 8 couplings."""


def all_wide_over_one(method: str) -> float:
    """Temporary bytes of a chain of 8 wide couplings over those of a chain with one (§5).

    Args:
        method: ``reversible``, ``moonwalk``, ``backprop``, or ``forward``, which is one JVP.
    """
    one, every = (_chain_bytes(method, WIDTHS[name]) for name in ("one wide", "all wide"))
    return every / one


def _chain_bytes(method: str, widths: tuple[int, ...], numbers: int = 8, batch: int = 4096) -> float:
    import jax
    import jax.numpy as jnp

    from gradgate.references.invertible.in_jax.own_layers import additive_coupling
    from gradgate.references.invertible.in_jax.own_nets import inner
    from gradgate.references.invertible.in_jax.sequential import invertible_sequential

    half = numbers // 2

    def part(width: int) -> dict[str, Any]:
        sizes = {"w": (half, width), "b": (width,), "v": (width, half)}
        return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}

    params = [{"f": part(width), "g": part(width)} for width in widths]
    x = jax.ShapeDtypeStruct((batch, numbers), jnp.float32)

    def plain(params: Any, x: Any) -> Any:
        for p in params:
            x1, x2 = x[:, :half], x[:, half:]
            x1 = x1 + inner(p["f"], x2)
            x = jnp.concatenate([x1, x2 + inner(p["g"], x1)], -1)
        return (x**2).sum()

    def ours(params: Any, x: Any) -> Any:
        layers = [additive_coupling(inner, inner)] * len(widths)
        return (invertible_sequential(layers, method=method, coupled=False)(params, x) ** 2).sum()

    def tangent(params: Any, x: Any, direction: Any) -> Any:
        return jax.jvp(lambda params: plain(params, x), (params,), (direction,))

    if method == "forward":
        return float(rows.measured(tangent, (params, x, params), rows.PROFILE).temp_bytes)
    program: Callable[..., Any] = jax.grad(plain if method == "backprop" else ours)
    return float(rows.measured(program, (params, x), rows.PROFILE).temp_bytes)


def kept_by_a_layer() -> float:
    """Numbers per sample that backprop keeps of one more layer of each block, over the blocks, at 8 channels (Fig. 1).

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    few, many = (rows.bytes_of("backprop", 8, layers) for layers in (5, 10))
    return (many - few) / (5 * 3 * 4 * 512)


def gradient_share() -> float:
    """The bytes of forward's gradients over its gradients and temporaries, 10 layers per block, in percent (§6.3).

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.references.draws import shapes

    found = rows.measured(rows._method("forward"), (shapes(rows.revnet(8, 10)),), rows.PROFILE)
    return 100 * found.output_bytes / (found.output_bytes + found.temp_bytes)


def deep_bytes(method: str) -> float:
    """Temporary bytes of a method over backprop's on the network of `timings.over_backprop`, on the A4500 (§1)."""
    from gradgate.references.draws import shapes
    from gradgate.references.invertible.paper import timings

    problem = shapes(timings.deep())
    one, other = (
        rows.measured(rows._method(name), (problem,), rows.PROFILE).temp_bytes for name in (method, "backprop")
    )
    return float(one / other)


def disparity_growth(method: str) -> float:
    """Backprop's bytes less those of a method, 10 layers per block: at 18 channels over at 8 (§6.3, Fig. 2).

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    few, many = (rows.bytes_of("backprop", n, 10) - rows.bytes_of(method, n, 10) for n in (8, 18))
    return many / few


@functools.cache
def least_seconds(method: str, layers: int, norm: str = "batch") -> float:
    """FLOPs of a method on the network of Fig. 3 over the A4500's fastest arithmetic for float32, tensor cores (§6.4).

    No program that computes the method takes less: tangents pushed together share evaluations, but not JVPs.
    """
    from gradgate.hw_profiles.profile import load

    return rows._flops(method, 18, layers // 3, norm) / load(rows.PROFILE).peak["tensorfloat32"]


PRINTED = {6: (1839.0, 67.0), 60: (80_000.0, 700.0)}
"""Layers -> the seconds that §6.4 prints of Forward and of Moonwalk."""
DEEPEST = 3 * 10
"""Layers of the deepest net of §6.1: "one of {1, 3, 5, 10}" in each of three blocks."""


def seconds_by_growth(method: str) -> float:
    """The printed seconds at 6 layers, times the growth of the method's FLOPs to 60, without batch norm (§6.4)."""
    growth = rows._flops(method, 18, 20, "none") / rows._flops(method, 18, 2, "none")
    return PRINTED[6][0 if method == "forward" else 1] * growth


def layers_of_ratio(ratio: float, scale: str) -> float:
    """The layers at which Forward takes so many times as long as Moonwalk, over those of §6.1's deepest net.

    They are between the two numbers of layers that §6.4 prints.

    Args:
        ratio: of seconds.
        scale: ``line``: on the line through the two printed ratios; ``power``: on the power law through them.
    """
    few, many = PRINTED
    low, high = (slow / fast for slow, fast in PRINTED.values())
    if scale == "power":
        return few * float((ratio / low) ** (math.log(many / few) / math.log(high / low))) / DEEPEST
    return (few + (many - few) * (ratio - low) / (high - low)) / DEEPEST


def by_columns(hidden: int, numbers: int = 4, layers: int = 16) -> float:
    """FLOPs of forward mode over backprop's for layers of Table 1's costs: n² by the input, n·d by θ (§3.2).

    A layer is tanh(A x + B θ) with a matrix A of n × n numbers and B of n × d that are no parameters, and d = `hidden`
    parameters θ of its own. As in §4.1 forward mode forms the Jacobian of each layer, of d columns, and pushes every
    column through each layer that follows.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.hw_profiles import work

    n, d = numbers, hidden
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((layers, d), (layers, n, n), (layers, n, d), (n,))]

    def layer(x: Any, theta: Any, a: Any, b: Any) -> Any:
        return jnp.tanh(a @ x + b @ theta)

    def loss(theta: Any, a: Any, b: Any, x: Any) -> Any:
        for i in range(layers):
            x = layer(x, theta[i], a[i], b[i])
        return x.sum()

    def forward(theta: Any, a: Any, b: Any, x: Any) -> Any:
        columns = jnp.zeros((0, n))
        for i in range(layers):
            y, push = jax.linearize(lambda x, i=i: layer(x, theta[i], a[i], b[i]), x)
            own = jax.jacrev(lambda p, i=i, x=x: layer(x, p, a[i], b[i]))(theta[i])
            columns = jnp.concatenate([jax.vmap(push)(columns), own.T])
            x = y
        return columns.sum(1)

    return work.of(forward, tuple(shapes)).flops / work.of(jax.grad(loss), tuple(shapes)).flops


def columns_growth(few: int, many: int) -> float:
    """`by_columns` with d = `many` over that with d = `few`, n = 4 (§3.2)."""
    return by_columns(many) / by_columns(few)
