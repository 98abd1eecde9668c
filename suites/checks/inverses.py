"""Layers of a chain: their inverses, their vector-inverse-Jacobian products, and the problems that lack one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.references import registry
from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_backend, to_numpy, transforms
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Fault, Refuted

SLACK = 64.0
"""Either identity may be off by this many times u·(condition number of the layer's Jacobian)."""


def inverses(case: Case) -> None:
    """For every layer of a chain: f^{-1}(f(x)) = x, and vjp(f, x, vijp(f, x, h)) = h, to within its condition number.

    The problem has ``chain(params)``, pairs of a layer and its parameters; a layer has ``inverse`` and ``advance``. The
    bound is SLACK·u·cond(∂f/∂x), of the whole layer at this x; h is random.
    """
    _walk(case, _inverse)


def vijp(case: Case) -> None:
    """Every layer's vijp undoes its VJP, to within the layer's condition number.

    As `inverses`, but a layer needs no inverse: it is enough that its Jacobian is surjective.
    """
    _walk(case, _left_inverse)


def refuses_problem(case: Case) -> None:
    """A problem that the method does not support is refused in words.

    Settings: ``error``, ``module:class`` of the documented exception; ``says``, words that its message contains.
    """
    error, says = registry.load(case.settings["error"]), case.settings["says"]
    try:
        case.subject.call(case.problem(), case.options)
    except Fault as fault:
        if not isinstance(fault.__cause__, error) or says not in str(fault.__cause__):
            raise Refuted(
                f"failed by accident: {fault.sentence}; expected {error.__name__} that says {says!r}"
            ) from None
    else:
        raise Refuted("gave a gradient of a problem that it is claimed to refuse: claim it")


Found = tuple[str, str, Any, Any, float]
"""(name of a value, name of what it should equal, the value, what it should equal, bound)."""


def _walk(case: Case, identities: Callable[..., list[Found]]) -> None:
    problem: Any = case.problem()

    def walk(problem: Any) -> list[Found]:
        rng, x, found = np.random.default_rng(problem.spec.seed), problem.x, []
        made = transforms(problem.backend)
        vjp, vmap = made.vjp, made.vmap
        for layer, p in problem.chain(problem.params):
            y, pull = vjp(lambda x: layer(p, x), x)  # noqa: B023 - called at once
            eye = problem.xp.eye(math.prod(y.shape), dtype=x.dtype)
            rows = vmap(lambda row: pull(problem.xp.reshape(row, y.shape))[0])(eye)  # noqa: B023 - called at once
            bound = SLACK * UNIT_ROUNDOFF[problem.dtype] * float(np.linalg.cond(to_numpy(rows).reshape(len(eye), -1)))

            def random(like: Any) -> Any:
                return to_backend(problem.backend, rng.standard_normal(tuple(like.shape)), problem.dtype)

            found += identities(layer, p, x, y, pull, vjp, random, bound)
            x = y
        return found

    with precision(problem.backend, problem.dtype):
        # Layers are foreign code and run under guard. Judging does not: what it raises would count as the method's
        # fault.
        for found in case.subject.guard(problem, case.options, walk, problem):
            _near(*found)


def _inverse(
    layer: Any, p: Any, x: Any, y: Any, pull: Any, vjp: Any, random: Callable[[Any], Any], bound: float
) -> list[Found]:
    h = random(x)
    return [
        (f"{layer.name}: inverse(forward(x))", "x", layer.inverse(p, y), x, bound + _scale_of(x, y) * bound),
        (f"{layer.name}: vjp(vijp(h))", "h", pull(layer.advance(vjp, p, x, h)[1])[0], h, bound),
    ]


def _left_inverse(
    layer: Any, p: Any, x: Any, y: Any, pull: Any, vjp: Any, random: Callable[[Any], Any], bound: float
) -> list[Found]:
    h = random(y)
    return [(f"{layer.name}: vijp(vjp(h))", "h", layer.advance(vjp, p, x, pull(h)[0])[1], h, bound)]


def _near(what: str, exact_name: str, found: Any, exact: Any, bound: float) -> None:
    ours, theirs = to_numpy(found), to_numpy(exact)
    if ours.shape != theirs.shape:
        raise Refuted(f"{what} has shape {ours.shape}; {exact_name} has {theirs.shape}")
    error = float(np.linalg.norm(ours - theirs)) / (float(np.linalg.norm(theirs)) or 1.0)
    if not error <= bound:
        raise Refuted(f"{what} is not {exact_name}: off by {error:.2g}, bound {bound:.2g}", "", error, bound)


def _scale_of(x: Any, y: Any) -> float:
    """‖y‖ / ‖x‖. The inverse subtracts what the layer added to x, such as a bias, and this rounds relative to y."""
    return float(np.linalg.norm(to_numpy(y))) / (float(np.linalg.norm(to_numpy(x))) or 1.0)
