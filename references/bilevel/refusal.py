"""The errors for optimisers whose steps a method cannot take back."""

from __future__ import annotations

from gradgate.references.bilevel.inner.inverses import INVERSES
from gradgate.references.bilevel.problem import BilevelProblem


class NotInvertible(ValueError):
    """The inner optimiser's step cannot be taken back, at least not by this method.

    Cause: SGD's step reads ∇L at the unknown θ, so it has no inverse; or the method is for another optimiser.
    Remedy: the message names a method that needs no inverse, or one that has the inverse of this optimiser.
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
