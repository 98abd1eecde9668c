"""What is said of autograd, pip and weak references: the figures are as declared, and a wrong operation is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.chain.paper import autograd_facts
from gradgate.references.published import judge
from gradgate.references.registry import load

torch = pytest.importorskip("torch")


JUDGED = [row for row in autograd_facts.ROWS if row.printed is not None]


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.name)
def test_the_figures_are_as_declared(row: Any) -> None:
    judged = judge(row, load(row.measured)(**row.arguments))
    assert judged is not None
    assert judged.outcome in ("upheld", "refuted as declared")


def apart(x: Any, y: Any) -> Any:
    """A product outside the graph."""
    return x.detach() * y.detach()


def later(x: Any, y: Any) -> Any:
    """A product of copies: its inputs are no leaves, and what it saves are not x and y."""
    return x.clone() * y.clone()


@pytest.mark.parametrize(
    ("fact", "operator"),
    [
        (autograd_facts.leaves, apart),
        (autograd_facts.backward_functions, apart),
        (autograd_facts.backward_functions, later),
        (autograd_facts.next_functions, apart),
        (autograd_facts.next_functions, later),
        (autograd_facts.accumulated, lambda x, y: x * y + 0 * x * x + x),
        (autograd_facts.handles, later),
        (autograd_facts.handles, lambda x, y: x + y),
        (autograd_facts.no_pointers, apart),
        (autograd_facts.no_pointers, lambda x, y: (x * x).sum() * y),
    ],
)
def test_an_operation_for_which_it_is_false_is_seen(fact: Callable[[Any], float], operator: Any) -> None:
    assert fact(operator) < 100.0


def test_a_program_that_leaves_the_graph_in_one_branch_has_another_gradient() -> None:
    def program(xp: Any, x: Any) -> Any:
        return autograd_facts.branching(xp, x.detach() if xp is torch and bool(x > 0) else x) + 0 * x

    assert autograd_facts.control_flow(program) < 100.0
    assert autograd_facts.differences_fail(lambda xp, x: round(autograd_facts.branching(xp, x), 3)) > 0.0


def test_the_drawn_inputs_take_both_branches_and_loops_of_several_lengths() -> None:
    import numpy as np

    seen = set()
    for start in np.random.default_rng(0).normal(size=autograd_facts.DRAWN):
        taken: list[bool] = []

        def real(x: Any, taken: list[bool] = taken) -> Any:
            taken.append(bool(x > 0))
            return x

        autograd_facts.branching(np, start, real)
        seen.add((len(taken) // 2, any(taken) and not all(taken)))
    assert len({steps for steps, _ in seen}) > 1
    assert any(both for _, both in seen)


@pytest.mark.parametrize("detach", [lambda z: z, lambda z: z.clone(), lambda z: z.detach().clone()])
def test_what_is_not_detached_or_is_a_copy_is_seen(detach: Any) -> None:
    assert autograd_facts.detached(detach) == 0.0


def test_a_sweep_with_gradients_keeps_its_values_and_is_followed_back() -> None:
    assert autograd_facts.untracked(torch.enable_grad) == 0.0
    assert autograd_facts.reached(torch.enable_grad) == 100.0


def test_a_gradient_that_nothing_holds_is_gone() -> None:
    assert autograd_facts.weakly_held(lambda leaf, gradient: None) == 100.0 > autograd_facts.weakly_held()


def test_pip_refuses_a_directory_that_is_not_there() -> None:
    assert autograd_facts.installed("./another-directory") == 0.0
