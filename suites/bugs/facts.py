"""Where the generic bugs are planted in a class: what the class declares in `Trial`, completed by derived values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references import registry
from gradgate.references.backends import named_leaves
from gradgate.references.contract import Family, Method, Problem
from gradgate.references.trial import Leaf

Condition = Callable[[Any, Mapping[str, Any]], Any]
"""(problem, options) -> whether a bug is active; may be a traced value."""
TARGETS = ("targets", "target", "labels", "y")
"""Possible names of the data that a loss compares with, if a class declares no `target`."""


@dataclass(frozen=True)
class Facts:
    """`Trial`, completed. What does not occur in the class is "", () or None, and bugs that need it are left out.

    Attributes:
        large: whether a problem has a large number in it.
        ragged: whether a size of the problem is not divided evenly, for example by an option of the clever method.
        shapes: the shapes of the leaves of all problems of the class.
        stacked: whether gradients are judged layer by layer.
        upstream: whether the factor of the loss is in the data.
    """

    family: str
    plain: str
    clever: str
    lossy: str
    leaves: tuple[str, ...]
    turns: tuple[Leaf, ...]
    coarse: Mapping[str, float]
    target: str
    state: str
    single: tuple[str, ...]
    large: Condition | None
    ragged: Condition | None
    shapes: frozenset[tuple[int, ...]]
    stacked: bool
    upstream: bool


def facts(family: Family) -> Facts:
    """The facts of a class.

    Cost: builds a problem of every shape in NumPy, some milliseconds each.
    """
    cls, trial = registry.spec_class(family.name), family.trial
    problems = [cls(**shape).build("numpy") for shape in family.shapes]
    plain = trial.plain or _plain(family.methods)
    exact = [m for m in family.methods if _exact(m) and m.name != plain] or list(family.methods)
    able = [method for method in exact if method.options] or exact
    params = [named_leaves(problem.params) for problem in problems]
    data = problems[0].data
    leaves = trial.leaves or tuple(name for name in params[0] if all(name in other for other in params))
    target = trial.target or next((name for name in TARGETS if name in data), "")
    inputs = [name for name in data if name not in (target, "upstream")] or list(data)
    sizes = _sizes(family)
    return Facts(
        family.name,
        plain,
        trial.clever or able[-1].name,
        trial.lossy or max(exact, key=lambda m: m.kappa).name,
        leaves or ("",),
        trial.turns or leaves or ("",),
        trial.coarse,
        target,
        trial.state or next(iter(inputs), ""),
        trial.single or tuple(name for name, found in sizes.items() if 1 in found)[:1],
        _large(*(trial.large or ("params.", _usual(problems)))),
        _ragged(*trial.ragged) if trial.ragged else _halves(sizes),
        frozenset(tuple(leaf.shape) for found in params for leaf in found.values()),
        any(p.stacked or (isinstance(p.params, dict) and isinstance(p.params.get("layers"), list)) for p in problems),
        "upstream" in data,
    )


def _plain(methods: Sequence[Method]) -> str:
    """The method with the claims about the oracles; in a class without one, the first method is taken as backprop."""
    guards = [m.name for m in methods if any(claim.check == "taylor" for claim in m.claims)]
    return (guards or [m.name for m in methods])[0]


def _exact(method: Method) -> bool:
    return any(claim.name == "gradient_exact" and claim.expected == "upheld" for claim in method.claims)


def _sizes(family: Family) -> dict[str, set[int]]:
    """Spec field -> its sizes in the shapes, for fields with more than one size; fields with a letter come first."""
    defaults = dataclasses.asdict(registry.spec_class(family.name)())
    shapes = [{**defaults, **shape} for shape in family.shapes]
    named = dict.fromkeys([*family.letters.values(), *(name for shape in family.shapes for name in shape)])
    found = {name: {shape[name] for shape in shapes} for name in named}
    return {
        name: sizes
        for name, sizes in found.items()
        if len(sizes) > 1 and all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    }


def _usual(problems: Sequence[Problem]) -> float:
    """A little less than the largest parameter of the median problem, so that at least this problem is above it."""
    tops = sorted(max(float(leaf.max()) for leaf in named_leaves(p.params).values()) for p in problems)
    middle = tops[(len(tops) - 1) // 2]
    return middle - 0.1 * abs(middle)


def _large(place: str, threshold: float) -> Condition:
    """Whether a number is above a threshold, in data of that name or in parameters whose path contains it."""
    tree, _, path = place.partition(".")

    def condition(problem: Any, options: Mapping[str, Any]) -> Any:
        if tree == "data":
            leaf = problem.data[path]
            return (problem.xp.max(leaf) if leaf.shape else leaf) > threshold
        tops = [problem.xp.max(leaf) for name, leaf in named_leaves(problem.params).items() if path in name]
        return problem.xp.max(problem.xp.stack(tops)) > threshold

    return condition


def _ragged(field: str, divisor: str | int) -> Condition:
    """Whether a size is not divided by an option or by a number; for a number, the size 1 does not count."""

    def condition(problem: Any, options: Mapping[str, Any]) -> bool:
        size = getattr(problem.spec, field)
        return bool(size % options[divisor]) if isinstance(divisor, str) else size > 1 and bool(size % divisor)

    return condition


def _halves(sizes: Mapping[str, set[int]]) -> Condition | None:
    """Whether a size is odd, for the first field that has odd sizes above 1."""
    for name, found in sizes.items():
        if any(size > 1 and math.fmod(size, 2) for size in found):
            return _ragged(name, 2)
    return None
