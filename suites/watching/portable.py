"""A rule and its arguments as bytes that another process can read.

What has a name is stored as its name: ``package.module:name``, if an import there finds the same file. What has none is
stored with its code: what is written in a script or within a function, or generated, or in a module that pytest
imports in its own way. What cannot be stored is not judged, and the table says why.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.machinery
import io
import operator
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

RULES = ("custom_vjp", "custom_jvp")
"""Classes of JAX whose instances are rules."""
PARTS = {"custom_vjp": ("fun", "fwd", "bwd"), "custom_jvp": ("fun", "jvp")}
FIELDS = ("fun", "fwd", "bwd", "jvp", "nondiff_argnums", "symbolic_zeros", "optimize_remat")


PARAMETERS = "parameters of the module"
"""The keyword under which a call holds the parameters of a checkpointed module."""


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


@dataclasses.dataclass(frozen=True)
class Checkpointed:
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
        return checkpoint(
            self.fun, *arguments, use_reentrant=self.reentrant, **more, **self.without_parameters(keywords)
        )

    def plain(self, *arguments: Any, **keywords: Any) -> Any:
        """The outputs, without a checkpoint."""
        return self.fun(*arguments, **self.without_parameters(keywords))

    @staticmethod
    def without_parameters(keywords: dict[str, Any]) -> dict[str, Any]:
        """The keywords of the program, without the parameters of the module."""
        return {name: value for name, value in keywords.items() if name != PARAMETERS}


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
    import cloudpickle

    places = {id(original): place for place, (original, _) in enumerate(originals)}

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return places.get(id(value))

        def reducer_override(self, value: Any) -> Any:
            if type(value).__name__ in RULES and type(value).__module__.startswith("jax."):
                return _reduced(value)
            if isinstance(value, type) and hasattr(value, "_backward_cls") and not is_named(value):
                return _class_reduced(value)
            return super().reducer_override(value)

    strange = [module for module in _modules(rule) if not importable(module)]
    for module in strange:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    try:
        buffer = io.BytesIO()
        Pickler(buffer).dump((rule, arguments, keywords, [copy for _, copy in originals]))
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


def _modules(rule: Any) -> list[str]:
    """The modules in which the parts of a rule are written."""
    parts = rule if isinstance(rule, tuple) else (rule, *(getattr(rule, part, None) for part in FIELDS[:4]))
    names = dict.fromkeys(getattr(part, "__module__", None) for part in parts)
    return [name for name in names if name in sys.modules and name != "__main__"]


@functools.cache
def importable(name: str) -> bool:
    """Whether an import of this name, in a process with this path, finds the module that is loaded here."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    parent = sys.modules.get(name.rpartition(".")[0])
    if not file or ("." in name and (parent is None or not importable(parent.__name__))):
        return False
    for finder in sys.meta_path:
        search = getattr(finder, "find_spec", None)
        if search is None or type(finder).__name__ == "AssertionRewritingHook":  # pytest's finds what others find
            continue
        spec = search(name, getattr(parent, "__path__", None))
        if spec is not None:
            return bool(spec.origin) and os.path.realpath(spec.origin) == os.path.realpath(file)
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
    import jax

    return getattr(jax, kind)(_nothing)


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
