"""The entry points of handwritten derivatives in JAX: calls of ``custom_vjp`` and ``custom_jvp`` objects.

A call within a transformation gets tracers. Those of ``jax.grad`` hold values, and those of ``jax.vmap`` the values of
every lane, of which the first is taken. Those of ``jax.jit`` and of loops hold none: then the shape is recorded alone.
"""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

from gradgate.suites.watching.recorder import MOST_NUMBERS as MOST
from gradgate.suites.watching.recorder import Array, Call, Recorder, Rule, location, of_framework, option, shown

KINDS = ("custom_vjp", "custom_jvp")
"""The classes whose instances are rules."""


def wrap(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record what is called from now on; returns what undoes this."""
    plain = {kind: getattr(module, kind).__call__ for kind in KINDS}

    def wrapped(kind: str) -> Callable[..., Any]:
        called = plain[kind]

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.look(_look, kind, self, args, kwargs)
            return called(self, *args, **kwargs)

        return call

    for kind in KINDS:
        getattr(module, kind).__call__ = wrapped(kind)

    def undo() -> None:
        for kind, called in plain.items():
            getattr(module, kind).__call__ = called

    return undo


WRAPPERS = ("equinox", "flax", "haiku")
"""Packages whose own ``custom_vjp`` and ``custom_jvp`` wrap functions of their users."""
_RULES: weakref.WeakKeyDictionary[Any, Rule | None] = weakref.WeakKeyDictionary()


def _look(recorder: Recorder, kind: str, rule: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a call, if its rule is not one of JAX itself."""
    if rule not in _RULES:
        _RULES[rule] = _rule(kind, rule)
    known = _RULES[rule]
    if known is None:
        return
    import jax

    fixed = {i: args[i] for i in rule.nondiff_argnums if i < len(args)}
    rest = tuple(None if i in fixed else a for i, a in enumerate(args))
    flat, tree = jax.tree.flatten((rest, kwargs))
    leaves = [_Leaf(one) for one in flat]
    if not any(leaf.is_floating for leaf in leaves):
        return
    key = tuple(map(option, fixed.values())), str(tree), tuple(leaf.mark for leaf in leaves)
    recorder.saw(known, key, lambda: _call(rule, fixed, leaves, tree))


def _rule(kind: str, rule: Any) -> Rule | None:
    """A rule; None for one of JAX itself."""
    fun = _inside(rule.fun)
    own, _ = location(fun)
    if not own or of_framework(own):
        return None
    parts = (rule.bwd, rule.fwd) if kind == "custom_vjp" else (rule.jvp,)
    file, line = location(*map(_inside, parts), fun)
    module = getattr(fun, "__module__", None) or "unknown"
    name = getattr(fun, "__qualname__", None) or getattr(rule, "__name__", kind)
    return Rule("jax", kind, f"{module}:{name}", file, line)


def _inside(function: Any) -> Any:
    """The function that `jax.custom_gradient` or a wrapper of `WRAPPERS` was given; any other function itself."""
    package = _package(function)
    if getattr(function, "__qualname__", "").startswith("custom_gradient.<locals>."):
        return inspect.getclosurevars(function).nonlocals.get("fun", function)
    if package not in WRAPPERS:
        return function
    cells = getattr(function, "__closure__", None) or ()
    # a wrapper captures the function, or the object of its own that holds it
    held = {cell.cell_contents: None for cell in cells if isinstance(cell.cell_contents, types.FunctionType)}
    by_name = {name: one for cell in cells for name, one in vars_of(cell.cell_contents).items()}
    last = "fn_bwd" if "bwd" in getattr(function, "__name__", "") else "fn"
    for one in (*held, by_name.get(last)):
        if isinstance(one, types.FunctionType) and _package(one) != package:
            return one
    return function


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object of a wrapper's own class."""
    return vars(value) if _package(type(value)) in WRAPPERS and hasattr(value, "__dict__") else {}


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


class _Leaf:
    """One leaf of the arguments: a number or array, maybe within transformations."""

    def __init__(self, leaf: Any) -> None:
        import jax

        self.leaf = leaf
        self.is_array = isinstance(leaf, jax.Array) or hasattr(leaf, "__array__")
        self.value, self.perturbed = _unwrapped(leaf) if isinstance(leaf, jax.core.Tracer) else (leaf, False)
        traced = isinstance(self.value, jax.core.Tracer)
        self.shape = tuple(getattr(self.value, "shape", ()))
        self.dtype = str(getattr(self.value, "dtype", ""))
        self.value = None if traced else self.value
        self.is_floating = self.is_array and self.dtype.startswith(("float", "bfloat", "complex"))
        self.mark: Any = (self.shape, self.dtype, traced) if self.is_array else option(leaf)

    @property
    def numbers(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size if self.is_array else 0


def _unwrapped(tracer: Any) -> tuple[Any, bool]:
    """The value under tracers of ``grad`` and ``vmap``, and whether a derivative by it is taken; else a tracer."""
    import jax

    perturbed = False
    while isinstance(tracer, jax.core.Tracer):
        kind = type(tracer).__name__
        if kind in ("JVPTracer", "LinearizeTracer"):
            tracer, perturbed = tracer.primal, True
        elif kind == "BatchTracer":
            axis, inner = tracer.batch_dim, tracer.val
            if isinstance(inner, jax.core.Tracer) or not isinstance(axis, (int, type(None))):
                return tracer, perturbed
            tracer = inner if axis is None else _first(inner, axis)
        else:
            return tracer, perturbed
    return tracer, perturbed


def _first(array: Any, axis: int) -> Any:
    """The first lane of a batch, in NumPy: an operation of JAX would be traced by the transformation around it."""
    import numpy as np

    return (
        np.asarray(array).take(0, axis) if array.shape[axis] else np.zeros(array.shape[:axis] + array.shape[axis + 1 :])
    )


def _call(rule: Any, fixed: dict[int, Any], leaves: list[_Leaf], tree: Any) -> Call:
    import jax

    numbers = sum(leaf.numbers for leaf in leaves)
    why = f"its arrays have {numbers:,} numbers" if numbers > MOST else ""
    some = any(leaf.perturbed for leaf in leaves)
    # Without values it is not known either whether a derivative is taken, as in the body of a loop.
    copied = [_copied(leaf, leaf.perturbed or leaf.value is None or not some, not why) for leaf in leaves]
    args, kwargs = jax.tree.unflatten(tree, copied)
    args = tuple(fixed.get(i, a) for i, a in enumerate(args))
    traced = any(isinstance(a, Array) and a.values is None for a in copied)
    seen = [shown(a) for a in copied]
    return Call(rule, () if why else args, {} if why else kwargs, seen, traced, why)


def _copied(leaf: _Leaf, differentiated: bool, values: bool) -> Any:
    import jax
    import numpy as np

    if not leaf.is_array:
        return leaf.leaf
    if jax.dtypes.issubdtype(getattr(leaf.value, "dtype", np.dtype("float32")), jax.dtypes.prng_key):
        return leaf.value  # a typed key moves as it is
    found = None
    if values and leaf.value is not None:
        found = np.array(leaf.value)
        found = found.astype(np.float32) if leaf.is_floating and found.dtype.itemsize < 4 else found
    return Array(found, leaf.shape, leaf.dtype, differentiated and leaf.is_floating)
