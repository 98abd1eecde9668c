"""Every reference method in sixty digits: it is upheld, and refuted if any one leaf has an error that no float shows.

Each method is judged on one problem: the first on which no leaf is zero. Errors are planted in the program: leaf k of
the method is multiplied by 1 + 2^-52, or 10^-30 of the leaf is added, with the framework's operations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.backends import leaves, precision
from gradgate.references.contract import Method, Problem, Spec, installed
from gradgate.references.oracle import in_widest
from gradgate.suites.checks import CHECKS, Case
from gradgate.suites.checks.base import Rejected
from gradgate.suites.engine import strategies
from gradgate.suites.exact import balls, programs, truth
from gradgate.suites.exact.agreement import Values, compare
from gradgate.suites.judging.subject import Refuted, Subject

ULP = 2.0**-52
TERM = 1e-30
METHODS = {
    method.key: method
    for family in registry.families()
    for method in registry.methods(family)
    if "upheld" in {claim.expected for claim in method.claims if claim.name == "gradient_exact"}
}
CELLS = 12
"""The number of problems that are searched for one on which no leaf is zero ("alive")."""


@dataclass(frozen=True)
class Planted:
    """One evaluation of a method with both errors planted in every leaf.

    Attributes:
        plain: the oracle's values.
        right: the method's values.
        scaled: the method's leaves, each multiplied by 1 + 2^-52.
        added: the method's leaves, each with 10^-30 of itself added.
        dead: names of the leaves that are zero on this problem.
    """

    plain: Values
    right: Values
    scaled: Values
    added: Values
    dead: tuple[str, ...]


@functools.cache
def subject(key: str) -> Subject:
    """The method, loaded once; without its framework the test is skipped."""
    method = METHODS[key]
    if not installed(method.framework):
        pytest.skip(f"{method.framework} is not installed")
    return Subject.load(method)


def cells(method: Method) -> list[tuple[Spec, dict[str, Any]]]:
    """The problems and options of `gradient_exact`, the smallest first."""
    claim = method.claim("gradient_exact")
    every = strategies.cells(registry.family(method.family), method, claim.where, 0)
    return [(spec, picked | dict(claim.settings.get("options", {}))) for spec, picked in every]


@functools.cache
def alive_cell(key: str) -> tuple[Spec, dict[str, Any]]:
    """The first problem on which no leaf is zero; if the first CELLS have none, the one with the fewest zero leaves."""
    best, fewest = None, 0
    for spec, options in cells(METHODS[key])[:CELLS]:
        try:
            dead = len(zeros(oracle(key, spec, options)))
        except balls.Undecided:
            continue
        if (best is None or dead < fewest) and decided(key, spec, options):
            best, fewest = (spec, options), dead
        if best is not None and not fewest:
            break
    assert best is not None
    return best


def decided(key: str, spec: Spec, options: dict[str, Any]) -> bool:
    """Whether the method's program takes no branch on a number that may be zero."""
    try:
        CHECKS["gradient_exact"].function(Case(subject(key), METHODS[key].claim("gradient_exact"), spec, options))
    except Rejected:
        return False
    return True


def oracle(key: str, spec: Spec, options: dict[str, Any]) -> Values:
    """Plain backprop of the loss that the method differentiates, in balls."""
    method = METHODS[key]
    loss, given = Case(subject(key), method.claim("gradient_exact"), spec, options).claimed
    return _oracle(spec, method.framework, loss, tuple(sorted(given.items())))


@functools.cache
def _oracle(spec: Spec, framework: str, loss: str, options: tuple[tuple[str, Any], ...]) -> Values:
    with balls.digits(60):
        problem = in_widest(spec, framework, "float64")
        return truth.evaluator(loss, options, problem.backend)(problem, 60).values


def zeros(values: Values) -> tuple[str, ...]:
    """Leaves that hold nothing but zeros, or balls around zero."""
    return tuple(
        name for name, leaf in values.items() if name and all(abs(float(ball.mid())) < 1e-50 for ball in leaf.flat)
    )


@functools.cache
def planted(key: str) -> Planted:
    """The method's program with both errors in every leaf, evaluated once."""
    spec, options = alive_cell(key)
    problem = in_widest(spec, METHODS[key].framework, "float64")
    function = subject(key).function

    def program(given: Problem) -> list[Any]:
        loss, grads = function(given, **options)
        flat = leaves(grads)
        return [loss, *flat, *(leaf * (1 + ULP) for leaf in flat), *(leaf + TERM * leaf for leaf in flat)]

    with balls.digits(60), precision(problem.backend, "float64"):
        loss, *rest = _evaluated(program, problem)
        count = len(rest) // 3
        right, scaled, added = (programs.judged(problem, [loss, *rest[i * count : (i + 1) * count]]) for i in range(3))
    plain = oracle(key, spec, options)
    return Planted(plain, right, scaled, added, zeros(plain))


def _evaluated(program: Any, problem: Problem) -> list[Any]:
    if problem.backend == "torch":
        from gradgate.suites.exact import on_torch

        return on_torch.evaluate(lambda: program(problem), digits=60).outputs
    from gradgate.suites.exact import on_jax

    return on_jax.trace(program, problem).evaluate(problem, digits=60)


every_method = pytest.mark.parametrize("key", METHODS)


@every_method
def test_the_formula_of_a_method_is_upheld_on_its_first_problem(key: str) -> None:
    claim = METHODS[key].claim("gradient_exact")
    for spec, options in cells(METHODS[key]):
        case = Case(subject(key), claim, spec, options)
        try:
            CHECKS["gradient_exact"].function(case)
        except Rejected:
            continue
        assert case.exact is not None
        assert case.exact.digits >= 40
        return
    pytest.fail("every problem of the vocabulary is rejected")


@every_method
def test_one_unit_in_the_last_place_of_any_leaf_is_refuted(key: str) -> None:
    found = planted(key)
    assert refuted_in(found, found.scaled) == alive(found)


@every_method
def test_a_term_that_no_float_shows_is_refuted_in_any_leaf(key: str) -> None:
    found = planted(key)
    assert refuted_in(found, found.added) == alive(found)


def alive(found: Planted) -> set[str]:
    """The leaves in which a planted error has an effect, at least one; zero leaves are printed."""
    if found.dead:
        print(f"not planted in {', '.join(found.dead)}: zero on this problem, and so is every multiple")
    live = {name for name in found.right if name and name not in found.dead}
    assert live
    return live


def refuted_in(found: Planted, wrong: Values) -> set[str]:
    """The leaves whose planted error alone makes the gradient wrong, in exactly that leaf."""
    assert not compare(found.right, found.plain).wrong
    seen = {name: compare({**found.right, name: wrong[name]}, found.plain).wrong for name in found.right if name}
    return {name for name, leaves in seen.items() if set(leaves) == {name}}


@pytest.mark.parametrize("plant", [lambda leaf: leaf * (1 + ULP), lambda leaf: leaf + TERM * leaf], ids=["ulp", "term"])
@every_method
def test_the_check_itself_refutes_a_planted_method(key: str, plant: Any) -> None:
    right, method = subject(key).function, METHODS[key]

    def wrong(problem: Problem, **options: Any) -> Any:
        loss, grads = right(problem, **options)
        return loss, last_changed(grads, plant)

    case = Case(Subject(method, wrong), method.claim("gradient_exact"), *alive_cell(key))
    with pytest.raises(Refuted, match="wrong gradient"):
        CHECKS["gradient_exact"].function(case)


def last_changed(grads: Any, plant: Any) -> Any:
    """A gradient whose last leaf is changed."""
    count = len(leaves(grads))
    numbers = iter(range(count))

    def walk(tree: Any) -> Any:
        if isinstance(tree, dict):
            done = {key: walk(tree[key]) for key in sorted(tree, key=str)}
            return {key: done[key] for key in tree}
        if isinstance(tree, (list, tuple)):
            return type(tree)([walk(item) for item in tree])
        return plant(tree) if next(numbers) == count - 1 else tree

    return walk(grads)
