"""What a callable refers to besides its arguments: closure, defaults, globals, what `functools.partial` binds."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

DEEP = 3
"""How many callables within callables are looked into."""


def owner(function: Any) -> Any:
    """What is called in the end: the object of a bound method, or else the callable, without `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function.__self__ if _is_method(function) else function


def rebound(function: Any, other: Any) -> Callable[..., Any]:
    """The same call of another object than `owner`."""
    if isinstance(function, functools.partial):
        return functools.partial(rebound(function.func, other), *function.args, **function.keywords)
    called: Callable[..., Any] = functools.partial(function.__func__, other) if _is_method(function) else other
    return called


def _is_method(function: Any) -> bool:
    """Whether this is a bound method, of Python or of equinox."""
    return hasattr(function, "__self__") and hasattr(function, "__func__")


def bound_by_partial(function: Any) -> Iterator[tuple[str, Any]]:
    """(name, object) of the arguments that `functools.partial` binds."""
    while isinstance(function, functools.partial):
        yield from ((f"args[{i}] of functools.partial", one) for i, one in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func


def held(function: Any, deep: int = DEEP) -> Iterator[tuple[str, Any]]:
    """(name, object) of everything that a callable refers to, and of what the callables among them refer to."""
    seen: set[int] = set()

    def walk(called: Any, left: int) -> Iterator[tuple[str, Any]]:
        if id(called) in seen or not left:
            return
        seen.add(id(called))
        for name, one in _direct(called):
            yield name, one
            if isinstance(one, (FunctionType, MethodType, functools.partial)):
                yield from walk(one, left - 1)

    return walk(function, deep)


def _direct(called: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(called, functools.partial):
        yield getattr(called.func, "__name__", type(called.func).__name__), called.func
        yield from bound_by_partial(called)
    elif isinstance(called, MethodType):
        yield "self", called.__self__
        yield called.__name__, called.__func__
    elif isinstance(called, FunctionType):
        plain = inspect.unwrap(called)
        if plain is not called:
            yield called.__name__, plain
        for name, cell in zip(called.__code__.co_freevars, called.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        defaults = called.__defaults__ or ()
        positional = called.__code__.co_varnames[: called.__code__.co_argcount]
        yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
        yield from (called.__kwdefaults__ or {}).items()
        for name in sorted(_globals_of(called.__code__)):
            if name in called.__globals__:
                yield name, called.__globals__[name]
    else:
        yield from getattr(called, "__dict__", {}).items()


def _globals_of(code: CodeType) -> set[str]:
    """Names of the globals that a function reads, and of those that the functions within it read."""
    found = {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return found.union(*map(_globals_of, inner))
