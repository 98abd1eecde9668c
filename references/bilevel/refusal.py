"""Refusing what a method cannot do, in words."""

from __future__ import annotations

from gradgate.references.bilevel.problem import BilevelProblem


class NotInvertible(ValueError):
    """The inner optimiser's step cannot be taken back.

    Cause: it forgets what it started from; Adam's v̂ holds squares, and SGD needs ∇L at a θ that is not known yet.
    Remedy: the message names methods that need no inverse.
    """


def check_momentum(problem: BilevelProblem) -> None:
    """Raise NotInvertible unless the inner optimiser is momentum."""
    name = problem.spec.optimiser
    if name != "momentum":
        raise NotInvertible(
            f"the inner optimiser must be momentum, whose step can be taken back, not {name}; see log_remat"
        )
