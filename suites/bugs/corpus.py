"""All mutants by name. Each is also an attribute of this module, so that it can be judged like any plugged-in method:

``gradgate verify gradgate.suites.bugs.corpus:state_space.torch.gate_sign --family state_space --framework torch``
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gradgate.suites.bugs import chain, generic, invertible, performer, state_space
from gradgate.suites.bugs.mutant import Mutant

TABLES = (state_space.MUTANTS, performer.MUTANTS, invertible.MUTANTS, chain.MUTANTS, generic.MUTANTS)


@functools.cache
def corpus() -> Mapping[str, Mutant]:
    """Name -> mutant; no framework is imported."""
    mutants = [mutant for table in TABLES for mutant in table]
    found = {mutant.name: mutant for mutant in mutants}
    assert len(found) == len(mutants), "two mutants have one name"
    return found


def __getattr__(name: str) -> Any:
    if name.count(".") == 2 and name in corpus():
        return corpus()[name].function()
    raise AttributeError(name)
