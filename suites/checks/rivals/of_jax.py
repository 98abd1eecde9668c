"""The checks of `jax.test_util`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.backends import precision, tree_map
from gradgate.references.contract import Problem, Tree
from gradgate.suites.checks.base import Case
from gradgate.suites.checks.rivals.words import asserted, framework


def check_vjp(case: Case) -> None:
    """`jax.test_util.check_vjp` of the loss and a pullback made of the method."""
    framework(case, "jax")
    from jax.test_util import check_vjp as rival

    problem = case.problem()

    def pair(params: Tree) -> tuple[Any, Callable[[Any], Any]]:
        loss, grads = case.subject.call(problem.with_params(params), case.options)
        return loss, lambda cotangent: (tree_map(lambda leaf: leaf * cotangent, grads),)

    with precision("jax", "float64"):
        asserted(rival, functools.partial(_loss(), problem), pair, (problem.params,))


def check_grads(case: Case) -> None:
    """`jax.test_util.check_grads`, order 1 and reverse mode, of the loss with the method as its custom VJP."""
    jax = framework(case, "jax")
    from jax.test_util import check_grads as rival

    problem, plain = case.problem(), functools.partial(_loss(), case.problem())
    function = jax.custom_vjp(plain)

    def backward(params: Tree, cotangent: Any) -> Any:
        _, grads = case.subject.call(problem.with_params(params), case.options)
        return (tree_map(lambda leaf: leaf * cotangent, grads),)

    function.defvjp(lambda params: (plain(params), params), backward)
    with precision("jax", "float64"):
        asserted(rival, function, (problem.params,), order=1, modes=("rev",))


@functools.cache
def _loss() -> Callable[[Problem, Tree], Any]:
    """The plain loss, jitted once for all problems of a shape."""
    import jax

    return jax.jit(lambda problem, params: problem.loss(params))
