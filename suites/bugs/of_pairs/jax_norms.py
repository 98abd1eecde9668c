"""Pointwise functions, norms, sums and softmax of JAX, with handwritten derivatives, and plain references."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from gradgate import Pair, integers, normal


@jax.custom_vjp
def gelu_gate(x: Any, gate: Any) -> Any:
    """GELU(x)·gate with GELU by tanh, which keeps its inputs alone."""
    return 0.5 * x * (1 + jnp.tanh(x + 0.25 * x**3)) * gate


def _gelu_gate_backward(kept: Any, dy: Any) -> Any:
    x, gate = kept
    t = jnp.tanh(x + 0.25 * x**3)
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (1 + 0.75 * x**2)
    return dy * gate * slope, dy * 0.5 * x * (1 + t)


gelu_gate.defvjp(lambda x, gate: (gelu_gate(x, gate), (x, gate)), _gelu_gate_backward)


def plain_gelu_gate(x: Any, gate: Any) -> Any:
    """GELU(x)·gate with GELU by tanh."""
    return 0.5 * x * (1 + jnp.tanh(x + 0.25 * x**3)) * gate


gated = Pair(
    gelu_gate,
    plain_gelu_gate,
    inputs={"x": normal("T H"), "gate": normal("T H")},
    dims={"T": (3, 1, 0, 20), "H": (4, 1)},
    composes=("jit", "vmap", "second_order"),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def logsumexp(x: Any, axis: int = -1) -> Any:
    """The logarithm of Σ exp x along `axis`."""
    top = x.max(axis, keepdims=True)
    return (jnp.log(jnp.exp(x - top).sum(axis, keepdims=True)) + top).squeeze(axis)


def _logsumexp_forward(x: Any, axis: int) -> Any:
    y = logsumexp(x, axis)
    return y, (x, y)


def _logsumexp_backward(axis: int, kept: Any, dy: Any) -> Any:
    x, y = kept
    return (jnp.exp(x - jnp.expand_dims(y, axis)) * jnp.expand_dims(dy, axis),)


logsumexp.defvjp(_logsumexp_forward, _logsumexp_backward)


def plain_logsumexp(x: Any, axis: int = -1) -> Any:
    """The logarithm of Σ exp x along `axis`."""
    return jax.nn.logsumexp(x, axis)


summed = Pair(
    logsumexp,
    plain_logsumexp,
    inputs={"x": normal("T H")},
    dims={"T": (4, 1, 19), "H": (6, 1, 33)},
    options={"axis": (-1, 0)},
    regimes={"confident": lambda given: given | {"x": 20 * given["x"]}},
    composes=("jit", "vmap"),
)


@jax.custom_vjp
def rms_norm(x: Any, weight: Any) -> Any:
    """RMSNorm over the last axis, with a handwritten derivative and second derivative."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 0.125) * weight


@jax.custom_vjp
def _rms_norm_gradient(x: Any, weight: Any, dy: Any) -> Any:
    r = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 0.125)
    g = dy * weight
    return r * g - x * r**3 * (g * x).mean(-1, keepdims=True), (dy * x * r).sum(0)


def _rms_norm_second(kept: Any, cotangents: Any) -> Any:
    x, weight, dy = kept
    u, v = cotangents
    r = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 0.125)
    g, size = dy * weight, x.shape[-1]
    p = (g * x).mean(-1, keepdims=True)
    ux, ug = (u * x).sum(-1, keepdims=True), (u * g).sum(-1, keepdims=True)
    dr = ug - 3 * r**2 * p * ux + (dy * v * x).sum(-1, keepdims=True)
    dx = -u * r**3 * p - ux * r**3 * g / size + dy * v * r - dr * r**3 * x / size
    dg = u * r - ux * r**3 * x / size
    return dx, (dg * dy).sum(0), dg * weight + v * x * r


_rms_norm_gradient.defvjp(lambda x, weight, dy: (_rms_norm_gradient(x, weight, dy), (x, weight, dy)), _rms_norm_second)
rms_norm.defvjp(lambda x, weight: (rms_norm(x, weight), (x, weight)), lambda kept, dy: _rms_norm_gradient(*kept, dy))


def plain_rms_norm(x: Any, weight: Any) -> Any:
    """RMSNorm over the last axis."""
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 0.125) * weight


normed = Pair(
    rms_norm,
    plain_rms_norm,
    inputs={"x": normal("T H"), "weight": normal("H", mean=1.0, scale=0.3)},
    dims={"T": (3, 1, 17), "H": (4, 2, 31)},
    composes=("jit", "second_order"),
)


@jax.custom_vjp
def add_layer_norm(x: Any, residual: Any, affine: Any) -> Any:
    """{"y": LayerNorm(x + residual)·weight + bias, "h": x + residual}; `affine` is a dict of weight and bias."""
    h = x + residual
    centred = h - h.mean(-1, keepdims=True)
    r = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return {"y": centred * r * affine["weight"] + affine["bias"], "h": h}


def _add_layer_norm_backward(kept: Any, cotangents: Any) -> Any:
    h, weight = kept
    dy, dh = cotangents["y"], cotangents["h"]
    centred = h - h.mean(-1, keepdims=True)
    r = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    hat, g = centred * r, dy * weight
    dx = r * (g - g.mean(-1, keepdims=True) - hat * (g * hat).mean(-1, keepdims=True)) + dh
    return dx, dx, {"weight": (dy * hat).sum(0), "bias": dy.sum(0)}


add_layer_norm.defvjp(
    lambda x, residual, affine: (add_layer_norm(x, residual, affine), (x + residual, affine["weight"])),
    _add_layer_norm_backward,
)


def plain_add_layer_norm(x: Any, residual: Any, affine: Any) -> Any:
    """{"y": LayerNorm(x + residual)·weight + bias, "h": x + residual}."""
    h = x + residual
    centred = h - h.mean(-1, keepdims=True)
    y = centred / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5) * affine["weight"] + affine["bias"]
    return {"y": y, "h": h}


added = Pair(
    add_layer_norm,
    plain_add_layer_norm,
    inputs={
        "x": normal("T H"),
        "residual": normal("T H"),
        "affine": {"weight": normal("H", mean=1.0), "bias": normal("H")},
    },
    dims={"T": (3, 1, 16), "H": (5, 3, 24)},
    composes=("jit", "vmap"),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def group_norm(x: Any, weight: Any, groups: int = 1) -> Any:
    """RMSNorm of each group of channels."""
    return _grouped(x, groups)[0] * weight


def _grouped(x: Any, groups: int) -> Any:
    parted = x.reshape(*x.shape[:-1], groups, -1)
    r = jax.lax.rsqrt((parted * parted).mean(-1, keepdims=True) + 1e-6)
    return (parted * r).reshape(x.shape), r


def _group_norm_backward(groups: int, kept: Any, dy: Any) -> Any:
    x, weight = kept
    hat, r = _grouped(x, groups)
    g = (dy * weight).reshape(*x.shape[:-1], groups, -1)
    hats = hat.reshape(g.shape)
    dx = r * (g - hats * (g * hats).mean(-1, keepdims=True))
    return dx.reshape(x.shape), (dy * hat).sum(0)


group_norm.defvjp(lambda x, weight, groups: (group_norm(x, weight, groups), (x, weight)), _group_norm_backward)


def plain_group_norm(x: Any, weight: Any, groups: int = 1) -> Any:
    """RMSNorm of each group of channels."""
    parts = [part / jnp.sqrt((part**2).mean(-1, keepdims=True) + 1e-6) for part in jnp.split(x, groups, -1)]
    return jnp.concatenate(parts, -1) * weight


grouped = Pair(
    group_norm,
    plain_group_norm,
    inputs={"x": normal("T H"), "weight": normal("H", mean=1.0)},
    dims={"T": (3, 1, 9), "H": (4, 12)},
    options={"groups": (1, 2, 4)},
    composes=("jit",),
)


@jax.custom_vjp
def ragged_softmax(x: Any, lengths: Any) -> Any:
    """Softmax over the first `lengths` places of each row, 0 elsewhere."""
    keep = jnp.arange(x.shape[1]) < lengths[:, None]
    top = jnp.where(keep, x, -jnp.inf).max(-1, keepdims=True)
    y = jnp.where(keep, jnp.exp(jnp.where(keep, x - top, 0)), 0)
    return y / y.sum(-1, keepdims=True)


def _ragged_softmax_forward(x: Any, lengths: Any) -> Any:
    y = ragged_softmax(x, lengths)
    return y, y


ragged_softmax.defvjp(_ragged_softmax_forward, lambda y, dy: (y * (dy - (dy * y).sum(-1, keepdims=True)), None))


def plain_ragged_softmax(x: Any, lengths: Any) -> Any:
    """Softmax over the first `lengths` places of each row, 0 elsewhere."""
    return jax.nn.softmax(jnp.where(jnp.arange(x.shape[1]) < lengths[:, None], x, -jnp.inf), -1)


masked = Pair(
    ragged_softmax,
    plain_ragged_softmax,
    inputs={"x": normal("T S"), "lengths": integers("T", low=1, below="S + 1")},
    dims={"T": (4, 1, 12), "S": (5, 1, 30)},
    composes=("jit", "vmap"),
    regimes={"confident": lambda given: given | {"x": 20 * given["x"]}},
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def weighted_sum(x: Any, rate: Any, reverse: bool = False) -> Any:
    """Cumulative sums of x·exp(−rate) along axis 0, from either end."""
    return jax.lax.cumsum(x * jnp.exp(-rate), 0, reverse=reverse)


def _weighted_sum_backward(reverse: bool, kept: Any, dy: Any) -> Any:
    x, rate = kept
    summed = jax.lax.cumsum(dy, 0, reverse=not reverse)
    w = jnp.exp(-rate)
    return summed * w, -(summed * x * w).sum(0)


weighted_sum.defvjp(lambda x, rate, reverse: (weighted_sum(x, rate, reverse), (x, rate)), _weighted_sum_backward)


def plain_weighted_sum(x: Any, rate: Any, reverse: bool = False) -> Any:
    """Cumulative sums of x·exp(−rate) along axis 0, from either end."""
    y = x * jnp.exp(-rate)
    return jnp.cumsum(y[::-1], 0)[::-1] if reverse else jnp.cumsum(y, 0)


cumulative = Pair(
    weighted_sum,
    plain_weighted_sum,
    inputs={"x": normal("T H"), "rate": normal("H", scale=0.5)},
    dims={"T": (5, 1, 0, 24), "H": (3, 1)},
    options={"reverse": (False, True)},
    composes=("jit",),
)
