"""Trees of inputs and outputs, flattened to paths: whatever the framework calls a pytree."""

from __future__ import annotations

import re
from collections.abc import Callable
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
        texts = [jax.tree_util.keystr(path) for path, _ in pairs]
        names = [_plain(text) for text in texts]
        return dict(zip(names, [leaf for _, leaf in pairs], strict=True)), lambda leaves: jax.tree.unflatten(
            structure, [leaves[name] for name in names]
        )
    from torch.utils import _pytree

    pairs, structure = _pytree.tree_flatten_with_path(tree)
    names = [_plain(_pytree.keystr(path)) for path, _ in pairs]
    return dict(zip(names, [leaf for _, leaf in pairs], strict=True)), lambda leaves: _pytree.tree_unflatten(
        [leaves[name] for name in names], structure
    )


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
