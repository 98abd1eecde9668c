"""Pallas kernels: gradients in JAX's interpreter, and compiled bytes if the profile's compiler accepts the kernel."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task
from gradgate.suites.tests.pairs.verdicts import judged

jax = pytest.importorskip("jax")
jnp = jax.numpy
pallas = pytest.importorskip("jax.experimental.pallas")


def _forward(x: Any, y: Any) -> None:
    y[...] = x[...] * jnp.tanh(x[...])


def _backward(x: Any, dy: Any, dx: Any) -> None:
    t = jnp.tanh(x[...])
    dx[...] = (t + x[...] * (1 - t * t)) * dy[...]


def _dropped(x: Any, dy: Any, dx: Any) -> None:
    t = jnp.tanh(x[...])
    dx[...] = t + x[...] * (1 - t * t)


def _gate(backward: Any, interpret: bool) -> Any:
    def call(kernel: Any, *given: Any) -> Any:
        shape = jax.ShapeDtypeStruct(given[0].shape, given[0].dtype)
        return pallas.pallas_call(kernel, out_shape=shape, interpret=interpret)(*given)

    @jax.custom_vjp
    def gate(x: Any) -> Any:
        return call(_forward, x)

    gate.defvjp(lambda x: (call(_forward, x), x), lambda x, dy: (call(backward, x, dy),))
    return lambda x: gate(x)


def _plain(x: Any) -> Any:
    return x * jnp.tanh(x)


def _pair(backward: Any = _backward, interpret: bool = True, **how: Any) -> Any:
    return gradgate.Pair(
        _gate(backward, interpret),
        reference=_plain,
        inputs={"x": normal("T H")},
        dims={"T": (8,), "H": (128,)},
        dtypes=("float32",),
        framework="jax",
        name="gate",
        **how,
    )


def test_an_interpreted_kernel_is_judged() -> None:
    told = judged(_pair(), ("gradient_float32", "gradient_exact"), 3)
    assert told["gradient_float32"].verdict == "upheld", told
    assert told["gradient_exact"].verdict == "upheld", told["gradient_exact"].reason


def test_a_kernel_that_drops_the_upstream_gradient_is_refuted() -> None:
    assert judged(_pair(_dropped), ("gradient_float32",), 3)["gradient_float32"].verdict == "refuted"


def _bytes(profile: str) -> Any:
    pair = _pair(interpret=False, claims=[gradgate.at_most("temp_bytes", of_reference=2, at={"T": 1024})])
    method = pair.lowered
    task = Task.of(method, method.claim("temp_bytes_of_reference"), profile=profile)
    return judge(task, Subject(method, pair), Run())


def test_a_profile_whose_compiler_takes_no_kernel_says_so_in_its_words() -> None:
    found = _bytes("cpu")
    assert found.verdict == "inapplicable", found
    assert "Only interpret mode is supported on CPU backend" in found.reason
