"""Are two formulas equal? Their values in balls, leaf by leaf.

Let x be a leaf of one program's result and y the other's, both in balls. Every ball holds the true number, so the
distance ‖x − y‖ of the true numbers lies between two known numbers. L counts only what certainly differs; U counts
everything that may differ. Relative to ‖y‖ the leaf is *equal* if U ≤ LIMIT, and *wrong* if L > LIMIT. Otherwise the
balls are too wide to decide, and more digits are needed. Nothing is estimated, so no tolerance is needed.

LIMIT is 1e-40 and not 0, because no computation with inexact numbers ends in balls of radius zero. Formulas that differ
by more than 1e-40 of the leaf are detected, and most differ by far more: one unit in the last place of float64 is
2e-16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls

LIMIT = 1e-40
"""The largest relative distance of two leaves that are called equal."""
PLAIN = 6
"""Numbers of so many places before or after the point are written without an exponent."""
TRIED = (60, 120, 240, 480)
"""Digits that are tried in turn, until every leaf is either equal or wrong."""

Values = Mapping[str, Any]
"""Leaf -> array of balls; the loss is the leaf ""."""

_UPPER = np.frompyfunc(lambda ball: ball.abs_upper(), 1, 1)
_LOWER = np.frompyfunc(lambda ball: ball.abs_lower(), 1, 1)


@dataclass(frozen=True)
class Agreement:
    """The comparison of two results.

    Attributes:
        leaf: the leaf that is farthest off.
        error: U of that leaf: the true relative distance is at most this.
        radius: the part of `error` that comes from the width of the balls alone.
        wrong: leaf -> L, for every leaf that certainly differs.
        open: leaves that the balls do not decide.
        shown: for the leaf with the largest L, the two numbers that differ most, with their first different digits.
        narrowed: narrower dtypes to which a program casts; in this evaluation a cast changes nothing.
    """

    leaf: str
    error: float
    radius: float
    wrong: dict[str, float]
    open: tuple[str, ...]
    shown: str = ""
    narrowed: frozenset[str] = frozenset()

    @property
    def digits(self) -> int:
        """Decimal digits to which all leaves are known to agree."""
        return int(-math.log10(self.error)) if 0 < self.error < 1 else 0 if self.error else TRIED[0]


class NotFinite(Exception):
    """The plain program's result is not finite, so nothing can be compared with it."""


def compare(got: Values, exact: Values, last: bool = False) -> Agreement:
    """Compare the leaves of `got`, all or some of those of `exact`, with those of `exact`.

    Args:
        last: no more digits will be tried. A whole gradient that may be zero then counts as zero, compared with 1.

    Raises:
        NotFinite: a leaf of `exact` has no finite value in these digits.
    """
    sizes = {name: _norm(leaf) for name, leaf in exact.items()}
    if not all(size.is_finite() for size in sizes.values()):
        raise NotFinite
    whole = sum((size * size for name, size in sizes.items() if name), arb(0)).sqrt()
    zero = {name for name, leaf in exact.items() if last and _norm(leaf, _LOWER) == 0}
    if zero >= exact.keys() - {""}:
        sizes, whole = {name: arb(0) if name in zero else size for name, size in sizes.items()}, arb(0)
    worst, wrong, undecided = ("", arb(0), arb(0)), {}, []
    for name, leaf in got.items():
        size = sizes[name]
        scale = size if size > LIMIT * whole else whole if whole > 0 else arb(1)
        apart = leaf - exact[name] if leaf.shape else balls.whole(leaf[()] - exact[name][()])
        upper, lower = _norm(apart) / scale, _norm(apart, _LOWER) / scale
        if not upper.is_finite():
            undecided.append(name)
            worst = (name, arb.pos_inf(), worst[2])
            continue
        if lower > LIMIT:
            wrong[name] = float(lower.mid())
        elif not upper <= LIMIT:
            undecided.append(name)
        if upper > worst[1]:
            worst = (name, upper, upper - lower)
    first = max(wrong, key=lambda name: wrong[name], default=None)
    shown = "" if first is None else parted(got[first], exact[first])
    return Agreement(worst[0], _small(worst[1]), _small(worst[2]), wrong, tuple(undecided), shown)


def settle(run: Callable[[int], Values], plain: Callable[[int], Values]) -> Agreement:
    """Compare two programs, in more digits until every leaf is decided.

    Args:
        run, plain: digits -> values.

    Returns:
        The first comparison that is decided. If 480 digits do not decide a leaf, it counts as wrong: its value is not
        finite, or the programs agree to some digits between 40 and what is known.

    Raises:
        Undecided: a comparison inside a program is a tie in every precision.
        NotFinite: the plain program's result is finite in no precision.
    """
    for digits in TRIED:
        last = digits == TRIED[-1]
        try:
            with balls.digits(digits):
                found = compare(run(digits), plain(digits), last)
        except (balls.Undecided, NotFinite):
            if last:
                raise
            continue
        if not found.open or found.wrong:
            return found
    return Agreement(
        found.leaf, found.error, found.radius, dict.fromkeys(found.open, found.error), found.open, "not finite"
    )


def _norm(leaf: Any, bound: Any = _UPPER) -> Any:
    """‖leaf‖ from the largest, or with _LOWER the smallest, magnitudes that its balls allow."""
    magnitudes = balls.whole(bound(leaf)).ravel()
    return sum((ball * ball for ball in magnitudes), arb(0)).sqrt().abs_upper() if magnitudes.size else arb(0)


def _small(number: Any) -> float:
    """A float of a non-negative ball; a number below every float becomes the smallest float."""
    value = float(number.mid()) if number.is_finite() else math.inf
    return value if value or number == 0 else 5e-324


def parted(got: Any, exact: Any, otherwise: str = "not {}") -> str:
    """The two elements that differ most, written to three digits past their first difference.

    Args:
        otherwise: what is said of the second one.
    """
    apart = [float(ball.mid()) for ball in balls.whole(_LOWER(balls.whole(got - exact))).ravel().tolist()]
    place = apart.index(max(apart))
    one, other = got.ravel()[place], exact.ravel()[place]
    ratio = abs(one - other) / abs(other) if not other.contains(0) else arb(1)
    count = max(3, min(57, 3 - int(float(ratio.log().mid()) / math.log(10)))) if ratio > 0 else 17
    index = ",".join(map(str, np.unravel_index(place, got.shape))) if got.shape else ""
    said = f"[{index}] is {_text(one, count)}" if index else _text(one, count)
    return f"{said}, {otherwise.format(_text(other, count))}"


def _text(ball: Any, count: int) -> str:
    if ball.contains(0):
        return "0"  # the midpoint would show nothing but rounding
    text = str(ball.mid().str(count, radius=False))
    try:
        number = Decimal(text)
    except InvalidOperation:  # not finite, or beyond every exponent that Decimal has
        return text
    if not number.is_finite():
        return text
    return f"{number:f}" if number and -PLAIN <= number.adjusted() < PLAIN else str(number).replace("E", "e")
