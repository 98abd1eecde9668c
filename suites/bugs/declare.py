"""How the tables of this folder are written: one bug, in one or both frameworks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.bugs.mutant import Function, Mutant
from gradgate.suites.bugs.operators import Operator, wrapped

Change = Edit | tuple[Edit, ...] | Operator
GRADIENT = ("gradient_float64",)


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
) -> tuple[Mutant, ...]:
    """The mutants of one bug: `jax` and `torch` say how it is put into each framework's method, `both` into either."""
    changes = {"jax": jax or both, "torch": torch or both}
    return tuple(
        Mutant(
            f"{family}.{framework}.{name}", story, source, family, framework, method, tuple(kill),
            functools.partial(_build, family, method, framework, change), verdict, equivalent,
        )
        for framework in FRAMEWORKS
        if (change := changes[framework]) is not None
    )  # fmt: skip


def erratum(family: str, printed: str, mended: str, kill: Sequence[str] = GRADIENT) -> tuple[Mutant, ...]:
    """What a paper prints, as a mutant of the method that mends it: where that promises, this must be refuted."""
    return tuple(
        Mutant(
            f"{family}.{method.framework}.{printed}", f"{printed}, in the place of {mended}",
            f"the paper as printed: {family} {printed}", family, method.framework, mended, tuple(kill),
            functools.partial(registry.load, method.implementation),
        )
        for method in registry.methods(family, printed)
    )  # fmt: skip


def _build(family: str, method: str, framework: str, change: Change) -> Function:
    """The broken function: made in a worker, never where the tables are read."""
    [base] = registry.methods(family, method, framework)
    if isinstance(change, (Edit, tuple)):
        return edited(base.implementation, change if isinstance(change, tuple) else (change,))
    return wrapped(registry.load(base.implementation), change)
