"""Rules that equinox, flax and haiku wrap are named after what they wrap, and judged like any others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import itertools

import jax
import jax.numpy as jnp

X = jnp.arange(1.0, 5.0)[None]
DRAWS = itertools.count(1.0)


def drawn():
    return jax.pure_callback(lambda: jnp.float32(next(DRAWS)), jnp.float32(0))

"""
SCRIPTS = {
    "equinox": """
import equinox as eqx


@eqx.filter_custom_vjp
def right(x):
    return jnp.sin(x)


@eqx.filter_custom_vjp
def wrong(x):
    return jnp.sin(x)


for rule, factor in ((right, 1), (wrong, 2)):
    rule.def_fwd(lambda perturbed, x, rule=rule: (rule(x), None))
    rule.def_bwd(lambda residuals, g, perturbed, x, factor=factor: factor * g * jnp.cos(x))
    eqx.filter_grad(lambda x: rule(x).sum())(X)


@eqx.filter_custom_jvp
def right_forward(x, power):
    return x**power


@eqx.filter_custom_jvp
def wrong_forward(x, power):
    return x**power


for rule, less in ((right_forward, 1), (wrong_forward, 2)):
    rule.def_jvp(
        lambda primals, tangents, rule=rule, less=less: (
            rule(*primals), primals[1] * primals[0] ** (primals[1] - less) * tangents[0],
        )
    )
    eqx.filter_grad(lambda x: rule(x, 3).sum())(X)


class Block(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return jnp.tanh(self.weight * x)


class Moving(Block):
    def inner(self, x):
        return jnp.tanh(self.weight * x) * drawn()


eqx.filter_grad(lambda module: eqx.filter_checkpoint(module)(X).sum())(Block(X))
eqx.filter_grad(lambda module: eqx.filter_checkpoint(module.inner)(X).sum())(Moving(X))
""",
    "flax": """
import flax.linen as nn
from flax import nnx


class Right(nn.Module):
    @nn.compact
    def __call__(self, x):
        def right(module, x):
            return module(x)

        def forward(module, x):
            return nn.vjp(right, module, x)

        def backward(pull, g):
            return pull(g)

        return nn.custom_vjp(right, forward_fn=forward, backward_fn=backward)(nn.Dense(2), x)


class Wrong(nn.Module):
    @nn.compact
    def __call__(self, x):
        def wrong(module, x):
            return module(x)

        def forward(module, x):
            return nn.vjp(wrong, module, x)

        def backward(pull, g):
            params, dx = pull(g)
            return jax.tree.map(lambda leaf: 2 * leaf, params), dx

        return nn.custom_vjp(wrong, forward_fn=forward, backward_fn=backward)(nn.Dense(2), x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return jnp.tanh(nn.Dense(2)(x))


class Moving(nn.Module):
    @nn.compact
    def __call__(self, x):
        return jnp.tanh(nn.Dense(2)(x)) * drawn()


for module in (Right(), Wrong(), nn.remat(Block)(), nn.remat(Moving)()):
    variables = module.init(jax.random.key(0), X)
    jax.grad(lambda variables: module.apply(variables, X).sum())(variables)


class Pair(nnx.Module):
    def __init__(self):
        self.x, self.y = nnx.Param(jnp.array(1.0)), nnx.Param(jnp.array(2.0))


def backward(factor):
    def given(residuals, g):
        cosine, sine, m = residuals
        [found] = g[0]
        found["x"][...] = cosine * g[1] * m.y[...]
        found["y"][...] = factor * sine * g[1]
        return (found,)

    return given


@nnx.custom_vjp
def right_pair(m):
    return jnp.sin(m.x[...]) * m.y[...]


@nnx.custom_vjp
def wrong_pair(m):
    return jnp.sin(m.x[...]) * m.y[...]


for rule, factor in ((right_pair, 1), (wrong_pair, 3)):
    rule.defvjp(lambda m, rule=rule: (rule(m), (jnp.cos(m.x[...]), jnp.sin(m.x[...]), m)), backward(factor))
    nnx.grad(rule)(Pair())
""",
    "haiku": """
import haiku as hk


def net(x):
    linear = hk.Linear(3)

    def right(x):
        return jnp.tanh(linear(x))

    def wrong(x):
        return jnp.tanh(linear(x)) * drawn()

    return (hk.remat(right)(x) + hk.remat(wrong)(x)).sum()


made = hk.transform(net)
params = made.init(jax.random.key(0), X)
jax.grad(lambda params: made.apply(params, None, X))(params)
""",
}
STATES = {
    "equinox": {
        "right": "upheld",
        "wrong": "refuted",
        "right_forward": "upheld",
        "wrong_forward": "refuted",
        "Block.__call__": "upheld",
        "Moving.inner": "refuted",
    },
    "flax": {
        "Right.__call__.<locals>.right": "upheld",
        "Wrong.__call__.<locals>.wrong": "refuted",
        "Block.__call__": "upheld",
        "Moving.__call__": "refuted",
        "right_pair": "upheld",
        "wrong_pair": "refuted",
    },
    "haiku": {"net.<locals>.right": "upheld", "net.<locals>.wrong": "refuted"},
}


@pytest.mark.parametrize("wrapper", list(SCRIPTS))
def test_rules_of_modules_are_judged(
    wrapper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradgate: Callable[..., Any], jax: Any
) -> None:
    pytest.importorskip(wrapper)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(HEAD + SCRIPTS[wrapper])
    ran = gradgate("watch", "--json", "rules.json", "script.py")
    document = json.loads((tmp_path / "rules.json").read_text())
    states = {one["name"].partition(":")[2]: one["state"] for one in document["rules"]}
    assert states == STATES[wrapper], ran.out
    assert {one["file"] for one in document["rules"]} == {"script.py"}
