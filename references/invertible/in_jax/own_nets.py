"""Networks on which `invertible_sequential` is judged, and the same networks as plain functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.invertible.in_jax.own_layers import (
    additive_coupling,
    affine_coupling,
    invertible_layer,
    keep,
)
from gradgate.references.invertible.in_jax.sequential import invertible_sequential


def inner(p: Any, x: Any) -> Any:
    """The function inside a coupling."""
    return jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]


def revnet(params: Any, x: Any, *, method: str = "reversible") -> Any:
    """An additive block, an affine one, and the additive one's parameters again."""
    additive, affine = additive_coupling(inner, inner), affine_coupling(inner, inner)
    apply = invertible_sequential([additive, affine, additive], method=method)
    return apply([params["shift"], params["scale"], params["shift"]], x)


def plain_revnet(params: Any, x: Any) -> Any:
    """The same by plain backprop."""

    def block(p: Any, x: Any, affine: bool) -> Any:
        first = x.shape[-1] // 2
        x1, x2 = x[..., :first], x[..., first:]

        def moved(half: Any, found: Any) -> Any:
            if not affine:
                return half + found
            shift, raw = found[..., : half.shape[-1]], found[..., half.shape[-1] :]
            return half * jnp.exp(0.5 * jnp.tanh(raw)) + shift

        y1 = moved(x1, inner(p["f"], x2))
        return jnp.concatenate([y1, moved(x2, inner(p["g"], y1))], -1)

    x = block(params["shift"], x, False)
    x = block(params["scale"], x, True)
    return block(params["shift"], x, False)


def noisy_inner(p: Any, x: Any, *, key: Any, state: Any) -> Any:
    """Like `inner`, with a running mean and dropout."""
    z = jnp.tanh(x @ p["w"] + p["b"])
    kept = jax.random.uniform(key, z.shape, jnp.float32) < 0.75
    mean = z.mean(0)
    after = {"mean": 0.9 * state["mean"] + 0.1 * jax.lax.stop_gradient(mean)}
    return jnp.where(kept, (z - mean) / 0.75, 0) @ p["v"], after


def noisy(params: Any, x: Any, mean: Any, key: Any, *, method: str = "reversible") -> Any:
    """Two additive blocks that draw random numbers and have running means."""
    block = additive_coupling(noisy_inner, noisy_inner, random=True, stateful=True)
    state = [{"f": {"mean": mean}, "g": {"mean": mean}}] * 2
    y, after = invertible_sequential([block, block], method=method)([params, params], x, key=key, state=state)
    return y, [leaf for held in after for leaf in (held["f"]["mean"], held["g"]["mean"])]


def plain_noisy(params: Any, x: Any, mean: Any, key: Any) -> Any:
    """The same by plain backprop."""
    means = []
    for i in range(2):
        first = x.shape[-1] // 2
        f_key, g_key = jax.random.split(jax.random.fold_in(key, i))
        found, f_after = noisy_inner(params["f"], x[..., first:], key=f_key, state={"mean": mean})
        y1 = x[..., :first] + found
        found, g_after = noisy_inner(params["g"], y1, key=g_key, state={"mean": mean})
        x = jnp.concatenate([y1, x[..., first:] + found], -1)
        means += [jax.lax.stop_gradient(f_after["mean"]), jax.lax.stop_gradient(g_after["mean"])]
    return x, means


def leaky(p: Any, x: Any) -> Any:
    """A leaky ReLU."""
    return jnp.where(x > 0, x, 0.5 * x)


def leaky_inverse(p: Any, y: Any) -> Any:
    """Its inverse."""
    return jnp.where(y > 0, y, 2 * y)


def scaled(p: Any, x: Any) -> Any:
    """Every number times e^(½·tanh a), plus b."""
    return x * jnp.exp(0.5 * jnp.tanh(p["a"])) + p["b"]


def scaled_inverse(p: Any, y: Any) -> Any:
    """Its inverse."""
    return (y - p["b"]) * jnp.exp(-0.5 * jnp.tanh(p["a"]))


def shorter(p: Any, x: Any) -> Any:
    """The sums of two neighbours, one number fewer: not invertible, but ∂J/∂x determines ∂J/∂y."""
    return x[:, 1:] + x[:, :-1]


def shorter_vijp(p: Any, x: Any, h: Any) -> Any:
    """h_x[0] = h_y[0] and h_x[i] = h_y[i] + h_y[i − 1]."""
    found = [h[:, 0]]
    for i in range(1, h.shape[1] - 1):
        found.append(h[:, i] - found[-1])
    return jnp.stack(found, 1)


def own_layers(params: Any, x: Any, *, method: str = "reversible", tangents: int = 1, coupled: bool = True) -> Any:
    """Layers with an inverse; one with a vijp, which reversing keeps; and one that is kept, except by forward mode."""
    linear, activation = invertible_layer(scaled, scaled_inverse), invertible_layer(leaky, leaky_inverse)
    middle = keep(shorter) if method == "reversible" else invertible_layer(shorter, vijp=shorter_vijp)
    last = linear if method == "moonwalk" else keep(scaled)
    apply = invertible_sequential([linear, activation, middle, last], method=method, tangents=tangents, coupled=coupled)
    return apply([params["one"], {}, {}, params["other"]], x)


def plain_own_layers(params: Any, x: Any) -> Any:
    """The same by plain backprop."""
    return scaled(params["other"], shorter({}, leaky({}, scaled(params["one"], x))))
