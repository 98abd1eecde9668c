"""Form: the tree, the value, and the refusal of illegal input."""

from __future__ import annotations

import math

from gradgate.references.contract import IllegalOption
from gradgate.suites.checks import another
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Fault, Refuted
from gradgate.suites.judging.tolerance import KAPPA, compare, compare_value
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem


def tree(case: Case) -> None:
    """`Subject.call` checks the form of every answer; here in float64 and float32.

    A pair judges the gradients of its inputs alone, so nothing else that requires a gradient may be used.
    """
    pair = case.subject.function
    if isinstance(pair, Pair) and pair.where == "torch":
        from gradgate.suites.pairs.given_torch import check_captured

        problem = case.problem("float32" if "float32" in case.subject.declared.dtypes else "float64")
        assert isinstance(problem, PairProblem)
        check_captured(pair, problem)
    for dtype in ("float64", "float32"):
        if dtype in case.subject.declared.dtypes:
            case.subject.call(case.problem(dtype), case.options)


def value(case: Case) -> None:
    """The returned loss equals the oracle's by the rule of equality. If not, says whether the gradient is right."""
    reference = case.reference("float64")
    loss, grads = case.subject.gradient(case.problem(), case.options)
    found = compare_value(loss, reference, "float64", case.settings.get("kappa", KAPPA))
    case.record(found)
    if found.equal:
        return
    said = f"returned the loss {loss!r}, plain evaluation gives {reference.loss!r}"
    if math.isfinite(loss):
        if compare(grads, reference, "float64", case.subject.declared.kappa).equal:
            said += "; its gradient is plain evaluation's"
        else:
            said = another.sentence(case, loss, grads, reference, "float64")
    raise Refuted(said, "", found.error, found.noise)


def refusal(case: Case) -> None:
    """Every illegal value of every option raises IllegalOption, whose message names the option."""
    problem = case.problem()
    for option in case.subject.declared.options:
        for wrong in option.illegal:
            given = {**case.options, option.name: wrong}
            try:
                case.subject.call(problem, given, eager=True)
            except Fault as fault:
                said = f"{option.name}={wrong!r}: "
                if not isinstance(fault.__cause__, IllegalOption):
                    raise Refuted(f"{said}{fault.sentence}; expected IllegalOption{fault.at}") from None
                if option.name not in str(fault.__cause__):
                    raise Refuted(f"{said}the message does not name the option: {fault.sentence}{fault.at}") from None
            else:
                raise Refuted(f"{option.name}={wrong!r} was accepted; legal: {option.legal}")
