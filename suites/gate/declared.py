"""What a method declares about the problems on which it is judged, and whether a change makes it narrower."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Method
from gradgate.references.loading import PLUGIN

LISTS = {
    "dims": "sizes of {}",
    "options": "values of the option {}",
    "regimes": "regimes",
    "dtypes": "dtypes",
    "legal": "combinations of the dims that `valid` takes",
    "accumulates": "dtypes in which it computes narrow sums",
}
"""Facts that are lists, or dicts of lists, of what is tried; with what their items are in words."""
LIMITS = {
    "kappa": "kappa",
    "share": "the share of {}",
    "exponent": "the exponent of {}",
    "tolerance": "the tolerance of {}",
    "error": "the {} error that `approximates` declares",
}
"""Facts that are bounds: a larger one promises less."""
LEAST = {"order": "the order of convergence"}
"""Facts of which a smaller one promises less."""
SHOWN = ("origin", "reference", "inputs", "random", "by_backward", "devices", "laws")
"""Facts of which a change is only shown."""
MOST = 4096
"""Combinations of sizes up to which it is compared which of them `valid` takes."""

Facts = Mapping[str, Any]


def facts(method: Method) -> dict[str, Any]:
    """The facts of a method, in plain JSON types."""
    laws = {claim.name: claim.law for claim in method.claims if claim.law is not None}
    found: dict[str, Any] = {
        "origin": registry.origin(method.family) or method.implementation,
        "dtypes": list(method.dtypes),
        "kappa": method.kappa,
        "laws": {name: json.dumps(dataclasses.asdict(law), sort_keys=True) for name, law in laws.items()},
        "share": {name: law.share for name, law in laws.items() if hasattr(law, "share")},
        "exponent": {name: law.exponent for name, law in laws.items() if hasattr(law, "exponent")},
        "tolerance": {
            name: law.within.tolerance
            for name, law in laws.items()
            if hasattr(law, "within") and law.within.tolerance is not None
        },
    }
    pair = registry.load(method.implementation) if registry.origin(method.family) else None
    return found | of_pair(pair) if hasattr(pair, "found_at") else found


def of_pair(pair: Any) -> dict[str, Any]:
    """The facts that a pair declares besides those of every method, in plain JSON types."""
    return {
        "dims": {name: list(sizes) for name, sizes in pair.dims.items()},
        "options": {name: _labels(values) for name, values in pair.options.items()},
        "regimes": list(pair.regimes),
        "legal": _legal(pair),
        "inputs": {path: repr(draw) for path, draw in pair.leaves.items()},
        "random": pair.random,
        "by_backward": pair.by_backward,
        "devices": list(pair.devices),
        "reference": _named(pair.reference),
        "accumulates": [pair.accumulates] if pair.accumulates else [],
        **_approximation(pair.approximates),
    }


def narrower(before: Facts, after: Facts) -> Iterator[tuple[str, str]]:
    """What the base tries or promises and the head does not: (the fact's name, a sentence)."""
    for fact, words in LISTS.items():
        old, new = _by_name(before.get(fact)), _by_name(after.get(fact))
        for name, items in old.items():
            if fact == "legal":  # sizes that are gone are reported as such
                tried = {dim: set(sizes) for dim, sizes in after.get("dims", {}).items()}
                items = [
                    one for one in items if all(size in tried.get(dim, ()) for dim, size in json.loads(one).items())
                ]
            gone = [item for item in items if item not in new.get(name, [])]
            if gone:
                more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
                yield fact, f"fewer {words.format(name)}: without {', '.join(map(str, gone[:5]))}{more}"
    for fact, words in (LIMITS | LEAST).items():
        old, new = _by_name(before.get(fact)), _by_name(after.get(fact))
        for name in sorted(old.keys() & new.keys()):
            if new[name] < old[name] if fact in LEAST else new[name] > old[name]:
                yield fact, f"{words.format(name)} is {new[name]:g}, and was {old[name]:g}"


def otherwise(before: Facts, after: Facts) -> Iterator[tuple[str, str]]:
    """What is declared otherwise without being narrower in a way that can be decided: (the fact's name, a sentence)."""
    for fact in SHOWN:
        old, new = _by_name(before.get(fact)), _by_name(after.get(fact))
        for name in [name for name in old if old[name] != new.get(name, old[name])]:
            what = f"{fact} {name}".strip()
            yield fact, f"{what} was {old[name]}, and is {new[name]}"


def _by_name(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {} if value is None else {"": value}


def _approximation(declared: Any) -> dict[str, Any]:
    """The error, or the order of convergence, that a pair declares. One that declares neither has no error."""
    if hasattr(declared, "order"):
        return {"order": declared.order}
    return {"error": {name: getattr(declared, name, 0.0) for name in ("relative", "absolute")}}


def _named(function: Any) -> str:
    """A function by its name, or by its module and name. Of a file, the name is the same in both trees."""
    if function is None or isinstance(function, str):
        return function or "none"
    module = str(getattr(function, "__module__", ""))
    if module.startswith(PLUGIN):
        module = module.removeprefix(PLUGIN).rpartition("_")[0] + ".py"
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _labels(values: Any) -> list[str]:
    from gradgate.suites.pairs.functions import label

    return ["computed from the dims"] if callable(values) else [str(label(value)) for value in values]


def _legal(pair: Any) -> list[str]:
    """The combinations of sizes that make sense together, as JSON; [] if there are more than `MOST` combinations."""
    if math.prod(len(sizes) for sizes in pair.dims.values()) > MOST:
        return []
    every = (dict(zip(pair.dims, sizes, strict=True)) for sizes in itertools.product(*pair.dims.values()))
    return [json.dumps(one) for one in every if pair.valid is None or pair.valid(**one)]
