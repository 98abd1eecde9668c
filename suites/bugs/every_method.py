"""An error planted in every method that is claimed exact, in one leaf and in one dtype alone: what floats must see.

No list of methods is written here. A method that is added to a class gets its mutants by being declared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gradgate.references import registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.references.contract import Problem
from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.mutant import Mutant
from gradgate.suites.bugs.operators import Operator, on_leaves

LEVEL = {"float64": 1e-11, "float32": 3e-5, "bfloat16": 0.05}
"""The relative error that is planted, by dtype. In bfloat16 plain backprop itself is off by some hundredths."""
LEAVES: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "state_space": ("head", "layers.B.w0", "layers.C.b0", "layers.A.w0", "embedding"),
    "performer": ("head.w", "layers.feed_forward.w1", "layers.norms.shift2"),
    "invertible": ("head.w", "block0", "head.b"),
    "chain": ("layers[0].w", "layers[0].b", "layers[1]"),
    "bilevel": (("layers", "weights"), ("readout", "score")),
}
"""Family -> beginnings of the paths of leaves, several where no problem has all of them; methods take them in turn."""
COARSE = {"layers.A.w0": 0.2, "momentum_inversion": 0.2}
"""A leaf, and a method, of which bfloat16 does not tell its level from rounding, with one that it tells."""


def planted(size: float, dtype: str, leaf: str | tuple[str, ...]) -> Operator:
    """A leaf times 1 + size, in one dtype."""

    def change(problem: Problem, gradient: Any) -> Any:
        return gradient * (1 + size) if problem.dtype == dtype else gradient

    return on_leaves(change, lambda path: path.startswith(leaf))


def _mutants() -> Iterator[Mutant]:
    for family, leaves in LEAVES.items():
        names = dict.fromkeys(method.name for method in registry.methods(family))
        for (number, name), (turn, dtype) in itertools.product(enumerate(names), enumerate(LEVEL)):
            leaf = leaves[(number + turn) % len(leaves)]
            size = LEVEL[dtype] if dtype != "bfloat16" else COARSE.get(name, COARSE.get(str(leaf), LEVEL[dtype]))
            said = leaf if isinstance(leaf, str) else " or ".join(leaf)
            for method in registry.methods(family, name):
                claims = {claim.name: claim for claim in method.claims}
                kill = claims.get(GRADIENT_CLAIMS[dtype])
                if kill is None or {kill.expected, claims["gradient_exact"].expected} != {"upheld"}:
                    continue
                change: dict[str, Any] = {method.framework: planted(size, dtype, leaf)}
                yield from bug(
                    family, f"{name}_off_in_{dtype}", name, f"in {dtype} alone, {said} is off by {size:g} of itself",
                    "operator: relative error in one dtype", kill=(kill.name,),
                    **change,
                )  # fmt: skip


MUTANTS = tuple(_mutants())
