"""What is known about functions, and about the values of their options, without a call."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
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


def missing(function: Callable[..., Any]) -> str:
    """What a function lacks so that its call would give arrays, as the end of a sentence; "" if nothing does."""
    name = getattr(function, "__name__", type(function).__name__)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return f"is {name}, whose call runs nothing yet: a function with async or yield returns no arrays"
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch and isinstance(function, type) and issubclass(function, torch.autograd.Function):
        return f"is the class {name}: give {name}.apply"
    if jax and isinstance(function, jax.custom_vjp) and function.fwd is None:
        return f"is a custom_vjp without its rule: call {name}.defvjp(forward, backward)"
    if jax and isinstance(function, jax.custom_jvp) and not hasattr(function, "jvp"):
        return f"is a custom_jvp without its rule: call {name}.defjvps(…) or defjvp"
    return ""


def forward_of(framework: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass of a function as a plain function, whose derivative the function's own must be.

    In PyTorch it is the function, as another object: its derivative is found from its values (`exact.forward`).

    Raises:
        UsageError: the framework is not known.
    """
    if framework == "jax":
        from gradgate.suites.pairs import forward_jax

        return forward_jax.forward_of(function)
    if framework != "torch":
        raise UsageError("reference=None needs to know the framework: give framework='jax' or 'torch'")

    @functools.wraps(function, updated=())
    def forward(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return forward


def frameworks(function: Any) -> list[str]:
    """The framework that a function belongs to, or else those that its module has imported.

    If that module has imported neither, it is those of the modules that define what it uses, such as the class in
    ``lambda x: Square.apply(x)``.
    """
    plain = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    own = str(getattr(plain, "__module__", "") or "").partition(".")[0]
    if own in ("jax", "torch", "jaxlib"):
        return [own.replace("jaxlib", "jax")]
    namespace = getattr(plain, "__globals__", vars(inspect.getmodule(type(plain))))
    known = _imported(namespace)
    if not known:
        modules = {module for value in namespace.values() for module in _modules(value)} - {plain.__module__}
        known = {root for module in modules if module in sys.modules for root in _imported(vars(sys.modules[module]))}
    return [framework for framework in FRAMEWORKS if framework in known]


def _imported(namespace: Mapping[str, Any]) -> set[str]:
    """The frameworks of which a module holds something."""
    roots = {module.partition(".")[0] for value in namespace.values() for module in _modules(value)}
    return roots & set(FRAMEWORKS)


def _modules(value: Any) -> set[str]:
    """The names of a module, or of those that define a function, a class or its bases."""
    if isinstance(value, ModuleType):
        return {value.__name__}
    classes = value.__mro__ if isinstance(value, type) else (value,)
    return {name for name in (getattr(each, "__module__", None) for each in classes) if isinstance(name, str)}
