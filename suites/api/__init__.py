"""gradgate checks gradients: whether the gradient is right, and whether the function keeps its promises.

``check`` judges two functions at given arguments, in one line of any test. A `Pair` declares a function, the plain one
that it must agree with, and how inputs are drawn; ``parametrize`` makes pytest tests of it, and ``gradgate verify
file.py:pair`` judges it in separate processes. ``module_pair`` does the same for modules. ``watch`` judges every
handwritten derivative that a block of code calls. ``Court`` judges candidates of strangers, which it never imports.
Every name here is documented
and stable. Importing this module imports neither JAX nor PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradgate._lazy import lookup

if TYPE_CHECKING:
    from gradgate.references.errors import FloatsOnly, NotComposable, UsageError
    from gradgate.suites.court.court import Court
    from gradgate.suites.engine.pytest_tests import parametrize
    from gradgate.suites.engine.quick import check
    from gradgate.suites.pairs.approximate import order, within
    from gradgate.suites.pairs.draws import (
        Draw,
        between,
        constant,
        distinct,
        integers,
        key,
        mask,
        normal,
        positive,
        simplex,
        spd,
        uniform,
    )
    from gradgate.suites.pairs.laws import at_most, grows
    from gradgate.suites.pairs.modules import module_pair
    from gradgate.suites.pairs.pair import Pair
    from gradgate.suites.watching.block import watch

_PLACES = {
    "check": "gradgate.suites.engine.quick",
    "Pair": "gradgate.suites.pairs.pair",
    "module_pair": "gradgate.suites.pairs.modules",
    "parametrize": "gradgate.suites.engine.pytest_tests",
    "Draw": "gradgate.suites.pairs.draws",
    "normal": "gradgate.suites.pairs.draws",
    "uniform": "gradgate.suites.pairs.draws",
    "between": "gradgate.suites.pairs.draws",
    "distinct": "gradgate.suites.pairs.draws",
    "positive": "gradgate.suites.pairs.draws",
    "simplex": "gradgate.suites.pairs.draws",
    "spd": "gradgate.suites.pairs.draws",
    "integers": "gradgate.suites.pairs.draws",
    "mask": "gradgate.suites.pairs.draws",
    "constant": "gradgate.suites.pairs.draws",
    "key": "gradgate.suites.pairs.draws",
    "grows": "gradgate.suites.pairs.laws",
    "at_most": "gradgate.suites.pairs.laws",
    "within": "gradgate.suites.pairs.approximate",
    "order": "gradgate.suites.pairs.approximate",
    "watch": "gradgate.suites.watching.block",
    "Court": "gradgate.suites.court.court",
    "UsageError": "gradgate.references.errors",
    "FloatsOnly": "gradgate.references.errors",
    "NotComposable": "gradgate.references.errors",
}
"""Name -> the module that defines it. That module is imported when the name is first used."""

__all__ = [
    "Court",
    "Draw",
    "FloatsOnly",
    "NotComposable",
    "Pair",
    "UsageError",
    "__version__",
    "at_most",
    "between",
    "check",
    "constant",
    "distinct",
    "grows",
    "integers",
    "key",
    "mask",
    "module_pair",
    "normal",
    "order",
    "parametrize",
    "positive",
    "simplex",
    "spd",
    "uniform",
    "watch",
    "within",
]


_found = lookup(__name__, "gradgate", _PLACES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("gradgate")
    return _found(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
