"""What is known about functions, and about the values of their options, without a call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from gradgate.references.contract import FRAMEWORKS, UsageError


def label(value: Any) -> Any:
    """What represents an option's value in a Spec: the value itself, or the name of a function or class."""
    return (
        value
        if value is None or isinstance(value, (str, int, float, bool))
        else getattr(value, "__name__", repr(value))
    )


def value_of(values: Sequence[Any], wanted: Any) -> Any:
    """The option's value that has this label."""
    return next(value for value in values if type(label(value)) is type(wanted) and label(value) == wanted)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes a keyword."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind is p.VAR_KEYWORD or (p.name == name and p.kind is not p.POSITIONAL_ONLY) for p in parameters)


def forward_of(framework: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass of a function as a plain function, whose derivative the function's own must be.

    Raises:
        UsageError: the framework is not JAX.
    """
    if framework != "jax":
        raise UsageError("reference=None is for functions of JAX; give a plain function, or framework='jax'")
    from gradgate.suites.pairs import forward_jax

    return forward_jax.forward_of(function)


def frameworks(function: Any) -> list[str]:
    """The framework that a function belongs to, or else the frameworks that the function's module has imported."""
    plain = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    own = str(getattr(plain, "__module__", "") or "").partition(".")[0]
    if own in ("jax", "torch", "jaxlib"):
        return [own.replace("jaxlib", "jax")]
    names = {
        getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
        for value in getattr(plain, "__globals__", vars(inspect.getmodule(type(plain)))).values()
    }
    roots = {str(name).partition(".")[0] for name in names if name}
    return [framework for framework in FRAMEWORKS if framework in roots]
