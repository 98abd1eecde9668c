"""What was tried: how many of the pairs of (field, value) that the vocabulary offers occur in the judged problems.

A field is a structural field of the Spec or an option of the method. A text of several words counts once per word, such
as ``unit=affine``. Drawn numbers, the seed, the upstream factor and the dtype do not count as fields. Neither does a
field that always has the same value.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Spec
from gradgate.suites.judging.strategies import shapes

SHOWN = 2
"""Number of untried pairs that a sentence lists."""
Item = tuple[str, str]
"""A field and one of its values, or one word of a value, as text."""
Pair = tuple[Item, ...]
"""Two items of one problem; or one item, if only one field of the vocabulary varies."""


@dataclass(frozen=True)
class Coverage:
    """How many of the possible pairs were tried.

    Attributes:
        tried: number of possible pairs that were tried.
        possible: number of pairs that the vocabulary offers.
        missing: the pairs never tried, in words, in the order of the vocabulary.
    """

    tried: int
    possible: int
    missing: tuple[str, ...] = ()

    def sentence(self) -> str:
        """In words.

        >>> Coverage(412, 412).sentence()
        '412 of 412 pairs of (field, value) tried'
        >>> Coverage(3, 6, ("chunk=8 with length=7", "head=linear", "layers=2")).sentence()
        '3 of 6 pairs of (field, value) tried; never: chunk=8 with length=7, head=linear, … (+1)'
        """
        if not self.possible:
            return "no field varies: there is one shape, and no option"
        said = f"{self.tried} of {self.possible} pairs of (field, value) tried"
        if not self.missing:
            return said
        more = f", … (+{len(self.missing) - SHOWN})" if len(self.missing) > SHOWN else ""
        return f"{said}; never: {', '.join(self.missing[:SHOWN])}{more}"


def coverage(
    family: Family,
    method: Method,
    judged: Iterable[tuple[Spec, Mapping[str, Any]]],
    where: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Coverage:
    """Which pairs were tried, of those that a claim's vocabulary offers.

    Args:
        family: has the shapes.
        method: has the options.
        judged: the problems that were judged for one claim, or for all claims of the method, each with the method's
            options. Problems outside the vocabulary, such as stress problems, count for those of their pairs that the
            vocabulary has.
        where: Spec fields to which the claim is restricted.
        fixed: the method's options that the claim fixes.

    Raises:
        UsageError: no shape of the vocabulary satisfies `where`.

    Cost: about 0.1 ms per different shape and options.
    """
    offered = _offered(family, method, where, fixed or {})
    varied = _varied(offered)
    possible: dict[Pair, None] = {}
    for spec, options in offered:
        possible.update(dict.fromkeys(_pairs(_items(spec), options, varied)))
    tried: set[Pair] = set()
    for static, picked in {(spec.static(), _shown(options)) for spec, options in judged}:
        chosen = {name: [value] for name, value in picked}
        tried.update(_pairs(_items(static), chosen, varied))
    missing = tuple(" with ".join(f"{n}={v}" for n, v in pair) for pair in possible if pair not in tried)
    return Coverage(len(possible) - len(missing), len(possible), missing)


def _offered(
    family: Family, method: Method, where: Mapping[str, Any] | None, fixed: Mapping[str, Any]
) -> list[tuple[Spec, dict[str, list[str]]]]:
    """Every shape, with option -> its legal values there, as text; a fixed option has only its fixed value."""
    cls, found = registry.spec_class(family.name), []
    for shape in shapes(family, where):
        spec = cls(**shape).static()
        legal = {option.name: option.values(spec) for option in method.options}
        legal |= {name: [value] for name, value in fixed.items()}
        found.append((spec, {name: list(map(str, values)) for name, values in legal.items()}))
    return found


def _varied(offered: Sequence[tuple[Spec, Mapping[str, Sequence[str]]]]) -> dict[str, int]:
    """Field with more than one value -> its place in the order of the report, in which options come last."""
    values: dict[str, set[str]] = {}
    for spec, _ in offered:
        for name, value in _fields(spec).items():
            values.setdefault(name, set()).add(value)
    for _, options in offered:
        for name, legal in options.items():
            values.setdefault(name, set()).update(legal)
    return {name: place for place, (name, different) in enumerate(values.items()) if len(different) > 1}


def _fields(spec: Spec) -> dict[str, str]:
    """The structural fields, in text."""
    names = [f.name for f in dataclasses.fields(spec) if not f.metadata.get("value") and f.name != "dtype"]
    return {name: str(getattr(spec, name)) for name in names}


def _items(spec: Spec) -> list[Item]:
    return [(name, word) for name, text in _fields(spec).items() for word in sorted(set(text.split()))]


def _shown(options: Mapping[str, Any]) -> tuple[Item, ...]:
    return tuple((name, str(value)) for name, value in options.items())


def _pairs(items: Sequence[Item], options: Mapping[str, Sequence[str]], varied: Mapping[str, int]) -> list[Pair]:
    """Every two items of the Spec and of one value of every option, in the order of their fields."""
    given = [item for item in items if item[0] in varied]
    legal = [(name, value) for name, values in options.items() if name in varied for value in values]
    if len(varied) < 2:
        return [(item,) for item in (*given, *legal)]
    both = itertools.combinations((*given, *legal), 2)
    among = {name for name, _ in legal}
    return [
        (one, two) if varied[one[0]] <= varied[two[0]] else (two, one)
        for one, two in both
        if one[0] != two[0] or one[0] not in among
    ]
