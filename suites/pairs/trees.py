"""Trees of inputs and outputs, flattened to paths: whatever the framework calls a pytree."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gradgate.references.contract import UsageError

WHOLE = "output"
"""The path of an output that is no tree."""


def flatten(framework: str, tree: Any) -> tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]:
    """Path -> leaf, and the function that puts leaves of these paths back into the tree.

    Paths read as the tree is written: ``[0]``, ``loss``, ``layers[2].weight``; that of a lone leaf is ``output``.
    """
    if framework == "jax":
        import jax

        pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = _names([jax.tree_util.keystr(path) for path, _ in pairs])
        return dict(zip(names, [leaf for _, leaf in pairs], strict=True)), lambda leaves: jax.tree.unflatten(
            structure, [leaves[name] for name in names]
        )
    from torch.utils import _pytree

    pairs, structure = _pytree.tree_flatten_with_path(tree)
    names = _names([_pytree.keystr(path) for path, _ in pairs])
    return dict(zip(names, [leaf for _, leaf in pairs], strict=True)), lambda leaves: _pytree.tree_unflatten(
        [leaves[name] for name in names], structure
    )


def _names(paths: list[str]) -> list[str]:
    """The paths as one would write them; a path stays the framework's own if another leaf would get the same name."""
    plain = [_plain(path) for path in paths]
    times = Counter(plain)
    return [name if times[name] == 1 else path for name, path in zip(plain, paths, strict=True)]


def joined(name: str, path: str) -> str:
    """The path of a leaf below a name: ``x``, ``x[0]``, ``layers.w``."""
    return name if path == WHOLE else f"{name}{path}" if path.startswith("[") else f"{name}.{path}"


def _plain(path: str) -> str:
    """A framework's path as one would write it: ``['a'][0]`` is ``a[0]``."""
    return re.sub(r"\['([^']*)'\]", r".\1", path).lstrip(".") or WHOLE


def usual(who: str, role: str, flat: dict[str, Any]) -> dict[str, Any]:
    """The outputs as they are, if each is dense and of a dtype that can be judged.

    Raises:
        UsageError: an output of the reference is not; says what to return in its place.
        Refuted: an output of the function is not.
    """
    for path, leaf in flat.items():
        kind = str(getattr(leaf, "dtype", "")).removeprefix("torch.")
        layout = str(getattr(leaf, "layout", "torch.strided")).removeprefix("torch.")
        what, instead = next(((name, way) for start, name, way in _UNUSUAL if kind.startswith(start)), ("", ""))
        if layout.startswith("sparse"):
            what, instead = "sparse", "y.to_dense()"
        if what and role == "reference":
            raise UsageError(f"{who}: output {path} of the reference is {what}: let both functions return {instead}")
        if what:
            from gradgate.suites.judging.subject import Refuted

            raise Refuted(f"another function: output {path} is {what}; the reference's is not", path)
    return flat


_UNUSUAL = (
    ("complex", "complex", "its real and imaginary part, such as torch.view_as_real(y), so that each gets a cotangent"),
    ("float8", "of float8", "it in float32, as y.float() or y.astype('float32')"),
    ("key<", "a typed key", "its words, jax.random.key_data(y)"),
)
"""The start of a dtype's name, what an output of it is, and what to return in its place."""


def is_array(framework: str, leaf: Any) -> bool:
    """Whether a leaf is an array of this framework (or of NumPy, which JAX takes as its own)."""
    if framework == "torch":
        import torch

        return isinstance(leaf, torch.Tensor)
    import jax
    import numpy as np

    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def is_floating(framework: str, leaf: Any) -> bool:
    """Whether a leaf is a real floating array of this framework, or what a trace has in its place."""
    if framework == "torch":
        import torch

        return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    import jax.numpy as jnp

    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.floating)


def is_complex(framework: str, leaf: Any) -> bool:
    """Whether a leaf is a complex array of this framework, or what a trace has in its place."""
    if framework == "torch":
        import torch

        return isinstance(leaf, torch.Tensor) and leaf.is_complex()
    import jax.numpy as jnp

    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.complexfloating)


DEEP = 4
"""How deep `opaque` looks into an object."""


def opaque(framework: str, leaf: Any, deep: int = DEEP) -> bool:
    """Whether a leaf, which is no array, holds floating arrays where the framework does not look for them.

    This is so for a dataclass, or a class of one's own, that is not registered as a pytree.
    """
    if leaf is None or isinstance(leaf, (str, bytes, int, float, complex, type)) or callable(leaf):
        return False
    if dataclasses.is_dataclass(leaf):
        inside: Any = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    elif isinstance(leaf, Mapping):
        inside = list(leaf.values())
    elif isinstance(leaf, (list, tuple, set, frozenset)):
        inside = list(leaf)
    else:
        inside = list(getattr(leaf, "__dict__", {}).values())
    arrays = [one for one in inside if is_array(framework, one)]
    if any(is_floating(framework, one) or is_complex(framework, one) for one in arrays):
        return True
    return deep > 1 and any(opaque(framework, one, deep - 1) for one in inside if not is_array(framework, one))
