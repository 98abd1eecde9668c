"""The protocol of autograd in eager PyTorch: between forward and backward, nothing makes a gradient silently wrong."""

from __future__ import annotations

from gradgate.suites.checks.base import Case, need
from gradgate.suites.judging.subject import Inapplicable, Refuted

NAMED = 3
"""Number of hazards that a refutation names."""


def protocol(case: Case) -> None:
    """Every hazard leaves the bits of plain backprop, or raises an error in words.

    The method under test has an attribute ``module``: (nn.Sequential, a sample) -> x -> y. The models of the hazards
    have one to three blocks, depending on the number of layers of the case's problem.

    Raises:
        Refuted: hazards are silently wrong, refused without need, or end in an accident; the message names the first.
        Inapplicable: the method has no ``module``.
    """
    wrap = getattr(case.subject.function, "module", None)
    if wrap is None:
        raise Inapplicable("the method has no attribute `module` that makes a module from an nn.Sequential")
    need("torch", "torch")
    from gradgate.suites.checks.hazard_table import HAZARDS
    from gradgate.suites.checks.hazards import outcome

    blocks = 1 + getattr(case.spec, "layers", 1) % 3
    problem = case.problem()
    faults = []
    for hazard in HAZARDS:
        found = case.subject.guard(problem, case.options, outcome, hazard, wrap, blocks, case.spec.seed)
        fault = found.fault(hazard)
        faults += [fault] if fault else []
    if faults:
        raise Refuted(f"{len(faults)} of {len(HAZARDS)} hazards: {'; '.join(faults[:NAMED])}")
