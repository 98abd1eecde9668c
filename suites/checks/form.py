"""Form: the tree, the value, and the refusal of illegal input."""

from __future__ import annotations

from gradgate.references.contract import IllegalOption
from gradgate.suites.checks.base import Case
from gradgate.suites.subject import Fault, Refuted
from gradgate.suites.tolerance import compare_value


def tree(case: Case) -> None:
    """`Subject.call` checks the form of every answer; here in both dtypes, called as it is, without jit."""
    for dtype in ("float64", "float32"):
        case.subject.call(case.problem(dtype), case.options, eager=True)


def value(case: Case) -> None:
    """The returned loss equals the oracle's by the rule of equality."""
    reference = case.reference("float64")
    loss, _ = case.subject.gradient(case.problem(), case.options)
    found = compare_value(loss, reference, "float64")
    case.record(found)
    if not found.equal:
        raise Refuted(f"returned the loss {loss!r}, plain evaluation {reference.loss!r}", "", found.error, found.noise)


def refusal(case: Case) -> None:
    """Every illegal value of every option raises IllegalOption, whose message names the option."""
    problem = case.problem()
    for option in case.subject.declared.options:
        for wrong in option.illegal:
            given = {**case.options, option.name: wrong}
            try:
                case.subject.call(problem, given, eager=True)
            except Fault as fault:
                if not isinstance(fault.__cause__, IllegalOption):
                    raise Refuted(f"{option.name}={wrong!r}: {fault}; expected IllegalOption") from None
                if option.name not in str(fault.__cause__):
                    raise Refuted(f"{option.name}={wrong!r}: the message does not name the option: {fault}") from None
            else:
                raise Refuted(f"{option.name}={wrong!r} was accepted; legal: {option.legal}")
