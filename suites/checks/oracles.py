"""Checks of the oracles against each other: JAX, PyTorch, and the Taylor remainder of the NumPy loss."""

from __future__ import annotations

import numpy as np

from gradgate.references.taylor import remainder
from gradgate.suites.checks.base import Case, need
from gradgate.suites.exact import truth
from gradgate.suites.judging.subject import Inapplicable, Refuted

AGREED = 1e-25
"""Largest difference of two truths, relative to the largest number; each is known to at least 25 digits."""
SLOPE_SLACK = 0.1
"""How far a slope may lie from a whole number of at least 2; true gradients came within 0.001 of 2."""


def taylor(case: Case) -> None:
    """The remainder falls with slope 2, or at least 3 where the curvature along the direction vanishes."""
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
    """The gradients of JAX and PyTorch backprop are one formula: in sixty digits they agree to at least 25 digits.

    The two programs are evaluated by two evaluators that share no rules of a framework, so this also checks the rules.
    """
    here = case.subject.declared.framework
    other = {"jax": "torch", "torch": "jax"}[here]
    need(other, other)
    mine, theirs = (truth.of_spec(case.spec, framework, "", "loss", ()) for framework in (here, other))
    if mine is None or theirs is None:
        raise Inapplicable(f"{here if mine is None else other} backprop cannot be evaluated in sixty digits here")
    apart = np.abs((mine.high - theirs.high) + (mine.low - theirs.low))
    error = float(apart.max() / (np.abs(mine.high).max() or 1.0))
    if not error <= AGREED:
        raise Refuted(f"the gradients of {here} and {other} differ by {error:.2g} of the largest number", "", error)
