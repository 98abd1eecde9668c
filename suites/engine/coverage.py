"""What was tried: how many of the pairs of (field, value) that the declared values can give occur in judged problems.

A field is a structural field of the Spec or an option of the method. A text of several words counts once per word, such
as ``unit=affine``. A size counts as 1, as more, or as longer than a tile (`LONG`); in a pair, where the user lists the
sizes, every size counts. Drawn numbers, the seed, the upstream factor and the dtype do not count as fields. Neither
does a field that always has the same value.

Two values of different fields are possible together if some listed shape has both, or if a listed shape that has one of
them is still a legal problem after the other field has taken the other value. So a class whose long shapes are all of
one structure has pairs that are never tried.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Spec, UsageError
from gradgate.references.restriction import fits
from gradgate.suites.engine.strategies import AFFORDABLE, LONG, shapes

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
        enough: if pairs are missing, the least ``--examples`` with which every shape is tried; 0 if every one was.
    """

    tried: int
    possible: int
    missing: tuple[str, ...] = ()
    enough: int = 0

    def sentence(self) -> str:
        """In words.

        >>> Coverage(412, 412).sentence()
        '412 of 412 pairs of (field, value) tried'
        >>> Coverage(3, 6, ("length=7", "head=linear", "layers=2"), 60).sentence()
        '3 of 6 pairs of (field, value) tried; never: length=7, head=linear, … (+1); --examples 60 tries every shape'
        """
        if not self.possible:
            return "no field varies: there is one shape, and no option"
        said = f"{self.tried} of {self.possible} pairs of (field, value) tried"
        if not self.missing:
            return said
        more = f", … (+{len(self.missing) - SHOWN})" if len(self.missing) > SHOWN else ""
        what = f"; --examples {self.enough} tries every shape" if self.enough else ""
        return f"{said}; never: {', '.join(self.missing[:SHOWN])}{more}{what}"


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
    possible.update(dict.fromkeys(_together([spec for spec, _ in offered], varied, where or {}, set(possible))))
    tried: set[Pair] = set()
    for static, picked in {(spec.static(), _shown(options)) for spec, options in judged}:
        chosen = {name: [value] for name, value in picked}
        tried.update(_pairs(_items(static), chosen, varied))
    missing = tuple(" with ".join(map(_word, pair)) for pair in possible if pair not in tried)
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


def _together(
    specs: Sequence[Spec], varied: Mapping[str, int], where: Mapping[str, Any], known: set[Pair]
) -> list[Pair]:
    """The pairs of values of two fields that no shape has, and that a shape has after one field has changed.

    In a pair's listed sizes, the shapes have all pairs that are legal already.
    """
    found: dict[Pair, None] = {}
    holders: dict[Item, list[Spec]] = {}
    for spec in specs:
        for item in _items(spec):
            if item[0] in varied and not spec.listed:
                holders.setdefault(item, []).append(spec)
    for one, two in itertools.combinations(sorted(holders, key=lambda item: varied[item[0]]), 2):
        if one[0] == two[0] or (one, two) in known:
            continue
        swaps = ((spec, two[0], other) for spec in holders[one] for other in holders[two])
        back = ((spec, one[0], other) for spec in holders[two] for other in holders[one])
        if any(_legal(spec, name, other, where) for spec, name, other in itertools.chain(swaps, back)):
            found[one, two] = None
    return list(found)


def _legal(spec: Spec, name: str, other: Spec, where: Mapping[str, Any]) -> bool:
    """Whether a Spec stays a legal problem, which sixty digits can afford, when a field is taken from another Spec."""
    try:
        changed = dataclasses.replace(spec, **{name: getattr(other, name)})
    except UsageError:
        return False
    return fits(changed, where) and changed.work() <= AFFORDABLE


def _word(item: Item) -> str:
    name, value = item
    return name + value if value.startswith(">") else f"{name}={value}"


def _fields(spec: Spec) -> dict[str, str]:
    """The structural fields, in text."""
    names = [f.name for f in dataclasses.fields(spec) if not f.metadata.get("value") and f.name != "dtype"]
    return {name: _text(getattr(spec, name), spec.listed) for name in names}


def _text(value: Any, listed: bool) -> str:
    """A value in text, or the range of sizes or shares in which it is.

    >>> _text(1, False), _text(2, False), _text(133, False), _text(0.25, False), _text("affine", False)
    ('1', '>1', '>128', '>0', 'affine')
    >>> _text(133, True)
    '133'
    """
    if listed or isinstance(value, (str, bool)):
        return str(value)
    if isinstance(value, float):
        return ">0" if value > 0 else "0"
    return f">{LONG}" if value > LONG else ">1" if value > 1 else str(value)


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
