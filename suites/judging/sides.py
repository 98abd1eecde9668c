"""Further problems of a pair, whose inputs take sides of decisions that none of its problems took.

Such inputs are legal only if the reference says so: its gradient must be finite there, and hardly change if the inputs
are moved by 1e-8. At a kink two right programs may differ; where the reference is smooth, they may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import precision, to_backend, to_numpy
from gradgate.references.contract import Claim, Problem, Spec
from gradgate.suites.exact import balls, decisions, truth
from gradgate.suites.exact.agreement import NotFinite, compare
from gradgate.suites.exact.programs import Evaluator
from gradgate.suites.judging.subject import Subject

BASES = 4
"""Problems, of the smallest that were judged, whose sides count as seen, and whose last one is changed."""
SMOOTH = 1e-4
"""Largest relative change of the reference's gradient, for a relative move of MOVED, that counts as smooth."""
MOVED = 1e-8
Tried = Sequence[tuple[Spec, Mapping[str, Any]]]


def further(subject: Subject, claim: Claim, tried: Tried) -> Iterator[tuple[Spec, Mapping[str, Any]]]:
    """Problems to judge, with their options; none for claims other than ``gradient_exact`` of a pair.

    Cost: about ten evaluations in sixty digits for each input; none of a problem above `truth.AFFORDABLE`.
    """
    pair = subject.function
    if claim.name != "gradient_exact" or not hasattr(pair, "further_regimes"):
        return
    plain = [one for one in tried if not one[0].regime and pair.numbers(one[0].fields) > 1]
    bases = sorted((one for one in plain if one[0].work() <= truth.AFFORDABLE), key=lambda one: one[0].work())[:BASES]
    if not bases:
        return
    options = bases[-1][1]
    evaluator = Evaluator(lambda problem: pair(problem, **options))
    seen: set[Any] = set()
    for spec, _ in bases:
        seen |= _sides(evaluator, _problem(spec, pair))
    if not seen:
        return
    for name in pair.further_regimes:
        spec = dataclasses.replace(bases[-1][0], regime=name)
        problem = _problem(spec, pair)
        new = _sides(evaluator, problem) - seen
        if new and _smooth(problem):
            seen |= new
            yield spec, options


def _problem(spec: Spec, pair: Any) -> Problem:
    return oracle.in_widest(spec, pair.where, "float64")


def _sides(evaluator: Evaluator, problem: Problem) -> set[Any]:
    """(operation, line, side) of all decisions; none if they cannot be evaluated."""
    found: decisions.Decisions = {}
    try:
        decisions.recorded(lambda watch: evaluator(problem, 60, watch=watch), found)
    except Exception:  # foreign code, at inputs that nobody has promised
        return set()
    return {(*place, side) for place, decision in found.items() for side in decision.sides}


def _smooth(problem: Problem) -> bool:
    """Whether the reference's gradient is finite, and about the same at inputs moved either way."""
    plain = truth.evaluator("loss", (), problem.backend)
    try:
        with balls.digits(60):
            here = plain(problem, 60).values
            for sign in (-1.0, 1.0):
                found = compare(plain(_moved(problem, sign * MOVED), 60).values, here)
                if found.open or max(found.wrong.values(), default=0.0) > SMOOTH:
                    return False
    except (balls.Unknown, balls.Undecided, NotFinite):
        return False
    return True


def _moved(problem: Problem, by: float) -> Problem:
    rng = np.random.Generator(np.random.PCG64(0))
    params = {}
    with precision(problem.backend, problem.dtype):
        for path, leaf in problem.params.items():
            array = to_numpy(leaf)
            size = float(np.abs(array).max(initial=0.0)) or 1.0
            params[path] = to_backend(
                problem.backend, array + by * size * rng.uniform(0.5, 1.0, array.shape), problem.dtype
            )
    return problem.with_params(params)
