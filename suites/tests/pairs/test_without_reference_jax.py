"""Pairs of JAX that name no reference: the gradient must be the derivative of the function's own forward pass."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.tests.pairs.verdicts import judged

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytest.importorskip("jax.experimental.pallas")

from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402
from jax.experimental.pallas.ops.gpu import layer_norm  # noqa: E402

from gradgate.suites.pairs.forward_jax import forward_of  # noqa: E402
from gradgate.suites.tests.exact.pallas_kernels import KERNELS, norm  # noqa: E402


def _verdict(function: Any, inputs: Any, dims: Any, claim: str = "gradient_exact", **how: Any) -> Any:
    settings = {"dtypes": ("float64",), "framework": "jax", "name": "itself", **how}
    pair = gradgate.Pair(function, reference=None, inputs=inputs, dims=dims, **settings)
    return judged(pair, (claim,), 1)[claim]


@pytest.mark.parametrize("fault", ["", "term", "ulp"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_against_itself_has_the_verdict_that_it_has_against_a_reference(name: str, fault: str) -> None:
    kernel = KERNELS[name]
    found = _verdict(kernel.make(fault), kernel.inputs, kernel.dims)
    assert found.verdict == ("refuted" if fault else "upheld"), found.reason
    assert not fault or found.examples == 1


def test_what_the_claim_says_and_that_no_claim_about_outputs_is_made() -> None:
    kernel = KERNELS["gate"]
    pair = gradgate.Pair(kernel.make(), reference=None, inputs=kernel.inputs, dims=kernel.dims, framework="jax")
    claims = {claim.name: claim.statement for claim in pair.lowered.claims}
    assert "whether that is what it should compute is not judged" in claims["gradient_exact"]
    assert "outputs" not in claims


def test_floats_vmap_and_jit_of_a_kernel_against_itself() -> None:
    kernel = KERNELS["norm"]
    pair = gradgate.Pair(
        kernel.make(),
        reference=None,
        inputs=kernel.inputs,
        dims=kernel.dims,
        dtypes=("float32", "bfloat16"),
        composes=("jit", "vmap"),
        framework="jax",
        name="norm",
    )
    found = judged(pair, ("gradient_float32", "gradient_bfloat16", "jit", "vmap"), 2)
    assert {verdict.verdict for verdict in found.values()} == {"upheld"}, found


def _squared(wrong: bool) -> Any:
    @jax.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, dy: (dy * x * (2 + wrong),))
    return square


@pytest.mark.parametrize("where", ["plain", "jit", "scan", "cond", "while", "vmap"])
def test_a_custom_derivative_is_taken_away_wherever_it_is(where: str) -> None:
    def function(square: Any, x: Any) -> Any:
        if where == "jit":
            return jax.jit(square)(x)
        if where == "scan":
            return jax.lax.scan(lambda carry, row: (square(carry + row), square(row)), x[0], x)
        if where == "cond":
            return jax.lax.cond(x.sum() > 0, square, lambda x: 3 * square(x), x)
        if where == "while":
            return jax.lax.fori_loop(0, 2, lambda _, y: square(y), x)
        return jax.vmap(square)(x) if where == "vmap" else square(x)

    for wrong in (False, True):
        found = _verdict(
            lambda x, wrong=wrong: function(_squared(wrong), x), {"x": normal("T H")}, {"T": (3,), "H": (2,)}
        )
        assert found.verdict == ("refuted" if wrong else "upheld"), found.reason


def test_a_custom_jvp_is_taken_away_and_those_of_jax_stay() -> None:
    @jax.custom_jvp
    def cube(x: Any) -> Any:
        return jax.nn.relu(x) ** 3

    cube.defjvp(lambda primals, tangents: (cube(*primals), 2 * primals[0] ** 2 * tangents[0]))
    assert _verdict(cube, {"x": normal("T")}, {"T": (5,)}).verdict == "refuted"
    assert "custom_jvp" in str(jax.make_jaxpr(forward_of(cube))(jnp.ones(3)))


def test_a_kernel_that_jax_itself_has_is_replaced_too() -> None:
    def function(x: Any, w: Any, b: Any) -> Any:
        return layer_norm.layer_norm(x, w, b)

    x, w = jax.random.normal(jax.random.key(0), (2, 4, 8)), jnp.linspace(0.5, 1.5, 8)
    assert "pallas_call" not in str(jax.make_jaxpr(jax.grad(lambda x: forward_of(function)(x, w, w).sum()))(x))
    gradgate.check(function, None, (x, w, w))


def test_a_loop_whose_length_depends_on_numbers_has_no_derivative_in_reverse() -> None:
    @jax.custom_vjp
    def root(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: (jnp.abs(y * y - x) > 1e-6).any(), lambda y: (y + x / y) / 2, x)

    root.defvjp(lambda x: (root(x), x), lambda x, dy: (dy / 2 / jnp.sqrt(x),))
    for claim in ("gradient_exact", "gradient_float64"):
        found = _verdict(lambda x: root(x * x + 1).sum(), {"x": normal("T")}, {"T": (1,)}, claim)
        assert found.verdict == "inapplicable", found
    assert "test_without_reference_jax.py" in found.reason
    assert "a loop whose length depends on numbers" in found.reason


def test_a_forward_pass_that_reads_what_nobody_wrote_is_refuted() -> None:
    def kernel(x: Any, y: Any, total: Any) -> None:
        total[...] += x[...]
        y[...] = total[...]

    def function(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            scratch_shapes=[pltpu.VMEM(x.shape, x.dtype)],
        )(x)

    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        return function(x)

    ruled.defvjp(lambda x: (function(x), None), lambda _, dy: (dy,))
    found = _verdict(ruled, {"x": normal("T")}, {"T": (4,)})
    assert found.verdict == "refuted"
    assert "depends on what no program wrote" in found.reason


def test_check_takes_none_for_the_reference() -> None:
    x = jax.random.normal(jax.random.key(0), (11, 5))
    gradgate.check(norm(), None, (x, x[0]))
    with pytest.raises(AssertionError, match=r"wrong gradient(.|\n)*of what its own forward pass computes"):
        gradgate.check(norm("ulp"), None, (x, x[0]))


def _module(kind: str, wrong: float) -> Any:
    """A builder of a module with a custom gradient."""

    @jax.custom_vjp
    def squash(x: Any, gain: Any) -> Any:
        return jnp.tanh(x) * gain

    def backward(saved: Any, dy: Any) -> Any:
        x, gain = saved
        t = jnp.tanh(x)
        return dy * gain * (1 - t * t), (dy * t + wrong * dy * t).sum(0)

    squash.defvjp(lambda x, gain: (squash(x, gain), (x, gain)), backward)
    if kind == "nnx":
        nnx = pytest.importorskip("flax.nnx")

        class OfNnx(nnx.Module):  # type: ignore[name-defined]
            def __init__(self, H: int, rngs: Any) -> None:
                self.gain, self.norm = nnx.Param(jnp.ones(H)), nnx.BatchNorm(H, rngs=rngs)

            def __call__(self, x: Any) -> Any:
                return squash(self.norm(x), self.gain.get_value())

        return lambda H, rngs: OfNnx(H, rngs)
    if kind == "linen":
        linen = pytest.importorskip("flax.linen")

        class OfLinen(linen.Module):  # type: ignore[name-defined]
            H: int

            @linen.compact
            def __call__(self, x: Any) -> Any:
                return squash(x, self.param("gain", lambda key: jnp.ones(self.H)))

        return OfLinen
    eqx = pytest.importorskip("equinox")

    class OfEquinox(eqx.Module):  # type: ignore[name-defined]
        gain: Any

        def __init__(self, H: int) -> None:
            self.gain = jnp.ones(H)

        def __call__(self, x: Any) -> Any:
            return squash(x, self.gain)

    return OfEquinox


@pytest.mark.parametrize("kind", ["nnx", "linen", "equinox"])
def test_a_pair_of_a_module_and_itself(kind: str) -> None:
    def verdicts(wrong: float) -> dict[str, str]:
        pair = gradgate.module_pair(
            _module(kind, wrong),
            None,
            {"x": normal("B H")},
            {"B": (2, 3), "H": (3, 4)},
            dtypes=("float32",),
            framework="jax",
            name="itself",
        )
        return {name: one.verdict for name, one in judged(pair, ("gradient_exact", "gradient_float32"), 2).items()}

    assert verdicts(0.0) == {"gradient_exact": "upheld", "gradient_float32": "upheld"}
    assert verdicts(1e-30) == {"gradient_exact": "refuted", "gradient_float32": "upheld"}
    assert verdicts(1e-2)["gradient_float32"] == "refuted"
