"""What kernels do with memory, seen while they run in sixty digits in Triton's interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradgate.suites.checks import exact
from gradgate.suites.checks.base import Case, Rejected
from gradgate.suites.exact import balls
from gradgate.suites.exact.agreement import NotFinite, settle
from gradgate.suites.exact.programs import Result
from gradgate.suites.judging.subject import Inapplicable, Refuted

if TYPE_CHECKING:
    from gradgate.suites.exact.on_triton.memory import Traces

ORDERS = ("backwards", "shuffled")
"""Orders of programs that are compared with that of the grid."""


def memory_safe(case: Case) -> None:
    """No kernel accesses memory outside of its tensors; none races; and no answer follows from undefined numbers.

    Undefined is what nobody wrote, and a masked lane of a load without ``other``.

    Raises:
        Refuted: names the kernel and its line. Inapplicable: an operation has no rule. Rejected: a tie.
    """
    result, traces = _run(case, "forwards", 60)
    if traces.faults:
        raise Refuted(_listed(traces.faults))
    if traces.undefined and any(_undefined(leaf).any() for leaf in result.values.values()):
        raise Refuted(_listed(traces.undefined))


def order_free(case: Case) -> None:
    """The programs of every grid give the same answer forwards, backwards and in a shuffled order.

    Raises:
        Refuted: names the lines at which programs meet. Inapplicable: an operation has no rule. Rejected: a tie.
    """
    first, _ = _run(case, "forwards", 60)
    for order in ORDERS:
        other, traces = _run(case, order, 60)
        where = f"; {_listed(traces.shared)}" if traces.shared else ""
        if any((_undefined(first.values[name]) != _undefined(leaf)).any() for name, leaf in other.values.items()):
            raise Refuted(f"with its programs {order}, other numbers are undefined{where}")
        try:
            found = settle(
                lambda digits, order=order: _run(case, order, digits)[0].values,
                lambda digits: _run(case, "forwards", digits)[0].values,
            )
        except (balls.Undecided, NotFinite) as why:
            raise Rejected from why
        if found.wrong:
            leaf = max(found.wrong, key=lambda name: found.wrong[name])
            told = f"with its programs {order}, {leaf or 'the loss'} is another: {found.shown}{where}"
            raise Refuted(told, leaf, found.error, found.radius)


def _run(case: Case, order: str, digits: int) -> tuple[Result, Traces]:
    """The answer in balls, and what the launches did."""
    from gradgate.suites.exact.on_triton.launch import traced

    try:
        with balls.digits(digits), traced(order) as traces:
            return exact.evaluated(case, digits), traces
    except balls.Unknown as why:
        raise Inapplicable(f"{exact.CANNOT}: {why}") from None
    except balls.Undecided as why:
        raise Rejected from why


def _undefined(leaf: object) -> np.ndarray:
    return np.array([ball.is_nan() for ball in balls.whole(leaf).ravel().tolist()], bool)


def _listed(traces: dict[str, None]) -> str:
    """The first of them, and how many there are besides."""
    first, *others = traces
    return first + (f"; and {len(others)} more" if others else "")
