"""Composition: jit, torch.compile, vmap and second derivatives, each of which works as claimed or is refused."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

from gradgate.references import oracle
from gradgate.references.backends import named_leaves, precision, tree_map
from gradgate.references.contract import NotComposable, Problem, Tree
from gradgate.suites.checks import differentiation
from gradgate.suites.checks.base import Case, measured
from gradgate.suites.checks.batching import LANES, judge_vmap
from gradgate.suites.checks.outputs import through_cotangents
from gradgate.suites.exact.programs import inner
from gradgate.suites.judging.subject import Fault, Refuted, check_form
from gradgate.suites.judging.tolerance import compare_value
from gradgate.suites.pairs.pair import Pair


def jit(case: Case) -> None:
    """Under jax.jit the method gives the same gradient as without, by the rule of equality."""
    problem = case.problem()
    _, plain = case.subject.call(problem, case.options, eager=True)
    own = case.against_own(case.reference(case.widest), oracle.split(problem, plain))
    _, grads = case.subject.gradient(problem, case.options)
    case.judge(grads, own, case.widest)


def torch_compile(case: Case) -> None:
    """Under torch.compile the function gives the same value and gradient as without, by the rule of equality.

    Dynamo captures it, AOTAutograd splits it into a forward and a backward pass, and both run in eager kernels. So this
    does not judge what a compiler's back end does to the numbers.
    """
    import torch

    problem = case.problem()
    value, plain = case.subject.call(problem, case.options)
    own = case.against_own(case.reference(case.widest), oracle.split(problem, plain))
    torch._dynamo.reset()
    pair: Any = case.subject.function
    compiled = pair.compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo's warnings would count as the function's failure under -W error
        compiled_value, grads = case.subject.guard(problem, case.options, lambda: compiled(problem, **case.options))
    _judge_value(case, float(compiled_value), dataclasses.replace(own, loss=float(value)))
    case.judge(oracle.split(problem, grads), own, case.widest)


def vmap(case: Case) -> None:
    """Under vmap over sets of parameters, the method gives for each set the same result as for that set alone.

    For a pair see `batching.judge_vmap`.
    """
    if isinstance(case.subject.function, Pair):
        judge_vmap(case)
        return
    wide = case.problem()
    stacked = _scaled(wide, lambda p: wide.xp.stack([factor * p for factor in LANES])).params
    answer = _transformed(case, wide, _vmapped(case, wide), stacked)
    batched = oracle.split_stack(wide, answer[1])
    for lane, factor in enumerate(LANES):
        single = _scaled(wide, lambda leaf: factor * leaf)  # noqa: B023 - called at once
        value, alone = case.subject.call(single, case.options)
        own = case.against_own(measured(case, single), oracle.split(wide, alone))
        _judge_value(case, float(answer[0][lane]), dataclasses.replace(own, loss=float(value)), f"lane {lane}: ")
        grads = {name: leaf[lane] for name, leaf in batched.items()}
        case.judge(grads, own, case.widest, what=f"lane {lane}: ")


def _judge_value(case: Case, value: float, own: oracle.Reference, what: str = "") -> None:
    """The value under a transformation equals the value without it, by the rule of equality."""
    found = compare_value(value, own, case.widest)
    case.record(found)
    if not found.equal:
        raise Refuted(f"{what}the value is {value!r}; without the transformation it is {own.loss!r}", "", found.error)


def second_order(case: Case) -> None:
    """The gradient of ⟨method's gradient, v⟩ equals the oracle's H·v, whose noise is measured as for the gradient."""
    wide = case.problem()
    vector = differentiation.direction(case)
    reference = measured(case, wide, vector)
    answer = _transformed(case, wide, _differentiated(case, wide, vector), wide.params)
    case.judge(oracle.split(wide, answer), reference, case.widest)
    if isinstance(case.subject.function, Pair):
        through_cotangents(case, vector)
        why = differentiation.over_reverse(case, vector, reference)
        case.remark = (0.0, f"forward over reverse is not offered: {why}") if why else case.remark


def refuses(case: Case) -> None:
    """A disclaimed transformation raises NotComposable with a sentence. It neither works nor fails by accident."""
    name, problem = case.settings["transformation"], case.problem()
    if name == "vmap":
        with precision(problem.backend, problem.dtype):
            argument = tree_map(lambda p: problem.xp.stack([p, p]), problem.params)
        run = _vmapped(case, problem)
    elif name in ("jit", "compile"):
        run, argument = _compiled(case, problem), problem.params
    else:
        direction = oracle.random_direction(problem, 0)
        run, argument = _differentiated(case, problem, direction), problem.params
    try:
        case.subject.guard(problem, case.options, run, argument)
    except Fault as fault:
        if not isinstance(fault.__cause__, NotComposable) and not case.settings.get("in_own_words"):
            raise Refuted(f"{name} failed by accident: {fault.sentence}; expected NotComposable{fault.at}") from None
        if len(str(fault.__cause__).split()) < 5:
            raise Refuted(f"{name} was refused without a sentence that says why: {fault.sentence}") from None
    else:
        raise Refuted(f"{name} is disclaimed, but it works: claim it")


def _transformed(case: Case, problem: Problem, run: Callable[[Tree], Any], argument: Tree) -> Any:
    """The answer of a transformed call. If it fails, the plain call may fail, too; then the plain error says more."""
    try:
        return case.subject.guard(problem, case.options, run, argument)
    except Fault:
        case.subject.call(problem, case.options, eager=True)
        raise


def _compiled(case: Case, problem: Problem) -> Callable[[Tree], Any]:
    if problem.backend == "jax":
        import jax

        return functools.partial(jax.jit(_method(case)), problem=problem)
    import torch

    torch._dynamo.reset()
    pair: Any = case.subject.function
    compiled = pair.compiled()
    return lambda params: compiled(problem.with_params(params), **case.options)


def _vmapped(case: Case, problem: Problem) -> Callable[[Tree], Any]:
    run = _method(case)
    if problem.backend == "jax":
        import jax

        batched = _program(case, "vmap", jax.vmap(run, in_axes=(0, None)))
        return lambda params: batched(params, problem)
    import torch

    return torch.func.vmap(functools.partial(run, problem=problem))


def _differentiated(case: Case, problem: Problem, vector: Tree) -> Callable[[Tree], Any]:
    run = _method(case)

    def product(params: Tree, problem: Problem, vector: Tree) -> Any:
        return inner(run(params, problem)[1], vector)

    if problem.backend == "jax":
        import jax

        gradient = _program(case, "grad", jax.grad(product))
        return lambda params: gradient(params, problem, vector)
    import torch

    return torch.func.grad(functools.partial(product, problem=problem, vector=vector))


def _program(case: Case, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A transformed JAX method: under jit if it claims jit, compiled once for all problems of a shape."""
    import jax

    if "jit" not in case.subject.declared.composes:
        return function
    found: Callable[..., Any] = case.subject.program(what, case.options, lambda: jax.jit(function))
    return found


def _method(case: Case) -> Callable[..., Any]:
    """(params, problem) -> the method's answer, whose form is checked."""

    def checked(params: Tree, problem: Problem) -> Any:
        expected = named_leaves(params)
        answer = case.subject.function(problem.with_params(params), **case.options)
        check_form(expected, answer)
        return answer

    return checked


def _scaled(problem: Problem, change: Callable[[Any], Any]) -> Problem:
    with precision(problem.backend, problem.dtype):
        return problem.with_params(tree_map(change, problem.params))
