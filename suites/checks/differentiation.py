"""Other ways to differentiate a pair's function than by all inputs in reverse: one input alone, and forward mode."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import precision, to_numpy
from gradgate.references.contract import Tree
from gradgate.suites.checks.base import QUICK_COMPILER, Case, Rejected, farthest, judgeable, measured
from gradgate.suites.exact import forward
from gradgate.suites.judging.subject import Fault, Inapplicable, first_line
from gradgate.suites.pairs import rules
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair

LEAVES = 8
"""Up to this number of leaves, each is judged alone; with more, each argument alone, a module's parameters as one."""


def each_leaf_alone(case: Case) -> None:
    """In JAX, ``jax.grad`` by one input alone gives this input the gradient that it gets with all inputs together.

    A rule of ``custom_vjp`` with ``symbolic_zeros`` sees which inputs are perturbed.
    """
    pair: Any = case.subject.function
    problem: Any = case.problem()
    arguments = _arguments(problem)
    if len(arguments) < 2:
        return
    _, plain = case.subject.gradient(problem, case.options)
    own = case.against_own(case.reference(case.widest), plain)

    def alone(problem: Any) -> dict[str, Any]:
        found = {}
        for name, paths in arguments.items():
            some = {path: problem.params[path] for path in paths}
            found[name] = _gradient(pair, problem, some, case.options)
        return found

    answers = case.subject.guard(problem, case.options, _program(case, "alone", alone), problem)
    for name, grads in answers.items():
        case.judge(oracle.split(problem, grads), own, case.widest, what=f"{name} alone is differentiated: ")


def _arguments(problem: Any) -> dict[str, tuple[str, ...]]:
    """What is differentiated alone -> its leaves."""
    if len(problem.params) <= LEAVES:
        return {path: (path,) for path in problem.params}
    found: dict[str, tuple[str, ...]] = {}
    for path in problem.params:
        name = path.partition(".")[0].partition("[")[0]
        found[name] = (*found.get(name, ()), path)
    return found


def _gradient(pair: Pair, problem: Any, some: Tree, options: Mapping[str, Any]) -> Tree:
    """The gradient by some of the leaves; the others are constants."""
    import jax

    def outputs(some: Tree) -> dict[str, Any]:
        return pair.outputs("function", problem, {**problem.params, **some}, options)

    with pair.seeded(problem.spec):
        found, pull = jax.vjp(outputs, some)
        with rules.named(pair):
            [grads] = pull({path: problem.data["cotangents"][path].astype(out.dtype) for path, out in found.items()})
    return grads


def forward_mode(case: Case) -> None:
    """The function's derivative along a direction, in forward mode, equals the reference's.

    If the function has one, and does not claim `second_order`, which judges it too, its gradient's derivative in
    forward mode is also compared.

    Raises:
        Inapplicable: the function refuses forward mode, as every ``custom_vjp`` does, or the reference does.
    """
    pair: Any = case.subject.function
    problem, vector = case.problem(), direction(case)
    try:
        got = case.subject.guard(
            problem, case.options, _program(case, "jvp", _pushed(case, "function")), problem, vector
        )
    except Fault as fault:
        case.subject.call(problem, case.options, eager=True)  # if it fails, too, its error says more
        raise Inapplicable(f"forward mode is not judged: the function offers none: {fault.sentence}") from None
    problem = case.problem()  # a function may have donated the arrays of the other
    moved, runs = oracle.jittered(problem), []
    plain = case.subject.program("jvp of the reference", {}, lambda: _quick(_pushed(case, "reference"), pair))
    for i in range(oracle.NOISE_SAMPLES):
        given = problem.with_params({path: leaf[i] for path, leaf in moved.items()})
        try:
            with precision(problem.backend, problem.dtype):
                runs.append({path: to_numpy(leaf) for path, leaf in plain(given, vector).items()})
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise Inapplicable(f"forward mode is not judged: the reference offers none: {why}") from None
    if not all(_finite(run) for run in runs):
        raise Rejected
    exact = runs[0]
    if pair.against_itself:  # the runs say how it rounds, and values of its forward pass what is right
        with judgeable():
            exact = forward.pushed(problem, lambda given: pair.outputs("reference", given, given.params), vector)
    known = oracle.Reference(0.0, exact, farthest(runs, runs[0]))
    check_outputs(got, exact)
    found = {path: to_numpy(leaf) for path, leaf in got.items()}
    case.judge_derived(found, known, _pushed(case, "function"), case.problem(), vector, "in forward mode: ")
    if "second_order" not in case.subject.declared.composes:
        try:
            curvature = measured(case, case.problem(), vector)
        except RuntimeError:  # the plain function itself has no second derivative
            return
        why = over_reverse(case, vector, curvature)
        case.remark = (0.0, f"forward over reverse is not offered: {why}") if why else case.remark


def direction(case: Case) -> Tree:
    """A random direction, a tree like params, which float32 represents."""
    narrow = case.problem("float32")
    return oracle.cast(narrow, oracle.random_direction(narrow, case.spec.seed), case.widest)


def over_reverse(case: Case, vector: Tree, reference: oracle.Reference) -> str:
    """The derivative of the function's gradient along v, in forward mode, equals H·v.

    Returns:
        Why the function does not offer it; "" if it does, and is right.
    """
    problem = case.problem()
    run = _program(case, "jvp of vjp", _pushed_gradient(case))
    try:
        got = case.subject.guard(problem, case.options, run, problem, vector)
    except Fault as fault:
        return fault.sentence
    found = oracle.split(problem, got)
    case.judge_derived(found, reference, _pushed_gradient(case), case.problem(), vector, "forward over reverse: ")
    return ""


def _finite(run: Mapping[str, Any]) -> bool:
    return all(np.isfinite(leaf).all() for leaf in run.values())


def _program(case: Case, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """In JAX the function compiled, once for all problems of a shape, if the pair claims jit; else the function."""
    if case.subject.declared.framework != "jax" or "jit" not in case.subject.declared.composes:
        return function
    pair: Any = case.subject.function
    found: Callable[..., Any] = case.subject.program(what, case.options, lambda: _quick(function, pair))
    return found


def _quick(function: Callable[..., Any], pair: Pair) -> Callable[..., Any]:
    if pair.where != "jax":
        return function
    import jax

    return jax.jit(function, compiler_options=QUICK_COMPILER)


def _pushed(case: Case, role: str) -> Callable[[Any, Tree], dict[str, Any]]:
    """(problem, v) -> path of an output -> its derivative along v."""
    pair: Any = case.subject.function
    options = case.options if role == "function" else {}

    def of_jax(problem: Any, vector: Tree) -> dict[str, Any]:
        import jax

        def outputs(params: Tree) -> dict[str, Any]:
            found: dict[str, Any] = pair.outputs(role, problem, params, options)
            return found

        with pair.seeded(problem.spec):
            found: dict[str, Any] = jax.jvp(outputs, (problem.params,), (vector,))[1]
        return found

    def of_torch(problem: Any, vector: Tree) -> dict[str, Any]:
        from torch.autograd import forward_ad

        with _no_warnings(), forward_ad.dual_level():
            params = {path: forward_ad.make_dual(leaf.detach(), vector[path]) for path, leaf in problem.params.items()}
            return _tangents(pair.outputs(role, problem, params, options))

    return of_jax if pair.where == "jax" else of_torch


def _pushed_gradient(case: Case) -> Callable[[Any, Tree], dict[str, Any]]:
    """(problem, v) -> path of a leaf -> the derivative of its gradient along v."""
    pair: Any = case.subject.function

    def of_jax(problem: Any, vector: Tree) -> dict[str, Any]:
        import jax

        def gradient(params: Tree) -> Tree:
            return pair.gradient("function", problem.with_params(params), case.options)[1]

        found: dict[str, Any] = jax.jvp(gradient, (problem.params,), (vector,))[1]
        return found

    def of_torch(problem: Any, vector: Tree) -> dict[str, Any]:
        import torch
        from torch.autograd import forward_ad

        leaves = {path: leaf.detach().clone().requires_grad_() for path, leaf in problem.params.items()}
        with _no_warnings(), torch.enable_grad(), forward_ad.dual_level():
            params = {path: forward_ad.make_dual(leaf, vector[path]) for path, leaf in leaves.items()}
            found = pair.outputs("function", problem, params, case.options)
            asked = [path for path, out in found.items() if out.requires_grad]
            upstream = [problem.data["cotangents"][path].to(found[path].dtype) for path in asked]
            grads = torch.autograd.grad(
                [found[path] for path in asked], list(leaves.values()), upstream, materialize_grads=True
            )
            return _tangents(dict(zip(leaves, grads, strict=True)))

    return of_jax if pair.where == "jax" else of_torch


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """The scope without warnings: PyTorch's own, at its first use of forward mode, would count as an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _tangents(duals: Mapping[str, Any]) -> dict[str, Any]:
    """Path -> tangent of a dual tensor; zeros if it alone has none.

    Raises:
        NotImplementedError: none has a tangent, as those that an operator of torch.library returns.
    """
    import torch
    from torch.autograd import forward_ad

    parts = {path: forward_ad.unpack_dual(dual) for path, dual in duals.items()}
    if all(tangent is None for _, tangent in parts.values()):
        raise NotImplementedError("PyTorch gives none of its results a tangent, and no error")
    return {
        path: torch.zeros_like(primal) if tangent is None else tangent.detach().clone()
        for path, (primal, tangent) in parts.items()
    }
