"""All mutants by name.

Each is also an attribute of this module, so that it can be judged like any plugged-in method:

``gradgate verify gradgate.suites.bugs.corpus:state_space.torch.gate_sign --family state_space --framework torch``
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Mapping
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.mutant import Mutant

TABLES = (
    "state_space", "performer", "invertible", "chain", "bilevel", "generic", "casts", "tiles", "waste", "dead",
    "recomputed", "pairs", "every_method",
)  # fmt: skip
"""Modules of this folder with MUTANTS, imported once they are asked for: every command imports this one."""


@functools.cache
def corpus() -> Mapping[str, Mutant]:
    """Name -> mutant; no framework is imported."""
    tables = [importlib.import_module(f"gradgate.suites.bugs.{name}") for name in TABLES]
    mutants = [mutant for table in tables for mutant in table.MUTANTS]
    found = {mutant.name: mutant for mutant in mutants}
    assert len(found) == len(mutants), "two mutants have one name"
    return found


@functools.cache
def unbroken() -> Mapping[str, Mutant]:
    """Name -> the methods that save memory and that most mutants are made of, as they are: nothing may find fault."""
    from gradgate.suites.bugs import generic

    found: dict[str, Mutant] = {}
    for facts in generic.FACTS:
        for framework, method in itertools.product(FRAMEWORKS, dict.fromkeys((facts.clever, facts.lossy))):
            [base] = registry.methods(facts.family, method, framework)
            name = f"{facts.family}.{framework}.unbroken_{method}"
            found[name] = Mutant(
                name, "the reference as it is", "reference", facts.family, framework, method,
                ("gradient_float64", "gradient_exact"), functools.partial(registry.load, base.implementation),
            )  # fmt: skip
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
