"""The few things that differ between NumPy, JAX and PyTorch, so that a Problem is written once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from gradgate.hw_profiles.calls import OnCall
from gradgate.references.errors import UsageError

UNIT_ROUNDOFF = {
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "longdouble": 2.0**-64,
}
"""Half the distance from 1 to the next number, per dtype."""
NARROW = frozenset({"bfloat16", "float16"})
"""Dtypes that do not have the numbers of a problem in float32."""
Tree = Any
"""Nested dicts, lists and tuples whose leaves are arrays of one backend."""
PROBLEM_CLASSES: list[type] = []
"""The subclasses of Problem: JAX has to know each as a pytree."""
MOST_PROGRAMS = 64
"""Number of compiled programs that are kept, those last used."""
_PROGRAMS: OrderedDict[str, Any] = OrderedDict()


def namespace(backend: str) -> Any:
    """The Array API namespace of a backend.

    Raises:
        UsageError: the backend is unknown or not installed; says what to install.
    """
    xp = _import(backend)
    if backend == "jax" and len(_REGISTERED) < len(PROBLEM_CLASSES):  # a family may be imported between two calls
        _register_pytrees()
    return xp


@functools.cache
def _import(backend: str) -> Any:
    xp: Any
    if backend == "numpy":
        xp = importlib.import_module("array_api_compat.numpy")
    elif backend == "torch":
        try:
            xp = importlib.import_module("array_api_compat.torch")
        except ImportError as error:
            raise UsageError(f"PyTorch cannot be imported ({error}): pip install 'gradgate[torch]'") from None
    elif backend == "jax":
        try:
            xp = importlib.import_module("jax.numpy")
        except ImportError as error:
            raise UsageError(f"JAX cannot be imported ({error}): pip install 'gradgate[jax]'") from None
    else:
        raise UsageError(f"unknown backend {backend!r}; legal: jax, numpy, torch")
    return xp


_REGISTERED: set[type] = set()


def _register_pytrees() -> None:
    import jax

    for cls in PROBLEM_CLASSES:
        if cls in _REGISTERED:
            continue
        _REGISTERED.add(cls)
        jax.tree_util.register_pytree_node(
            cls,
            lambda p: ((p.params, p.data), (p.spec.static(), p.on_call)),
            functools.partial(_rebuild, cls),
        )


def _rebuild(cls: Any, static: tuple[Any, OnCall | None], children: Any) -> Any:
    spec, on_call = static
    problem = cls(spec, "jax", *children)
    return problem.counted(on_call) if on_call else problem


def to_backend(backend: str, array: Any, dtype: str | None = None) -> Any:
    """Convert a NumPy array to an array of `backend`; floating arrays are cast to `dtype`.

    For JAX the caller must be inside `precision(dtype)`; otherwise float64 would silently become float32.
    """
    import numpy as np

    if backend == "numpy":
        if dtype == "bfloat16":
            raise UsageError("NumPy has no bfloat16; legal here: float32, float64, longdouble")
        return np.asarray(array, dtype=dtype)
    if dtype == "longdouble":
        raise UsageError("longdouble exists in NumPy only; legal here: bfloat16, float32, float64")
    xp = namespace(backend)
    if backend == "torch":
        tensor = xp.asarray(np.array(array, order="C"))
        return tensor if dtype is None else tensor.to(getattr(xp, dtype))
    import jax

    # NumPy casts the array and JAX only copies it: jnp.asarray would compile a program for every shape and dtype.
    return jax.device_put(np.asarray(array, dtype=None if dtype is None else xp.dtype(dtype)))


def all_to_backend(backend: str, tree: Tree, dtype: str) -> Tree:
    """`to_backend` of every leaf; integers stay as they are. In JAX it is one call, which is quicker."""
    if backend != "jax":
        return tree_map(lambda leaf: to_backend(backend, leaf, None if leaf.dtype.kind in "iub" else dtype), tree)
    import jax

    wanted, flat = namespace(backend).dtype(dtype), list[Any]()
    tree_map(lambda leaf: flat.append(leaf if leaf.dtype.kind in "iub" else leaf.astype(wanted)), tree)
    found = iter(jax.device_put(flat))
    return tree_map(lambda _: next(found), tree)  # JAX's own trees would put the keys of dicts in another order


def to_numpy(array: Any) -> Any:
    """Any backend's array as a NumPy float64 (floating) or integer array, for judging on the host."""
    import numpy as np

    if hasattr(array, "detach"):
        array = array.detach()
        array = (array.double() if array.is_floating_point() else array).cpu().numpy()
    result = np.asarray(array)
    return result if result.dtype.kind in "iub" or result.dtype == np.longdouble else result.astype(np.float64)


@contextlib.contextmanager
def precision(backend: str, dtype: str) -> Iterator[None]:
    """A scope in which arrays keep `dtype`: JAX's x64 mode is on for float64 and off otherwise, in this scope only.

    Where JAX has only the CPU, Pallas kernels that are declared for a TPU or a GPU run in JAX's interpreter in it.
    """
    if backend != "jax":
        yield
        return
    import jax

    with jax.enable_x64(dtype == "float64"), _kernels_interpreted():
        yield


def _kernels_interpreted() -> contextlib.AbstractContextManager[None]:
    """The scope in which every `pallas_call` is traced as with ``interpret=True``, if JAX has only the CPU."""
    import jax

    if "jax.experimental.pallas" not in sys.modules or jax.default_backend() != "cpu":
        return contextlib.nullcontext()
    from jax.experimental.pallas import tpu

    plainly: Any = True  # in place of an InterpretParams: the interpreter that ``interpret=True`` means
    scope: contextlib.AbstractContextManager[None] = tpu.force_tpu_interpret_mode(plainly)
    return scope


def scan(backend: str, step: Callable[[Tree, Tree], tuple[Tree, Tree]], carry: Tree, xs: Tree) -> tuple[Tree, Tree]:
    """``carry, y = step(carry, x)`` over the leading axis of `xs`; returns the last carry and the stacked ``y``.

    Under JAX this is ``jax.lax.scan``, so a deep problem compiles its body once. Elsewhere it is a Python loop.
    """
    if backend == "jax":
        import jax

        return jax.lax.scan(step, carry, xs)
    xp = namespace(backend)
    ys = []
    for i in range(len(leaves(xs)[0])):
        carry, y = step(carry, tree_map(lambda leaf: leaf[i], xs))  # noqa: B023 - called at once
        ys.append(y)
    return carry, tree_map(lambda *items: xp.stack(items), *ys)


def stop_gradient(backend: str, x: Any) -> Any:
    """`x`, which differentiation then treats as a constant."""
    if backend == "jax":
        import jax

        return jax.lax.stop_gradient(x)
    return x.detach() if backend == "torch" else x


def transforms(backend: str) -> Any:
    """The module that has `grad`, `vjp`, `jvp` and `vmap` of a backend, under the same names in both frameworks."""
    return importlib.import_module("jax" if backend == "jax" else "torch.func")


def reverse_mode(backend: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`grad` and `vjp` of a backend, for functions of one tree that are not under a transformation.

    In PyTorch they are plain autograd: `torch.func` refuses a Function without ``setup_context``.
    """
    if backend == "jax":
        import jax

        return jax.grad, jax.vjp
    import torch

    def vjp(function: Callable[[Tree], Any], params: Tree) -> tuple[Any, Callable[[Any], tuple[Tree]]]:
        flat: list[Any] = []
        with torch.enable_grad():
            tracked = tree_map(lambda leaf: leaf if leaf.requires_grad else leaf.detach().requires_grad_(), params)
            tree_map(flat.append, tracked)
            value = function(tracked)
        again = any(leaf.requires_grad for leaf in leaves(params))  # this gradient is differentiated, too

        def pull(cotangent: Any) -> tuple[Tree]:
            if not value.requires_grad:  # the function depends on nothing
                return (tree_map(torch.zeros_like, tracked),)
            found = iter(torch.autograd.grad(value, flat, cotangent, materialize_grads=True, create_graph=again))
            return (tree_map(lambda _: next(found), tracked),)

        return value, pull

    def grad(function: Callable[[Tree], Any]) -> Callable[[Tree], Tree]:
        def gradient(params: Tree) -> Tree:
            value, pull = vjp(function, params)
            return pull(torch.ones_like(value))[0]

        return gradient

    return grad, vjp


UNTRACEABLE = ("ConcretizationTypeError", *(f"Tracer{what}ConversionError" for what in ("Array", "Bool", "Integer")))
"""What JAX raises where a function needs a number while it is traced, as `if` and ``item()`` do."""


def untraceable(error: BaseException) -> bool:
    """Whether JAX raised this because a function needs a number while it is traced."""
    return type(error).__name__ in UNTRACEABLE or type(error).__name__ == "NonConcreteBooleanIndexError"


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of trees of arrays under jit, whose program is shared with all functions that give the same one.

    `gradgate.check` makes its functions anew in each call, so JAX, which tells its compiled programs apart by their
    functions, would compile the same ones again. Each call is traced and lowered, because a function may read what has
    changed since; the text of the lowered program, with its constants in it, is what tells programs apart here.

    Returns:
        What ``jax.jit(function)`` is, without its attributes. Arrays that are committed to a device are given to that.

    Cost: tracing, lowering and, for a program that is not kept, compiling, once for each structure, shapes and dtypes;
        some 50 µs a call.
    """
    import jax

    jitted = jax.jit(function)
    flat: dict[Any, Any] = {}
    made = _Made()
    _ALL_MADE.add(made)

    def call(*trees: Any) -> Any:
        given, structure = jax.tree.flatten(trees)
        if any(getattr(leaf, "committed", False) for leaf in given):
            return jitted(*trees)
        if structure not in flat:
            # What a program does not use stays an argument, so that two programs with one text have the same ones.
            flat[structure] = jax.jit(functools.partial(_unflattened, function, structure), keep_unused=True)
        traced = flat[structure].trace(*given)
        if id(traced.jaxpr) not in made.programs:
            program = _shared_program(traced, len(given))
            made.programs[id(traced.jaxpr)] = traced.jaxpr, program, jax.tree.structure(traced.out_info)
        _, program, outputs = made.programs[id(traced.jaxpr)]
        return jax.tree.unflatten(outputs, jax.tree.leaves(program(*given)))

    return call


class _Made:
    """The compiled programs of one function that `shared` returned, by the identity of what was traced."""

    def __init__(self) -> None:
        self.programs: dict[int, tuple[Any, Any, Any]] = {}


_ALL_MADE: weakref.WeakSet[_Made] = weakref.WeakSet()


def forget_programs() -> None:
    """Drop every program that `shared` keeps, for itself and for the functions that it returned."""
    _PROGRAMS.clear()
    for made in _ALL_MADE:
        made.programs.clear()


def _unflattened(function: Callable[..., Any], structure: Any, *given: Any) -> Any:
    import jax

    return function(*jax.tree.unflatten(structure, given))


def _shared_program(traced: Any, arguments: int) -> Any:
    """The compiled program, a kept one if there is one with the same text.

    One that calls back into Python is its own, and so is one whose text lacks constants: they are arguments then.
    """
    lowered = traced.lower()
    text = lowered.as_text()
    head = re.search(r"@main\((.*)\) *->", text)
    if "callback" in text or head is None or len(re.findall(r"%arg\d+:", head[1])) != arguments:
        return lowered.compile()
    key = hashlib.sha256(text.encode()).hexdigest()
    if key not in _PROGRAMS:
        _PROGRAMS[key] = lowered.compile()
        while len(_PROGRAMS) > MOST_PROGRAMS:
            _PROGRAMS.popitem(last=False)
    _PROGRAMS.move_to_end(key)
    return _PROGRAMS[key]


def jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX under jit; or, from the first call on that cannot be traced, without it."""
    run = shared(function)

    def call(*trees: Tree) -> Any:
        nonlocal run
        try:
            return run(*trees)
        except Exception as error:
            if not untraceable(error):
                raise
        run = on_device(function)
        return run(*trees)

    return call


def on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of trees that gets arrays of JAX in the place of NumPy's, as a compiled function does."""
    import jax

    def call(*trees: Tree) -> Any:
        return function(*jax.tree.map(jax.numpy.asarray, trees))

    return call


def mark_calls(
    backend: str, function: Callable[..., Any], name: str, on_call: OnCall, weight: Callable[..., int]
) -> Callable[..., Any]:
    """`function` with its evaluations, JVPs and VJPs counted; its results are the same (see ``hw_profiles.calls``).

    Args:
        backend: in NumPy nothing is counted.
        function: takes arrays of the backend.
        name: the name under which calls are counted.
        on_call: receives (name, kind of call, number).
        weight: takes the function's arguments and returns how many calls this call counts as.
    """
    from gradgate.hw_profiles import calls

    if backend == "jax":
        return calls.marked(function, name, weight, on_call)
    return calls.torch_marked(function, name, on_call, weight) if backend == "torch" else function


def tree_map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply `function` to the corresponding leaves of trees of the same structure (dicts, lists, tuples)."""
    if isinstance(tree, dict):
        return {key: tree_map(function, tree[key], *(other[key] for other in rest)) for key in tree}
    if isinstance(tree, (list, tuple)):
        return type(tree)([tree_map(function, *items) for items in zip(tree, *rest, strict=True)])
    return function(tree, *rest)


def named_leaves(tree: Tree, path: str = "") -> dict[str, Any]:
    """Leaf path -> leaf, for example ``layers.A.w0``; dict keys in sorted order."""
    if isinstance(tree, dict):
        items = [(f"{path}.{key}" if path else str(key), tree[key]) for key in sorted(tree, key=str)]
    elif isinstance(tree, (list, tuple)):
        items = [(f"{path}[{i}]", item) for i, item in enumerate(tree)]
    else:
        return {path: tree}
    return {name: leaf for prefix, item in items for name, leaf in named_leaves(item, prefix).items()}


def leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree, in the order of `named_leaves`."""
    return list(named_leaves(tree).values())
