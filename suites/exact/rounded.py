"""Constants that a program rounds, and whether they alone explain that two formulas differ.

A program writes ``d**-0.5``, ``math.pi`` or ``0.1`` and gets the float next to the number that its author means; the
other program may compute the same number with all digits. The two then differ, although no author means them to.

Let c be the constants of both programs, and F(c) and R(c) what the programs compute. A float that occurs in both
programs means one number, so it is one constant. If the formulas are the same, there are numbers c*, those that are
meant, with F(c*) = R(c*), and each c* lies within the rounding of its float c: |c* − c| ≤ b. So the difference is put
down to rounding if there is a c* within these bounds with F(c*) = R(c*), and in no other case. D = F − R is almost
linear over such small distances, D(c + δ) = D(c) + Jδ + O(δ²). J is measured: each constant is moved by its bound. Then
Jδ = −D is solved for all numbers of all leaves at once, and the step is repeated from c + δ, until F and R agree to 40
digits (`agreement.LIMIT`) or no longer get nearer to each other. An error that no constant of the program can make,
such as another term, remains. So does an error in a program whose constants are all powers of two.

The bound b is `ROUNDINGS` times half a unit in the last place. A constant that was written as a decimal, or computed by
one operation, needs 1. Those that a few operations compute in Python's floats need more: 1/√n 2.6, π²/n^1.5 4.2, and
exp(−i·log(10⁴)/64), of rotary embeddings, 25, because the exponential multiplies the errors of its argument by it.

A pair that is not declared for float64 never computes with such a constant: what meets its arrays is the float32 next
to it. So there it may be any number that has the same float32, half a unit in its last place to either side, and no
more: a program cannot tell them apart. For example, kernels write log₂e as 1.4426950216, which is its float32.

Beyond `MOST` constants, as in a table, no system is solved. Each constant becomes a ball of the radius b, and the
difference is put down to rounding if the balls of F and R overlap. This is weaker: it forgives what has the size of the
rounding of some constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.agreement import Agreement, NotFinite, Values, compare, settle

ROUNDINGS = 32
"""Half units in the last place by which a constant may be off."""
MOST = 24
"""Largest number of constants for which the system of equations is solved; each takes another evaluation."""
STEPS = 6
SHORT = 12
"""A number of at most so many bits is not rounded, and neither is a whole number."""
SINGLE = 24
"""A number of at most so many bits is a float32."""
_SMALLEST = 1e-13
"""Smallest part of the largest singular value that counts when the system is solved."""

Run = Callable[[int], Values]
"""Digits -> values."""


def bound(constant: float) -> float:
    """The distance by which a positive constant may be off; 0 if it is not rounded.

    >>> bound(0.5), bound(3.0), bound(1e22)
    (0.0, 0.0, 0.0)
    >>> bound(0.1) == 16 * math.ulp(0.1)
    True
    """
    if not math.isfinite(constant) or constant == 0 or constant.is_integer():
        return 0.0
    bits = _bits(constant)
    if bits <= SHORT:
        return 0.0
    return ROUNDINGS / 2 * math.ldexp(1.0, math.frexp(constant)[1] - (SINGLE if bits <= SINGLE else 53))


def _bits(constant: float) -> int:
    """The number of bits from the first to the last that is not zero."""
    whole = int(math.frexp(constant)[0] * 2**53)
    return (whole // (whole & -whole)).bit_length()


def meanings(constant: float, dtype: str = "float64") -> Any:
    """The ball of the numbers for which a positive constant may stand.

    Args:
        dtype: the widest dtype of the program's arrays, "float64" or "float32".

    >>> log2e = 1 / math.log(2)
    >>> meanings(1.4426950216, "float32").contains(log2e), meanings(1.4426950216).contains(log2e)
    (True, False)
    """
    single = float(np.float32(constant)) if dtype == "float32" and bound(constant) else 0.0
    if not single or single == constant:  # it is exact, too small for float32, or a float32 itself
        return arb(constant, bound(constant))
    return arb(single, math.ldexp(0.5, math.frexp(single)[1] - SINGLE) + bound(constant))


def explained(run: Run, plain: Run, data: frozenset[float], dtype: str = "float64") -> Agreement | None:
    """The comparison of two programs once their constants have moved to where they agree; None if there is no place.

    Args:
        run, plain: digits -> values, of two programs that do not agree.
        data: |number| of everything that the programs are given; these are exact.
        dtype: the widest dtype for which the programs are declared.

    Raises:
        Undecided: a comparison in a program is a tie.

    Cost: one evaluation of a program for every constant in it, and about three more of both.
    """
    with balls.digits(balls.DIGITS):
        with balls.standing({}) as ours:
            got = run(balls.DIGITS)
        with balls.standing({}) as theirs:
            exact = plain(balls.DIGITS)
        mine, other = ({c for c in scope.seen - data if bound(c)} for scope in (ours, theirs))
        alone, both = sorted(mine ^ other), sorted(mine & other)
        if not alone and not both:
            return None
        known = [*alone, *both] if len(alone) + len(both) <= MOST else alone
        # Balls of float32 would forgive far too much, so such constants are only solved for.
        for narrowest in dict.fromkeys(("float64", dtype)):
            if known and len(known) <= MOST:
                allowed = {c: meanings(c, narrowest) for c in known}
                found = _solved(run, plain, allowed, (mine, other), (got, exact))
                if found is not None:
                    return found
            if narrowest == "float64" and len(alone) + len(both) > MOST:
                found = _overlap(run, plain, {c: meanings(c) for c in (*alone, *both)})
                if found is not None:
                    return found
        return None


def _solved(
    run: Run,
    plain: Run,
    known: Mapping[float, Any],
    occurs: tuple[set[float], set[float]],
    start: tuple[Values, Values],
) -> Agreement | None:
    """The agreement at constants that make the two programs equal; None if there are none.

    Args:
        known: constant -> the ball of the numbers for which it may stand.
        occurs: the constants of either program.
        start: what the programs compute with their own constants.
    """
    sizes = _sizes(start[1])
    first = _apart(*start, sizes)
    if first is None:
        return None

    def at(moved: Mapping[float, Any], which: tuple[bool, bool]) -> tuple[Values, Values]:
        with balls.standing(moved):
            return run(balls.DIGITS) if which[0] else start[0], plain(balls.DIGITS) if which[1] else start[1]

    columns = []
    for constant in known:
        moved = {constant: arb(constant) + known[constant].rad()}
        other = _apart(*at(moved, (constant in occurs[0], constant in occurs[1])), sizes)
        if other is None:
            return None
        columns.append(_floats(other - first))
    slopes = np.stack(columns, axis=1)
    # where each constant is within its ball, from −1 to 1
    place = np.array([(arb(c) - ball.mid()) / ball.rad() for c, ball in known.items()], object)
    apart, distance = first, math.inf
    for _ in range(STEPS):
        left = _floats(apart)
        size = float(np.linalg.norm(left))
        if not size < distance / 4 or not np.isfinite(slopes).all():
            return None
        distance = size
        step = np.linalg.lstsq(slopes, -left, rcond=_SMALLEST)[0]
        place = place + np.array([arb(float(part)) for part in step], object)
        if any(abs(float(part)) > 1 for part in place):
            return None
        moved = {c: ball.mid() + part * ball.rad() for (c, ball), part in zip(known.items(), place, strict=True)}
        got, exact = at(moved, (True, True))
        try:
            agreement = compare(got, exact)
        except NotFinite:
            return None
        if not agreement.wrong:
            return _confirmed(run, plain, moved) if agreement.open else agreement
        following = _apart(got, exact, sizes)
        if following is None:
            return None
        apart = following
    return None


def _confirmed(run: Run, plain: Run, moved: Mapping[float, Any]) -> Agreement | None:
    """The agreement in as many digits as decide it."""
    with balls.standing(moved):
        found = settle(run, plain)
    return None if found.wrong else found


def _overlap(run: Run, plain: Run, moved: Mapping[float, Any]) -> Agreement | None:
    """The agreement of the two programs if their balls overlap; None if they do not."""
    with balls.standing(moved):
        try:
            found = compare(run(balls.DIGITS), plain(balls.DIGITS))
        except NotFinite:
            return None
    return None if found.wrong or not math.isfinite(found.error) else found


def _sizes(exact: Values) -> dict[str, Any]:
    """Leaf -> what its differences are divided by: its norm, or that of all leaves where it is zero."""
    norms = {name: float(np.linalg.norm(balls.floats(balls.whole(leaf)).ravel())) for name, leaf in exact.items()}
    whole = math.sqrt(sum(size * size for name, size in norms.items() if name)) or 1.0
    return {name: arb(size if size > 1e-40 * whole else whole) for name, size in norms.items()}


def _apart(got: Values, exact: Values, sizes: Mapping[str, Any]) -> Any:
    """All differences in a row, relative to their leaves; None if one is not finite."""
    row = [balls.whole(balls.whole(got[name]) - balls.whole(exact[name])).ravel() / sizes[name] for name in got]
    flat = np.concatenate([np.asarray(part, object) for part in row]) if row else np.zeros(0, object)
    return flat if all(ball.is_finite() for ball in flat) else None


def _floats(row: Any) -> Any:
    return np.array([float(ball.mid()) for ball in row], np.float64)
