"""Names of a module that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lookup(module: str, called: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module.

    Args:
        module: its ``__name__``, under which a name is kept once it is imported.
        called: what users call the module, for the error.
        places: name -> the module that defines it.
    """

    def imported(name: str) -> Any:
        if name not in places:
            known = ", ".join(sorted(places))
            raise AttributeError(f"module {called!r} has no attribute {name!r}; it has {known}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return imported
