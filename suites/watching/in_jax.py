"""The entry points of handwritten derivatives in JAX.

These are calls of ``custom_vjp``, ``custom_jvp`` and ``custom_vmap`` objects, of functions with `jax.checkpoint`, of
`jax.lax.custom_root` and of `jax.lax.custom_linear_solve`.

A call within a transformation gets tracers. Those of ``jax.grad`` hold values, and those of ``jax.vmap`` the values of
every lane, of which the first is taken. Those of ``jax.jit`` and of loops hold none: then the shape is recorded alone.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradgate.suites.watching.portable import CAPTURED, Batched, Implicit, Rematerialised, captured
from gradgate.suites.watching.recorder import MOST_NUMBERS as MOST
from gradgate.suites.watching.recorder import Array, Call, Recorder, Rule, location, of_framework, option, shown

KINDS = {"custom_vjp": ("bwd", "fwd"), "custom_jvp": ("jvp",), "custom_vmap": ("vmap_rule",)}
"""The classes whose instances are rules -> the attributes that hold what is written by hand."""


def wrap(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record what is called from now on; returns what undoes this."""
    plain = {kind: getattr(module, kind).__call__ for kind in KINDS if hasattr(module, kind)}

    def wrapped(kind: str) -> Callable[..., Any]:
        called = plain[kind]

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.look(_look, kind, self, args, kwargs)
            return called(self, *args, **kwargs)

        return call

    for kind in plain:
        getattr(module, kind).__call__ = wrapped(kind)

    def undo() -> None:
        for kind, called in plain.items():
            getattr(module, kind).__call__ = called

    return undo


def wrap_checkpoints(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record the functions that are checkpointed from now on; returns what undoes this."""
    return _before(module, "_remat_static_argnums", recorder, _look_checkpoint)


def wrap_solvers(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record the equations that are solved from now on; returns what undoes this."""
    return _before(module, "_check_tree", recorder, _look_solver)


def _before(module: types.ModuleType, name: str, recorder: Recorder, look: Any) -> Callable[[], None]:
    """Look at the variables of every call of a function of JAX that calls another one, which has this name.

    That function itself cannot be wrapped: programs hold it, and what it has made, under names of their own.
    """
    place: Any = module
    plain = getattr(place, name)

    @functools.wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        recorder.look(look, sys._getframe(1).f_locals)
        return plain(*args, **kwargs)

    setattr(place, name, called)
    return lambda: setattr(place, name, plain)


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

    fixed = {i: args[i] for i in vars(rule).get("nondiff_argnums", ()) if i < len(args)}
    rest = tuple(None if i in fixed else a for i, a in enumerate(args))
    flat, tree = jax.tree.flatten((rest, kwargs))
    leaves = [_Leaf(one) for one in flat]
    if not any(leaf.is_floating for leaf in leaves) or _initialises(rule.fun, args):
        return
    key = tuple(map(option, fixed.values())), str(tree), tuple(leaf.mark for leaf in leaves)
    made = Batched(rule) if kind == "custom_vmap" else rule
    recorder.saw(known, key, lambda: _whole_call(made, fixed, rest, kwargs, _tracers(made)))


def _initialises(fun: Any, args: Sequence[Any]) -> bool:
    """Whether flax calls a function to draw the parameters of a module, of which it then gets none."""
    import jax

    module = getattr(fun, "__globals__", {}).get("__name__")  # where it is written, whatever it wraps
    return module == "flax.core.lift" and not jax.tree.leaves(args[0])


def _look_checkpoint(recorder: Recorder, frame: Mapping[str, Any]) -> None:
    """Record a call of a function with `jax.checkpoint`, whose variables are given."""
    args, static = frame["args"], tuple(place % len(frame["args"]) for place in frame["static_argnums"])
    made = Rematerialised(frame["fun"], frame["policy"], static)
    if _initialises(made.fun, args):
        return
    _look_functions(recorder, "checkpoint", made, (made.fun,), args, frame["kwargs"], static)


def _look_solver(recorder: Recorder, frame: Mapping[str, Any]) -> None:
    """Record a call of `jax.lax.custom_root` or `jax.lax.custom_linear_solve`, whose variables are given."""
    if "solve_jaxpr" in frame:
        return  # it checks several trees; the first is enough
    linear = "matvec" in frame
    names = ("matvec", "solve", "transpose_solve") if linear else ("f", "solve", "tangent_solve")
    parts = [frame[name] for name in names]
    fun, solve, tangent_solve = parts
    made = Implicit(fun, solve, tangent_solve, linear, bool(frame.get("symmetric")), bool(frame["has_aux"]))
    if any(map(_is_written, parts[1:])):
        kind, start = ("custom_linear_solve", "b") if linear else ("custom_root", "initial_guess")
        _look_functions(recorder, kind, made, parts[::-1], (frame[start],), {}, ())


def _look_functions(
    recorder: Recorder,
    kind: str,
    made: Any,
    functions: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    static: Sequence[int],
) -> None:
    """Record a call of what is made of functions, which may hold arrays of the program."""
    import jax

    fun = next(filter(_is_written, functions), None)
    if fun is None:
        return
    rule = Rule("jax", kind, _name(_inside(fun), kind), *location(_inside(fun)))
    fixed = {place: args[place] for place in static}
    rest = tuple(None if place in fixed else one for place, one in enumerate(args))
    flat, tree = jax.tree.flatten((rest, dict(kwargs)))
    leaves = [_Leaf(one) for one in flat]
    held = functools.cache(lambda: _tracers(made))
    if not any(leaf.is_floating for leaf in leaves) and not any(_Leaf(one).is_floating for one in held()):
        return
    key = tuple(map(option, fixed.values())), str(tree), tuple(leaf.mark for leaf in leaves)

    recorder.saw(rule, key, lambda: _whole_call(made, fixed, rest, kwargs, held()))


def _whole_call(
    made: Any, fixed: dict[int, Any], rest: tuple[Any, ...], kwargs: Mapping[str, Any], held: list[Any]
) -> Call:
    """The copy of a call whose functions hold tracers."""
    import jax

    keywords = {**kwargs, **({CAPTURED: held} if held else {})}
    every, whole = jax.tree.flatten((rest, keywords))
    found = _call(made, fixed, [_Leaf(one) for one in every], whole)
    if held and type(made).__name__ in KINDS:  # of what a rule captures it gives no gradient
        copies = [dataclasses.replace(one, differentiated=False) for one in found.keywords.get(CAPTURED, ())]
        found = dataclasses.replace(found, keywords={**found.keywords, CAPTURED: copies})
    originals = tuple(zip(held, found.keywords.get(CAPTURED, ()), strict=False))
    return dataclasses.replace(found, originals=originals, unreachable=found.unreachable or _unsolved(made, found))


def _tracers(made: Any) -> list[Any]:
    """The tracers that functions hold; [] if something in them cannot be stored, which storing them then says."""
    import jax

    try:
        return captured(made, lambda value: isinstance(value, jax.core.Tracer))
    except Exception:
        return []


def _unsolved(made: Any, call: Call) -> str:
    """Why an equation cannot be judged elsewhere; "" if it can."""
    if not isinstance(made, Implicit):
        return ""
    if call.traced:
        return "its values are not known under jit, and its solver may fail at others"
    return "" if made.tangent_solve is not None else "it has no transpose_solve, and so no gradient"


def _is_written(function: Any) -> bool:
    """Whether it is a function that somebody outside of JAX wrote."""
    file, _ = location(_inside(function))
    return bool(file) and not of_framework(file)


def _rule(kind: str, rule: Any) -> Rule | None:
    """A rule; None for one of JAX itself."""
    fun = _inside(rule.fun)
    parts = [getattr(rule, part) for part in KINDS[kind]]
    if not _is_written(rule.fun) or (kind == "custom_vmap" and not _is_written(parts[0])):
        return None
    file, line = location(*map(_inside, parts), fun)
    return Rule("jax", kind, _name(fun, getattr(rule, "__name__", kind)), file, line)


def _name(fun: Any, otherwise: str) -> str:
    module = getattr(fun, "__module__", None) or "unknown"
    return f"{module}:{getattr(fun, '__qualname__', None) or otherwise}"


def _inside(function: Any) -> Any:
    """The function that `jax.custom_gradient` or a wrapper of `WRAPPERS` was given; any other function itself."""
    if getattr(function, "__qualname__", "").startswith("custom_gradient.<locals>."):
        return inspect.getclosurevars(function).nonlocals.get("fun", function)
    package = _package(function) if isinstance(function, types.FunctionType) else _package(type(function))
    return next(_given(function, package, DEEP), function) if package in WRAPPERS else function


DEEP = 4
"""How many functions of a wrapper may be around that of its user."""


def _given(function: Any, package: str, deep: int) -> Iterator[Any]:
    """The functions of a user that a function or an object of a wrapper holds, from the outside to the inside."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    last = "fn_bwd" if "bwd" in getattr(function, "__name__", "") else "fn"
    # a wrapper captures the function, or the object of its own that holds it
    named = {name: one for holder in (function, *cells) for name, one in vars_of(holder).items()}
    parts = [
        one for part in cells for one in ((part.func, *part.args) if isinstance(part, functools.partial) else [part])
    ]
    # such as a module, or a method of one, that `equinox.filter_checkpoint` was given
    bound = [one.__func__ for one in named.values() if hasattr(one, "__func__")]
    called = [type(one).__call__ for one in named.values() if callable(one) and _package(type(one)) != package]
    every = (*parts, named.get(last), *named.values(), *bound, *called)
    held = [one for one in every if isinstance(one, types.FunctionType)]
    yield from (one for one in held if _package(one) != package and location(one)[0])
    if deep:
        for one in held:
            yield from _given(one, package, deep - 1)


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object of a wrapper's own class."""
    return vars(value) if _package(type(value)) in WRAPPERS and hasattr(value, "__dict__") else {}


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


class _Leaf:
    """One leaf of the arguments: a number or array, maybe within transformations."""

    def __init__(self, leaf: Any) -> None:
        import jax

        self.leaf = leaf = _number(leaf)
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


def _number(leaf: Any) -> Any:
    """A number of Python that JAX holds with its dtype, as the program wrote it; any other leaf as it is."""
    kind = {"TypedInt": int, "TypedFloat": float}.get(type(leaf).__name__)
    return kind(leaf) if kind else leaf


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
