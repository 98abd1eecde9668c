"""Declares claims about memory and work: laws over a sweep of sizes, shares of several devices, figures of a paper.

They are measured per hardware profile, not on drawn problems. A law is plain data (`law_kinds`), so that a claim can be
sent to another process. ``hw_profiles.fit`` fits a law; ``suites.checks.sweeps`` judges it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.references.contract import Claim, Expected
from gradgate.references.errors import UsageError
from gradgate.references.law_kinds import CHECKS, Below, Bound, Figure, Growth, Law, NotBy, Over, Share, Within

__all__ = [
    "CHECKS",
    "Below",
    "Bound",
    "Figure",
    "Growth",
    "Law",
    "NotBy",
    "Over",
    "Share",
    "Within",
    "claim",
    "figure",
    "memory_law",
    "per_device",
    "work_law",
]


def claim(
    name: str,
    statement: str,
    source: str,
    law: Law,
    *,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that a law holds.

    Args:
        name: stable name of the claim.
        statement: the promise in one sentence.
        source: paper and equation.
        law: what is claimed, as data.
        expected: ``refuted`` for a claim known to be false.
        declared_reason: why it is false.
    """
    return Claim(name, law.check, statement, source, expected, declared_reason, law=law)


def memory_law(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    exponent: float,
    bound: Bound = "at most",
    tolerance: float | None = None,
    quantity: str = "temp_bytes",
    spec: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | str | None = None,
    independent_of: Mapping[str, Sequence[int]] | None = None,
    below: tuple[str, float] | None = None,
    not_by: Mapping[str, str] | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that bytes, apart from a constant, grow like ``size ** exponent``, or no faster.

    Args:
        name: stable name of the claim.
        statement: the promise in one sentence.
        source: paper and equation.
        variable: the Spec field that is swept.
        sizes: at least 5 values of it that span a factor of 4 or more; powers of 4 suit best.
        exponent: the claimed exponent; 0 for bytes that do not grow.
        bound: whether the measured exponent may be ``at most`` the claimed one, or must ``equal`` it.
        tolerance: by how much the measured exponent may miss; None: ``hw_profiles.fit.TOLERANCE``, 0.1.
        quantity: a field of ``hw_profiles.measurement.Measurement``.
        spec: Spec fields of the problem, which replace those of the family's ``measured``.
        options: options of the method, or ``module:function`` of the Spec that returns them; None: each option's
            ``usual``.
        independent_of: Spec field -> values over which the bytes must not change by more than
            ``hw_profiles.fit.MAX_CHANGE``, 5%.
        below: (method, factor): at the largest size, factor times these bytes is at most that method's bytes.
        not_by: compiler of a profile -> why the claim does not cover its programs; None: it covers all compilers.
        expected: ``refuted`` for a claim known to be false.
        declared_reason: why it is false.

    Raises:
        UsageError: an unknown bound.
    """
    law = Growth(
        quantity,
        Over(variable, tuple(sizes)),
        exponent,
        Within(bound, tolerance),
        dict(spec or {}),
        options,
        independent_of=tuple(Over(field, tuple(values)) for field, values in (independent_of or {}).items()),
        below=None if below is None else Below(*below),
        not_by=tuple(NotBy(compiler, reason) for compiler, reason in (not_by or {}).items()),
    )
    return claim(name, statement, source, law, expected=expected, declared_reason=declared_reason)


def work_law(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    exponent: float,
    bound: Bound = "equal",
    tolerance: float | None = None,
    spec: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | str | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that FLOPs grow like ``size ** exponent``; arguments as for `memory_law`.

    In JAX all arithmetic in the text of the program is counted; in PyTorch only products of matrices, convolutions and
    attention are. A sum of n terms has n − 1 additions in both.
    """
    within = Within(bound, tolerance)
    law = Growth("flops", Over(variable, tuple(sizes)), exponent, within, dict(spec or {}), options)
    return claim(name, statement, source, law, expected=expected, declared_reason=declared_reason)


def per_device(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    devices: int,
    option: str = "devices",
    tolerance: float | None = None,
    quantity: str = "temp_bytes",
    spec: Mapping[str, Any] | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that devices share what grows with `variable`: on each of n devices it grows n times less.

    Args:
        variable: the Spec field that is swept; bytes grow linearly with it, apart from a constant.
        sizes: at least 5 values, all multiples of `devices`.
        devices: n, compared with 1.
        option: the method's option that takes the number of devices.
        tolerance: by how much, relatively, the ratio of the two slopes may miss n; None:
            ``hw_profiles.fit.SHARE_TOLERANCE``, 0.1.

    The others are as for `memory_law`.
    """
    law = Share(quantity, Over(variable, tuple(sizes)), devices, option, tolerance, dict(spec or {}))
    return claim(name, statement, source, law, expected=expected, declared_reason=declared_reason)


def figure(
    name: str,
    statement: str,
    source: str,
    *,
    printed: float,
    measured: str,
    unit: str,
    bound: Bound = "equal",
    tolerance: float = 0.01,
    unlike: str = "",
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that one figure of a paper is right.

    Args:
        printed: the paper's figure.
        measured: ``module:function`` of a profile's name that returns our figure; it raises ``LookupError`` with a
            sentence if the figure cannot be measured on the profile. If it has a parameter ``method``, it gets the
            method that is judged.
        unit: the unit of both, such as ``bytes`` or ``FLOPs``.
        bound: whether ours may be ``at most`` the printed figure, or must ``equal`` it.
        tolerance: relative.
        unlike: how the printed and the measured quantity differ, if they do.

    The others are as for `memory_law`.

    Raises:
        UsageError: quantities that are unlike would refute the claim, or uphold it one-sidedly.
    """
    if unlike and (expected == "refuted" or bound == "at most"):
        verdict = "refute nothing" if expected == "refuted" else "uphold nothing at most"
        raise UsageError(f"{name}: unlike quantities {verdict} ({unlike}): measure the same quantity, or compare two")
    law = Figure(printed, measured, unit, Within(bound, tolerance), unlike)
    return claim(name, statement, source, law, expected=expected, declared_reason=declared_reason)
