"""What a target offers, and whether the functions of its pairs can be called as declared, before anything is judged."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any

from gradgate.references import loading, registry
from gradgate.references.contract import FRAMEWORKS, Family, UsageError, installed
from gradgate.suites.judging.frames import last_frames
from gradgate.suites.judging.subject import first_line
from gradgate.suites.pairs import captured
from gradgate.suites.pairs.devices import elsewhere
from gradgate.suites.pairs.pair import Pair

NAMED = 3
"""Parameters that a message names."""
MOST_NUMBERS = 1_000_000
"""Largest number of input numbers that are drawn only to see whether a regime can be applied."""


def offered(target: str) -> tuple[Family, ...]:
    """The classes of problems that a target offers, as `registry.offered`; its pairs are checked.

    Raises:
        UsageError: its import raises, it offers nothing, or a pair is wrong at every problem; one line says which.
    """
    try:
        found = registry.offered(target)
    except UsageError as error:
        raise UsageError(f"{error}{last_frames(error, target)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(failed_import(target, error) + last_frames(error, target)) from error
    for method in (method for family in found for method in family.methods if method.implementation):
        pair = loading.load(method.implementation)
        if isinstance(pair, Pair):
            check_calls(pair)
    return found


def failed_import(target: str, error: BaseException) -> str:
    """The sentence about a target whose import raised; a framework that is missing can be installed."""
    name = getattr(error, "name", "") if isinstance(error, ModuleNotFoundError) else ""
    install = f": pip install 'gradgate[{name}]'" if name in FRAMEWORKS else ""
    return f"importing {target} raised {type(error).__name__}: {first_line(error)}{install}"


def check_calls(pair: Pair) -> None:
    """Check what would be wrong at every problem: the arguments, the options, the regimes, the reference's outputs.

    Cost: the reference's shapes are found at two problems, without numbers; the function is not called.

    Raises:
        UsageError: says what does not fit in one line.
    """
    if type(pair).all_outputs is Pair.all_outputs:  # a pair of modules calls them in its own way
        taken = list(pair.inputs)
        _check_signature(pair.called, "function", pair.loaded["function"], taken, pair.options)
        _check_signature(pair.called, "reference", pair.loaded["reference"], taken, pair.shared)
        for role in ("function", "reference"):
            _check_parameters(pair.called, role, pair.loaded[role])
    shape = next((shape for shape in pair.family.shapes if not shape.get("regime")), None)
    if shape is None or not installed(pair.where):
        return
    for regime in pair.regimes if pair.numbers(shape) <= MOST_NUMBERS else ():
        _check_regime(pair, regime, shape)
    if not elsewhere(pair):  # its worker has to be prepared first
        pair.output_shapes(pair.spec(**shape))
        pair.output_shapes(pair.spec(**_unlike(pair)))


def _unlike(pair: Pair) -> Mapping[str, Any]:
    """The smallest shape whose dims differ most, and are not 1: dims that are mixed up do not fit there."""
    plain = [shape for shape in pair.family.shapes if not shape.get("regime")]
    return max(plain, key=lambda shape: (len({shape[name] for name in pair.dims} - {1}), -pair.numbers(shape)))


def _check_parameters(called: str, role: str, function: Callable[..., Any]) -> None:
    """Check that what is called has no parameters of its own: a pair judges the gradients of its inputs alone.

    Raises:
        UsageError: it is a module with parameters or, in JAX, refers to one. In PyTorch the check `tree` sees
            that in autograd's graph.
    """
    module = captured.owner(function)
    names: list[str] = []
    if "torch" in sys.modules and isinstance(module, sys.modules["torch"].nn.Module):
        names = [name for name, leaf in module.named_parameters() if leaf.requires_grad]
    elif "flax" in sys.modules or "equinox" in sys.modules:
        from gradgate.suites.pairs.given_jax import module_of

        names = list(getattr(module_of(role, function), "leaves", ()))
    if names:
        raise UsageError(
            f"{called}: the {role} is a module with parameters, {_some(names)}, whose gradients "
            "would not be judged: declare a gradgate.module_pair"
        )
    if "flax" in sys.modules or "equinox" in sys.modules:
        from gradgate.suites.pairs.given_jax import modules_within

        names = modules_within(function)
    if names:
        raise UsageError(
            f"{called}: the {role} uses {_some(names)}, whose gradients would not be judged: make them inputs, "
            "or declare a gradgate.module_pair; if they are data, use their arrays"
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _check_regime(pair: Pair, regime: str, shape: Any) -> None:
    try:
        changed = pair.drawn(pair.spec(**{**shape, "regime": regime}))
        for path, drawn in pair.drawn(pair.spec(**shape)).items():
            if changed[path].shape != drawn.shape:
                said = f"regime {regime!r} gives {path} the shape {changed[path].shape}, not {drawn.shape} as drawn"
                raise UsageError(f"{said}: other sizes are for dims")
    except UsageError as error:
        raise UsageError(f"{pair.called}: {error}") from None
    except Exception as error:
        said = f"{pair.called}: regime {regime!r} raised {type(error).__name__}: {error}"
        hint = "; a regime gets NumPy arrays, and returns them" if isinstance(error, AttributeError) else ""
        raise UsageError(f"{said}{hint}") from error


def _check_signature(
    called: str, role: str, function: Callable[..., Any], inputs: list[str], options: Collection[str]
) -> None:
    """Check that a function can be called with these positional arguments and keywords.

    A function whose signature cannot be read, such as ``Function.apply``, is not judged. A decorator may give a
    function arguments of its own: a plain function is refused only if the decorator's signature does not fit either.

    Raises:
        UsageError: it cannot be called so.
    """
    shown = _signature(function, wrapped=True)
    tried = [shown, _signature(function, wrapped=False)] if isinstance(function, FunctionType) else [shown]
    wrong = ""
    for signature in tried:
        if signature is None:
            return
        try:
            signature.bind(*inputs, **dict.fromkeys(options))
            return
        except TypeError as error:
            wrong = wrong or str(error)
    given = ", ".join([*inputs, *(f"{name}=…" for name in options)])
    name = getattr(function, "__name__", type(function).__name__)
    raise UsageError(f"{called}: the {role} {name}{shown} cannot be called as {name}({given}), as declared: {wrong}")


def _signature(function: Callable[..., Any], *, wrapped: bool) -> inspect.Signature | None:
    forward = getattr(function, "forward", None) if not inspect.isroutine(function) else None
    try:
        return inspect.signature(forward if callable(forward) else function, follow_wrapped=wrapped)
    except (TypeError, ValueError):
        return None
