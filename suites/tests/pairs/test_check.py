"""`gradgate.check`: two functions at given arguments."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate

torch = pytest.importorskip("torch")


def plain(x: Any, w: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(x @ w.T, labels)


class Fused(torch.autograd.Function):
    """Cross entropy by hand; the broken subclasses change its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, labels: Any) -> Any:
        ctx.save_for_backward(x, w, labels)
        return plain(x, w, labels)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        x, w, labels = ctx.saved_tensors
        d = torch.softmax(x @ w.T, -1)
        d[torch.arange(len(x)), labels] -= 1
        d = d * upstream[0] / len(x)
        return d @ w, d.T @ x, None


class Dropped(Fused):
    """The upstream gradient is dropped."""

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        return Fused.backward(ctx, torch.ones(()))


class Missing(Fused):
    """The weight gets no gradient."""

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        dx, _, _ = Fused.backward(ctx, *upstream)
        return dx, None, None


def arguments(dtype: Any = torch.float32) -> tuple[Any, ...]:
    made = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 5, generator=made).to(dtype) for n in (4, 7))
    return x, w, torch.tensor([0, 3, 6, 3])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_right_function_passes(dtype: Any) -> None:
    gradgate.check(lambda *args: Fused.apply(*args), plain, arguments(dtype))


def test_a_dropped_upstream_gradient_is_told_with_leaf_error_and_seed() -> None:
    with pytest.raises(AssertionError, match=r"wrong gradient: relative errors w .*\n(.*\n)*repeat: .*seed=5"):
        gradgate.check(lambda *args: Dropped.apply(*args), plain, arguments(), seed=5)


def test_a_gradient_that_is_none_is_refuted() -> None:
    with pytest.raises(AssertionError, match="w is None"):
        gradgate.check(lambda *args: Missing.apply(*args), plain, arguments())


def test_trees_of_arguments_and_outputs_are_taken_as_they_are() -> None:
    def function(layers: Any, x: Any, *, twice: bool) -> Any:
        y = x @ layers["w"] + layers["b"][0]
        return {"y": 2 * y if twice else y, "count": x.shape[0]}, (y.sum(),)

    layers = {"w": torch.randn(3, 2), "b": [torch.randn(2), None]}
    gradgate.check(lambda *args, **how: function(*args, **how), function, (layers, torch.randn(4, 3)), {"twice": True})


def softmax_of_scores(x: Any, scale: Any) -> Any:
    return torch.softmax(x @ x.T * scale, -1)


def test_a_constant_rounded_to_float64_is_forgiven_and_a_larger_difference_is_not() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    root = torch.sqrt(torch.tensor(3.0, dtype=torch.float64))
    gradgate.check(lambda x: softmax_of_scores(x, 3**-0.5), lambda x: softmax_of_scores(x, 1 / root), (x,))
    wrong = 3**-0.5 * (1 + 1e-12)
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(lambda x: softmax_of_scores(x, wrong), lambda x: softmax_of_scores(x, 1 / root), (x,))


def test_another_function_is_told_from_a_wrong_gradient() -> None:
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(lambda *args: 2 * plain(*args), plain, arguments())


def test_weights_in_float32_beside_activations_in_bfloat16_are_judged() -> None:
    def norm(x: Any, gain: Any) -> Any:
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * gain).to(x.dtype)

    x, gain = torch.randn(4, 8).bfloat16(), torch.randn(8)
    gradgate.check(lambda *args: norm(*args), norm, (x, gain))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((torch.arange(3),), "no argument has a floating array"),
        ((1.0,), "arrays of neither JAX nor PyTorch"),
        ((torch.zeros(2, dtype=torch.float16),), "argument x is of float16; legal: bfloat16, float32, float64"),
        (torch.zeros(2), "args is a tuple of the functions"),
    ],
)
def test_arguments_that_cannot_be_judged_are_refused_in_words(args: Any, said: str) -> None:
    with pytest.raises(gradgate.UsageError, match=said):
        gradgate.check(lambda x: 1 * x, lambda x: x, args)


def test_where_nothing_can_be_said_about_the_gradient_the_check_fails_and_says_why() -> None:
    nan = torch.tensor([1.0, float("nan")])
    said = r"nothing could be said about the gradient here\ngradient_exact: no problem could be judged"
    with pytest.raises(AssertionError, match=said):
        gradgate.check(lambda x: x * x, lambda x: x**2, (nan,))


def test_a_function_beside_itself_is_refused() -> None:
    with pytest.raises(gradgate.UsageError, match="the same object"):
        gradgate.check(plain, plain, arguments())


def test_jax_functions_are_judged_alike() -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    @jax.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
    wrong = jax.custom_vjp(lambda x: x * x)
    wrong.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g[0],))
    x = jnp.asarray([0.5, -1.5, 3.0])
    gradgate.check(square, lambda x: x**2, (x,))
    with pytest.raises(AssertionError, match="wrong gradient: relative errors x"):
        gradgate.check(wrong, lambda x: x**2, (x,))
