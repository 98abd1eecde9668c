"""Is a difference a fault, at inputs that no draw of a pair has? They may be at a kink, or where nothing is promised.

`engine.sides` finds such inputs, because they take sides of decisions. The formula of the function differs there from
that of the reference; let g be the gradient of one, and r that of the other. The difference is no fault if

1. the reference has no finite gradient at the inputs or beside them: they are outside of its domain, or on its border;
   or plain backprop overflows there;
2. ‖g − r‖ is at most what plain backprop itself loses there in float32, if the pair supports a dtype as narrow. A
   formula that is approximate far away, such as x for softplus(x) at x > 20, is right up to this;
3. the reference has a kink, and g is an element of its generalised gradient. That is the convex hull of the limits of
   gradients at inputs nearby; every number of g must lie between the smallest and the largest of the corresponding
   numbers there. At a tie of many numbers, too few of the limits are tried, and nothing is said;
4. every number of g that is no such element is the derivative by an input along which the reference jumps, as
   x − ⌊x⌋ does at 0. It has no derivative there. The value at the jump is judged, and so are all other numbers of g;
5. g is not finite, but not only there. Then balls or floats are too narrow for it, and nothing is said.

Else the function is wrong, and not merely different.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_backend, to_numpy
from gradgate.references.contract import Problem
from gradgate.suites.checks.base import Rejected
from gradgate.suites.exact import balls
from gradgate.suites.judging.tolerance import KAPPA

BESIDE = {"float64": 2.0**-40, "float32": 2.0**-18}
"""Widest dtype of a pair -> distance of the inputs nearby, relative to each number. The numbers are moved in this
dtype, so a smaller distance would move nothing. Gradients differ by about as much without any kink, so in a pair of
float32 alone an error below 4e-6 is not seen at such inputs."""
EACH = 12
"""Up to this many numbers, each is moved against all others, and farther than all others, so that every tie of two is
resolved in every way."""
RANDOM = 4
"""Number of further random moves; each is made in both directions."""
Evaluate = Callable[[Problem, int], Mapping[str, Any]]
"""(Problem, digits) -> leaf -> balls."""
Leaves = Mapping[str, Any]
"""Leaf -> float64 array; the loss is the leaf ""."""


def excused(problem: Callable[[], Problem], own: Evaluate, plain: Evaluate, dtypes: tuple[str, ...]) -> str:
    """In which way a difference at such inputs is no fault; "" if it is one.

    Args:
        problem: makes the Problem anew.
        own, plain: evaluate the function and the reference.
        dtypes: what the pair supports.

    Raises:
        Rejected: nothing can be said there; the message says why.

    Cost: up to 58 evaluations of the reference, and one plain gradient in floats.
    """
    here = _floats(plain, problem())
    if here is None:
        raise Rejected("the reference's gradient is not finite")
    floats = {"": (found := oracle.gradient(problem()))[0], **oracle.split(problem(), found[1])}
    lost = {name: _norm(to_numpy(floats[name]) - leaf) for name, leaf in here.items()}
    if not np.isfinite(list(lost.values())).all():
        raise Rejected("the reference overflows in floats")
    allowed = _allowed(here, lost, problem().dtype, dtypes)
    got = _floats(own, problem())
    if got is not None and all(_norm(got[name] - leaf) <= allowed[name] for name, leaf in here.items()):
        return "differs by less than plain backprop loses in float32"
    nearby = []
    for moved in _moves(problem()):
        found_there = _floats(plain, moved)
        if found_there is None:
            raise Rejected("the reference's gradient is not finite beside these inputs")
        nearby.append(found_there)
    low, high = ({name: pick([one[name] for one in (here, *nearby)]) for name in here} for pick in (_least, _most))
    kinks = any(_norm(high[name] - low[name]) > allowed[name] for name in here)
    if got is None:
        beside = [_floats(own, moved) for _, moved in zip(range(2), _moves(problem()), strict=False)]
        if kinks or None in beside:
            raise Rejected("the function's gradient is not finite " + ("at a kink" if kinks else "around here"))
        return ""
    low[""] = high[""] = here[""]  # a function has one value, also where it jumps
    outside = {name: np.maximum(np.maximum(got[name] - high[name], low[name] - got[name]), 0) for name in here}
    if all(_norm(apart) <= allowed[name] for name, apart in outside.items()):
        return "an element of the generalised gradient, and not the one that the reference gives"
    jumps = _jumping(problem(), plain, here, nearby, outside)
    if all(_norm(np.where(jumps[name], 0, apart)) <= allowed[name] for name, apart in outside.items()):
        return "the reference jumps there, so it has no derivative"
    if kinks and sum(leaf.size for name, leaf in here.items() if name) > EACH:
        raise Rejected("a tie of too many numbers")
    return ""


def _jumping(problem: Problem, plain: Evaluate, here: Leaves, nearby: list[Leaves], outside: Leaves) -> Leaves:
    """Leaf -> booleans: the numbers along which the reference jumps, out of those at which the gradient is `outside`.

    A smooth function changes by at most about its slope times the step. Up to EACH numbers are tried; if it jumps along
    these and there are more, nothing is known of the others.

    Raises:
        Rejected: there are more.
    """
    arrays, steps = _inputs(problem)
    jumps = {name: np.zeros(leaf.shape, bool) for name, leaf in outside.items()}
    places = [
        (name, place) for name, leaf in outside.items() if name for place in np.ndindex(leaf.shape) if leaf[place]
    ]
    for name, place in places[:EACH]:
        slope = max(abs(one[name][place]) for one in (here, *nearby))
        most = 8 * steps[name][place] * slope + 1e-12 * abs(float(here[""]))
        by = {path: np.zeros(array.shape) for path, array in arrays.items()}
        for sign in (1.0, -1.0):
            by[name][place] = sign
            moved = _floats(plain, _moved(problem, arrays, steps, np.concatenate([one.ravel() for one in by.values()])))
            jumps[name][place] |= moved is not None and abs(float(moved[""]) - float(here[""])) > most
    if len(places) > EACH and all(jumps[name][place] for name, place in places[:EACH]):
        raise Rejected("the reference jumps along many numbers")
    return jumps


def _floats(evaluate: Evaluate, problem: Problem) -> Leaves | None:
    """The values as float64; None if one is not finite, or is not known to ten digits."""
    for digits in (60, 240):
        try:
            with balls.digits(digits):
                found = evaluate(problem, digits)
                leaves = {name: np.asarray(balls.floats(leaf), float) for name, leaf in found.items()}
                radii = {name: _largest([float(ball.rad()) for ball in leaf.ravel()]) for name, leaf in found.items()}
        except balls.Undecided:
            continue
        whole = max((_norm(leaf) for name, leaf in leaves.items() if name), default=0.0)
        if all(
            np.isfinite(leaf).all()
            and np.isfinite(_norm(leaf))
            and radii[name] <= 1e-10 * max(_norm(leaf), 1e-10 * whole)
            for name, leaf in leaves.items()
        ):
            return leaves
    return None


def _allowed(here: Leaves, lost: Mapping[str, float], dtype: str, dtypes: tuple[str, ...]) -> dict[str, float]:
    """Leaf -> the distance that the narrowest dtype, but none below float32, makes irrelevant.

    What plain backprop loses is measured in the widest dtype, which overflows last, and grows with the unit roundoff.
    """
    narrow = "float64" if tuple(dtypes) == ("float64",) else "float32"
    u, growth = UNIT_ROUNDOFF[narrow], UNIT_ROUNDOFF[narrow] / UNIT_ROUNDOFF[dtype]
    whole = _norm(np.array([_norm(leaf) for name, leaf in here.items() if name])) or 1.0
    found = {}
    for name, leaf in here.items():
        size = _norm(leaf)
        found[name] = KAPPA * max(lost[name] * growth, u * (size if size > u * whole else whole))
    return found


def _moves(problem: Problem) -> Iterator[Problem]:
    """The Problem at inputs nearby: random moves in both directions, and each number against all others."""
    rng = np.random.Generator(np.random.PCG64(0))
    arrays, steps = _inputs(problem)
    count = sum(array.size for array in arrays.values())
    for alone in [*[None] * RANDOM, *(range(count) if count <= EACH else ())]:
        drawn = rng.uniform(0.25, 0.5, count) * (rng.choice([-1.0, 1.0], count) if alone is None else -1.0)
        if alone is not None:
            drawn[alone] = 1.0
        ways = [drawn]
        if alone is not None:  # the same way as all others, and farther: of two ties of one number, one may need this
            ways.append(abs(drawn) / 8)
            ways[1][alone] = 1.0
        for way, sign in itertools.product(ways, (1.0, -1.0)):
            yield _moved(problem, arrays, steps, sign * way)


def _inputs(problem: Problem) -> tuple[Leaves, Leaves]:
    """The inputs, and how far each number is moved."""
    arrays = {path: to_numpy(leaf).astype(np.float64) for path, leaf in problem.params.items()}
    steps = {
        path: BESIDE[problem.dtype] * np.where(x == 0, np.abs(x).max(initial=0.0) or 1.0, np.abs(x))
        for path, x in arrays.items()
    }
    return arrays, steps


def _moved(problem: Problem, arrays: Leaves, steps: Leaves, by: Any) -> Problem:
    params, start = {}, 0
    with precision(problem.backend, problem.dtype):
        for path, array in arrays.items():
            part = by[start : start + array.size].reshape(array.shape)
            start += array.size
            params[path] = to_backend(problem.backend, array + steps[path] * part, problem.dtype)
    return problem.with_params(params)


def _norm(leaf: Any) -> float:
    """‖leaf‖, infinite where the squares are."""
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(np.asarray(leaf, float).ravel()))


def _largest(numbers: list[float]) -> float:
    return max(numbers, default=0.0)


def _least(leaves: list[Any]) -> Any:
    return np.minimum.reduce(leaves)


def _most(leaves: list[Any]) -> Any:
    return np.maximum.reduce(leaves)
