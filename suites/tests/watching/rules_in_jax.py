"""Small rules of JAX as libraries write them, each with a caller; `MUTANTS` has two ways to break each."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas


@jax.custom_vjp
def product(x: Any, y: Any) -> Any:
    return x * y


product.defvjp(lambda x, y: (x * y, (x, y)), lambda kept, g: (g * kept[1], g * kept[0]))


@jax.custom_vjp
def softplus(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


def _softplus_bwd(x: Any, g: Any) -> Any:
    return (g / (1 + jnp.exp(-x)),)


softplus.defvjp(lambda x: (softplus(x), x), _softplus_bwd)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def power(x: Any, n: int) -> Any:
    return x**n


def _power_fwd(x: Any, n: int) -> Any:
    return x**n, x


def _power_bwd(n: int, x: Any, g: Any) -> Any:
    return (g * n * x ** (n - 1),)


power.defvjp(_power_fwd, _power_bwd)


@jax.custom_vjp
def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return _normalised(x)[0] * weight + bias


def _normalised(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return centred * scale, scale


def _layer_norm_fwd(x: Any, weight: Any, bias: Any) -> Any:
    n, scale = _normalised(x)
    return n * weight + bias, (n, scale, weight)


def _layer_norm_bwd(kept: Any, g: Any) -> Any:
    n, scale, weight = kept
    d = g * weight
    dx = scale * (d - d.mean(-1, keepdims=True) - n * (d * n).mean(-1, keepdims=True))
    return dx, (g * n).sum(0), g.sum(0)


layer_norm.defvjp(_layer_norm_fwd, _layer_norm_bwd)


@jax.custom_vjp
def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def _cross_entropy_fwd(logits: Any, labels: Any) -> Any:
    return cross_entropy(logits, labels), (jax.nn.softmax(logits), labels)


def _cross_entropy_bwd(kept: Any, g: Any) -> Any:
    p, labels = kept
    return g * (p - jax.nn.one_hot(labels, p.shape[1])) / len(p), None


cross_entropy.defvjp(_cross_entropy_fwd, _cross_entropy_bwd)


@jax.custom_jvp
def sine(x: Any) -> Any:
    return jnp.sin(x) * x


@sine.defjvp
def _sine_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return sine(x), t * (jnp.cos(x) * x + jnp.sin(x))


@jax.custom_jvp
def distance(x: Any, y: Any) -> Any:
    return jnp.sqrt(((x - y) ** 2).sum(-1))


@distance.defjvp
def _distance_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out = distance(x, y)
    return out, ((x - y) * (dx - dy)).sum(-1) / out


@jax.custom_vjp
def cell(state: Any, inputs: Any, weight: Any) -> Any:
    return jnp.tanh(state @ weight + inputs)


def _cell_fwd(state: Any, inputs: Any, weight: Any) -> Any:
    out = jnp.tanh(state @ weight + inputs)
    return out, (out, state, weight)


def _cell_bwd(kept: Any, g: Any) -> Any:
    out, state, weight = kept
    d = g * (1 - out**2)
    return d @ weight.T, d, state.T @ d


cell.defvjp(_cell_fwd, _cell_bwd)


@jax.custom_vjp
def affine(params: Any, x: Any) -> Any:
    return {"y": params["w"] * x + params["b"]}


def _affine_bwd(kept: Any, g: Any) -> Any:
    params, x = kept
    return {"w": (g["y"] * x).sum(), "b": g["y"].sum()}, g["y"] * params["w"]


affine.defvjp(lambda params, x: (affine(params, x), (params, x)), _affine_bwd)


def scaled(factor: float) -> Any:
    """A rule that is written within a function, and captures what it needs."""

    @jax.custom_vjp
    def scale(x: Any) -> Any:
        return factor * x**2

    scale.defvjp(lambda x: (scale(x), x), lambda x, g: (2 * factor * g * x,))
    return scale


@jax.custom_gradient
def doubled(x: Any) -> Any:
    """A rule that is one function."""
    y = x * jnp.exp(x)
    return y, lambda g: g * (y + jnp.exp(x))


RATES = itertools.count(1.0)


def rate() -> Any:
    return 1.0


@jax.checkpoint
def wave(x: Any) -> Any:
    return jnp.sin(x) * rate()


def solved(a: Any, b: Any) -> Any:
    def solve(_: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b)

    def transposed(_: Any, b: Any) -> Any:
        return jnp.linalg.solve(a.T, b)

    return jax.lax.custom_linear_solve(lambda x: a @ x, b, solve, transposed)


def rooted(w: Any) -> Any:
    """y with y³ + y = w."""

    def solve(f: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2 + 1), y)

    def tangent(g: Any, t: Any) -> Any:
        return t / g(jnp.ones_like(t))

    return jax.lax.custom_root(lambda y: y**3 + y - w, jnp.zeros_like(w), solve, tangent)


@jax.custom_batching.custom_vmap
def direction(x: Any, w: Any) -> Any:
    return x / jnp.sqrt((x * x).sum()) * w


@direction.def_vmap
def _direction_lanes(size: int, batched: Any, x: Any, w: Any) -> Any:
    w = w[:, None] if batched[1] else w
    x = x if batched[0] else jnp.broadcast_to(x, (size, *x.shape))
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True)) * w, True


def _kernel(body: Any, *arrays: Any) -> Any:
    shape = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    return pallas.pallas_call(body, out_shape=shape, interpret=True)(*arrays)


def _cubed(x_ref: Any, y_ref: Any) -> None:
    y_ref[...] = x_ref[...] ** 3


def _cubed_back(x_ref: Any, g_ref: Any, dx_ref: Any) -> None:
    dx_ref[...] = 3 * x_ref[...] ** 2 * g_ref[...]


@jax.custom_vjp
def cubed(x: Any) -> Any:
    return _kernel(_cubed, x)


cubed.defvjp(lambda x: (cubed(x), x), lambda x, g: (_kernel(_cubed_back, x, g),))


@jax.custom_vjp
def gaussian(x: Any) -> Any:
    return jnp.exp(-x * x)


gaussian.defvjp(lambda x: (gaussian(x), x), lambda x, g: (-2 * x * jnp.exp(-x * x) * g,))


@jax.custom_jvp
def logistic(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


@logistic.defjvp
def _logistic_jvp(primals: Any, tangents: Any) -> Any:
    y = logistic(primals[0])
    return y, y * (1 - y) * tangents[0]


def _drawn(*shape: int) -> Any:
    return jax.random.normal(jax.random.PRNGKey(sum(shape)), shape)


def call_product() -> None:
    jax.grad(lambda x, y: product(x, y).sum(), (0, 1))(_drawn(3, 4), 1 - _drawn(3, 4))


def call_softplus() -> None:
    jax.jit(jax.grad(lambda x: softplus(x).sum()))(_drawn(3, 4))


def call_power() -> None:
    jax.grad(lambda x: power(x, 3).sum())(_drawn(5))


def call_layer_norm() -> None:
    jax.grad(lambda *a: layer_norm(*a).sum(), (0, 1, 2))(_drawn(3, 4), _drawn(4), _drawn(4))


def call_cross_entropy() -> None:
    jax.grad(cross_entropy)(_drawn(3, 5), jnp.array([0, 4, 2]))


def call_sine() -> None:
    jax.vmap(jax.grad(lambda x: sine(x).sum()))(_drawn(2, 4))


def call_distance() -> None:
    jax.grad(lambda x, y: distance(x, y).sum(), (0, 1))(_drawn(3, 4), _drawn(3, 4) + 1)


def call_cell() -> None:
    def loss(weight: Any) -> Any:
        return jax.lax.scan(lambda s, x: (cell(s, x, weight), None), _drawn(2, 3), _drawn(4, 2, 3))[0].sum()

    jax.grad(loss)(_drawn(3, 3))


def call_affine() -> None:
    jax.grad(lambda p, x: affine(p, x)["y"].sum(), (0, 1))({"w": 2.0, "b": 1.0}, _drawn(4))


def call_scale() -> None:
    jax.vmap(jax.grad(lambda x: scaled(1.5)(x)))(_drawn(4))


def call_doubled() -> None:
    jax.grad(lambda x: doubled(x).sum())(_drawn(4))


def call_wave() -> None:
    jax.grad(lambda x: wave(x).sum())(_drawn(4))


def call_gate() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jax.checkpoint(lambda x: jnp.tanh(x * w))(x).sum()

    jax.grad(loss)(_drawn(4), _drawn(4))


def call_solved() -> None:
    jax.grad(lambda a, b: solved(a, b).sum(), (0, 1))(3 * jnp.eye(3) + _drawn(3, 3), _drawn(3))


def call_rooted() -> None:
    jax.grad(lambda w: rooted(w).sum())(_drawn(4))


def call_direction() -> None:
    jax.vmap(direction, (0, None))(_drawn(3, 4), 2.0)


def call_cubed() -> None:
    jax.grad(lambda x: cubed(x).sum())(_drawn(2, 4))


def call_gaussian() -> None:
    jax.pmap(jax.grad(lambda x: gaussian(x).sum()))(_drawn(1, 4))


def call_logistic() -> None:
    mesh, rows = jax.sharding.Mesh(jax.devices()[:1], ("rows",)), jax.sharding.PartitionSpec("rows")
    sharded = jax.shard_map(logistic, mesh=mesh, in_specs=rows, out_specs=rows)
    jax.grad(lambda x: sharded(x).sum())(_drawn(2, 4))


CALLERS = (
    call_product,
    call_softplus,
    call_power,
    call_layer_norm,
    call_cross_entropy,
    call_sine,
    call_distance,
    call_cell,
    call_affine,
    call_scale,
    call_doubled,
    call_wave,
    call_gate,
    call_solved,
    call_rooted,
    call_direction,
    call_cubed,
    call_gaussian,
    call_logistic,
)
MUTANTS = (
    (call_product, "(g * kept[1], g * kept[0])", "(g * kept[1], g * kept[1])"),
    (call_product, "(x * y, (x, y))", "(1.5 * x * y, (x, y))"),
    (call_softplus, "g / (1 + jnp.exp(-x))", "g / (1 + jnp.exp(x))"),
    (call_softplus, "g / (1 + jnp.exp(-x))", "g / (1.001 + jnp.exp(-x))"),
    (call_power, "g * n * x ** (n - 1)", "g * n * x**n"),
    (call_power, "g * n * x ** (n - 1)", "g.mean() * n * x ** (n - 1)"),
    (call_layer_norm, "- n * (d * n).mean(-1, keepdims=True)", "- n * (d * n).mean()"),
    (call_layer_norm, "(g * n).sum(0), g.sum(0)", "(g * n).sum(0), g.mean(0)"),
    (call_cross_entropy, "/ len(p), None", ", None"),
    (call_cross_entropy, "g * (p - jax", "(p - jax"),
    (call_sine, "jnp.cos(x) * x + jnp.sin(x)", "jnp.cos(x) + jnp.sin(x)"),
    (call_sine, "t * (jnp.cos(x) * x", "t[..., ::-1] * (jnp.cos(x) * x"),
    (call_distance, "((x - y) * (dx - dy)).sum(-1) / out", "((x - y) * (dx + dy)).sum(-1) / out"),
    (call_distance, "((x - y) * (dx - dy)).sum(-1) / out", "((x - y) * (dx - dy)).sum(-1) / out**2"),
    (call_cell, "g * (1 - out**2)", "g * (1 - out)"),
    (call_cell, "return d @ weight.T, d,", "return d @ weight, d,"),
    (call_affine, '"w": (g["y"] * x).sum()', '"w": (g["y"] * x).mean()'),
    (call_affine, 'g["y"] * params["w"]\n', 'g["y"] * params["b"]\n'),
    (call_scale, "(2 * factor * g * x,)", "(factor * g * x,)"),
    (call_scale, "(2 * factor * g * x,)", "(2 * g * x,)"),
    (call_doubled, "g * (y + jnp.exp(x))", "g * (y - jnp.exp(x))"),
    (call_wave, "    return 1.0\n", "    return jax.pure_callback(lambda: jnp.float32(next(RATES)), jnp.float32(0))\n"),
    (call_gate, "jnp.tanh(x * w)", "jax.pure_callback(lambda: jnp.float32(next(RATES)), jnp.float32(0)) * x * w"),
    (call_solved, "solve(a.T, b)", "solve(a, b)"),
    (call_solved, "lambda x: a @ x", "lambda x: a @ x * 2"),
    (call_rooted, "t / g(jnp", "t * g(jnp"),
    (call_rooted, "fori_loop(0, 30,", "fori_loop(0, 1,"),
    (call_direction, "sum(-1, keepdims=True)) * w", "sum()) * w"),
    (call_direction, "w = w[:, None] if batched[1] else w", "w = jnp.max(w)"),
    (call_cubed, "3 * x_ref[...] ** 2", "3 * x_ref[...]"),
    (call_cubed, "y_ref[...] = x_ref[...] ** 3", "y_ref[...] = x_ref[...] ** 3 + 1e-3 * x_ref[...]"),
    (call_gaussian, "-2 * x * jnp.exp", "2 * x * jnp.exp"),
    (call_gaussian, "jnp.exp(-x * x) * g,)", "jnp.exp(-x * x) * g.sum(),)"),
    (call_logistic, "y, y * (1 - y)", "y, y * (1 + y)"),
    (call_logistic, "* tangents[0]\n", "* tangents[0][::-1]\n"),
)
"""(caller, text, what takes its place), of rules whose callers run all the same."""
