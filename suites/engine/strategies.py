"""Hypothesis strategies of Specs: few shapes, many values.

Shapes come from the family's small vocabulary, so compiled programs are reused and shrinking stays quick; a failing
example shrinks towards the vocabulary's first entries, the smallest. Values are drawn freely.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Spec, UsageError
from gradgate.references.restriction import fits
from gradgate.suites.engine import pairwise

DRAWN = 3
"""Least number of cells of a shape."""
LONG = 128
"""The largest usual tile. A shape is long if one of its sizes is larger. Only there do mistakes show in the second tile
and in an incomplete last tile. A long shape also costs the most."""
LONG_DRAWN = 1
"""Least number of cells of a long shape."""
AFFORDABLE = 2e6
"""Most multiplications of a loss whose formula is judged in sixty digits, which take a second or two. A shape with more
has no cells. No shape of a paper's class has more."""
LONG_SHARE = 2
"""How many times as often an ordinary shape is drawn as a long one."""
EACH, EACH_LISTED = 30, 10
"""Examples for each shape beyond the few of `covering`, in a class of problems and in a pair. A class is judged on all
of its shapes in sixty digits, by default, and its programs are large; the combinations of a pair are the user's own."""
UPSTREAM = (1.0, -0.75, 1.5)
"""Upstream cotangents of a shape's cells, in turn."""
STRESSED = 0.25
"""Share of the cells with random values in which the values of a stress problem replace them."""
GRID = 240
"""Steps between the ends of a value's range; a drawn value is a step, so that it shrinks to a plain number."""


def specs(
    family: Family, where: Mapping[str, Any] | None = None, chosen: Sequence[Mapping[str, Any]] | None = None
) -> st.SearchStrategy[Spec]:
    """Legal float64 Specs of a family.

    Args:
        family: declares the shapes and the ranges of values.
        where: Spec fields to which the shapes are restricted; a tuple lists alternatives.
        chosen: the shapes to draw; a long one is drawn half as often as another. None: the shapes of `covering`.

    Raises:
        UsageError: no shape of the vocabulary satisfies `where`.
    """
    few = covering(family, where) if chosen is None else chosen
    return of_shapes(registry.spec_class(family.name), family.values, few)


def of_shapes(
    cls: type[Spec], values: Mapping[str, tuple[float, float]], few: Sequence[Mapping[str, Any]]
) -> st.SearchStrategy[Spec]:
    """`specs` of a class of Specs, given the ranges of its values and the shapes."""
    drawn = {name: _value(getattr(cls(), name), low, high) for name, (low, high) in values.items()}
    return st.builds(
        lambda shape, drawn, seed: cls(**{**shape, **drawn, "seed": seed}),
        st.sampled_from(_often(few)),
        st.fixed_dictionaries(drawn),
        st.integers(0, 2**32 - 1),
    )


def shapes(family: Family, where: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
    """The shapes of the vocabulary that satisfy `where`, the smallest first."""
    cls = registry.spec_class(family.name)
    found = [shape for shape in family.shapes if fits(cls(**shape), where or {})]
    if not found:
        raise UsageError(f"no shape in the vocabulary of {family.name} has {dict(where or {})}")
    return found


def covering(family: Family, where: Mapping[str, Any] | None = None, examples: int = 0) -> Sequence[Mapping[str, Any]]:
    """A few of the shapes that satisfy `where`, in order, which together have every word.

    The smallest, a medium one and the largest are among them. A number that is 0 by default and not 0 in some shape
    counts as a word, too, and so does a size above LONG. Of several long shapes, the first stands for all.

    Checks in floats draw from these shapes. Each shape is a program to compile. Floats are left to detect errors of
    rounding and casts, which do not need every combination; wrong formulas are found in sixty digits, on every shape.
    With more examples there are more shapes, and all of them from `enough` examples on.
    """
    every = list(shapes(family, where))
    few = _few(family, every)
    rest = [shape for shape in every if shape not in few]
    more = rest[: max(0, examples // _each(family) - len(few))]
    return [shape for shape in every if shape in few or shape in more]


def enough(family: Family, where: Mapping[str, Any] | None = None) -> int:
    """The least number of examples with which checks in floats draw from every shape."""
    return _each(family) * len(shapes(family, where))


def _each(family: Family) -> int:
    return EACH_LISTED if registry.spec_class(family.name).listed else EACH


def _few(family: Family, shapes: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    long = [shape for shape in shapes if is_long(shape)]
    every = [shape for shape in shapes if shape not in long[1:]]
    defaults = dataclasses.asdict(registry.spec_class(family.name)())
    words = [_words(defaults, {**defaults, **shape}) for shape in every]
    chosen = {0, len(every) // 2, len(every) - 1}
    seen = set().union(*(words[i] for i in chosen))
    while True:
        best = max(range(len(every)), key=lambda i: (len(words[i] - seen), i))
        if not words[best] - seen:
            return [every[i] for i in sorted(chosen)]
        chosen.add(best)
        seen |= words[best]


def _words(defaults: Mapping[str, Any], fields: Mapping[str, Any]) -> set[tuple[str, Any]]:
    """The words in a Spec's fields, the numbers that are 0 by default but not here, and the sizes that are long."""
    texts = {(name, word) for name, text in fields.items() if isinstance(text, str) for word in text.split()}
    switches = {name for name, value in defaults.items() if value == 0 and name != "seed"}
    return texts | {(name, True) for name in switches if fields[name]} | {(name, LONG) for name in _long(fields)}


def _long(fields: Mapping[str, Any]) -> set[str]:
    return {name for name, size in fields.items() if isinstance(size, int) and size > LONG and name != "seed"}


def shares(family: Family, few: Sequence[Mapping[str, Any]], problems: int) -> dict[Spec, int]:
    """The Spec of each shape with default values -> how many of the `problems` it gets; a long shape gets half.

    A leaf that occurs on one shape only is judged on these problems alone, so no shape is left to chance.
    """
    cls = registry.spec_class(family.name)
    often = [cls(**shape).static() for shape in _often(few)]
    found = dict.fromkeys(often, 0)
    for i in range(max(problems, 0)):
        found[often[i % len(often)]] += 1
    return found


def _often(few: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each shape as often as it counts when shapes are drawn."""
    return [shape for shape in few for _ in range(1 if is_long(shape) else LONG_SHARE)]


def is_long(shape: Mapping[str, Any]) -> bool:
    """Whether a size of a shape is above LONG."""
    return bool(_long(shape))


def edge_specs(family: Family, where: Mapping[str, Any] | None, seed: int) -> list[Spec]:
    """One Spec of every shape at default values."""
    cls = registry.spec_class(family.name)
    return [cls(**{**shape, "seed": 1000 * seed + i}) for i, shape in enumerate(shapes(family, where))]


def narrow(family: Family, where: Mapping[str, Any] | None = None, examples: int = 0) -> Sequence[Mapping[str, Any]]:
    """For bfloat16: of the shapes of `covering`, the long ones and every second one of the rest, with the largest.

    Programs in bfloat16 are the slowest to compile. Float64 and float32 detect what depends on the shape, and with more
    digits. From `enough` examples on, these are all shapes, too.
    """
    every = covering(family, where, examples)
    if examples >= enough(family, where):
        return every
    rest = [shape for shape in every if not is_long(shape)]
    few = rest[::-2]
    return [shape for shape in every if is_long(shape) or shape in few]


def covering_specs(
    family: Family, where: Mapping[str, Any] | None, seed: int, chosen: Sequence[Mapping[str, Any]] | None = None
) -> list[Spec]:
    """The `edge_specs` of the `chosen` shapes, or of those of `covering`. They are tried before anything is drawn."""
    few = covering(family, where) if chosen is None else chosen
    every = zip(shapes(family, where), edge_specs(family, where, seed), strict=True)
    return [spec for shape, spec in every if shape in few]


def pick_options(method: Method, spec: Spec, covering: str = "") -> dict[str, Any]:
    """One legal value of every option, fixed by the Spec's shape, so that each shape compiles one program.

    Different shapes take different values, so that all kinds of values occur; `covering` names an option that takes its
    largest value instead.
    """
    turn = sum(value for value in dataclasses.asdict(spec.static()).values() if isinstance(value, int))
    chosen = {}
    for option in method.options:
        legal = list(option.values(spec))
        chosen[option.name] = legal[-1] if option.name == covering else legal[turn % len(legal)]
        turn //= len(legal)  # otherwise options with equally many values would change together
    return chosen


def cells(
    family: Family, method: Method, where: Mapping[str, Any] | None, seed: int
) -> list[tuple[Spec, dict[str, Any]]]:
    """Every shape of the vocabulary with every legal value of every option, the smallest shape first.

    Every two legal values of different options also occur together, on some shape (`pairwise`); not every combination
    occurs. A shape has at least DRAWN cells. A long shape costs the most. It has at least LONG_DRAWN cells, and as many
    as it takes to try every legal value; it gets no cell for a pair of values that can occur on a smaller shape.

    The first cell of a shape has the first value of every option and default values of the Spec's fields. The other
    cells have random values, or those of a problem of the family's stress list, and an upstream cotangent that is not
    always 1. All cells of a long shape take values of the stress list in turn, because with random values the first
    tile's contribution to the last token can be zero to sixty digits. Long shapes after the first take them in reverse,
    so that the largest slices, too, meet the first values of the list, under which the past is remembered longest.
    """
    cls, found = registry.spec_class(family.name), []
    regimes = [_values_of(cls, stress) for stress in family.stress]
    some = [shape for shape in shapes(family, where) if cls(**shape).work() <= AFFORDABLE] or shapes(family, where)[:1]
    lists = [{option.name: list(option.values(cls(**shape))) for option in method.options} for shape in some]
    costly = [is_long(shape) for shape in some]
    picked = pairwise.rows(lists, [LONG_DRAWN if long else DRAWN for long in costly], costly)
    for i, shape in enumerate(some):
        for j, options in enumerate(picked[i]):
            if costly[i] and regimes:
                turn = len(picked[i]) - 1 - j if any(costly[:i]) else j
                drawn = dict(regimes[turn % len(regimes)])
            else:
                drawn = _drawn(family, np.random.default_rng([seed, i, j]), regimes) if j else {}
            drawn["upstream"] = UPSTREAM[(j + costly[i]) % len(UPSTREAM)]
            found.append((cls(**{**shape, **drawn, "seed": 1000 * seed + 100 * i + j}), options))
    return found


def _values_of(cls: type[Spec], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a Spec's fields that change only numbers."""
    return {f.name: fields[f.name] for f in dataclasses.fields(cls) if f.metadata.get("value") and f.name in fields}


def _drawn(family: Family, rng: np.random.Generator, regimes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = {name: value_at(float(rng.random()), low, high) for name, (low, high) in family.values.items()}
    return values | (regimes[int(rng.integers(len(regimes)))] if regimes and rng.random() < STRESSED else {})


def value_at(share: float, low: float, high: float) -> float:
    """The value at a share of the way from low to high; on a logarithmic scale if the range spans a decade or more."""
    drawn = low * (high / low) ** share if low > 0 and high / low >= 10 else low + (high - low) * share
    return float(f"{drawn:.4g}")


def _value(default: float, low: float, high: float) -> st.SearchStrategy[float]:
    return st.just(default) | st.integers(0, GRID).map(lambda step: value_at(step / GRID, low, high))
