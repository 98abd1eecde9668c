"""What kernels do with memory, seen while they run in sixty digits in Triton's interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradgate.suites.checks import evaluation
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

    So does every configuration of a tuner, and so do kernels that a tuner has tried before it chose one.

    Raises:
        Refuted: names the lines at which programs meet, or the tuned kernels. Inapplicable: an operation has no rule.
        Rejected: a tie.
    """
    first, found = _run(case, "forwards", 60)
    for order in ORDERS:
        _compare(case, first, f"with its programs {order}", order)
    if found.trials > 1:
        _compare(case, first, "if every configuration was tried before", "forwards", tried=True)
    for choice in range(1, found.choices):
        _compare(case, first, "with another configuration", "forwards", choice=choice)


def _compare(case: Case, first: Result, what: str, order: str, **tuning: Any) -> None:
    """Compare the answer with that of the programs in the order of the grid and with the first configuration.

    Raises:
        Refuted: they differ; `what` begins the sentence. Inapplicable, Rejected: as `order_free`.
    """
    other, traces = _run(case, order, 60, **tuning)
    met = traces.tuned if tuning else traces.shared
    where = f"; {_listed(met)}" if met else ""
    if any((_undefined(first.values[name]) != _undefined(leaf)).any() for name, leaf in other.values.items()):
        raise Refuted(f"{what}, other numbers are undefined{where}")
    try:
        found = settle(
            lambda digits: _run(case, order, digits, **tuning)[0].values,
            lambda digits: _run(case, "forwards", digits)[0].values,
        )
    except (balls.Undecided, NotFinite) as why:
        raise Rejected from why
    if found.wrong:
        leaf = max(found.wrong, key=lambda name: found.wrong[name])
        raise Refuted(f"{what}, {leaf or 'the loss'} is another: {found.shown}{where}", leaf, found.error, found.radius)


def _run(case: Case, order: str, digits: int, **tuning: Any) -> tuple[Result, Traces]:
    """The answer in balls, and what the launches did."""
    from gradgate.suites.exact.on_triton.launch import traced

    try:
        with balls.digits(digits), traced(order, **tuning) as traces:
            return evaluation.evaluated(case, digits), traces
    except balls.Unknown as why:
        raise Inapplicable(f"{evaluation.CANNOT}: {why}") from None
    except balls.Undecided as why:
        raise Rejected from why


def _undefined(leaf: object) -> np.ndarray:
    return np.array([ball.is_nan() for ball in balls.whole(leaf).ravel().tolist()], bool)


def _listed(traces: dict[str, None]) -> str:
    """The first of them, and how many there are besides."""
    first, *others = traces
    return first + (f"; and {len(others)} more" if others else "")
