"""Judges claims about memory and work on one hardware profile, by what a sweep of cells measures."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gradgate.hw_profiles import fit
from gradgate.hw_profiles.profile import load
from gradgate.references import registry
from gradgate.references.backends import precision
from gradgate.references.contract import Claim, Method, Spec, UsageError
from gradgate.references.law_kinds import Below, Figure, Growth, Law, OfReference, Over, Share
from gradgate.suites.checks import quantities
from gradgate.suites.judging.subject import Inapplicable, Refuted, Subject
from gradgate.suites.measuring import cells
from gradgate.suites.measuring.series import Series, amount

Kind = TypeVar("Kind", bound=Law)
REFERENCE = "reference"
"""Name of a pair's reference, taken as a method."""


@dataclass
class Sweep:
    """One claim about memory or work, judged for one method on one profile.

    Attributes:
        profile: name of a profile, or the path of its TOML file.
        base: Spec fields that replace those of the claim, to start the sweep from a problem that the user chose.
        limit: seconds that one compilation may take.
        progress: called with the number of cells measured so far.
        series: what was measured so far, for the verdict.
        spec, options: of the last cell, the largest.
    """

    subject: Subject
    claim: Claim
    profile: str = "cpu"
    base: Mapping[str, Any] = field(default_factory=dict)
    limit: float = 60.0
    progress: Callable[[int], None] = lambda _: None
    series: list[Series] = field(default_factory=list)
    measured: int = 0
    spec: Spec | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sentence: str = ""

    @property
    def law(self) -> Growth | Share | OfReference:
        """What the claim says about a sweep."""
        if isinstance(self.claim.law, (Growth, OfReference)):
            return self.claim.law
        return self.carried(Share)

    def carried(self, kind: type[Kind]) -> Kind:
        """The claim's law, of the kind that its check judges.

        Raises:
            UsageError: the claim carries none, or one of another kind.
        """
        law = self.claim.law
        if not isinstance(law, kind):
            carries = "no law" if law is None else f"a {type(law).__name__}"
            raise UsageError(
                f"the check {self.claim.check} judges a {kind.__name__}, and the claim {self.claim.name} carries "
                f"{carries}: declare it by a function of gradgate.references.laws"
            )
        return law

    def at(self, **fields: Any) -> Spec:
        """The claim's Spec with some fields replaced."""
        family = registry.family(self.subject.declared.family)
        options = {option.name for option in self.subject.declared.options}
        asked = {name: value for name, value in self.law.spec.items() if name not in options}
        chosen = {**family.measured, **asked, **self.base, **fields}
        return registry.spec_class(family.name)(**chosen)

    def options_at(self, spec: Spec) -> dict[str, Any]:
        """The method's options on a Spec, as the claim sets them; a pair's claim names them among the fields."""
        given = self.law.options
        usual = cells.usual_options(self.subject.declared, spec)
        usual |= {name: value for name, value in self.law.spec.items() if name in usual}
        if given is None:
            return usual
        return usual | dict(registry.load(given)(spec) if isinstance(given, str) else given)

    def value(self, spec: Spec, options: Mapping[str, Any], other: Method | None = None) -> float | None:
        """The claim's quantity of this method, or of another, on one Spec; None: too large for the device.

        Raises:
            Fault: the method cannot be traced or run, or the compiler crashed or took too long.
            Inapplicable: the compiler is missing or refuses the program, or the method cannot be measured at all.
        """
        declared = other or self.subject.declared
        if declared.unmeasured:
            raise Inapplicable(f"{declared.name} cannot be measured: {declared.unmeasured}")
        function: Any = self.subject.function
        if other is not None:
            function = function.plain if other.name == REFERENCE else registry.load(other.implementation)
        call = {"spec": json.loads(spec.to_json()), "options": dict(options)}
        if other is None:
            self.spec, self.options = spec, dict(options)
        self.subject.watch(call)
        try:
            quantity = self.law.quantity
            if quantity == "residual_bytes":
                found: float | None = quantities.residual_bytes(declared, function, spec, options)
            elif quantity.startswith("compiled_"):
                found = quantities.compiled_bytes(declared, function, spec, options, quantity)
            elif quantity == "flops":
                found = quantities.flops(declared, function, spec, options)
            else:
                found = quantities.device_bytes(declared, function, self.profile, spec, options, self.limit, quantity)
        finally:
            self.subject.watch(None)
        self.measured += 1
        self.progress(self.measured)
        return found

    def sweep(self, over: Over, name: str = "", **options: Any) -> Series:
        """Measure over the values of a Spec field; options given here replace those of the claim.

        Raises:
            Inapplicable: too few of the sizes fit the device.
        """
        points, variable = [], over.variable
        for size in over.sizes:
            spec = self.at(**{variable: size})
            found = self.value(spec, self.options_at(spec) | options)
            if found is not None:
                points.append((size, found))
        family = registry.family(self.subject.declared.family)
        letter = next((letter for letter, known in family.letters.items() if known == variable), variable)
        made = Series.of(self.law.quantity, variable, letter, points, name)
        self.series.append(made)
        if len(points) < min(fit.MIN_POINTS, len(over.sizes)):
            raise Inapplicable(
                f"only {len(points)} of the {len(over.sizes)} sizes of {letter} fit {self.profile}: "
                "no law can be fitted"
            )
        return made


UNDONE = (
    "XLA for CPUs drops the barriers that keep recomputation apart, so the bytes of this rematerialised program say "
    "nothing; judge the law with --profile nvidia-h100 or tpu-v5p"
)
"""Why a law about a program that recomputes is not refuted on a CPU, as the laws of the chain's methods say, too."""
BARRIERS = ("remat2", "checkpoint", "optimization_barrier")
"""Primitives that keep a compiler from merging a recomputation with what it computes again."""


def _unless_undone(check: Callable[[Sweep], None]) -> Callable[[Sweep], None]:
    """A check whose refutation of a pair's bytes does not count if the compiler undoes the pair's rematerialisation."""

    @functools.wraps(check)
    def judged(case: Sweep) -> None:
        try:
            check(case)
        except Refuted as why:
            if not _is_undone(case):
                raise
            raise Inapplicable(f"{case.profile}: {UNDONE}; measured: {why}") from None

    return judged


def _is_undone(case: Sweep) -> bool:
    declared, function = case.subject.declared, case.subject.function
    of_device = case.law.quantity in ("temp_bytes", "peak_bytes") and load(case.profile).compiler == "host"
    if declared.framework != "jax" or not of_device or not hasattr(function, "plain") or case.spec is None:
        return False
    import jax

    run, arguments, _ = cells.of_method(declared, function, case.spec, case.options)
    with precision("jax", case.spec.dtype):
        return _has_barriers(jax.make_jaxpr(run)(*arguments).jaxpr)


def _has_barriers(jaxpr: Any) -> bool:
    from jax.extend.core import jaxprs_in_params

    return any(
        equation.primitive.name in BARRIERS or any(map(_has_barriers, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


@_unless_undone
def growth(case: Sweep) -> None:
    """The quantity grows like the claimed power of the variable, or no faster (`memory_law` and `work_law`)."""
    claimed = case.carried(Growth)
    if why := claimed.excuse(load(case.profile).compiler):
        raise Inapplicable(f"{case.profile}: {why}")
    if claimed.never is not None:
        _no_product(case, claimed.over, claimed.never)
        return
    found = case.sweep(claimed.over)
    promise = f"claimed {claimed.within.bound} {found.letter}^{claimed.exponent:g}"
    tolerance = claimed.within.allowed(fit.TOLERANCE)
    padding = fit.negligible(found.values, claimed.quantity)
    if found.exponents and not padding and fit.surely_faster(found.exponents, claimed.exponent, tolerance):
        raise Refuted(f"{found.words}; {promise}")
    faster = _fitted(found).exponent - claimed.exponent
    case.sentence = f"{found.words} over {found.span}; {promise}"
    if padding and faster > 0:
        most = amount(fit.GRAIN, claimed.quantity)
        case.sentence += f": changes of at most {most} and {fit.MAX_CHANGE:.0%} do not count as growth"
    elif claimed.within.broken_by(faster, fit.TOLERANCE):
        raise Refuted(case.sentence)
    if claimed.below is not None:
        case.sentence += _below(case, claimed.below, found)
    for over in claimed.independent_of:
        other = case.sweep(over, f"over {over.variable}")
        told = fit.does_not_depend(other.sizes, other.values)
        if not told.holds:
            raise Refuted(
                f"{case.sentence}; over {other.letter}, where they are claimed to be constant, {told.sentence}"
            )
        case.sentence += f"; over {other.letter} {told.sentence}"


def share(case: Sweep) -> None:
    """What grows with the variable is n times less on each of n devices (`per_device`)."""
    claimed = case.carried(Share)
    n = claimed.devices
    if case.subject.declared.sharded and load(case.profile).compiler not in ("tpu", "host"):
        raise Inapplicable(f"{case.profile} is one device; several are measured on TPU profiles and on cpu")
    both, laws = [], []
    for count in (1, n):
        series = case.sweep(claimed.over, f"{count} devices" if count > 1 else "1 device", **{claimed.option: count})
        both.append(series)
        laws.append(_fitted(series))
    one, many = both
    case.sentence = f"on 1 device {one.words}, on each of {n} devices {many.words}, over {one.span}"
    for law in laws:
        if not law.linear:
            raise Refuted(f"{case.sentence}; a share of what is linear in {one.letter} was claimed")
    rise = [series.values[-1] - series.values[0] for series in both]
    ratio = rise[0] / rise[1]
    case.sentence += f": what grows is shared out {ratio:.2f} times"
    tolerance = fit.SHARE_TOLERANCE if claimed.tolerance is None else claimed.tolerance
    if abs(ratio - n) > tolerance * n:
        raise Refuted(f"{case.sentence}; claimed {n} times")


@_unless_undone
def of_reference(case: Sweep) -> None:
    """On one problem, a pair's function takes at most a share of what its reference takes."""
    claimed = case.carried(OfReference)
    spec, declared = case.at(), case.subject.declared
    reference = dataclasses.replace(declared, name=REFERENCE, implementation=f"{declared.implementation}#reference")
    values = [case.value(spec, case.options_at(spec)), case.value(spec, {}, reference)]
    if None in values:
        raise Inapplicable(f"{case.profile}: too small for the problem")
    ours, theirs = (float(value) for value in values if value is not None)
    case.sentence = (
        f"{claimed.quantity} {amount(ours, claimed.quantity)}, the reference {amount(theirs, claimed.quantity)}"
    )
    case.sentence += f": {ours / theirs:.3g} times" if theirs else ""
    if ours > claimed.share * theirs:
        raise Refuted(f"{case.sentence}; claimed at most {claimed.share:g} times")


def _no_product(case: Sweep, first: Over, second: Over) -> None:
    """The quantity has no part that grows like the product of two dims, by its mixed difference over four corners.

    What grows with one of the dims alone, and every constant, cancels in
    Q(a₁, b₁) − Q(a₁, b₀) − Q(a₀, b₁) + Q(a₀, b₀) = k·(a₁ − a₀)·(b₁ − b₀), where k are bytes per element of the product.

    Raises:
        Refuted: k reaches `fit.LEAST_PER_ELEMENT`.
        Inapplicable: a corner does not fit the device.
    """
    corners, sign = 0.0, {True: 1.0, False: -1.0}
    ends = [(over.sizes[0], over.sizes[-1]) for over in (first, second)]
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        spec = case.at(**{first.variable: ends[0][i], second.variable: ends[1][j]})
        found = case.value(spec, case.options_at(spec))
        if found is None:
            raise Inapplicable(f"{first.variable} = {ends[0][i]}, {second.variable} = {ends[1][j]}: too large")
        corners += sign[i == j] * found
    each = corners / ((ends[0][1] - ends[0][0]) * (ends[1][1] - ends[1][0]))
    product = f"{first.variable}·{second.variable}"
    case.sentence = f"{each:.3g} {case.law.quantity.replace('_', ' ')} per element of {product}"
    if each >= fit.LEAST_PER_ELEMENT:
        raise Refuted(f"{case.sentence}; claimed none")


def figure(case: Sweep) -> None:
    """The figure that is measured here equals the figure that a paper printed, within the claim's tolerance."""
    claimed = case.carried(Figure)
    measured = registry.load(claimed.measured)
    asked = {"method": case.subject.function} if "method" in inspect.signature(measured).parameters else {}
    try:
        ours = float(measured(case.profile, **asked))
    except LookupError as error:
        raise Inapplicable(str(error)) from None
    case.measured += 1
    printed, unit = claimed.printed, claimed.unit
    miss = (ours - printed) / printed
    case.sentence = f"measured {_told(ours)} {unit}, printed {_told(printed)} {unit} ({miss:+.1%})"
    case.sentence += f"; unlike: {claimed.unlike}" if claimed.unlike else ""
    if claimed.within.broken_by(miss):
        raise Refuted(case.sentence)


def _told(number: float) -> str:
    """A number as text: whole from 100 on, with four significant digits below.

    >>> _told(7_077_888.0), _told(1.21052), _told(0.0)
    ('7,077,888', '1.211', '0')
    """
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.4g}"


def _fitted(series: Series) -> fit.FittedLaw:
    if series.law is None:
        raise Inapplicable(series.problem)
    return series.law


def _below(case: Sweep, claimed: Below, found: Series) -> str:
    """A sentence that says that the other method takes at least `factor` times as much at the largest size.

    Raises:
        Refuted: the other method takes less.
        Inapplicable: it does not fit the device, and the device's whole memory is less than `factor` times as much.
    """
    name, factor, declared = claimed.method, claimed.factor, case.subject.declared
    [other] = registry.methods(declared.family, name, declared.framework)
    spec = case.at(**{found.variable: int(found.sizes[-1])})
    theirs = case.value(spec, cells.usual_options(other, spec), other)
    least = theirs or float(load(case.profile).device_memory_bytes or 0)
    takes = amount(theirs, case.law.quantity) if theirs else f"more than the {amount(least, 'bytes')} there are"
    ratio = least / found.values[-1]
    said = f"; at {found.letter} = {found.sizes[-1]:g} {name} takes {takes}, {ratio:.1f} times as much"
    if ratio >= factor:
        return said
    sentence = f"{case.sentence}{said}; claimed at least {factor:g} times"
    raise Refuted(sentence) if theirs else Inapplicable(sentence)
