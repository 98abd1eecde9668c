"""An error planted in every method that is claimed exact, in one leaf and one dtype. Float claims must detect it.

There is no list of methods here. A method that is added to a class gets its mutants automatically.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.references.contract import Family, Problem
from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.facts import facts
from gradgate.suites.bugs.mutant import Mutant
from gradgate.suites.bugs.operators import Operator, on_leaves

LEVEL = {"float64": 1e-11, "float32": 3e-5, "bfloat16": 0.05}
"""The relative error that is planted, by dtype. In bfloat16, plain backprop itself has an error of some hundredths."""


def planted(size: float, dtype: str, leaf: str | tuple[str, ...]) -> Operator:
    """Multiply a leaf by 1 + size, in one dtype."""

    def change(problem: Problem, gradient: Any) -> Any:
        return gradient * (1 + size) if problem.dtype == dtype else gradient

    return on_leaves(change, lambda path: path.startswith(leaf))


def mutants(family: Family) -> Iterator[Mutant]:
    """An error in each dtype, in every method of a class that is claimed exact, with the leaves in turn."""
    known, names = facts(family), dict.fromkeys(method.name for method in family.methods)
    for (number, name), (turn, dtype) in itertools.product(enumerate(names), enumerate(LEVEL)):
        leaf = known.turns[(number + turn) % len(known.turns)]
        size = LEVEL[dtype]
        if dtype == "bfloat16":
            size = known.coarse.get(name, known.coarse.get(str(leaf), size))
        said = leaf if isinstance(leaf, str) else " or ".join(leaf)
        for method in family.methods:
            if method.name != name:
                continue
            claims = {claim.name: claim for claim in method.claims}
            kill, exact = claims.get(GRADIENT_CLAIMS[dtype]), claims.get("gradient_exact")
            if kill is None or exact is None or {kill.expected, exact.expected} != {"upheld"}:
                continue
            change: dict[str, Any] = {method.framework: planted(size, dtype, leaf)}
            yield from bug(
                family.name,
                f"{name}_off_in_{dtype}",
                name,
                f"in {dtype} only, {said} is off by {size:g} of itself",
                "operator: relative error in one dtype",
                kill=(kill.name,),
                **change,
            )
