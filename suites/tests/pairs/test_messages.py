"""What the first lines of a refutation say: what is wrong, a telling number, and the cause where it can be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.engine import search
from gradgate.suites.judging.explain import UNSCALED, explain
from gradgate.suites.judging.run import Run
from gradgate.suites.tests.pairs.verdicts import judged, refuted, upheld

ROOT = 0.7978845608028654
"""√(2/π) as a kernel writes it: another number than sixty digits of it."""
CUBIC = 0.044715


def numbers(framework: str) -> Any:
    """The namespace of a framework's functions."""
    return pytest.importorskip("jax").numpy if framework == "jax" else pytest.importorskip("torch")


def by_hand(framework: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose backward pass is (inputs, cotangents) -> gradients."""
    if framework == "jax":
        jax = pytest.importorskip("jax")
        made = jax.custom_vjp(forward)
        made.defvjp(lambda *given: (forward(*given), given), lambda kept, upstream: backward(kept, upstream))
        return made  # type: ignore[no-any-return]
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.save_for_backward(*given)
            return forward(*given)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *upstream: Any) -> Any:
            return backward(ctx.saved_tensors, upstream if len(upstream) > 1 else upstream[0])

    return Made.apply


def of(framework: str, function: Callable[..., Any], reference: Callable[..., Any], *inputs: str) -> Any:
    """A pair with these inputs."""
    drawn = {name: normal("N") for name in inputs}
    settings: dict[str, Any] = {"framework": framework, "name": "told", "dtypes": ("float64", "float32")}
    return gradgate.Pair(function, reference, drawn, {"N": (1, 5)}, **settings)


def turned(factor: float) -> Callable[..., Any]:
    """The backward pass of (x·y, x·sin y), in which the second cotangent has this factor."""

    def backward(kept: Any, upstream: Any) -> Any:
        x, y = kept
        xp = numbers("torch" if hasattr(x, "is_leaf") else "jax")
        first, second = upstream
        return first * y + factor * second * xp.sin(y), first * x + factor * second * x * xp.cos(y)

    return backward


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0])
def test_an_upstream_gradient_that_is_ignored_is_named(framework: str, factor: float) -> None:
    xp = numbers(framework)

    def forward(x: Any, y: Any) -> Any:
        return x * y, x * xp.sin(y)

    pair = of(framework, by_hand(framework, forward, turned(factor)), forward, "x", "y")
    if factor == 1.0:
        upheld(pair, ("gradient_exact",), examples=4)
        return
    clauses = refuted(pair, "gradient_exact", examples=4).split("; ")
    assert clauses[0].startswith("wrong gradient of ")
    named = clauses[2] == "the upstream gradient of output [1] is ignored, and all else is right"
    assert named == (factor == 0.0), clauses


def gelu(framework: str, factor: float) -> Callable[..., Any]:
    """The approximate GELU with √(2/π) as a float; its backward pass has `factor` in place of 3."""
    xp = numbers(framework)

    def forward(x: Any) -> Any:
        return 0.5 * x * (1 + xp.tanh(ROOT * (x + CUBIC * x**3)))

    def backward(kept: Any, upstream: Any) -> Any:
        [x] = kept
        t = xp.tanh(ROOT * (x + CUBIC * x**3))
        slope = upstream * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + factor * CUBIC * x**2))
        return (slope,) if framework == "jax" else slope

    return by_hand(framework, forward, backward)


def plain(framework: str) -> Callable[..., Any]:
    """The framework's own function, whose constant has all digits in sixty digits."""
    if framework == "torch":
        torch = pytest.importorskip("torch")
        return lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    xp = numbers(framework)
    return lambda x: 0.5 * x * (1 + xp.tanh((2 / xp.pi) ** 0.5 * (x + CUBIC * x**3)))


@pytest.mark.parametrize("finite", [True, False])
def test_a_gradient_that_is_not_finite_is_not_said_to_ignore_the_upstream_gradient(
    framework: str, finite: bool
) -> None:
    xp = numbers(framework)

    def plain(x: Any) -> Any:
        return xp.sqrt(xp.where(x > 0, x, -x))

    def not_finite(x: Any) -> Any:
        return xp.where(x > 0, xp.sqrt(x), xp.sqrt(-x))

    ignoring = by_hand(framework, plain, lambda kept, upstream: (xp.sign(kept[0]) * 0.5 / plain(kept[0]),))
    said = refuted(of(framework, ignoring if finite else not_finite, plain, "x"), "gradient_exact")
    assert (UNSCALED in said) is finite
    assert ("not finite" in said) is not finite


def test_a_rounded_constant_of_the_function_does_not_hide_its_wrong_gradient(framework: str) -> None:
    right, wrong = (of(framework, gelu(framework, factor), plain(framework), "x") for factor in (3, 1))
    upheld(right, ("gradient_exact",), examples=4)
    first, second, *_ = refuted(wrong, "gradient_exact", examples=4).split("; ")
    assert first.startswith("wrong gradient of x (")
    assert second.startswith("x[")


def test_where_the_smallest_problem_refutes_by_little_a_clearer_one_is_shown(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = of(framework, gelu(framework, 1), plain(framework), "x")

    def shown(pair: Any) -> tuple[int, float]:
        verdict = judged(pair, ("gradient_exact",), examples=12)["gradient_exact"]
        assert verdict.verdict == "refuted"
        assert verdict.spec is not None
        assert verdict.error is not None
        return verdict.spec["N"], verdict.error

    size, error = shown(pair)
    monkeypatch.setattr(search, "SLIGHT", 0.0)
    smallest, slight = shown(pair)
    assert (size, smallest) == (5, 1)
    assert error > 10 * slight


def test_the_smallest_problem_is_shown_if_the_error_is_as_small_everywhere(framework: str) -> None:
    def backward(kept: Any, upstream: Any) -> Any:
        slope = upstream * 2 * kept[0] * (1 + 2.0**-10)
        return (slope,) if framework == "jax" else slope

    square = by_hand(framework, lambda x: x * x, backward)
    verdict = judged(of(framework, square, lambda x: x * x, "x"), ("gradient_exact",), examples=12)["gradient_exact"]
    assert verdict.verdict == "refuted"
    assert verdict.spec is not None
    assert verdict.spec["N"] == 1


@pytest.mark.parametrize("which", ["upstream gradient", "input x"])
def test_a_backward_pass_that_writes_into_what_it_was_given_says_into_which(torch: Any, which: str) -> None:
    def spoiling(kept: Any, upstream: Any) -> Any:
        [x] = kept
        slope = 2 * upstream * x
        (upstream if which == "upstream gradient" else x.detach()).data.add_(1)
        return slope

    square = by_hand("torch", lambda x: x * x, spoiling)
    assert refuted(of("torch", square, lambda x: x * x, "x"), "pure") == f"the call changed its {which}"
    right = by_hand("torch", lambda x: x * x, lambda kept, upstream: 2 * upstream * kept[0])
    upheld(of("torch", right, lambda x: x * x, "x"), ("pure",))


@pytest.mark.parametrize("narrow", ["float16", "", "both"])
def test_a_cast_that_loses_digits_is_named_with_its_line(framework: str, narrow: str) -> None:
    xp = numbers(framework)

    def cast(x: Any) -> Any:
        return x.half().to(x.dtype) if framework == "torch" else x.astype(xp.float16).astype(x.dtype)

    def backward(kept: Any, upstream: Any) -> Any:
        t = xp.tanh(kept[0])
        t = cast(t) if narrow else t
        slope = upstream * (1 - t * t)
        return (slope,) if framework == "jax" else slope

    reference = (lambda x: xp.tanh(cast(x))) if narrow == "both" else xp.tanh
    pair = of(framework, by_hand(framework, reference, backward), reference, "x")
    if not narrow:
        upheld(pair, ("gradient_exact", "gradient_float64", "gradient_float32"))
    elif narrow == "both":
        verdict = judged(pair, ("gradient_float64",))["gradient_float64"]
        assert "it casts to" not in verdict.reason
    else:
        upheld(pair, ("gradient_exact",))
        for claim in ("gradient_float64", "gradient_float32"):
            verdict = judged(pair, (claim,))[claim]
            said = verdict.reason.split("; ")[2]
            assert said.startswith("it casts to float16 at test_messages.py:"), verdict.reason
            assert said.endswith(", and the reference does not")
            assert verdict.wrong_line.endswith(said.split(":")[1].split(",")[0])


@pytest.mark.parametrize("dtype", ["", "float64", "float32", "bfloat16"])
def test_a_card_names_the_dtype_in_which_its_claim_was_judged(framework: str, dtype: str) -> None:
    xp = numbers(framework)

    def backward(kept: Any, upstream: Any) -> Any:
        (x,) = kept
        wrong = str(x.dtype).removeprefix("torch.") == dtype
        return (upstream * xp.cos(x) * (1.5 if wrong else 1),)

    pair = gradgate.Pair(
        by_hand(framework, xp.sin, backward),
        xp.sin,
        {"x": normal("N")},
        {"N": (1, 5)},
        framework=framework,
        name="told",
    )
    claims = {f"gradient_{name}": name for name in ("float64", "float32", "bfloat16")}
    for claim, found in judged(pair, tuple(claims), examples=4).items():
        assert found.verdict == ("refuted" if claims[claim] == dtype else "upheld")
        assert explain(found).problem.startswith(f"dtype={claims[claim]} ")
        if found.verdict == "refuted":
            run = Run(spec=json.dumps(found.spec))
            again = judged(pair, (claim,), run=run)[claim]
            assert (again.error, again.noise, again.spec) == (found.error, found.noise, found.spec)
