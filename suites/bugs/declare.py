"""Functions that declare the entries of this folder's tables: one bug, in one or both frameworks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.bugs.mutant import Function, Mutant
from gradgate.suites.bugs.operators import Operator, wrapped

Change: TypeAlias = Edit | tuple[Edit, ...] | Operator
GRADIENT = ("gradient_exact",)
"""The claim that must refute a wrong formula, alone."""
ROUNDING = ("gradient_float64",)
"""The claim that must refute a right formula that is computed in too few digits."""


def bug(
    family: str,
    name: str,
    method: str,
    story: str,
    source: str,
    *,
    kill: Sequence[str] = GRADIENT,
    jax: Change | None = None,
    torch: Change | None = None,
    both: Change | None = None,
    verdict: str = "refuted",
    equivalent: str = "",
    profiles: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
    planted: float = 0.0,
) -> tuple[Mutant, ...]:
    """The mutants of one bug: `jax` and `torch` plant it in the method of that framework, `both` in either method.

    Args:
        profiles: framework -> the profile on which the mutant is judged, ``cpu`` by default.
        kill, verdict, equivalent, also, planted: as for `Mutant`.
    """
    changes = {"jax": jax or both, "torch": torch or both}
    return tuple(
        Mutant(
            f"{family}.{framework}.{name}",
            story,
            source,
            family,
            framework,
            method,
            tuple(kill),
            functools.partial(_build, family, method, framework, change),
            verdict,
            equivalent,
            profile=(profiles or {}).get(framework, "cpu"),
            also=tuple(also),
            planted=planted,
        )
        for framework in FRAMEWORKS
        if (change := changes[framework]) is not None
    )


def impostor(
    family: str,
    name: str,
    other: str,
    method: str,
    kill: Sequence[str] = GRADIENT,
    *,
    story: str,
    source: str,
    options: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    profiles: Mapping[str, str] | None = None,
) -> tuple[Mutant, ...]:
    """Another method of the family in place of `method`; the claims of `method` do not hold for it.

    Args:
        options: options of `method`, which are accepted and not used.
        given: options that the other method always gets.
        profiles: as for `bug`.
    """
    return tuple(
        Mutant(
            f"{family}.{declared.framework}.{name}",
            story,
            source,
            family,
            declared.framework,
            method,
            tuple(kill),
            functools.partial(_load, declared.implementation, tuple(options), dict(given or {})),
            profile=(profiles or {}).get(declared.framework, "cpu"),
        )
        for declared in registry.methods(family, other)
    )


def erratum(
    family: str,
    printed: str,
    mended: str,
    kill: Sequence[str] = GRADIENT,
    *,
    without: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
) -> tuple[Mutant, ...]:
    """The method as a paper prints it, in place of the corrected method; `without` are options of only the latter."""
    return impostor(
        family,
        "_".join([printed, *map(str, (given or {}).values())]),
        printed,
        mended,
        kill,
        story=f"{printed} in place of {mended}",
        source="an erratum, the paper as printed",
        options=without,
        given=given,
    )


def _load(implementation: str, dropped: Sequence[str], given: Mapping[str, Any]) -> Function:
    """A method that accepts some options without using them."""
    function = registry.load(implementation)
    return lambda problem, **options: function(
        problem, **{name: value for name, value in options.items() if name not in dropped}, **given
    )


def _build(family: str, method: str, framework: str, change: Change) -> Function:
    """The broken function; it is made in a worker, not when the tables are read."""
    [base] = registry.methods(family, method, framework)
    if isinstance(change, (Edit, tuple)):
        return edited(base.implementation, change if isinstance(change, tuple) else (change,))
    return wrapped(registry.load(base.implementation), change)
