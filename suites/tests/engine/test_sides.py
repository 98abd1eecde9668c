"""Pairs with a fault behind one decision in the backward pass alone: refuted with nothing declared, twins upheld."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradgate import Pair, integers, module_pair, normal, uniform
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.tests.engine import behind_decisions
from gradgate.suites.tests.engine.behind_decisions import RIGHT, RULES, Rule, nowhere
from gradgate.suites.tests.pairs.verdicts import judged

Plain = Callable[[Any, Any], Any]


def verdict_on(framework: str, rule: Rule, k: float, plain: Plain, sizes: tuple[int, ...] = (5, 4)) -> Verdict:
    pytest.importorskip(framework)
    made = {"jax": behind_decisions.in_jax, "torch": behind_decisions.in_torch}[framework]
    pair = Pair(
        made(rule, k),
        behind_decisions.reference(framework, plain),
        inputs={"x": normal("N")},
        dims={"N": sizes},
        framework=framework,
        name="behind_a_decision",
    )
    return judged(pair, ("gradient_exact",))["gradient_exact"]


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", RULES)
def test_a_fault_behind_one_decision(framework: str, name: str) -> None:
    """The fault is found, at inputs that a Spec names; with the right factor the same program is upheld."""
    rule = RULES[name]
    found = verdict_on(framework, rule, rule.wrong, rule.forward)
    assert found.verdict == "refuted", (found.reason, found.decisions)
    right = verdict_on(framework, rule, 1.0, rule.forward)
    assert right.verdict == "upheld", right.reason
    assert found.spec is not None
    assert found.spec["regime"].startswith("unseen: "), found.spec


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_difference_that_is_no_fault(framework: str, name: str) -> None:
    """Right functions are upheld where they differ from the reference, and the verdict says in which way."""
    rule, plain, said = RIGHT[name]
    found = verdict_on(framework, rule, 1.0, plain, (12, 9))
    assert found.verdict == "upheld", found.reason
    assert any(said in one for one in found.decisions["apart"]), found.decisions["apart"]


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_value_at_a_jump_is_judged(framework: str) -> None:
    """Where the reference jumps, it has no derivative, but it has a value: one, not both of the limits."""
    other = Rule(lambda xp, x: x - xp.ceil(x) + 1, lambda xp, x: xp.where(x == xp.floor(x), 0.0, 1.0), nowhere)
    found = verdict_on(framework, other, 1.0, lambda xp, x: x - xp.floor(x), (12, 9))
    assert found.verdict == "refuted", found.decisions
    assert "its loss is" in found.reason or "wrong loss" in found.reason, found.reason


def test_a_function_that_refuses_such_inputs_is_upheld() -> None:
    """An exception of foreign code at inputs that nobody promised is no fault, and the verdict says which it was."""
    torch = pytest.importorskip("torch")

    def strict(x: Any) -> Any:
        if x.abs().max() > 50:
            raise ValueError("numbers above 50")
        return torch.where(x > 40, 2 * x, x)

    found = of_normal_numbers(strict, lambda x: torch.where(x > 40, 2 * x, x))
    assert found.verdict == "upheld"
    assert any("ValueError: numbers above 50" in one for one in found.decisions["apart"]), found.decisions


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_loop_that_does_not_end_there_is_ended(framework: str) -> None:
    """Halving by a thousandth takes some operations for small numbers, and ten thousand for large ones."""
    pytest.importorskip(framework)
    if framework == "jax":
        import jax

        def factor(x: Any) -> Any:
            return jax.lax.while_loop(lambda size: size > 4, lambda size: size * 0.999, jax.numpy.max(abs(x)) + 3)

        found = of_normal_numbers(
            lambda x: x * jax.lax.stop_gradient(factor(x)),
            lambda x: jax.lax.stop_gradient(factor(x)) * x,
            framework="jax",
        )
    else:

        def factor(x: Any) -> Any:
            size = x.detach().abs().max() + 3
            while size > 4:
                size = size * 0.999
            return size

        found = of_normal_numbers(lambda x: x * factor(x), lambda x: factor(x) * x)
    assert found.verdict == "upheld", found.reason
    assert any("TooLong" in one for one in found.decisions["apart"]), found.decisions


def test_an_if_and_a_mean() -> None:
    """A decision of Python's is seen; and inputs with a mean stay where they are meant to be."""
    torch = pytest.importorskip("torch")

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            if x.max() > 30:
                return g * x
            return 2 * g * x

    wrong = of_normal_numbers(lambda x: Function.apply(x), lambda x: x * x)
    assert wrong.verdict == "refuted"
    unseen = of_normal_numbers(lambda x: Function.apply(x), lambda x: x * x, inputs={"x": normal("N", mean=4.0)})
    assert unseen.verdict == "upheld"
    assert unseen.decisions["never"] == [
        next(one for one in unseen.decisions["never"] if one.startswith("`… > 30` true at test_sides.py:"))
    ]


def test_a_fault_in_a_module() -> None:
    """A module's inputs are changed as those of a function; its parameters stay as they are."""
    torch = pytest.importorskip("torch")
    rule = RULES["above a number"]

    def module(k: float) -> type[Any]:
        function = behind_decisions.in_torch(rule, k) if k else lambda x: x + x**3

        class Scaled(torch.nn.Module):  # type: ignore[name-defined]
            def __init__(self, H: int) -> None:
                super().__init__()
                self.gain = torch.nn.Parameter(torch.ones(H))

            def forward(self, x: Any) -> Any:
                return function(x) * self.gain

        return Scaled

    def verdict(k: float) -> str:
        pair = module_pair(module(k), module(0.0), {"x": normal("B H")}, {"B": (2, 3), "H": (3, 4)}, name="scaled")
        return judged(pair, ("gradient_exact",))["gradient_exact"].verdict

    assert (verdict(1.1), verdict(1.0)) == ("refuted", "upheld")


def of_normal_numbers(function: Any, reference: Any, **more: Any) -> Verdict:
    given = {"inputs": {"x": normal("N")}, "dims": {"N": (5, 4)}, "name": "of_normal_numbers"}
    pair = Pair(function, reference, **{**given, "framework": "torch", **more})
    return judged(pair, ("gradient_exact",))["gradient_exact"]


def large_and_small(framework: str, k: float) -> Callable[[Any, Any], Any]:
    """x · w, whose derivative by w is wrong where x is above 20 and w is near 0."""
    if framework == "jax":
        import jax
        import jax.numpy as jnp

        function = jax.custom_vjp(lambda x, w: x * w)
        function.defvjp(
            lambda x, w: (x * w, (x, w)),
            lambda given, g: (
                g * given[1],
                jnp.where((given[0] > 20) & (abs(given[1]) < 1e-4), k * g * given[0], g * given[0]),
            ),
        )
        return function
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            x, w = ctx.saved_tensors
            return grads[0] * w, torch.where((x > 20) & (w.abs() < 1e-4), k * grads[0] * x, grads[0] * x)

    return lambda x, w: Product.apply(x, w)


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize(("k", "outcome"), [(1.1, "refuted"), (1.0, "upheld")])
def test_a_fault_behind_two_conditions_at_once(framework: str, k: float, outcome: str) -> None:
    pytest.importorskip(framework)
    pair = Pair(
        large_and_small(framework, k),
        lambda x, w: x * w,
        inputs={"x": normal("N"), "w": normal("N")},
        dims={"N": (4, 3)},
        framework=framework,
        name="large_and_small",
    )
    found = judged(pair, ("gradient_exact",))["gradient_exact"]
    assert found.verdict == outcome, (found.reason, found.decisions)
    if outcome == "refuted":
        assert found.spec is not None
        assert "; " in found.spec["regime"]


def repeated(framework: str, adds: bool) -> Verdict:
    """The verdict on rows of a table whose backward pass adds the rows of one index, or keeps one of them."""
    pytest.importorskip(framework)
    if framework == "jax":
        import jax

        @jax.custom_vjp
        def function(table: Any, index: Any) -> Any:
            return table[index]

        def backward(kept: Any, g: Any) -> Any:
            table, index = kept
            rows = jax.numpy.zeros_like(table).at[index]
            return (rows.add(g) if adds else rows.set(g)), None

        function.defvjp(lambda table, index: (table[index], (table, index)), backward)
    else:
        import torch

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, table: Any, index: Any) -> Any:
                ctx.save_for_backward(table, index)
                return table[index]

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                table, index = ctx.saved_tensors
                return torch.zeros_like(table).index_put((index,), g, accumulate=adds), None

        function = Function.apply

    pair = Pair(
        lambda table, index: function(table, index),
        lambda table, index: table[index],
        inputs={"table": uniform("V"), "index": integers("T", below="V")},
        dims={"V": (200,), "T": (3, 2)},
        framework=framework,
        name="rows_of_a_table",
    )
    return judged(pair, ("gradient_exact",))["gradient_exact"]


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_index_that_is_repeated(framework: str) -> None:
    """Of 200 rows, no problem draws one twice, so equal indices are tried, whatever the decisions are."""
    found = repeated(framework, adds=False)
    assert found.verdict == "refuted", found.decisions
    assert found.spec is not None
    assert found.spec["regime"] == "unseen: equal in index"
    assert repeated(framework, adds=True).verdict == "upheld"


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_cast_to_integers_is_a_decision(framework: str) -> None:
    """A table's row that is chosen by a value; the nearest whole number says how near the cast was to another one."""
    pytest.importorskip(framework)

    def chosen(x: Any) -> Any:
        if framework == "torch":
            return x * x[(x[0].detach() > 0).to(x.dtype).add(0.25).long()]
        import jax.numpy as jnp

        return x * x[jnp.where(x[0] > 0, 1.25, 0.25).astype(int)]

    pair = Pair(
        chosen, lambda x: 1 * chosen(x), inputs={"x": normal("N")}, dims={"N": (4,)}, framework=framework, name="chosen"
    )
    sides = judged(pair, ("gradient_exact",))["gradient_exact"].decisions["sides"]
    assert any(one["what"] == "a cast with …" and one["above"] == 0.25 for one in sides), sides


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_cast_to_booleans_asks_whether_a_number_is_zero(framework: str) -> None:
    """A mask of constants goes both ways, and a cast of numbers that are never zero goes one way."""
    xp: Any = pytest.importorskip({"jax": "jax.numpy", "torch": "torch"}[framework])
    first = [1.0, 0.0, 0.0, 0.0]

    def masked(x: Any, numbers: Any) -> Any:
        cast = numbers.bool() if framework == "torch" else numbers.astype(bool)
        return xp.where(cast, x * x, x)

    for numbers, both in ((lambda x: xp.asarray(first, dtype=x.dtype), 1), (lambda x: x * x + 1, 0)):
        pair = Pair(
            lambda x, made=numbers: masked(x, made(x)),
            lambda x, made=numbers: 1 * masked(x, made(x)),
            inputs={"x": normal("N")},
            dims={"N": (4,)},
            framework=framework,
            name="masked",
        )
        found = judged(pair, ("gradient_exact",))["gradient_exact"].decisions
        assert (found["decisions"], found["both"]) == (1, both), found
        assert any(one["what"] == "… != 0" for one in found["sides"]), found


def test_a_comparison_of_a_number_that_was_read_out_is_a_decision() -> None:
    torch = pytest.importorskip("torch")

    def chosen(x: Any) -> Any:
        size = x.detach().abs().max().item()
        assert isinstance(size, float)
        assert torch.full((1,), size).dtype == torch.float32
        return x * x if size > 300 else x * x * 1

    found = of_normal_numbers(chosen, lambda x: x * x)
    assert found.verdict == "upheld", found.reason
    (read,) = [one for one in found.decisions["sides"] if "300" in one["what"]]
    assert read["what"] == "… > 300"
    assert read["below"] is not None
    assert read["above"] is not None
