"""The oracles judged against each other: JAX, PyTorch, and the Taylor remainder of the NumPy loss."""

from __future__ import annotations

import dataclasses

from gradgate.references.taylor import remainder
from gradgate.suites.checks.base import Case, need
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
    mine, theirs = case.reference("float64"), case.reference("float64", other)
    # Elementary functions differ in accuracy between the frameworks, so the noisier of the two sets the bound.
    noise = {name: max(mine.noise[name], theirs.noise[name]) for name in mine.noise}
    case.judge(theirs.grads, dataclasses.replace(mine, noise=noise), "float64", what=f"{other} against {here}: ")
