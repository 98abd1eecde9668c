"""jit, vmap, torch.compile and second derivatives, claimed or disclaimed by right functions and by wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.engine import search
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict


def plain(x: Any) -> Any:
    return (x * x).sum()


def judged(function: Callable[..., Any], framework: str, claim: str, **more: Any) -> Verdict:
    pair = gradgate.Pair(
        function,
        plain,
        {"x": normal("T")},
        {"T": (3, 2)},
        dtypes=("float64",),
        framework=framework,
        name="mine",
        **more,
    )
    method = pair.lowered
    [wanted] = [known for known in method.claims if known.name == claim]
    return search.judge(Task.of(method, wanted), Subject(method, pair), Run(examples=3))


def of_jax(backward: Callable[[Any, Any], Any], forward: Callable[[Any], Any] = plain) -> Callable[[Any], Any]:
    """x² summed, with a backward pass by hand."""
    jax = pytest.importorskip("jax")
    made = jax.custom_vjp(plain)
    made.defvjp(lambda x: (forward(x), x), lambda x, upstream: (backward(x, upstream),))
    return lambda x: made(x)


def of_torch(backward: Callable[[Any, Any], Any], *, once: bool = False, vmapped: bool = True) -> Callable[[Any], Any]:
    """As `of_jax`, in PyTorch."""
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return plain(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

    def pull(ctx: Any, upstream: Any) -> Any:
        return backward(ctx.saved_tensors[0], upstream)

    Made.backward = staticmethod(pull)
    return lambda x: Made.apply(x)


def right(x: Any, upstream: Any) -> Any:
    return 2 * upstream * x


def wrong_under_compile(x: Any) -> Any:
    import torch

    return (x * x.detach()).sum() if torch.compiler.is_compiling() else (x * x).sum()


def wrong_under_vmap(x: Any) -> Any:
    import torch

    batched = torch._C._functorch.is_batchedtensor(x)
    inner = torch._C._functorch.get_unwrapped(x) if torch._C._functorch.is_functorch_wrapped_tensor(x) else x
    while not batched and torch._C._functorch.is_functorch_wrapped_tensor(inner):
        batched = torch._C._functorch.is_batchedtensor(inner)
        inner = torch._C._functorch.get_unwrapped(inner)
    return (x * x.detach()).sum() if batched else (x * x).sum()


def mixed_under_vmap(x: Any) -> Any:
    """A function whose custom vmap rule wrongly averages over the batch."""
    import jax
    import jax.numpy as jnp

    made = jax.custom_batching.custom_vmap(lambda x: (x * x).sum())
    made.def_vmap(lambda size, batched, x: (jnp.full(size, (x * x).sum(1).mean()), True))
    return made(x)


@pytest.mark.parametrize("claim", ["jit", "vmap", "second_order", "second_order_exact"])
def test_a_right_function_of_jax_composes_as_claimed(claim: str) -> None:
    found = judged(of_jax(right), "jax", claim, composes=("jit", "vmap", "second_order"))
    assert found.verdict == "upheld", found.reason


@pytest.mark.parametrize("claim", ["compile", "vmap", "second_order", "second_order_exact"])
def test_a_right_function_of_torch_composes_as_claimed(claim: str) -> None:
    found = judged(of_torch(right), "torch", claim, composes=("compile", "vmap", "second_order"))
    assert found.verdict == "upheld", found.reason


def test_a_bug_under_compile_alone_is_refuted() -> None:
    pytest.importorskip("torch")
    composes = ("compile",)
    assert judged(wrong_under_compile, "torch", "gradient_float64", composes=composes).verdict == "upheld"
    found = judged(wrong_under_compile, "torch", "compile", composes=composes)
    assert found.verdict == "refuted"
    assert "wrong gradient of x (50%)" in found.reason


def test_a_bug_under_vmap_alone_is_refuted() -> None:
    pytest.importorskip("torch")
    assert judged(wrong_under_vmap, "torch", "gradient_float64", composes=("vmap",)).verdict == "upheld"
    found = judged(wrong_under_vmap, "torch", "vmap", composes=("vmap",))
    assert found.verdict == "refuted"
    assert "lane" in found.reason


def test_a_rule_of_vmap_that_mixes_its_lanes_is_refuted() -> None:
    pytest.importorskip("jax")
    found = judged(mixed_under_vmap, "jax", "vmap", composes=("vmap",))
    assert found.verdict in ("refuted", "error"), found


def test_a_wrong_second_derivative_is_refuted_though_the_first_is_right() -> None:
    pytest.importorskip("torch")
    detached = of_torch(lambda x, upstream: 2 * upstream * x.detach())
    assert judged(detached, "torch", "gradient_float64", composes=("second_order",)).verdict == "upheld"
    for claim in ("second_order", "second_order_exact"):
        assert judged(detached, "torch", claim, composes=("second_order",)).verdict == "refuted", claim


def test_a_wrong_second_derivative_in_jax_is_refuted_though_the_first_is_right() -> None:
    jax = pytest.importorskip("jax")
    stopped = of_jax(lambda x, upstream: 2 * upstream * jax.lax.stop_gradient(x))
    assert judged(stopped, "jax", "gradient_float64", composes=("second_order",)).verdict == "upheld"
    assert judged(stopped, "jax", "second_order", composes=("second_order",)).verdict == "refuted"


@pytest.mark.parametrize("name", ["second_order", "vmap"])
def test_what_refuses_in_words_is_disclaimed(name: str) -> None:
    torch = pytest.importorskip("torch")

    class Once(torch.autograd.Function):
        """A function in the style from before torch.func, which torch.func refuses."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return plain(x)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *upstream: Any) -> Any:
            return right(ctx.saved_tensors[0], *upstream)

    def function(x: Any) -> Any:
        return Once.apply(x)

    found = judged(function, "torch", f"refuses_{name}", disclaims=(name,))
    assert found.verdict == "upheld", found.reason


@pytest.mark.parametrize("name", ["second_order", "vmap"])
def test_what_works_must_not_be_disclaimed(name: str) -> None:
    found = judged(of_torch(right), "torch", f"refuses_{name}", disclaims=(name,))
    assert found.verdict == "refuted"
    assert f"{name} is disclaimed, but it works: claim it" in found.reason


@pytest.mark.parametrize(("framework", "name"), [("jax", "jit"), ("torch", "compile")])
def test_a_compiler_that_works_must_not_be_disclaimed(framework: str, name: str) -> None:
    pytest.importorskip(framework)
    found = judged(lambda x: (x * x).sum(), framework, f"refuses_{name}", disclaims=(name,))
    assert found.verdict == "refuted"
    assert f"{name} is disclaimed, but it works" in found.reason


def test_a_function_that_reads_its_numbers_disclaims_jit() -> None:
    pytest.importorskip("jax")

    def reading(x: Any) -> Any:
        return (x * x).sum() if x.sum() < 1e9 else x.sum()

    found = judged(reading, "jax", "refuses_jit", disclaims=("jit",))
    assert found.verdict == "upheld", found.reason
