"""The numbers: the gradient in each dtype, over options, over the upstream factor, and under stress."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from gradgate.references.oracle import scales
from gradgate.suites.checks import another, evaluation
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Refuted
from gradgate.suites.judging.tolerance import ADVICE, beside, sharper

FACTORS = (2.0, -0.375, 3.3125)
"""Upstream cotangents that float32 represents: a power of two, a negative number, a number whose products round."""


def gradient(case: Case) -> None:
    """Every leaf, or those that the claim is about, equals the oracle's in the claim's dtype.

    Settings: ``dtype``; ``leaves="last_layer"``; ``oracle``, another loss of the Problem than the method's own;
    ``covering``, an option at its largest value; ``accumulates="float32"``, for a narrow dtype: the error of plain
    backprop in float32, rounded once to the dtype, takes the place of the error of plain backprop in the dtype.
    """
    dtype = case.settings["dtype"]
    measured = case.reference(dtype)
    reference = sharper(measured) if "accumulates" in case.settings else measured
    loss, grads = case.subject.gradient(case.problem(dtype), case.options)
    if case.settings.get("leaves") == "last_layer":
        last = f"layers[{case.spec.layers - 1}]"  # type: ignore[attr-defined]
        grads = {name: leaf for name, leaf in grads.items() if name.startswith(last)}
    naming = another.naming_a_wrong_loss(case, loss, grads, reference, dtype)
    with naming, _advised(case), evaluation.naming_a_cast(case, dtype):
        case.judge(grads, reference, dtype)
    if measured.inside:
        case.remark = beside(grads, measured, dtype)


@contextlib.contextmanager
def _advised(case: Case) -> Iterator[None]:
    """The scope in which a refutation by the sharper yardstick says what to do."""
    try:
        yield
    except Refuted as why:
        if "accumulates" not in case.settings:
            raise
        raise Refuted(f"{why}; {ADVICE}", why.leaf, why.error, why.noise) from None


def options(case: Case) -> None:
    """The gradient is right for every legal value of every option; the other options are as drawn."""
    for option in case.subject.declared.options:
        for legal in option.values(case.spec):
            one = dataclasses.replace(case, options={**case.options, option.name: legal})
            reference = one.reference(case.widest)
            _, grads = one.subject.gradient(one.problem(), one.options)
            case.judge(grads, reference, case.widest, what=f"{option.name}={legal!r}: ")


def upstream(case: Case) -> None:
    """The method's gradient of c·loss is c times its gradient of the loss, if that is so for plain backprop."""
    reference = case.reference(case.widest)
    _, plain = case.subject.gradient(case.problem(), case.options)
    own = case.against_own(reference, plain)
    for factor in FACTORS:
        _, scaled = case.subject.gradient(case.problem(upstream=factor), case.options)
        if not scales(case.spec):  # the reference's backward pass adds something of its own
            one = dataclasses.replace(case, spec=dataclasses.replace(case.spec, upstream=factor))
            case.judge(scaled, one.reference(case.widest), case.widest, what=f"c={factor}: ")
            continue
        case.judge(scaled, own, case.widest, what=f"c={factor}: ", factor=factor)


def stability(case: Case) -> None:
    """The gradient is right on a problem of the family's stress list, in float64 and, if supported, in float32."""
    for dtype in [dtype for dtype in ("float64", "float32") if dtype in case.subject.declared.dtypes]:
        reference = case.reference(dtype)
        _, grads = case.subject.gradient(case.problem(dtype), case.options)
        case.judge(grads, reference, dtype, what=f"{dtype}: ")
