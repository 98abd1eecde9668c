"""An option of a method, and one promise of it: what a declaration is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gradgate.references.law_kinds import Law

Expected = Literal["upheld", "refuted"]


@dataclass(frozen=True)
class Option:
    """One option of a method.

    Attributes:
        name: keyword of the method.
        legal: the legal values in words, used in messages and in ``gradgate list``.
        values: Spec -> legal values to try, ragged ones included; the first is the simplest.
        illegal: values that the method must refuse with IllegalOption.
        usual: Spec -> the value at which memory and work are measured by default; None: the first of `values`.
    """

    name: str
    legal: str
    values: Callable[[Any], Sequence[Any]]
    illegal: Sequence[Any] = ()
    usual: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Claim:
    """One promise of a method, with its source.

    Attributes:
        name: stable name, used in verdicts.
        check: name of the check that judges it (`gradgate.suites.checks`).
        statement: the promise in one sentence.
        source: paper and equation, or "contract" for what every method promises.
        expected: ``refuted`` for a claim that is known to be false; `declared_reason` then says why.
        declared_reason: why the claim is false; "" for a claim that is expected to hold.
        where: Spec fields that the claim is restricted to; a value may be a tuple of alternatives.
        settings: arguments of the check. Every check reads ``options``, the method's options that are fixed. Checks of
            the gradient also read ``kappa`` and ``rounding``, which replace the method's.
        law: what a claim about memory or work says (`gradgate.references.laws`); None for every other claim.
    """

    name: str
    check: str
    statement: str
    source: str
    expected: Expected = "upheld"
    declared_reason: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    law: Law | None = None
