"""Claims about memory and work: laws over a sweep of sizes, shares of several devices, and single figures of a paper.

They are measured per hardware profile, not on drawn problems. Settings are plain data, so that a claim can travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gradgate.references.contract import Claim, Expected

CHECKS = ("memory_law", "work_law", "per_device", "figure")
"""Checks that judge a profile; every other check judges the gradient, which no profile changes."""
Bound = Literal["at most", "equal"]


def memory_law(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    exponent: float,
    bound: Bound = "at most",
    tolerance: float = 0.1,
    quantity: str = "temp_bytes",
    spec: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | str | None = None,
    independent_of: Mapping[str, Sequence[int]] | None = None,
    below: tuple[str, float] | None = None,
    not_by: Mapping[str, str] | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that bytes, but for a constant, grow like ``size ** exponent``, or no faster.

    Args:
        name: stable name of the claim.
        statement: the promise in one sentence.
        source: paper and equation.
        variable: the Spec field that is swept.
        sizes: at least 5 values of it that span a factor of 4 or more; powers of 4 suit best.
        exponent: claimed; 0 for bytes that do not grow.
        bound: whether the measured exponent may be ``at most`` the claimed one, or must ``equal`` it.
        tolerance: by which the measured exponent may miss.
        quantity: a field of ``hw_profiles.measurement.Measurement``.
        spec: Spec fields of the problem, over the family's ``measured``.
        options: of the method, or ``module:function`` of the Spec that returns them; None: each option's ``usual``.
        independent_of: Spec field -> values over which the bytes must stay as they are, to within 5%.
        below: (method, factor): at the largest size, factor times these bytes is at most that method's.
        not_by: compiler of a profile -> why the claim is not about what it makes; None: it is about all.
        expected: ``refuted`` for a claim known to be false.
        declared_reason: why it is.
    """
    settings = {
        "variable": variable, "sizes": tuple(sizes), "exponent": exponent, "bound": bound, "tolerance": tolerance,
        "not_by": dict(not_by or {}), "quantity": quantity, "spec": dict(spec or {}), "options": options,
        "below": below, "independent_of": dict(independent_of or {}),
    }  # fmt: skip
    return Claim(name, "memory_law", statement, source, expected, declared_reason, settings=settings)


def work_law(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    exponent: float,
    bound: Bound = "equal",
    tolerance: float = 0.1,
    spec: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | str | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that FLOPs grow like ``size ** exponent``; arguments as for `memory_law`.

    FLOPs of JAX are counted from the program's text, all arithmetic; those of PyTorch are its products of matrices,
    convolutions and attention. A sum of n terms has n − 1 additions in both.
    """
    settings = {
        "variable": variable, "sizes": tuple(sizes), "exponent": exponent, "bound": bound, "tolerance": tolerance,
        "quantity": "flops", "spec": dict(spec or {}), "options": options,
    }  # fmt: skip
    return Claim(name, "work_law", statement, source, expected, declared_reason, settings=settings)


def per_device(
    name: str,
    statement: str,
    source: str,
    *,
    variable: str,
    sizes: Sequence[int],
    devices: int,
    option: str = "devices",
    tolerance: float = 0.1,
    quantity: str = "temp_bytes",
    spec: Mapping[str, Any] | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that what grows with `variable` is shared out: on each of n devices it grows n times less.

    Args:
        variable: the Spec field that is swept, in which bytes grow linearly besides a constant.
        sizes: at least 5 values, all multiples of `devices`.
        devices: n, compared with 1.
        option: the method's option that takes the number of devices.
        tolerance: by which the ratio of the two slopes may miss n, relative.

    The others are as for `memory_law`.
    """
    settings = {
        "variable": variable, "sizes": tuple(sizes), "devices": devices, "option": option, "tolerance": tolerance,
        "quantity": quantity, "spec": dict(spec or {}),
    }  # fmt: skip
    return Claim(name, "per_device", statement, source, expected, declared_reason, settings=settings)


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
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that one figure of a paper is right.

    Args:
        printed: the paper's figure.
        measured: ``module:function`` of a profile's name that returns ours; it raises ``LookupError`` with a sentence
            where the profile cannot tell.
        unit: of both, such as ``bytes`` or ``FLOPs``.
        bound: whether ours may be ``at most`` the printed figure, or must ``equal`` it.
        tolerance: relative.

    The others are as for `memory_law`.
    """
    settings = {"printed": printed, "measured": measured, "unit": unit, "bound": bound, "tolerance": tolerance}
    return Claim(name, "figure", statement, source, expected, declared_reason, settings=settings)
