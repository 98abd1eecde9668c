"""Rules by which tools compare a gradient with plain backprop's."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.references.oracle import split
from gradgate.suites.checks.base import Case
from gradgate.suites.checks.rivals import LOOSE
from gradgate.suites.checks.rivals.words import asserted, framework
from gradgate.suites.judging.subject import Refuted


def assert_allclose(case: Case) -> None:
    """`numpy.testing.assert_allclose` of every leaf with plain backprop's; settings: its arguments."""
    for got, exact in _pairs(case):
        asserted(np.testing.assert_allclose, got, exact, **case.settings["arguments"])


def assert_close(case: Case) -> None:
    """`torch.testing.assert_close` of every leaf with plain backprop's; settings: its arguments."""
    torch = framework(case, "torch")
    for got, exact in _pairs(case):
        asserted(
            torch.testing.assert_close, torch.from_numpy(got), torch.from_numpy(exact), **case.settings["arguments"]
        )


def isapprox(case: Case) -> None:
    """DifferentiationInterfaceTest's rule: ‖x − y‖ ≤ rtol·max(‖x‖, ‖y‖) of the whole gradient, rtol 1e-3, atol 0."""
    got, exact = (np.concatenate([leaf.ravel() for leaf in side]) for side in zip(*_pairs(case), strict=True))
    size = max(float(np.linalg.norm(got)), float(np.linalg.norm(exact)))
    if not float(np.linalg.norm(got - exact)) <= LOOSE * size:
        raise Refuted("the norm of the difference is above a thousandth of the gradient's")


def gradbench(case: Case) -> None:
    """GradBench's rule: no |x − y| / max(1, |x| + |y|) is above 1e-4. So a NaN passes."""
    for got, exact in _pairs(case):
        with np.errstate(invalid="ignore"):
            difference = np.abs(got - exact) / np.maximum(1.0, np.abs(got) + np.abs(exact))
        if (difference > 1e-4).any():
            raise Refuted("an entry differs by more than 1e-4 of itself, or of 1")


def _pairs(case: Case) -> list[tuple[Any, Any]]:
    """Leaves of the method's gradient and of plain backprop's, float64."""
    problem = case.problem()
    _, grads = case.subject.call(problem, case.options)
    exact = case.reference("float64").grads
    return [(np.array(leaf), exact[name]) for name, leaf in split(problem, grads).items()]
