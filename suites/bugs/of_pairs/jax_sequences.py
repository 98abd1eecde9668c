"""Attention, scans, convolutions and dropout of JAX, with handwritten backward passes, and plain references."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from gradgate import Pair, key, normal, uniform

KEPT = 0.75
"""The share of the numbers that dropout keeps."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def attention(q: Any, k: Any, v: Any, causal: bool = False, block: int = 4) -> Any:
    """Attention of (N, D) queries, keys and values, `block` rows at a time, which keeps no N×N matrix."""
    return _forward(q, k, v, causal, block)[0]


def _scores(q: Any, k: Any, start: int, causal: bool) -> Any:
    scores = q @ k.T * q.shape[-1] ** -0.5
    rows = start + jnp.arange(len(q))
    return jnp.where(jnp.arange(len(k)) > rows[:, None], -jnp.inf, scores) if causal else scores


def _forward(q: Any, k: Any, v: Any, causal: bool, block: int) -> Any:
    outs, sums = [], []
    for start in range(0, len(q), block):
        scores = _scores(q[start : start + block], k, start, causal)
        lse = jax.nn.logsumexp(scores, -1, keepdims=True)
        outs.append(jnp.exp(scores - lse) @ v)
        sums.append(lse)
    out, lse = jnp.concatenate(outs), jnp.concatenate(sums)
    return out, (q, k, v, out, lse)


def _backward(causal: bool, block: int, kept: Any, do: Any) -> Any:
    q, k, v, out, lse = kept
    delta = (do * out).sum(-1, keepdims=True)
    dq, dk, dv = [], jnp.zeros_like(k), jnp.zeros_like(v)
    for start in range(0, len(q), block):
        rows = slice(start, start + block)
        p = jnp.exp(_scores(q[rows], k, start, causal) - lse[rows])
        ds = p * (do[rows] @ v.T - delta[rows]) * q.shape[-1] ** -0.5
        dq.append(ds @ k)
        dk += ds.T @ q[rows]
        dv += p.T @ do[rows]
    return jnp.concatenate(dq), dk, dv


attention.defvjp(_forward, _backward)


def plain_attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention of (N, D) queries, keys and values."""
    scores = q @ k.T * q.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones_like(scores, dtype=bool)), scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


attending = Pair(
    attention,
    plain_attention,
    inputs={"q": normal("N D"), "k": normal("N D"), "v": normal("N D")},
    dims={"N": (4, 1, 7, 13), "D": (3, 8)},
    options={"causal": (False, True), "block": (4, 1, 16)},
    composes=("jit",),
    regimes={"confident": lambda given: given | {"q": 10 * given["q"]}},
)


@jax.custom_vjp
def recurrence(a: Any, b: Any, start: Any) -> Any:
    """h_t = a_t·h_{t−1} + b_t: all states and the last."""
    last, states = jax.lax.scan(lambda h, ab: (ab[0] * h + ab[1],) * 2, start, (a, b))
    return states, last


def _recurrence_forward(a: Any, b: Any, start: Any) -> Any:
    states, last = recurrence(a, b, start)
    return (states, last), (a, states, start)


def _recurrence_backward(kept: Any, cotangents: Any) -> Any:
    a, states, start = kept
    dstates, dlast = cotangents
    before = jnp.concatenate([start[None], states[:-1]])

    def step(carry: Any, given: Any) -> Any:
        at, ht, dt = given
        carry = carry + dt
        return carry * at, (carry * ht, carry)

    dstart, (da, db) = jax.lax.scan(step, dlast, (a, before, dstates), reverse=True)
    return da, db, dstart


recurrence.defvjp(_recurrence_forward, _recurrence_backward)


def plain_recurrence(a: Any, b: Any, start: Any) -> Any:
    """h_t = a_t·h_{t−1} + b_t: all states and the last."""
    states, h = [], start
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return jnp.stack(states), h


recurring = Pair(
    recurrence,
    plain_recurrence,
    inputs={"a": uniform("T H", 0.3, 1.0), "b": normal("T H"), "start": normal("H")},
    dims={"T": (4, 1, 11), "H": (2, 5)},
    composes=("jit", "vmap", "second_order"),
)


@jax.custom_vjp
def short_convolution(x: Any, weight: Any) -> Any:
    """Causal convolution of each of C channels with K taps: (T, C), (K, C) -> (T, C)."""
    return sum((weight[lag] * _later(x, lag) for lag in range(len(weight))), jnp.zeros_like(x))


def _later(x: Any, lag: int) -> Any:
    return jnp.concatenate([jnp.zeros_like(x[:lag]), x[: max(0, len(x) - lag)]])


def _earlier(x: Any, lag: int) -> Any:
    return jnp.concatenate([x[lag:], jnp.zeros_like(x[:lag])])


def _short_convolution_backward(kept: Any, dy: Any) -> Any:
    x, weight = kept
    dx = sum((weight[lag] * _earlier(dy, lag) for lag in range(len(weight))), jnp.zeros_like(x))
    return dx, jnp.stack([(dy * _later(x, lag)).sum(0) for lag in range(len(weight))])


short_convolution.defvjp(lambda x, weight: (short_convolution(x, weight), (x, weight)), _short_convolution_backward)


def plain_short_convolution(x: Any, weight: Any) -> Any:
    """Causal convolution of each of C channels with K taps."""
    taps, channels = weight.shape
    return jax.lax.conv_general_dilated(
        x[None],
        weight[::-1, None, :],
        (1,),
        [(taps - 1, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=channels,
    )[0]


convolved = Pair(
    short_convolution,
    plain_short_convolution,
    inputs={"x": normal("T C"), "weight": normal("K C")},
    dims={"T": (5, 1, 2, 17), "C": (3, 1), "K": (4, 1)},
    composes=("jit",),
)


@jax.custom_vjp
def fourier_filter(x: Any, gain: Any) -> Any:
    """Real numbers times a real gain at each frequency: (T, H), (T // 2 + 1, H) -> (T, H)."""
    return jnp.fft.irfft(jnp.fft.rfft(x, axis=0) * gain, len(x), axis=0)


def _fourier_filter_backward(kept: Any, dy: Any) -> Any:
    x, gain = kept
    waves, back = jnp.fft.rfft(x, axis=0), jnp.fft.rfft(dy, axis=0)
    places = jnp.arange(len(gain))
    twice = jnp.where((places == 0) | (2 * places == len(x)), 1, 2)[:, None]  # their conjugates are left out
    dgain = twice * (waves * back.conj()).real / len(x)
    return jnp.fft.irfft(back * gain, len(x), axis=0), dgain.astype(gain.dtype)


fourier_filter.defvjp(lambda x, gain: (fourier_filter(x, gain), (x, gain)), _fourier_filter_backward)


def plain_fourier_filter(x: Any, gain: Any) -> Any:
    """Real numbers times a real gain at each frequency."""
    return jnp.fft.irfft(jnp.fft.rfft(x, axis=0) * gain, len(x), axis=0)


filtered = Pair(
    fourier_filter,
    plain_fourier_filter,
    inputs={"x": normal("T H"), "gain": normal("T//2+1 H")},
    dims={"T": (6, 1, 5, 16), "H": (2, 1)},
    composes=("jit", "vmap"),
    dtypes=("float64", "float32"),
)


@jax.custom_vjp
def dropout_linear(x: Any, weight: Any, seed: Any) -> Any:
    """Dropout and a matrix; the mask is drawn again in the backward pass, from the same key."""
    return x * _mask(seed, x) @ weight.T


def _mask(seed: Any, x: Any) -> Any:
    drawn = jax.random.uniform(jax.random.wrap_key_data(seed), x.shape, jnp.float32)  # the same in every dtype of x
    return (drawn < KEPT).astype(x.dtype) / KEPT


def _dropout_linear_backward(kept: Any, dy: Any) -> Any:
    x, weight, seed = kept
    keep = _mask(seed, x)
    return dy @ weight * keep, dy.T @ (x * keep), None


dropout_linear.defvjp(
    lambda x, weight, seed: (dropout_linear(x, weight, seed), (x, weight, seed)), _dropout_linear_backward
)


def plain_dropout_linear(x: Any, weight: Any, seed: Any) -> Any:
    """Dropout and a matrix."""
    drawn = jax.random.uniform(jax.random.wrap_key_data(seed), x.shape, jnp.float32)
    return jnp.where(drawn < KEPT, x / KEPT, 0) @ weight.T


dropped = Pair(
    dropout_linear,
    plain_dropout_linear,
    inputs={"x": normal("T H"), "weight": normal("V H", scale="H**-0.5"), "seed": key()},
    dims={"T": (3, 1, 12), "H": (8, 20), "V": (4, 2)},
    composes=("jit",),
)
