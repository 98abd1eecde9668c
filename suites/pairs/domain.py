"""Where a pair's function is right: the digits that its gradient loses as inputs become large or small.

An input is multiplied by a scale, and sixty digits give the gradient of the reference there. The gradients of function
and reference in a dtype are compared with it. The worst input of the gradient counts, and of it the relative error in
the norm.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import NARROW, UNIT_ROUNDOFF
from gradgate.references.contract import Method
from gradgate.suites.exact import balls, truth
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, Subject
from gradgate.suites.pairs import unseen
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec

POWERS = range(-8, 9)
"""The scales: powers of ten."""
ROLES = ("function", "reference")
OVERFLOWS, ZERO, WRONG, FAILS, UNKNOWN, RANGE = "overflow", "zero", "wrong", "error", "unknown", "range"
STATES = {
    OVERFLOWS: "not finite, although the true gradient is in the dtype's range",
    ZERO: "zero, although the true gradient is not",
    WRONG: "no digit is right",
    FAILS: "raises an error",
    RANGE: "the true gradient is outside the dtype's range",
    UNKNOWN: "the true gradient is not finite or not known: a tie, or an operation without a rule",
}
"""State of a point that has no number of digits -> what it means."""


@dataclass(frozen=True)
class Point:
    """The gradient of one of a pair's two functions, in one dtype, with one input scaled.

    Attributes:
        leaf: the path of the input that is scaled; "" for all inputs.
        power: the scale is ten to this.
        dtype: of inputs and function.
        role: ``function`` or ``reference``.
        lost: decimal digits lost, of those that the dtype has; None if there is a `state`.
        state: a key of `STATES`, or "".
    """

    leaf: str
    power: int
    dtype: str
    role: str
    lost: float | None
    state: str = ""


def digits(dtype: str) -> float:
    """Decimal digits of a dtype.

    >>> round(digits("float32"), 1)
    7.2
    """
    return -math.log10(UNIT_ROUNDOFF[dtype])


def points(
    subject: Subject, spec: PairSpec, options: Mapping[str, Any], powers: Sequence[int] = POWERS
) -> Iterator[Point]:
    """Every point of a pair, input by input, scale by scale, dtype by dtype.

    Args:
        subject: the loaded pair.
        spec: its problem; the regime and the dtype are replaced.
        options: of the function.

    Cost: for each input and scale an evaluation of the reference in sixty digits for each kind of rounding, and a
    gradient of both functions in each dtype.
    """
    pair = subject.function
    assert isinstance(pair, Pair)
    both = {"function": subject, "reference": Subject(_plain(subject.declared), pair.plain, subject.watch)}
    leaves = unseen.free(pair)
    for leaf in (*leaves, "") if len(leaves) > 1 else leaves:
        for power in powers:
            scaled = dataclasses.replace(spec, regime=unseen.regime("times", 10.0**power, leaf))
            known: dict[str, dict[str, Any] | None] = {}
            for dtype in subject.declared.dtypes:
                rounding = dtype if dtype in NARROW else ""
                if rounding not in known:
                    known[rounding] = _exact(pair, scaled, rounding)
                exact = known[rounding]
                for role, judged in both.items():
                    found = _found(judged, scaled, dtype, options if role == "function" else {})
                    yield Point(leaf, power, dtype, role, *_lost(found, exact, dtype))


def _plain(declared: Method) -> Method:
    """The declaration of a pair's reference, which takes no options of the function."""
    return dataclasses.replace(declared, options=())


def _exact(pair: Pair, spec: PairSpec, dtype: str) -> dict[str, Any] | None:
    """Leaf -> the gradient of the reference in balls, at inputs rounded to a narrow dtype, if any; None if unknown."""
    problem = oracle.in_widest(dataclasses.replace(spec, dtype="float64"), pair.where, dtype)
    run = truth.evaluator("loss", (), pair.where)
    for precision in (60, 120):
        try:
            with balls.digits(precision):
                values = run(problem, precision).values
        except balls.Undecided:
            continue
        except balls.Unknown:
            return None
        return {name: leaf for name, leaf in values.items() if name}
    return None


def _found(subject: Subject, spec: PairSpec, dtype: str, options: Mapping[str, Any]) -> dict[str, Any] | str:
    """Leaf -> the gradient in the dtype; or the state FAILS."""
    problem = dataclasses.replace(spec, dtype=dtype).build(subject.declared.framework)  # type: ignore[arg-type]
    try:
        return subject.gradient(problem, options)[1]
    except (Fault, Refuted, Inapplicable):
        return FAILS


def _lost(found: dict[str, Any] | str, exact: dict[str, Any] | None, dtype: str) -> tuple[float | None, str]:
    """Digits lost, or a state: of the worst leaf."""
    if exact is None:
        return None, UNKNOWN
    if isinstance(found, str):
        return None, found
    worst = 0.0
    states = []
    with balls.digits(balls.DIGITS):
        for name, leaf in exact.items():
            lost, state = _of_leaf(np.asarray(found[name], float), leaf, dtype)
            states.append(state)
            worst = max(worst, lost)
    state = next((state for state in (UNKNOWN, OVERFLOWS, ZERO, RANGE) if state in states), "")
    if state:
        return None, state
    return (None, WRONG) if worst >= digits(dtype) else (worst, "")


def _of_leaf(got: Any, exact: Any, dtype: str) -> tuple[float, str]:
    """Digits lost in one leaf, or its state."""
    numbers = balls.whole(exact)
    if not all(ball.is_finite() for ball in numbers.ravel()):
        return 0.0, UNKNOWN
    size = _norm(numbers)
    low, high = _range(dtype)
    if size != 0 and not low <= size <= high:
        return 0.0, RANGE
    if not np.isfinite(got).all():
        return 0.0, OVERFLOWS
    if size == 0:
        return (0.0, "") if not got.any() else (digits(dtype), "")
    if not got.any():
        return 0.0, ZERO
    apart = _norm(numbers - balls.exact(got)) / size
    lost = float((apart / UNIT_ROUNDOFF[dtype]).log()) / math.log(10) if apart > 0 else 0.0
    return max(0.0, lost), ""


def _norm(numbers: Any) -> Any:
    """The Euclidean norm of balls, as the middle of a ball: it may be outside the range of float64."""
    total = sum((ball * ball for ball in numbers.ravel()), balls.ZERO)
    return total.sqrt().mid()


@functools.cache
def _range(dtype: str) -> tuple[float, float]:
    """The smallest and the largest number of a dtype that have all of its digits."""
    if dtype == "bfloat16":  # float32 without half of the significant bits; NumPy does not know it
        return 2.0**-126, (2 - 2.0**-7) * 2.0**127
    info = np.finfo(dtype)
    return float(info.tiny), float(info.max)


def spans(found: Sequence[Point], within: float = 1.0) -> str:
    """The scales at which points of one leaf, dtype and role lose at most so many digits, in words.

    >>> near = [Point("x", power, "float32", "function", 0.1) for power in (-1, 0, 1)]
    >>> spans([*near, Point("x", 2, "float32", "function", None, "overflow")])
    '1e-01 … 1e+01'
    """
    parts: list[list[int]] = []
    for point in found:
        good = point.lost is not None and point.lost <= within
        if good and parts and parts[-1] and parts[-1][-1] == point.power - 1:
            parts[-1].append(point.power)
        elif good:
            parts.append([point.power])
    words = [_scale(part[0]) + (f" … {_scale(part[-1])}" if len(part) > 1 else "") for part in parts]
    return ", ".join(words) or "nowhere"


def _scale(power: int) -> str:
    return f"1e{power:+03d}"
