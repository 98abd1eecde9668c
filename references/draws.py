"""The numbers of a Problem as a layout of draws, so that its shapes are known before numbers are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import all_to_backend, namespace, precision, tree_map
from gradgate.references.contract import Backend, Problem, Spec, Tree


@dataclass(frozen=True)
class Normal:
    """Normal numbers of this shape, times `scale`, plus `shift`; floating, in the Spec's dtype."""

    shape: tuple[int, ...]
    scale: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class Integers:
    """int32 numbers of this shape, uniform in 0 … below − 1."""

    shape: tuple[int, ...]
    below: int


@dataclass(frozen=True)
class Constant:
    """One number, in the Spec's dtype."""

    value: float
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shaped:
    """An array of this shape and dtype whose numbers are drawn elsewhere."""

    shape: tuple[int, ...]
    dtype: str


def draw(layout: Tree, spec: Spec, backend: Backend) -> Tree:
    """The arrays of a layout, drawn one after another in its order from the Spec's seed.

    Numbers are drawn in float64, rounded to float32 (or bfloat16), and only then cast to the dtype. So the float32 and
    the float64 Problem of one seed have equal numbers, and their results differ by rounding alone.
    """
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(spec.seed))

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Integers):
            return rng.integers(0, leaf.below, leaf.shape).astype(np.int32)
        if isinstance(leaf, Constant):
            number = np.asarray(leaf.value)
        else:
            number = rng.standard_normal(leaf.shape) * leaf.scale + leaf.shift
        return rounded(number, spec.dtype)

    with precision(backend, spec.dtype):
        return all_to_backend(backend, tree_map(one, layout), spec.dtype)


def shapes(spec: Spec) -> Problem:
    """The JAX Problem of a Spec with `jax.ShapeDtypeStruct` in place of arrays: for tracing, not for running.

    Cost: nothing is drawn or allocated if the Spec has a `layout`; otherwise the Problem is built and dropped.
    """
    import jax

    namespace("jax")  # registers Problems as pytrees

    def structure(leaf: Any) -> Any:
        dtype = "int32" if isinstance(leaf, Integers) else getattr(leaf, "dtype", spec.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype)

    laid_out = spec.layout()
    if laid_out is None:
        built = spec.build("jax")
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), built)
    cls, params, data = laid_out
    return cls(spec.static(), "jax", tree_map(structure, params), tree_map(structure, data))


def rounded(leaf: Any, dtype: str) -> Any:
    """A NumPy array rounded to float32, and then to a narrower `dtype`, to nearest even."""
    import numpy as np

    single = leaf.astype(np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            single = single.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = single.view(np.uint32) if single.ndim else single.reshape(1).view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        single = bits.astype(np.uint32).view(np.float32).reshape(single.shape)
    return single
