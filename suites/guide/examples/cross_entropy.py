"""Linear cross entropy in blocks of tokens, in JAX: the logits of all tokens never exist at once."""

import functools

import jax
import jax.numpy as jnp

import gradgate
from gradgate import integers, normal


def plain(x, weight, labels):
    """Mean cross entropy. x: (T, H); weight: (V, H); labels: (T,), int32."""
    logits = x @ weight.T
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(len(x)), labels])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def fused(x, weight, labels, block=32):
    """As `plain`. The gradient is computed in the forward pass, `block` tokens at a time."""
    return _forward(x, weight, labels, block)[0]


def _forward(x, weight, labels, block):
    tokens, width = x.shape
    block = min(block, tokens)
    short = -tokens % block
    rows = jnp.pad(x, ((0, short), (0, 0))).reshape(-1, block, width)
    wanted = jnp.pad(labels, (0, short)).reshape(-1, block)
    real = (jnp.arange(tokens + short) < tokens).reshape(-1, block)

    def step(carry, given):
        total, dweight = carry
        x, labels, real = given
        logits = x @ weight.T
        lse = jax.nn.logsumexp(logits, axis=1)
        here = jnp.arange(block)
        # exp(logits - lse) would lose digits in proportion to the logits, which are large where the model is confident
        d = jax.nn.softmax(logits, axis=1).at[here, labels].add(-1) * (real / tokens)[:, None]
        d = d.astype(x.dtype)
        return (total + jnp.sum((lse - logits[here, labels]) * real), dweight + d.T @ x), d @ weight

    (total, dweight), dx = jax.lax.scan(step, (jnp.zeros((), x.dtype), jnp.zeros_like(weight)), (rows, wanted, real))
    return (total / tokens).astype(x.dtype), (dx.reshape(-1, width)[:tokens], dweight)


def _backward(block, kept, upstream):
    dx, dweight = kept
    return upstream * dx, upstream * dweight, None


fused.defvjp(_forward, _backward)

cross_entropy = gradgate.Pair(
    fused,
    reference=plain,
    inputs={"x": normal("T H"), "weight": normal("V H", scale="H**-0.5"), "labels": integers("T", below="V")},
    dims={"T": (1, 3, 64, 127), "H": (1, 31), "V": (2, 127)},
    options={"block": (1, 7, 32)},
    regimes={"confident": lambda given: given | {"x": 50 * given["x"]}},
    composes=("jit", "vmap"),
    claims=[gradgate.grows("temp_bytes", T=1, never="T*V", sizes={"T": (256, 512, 1024, 2048, 4096)}, at={"H": 64})],
)
