"""JAX programs evaluated on balls: a jaxpr is run equation by equation, and nothing is compiled."""

from gradgate.suites.exact.on_jax import (
    casts,
    choices,
    control,
    devices,
    elementwise,
    indexing,
    integers,
    linear_algebra,
    pallas,
    products,
    randomness,
    reductions,
    special,
    structure,
    windows,
)
from gradgate.suites.exact.on_jax.program import Program, trace
from gradgate.suites.exact.on_jax.rules import LOCKSTEP, RULES

__all__ = ["LOCKSTEP", "RULES", "Program", "trace"]

_RULES_OF = (
    casts,
    choices,
    control,
    devices,
    elementwise,
    indexing,
    integers,
    linear_algebra,
    pallas,
    products,
    randomness,
    reductions,
    special,
    structure,
    windows,
)
"""The modules whose import fills the tables of rules."""
