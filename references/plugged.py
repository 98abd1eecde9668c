"""How a plug-in declares more than the defaults: the decorator `method`, and the checks of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.claim import Claim, Option
from gradgate.references.errors import UsageError, unknown

TRANSFORMATIONS = ("jit", "vmap", "second_order")
DTYPES = ("float64", "float32", "bfloat16")
"""The dtypes in which a method is judged by default."""
LOOSEST = {"float32": 1e-2, "float64": 1e-6}
"""Dtype -> the relative error at and above which a bound is meaningless."""


def method(
    *,
    options: Sequence[Option] = (),
    composes: Sequence[str] = (),
    disclaims: Sequence[str] = (),
    kappa: float = 16.0,
    rounding: str = "",
    oracle: str = "loss",
    claims: Sequence[Claim] = (),
    where: Mapping[str, Any] | None = None,
    expected: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = DTYPES,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator by which a plug-in declares more than the defaults; a plain function needs none.

    Args:
        options: the options whose every legal value is tried.
        composes: the transformations that must work, of ``jit``, ``vmap`` and ``second_order``.
        disclaims: the transformations that must be refused with NotComposable. Those in neither list are not judged.
        kappa: how many times the measured noise the error may reach.
        rounding: the Problem's loss whose rounding is allowed in place of `loss`'s, such as ``loss_by_subtraction``.
        oracle: the Problem's function whose gradient is claimed, by default ``loss``.
        claims: what it promises besides the contract, such as the laws of `gradgate.references.laws` and the counts of
            `gradgate.references.counts`. A claim with the name of one of the contract's claims replaces it.
        where: the problems that the method is for, as Spec fields: ``{"structure": ("scalar", "diagonal")}``; a tuple
            lists alternatives. None: all problems of the family.
        expected: claim -> why it is known to fail. The claim is then declared refuted; if it is upheld, the run fails.
        dtypes: the dtypes that the method supports; float64 must be one of them.

    Raises:
        UsageError: an unknown transformation or dtype, a known failure without a reason, or a kappa that allows
            everything.
    """
    for name in (*composes, *disclaims):
        if name not in TRANSFORMATIONS:
            raise unknown("transformation", name, TRANSFORMATIONS)
    _check_dtypes(dtypes)
    check_kappa(kappa, dtypes)
    for claim in claims:
        check_kappa(claim.settings.get("kappa", kappa), dtypes, f"kappa of the claim {claim.name}")
    check_expected(expected or {})
    if not isinstance(where or {}, Mapping):
        raise UsageError(f'where is a dict of Spec fields such as {{"layers": 2}}, not {where!r}')

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.gradgate = {  # type: ignore[attr-defined]
            "options": tuple(options),
            "composes": tuple(composes),
            "disclaims": tuple(disclaims),
            "kappa": kappa,
            "rounding": rounding,
            "oracle": oracle,
            "claims": tuple(claims),
            "where": dict(where or {}),
            "expected": dict(expected or {}),
            "dtypes": tuple(dtypes),
        }
        return function

    return mark


def _check_dtypes(dtypes: Sequence[str]) -> None:
    if isinstance(dtypes, str):
        raise UsageError(f"dtypes is a tuple such as ('float64', 'float32'), not {dtypes!r}")
    for name in dtypes:
        if name not in DTYPES:
            raise unknown("dtype", str(name), DTYPES)
    if "float64" not in dtypes:
        given = ", ".join(dtypes) or "none"
        raise UsageError(f"dtypes must have float64 among them, not {given} alone: most claims are judged in it")


def check_kappa(kappa: Any, dtypes: Sequence[str], what: str = "kappa") -> None:
    """Refuse a κ that is no positive number, or so large that the bound in a declared dtype would be meaningless.

    The bound on a well-conditioned problem is about κ·u times the leaf's norm. It is checked in float32 if the method
    supports float32, otherwise in float64.
    """
    number = isinstance(kappa, (int, float)) and not isinstance(kappa, bool)
    if not number or not math.isfinite(kappa) or kappa <= 0:
        raise UsageError(f"{what} must be a positive number, 16 for what loses no more than backprop, not {kappa!r}")
    dtype = "float32" if "float32" in dtypes else "float64"
    most, bound = LOOSEST[dtype], kappa * UNIT_ROUNDOFF[dtype]
    if bound >= most:
        instead = f"declare that it fails, expected={{'gradient_{dtype}': 'why'}}"
        instead = f"leave float32 out of dtypes, or {instead}" if dtype == "float32" else instead
        raise UsageError(
            f"{what} = {kappa:g} allows a relative error of {bound:.2g} in {dtype}: from {most:g} on a bound says "
            f"nothing; legal: less than {most / UNIT_ROUNDOFF[dtype]:.3g}; for a method that loses more, {instead}"
        )


def check_expected(expected: Any) -> None:
    """Refuse a known failure without a reason.

    Raises:
        UsageError: `expected` is no such dict; the message says what is wrong.
    """
    example = 'expected={"gradient_float32": "subtracts what it kept in half of the digits"}'
    if not isinstance(expected, Mapping):
        raise UsageError(f"expected maps a claim to the reason why it fails, such as {example}, not {expected!r}")
    for claim, reason in expected.items():
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"expected: say why {claim} fails, such as {example}, not {reason!r}")
