"""A paper's figures, the same figures as measured here, and whether the two are expected to agree: a figure can fail.

A family's ``paper/rows.py`` lists single figures, rows of tables and points of curves in ``PUBLISHED``. ``gradgate
paper`` measures them, and keeps the results in ``paper.json`` next to that folder. The verdict on a figure is computed
from the measured value and the declaration each time it is shown, so a new declaration needs no new measurement.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradgate.references.errors import UsageError, unknown

HOW = ("equal", "at least", "at most", "more than", "less than")
"""How a measured figure can agree with a printed one; the last two are strict, so that an equal one does not agree."""
LOOSEST = 0.5
"""The widest relative tolerance: a value that is further away is another figure."""
EXPECTED = ("upheld", "refuted", "unexplained")
"""What a printed figure can be declared as."""
OUTCOMES = {
    "upheld": 0,
    "refuted as declared": 0,
    "unexplained": 0,
    "not as declared": 1,
    "not measured here": 2,
    "undeclared": 2,
}
"""Outcome of a printed figure -> the exit status of a run that has it, in the order in which outcomes are counted."""

_QUOTED = re.compile(r'"[^"]*"|(?<!\w)\'[^\']*\'(?!\w)')
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
_WORDS = {
    "orders of magnitude": 100.0,
    "order of magnitude": 10.0,
    "one order": 10.0,
    "thousands": 1000.0,
    "hundreds": 100.0,
    "ten": 10.0,
    "several": 3.0,
}
"""Words that name a number: the plural of an order is two orders, and several are more than two."""


@dataclass(frozen=True)
class Agreement:
    """What it means that a measured figure agrees with the printed one; a function of each name in `HOW` makes one.

    Attributes:
        how: how the measured figure must compare with the printed one; a name in `HOW`.
        within: tolerance, relative to the printed figure.
        because: a sentence that says why the paper's words mean this, and why the tolerance is this wide.

    Raises:
        UsageError: a value is illegal; the message says what is legal.
    """

    how: str
    within: float
    because: str

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise unknown("agreement", self.how, HOW)
        if not 0 <= self.within <= LOOSEST:
            raise UsageError(
                f"a relative tolerance must be between 0 and {LOOSEST:g}, not {self.within!r}: a figure further off is "
                f"another figure; say at_least or at_most, or declare the figure refuted or unexplained"
            )
        if self.within and self.how in ("more than", "less than"):
            raise UsageError(f"{self.how} has no tolerance: say at_least or at_most")
        if not self.because.strip():
            raise UsageError(f"{self.words()}: say in a sentence why this is agreement, and why it is this wide")

    def holds(self, ours: float, printed: float) -> bool:
        """Whether a measured figure agrees with the printed one. A figure that is not finite never agrees.

        Nothing is relative to 0, so the tolerance around a printed 0 is absolute.

        >>> equal(0.05, "two digits are printed").holds(104.0, 100.0)
        True
        >>> at_least("the paper says: at least 10 times").holds(9.9, 10.0)
        False
        >>> less_than("the paper says: less memory").holds(1.0, 1.0)
        False
        >>> equal(1e-12, "equal but for rounding in float64").holds(3e-16, 0.0)
        True
        """
        if not math.isfinite(ours):
            return False
        if self.how in ("more than", "less than"):
            return ours > printed if self.how == "more than" else ours < printed
        slack = self.within * (abs(printed) or 1.0)
        return (self.how == "at most" or ours >= printed - slack) and (
            self.how == "at least" or ours <= printed + slack
        )

    def words(self) -> str:
        """In words: ``equal within 5%``, ``exactly equal``, ``at least, within 1%``, ``at most`` or ``less than``."""
        told = f"within {100 * self.within:.3g}%"
        if self.how == "equal":
            return f"equal {told}" if self.within else "exactly equal"
        return f"{self.how}, {told}" if self.within else self.how


def equal(within: float, because: str) -> Agreement:
    """The measured figure is the printed one, within a relative tolerance."""
    return Agreement("equal", within, because)


def at_least(because: str, within: float = 0.0) -> Agreement:
    """The measured figure is the printed one or more."""
    return Agreement("at least", within, because)


def at_most(because: str, within: float = 0.0) -> Agreement:
    """The measured figure is the printed one or less."""
    return Agreement("at most", within, because)


def more_than(because: str) -> Agreement:
    """The measured figure is above the printed one. Where nothing is gained, "better" and "more" do not hold."""
    return Agreement("more than", 0.0, because)


def less_than(because: str) -> Agreement:
    """The measured figure is below the printed one."""
    return Agreement("less than", 0.0, because)


@dataclass(frozen=True)
class Expectation:
    """What is declared of a printed figure; made by `upheld`, `refuted` or `unexplained`.

    Attributes:
        verdict: a name in `EXPECTED`.
        agreement: what agreeing with the printed figure means.
        instead: the value that the reason explains in place of the printed one; the measured figure must be this.
        spread: relative tolerance around `instead`.
    """

    verdict: str
    agreement: Agreement
    instead: float | None = None
    spread: float = 0.05

    def __post_init__(self) -> None:
        if self.verdict not in EXPECTED:
            raise unknown("expectation", self.verdict, EXPECTED)
        if self.verdict == "refuted" and self.instead is None:
            raise UsageError("a refuted figure says which value was found instead: refuted(..., instead=2.85)")
        if not 0 <= self.spread <= LOOSEST:
            raise UsageError(f"the spread around `instead` must be between 0 and {LOOSEST:g}, not {self.spread!r}")

    def keeps(self, ours: float) -> bool:
        """Whether a measured figure is still the one that the reason explains; True if `instead` is None."""
        return self.instead is None or equal(self.spread, "spread").holds(ours, self.instead)


def upheld(agreement: Agreement) -> Expectation:
    """The measured figure agrees with the printed one."""
    return Expectation("upheld", agreement)


def refuted(agreement: Agreement, instead: float, spread: float = 0.05) -> Expectation:
    """The measured figure does not agree, for a reason that was tested: it is `instead`, within `spread`."""
    return Expectation("refuted", agreement, instead, spread)


def unexplained(agreement: Agreement, instead: float | None = None, spread: float = 0.05) -> Expectation:
    """The measured figure does not agree, and no reason was found; the row's `reason` says what was ruled out."""
    return Expectation("unexplained", agreement, instead, spread)


@dataclass(frozen=True)
class Published:
    """One figure of a paper, how it is measured here, and what is expected.

    Attributes:
        place: where it is printed, such as ``Table 2``; a figure that is not in the paper says so here.
        series: the curve or column that it belongs to.
        x: its place on the curve, or the row's name.
        unit: the unit of both figures.
        measured: ``module:function`` of `arguments` that returns a number, a dict of lists for a curve, or text that is
            drawn. It raises ``LookupError`` with a sentence if the figure cannot be measured here.
        arguments: plain JSON types.
        printed: the paper's figure; None if the paper has only a plot, or nothing. What a paper says about a whole
            curve is a number too: let `measured` return the quantity that is meant, such as a largest quotient.
        reason: why our figure differs, as far as it was tested; for an unexplained figure, what was tried and ruled
            out.
        expects: what is declared of a printed figure; None if nothing is declared yet.
        unlike: "" if the paper prints the quantity that is measured. Otherwise how the two differ, such as ``printed
            are seconds on an H100, ours is a roofline``. Such a row refutes nothing, and it upholds a figure only if
            the two are equal: a bound on another quantity would hold whatever the paper printed.
        drawn: whether the paper has a plot of it and prints no number.

    Raises:
        UsageError: the declaration contradicts itself, or lacks its reason; the message says what to do.
    """

    place: str
    series: str
    x: float | str
    unit: str
    measured: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    printed: float | None = None
    reason: str = ""
    expects: Expectation | None = field(default=None, kw_only=True)
    unlike: str = field(default="", kw_only=True)
    drawn: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if wrong := _contradiction(self):
            raise UsageError(f"{self.name}: {wrong}")

    @property
    def key(self) -> str:
        """The key of the figure's result, which stays the same as long as the same thing is measured."""
        told = [self.place, self.series, self.x, self.unit, self.measured, dict(self.arguments)]
        return json.dumps(told, sort_keys=True, ensure_ascii=False)

    @property
    def name(self) -> str:
        """``place / series / x``, without those that are empty."""
        return " / ".join(str(part) for part in (self.place, self.series, self.x) if part != "")

    @property
    def kind(self) -> str:
        """``printed``: it has a verdict. ``drawn``: the paper has a plot without a number. ``ours``: it has neither."""
        return "printed" if self.printed is not None else "drawn" if self.drawn else "ours"


def figures_of(module: str) -> Callable[..., Published]:
    """What makes the figures of a ledger, of which most are measured by functions of one module.

    Args:
        module: its name. In the figures, ``function`` means ``module:function``, and ``part:function`` is in the
            module's own part; a name with dots stays as it is.
    """

    def figure(
        place: str,
        series: str,
        x: float | str,
        unit: str,
        measured: str,
        arguments: Mapping[str, Any],
        printed: float | None = None,
        expects: Expectation | None = None,
        reason: str = "",
        unlike: str = "",
    ) -> Published:
        where = measured if "." in measured else f"{module}{'.' if ':' in measured else ':'}{measured}"
        return Published(place, series, x, unit, where, arguments, printed, reason, expects=expects, unlike=unlike)

    return figure


def _contradiction(row: Published) -> str:
    """What is wrong with a declaration; "" if nothing is wrong."""
    expects = row.expects
    if row.printed is None:
        return "nothing is printed, so nothing can be expected: leave out expects" if expects else ""
    if not math.isfinite(row.printed):
        return f"a printed figure is a finite number, not {row.printed!r}"
    if row.drawn:
        return "a figure that is drawn has no printed number: leave out drawn, or printed"
    if expects is None:
        return ""
    if expects.verdict == "upheld":
        if row.unlike and expects.agreement.how != "equal":
            return (
                f"unlike quantities uphold nothing {expects.agreement.how} ({row.unlike}): give the quotient of two "
                "figures that are alike, or leave out printed and expects"
            )
        return _bound_of_our_own(row.printed, expects, row.unit)
    if not row.reason.strip():
        told = "why it differs, as tested" if expects.verdict == "refuted" else "what was tried and ruled out"
        return f"declared {expects.verdict}: say in reason {told}"
    if row.unlike and expects.verdict == "refuted":
        return f"unlike quantities refute nothing ({row.unlike}): measure the same quantity, or declare it unexplained"
    if expects.verdict == "refuted" and (own := _bound_of_our_own(row.printed, expects, row.unit)):
        return own
    if expects.instead is not None and expects.agreement.holds(expects.instead, row.printed):
        return (
            f"declared {expects.verdict}, but {expects.instead:g} agrees with the printed {row.printed:g} "
            f"({expects.agreement.words()}): declare it upheld"
        )
    return ""


def _bound_of_our_own(bound: float, expects: Expectation, unit: str) -> str:
    """What is wrong with an upheld or refuted figure whose one-sided bound is not the paper's; "" if it is."""
    if _is_of_paper(bound, expects.agreement, unit):
        return ""
    settles, instead = {"upheld": ("upholds", "leave out printed and expects")}.get(
        expects.verdict, ("refutes", "declare it unexplained")
    )
    return (
        f"{expects.verdict} by the bound {bound:g}, which the quoted words do not name: a bound that was chosen here "
        f"{settles} nothing; quote the paper's number, compare two figures, or {instead}"
    )


def _is_of_paper(bound: float, agreement: Agreement, unit: str) -> bool:
    """Whether a bound is the paper's own: its words name the number, or compare two things.

    "More than", "no more than", "never" and "always" need no number: their bound is a quotient of 1, an exponent or a
    difference of 0, or a share of 100%; that of "most" is a half. "From 35K to above 100K" names a quotient too. Where
    a value must be equal, the number is a printed one.
    """
    percent = unit.startswith("%")
    if agreement.how == "equal" or bound == 0.0 or bound == (100.0 if percent else 1.0):
        return True
    words = " ".join(_QUOTED.findall(agreement.because)).replace(",", "")
    if re.search(r"\bmost(ly)?\b", words) and bound == (50.0 if percent else 0.5):
        return True
    named = [float(number) for number in _NUMBER.findall(words)]
    named += [number for word, number in _WORDS.items() if re.search(rf"\b{word}\b", words)]
    named += [high / low for low, high in itertools.pairwise(named) if low]
    return any(math.isclose(number, bound) for number in named)


@dataclass(frozen=True)
class Judged:
    """The verdict on a printed figure.

    Attributes:
        outcome: a name in `OUTCOMES`.
        sentence: names the figure, what is printed, measured and declared, what agreement means, and what to do.
    """

    outcome: str
    sentence: str

    @property
    def status(self) -> int:
        """The exit status of a run that has it."""
        return OUTCOMES[self.outcome]


def judge(row: Published, ours: Any, problem: str = "") -> Judged | None:
    """The verdict on a figure, from what was measured and what is declared; None if no number is printed.

    Args:
        row: the figure.
        ours: what was measured; None if nothing was measured.
        problem: why it could not be measured.
    """
    if row.printed is None:
        return None
    if ours is None:
        return Judged("not measured here", f"{row.name}: {problem or 'not measured yet'}")
    if isinstance(ours, bool) or not isinstance(ours, (int, float)) or not math.isfinite(ours):
        what = f"{ours}" if isinstance(ours, (int, float)) else f"a {type(ours).__name__}"
        return Judged(
            "not measured here",
            f"{row.name}: a number is printed, and {row.measured} returns {what}; let it return a finite number",
        )
    told = f"{row.name}: printed {_number(row.printed, row.unit)}, measured {_number(ours, row.unit)}"
    told += f", ratio {ours / row.printed:.3g}" if row.printed else ""
    if row.unlike:
        told += f" (unlike: {row.unlike})"
    if row.expects is None:
        return Judged("undeclared", f"{told}; no expectation is declared: say upheld, refuted or unexplained")
    told += f"; agreement: {row.expects.agreement.words()}; declared {row.expects.verdict}"
    if wrong := _against(row.expects, ours, row.printed):
        return Judged("not as declared", f"{told}, but {wrong}")
    return Judged("refuted as declared" if row.expects.verdict == "refuted" else row.expects.verdict, told)


def _against(expects: Expectation, ours: float, printed: float) -> str:
    """What contradicts a declaration, and what to do; "" if nothing does."""
    agrees = expects.agreement.holds(ours, printed)
    if expects.verdict == "upheld":
        remedy = "correct what is measured, or declare it refuted or unexplained with its reason"
        return "" if agrees else f"it does not agree: {remedy}"
    if agrees:
        return "it agrees: declare it upheld"
    if not expects.keeps(ours):
        return (
            f"its reason is about {expects.instead:.4g} within {100 * expects.spread:.3g}%: test the reason again, and "
            "declare what is found"
        )
    return ""


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()


def counts(judged: Iterable[Judged]) -> dict[str, int]:
    """Outcome -> how many figures have it, for all outcomes, in their order."""
    found = [one.outcome for one in judged]
    return {name: found.count(name) for name in OUTCOMES}


def summary(found: Mapping[str, int]) -> str:
    """Counts in words, such as ``3 upheld, 1 unexplained``; outcomes that do not occur are left out.

    >>> summary({"upheld": 3, "refuted as declared": 0, "unexplained": 1})
    '3 upheld, 1 unexplained'
    """
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "no printed figures"
