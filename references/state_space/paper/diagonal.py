"""The selective diagonal SSM of §4.5 and Table 1, whose A, B and C are N numbers each, at the sizes of Fig. 1.

In the class's own problems only A has a structure: B and C are N·P numbers, as in §3.1, and backprop stores them. Table
1 counts N numbers. So this module has another stack, with N = P = d and all three maps diagonal:
h^t = a^t ⊙ h^{t−1} + b^t ⊙ ŷ^t and y_k = y_{k−1} + c^t ⊙ h^t. A net is one dense layer, and Norm is left out. The paper
prints neither widths nor numbers of layers of its five models. Here each has the 100 layers of Fig. 6, and d is the
integer for which 100·3(d² + d) comes nearest to the printed number of parameters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

LAYERS = 100
MODELS = {"32M": 32e6, "63M": 63e6, "127M": 127e6, "225M": 225e6, "1.27B": 1.27e9}
"""Fig. 1's models by name, and their parameters."""
P4 = 5 * 8 * 40e9
"""Bytes of five P4 instances: 8 GPUs of 40 GB each."""


def maps(p: Any, x: Any) -> tuple[Any, Any, Any]:
    """ŷ (…, d) -> a in (0, 1), b and c, all (…, d)."""
    import jax

    a, b, c = (x @ p[net]["w"] + p[net]["b"] for net in "ABC")
    return jax.nn.sigmoid(a), b, c


def layer(y: Any, p: Any) -> tuple[Any, None]:
    """y_{k−1} -> y_k, both (T, batch, d)."""
    import jax
    import jax.numpy as jnp

    a, b, c = maps(p, y)

    def step(h: Any, xs: tuple[Any, Any]) -> tuple[Any, Any]:
        h = xs[0] * h + xs[1]
        return h, h

    return y + c * jax.lax.scan(step, jnp.zeros_like(y[0]), (a, b * y))[1], None


def backprop(params: Any, y: Any) -> Any:
    """The gradient of ½ Σ y_K² at y_0 (T, batch, d), by reverse-mode differentiation."""
    return _differentiated(layer, params, y)


def checkpointed(params: Any, y: Any) -> Any:
    """The same gradient; only the input of each layer is kept, and the rest is computed again."""
    import jax

    return _differentiated(jax.checkpoint(layer), params, y)


def _differentiated(layer: Callable[..., Any], params: Any, y: Any) -> Any:
    import jax

    return jax.grad(lambda params: 0.5 * (jax.lax.scan(layer, y, params)[0] ** 2).sum())(params)


def adjoint_sharding(params: Any, y: Any) -> Any:
    """The same gradient by one VJP per token t and token i ≤ t; y and h of every layer are kept (Prop. 3 corrected).

    The VJP of C runs together with that of A and B; its cotangent is 0 unless i = t. Bytes are measured here, not work.
    """
    import jax
    import jax.numpy as jnp

    T = y.shape[0]

    def forward(y: Any, p: Any) -> tuple[Any, tuple[Any, Any]]:
        def token(h: Any, x: Any) -> tuple[Any, tuple[Any, Any]]:
            a, b, c = maps(p, x)
            h = a * h + b * x
            return h, (h, x + c * h)

        _, (h, out) = jax.lax.scan(token, jnp.zeros_like(y[0]), y)
        return out, (y, h)

    def backward(g: Any, xs: tuple[Any, Any]) -> tuple[Any, Any]:
        p, (y, h) = xs

        def pair(carry: Any, _: None) -> tuple[Any, None]:
            t, i, mu, grads, dx = carry
            x, before = y[i], jnp.where(i > 0, h[jnp.maximum(i - 1, 0)], 0)
            (a, b, c), pull = jax.vjp(maps, p, x)
            mu = jnp.where(i == t, c * g[i], mu)  # the walk of token t begins here, with the VJP of C
            dp, dx_nets = pull((mu * before, mu * x, jnp.where(i == t, g[i] * h[i], 0)))
            dx = dx.at[i].add(dx_nets + b * mu)
            t, i = jnp.where(i == 0, t + 1, t), jnp.where(i == 0, t + 1, i - 1)
            return (t, i, a * mu, jax.tree.map(jnp.add, grads, dp), dx), None

        def some(carry: Any, _: None) -> tuple[Any, None]:
            return jax.lax.scan(pair, carry, None, rows)

        # XLA counts a loop in 32 bits, which T²/2 exceeds at T = 65536.
        rows, columns = (T // 2, T + 1) if T % 2 == 0 else (T, (T + 1) // 2)
        start = (0, 0, jnp.zeros_like(g[0]), jax.tree.map(jnp.zeros_like, p), jnp.zeros_like(g))
        (*_, grads, dx), _ = jax.lax.scan(some, start, None, columns)
        return g + dx, grads

    top, kept = jax.lax.scan(forward, y, params)
    return jax.lax.scan(backward, top, (params, kept), reverse=True)[1]


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "backprop": backprop,
    "adjoint_sharding": adjoint_sharding,
    "checkpointed": checkpointed,
}


def width(model: str) -> int:
    """d, from the number of parameters."""
    return round(math.sqrt(MODELS[model] / (3 * LAYERS) + 0.25) - 0.5)


def parameters(d: int, layers: int, dtype: str = "float32") -> Any:
    """The shapes of the parameters: net -> ``w`` (K, d, d) and ``b`` (K, d)."""
    import jax

    shape = jax.ShapeDtypeStruct
    return {net: {"w": shape((layers, d, d), dtype), "b": shape((layers, d), dtype)} for net in "ABC"}


@functools.lru_cache(maxsize=64)
def training_bytes(method: str, model: str, length: int, profile: str = "cpu") -> int:
    """Bytes of one step of training with Adam in float32, batch 2, on one device, compiled.

    Raises:
        LookupError: the compiler gives no bytes; says why.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.hw_profiles.compile import measure

    def step(params: Any, first: Any, second: Any, y: Any) -> Any:
        grads = METHODS[method](params, y)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        return jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second), first, second

    params = parameters(width(model), LAYERS)
    y = jax.ShapeDtypeStruct((length, 2, width(model)), "float32")
    found = measure(step, (params, params, params, y), profile, donate=(0, 1, 2))
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes


LENGTHS = (10_000, 100_000, 1_000_000)


def curves(model: str) -> dict[str, list[float]]:
    """Fig. 1: GB of a step of training over the length."""
    return {"tokens": [float(T) for T in LENGTHS]} | {
        method: [training_bytes(method, model, T) / 1e9 for T in LENGTHS] for method in ("backprop", "adjoint_sharding")
    }


def saving(model: str, length: int, method: str = "backprop", profile: str = "cpu") -> float:
    """Bytes of backprop, or of another method, over those of adjoint sharding, by a profile's compiler."""
    of_method, ours = (training_bytes(name, model, length, profile) for name in (method, "adjoint_sharding"))
    return of_method / ours


def largest_saving(length: int) -> float:
    """The largest `saving` of the five models."""
    return max(saving(model, length) for model in MODELS)


def states_over_rest(model: str, length: int) -> float:
    """The bytes of parameters, gradients and Adam's moments, over all others of backprop."""
    d = width(model)
    states = 4 * 4 * LAYERS * 3 * (d * d + d)
    return states / (training_bytes("backprop", model, length) - states)


def longest(method: str, model: str = "1.27B", profile: str = "cpu") -> float:
    """The number of tokens at which a step takes the bytes of five P4 instances, on the line through two lengths.

    All bytes are divided evenly, and nothing is on two devices, which is the best possible case.
    """
    low, high = LENGTHS[0], LENGTHS[-1]
    first, last = (training_bytes(method, model, T, profile) for T in (low, high))
    return low + (P4 - first) * (high - low) / (last - first)


def more_tokens(over: str = "backprop", profile: str = "cpu") -> float:
    """The longest context of adjoint sharding over that of another method."""
    return longest("adjoint_sharding", profile=profile) / longest(over, profile=profile)
