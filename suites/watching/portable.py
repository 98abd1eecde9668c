"""A rule and its arguments as bytes that another process can read.

What has a name is stored as its name: ``package.module:name``, if an import there finds the same file. What has none is
stored with its code: what is written in a script or within a function, or generated, or in a module that pytest
imports in its own way. What cannot be stored is not judged, and the table says why.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import importlib
import importlib.machinery
import io
import operator
import os
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

RULES = {"custom_vjp": "jax", "custom_jvp": "jax", "custom_vmap": "jax.custom_batching"}
"""Classes of JAX whose instances are rules -> the module that has it."""
FUNCTIONS = ("fun", "fwd", "bwd", "jvp", "vmap_rule", "solve", "tangent_solve")
FIELDS = (*FUNCTIONS, "nondiff_argnums", "symbolic_zeros", "optimize_remat")


PARAMETERS = "parameters of the module"
"""The keyword under which a call holds the parameters of a checkpointed module."""
CAPTURED = "captured"
"""The keyword under which a call holds the arrays that its functions capture."""
MOST_BYTES = 2**26
"""Most bytes of a call that are stored: a program waits for them."""
APART = 1e-3
"""Largest distance of a solver's answer from the solution, relative to its size."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of `torch.library`, which an import of the module registers.

    Attributes:
        module: the module in which its backward pass is written.
        name: ``namespace::name``.
        overload: the name of the overload; "" for the default.
    """

    module: str
    name: str
    overload: str

    def load(self) -> Any:
        """The operator itself."""
        import torch

        importlib.import_module(self.module)
        space, _, short = self.name.partition("::")
        return getattr(getattr(getattr(torch.ops, space), short), self.overload or "default")


TAG = "ctxtag"
"""The attribute of a rule of flax.nnx that names the call of the program within which it runs."""


@dataclasses.dataclass(frozen=True)
class _Held:
    """What takes the place of a weak reference to an object."""

    value: Any

    def __call__(self) -> Any:
        return self.value


class Wrapped:
    """What a program calls with functions of its own, and whose reference is made of these functions."""

    reentrant = False
    """Whether ``backward()`` alone can take its gradient."""

    def plain(self, fixed: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The outputs of the reference.

        Args:
            fixed: the same as this object; what its functions capture is not differentiated.
            arguments, keywords: of the call.
        """
        raise NotImplementedError

    @staticmethod
    def given(keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of the program, without what only this package gave."""
        return {name: value for name, value in keywords.items() if name not in (PARAMETERS, CAPTURED)}


@dataclasses.dataclass(frozen=True)
class Checkpointed(Wrapped):
    """A function that `torch.utils.checkpoint` runs again in the backward pass. Without that, it is its own reference.

    Attributes:
        fun: the function, or a module, which then holds the parameters of the call.
        reentrant: whether the older implementation runs it, whose gradient ``backward()`` alone can take.
        contexts: gives the contexts of the two runs; None for the default.
    """

    fun: Any
    reentrant: bool
    contexts: Any = None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The outputs, with a checkpoint."""
        from torch.utils.checkpoint import checkpoint

        more = {"context_fn": self.contexts} if self.contexts else {}
        return checkpoint(self.fun, *arguments, use_reentrant=self.reentrant, **more, **self.given(keywords))

    def plain(self, fixed: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The outputs, without a checkpoint."""
        return self.fun(*arguments, **self.given(keywords))


def _anywhere(function: Any) -> Any:
    """A function of haiku, which runs within `haiku.transform` alone, as one that runs anywhere; any other as it is."""
    if getattr(function, "__globals__", {}).get("__name__") != "haiku._src.stateful":
        return function
    transform = importlib.import_module("haiku").transform_with_state

    def called(*arguments: Any, **keywords: Any) -> Any:
        return transform(lambda: function(*arguments, **keywords)).apply({}, {}, None)[0]

    return called


@dataclasses.dataclass(frozen=True)
class Rematerialised(Wrapped):
    """A function that `jax.checkpoint` runs again in the backward pass. Without that, it is its own reference.

    Attributes:
        fun: the function.
        policy: says which values are stored.
        static: places of arguments that are no arrays.
    """

    fun: Any
    policy: Any
    static: tuple[int, ...]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The outputs, with a checkpoint."""
        import jax

        made = jax.checkpoint(_anywhere(self.fun), policy=self.policy, static_argnums=self.static)
        return made(*arguments, **self.given(keywords))

    def plain(self, fixed: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The outputs, without a checkpoint."""
        return _anywhere(self.fun)(*arguments, **self.given(keywords))


@dataclasses.dataclass(frozen=True)
class Implicit(Wrapped):
    """A solution x of f(x) = 0, by `jax.lax.custom_root`, or of f(x) = b, by `jax.lax.custom_linear_solve`.

    With J the derivative of f at x, the gradient is that of x − J⁻¹ (f(x) − b), where x and J are constants. So it is
    judged where the solver ends, however early that is.

    Attributes:
        fun: f.
        solve: finds x, without derivatives.
        tangent_solve: solves the linearised or the transposed equation.
        linear: whether it is a linear equation.
        symmetric: what the program says of the matrix.
        auxiliary: whether ``solve`` returns something besides x.
    """

    fun: Any
    solve: Any
    tangent_solve: Any
    linear: bool
    symmetric: bool = False
    auxiliary: bool = False

    def __call__(self, start: Any, **_: Any) -> Any:
        """The solution."""
        import jax

        more = {"symmetric": self.symmetric} if self.linear else {}
        call: Any = jax.lax.custom_linear_solve if self.linear else jax.lax.custom_root
        found = call(self.fun, start, self.solve, self.tangent_solve, has_aux=self.auxiliary, **more)
        return found[0] if self.auxiliary else found

    def plain(self, fixed: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The solution, with the derivative of one step of Newton's method; that step, if the solver is far away."""
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        (start,) = arguments
        found = fixed.solve(fixed.fun, jax.lax.stop_gradient(start))
        flat, back = ravel_pytree(jax.lax.stop_gradient(found[0] if self.auxiliary else found))

        def missing(one: Any, x: Any) -> Any:
            away = ravel_pytree(one.fun(back(x)))[0]
            return away - ravel_pytree(start)[0] if self.linear else away

        jacobian = jax.lax.stop_gradient(jax.jacfwd(lambda x: missing(fixed, x))(flat))
        step = jnp.linalg.solve(jacobian, missing(self, flat))
        constant = jax.lax.stop_gradient(step)
        near = (constant * constant).sum() <= APART**2 * (flat * flat).sum()
        return back(flat - step + jnp.where(near, constant, 0))


@dataclasses.dataclass(frozen=True)
class Batched(Wrapped):
    """A function with a rule of its own for `jax.vmap`: `jax.custom_batching.custom_vmap`.

    Two lanes are judged: the arrays of the call, and the floating ones among them times `LANE`. All of these are
    batched, and then each alone.

    Attributes:
        fun: the function with its rule.
    """

    fun: Any
    LANE: ClassVar[float] = 0.75

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """The outputs of the lanes, by the rule."""
        import jax

        return [jax.vmap(self.fun, axes)(*lanes) for lanes, axes, _ in self._lanes(arguments)]

    def plain(self, fixed: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The outputs of the lanes, one after the other."""
        import jax
        import jax.numpy as jnp

        each = [[self.fun.fun(*lane) for lane in both] for _, _, both in self._lanes(arguments)]
        return [jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs) for outputs in each]

    def _lanes(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
        """Arguments with a new first axis, the axes that `jax.vmap` takes, and the arguments of each lane."""
        import jax
        import jax.numpy as jnp

        flat, tree = jax.tree.flatten(tuple(arguments))
        floating = [i for i, leaf in enumerate(flat) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
        for batched in dict.fromkeys((tuple(floating), *((place,) for place in floating))):
            second = [leaf * self.LANE if i in batched else leaf for i, leaf in enumerate(flat)]
            lanes = [
                jnp.stack([a, b]) if i in batched else a for i, (a, b) in enumerate(zip(flat, second, strict=True))
            ]
            axes = [0 if i in batched else None for i in range(len(flat))]
            whole, where, other = (jax.tree.unflatten(tree, leaves) for leaves in (lanes, axes, second))
            yield whole, where, (arguments, other)


@dataclasses.dataclass(frozen=True)
class Hook:
    """A hook that changes the gradient of a tensor: a rule whose forward pass is the identity.

    Attributes:
        fun: the hook.
    """

    fun: Any

    def __call__(self, gradient: Any) -> Any:
        """The tensor itself, whose gradient the hook changes."""
        made = gradient.clone()
        if made.requires_grad:
            made.register_hook(self.fun)
        return made


@dataclasses.dataclass(frozen=True)
class ModuleHook:
    """A hook that changes the gradients of a module's inputs, or outputs: a rule whose forward pass is the identity.

    Attributes:
        fun: the hook.
        module: what the hook gets first.
    """

    fun: Any
    module: Any

    def __call__(self, gradients: Sequence[Any], *others: Any) -> Any:
        """The tensors themselves, whose gradients the hook changes; it gets the others as they are."""
        import torch

        hook = self

        class Hooked(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                return tuple(one.clone() for one in given)

            @staticmethod
            def backward(ctx: Any, *given: Any) -> Any:
                left = iter(given)
                every = tuple(None if one is None else next(left) for one in gradients)
                found = hook.fun(hook.module, every, *others)
                pairs = zip(every, every if found is None else found, strict=True)
                return tuple(after for before, after in pairs if before is not None)

        return Hooked.apply(*(one for one in gradients if one is not None))


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A call that was read.

    Attributes:
        rule, arguments, keywords: as they were given to `dumps`.
        arrays: the copies of the arrays that something besides the arguments may hold.
        held: places in ``arrays`` of those that something holds.
    """

    rule: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    arrays: list[Any]
    held: frozenset[int]


def dumps(
    rule: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], originals: Sequence[tuple[Any, Any]] = ()
) -> bytes:
    """The bytes of a call.

    Args:
        rule, arguments, keywords: what is stored, with copies in the place of arrays.
        originals: each array of the call with its copy. A function among the arguments may hold an array that is also
            an argument, as the right-hand side of an adjoint method does. It is stored as a reference to the copy.

    Raises:
        Exception: of any kind: something cannot be stored.
    """
    places = {id(original): place for place, (original, _) in enumerate(originals)}
    return _stored(rule, (arguments, keywords, [copy for _, copy in originals]), lambda value: places.get(id(value)))


def captured(rule: Any, is_one: Callable[[Any], bool]) -> list[Any]:
    """What the functions of a rule hold of one kind, each once, such as tracers.

    Raises:
        Exception: of any kind: something cannot be stored.
    """
    found: dict[int, Any] = {}

    def place(value: Any) -> int | None:
        return id(found.setdefault(id(value), value)) if is_one(value) else None

    _stored(rule, (), place)
    return list(found.values())


class _Buffer(io.BytesIO):
    """Bytes in memory, of which there are at most `MOST_BYTES`: a function may hold a whole model."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > MOST_BYTES:
            raise ValueError(f"what it holds is larger than {MOST_BYTES:,} bytes")
        return super().write(data)


def _stored(rule: Any, rest: tuple[Any, ...], place: Callable[[Any], int | None]) -> bytes:
    """The bytes of a rule and of what belongs to it; `place` gives what stands for a value that is not stored."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return place(value)

        def reducer_override(self, value: Any) -> Any:
            if type(value).__name__ in RULES and type(value).__module__.startswith("jax."):
                return _reduced(value)
            if isinstance(value, type) and hasattr(value, "_backward_cls") and not is_named(value):
                return _class_reduced(value)
            if isinstance(value, types.CellType):
                return types.CellType, (), _contents(value), None, None, _cell_filled
            if isinstance(value, weakref.ref):  # whoever reads this has nothing that would hold the object
                return _Held, (value(),)
            if isinstance(value, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)):
                return dict, (dict(value),)
            if TAG in getattr(value, "__dict__", ()) and type(value).__module__.startswith("flax."):
                return copyreg.__newobj__, (type(value),), {**vars(value), TAG: None}  # type: ignore[attr-defined]
            found = super().reducer_override(value)
            if isinstance(value, types.FunctionType) and value.__closure__ and isinstance(found, tuple):
                # cloudpickle gives each function cells of its own; a forward and a backward pass may share some
                made, (*given, _), (attributes, parts), *rest = found
                found = made, (*given, value.__closure__), (attributes, {**parts, "__closure__": None}), *rest
            return found

    strange = [module for module in _modules(rule) if not importable(module)]
    for module in strange:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    try:
        buffer = _Buffer()
        Pickler(buffer).dump((rule, *rest))
        return buffer.getvalue()
    finally:
        for module in strange:
            cloudpickle.unregister_pickle_by_value(sys.modules[module])


def loads(data: bytes, arrays: Callable[[int], Any] | None = None) -> Loaded:
    """A call of `dumps`. Imports and so runs the modules that it names.

    Args:
        data: the bytes.
        arrays: gives the array that takes the place of an original one; None: nothing takes it.
    """
    held = set()

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, place: int) -> Any:
            held.add(place)
            return arrays(place) if arrays else None

    rule, arguments, keywords, copies = Unpickler(io.BytesIO(data)).load()
    return Loaded(rule, arguments, keywords, copies, frozenset(held))


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """What a cell holds; nothing if it is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _cell_filled(cell: types.CellType, values: tuple[Any, ...]) -> None:
    for value in values:
        cell.cell_contents = value


def _modules(rule: Any) -> list[str]:
    """The modules in which the parts of a rule are written."""
    parts = rule if isinstance(rule, tuple) else (rule, *(getattr(rule, part, None) for part in FUNCTIONS))
    names = dict.fromkeys(getattr(part, "__module__", None) for part in parts)
    return [name for name in names if name in sys.modules and name != "__main__"]


@functools.cache
def importable(name: str) -> bool:
    """Whether an import of this name, in a process with this path, finds the module that is loaded here."""
    module = sys.modules.get(name)
    file, folders = getattr(module, "__file__", None), getattr(module, "__path__", ())
    parent = sys.modules.get(name.rpartition(".")[0])
    if not (file or folders) or ("." in name and (parent is None or not importable(parent.__name__))):
        return False
    for finder in sys.meta_path:
        search = getattr(finder, "find_spec", None)
        if search is None or type(finder).__name__ == "AssertionRewritingHook":  # pytest's finds what others find
            continue
        spec = search(name, getattr(parent, "__path__", None))
        if spec is not None and file:
            return bool(spec.origin) and os.path.realpath(spec.origin) == os.path.realpath(file)
        if spec is not None:  # a package without an __init__.py, which has no file
            return not spec.origin and {*folders} <= {*(spec.submodule_search_locations or ())}
    return False


def is_named(value: Any) -> bool:
    """Whether a value is found under its own name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or module == "__main__" or module not in sys.modules or not importable(module):
        return False
    try:
        return operator.attrgetter(name)(sys.modules[module]) is value
    except AttributeError:
        return False


def _found(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))


def _reduced(rule: Any) -> Any:
    """A rule of JAX by its name, or by its functions, which may use the rule itself."""
    if is_named(rule):
        return _found, (rule.__module__, rule.__qualname__)
    state = {name: vars(rule).get(name) for name in (*FIELDS, "__name__", "__qualname__", "__module__", "__wrapped__")}
    return _blank, (type(rule).__name__,), {name: value for name, value in state.items() if value is not None}


def _blank(kind: str) -> Any:
    return getattr(importlib.import_module(RULES[kind]), kind)(_nothing)


def _nothing(*_: Any) -> None:
    """The function of a rule until its own is set."""


def _class_reduced(cls: Any) -> Any:
    """A `torch.autograd.Function` by its parts, without the class that PyTorch generates beside it."""
    inside = {
        name: value for name, value in vars(cls).items() if name not in ("_backward_cls", "__dict__", "__weakref__")
    }
    inside.pop("_autograd_function_id", None)
    blank = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return _class_made, (cls.__name__, cls.__bases__, blank), inside, None, None, _class_filled


def _class_made(name: str, bases: tuple[type, ...], blank: dict[str, str]) -> Any:
    return type(bases[0])(name, bases, blank)


def _class_filled(cls: Any, inside: dict[str, Any]) -> None:
    for name, value in inside.items():
        if name not in ("__module__", "__qualname__"):
            setattr(cls, name, value)
