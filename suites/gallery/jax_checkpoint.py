# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/jax-ml/jax"
# framework = "jax"
# judges = "jax"
# seconds = 240
# ///
"""jax.checkpoint under each documented policy, checkpointed scans and associative_scan, against plain loops."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import gradgate
from gradgate import normal, uniform

ALL = ("jit", "vmap", "second_order")
POLICIES = jax.checkpoint_policies
NAMED = {
    "everything": POLICIES.everything_saveable,
    "nothing": POLICIES.nothing_saveable,
    "dots": POLICIES.dots_saveable,
    "dots_without_batch": POLICIES.dots_with_no_batch_dims_saveable,
    "only_these": POLICIES.save_only_these_names("first"),
    "any_except_these": POLICIES.save_anything_except_these_names("first"),
    "any_names_but_these": POLICIES.save_any_names_but_these("second"),
    "both": POLICIES.save_from_both_policies(POLICIES.dots_saveable, POLICIES.save_only_these_names("second")),
}
"""Name -> a documented policy that keeps values where they are."""
OFFLOADING = {
    "dots": POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host"),
    "names": POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=["first"],
        names_which_can_be_offloaded=["second"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}
"""Name -> a documented policy that moves values to the host."""


def layer(w, x):
    """A residual layer, its two intermediate values named. w: (2, H, H); x: (T, H)."""
    first = checkpoint_name(jnp.tanh(x @ w[0]), "first")
    second = checkpoint_name(jnp.sin(first @ w[1]), "second")
    return x + second * first


def plain_layers(w, x):
    """The reference for `layers`."""
    for each in w:
        x = x + jnp.sin(jnp.tanh(x @ each[0]) @ each[1]) * jnp.tanh(x @ each[0])
    return x


def layers(w, x, policy="nothing"):
    """Layers, each under jax.checkpoint with a policy. w: (L, 2, H, H)."""
    step = jax.checkpoint(layer, policy=NAMED[policy])
    for each in w:
        x = step(each, x)
    return x


def offloaded(w, x, policy="dots"):
    """As `layers`, with a policy that offloads."""
    step = jax.checkpoint(layer, policy=OFFLOADING[policy])
    for each in w:
        x = step(each, x)
    return x


def scanned(w, x):
    """The layers as a scan whose body is under jax.checkpoint."""
    step = jax.checkpoint(lambda x, each: (layer(each, x), None), prevent_cse=False)
    return jax.lax.scan(step, x, w)[0]


def plain_scan(w, x):
    """The reference for `scanned`: a scan without checkpoints."""
    return jax.lax.scan(lambda x, w: (x + jnp.sin(jnp.tanh(x @ w[0]) @ w[1]) * jnp.tanh(x @ w[0]), None), x, w)[0]


def run(a, h, x):
    """The states of h ← tanh(a·h + x), and the last. a, h: (N,); x: (T, N)."""
    return jax.lax.scan(lambda h, x: (jnp.tanh(a * h + x),) * 2, h, x)


def rows(a, x):
    """The states of a recurrence by two nested scans; only the outer scan's states are kept. a: (N,); x: (R, 8, N)."""
    last, _ = jax.lax.scan(jax.checkpoint(lambda h, x: (run(a, h, x)[0], None)), jnp.zeros_like(a), x)
    return last


def plain_rows(a, x):
    """The reference for `rows`."""
    return run(a, jnp.zeros_like(a), x.reshape(-1, len(a)))[0]


def recurrence(a, x):
    """The states of h ← a·h + x, by jax.lax.associative_scan. a, x: (T, N)."""
    return jax.lax.associative_scan(lambda one, two: (two[0] * one[0], two[0] * one[1] + two[1]), (a, x))[1]


def plain_recurrence(a, x):
    """The reference for `recurrence`, step by step."""
    return jax.lax.scan(lambda h, row: (row[0] * h + row[1],) * 2, jnp.zeros_like(x[0]), (a, x))[1]


WEIGHTS = {"w": normal("L 2 H H", scale="H**-0.5"), "x": normal("T H")}
LONG = {"T": 64, "H": 32, "L": 8}
every_policy = gradgate.Pair(
    layers,
    reference=plain_layers,
    inputs=WEIGHTS,
    dims={"T": (3, 1), "H": (2, 1), "L": (2, 1)},
    composes=ALL,
    options={"policy": tuple(NAMED)},
    name="jax_checkpoint_policies",
)
offloading = gradgate.Pair(
    offloaded,
    reference=plain_layers,
    inputs=WEIGHTS,
    dims={"T": (3, 1), "H": (2, 1), "L": (1, 2)},
    composes=ALL,
    options={"policy": tuple(OFFLOADING)},
    name="jax_checkpoint_offloading",
    expected=dict.fromkeys(
        ("second_order_exact", "second_order"),
        "a value that the policy moved to the host has a cotangent on the device, and the transposition raises",
    ),
)
nothing_saved = gradgate.Pair(
    functools.partial(layers, policy="nothing"),
    reference=plain_layers,
    inputs=WEIGHTS,
    composes=("jit",),
    dims={"T": (3, 1, 7), "H": (2, 1), "L": (2, 3)},
    claims=[gradgate.at_most("residual_bytes", of_reference=0.7, at=LONG)],
    name="jax_checkpoint_nothing_saved",
)
checkpointed_scan = gradgate.Pair(
    scanned,
    reference=plain_scan,
    inputs=WEIGHTS,
    dims={"T": (3, 1), "H": (2, 1), "L": (2, 3)},
    composes=ALL,
    name="jax_scan_of_checkpoint",
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5, at={"T": 256, "H": 8, "L": 8})],
)
nested_scan = gradgate.Pair(
    rows,
    reference=plain_rows,
    inputs={"a": uniform("N", 0.5, 1.0), "x": normal("R 8 N")},
    composes=ALL,
    dims={"N": (2, 1), "R": (2, 1, 3)},
    name="jax_nested_scan",
    claims=[gradgate.grows("residual_bytes", R=1), gradgate.at_most("residual_bytes", of_reference=0.6, at={"R": 64})],
)
associative = gradgate.Pair(
    recurrence,
    reference=plain_recurrence,
    inputs={"a": uniform("T N", 0.5, 1.0), "x": normal("T N")},
    composes=ALL,
    dims={"T": (5, 1, 2, 16), "N": (2, 1)},
    name="jax_associative_scan",
)
