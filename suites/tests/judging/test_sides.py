"""Pairs with a fault behind one decision in the backward pass alone: refuted with nothing declared, twins upheld."""

import pytest

from gradgate import Pair, normal
from gradgate.references import registry
from gradgate.suites.judging import engine
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task

RULES = {
    "above": (lambda x: x**3, lambda x: 3 * x**2, lambda x: x > 20),
    "below": (lambda x: x**3, lambda x: 3 * x**2, lambda x: x < -20),
    "far": (lambda x: x * x, lambda x: 2 * x, lambda x: abs(x) > 1e6),
    "tiny": (lambda x: x * x + x, lambda x: 2 * x + 1, lambda x: abs(x) < 1e-6),
    "zero": (lambda x: x * x + x, lambda x: 2 * x + 1, lambda x: x == 0),
}
"""Name -> function, derivative, and where the derivative is wrong by a tenth."""


def in_jax(function, slope, condition, wrong):
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def rule(x):
        return function(x)

    def backward(x, g):
        return (jax.numpy.where(condition(x), wrong, 1.0) * g * slope(x),)

    rule.defvjp(lambda x: (function(x), x), backward)
    return rule


def in_torch(function, slope, condition, wrong):
    torch = pytest.importorskip("torch")

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.where(condition(x), wrong, 1.0) * g * slope(x)

    return lambda x: Rule.apply(x)


def judged(framework, name, wrong):
    function, slope, condition = RULES[name]
    make = {"jax": in_jax, "torch": in_torch}[framework]
    pair = Pair(
        make(function, slope, condition, wrong),
        lambda x: function(x),
        inputs={"x": normal("N")},
        dims={"N": (5, 1)},
        framework=framework,
        name=f"{name}_{framework}_{wrong:g}".replace(".", "_"),
    )
    method = pair.lowered
    try:
        task = Task.of(method, method.claim("gradient_exact"))
        return engine.judge(task, Subject(method, pair), Run(examples=6))
    finally:
        registry.forget(method.family)


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", RULES)
def test_a_fault_behind_one_decision(framework, name):
    """The fault is found, at inputs that a Spec names; with the right factor the same program is upheld."""
    found = judged(framework, name, 1.1)
    assert found.verdict == "refuted", found.reason
    assert found.spec["regime"].startswith("unseen: ")
    assert judged(framework, name, 1.0).verdict == "upheld"
