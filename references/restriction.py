"""Restricting a method to some of a family's problems: what is legal, and how many shapes are left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.references.contract import Family, Spec, UsageError, unknown


def fits(spec: Spec, where: Mapping[str, Any]) -> bool:
    """Whether the fields of a Spec have these values; a tuple lists alternatives."""
    return all(getattr(spec, name) in _alternatives(wanted) for name, wanted in where.items())


def check_fields(cls: type[Spec], where: Mapping[str, Any], what: str) -> None:
    """Check that a restriction names fields of a Spec.

    Raises:
        UsageError: a name is no field; the message lists the fields.
    """
    fields = [f.name for f in dataclasses.fields(cls)]
    for name in where:
        if name not in fields:
            raise unknown(f"Spec field in where of {what}", str(name), fields)


def check_where(family: Family, cls: type[Spec], where: Mapping[str, Any]) -> None:
    """Check a plug-in's declaration of the problems that it is for.

    Args:
        cls: the family's Spec class.
        where: Spec field -> value, or a tuple of alternatives.

    Raises:
        UsageError: a name is no field, or a field that is drawn freely; or no shape has the value, or all the values
            together. The message says what is legal.
    """
    fields = [f.name for f in dataclasses.fields(cls) if not f.metadata.get("value") and f.name != "dtype"]
    defaults = dataclasses.asdict(cls())
    for name, wanted in where.items():
        if name not in fields:
            raise unknown(f"Spec field in where of {family.name}", str(name), fields)
        there = list(dict.fromkeys(shape.get(name, defaults[name]) for shape in family.shapes))
        for value in _alternatives(wanted):
            if isinstance(value, str) and value not in there:
                raise unknown(f"{name} in where of {family.name}", value, map(str, there))
            if value not in there:
                legal = ", ".join(map(repr, sorted(there)))
                raise UsageError(f"where: no problem of {family.name} has {name}={value!r}; legal: {legal}")
    if not left(cls, family.shapes, where):
        raise UsageError(f"where: no problem of {family.name} has {words(where)} together; restrict fewer fields")


def left(cls: type[Spec], shapes: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> int:
    """How many of these shapes satisfy a restriction."""
    return sum(fits(cls(**shape), where) for shape in shapes)


def words(where: Mapping[str, Any]) -> str:
    """A restriction in words.

    >>> words({"layers": 2, "structure": ("scalar", "diagonal")})
    'layers=2 and structure=scalar or diagonal'
    """
    return " and ".join(f"{name}={' or '.join(map(str, _alternatives(wanted)))}" for name, wanted in where.items())


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    return tuple(wanted) if isinstance(wanted, (tuple, list, set, frozenset)) else (wanted,)
