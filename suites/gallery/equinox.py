# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/equinox"
# framework = "jax"
# judges = "equinox"
# seconds = 200
# ///
"""Checkpointed and bounded loops of equinox 0.13.8, its filtered checkpoint and its modules, against plain loops."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp

import gradgate
from gradgate import normal, uniform


def step(a, h, x):
    """One step of a recurrence; a, h: (N,)."""
    return jnp.tanh(a * h + x)


def plain_loop(a, h, x):
    """The state after the last step, in a Python loop. a, h: (N,); x: (T,)."""
    for t in range(len(x)):
        h = step(a, h, x[t])
    return h


def checkpointed(a, h, x, checkpoints=2):
    """The recurrence by a while loop that keeps some states only."""

    def body(state):
        t, h = state
        return t + 1, step(a, h, x[t])

    found = eqxi.while_loop(
        lambda state: state[0] < len(x), body, (0, h), max_steps=len(x), kind="checkpointed", checkpoints=checkpoints
    )
    return found[1]


def bounded(a, h, x, base=16):
    """The recurrence by nested scans of at most `base` steps, which stop when the condition is false."""

    def body(state):
        t, h = state
        return t + 1, step(a, h, x[t])

    steps = len(x) + 3
    return eqxi.while_loop(lambda state: state[0] < len(x), body, (0, h), max_steps=steps, kind="bounded", base=base)[1]


def scanned(a, h, x, checkpoints=2):
    """The recurrence and all of its states by a checkpointed scan."""

    def body(h, x):
        h = step(a, h, x)
        return h, h

    return eqxi.scan(body, h, x, kind="checkpointed", checkpoints=checkpoints)


def plain_scan(a, h, x):
    """The reference for `scanned`."""
    return jax.lax.scan(lambda h, x: (step(a, h, x),) * 2, h, x)


def filtered(w, x):
    """Two layers under filter_checkpoint. w: (2, H, H); x: (T, H)."""
    layer = eqx.filter_checkpoint(lambda w, x, activation: activation(x @ w))
    return layer(w[1], layer(w[0], x, jnp.tanh), jnp.sin)


def attention(w, x):
    """Equinox's attention with two heads, without biases. w: (4, 4, 4); x: (T, 4)."""
    module = eqx.nn.MultiheadAttention(2, 4, key=jax.random.key(0))
    names = ("query_proj", "key_proj", "value_proj", "output_proj")
    module = eqx.tree_at(lambda m: [getattr(m, name).weight for name in names], module, list(w))
    return module(x, x, x)


def plain_attention(w, x):
    """The reference for `attention`, head by head."""
    q, k, v = x @ w[0].T, x @ w[1].T, x @ w[2].T
    parts = []
    for head in (slice(0, 2), slice(2, 4)):
        weight = jnp.exp(q[:, head] @ k[:, head].T / jnp.sqrt(jnp.asarray(2.0, x.dtype)))
        parts.append(weight / weight.sum(-1, keepdims=True) @ v[:, head])
    return jnp.concatenate(parts, -1) @ w[3].T


LOOP = {"a": uniform("N", 0.5, 1.0), "h": normal("N"), "x": normal("T")}
SIZES = {"T": (5, 1, 8), "N": (2, 1)}
KEPT = gradgate.at_most("residual_bytes", of_reference=0.2, at={"T": 64, "N": 64})
LINEAR = gradgate.grows("residual_bytes", N=1, at={"T": 32})
while_checkpointed = gradgate.Pair(
    checkpointed,
    reference=plain_loop,
    inputs=LOOP,
    dims=SIZES,
    options={"checkpoints": (2, 1, 5)},
    composes=("jit", "vmap"),
    name="equinox_while_loop_checkpointed",
    claims=[KEPT, LINEAR],
)
while_bounded = gradgate.Pair(
    bounded,
    reference=plain_loop,
    inputs=LOOP,
    dims=SIZES,
    options={"base": (16, 2)},
    composes=("jit", "vmap", "second_order"),
    name="equinox_while_loop_bounded",
)
scan_checkpointed = gradgate.Pair(
    scanned,
    reference=plain_scan,
    inputs=LOOP,
    dims=SIZES,
    options={"checkpoints": (2, 1, 5)},
    composes=("jit", "vmap"),
    name="equinox_scan_checkpointed",
    claims=[gradgate.at_most("residual_bytes", of_reference=0.4, at={"T": 64, "N": 64})],
)
filter_checkpoint = gradgate.Pair(
    filtered,
    reference=lambda w, x: jnp.sin(jnp.tanh(x @ w[0]) @ w[1]),
    dims={"T": (3, 1), "H": (2, 1, 5)},
    inputs={"w": normal("2 H H", scale="H**-0.5"), "x": normal("T H")},
    composes=("jit", "vmap", "second_order"),
    name="equinox_filter_checkpoint",
    claims=[gradgate.at_most("residual_bytes", of_reference=0.9, at={"T": 256})],
)
multihead = gradgate.Pair(
    attention,
    reference=plain_attention,
    dims={"T": (3, 1, 4)},
    inputs={"w": normal("4 4 4"), "x": normal("T 4")},
    composes=("jit", "vmap", "second_order"),
    name="equinox_attention",
)
