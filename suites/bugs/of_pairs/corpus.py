"""All pairs of this folder and all their mutants, by name.

Each mutant is also an attribute of this module, so that ``gradgate verify`` can judge it:
``gradgate.suites.bugs.of_pairs.corpus:torch.gated.gate_none``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from gradgate.references.contract import installed
from gradgate.suites.bugs.of_pairs import bugs_jax, bugs_torch, one_side
from gradgate.suites.bugs.of_pairs.mutant import PACKAGE, PairMutant
from gradgate.suites.pairs.pair import Pair

MODULES = ("torch_norms", "torch_sequences", "torch_tables", "jax_norms", "jax_sequences", "jax_tables")
"""Modules of pairs; each name begins with the framework."""
CHOOSING = ("torch_choices", "jax_choices")
"""Modules of further pairs, for mutants behind decisions. Some of them hide a NaN, because it is not above zero."""
MUTANTS: tuple[PairMutant, ...] = (*bugs_torch.MUTANTS, *bugs_jax.MUTANTS)


@functools.cache
def corpus() -> Mapping[str, PairMutant]:
    """Name -> mutant; no framework is imported."""
    found = {mutant.name: mutant for mutant in MUTANTS}
    assert len(found) == len(MUTANTS), "two mutants have one name"
    return found


@functools.cache
def pairs(modules: tuple[str, ...] = MODULES) -> tuple[str, ...]:
    """``module:name`` of every pair of these modules whose framework is installed."""
    there = [module for module in modules if installed(module.partition("_")[0])]
    tables = {module: vars(importlib.import_module(f"{PACKAGE}.{module}")) for module in there}
    return tuple(f"{module}:{name}" for module in there for name, found in tables[module].items() if _is(found))


def _is(found: Any) -> bool:
    return isinstance(found, Pair)


def __getattr__(name: str) -> Pair:
    if name in corpus() or name in one_side.mutants():
        return _broken(name)
    raise AttributeError(name)


@functools.lru_cache(maxsize=8)
def _broken(name: str) -> Pair:
    return (corpus().get(name) or one_side.mutants()[name]).broken()
