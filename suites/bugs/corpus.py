"""All mutants by name.

Each is also an attribute of this module, so that it can be judged like any plugged-in method:

``gradgate verify gradgate.suites.bugs.corpus:state_space.torch.gate_sign --family state_space --framework torch``
"""

from __future__ import annotations

import collections
import functools
import importlib
import importlib.util
import itertools
import pkgutil
from collections.abc import Mapping
from typing import Any

import gradgate.suites.bugs
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, Family
from gradgate.suites.bugs import every_method, generic
from gradgate.suites.bugs.facts import facts
from gradgate.suites.bugs.mutant import Mutant


@functools.cache
def _written() -> tuple[Mutant, ...]:
    """The mutants of all tables in this folder: bugs of one method, made by changing its source.

    The mutants of public entry points (`entries`) are not included: they are pairs, which have no class.
    """
    names = [info.name for info in pkgutil.iter_modules(gradgate.suites.bugs.__path__) if not info.ispkg]
    names = [name for name in names if name != "corpus" and not name.startswith("entries")]
    tables = [importlib.import_module(f"gradgate.suites.bugs.{name}") for name in names]
    return tuple(mutant for table in tables for mutant in getattr(table, "MUTANTS", ()))


def _own(family: Family) -> tuple[Mutant, ...]:
    """The MUTANTS of the module ``bugs`` next to the problem of a class, if there is one."""
    package = registry.package(family.name)
    name = f"{package}.bugs"
    if not package or importlib.util.find_spec(name) is None:
        return ()
    return tuple(importlib.import_module(name).MUTANTS)


def _classes() -> tuple[tuple[str, str], ...]:
    """Names and origins of the classes that a paper or an author declares, without pairs and users' models."""
    return tuple((f.name, f.origin) for f in registry.families().values() if isinstance(f.spec, str))


def corpus() -> Mapping[str, Mutant]:
    """Name -> mutant, for every class that is known at this moment; no framework is imported.

    Cost: about a second for the first call, most of it for the tables.
    """
    return _corpus(_classes())


@functools.cache
def _corpus(classes: tuple[tuple[str, str], ...]) -> Mapping[str, Mutant]:
    mutants = list(_written())
    for name, _ in classes:
        family = registry.family(name)
        mutants += [*_own(family), *generic.mutants(family), *every_method.mutants(family)]
    found = {mutant.name: mutant for mutant in mutants}
    twice = [name for name, count in collections.Counter(mutant.name for mutant in mutants).items() if count > 1]
    assert not twice, f"two mutants have one name: {twice}"
    return found


def unbroken() -> Mapping[str, Mutant]:
    """Name -> the unbroken methods from which most mutants are made: no claim may refute them."""
    return _unbroken(_classes())


@functools.cache
def _unbroken(classes: tuple[tuple[str, str], ...]) -> Mapping[str, Mutant]:
    found: dict[str, Mutant] = {}
    for family, _ in classes:
        known = facts(registry.family(family))
        for framework, method in itertools.product(FRAMEWORKS, dict.fromkeys((known.clever, known.lossy))):
            for base in (m for m in registry.family(family).methods if (m.name, m.framework) == (method, framework)):
                name = f"{family}.{framework}.unbroken_{method}"
                found[name] = Mutant(
                    name,
                    "the unbroken reference",
                    "reference",
                    family,
                    framework,
                    method,
                    ("gradient_float64", "gradient_exact"),
                    functools.partial(registry.load, base.implementation),
                )
    return found


def __getattr__(name: str) -> Any:
    if name.count(".") == 2:
        return _function(name)
    raise AttributeError(name)


@functools.lru_cache(maxsize=8)
def _function(name: str) -> Any:
    found = corpus().get(name) or unbroken().get(name)
    if found is None:
        raise AttributeError(name)
    return found.function()
