"""Compares data from a file with a type, and says in one line what is wrong: the place, the value, what is legal.

msgspec decides whether the data fit. Its message names neither the value nor the key of a dict, so `fault` looks for
the first part that does not fit and says both.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gradgate.references.errors import UsageError, nearest

T = TypeVar("T")
LONGEST = 80
"""Characters of a value that a message shows."""


def checked(value: Any, kind: type[T], where: str) -> T:
    """`value`, plain data as JSON or TOML give it, as an object of the type `kind`.

    Args:
        value: the data.
        kind: a `msgspec.Struct`; its JSON schema is published.
        where: what the message names first, such as the file.

    Raises:
        UsageError: the data do not fit the type; says where, what is there and what is legal.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise UsageError(f"{where}: {fault(value, kind)}") from None
    except RecursionError:
        raise UsageError(f"{where}: it is nested too deeply to be read") from None


def fault(value: Any, kind: Any, place: str = "") -> str:
    """The first part of `value` that does not fit `kind`, in words.

    >>> from gradgate.suites.settings import Settings
    >>> fault({"examples": "many"}, Settings)
    "examples must be a whole number from 1 to 1000000, not 'many'"
    >>> fault({"methods": [{"target": "mine.py:f"}]}, Settings)
    "the key 'methods[0].family' is missing; legal: a string that is not empty"
    """
    bare = _bare(kind)
    members = typing.get_args(bare) if typing.get_origin(bare) in (typing.Union, types.UnionType) else ()
    form = type(value)
    inside = [member for member in members if _container(member) is form]
    if inside:
        return fault(value, inside[0], place)
    if _container(bare) is not form or members:
        return _wrong(value, kind, place)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _of_fields(value, bare, place)
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    part = typing.get_args(bare)[-1 if isinstance(value, dict) else 0]
    for name, item in parts:
        if not _fits(item, part):
            return fault(item, part, f"{place}.{name}" if isinstance(value, dict) else f"{place}[{name}]")
    return _wrong(value, kind, place)


def legal(kind: Any) -> str:
    """What a type allows, in words: ``a whole number of at least 1``, ``a list of strings``, ``upheld or refuted``."""
    return _words(inspect.type_info(kind))


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _of_fields(value: dict[str, Any], kind: type[msgspec.Struct], place: str) -> str:
    fields, dot = msgspec.structs.fields(kind), f"{place}." if place else ""
    names = [field.encode_name for field in fields]
    for key in value:
        if kind.__struct_config__.forbid_unknown_fields and key not in names:
            near = nearest(key, names)
            hint = f"did you mean {near!r}? " if near else ""
            return f"{place + ': ' if place else ''}unknown key {key!r}; {hint}legal: {', '.join(names)}"
    for field in fields:
        if field.encode_name in value and not _fits(value[field.encode_name], field.type):
            return fault(value[field.encode_name], field.type, dot + field.encode_name)
    for field in fields:
        if field.required and field.encode_name not in value:
            return f"the key {dot + field.encode_name!r} is missing; legal: {legal(field.type)}"
    try:  # each field fits alone, so the type's own rule about several fields is broken
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return f"{place + ': ' if place else ''}{str(error).rpartition(' - at ')[0] or error}"
    raise AssertionError(f"{place} fits")


def _wrong(value: Any, kind: Any, place: str) -> str:
    return f"{place or 'it'} must be {legal(kind)}, not {_shown(value)}"


def _shown(value: Any) -> str:
    try:
        text = "null" if value is None else repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits, or a deep tree
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind


def _container(kind: Any) -> type | None:
    """The type of plain data that holds an object of this type; None if the type has no parts."""
    bare = _bare(kind)
    origin = typing.get_origin(bare) or bare
    if not isinstance(origin, type):
        return None
    if issubclass(origin, msgspec.Struct) or origin is dict:
        return dict
    return list if origin in (list, tuple) else None


_NOUNS: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.DateType: "date",
    inspect.StructType: "table of names and values",
    inspect.DictType: "table of names and values",
    inspect.ListType: "list",
    inspect.VarTupleType: "list",
    inspect.TupleType: "list",
    inspect.AnyType: "value",
}


def _words(found: Any, several: bool = False) -> str:
    if isinstance(found, inspect.Metadata):
        said = (found.extra or {}).get("legal")
        return str(said) if said else _words(found.type, several)
    if isinstance(found, inspect.BoolType):
        return "true or false"
    if isinstance(found, inspect.NoneType):
        return "null"
    if isinstance(found, inspect.LiteralType):
        return _either([repr(each) if each == "" else str(each) for each in found.values])
    if isinstance(found, inspect.UnionType):
        return _either([_words(each) for each in found.types])
    noun = _NOUNS[type(found)]
    first, of, rest = noun.partition(" of ")
    text = f"{first}s{of}{rest}" if several else f"a {noun}"
    if isinstance(found, inspect.ListType | inspect.VarTupleType):
        items = _words(found.item_type, several=True)
        text += f" of {items}"
        if found.min_length:
            text = f"a list that is not empty, of {items}"
    if isinstance(found, inspect.IntType | inspect.FloatType):
        if found.ge is not None and found.le is not None:
            text += f" from {found.ge} to {found.le}"
        elif found.ge is not None:
            text += f" of at least {found.ge}"
    if isinstance(found, inspect.StrType) and found.min_length:
        text += " that is not empty" if not several else " that are not empty"
    return text


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
