"""Functions that name no reference, in both frameworks: the gradient must be the derivative of their forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import gradgate
from gradgate import integers, normal, uniform
from gradgate.references.backends import namespace
from gradgate.suites.tests.pairs.verdicts import judged, refuted

TERM, ULP = "a term of 1e-30", "one unit in the last place"
PLANTED: dict[str, Callable[[Any], Any]] = {
    "": lambda g: g,
    TERM: lambda g: g + 1e-30,
    ULP: lambda g: g + g * 2.0**-52,  # a power of two is no rounded constant
}


@dataclass(frozen=True)
class Rule:
    """A function with a backward pass written by hand, in the operations that both frameworks have.

    Attributes:
        forward: (xp, *inputs) -> output, and what is saved.
        backward: (xp, saved, upstream) -> the gradient of each floating input.
    """

    forward: Callable[..., tuple[Any, Any]]
    backward: Callable[..., tuple[Any, ...]]
    inputs: dict[str, Any]
    dims: dict[str, tuple[int, ...]]


def _gate(xp: Any, x: Any, w: Any) -> tuple[Any, Any]:
    return x * x * xp.tanh(w), (x, xp.tanh(w))


def _gate_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    x, t = saved
    return 2 * x * t * dy, xp.sum(x * x * dy, axis=0) * (1 - t * t)


def _softmax(xp: Any, x: Any) -> tuple[Any, Any]:
    shares = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    shares = shares / xp.sum(shares, axis=-1, keepdims=True)
    return shares, shares


def _softmax_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    return (saved * (dy - xp.sum(saved * dy, axis=-1, keepdims=True)),)


def _norm(xp: Any, x: Any, w: Any) -> tuple[Any, Any]:
    scale = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 0.0009765625)
    return x * scale * w, (x, w, scale)


def _norm_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    x, w, scale = saved
    inner = xp.mean(x * w * dy, axis=-1, keepdims=True)
    return scale * (w * dy - x * scale**2 * inner), xp.sum(x * scale * dy, axis=0)


def _product(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return a @ b, (a, b)


def _product_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    a, b = saved
    return dy @ b.T, a.T @ dy


def _recurrence(xp: Any, x: Any, a: Any) -> tuple[Any, Any]:
    rows = [x[0]]
    for t in range(1, len(x)):
        rows.append(a[t] * rows[-1] + x[t])
    return xp.stack(rows), (a, xp.stack(rows))


def _recurrence_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    a, rows = saved
    dx, da, carry = [], [], xp.zeros_like(dy[0])
    for t in reversed(range(len(dy))):
        carry = dy[t] + carry
        dx.append(carry)
        da.append(carry * rows[t - 1] if t else xp.zeros_like(carry))
        carry = a[t] * carry
    return xp.stack(dx[::-1]), xp.stack(da[::-1])


def _gather(xp: Any, w: Any, index: Any) -> tuple[Any, Any]:
    return w[index], (index, xp.zeros_like(w))


def _gather_back(xp: Any, saved: Any, dy: Any) -> tuple[Any, ...]:
    index, like = saved
    hot = xp.astype(index[:, None] == xp.arange(len(like)), like.dtype)
    return (hot.T @ dy,)


RULES = {
    "gate": Rule(_gate, _gate_back, {"x": normal("T H"), "w": normal("H")}, {"T": (1, 3), "H": (1, 4)}),
    "softmax": Rule(_softmax, _softmax_back, {"x": normal("T H")}, {"T": (1, 3), "H": (2, 5)}),
    "norm": Rule(_norm, _norm_back, {"x": normal("T H"), "w": normal("H")}, {"T": (1, 3), "H": (1, 4)}),
    "product": Rule(
        _product, _product_back, {"a": normal("M K"), "b": normal("K N")}, {"M": (1, 3), "K": (1, 4), "N": (2,)}
    ),
    "recurrence": Rule(
        _recurrence,
        _recurrence_back,
        {"x": normal("T H"), "a": uniform("T H", low=0.2, high=0.9)},
        {"T": (1, 4), "H": (1, 2)},
    ),
    "gather": Rule(
        _gather,
        _gather_back,
        {"w": normal("V H"), "index": integers("T", below="V")},
        {"T": (1, 5), "V": (2, 3), "H": (1, 2)},
    ),
}


def ruled(framework: str, rule: Rule, plant: Callable[[int, Any], Any] = lambda _, grad: grad) -> Any:
    """The function with its own backward pass, in which something may be planted in the gradient of each place."""
    xp = namespace(framework)
    count = len(rule.inputs)

    def back(saved: Any, dy: Any) -> tuple[Any, ...]:
        grads = [plant(place, grad) for place, grad in enumerate(rule.backward(xp, saved, dy))]
        return (*grads, *[None] * (count - len(grads)))

    if framework == "jax":
        import jax

        function = jax.custom_vjp(lambda *inputs: rule.forward(xp, *inputs)[0])
        function.defvjp(lambda *inputs: rule.forward(xp, *inputs), back)
        return lambda *inputs: function(*inputs)
    import torch

    class Ruled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            out, ctx.saved = rule.forward(xp, *(leaf.detach() for leaf in inputs))
            return out

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            return back(ctx.saved, dy)

    return Ruled.apply


def against_itself(framework: str, function: Any, inputs: Any, dims: Any, **how: Any) -> gradgate.Pair:
    settings = {"dtypes": ("float64",), "name": "itself", **how}
    return gradgate.Pair(function, reference=None, inputs=inputs, dims=dims, framework=framework, **settings)


@pytest.fixture(params=["jax", "torch"])
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.mark.parametrize("mistake", PLANTED)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_upheld_and_what_is_planted_in_it_is_refuted(framework: str, name: str, mistake: str) -> None:
    rule = RULES[name]
    function = ruled(framework, rule, lambda _, grad: PLANTED[mistake](grad))
    pair = against_itself(framework, function, rule.inputs, rule.dims)
    found = judged(pair, ("gradient_exact",), 2)["gradient_exact"]
    assert found.verdict == ("refuted" if mistake else "upheld"), found.reason


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("name", ["gate", "norm", "product"])
def test_the_wrong_leaf_is_named(framework: str, name: str, wrong: int) -> None:
    rule = RULES[name]
    function = ruled(framework, rule, lambda place, grad: grad + grad * 2.0**-30 if place == wrong else grad)
    reason = refuted(against_itself(framework, function, rule.inputs, rule.dims), "gradient_exact")
    [clause] = [part for part in reason.split("; ") if part.startswith("wrong gradient of")]
    wrong_of = clause.partition(", exact")[0]
    assert wrong_of.split()[3] == list(rule.inputs)[wrong]
    assert " and " not in wrong_of


def test_what_the_claims_say_is_the_same_in_both_frameworks() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    said = []
    for framework in ("jax", "torch"):
        rule = RULES["gate"]
        pair = against_itself(framework, ruled(framework, rule), rule.inputs, rule.dims, dtypes=("float32",))
        said.append({claim.name: claim.statement for claim in pair.lowered.claims if "gradient" in claim.name})
    assert said[0] == said[1]
    assert "whether that is what it should compute is not judged" in said[0]["gradient_exact"]


def test_check_takes_none_for_the_reference(framework: str) -> None:
    xp = namespace(framework)
    x = xp.reshape(xp.linspace(-1.0, 2.0, 12), (3, 4))
    gradgate.check(ruled(framework, RULES["norm"]), None, (x, x[1]))
    wrong = ruled(framework, RULES["norm"], lambda _, grad: grad + 1e-30)
    with pytest.raises(AssertionError, match=r"wrong gradient(.|\n)*of what its own forward pass computes"):
        gradgate.check(wrong, None, (x, x[1]))


def test_floats_are_judged_in_every_dtype(framework: str) -> None:
    rule = RULES["norm"]
    claims = ("gradient_float64", "gradient_float32", "gradient_bfloat16")
    dtypes = ("float64", "float32", "bfloat16")
    right = against_itself(framework, ruled(framework, rule), rule.inputs, rule.dims, dtypes=dtypes)
    assert {verdict.verdict for verdict in judged(right, claims, 6).values()} == {"upheld"}

    def in_float32(_: int, grad: Any) -> Any:
        return grad * (1.001 if str(grad.dtype).endswith("float32") else 1)

    wrong = against_itself(framework, ruled(framework, rule, in_float32), rule.inputs, rule.dims, dtypes=dtypes)
    assert [judged(wrong, claims, 6)[claim].verdict for claim in claims] == ["upheld", "refuted", "upheld"]


def test_a_module_of_jax_that_is_checked_needs_a_reference_or_a_pair() -> None:
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(gradgate.UsageError, match=r"reference=None is for functions.*module_pair"):
        gradgate.check(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), None, (namespace("jax").ones((1, 2)),))
