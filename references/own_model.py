"""A user's own model: a class or function of sizes, which is called to make a model with numbers or with shapes alone.

The attributes of a made model are taken apart: ``params``, other trees of arrays, and the rest. The rest is the
template. `filled` puts arrays into it again: those of a Problem, in any dtype, or tracers.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree, UsageError
from gradgate.references.draws import Shaped

TAKEN = ("dtype", "upstream", "model", "served", "framework", "sizes", "shapes")
"""Names that every Spec of a model has, so no size may have them. It has ``seed`` too, which a model may take."""
LARGEST_SEED = 2**31
SPREAD = 0.1
"""For each seed but 0, the parameters of a model without ``seed`` are moved at random by at most this share."""


@dataclass(frozen=True)
class Parts:
    """A made model, taken apart.

    Attributes:
        template: the model without its arrays.
        params, data: trees of arrays or of `Shaped`; `data` is attribute -> tree.
        kinds: the frameworks of its parameters.
    """

    template: Any
    params: Tree
    data: dict[str, Tree]
    kinds: frozenset[str] = frozenset()


class _Argument:
    """Takes the place of ``params`` in the model. A function that read ``self.params`` would get no gradient."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("params are given to the model's functions as an argument; do not read self.params there")

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, "params")  # noqa: B009 - raises


@dataclass(frozen=True)
class Model:
    """A class or function of sizes.

    Attributes:
        target: the target that names it.
        made_by: the class or function, called with sizes by keyword.
        sizes: name -> default; they become fields of the Spec.
        seeded: whether it takes ``seed``.
        prepare: changes a made model before it is taken apart: it adds what a class of problems lets users leave out.
    """

    target: str
    made_by: Callable[..., Any]
    sizes: Mapping[str, Any]
    seeded: bool
    prepare: Callable[[Any], None]

    @classmethod
    def of(cls, target: str, made_by: Any, prepare: Callable[[Any], None]) -> Model:
        """The model that a target names.

        Raises:
            UsageError: it is no class or function, or the default of a size is missing or no number, text or flag.
        """
        if not callable(made_by):
            kind = type(made_by).__name__
            raise UsageError(f"{target} is of type {kind}; --problem names a class, or a function of sizes")
        sizes = {}
        for name, parameter in inspect.signature(made_by).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if not isinstance(parameter.default, (int, float, str)):
                raise UsageError(
                    f"{target}: give {name} a default that is a number or text, such as {name}=4; it is the size at "
                    "which gradients are judged, and --spec and --sweep set others"
                )
            if name in TAKEN:
                raise UsageError(f"{target}: every problem has a {name} already; call this argument something else")
            sizes[name] = parameter.default
        seeded = sizes.pop("seed", None) is not None
        return cls(target, made_by, sizes, seeded, prepare)

    def made(self, sizes: Mapping[str, Any], seed: int) -> Parts:
        """The model with numbers, as NumPy arrays. If the model takes no seed, the seed moves its parameters."""
        import numpy as np

        from gradgate.references.backends import to_numpy

        with _alone(), self.in_words(sizes):
            parts = self._parts(sizes, seed % LARGEST_SEED, to_numpy)
        if seed and not self.seeded:
            rng = np.random.Generator(np.random.PCG64(seed))
            moved = tree_map(lambda leaf: leaf * (1 + SPREAD * rng.uniform(-1, 1, leaf.shape)), parts.params)
            parts = replace(parts, params=moved)
        return parts

    def shaped(self, sizes: Mapping[str, Any], framework: str) -> Parts:
        """The model with `Shaped` in place of arrays; the model's JAX operations are then only traced.

        A model that needs numbers while it is made, for example because it uses NumPy, is made with numbers.
        """
        if framework == "jax":
            import jax

            found: list[Parts] = []

            def traced() -> Any:
                found.append(self._parts(sizes, 0))
                return found[0].params, found[0].data

            with contextlib.suppress(Exception), jax.enable_x64(False):
                params, data = jax.eval_shape(traced)
                return Parts(found[0].template, tree_map(_shaped, params), tree_map(_shaped, data))
        parts = self.made(sizes, 0)
        return Parts(parts.template, tree_map(_shaped, parts.params), tree_map(_shaped, parts.data))

    @contextlib.contextmanager
    def in_words(self, sizes: Mapping[str, Any]) -> Iterator[None]:
        """A scope in which an error of the model becomes a UsageError that names the line of its file."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:
            own = getattr(inspect.getmodule(self.made_by), "__file__", None)
            lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
            at = f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else ""
            said = str(error).strip().partition("\n")[0]
            listed = ", ".join(f"{name}={value!r}" for name, value in sizes.items())
            raise UsageError(f"{self.target} at {listed} raised {type(error).__name__}: {said}{at}") from error

    def _parts(self, sizes: Mapping[str, Any], seed: int, convert: Any = None) -> Parts:
        made = self.made_by(**sizes, **({"seed": seed} if self.seeded else {}))
        made = SimpleNamespace(**made) if isinstance(made, Mapping) else copy.copy(made)
        if not hasattr(made, "__dict__"):
            raise UsageError(f"{self.target} gives a {type(made).__name__}; it must give an object with attributes")
        self.prepare(made)
        given = {name: tree for name, tree in vars(made).items() if _of_arrays(tree)}
        if "upstream" in given:
            raise UsageError(
                f"{self.target}: every problem has an upstream already; call this attribute something else"
            )
        if "params" not in given:
            raise UsageError(
                f"{self.target} has no params: the tree (dicts, lists, tuples) of arrays that gets the gradient"
            )
        kinds = frozenset(kind_of(leaf) for leaf in leaves(given["params"]))
        if convert is not None:
            given = {name: tree_map(convert, tree) for name, tree in given.items()}
        for name in given:
            setattr(made, name, _Argument() if name == "params" else None)
        params = given.pop("params")
        return Parts(made, params, given, kinds)


def filled(template: Any, data: Mapping[str, Tree]) -> Any:
    """A copy of the template with these arrays as attributes."""
    model = copy.copy(template)
    for name, tree in data.items():
        if name != "upstream":
            setattr(model, name, tree)
    return model


def kind_of(leaf: Any) -> str:
    """The framework of an array: ``jax``, ``torch`` or ``numpy``; "" if it is no array."""
    for base in type(leaf).__mro__:
        module = base.__module__.partition(".")[0]
        if module in ("torch", "numpy") and hasattr(leaf, "shape"):
            return module
        if module in ("jax", "jaxlib") and hasattr(leaf, "shape"):
            return "jax"
    return ""


def _of_arrays(tree: Any) -> bool:
    found = leaves(tree) if isinstance(tree, (dict, list, tuple)) else [tree]
    return bool(found) and all(kind_of(leaf) for leaf in found)


def _shaped(leaf: Any) -> Shaped:
    kind, dtype = str(leaf.dtype), str(leaf.dtype)
    if "float" in kind:
        return Shaped(tuple(leaf.shape), "")
    return Shaped(tuple(leaf.shape), "int32" if "int" in kind else dtype)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A scope in which a model is made: its random numbers are the same each time; it restores global random state."""
    import sys

    import numpy as np

    with contextlib.ExitStack() as stack:
        kept = np.random.get_state()
        stack.callback(np.random.set_state, kept)
        np.random.seed(0)
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            stack.enter_context(torch.random.fork_rng())
            torch.manual_seed(0)
        if "jax" in sys.modules:
            jax = sys.modules["jax"]
            stack.enter_context(jax.enable_x64(False))
            stack.enter_context(jax.ensure_compile_time_eval())
        yield
