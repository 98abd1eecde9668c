"""A pair as a class of problems with one method, so that one engine judges pairs and everything else."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Option, Setting, UsageError
from gradgate.suites.pairs import functions, vocabulary
from gradgate.suites.pairs.claims import contract
from gradgate.suites.pairs.declaration import check_transformations
from gradgate.suites.pairs.declared import DeclaredPair
from gradgate.suites.pairs.spec import PairSpec


def lower(pair: DeclaredPair) -> Family:
    """The pair's class of problems, and in it the pair as its one method.

    Raises:
        UsageError: the declaration is wrong in a way that only the functions show; the message says what is legal.
    """
    _ = pair.loaded  # both functions exist, and they are not the same
    check_transformations(pair)
    options = _options(pair)
    shapes = _shapes(pair)
    if not shapes:
        raise UsageError(f"{pair.called}: `valid` leaves no combination of the dims")
    claims = registry.known_to_fail(pair.called, pair.expected, contract(pair, options))
    name = _free(pair)
    method = Method(
        name,
        pair.called,
        pair.where,
        pair.target,
        claims,
        options,
        kappa=pair.kappa,
        composes=tuple(pair.composes),
        disclaims=tuple(pair.disclaims),
        dtypes=tuple(pair.dtypes),
        unmeasured=pair.unmeasured.get("temp_bytes", ""),
        left_out=dict(pair.unmeasured),
    )
    stress = tuple(shape for shape in shapes if shape.get("regime"))
    origin = pair.target or f"this process, pair {id(pair)}"
    letters = {dim: dim for dim in pair.dims}
    usual = _measured(pair, shapes)
    settings = tuple(_setting(pair, usual, options, entry) for entry in pair.measured)
    first = {**usual, **settings[0].fields} if settings else usual
    return Family(name, "", pair.spec, (method,), shapes, {}, stress, letters, first, origin=origin, settings=settings)


def _free(pair: DeclaredPair) -> str:
    """The pair's name, with a number after it if the name is taken and no target distinguishes the two."""
    if pair.target:
        return pair.called
    taken = registry.names()
    numbered = (f"{pair.called}_{n}" for n in itertools.count(2))
    return pair.called if pair.called not in taken else next(name for name in numbered if name not in taken)


def _options(pair: DeclaredPair) -> tuple[Option, ...]:
    """The options that only the function takes."""
    found = []
    for name, values in pair.options.items():
        if name in pair.shared:
            continue
        legal = "as declared" if callable(values) else ", ".join(map(repr, values))
        found.append(Option(name, legal, _values(values)))
    return tuple(found)


def _values(values: Any) -> Callable[[PairSpec], list[Any]]:
    return (lambda spec: list(values(spec.sizes))) if callable(values) else (lambda spec: list(values))


def legal(pair: DeclaredPair, choice: Mapping[str, Any]) -> bool:
    """Whether sizes make sense together, and there are numbers to draw."""
    sizes = {name: choice[name] for name in pair.dims}
    try:
        for draw in pair.leaves.values():
            draw.shape(sizes)
            if draw.kind == "integers" and draw.count(sizes) and not draw.possible(sizes):
                return False
    except UsageError:
        return False
    return pair.valid is None or bool(pair.valid(**sizes))


def _shapes(pair: DeclaredPair) -> tuple[Mapping[str, Any], ...]:
    factors: dict[str, Any] = {**pair.dims, **pair.shared, "regime": ("", *pair.regimes)}
    return tuple(vocabulary.combinations(factors, functools.partial(legal, pair), pair.numbers))


def _setting(
    pair: DeclaredPair, usual: Mapping[str, Any], options: tuple[Option, ...], entry: Mapping[str, Any]
) -> Setting:
    """One entry of `Pair.measured`: what is part of the problem, and the options that only the function takes.

    Raises:
        UsageError: its sizes make no sense together.
    """
    own = {option.name for option in options}
    fields = {
        name: functions.label(value) if name in pair.shared else value
        for name, value in entry.items()
        if name not in own
    }
    if not legal(pair, {**usual, **fields}):
        raise UsageError(
            f"{pair.called}: no inputs can be drawn at measured {dict(entry)!r}; valid= or a draw rules it out"
        )
    name = " ".join(f"{name}={value}" for name, value in entry.items())
    return Setting(name, fields, {name: value for name, value in entry.items() if name in own})


def _measured(pair: DeclaredPair, shapes: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    """The problem at which bytes are measured by default: every dim at its largest size, if that is legal.

    If it is not, or if its inputs have more than MOST_NUMBERS numbers, it is the largest combination that is tried. It
    has no regime, and is in float32 if the pair supports it.
    """
    plain = [shape for shape in shapes if not shape["regime"]] or list(shapes)
    dtype = "float32" if "float32" in pair.dtypes else "float64"
    largest = {**plain[-1], **{name: max(sizes) for name, sizes in pair.dims.items()}}
    possible = legal(pair, largest) and pair.numbers(largest) <= vocabulary.MOST_NUMBERS
    return {**(largest if possible else plain[-1]), "dtype": dtype}
