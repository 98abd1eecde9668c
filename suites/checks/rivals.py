"""The tools that people check gradients with today, as checks: to compare them with ours on the same mutants.

No method claims these checks. `gradgate selftest` runs them on broken and on correct methods, on the smallest, a medium
and the largest problem of the family's vocabulary, in float64, where they are strongest. Rules of tools for other
languages are restated from the documentation of these tools.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, named_leaves, precision, tree_map
from gradgate.references.contract import Claim, Problem, Tree
from gradgate.references.oracle import split
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Inapplicable, Refuted

LOOSE = 1e-3


def gradcheck(case: Case) -> None:
    """`torch.autograd.gradcheck` of the loss with the method as its backward pass; settings: ``fast``."""
    torch = _framework(case, "torch")
    from torch.autograd.gradcheck import GradcheckError

    problem = case.problem()
    inputs = [leaf.detach().clone().requires_grad_() for leaf in leaves(problem.params)]

    class Loss(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx: Any, *flat: Any) -> Any:
            ctx.save_for_backward(*flat)
            return problem.loss(_filled(problem.params, flat)).detach()

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            params = _filled(problem.params, [leaf.detach() for leaf in ctx.saved_tensors])
            with torch.enable_grad():
                _, grads = case.subject.call(problem.with_params(params), case.options)
            return tuple(leaf * cotangent for leaf in leaves(grads))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.autograd.gradcheck(Loss.apply, inputs, fast_mode=case.settings["fast"])
    except GradcheckError as error:
        raise Refuted(_line(error)) from None


def check_vjp(case: Case) -> None:
    """`jax.test_util.check_vjp` of the loss and a pullback made of the method."""
    _framework(case, "jax")
    from jax.test_util import check_vjp as rival

    problem = case.problem()

    def pair(params: Tree) -> tuple[Any, Callable[[Any], Any]]:
        loss, grads = case.subject.call(problem.with_params(params), case.options)
        return loss, lambda cotangent: (tree_map(lambda leaf: leaf * cotangent, grads),)

    with precision("jax", "float64"):
        _asserted(rival, functools.partial(_loss(), problem), pair, (problem.params,))


def check_grads(case: Case) -> None:
    """`jax.test_util.check_grads`, order 1 and reverse mode, of the loss with the method as its custom VJP."""
    jax = _framework(case, "jax")
    from jax.test_util import check_grads as rival

    problem, plain = case.problem(), functools.partial(_loss(), case.problem())
    function = jax.custom_vjp(plain)

    def backward(params: Tree, cotangent: Any) -> Any:
        _, grads = case.subject.call(problem.with_params(params), case.options)
        return (tree_map(lambda leaf: leaf * cotangent, grads),)

    function.defvjp(lambda params: (plain(params), params), backward)
    with precision("jax", "float64"):
        _asserted(rival, function, (problem.params,), order=1, modes=("rev",))


def assert_allclose(case: Case) -> None:
    """`numpy.testing.assert_allclose` of every leaf with plain backprop's; settings: its arguments."""
    for got, exact in _pairs(case):
        _asserted(np.testing.assert_allclose, got, exact, **case.settings["arguments"])


def assert_close(case: Case) -> None:
    """`torch.testing.assert_close` of every leaf with plain backprop's; settings: its arguments."""
    torch = _framework(case, "torch")
    for got, exact in _pairs(case):
        _asserted(
            torch.testing.assert_close, torch.from_numpy(got), torch.from_numpy(exact), **case.settings["arguments"]
        )


def isapprox(case: Case) -> None:
    """DifferentiationInterfaceTest's rule: ‖x − y‖ ≤ rtol·max(‖x‖, ‖y‖) of the whole gradient, rtol 1e-3, atol 0."""
    got, exact = (np.concatenate([leaf.ravel() for leaf in side]) for side in zip(*_pairs(case), strict=True))
    size = max(float(np.linalg.norm(got)), float(np.linalg.norm(exact)))
    if not float(np.linalg.norm(got - exact)) <= LOOSE * size:
        raise Refuted("the norm of the difference is above a thousandth of the gradient's")


def gradbench(case: Case) -> None:
    """GradBench's rule: no |x − y| / max(1, |x| + |y|) is above 1e-4. So a NaN passes."""
    for got, exact in _pairs(case):
        with np.errstate(invalid="ignore"):
            difference = np.abs(got - exact) / np.maximum(1.0, np.abs(got) + np.abs(exact))
        if (difference > 1e-4).any():
            raise Refuted("an entry differs by more than 1e-4 of itself, or of 1")


def _claim(name: str, check: str, statement: str, source: str, **settings: Any) -> Claim:
    return Claim(name, check, f"{statement} finds nothing", source, settings=settings)


CLAIMS = (
    _claim("gradcheck", "rival_gradcheck", "torch.autograd.gradcheck", "PyTorch", fast=False),
    _claim("gradcheck_fast", "rival_gradcheck", "torch.autograd.gradcheck, fast_mode", "PyTorch", fast=True),
    _claim("check_grads", "rival_check_grads", "jax.test_util.check_grads", "JAX"),
    _claim("check_vjp", "rival_check_vjp", "jax.test_util.check_vjp", "JAX"),
    _claim("assert_allclose", "rival_assert_allclose", "numpy.testing.assert_allclose", "NumPy", arguments={}),
    _claim(
        "assert_allclose_loose",
        "rival_assert_allclose",
        "numpy.testing.assert_allclose at rtol 1e-3",
        "NumPy",
        arguments={"rtol": LOOSE},
    ),
    _claim("assert_close", "rival_assert_close", "torch.testing.assert_close", "PyTorch", arguments={}),
    _claim(
        "assert_close_loose",
        "rival_assert_close",
        "torch.testing.assert_close at rtol 1e-3, atol 0",
        "PyTorch",
        arguments={"rtol": LOOSE, "atol": 0.0},
    ),
    _claim("isapprox", "rival_isapprox", "DifferentiationInterfaceTest's rule, restated", "Julia"),
    _claim("gradbench", "rival_gradbench", "GradBench's rule, restated", "GradBench"),
)
"""One claim per rival: refuted means that it finds something."""


def _framework(case: Case, name: str) -> Any:
    import importlib

    if case.subject.declared.framework != name:
        raise Inapplicable(f"a tool of {name} alone")
    return importlib.import_module(name)


def _pairs(case: Case) -> list[tuple[Any, Any]]:
    """Leaves of the method's gradient and of plain backprop's, float64."""
    problem = case.problem()
    _, grads = case.subject.call(problem, case.options)
    exact = case.reference("float64").grads
    return [(np.array(leaf), exact[name]) for name, leaf in split(problem, grads).items()]


def _asserted(rival: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    try:
        rival(*arguments, **settings)
    except AssertionError as error:
        raise Refuted(_line(error)) from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _filled(tree: Tree, flat: Any) -> Tree:
    """The structure of a tree with other leaves, in the order of `named_leaves`."""
    found = dict(zip(named_leaves(tree), flat, strict=True))

    def fill(part: Tree, path: str) -> Tree:
        if isinstance(part, dict):
            return {key: fill(part[key], f"{path}.{key}" if path else str(key)) for key in part}
        if isinstance(part, (list, tuple)):
            return type(part)([fill(item, f"{path}[{i}]") for i, item in enumerate(part)])
        return found[path]

    return fill(tree, "")


@functools.cache
def _loss() -> Callable[[Problem, Tree], Any]:
    """The plain loss, jitted once for all problems of a shape."""
    import jax

    return jax.jit(lambda problem, params: problem.loss(params))
