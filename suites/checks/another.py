"""Another function, or a wrong gradient of the right one? If the loss is wrong, a refutation says so first."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import UNIT_ROUNDOFF, leaves, precision, to_numpy, tree_map
from gradgate.references.contract import Problem
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Fault, Refuted
from gradgate.suites.judging.tolerance import compare_value

CLEAR = 30.0
"""A gradient belongs to the method's loss if it is this many times nearer to that loss's differences than another."""
COARSE = 1e-2
"""Above this relative distance from the differences of a loss, a gradient is not the gradient of that loss."""


@contextlib.contextmanager
def naming_a_wrong_loss(
    case: Case, loss: float, grads: Mapping[str, Any], reference: oracle.Reference, dtype: str
) -> Iterator[None]:
    """If the loss is wrong, a refutation raised in this scope says first that the method computes another function.

    Args:
        loss, grads: the method's answer on ``case.problem(dtype)``.
        reference: what it was compared with.

    Raises:
        Refuted: the one raised in the scope; its message begins with ``another function: …; `` if the loss is wrong.
    """
    try:
        yield
    except Refuted as wrong:
        if not math.isfinite(loss) or compare_value(loss, reference, dtype).equal:
            raise
        raise Refuted(
            f"{sentence(case, loss, grads, reference, dtype)}; {wrong}", wrong.leaf, wrong.error, wrong.noise
        ) from None


def sentence(case: Case, loss: float, grads: Mapping[str, Any], reference: oracle.Reference, dtype: str) -> str:
    """``another function``: its loss, plain evaluation's loss and, if that can be decided, whose the gradient is."""
    said = f"another function: its loss is {loss!r} where plain evaluation gives {reference.loss!r}"

    def value(problem: Problem) -> float:
        return float(case.subject.call(problem, case.options)[0])

    with contextlib.suppress(Fault, Refuted):
        said = "; ".join(filter(None, [said, follows(case.problem(dtype), value, grads, reference.grads)]))
    return said


def follows(
    problem: Problem, value: Callable[[Problem], float], grads: Mapping[str, Any], plain: Mapping[str, Any]
) -> str:
    """Whether a method's gradient is the gradient of the method's own loss, by central differences of that loss.

    Args:
        value: the method's loss on a problem with other parameters.
        grads, plain: the gradients of the method and of plain evaluation, judged leaf -> floats.

    Returns:
        ``the gradient follows it``, ``the gradient is plain evaluation's``, ``the gradient is of neither``; or "" if
        the differences are too coarse to decide.

    Cost: four calls of `value`, whose errors are not caught.
    """
    own, other, scale = 0.0, 0.0, 0.0
    for seed in (1, 2):
        slope, vector = _slope(problem, value, seed)
        along = [sum(float(np.sum(np.asarray(g[name]) * vector[name])) for name in grads) for g in (grads, plain)]
        own, other = max(own, abs(slope - along[0])), max(other, abs(slope - along[1]))
        scale = max(scale, abs(slope), *map(abs, along))
    if not math.isfinite(own + other):
        return ""
    if own * CLEAR < other:
        return "the gradient follows it"
    if other * CLEAR < own:
        return "the gradient is plain evaluation's"
    return "the gradient is of neither" if min(own, other) > COARSE * scale else ""


def _slope(problem: Problem, value: Callable[[Problem], float], seed: int) -> tuple[float, dict[str, Any]]:
    """The derivative of the method's loss along a random direction, and the direction, leaf by leaf."""
    vector = oracle.random_direction(problem, seed)
    sizes = [sum(float(np.sum(to_numpy(leaf) ** 2)) for leaf in leaves(tree)) for tree in (problem.params, vector)]
    step = (UNIT_ROUNDOFF[problem.dtype] ** (1 / 3)) * math.sqrt((sizes[0] or 1.0) / sizes[1])

    def at(sign: float) -> float:
        with precision(problem.backend, problem.dtype):
            moved = tree_map(lambda p, v: p + sign * step * v, problem.params, vector)
        return value(problem.with_params(moved))

    return (at(1.0) - at(-1.0)) / (2 * step), oracle.split(problem, vector)
