"""The oracles judged against each other: JAX, PyTorch, and the Taylor remainder of the NumPy loss."""

from __future__ import annotations

import dataclasses

from gradgate.references import oracle
from gradgate.references.taylor import remainder
from gradgate.suites.checks.base import Case, Rejected, need
from gradgate.suites.subject import Inapplicable, Refuted

SLOPE_SLACK = 0.1
"""How far a slope may lie from a whole number of at least 2; true gradients came within 0.001 of 2."""


def taylor(case: Case) -> None:
    """The remainder falls with slope 2, or 3 and more where the curvature along the direction vanishes."""
    _, grads = case.subject.call(case.problem(), case.options)
    case.reference("float64")  # rejects a problem that is not finite
    try:
        found = remainder(case.spec, grads, case.spec.seed)
    except ArithmeticError as error:
        raise Inapplicable(str(error)) from None
    if found.slope is None:
        return
    order = max(2, round(found.slope))
    if abs(found.slope - order) > SLOPE_SLACK:
        raise Refuted(f"the Taylor remainder falls with slope {found.slope:.3f}; a correct gradient's has slope 2")


def oracles_agree(case: Case) -> None:
    """The float64 gradients of JAX and PyTorch backprop agree by the rule of equality."""
    here = case.subject.declared.framework
    other = {"jax": "torch", "torch": "jax"}[here]
    need(other, other)
    reference = case.reference("float64")
    problem = dataclasses.replace(case.spec, dtype="float64").build(other)  # type: ignore[arg-type]
    value, grads = oracle.gradient(problem)
    leaves = oracle.split(problem, grads)
    if not abs(float(value) - reference.loss) < float("inf"):
        raise Rejected
    case.judge(leaves, reference, "float64", what=f"{other} against {here}: ")
