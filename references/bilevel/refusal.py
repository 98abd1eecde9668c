"""Refusing what a method cannot do, in words."""

from __future__ import annotations

from gradgate.references.bilevel.inner.inverses import INVERSES
from gradgate.references.bilevel.problem import BilevelProblem


class NotInvertible(ValueError):
    """The inner optimiser's step cannot be taken back, or not by this method.

    Cause: SGD's step reads ∇L at the θ that is looked for, and the method may be one for another optimiser.
    Remedy: the message names methods that need no inverse, or have this one.
    """


def check_momentum(problem: BilevelProblem) -> None:
    """Raise NotInvertible unless the inner optimiser is momentum."""
    name = problem.spec.optimiser
    if name != "momentum":
        other = (
            "compensated_inversion, which takes Adam back" if name == "adam" else "log_remat, which needs no inverse"
        )
        raise NotInvertible(f"the inner optimiser must be momentum, not {name}; use {other}")


def check_invertible(problem: BilevelProblem) -> None:
    """Raise NotInvertible unless the inner optimiser has an inverse."""
    name = problem.spec.optimiser
    if name not in INVERSES:
        raise NotInvertible(
            f"the inner optimiser must be {' or '.join(INVERSES)}, whose step can be taken back, not {name}; "
            "use log_remat, which needs no inverse"
        )
