"""A method evaluated in sixty digits on one case, and the casts to fewer bits that this shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from gradgate.references.backends import UNIT_ROUNDOFF, named_leaves
from gradgate.references.contract import Problem
from gradgate.references.oracle import in_widest
from gradgate.suites.checks.base import Case
from gradgate.suites.exact import balls, truth
from gradgate.suites.exact.lines import path_of
from gradgate.suites.exact.parting import Parting, TooLong
from gradgate.suites.exact.programs import Evaluator, Result
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, check_form
from gradgate.suites.pairs.spec import PairSpec

SLIGHT = 1e-2
"""Relative error up to which a cast to fewer bits may be to blame."""
CANNOT = "cannot be evaluated in sixty digits"


def evaluated(case: Case, digits: int) -> Result:
    """The method's answer on a case, in balls.

    Raises:
        Unknown, Undecided, Refuted, Fault: as for `Evaluator`, and for the method itself.
    """
    problem = problem_of(case)
    return guarded(case, problem, lambda: evaluator(case)(problem, digits))


def problem_of(case: Case) -> Problem:
    """A new Problem for every evaluation: a method that overwrites its input must not change the oracle's input."""
    return in_widest(case.spec, case.subject.declared.framework, "float64")


def evaluator(case: Case) -> Evaluator:
    """The method's program; kept with the method, because JAX traces it once for all problems of a shape."""
    found: Evaluator = case.subject.program("exact", case.options, lambda: Evaluator(checked(case)))
    return found


def checked(case: Case) -> Callable[[Problem], Any]:
    """The method, which raises Refuted for an answer of the wrong form."""

    def checked(problem: Problem) -> Any:
        expected = named_leaves(problem.params)
        answer = case.subject.function(problem, **case.options)
        check_form(expected, answer)
        return answer

    return checked


def guarded(case: Case, problem: Problem, evaluate: Callable[[], Result]) -> Result:
    """Evaluate foreign code under its limits.

    Raises:
        Unknown, Undecided, TooLong: unchanged. Refuted: it returns something other than
        (loss, grads), or fails only for this value of an option. Fault: it raised anything else.
    """
    try:
        result: Result = case.subject.guard(problem, case.options, evaluate)
    except Fault as fault:
        cause = fault.__cause__
        if isinstance(cause, (balls.Unknown, balls.Undecided, TooLong)):
            raise cause from None
        case.subject.call(case.problem(), case.options, eager=True)  # if it fails, too, its error says more
        raise
    return result


@contextlib.contextmanager
def naming_a_cast(case: Case, dtype: str) -> Iterator[None]:
    """The scope in which a refutation of a pair in floats names a cast of the function to fewer bits than `dtype` has.

    Raises:
        Refuted: the one raised in the scope; its message ends with the cast, if there is one.
    """
    try:
        yield
    except Refuted as wrong:
        if (
            not isinstance(case.spec, PairSpec)
            or not (wrong.error or 1.0) <= SLIGHT
            or case.spec.work() > truth.AFFORDABLE
        ):
            raise
        try:
            with balls.digits(60):
                found, plain = evaluated(case, 60), plain_result(case, 60).narrowed
        except (balls.Unknown, balls.Undecided, Inapplicable, Refuted, Fault):
            raise wrong from None
        unit = UNIT_ROUNDOFF[dtype]
        fewer = {name: line for name, line in found.narrowed.items() if UNIT_ROUNDOFF.get(name, 1.0) > unit}
        cast = cast_alone(case, fewer, plain)
        said = "; ".join(filter(None, [str(wrong), cast.sentence]))
        raise Refuted(said, wrong.leaf, wrong.error, wrong.noise, wrong.line or path_of(cast.line)) from None


def plain_program(case: Case) -> Evaluator:
    """Plain backprop of the loss whose gradient the method claims to compute."""
    loss, options = case.claimed
    return truth.evaluator(loss, tuple(sorted(options.items())), case.subject.declared.framework)


def plain_result(case: Case, digits: int, twice: bool = False) -> Result:
    """What it gives on the case's problem, computed once for a process; with `twice`, H·v of `programs.direction`.

    Raises:
        Unknown, Undecided: as `Evaluator`.
    """
    loss, options = case.claimed
    claimed = loss, tuple(sorted(options.items()))
    return truth.result(case.spec, case.subject.declared.framework, *claimed, digits, twice)


def cast_alone(case: Case, narrowed: Mapping[str, str], plain: Collection[str]) -> Parting:
    """A cast of the function to fewer bits that the reference does not make."""
    for dtype, line in sorted(narrowed.items()):
        if dtype not in plain and dtype != case.widest:
            return Parting(f"it casts to {dtype}{f' at {line}' * bool(line)}, and the reference does not", line)
    return Parting("")
