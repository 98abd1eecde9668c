"""How the inputs of a pair are drawn: from named dims and a seed, never element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.contract import UsageError
from gradgate.suites.pairs import expressions

WIDTHS = ("bfloat16", "float32", "float64")
"""Dtypes, the narrowest first."""


@dataclass(frozen=True)
class Draw:
    """One input, or one leaf of an input.

    Attributes:
        dims: the shape: dims, numbers and products of them, with blanks between, such as ``"T 2*H"``; ``""`` is a
            scalar.
        kind: ``normal``, ``uniform``, ``integers``, ``mask``, ``constant`` or ``key``.
        low, high: the parameters of the kind: numbers or expressions of dims.
        gradient: whether it is a floating input that gets a gradient.
        dtype: the functions get a floating input in this dtype or a wider one; "" if it has the dtype of the other
            inputs, as nearly all have. Weights that stay in float32 while activations are in bfloat16 have ``float32``.
    """

    dims: str
    kind: str
    low: str | float = 0.0
    high: str | float = 1.0
    gradient: bool = True
    dtype: str = ""

    @property
    def floating(self) -> bool:
        """Whether its numbers are floats."""
        return self.kind in ("normal", "uniform", "constant")

    def check(self, dims: Iterable[str], what: str) -> None:
        """Check that it names declared dims only.

        Raises:
            UsageError: it does not.
        """
        if not isinstance(self.dims, str):
            raise UsageError(f"{what}: dims are a string such as 'T H', not {self.dims!r}")
        for text in (*self.dims.split(), self.low, self.high):
            expressions.check(text, dims, what)
        if self.floating and self.dtype not in ("", *WIDTHS):
            raise UsageError(
                f"{what}: no numbers of {self.dtype} are drawn; legal: {', '.join(WIDTHS)}. A function of complex or "
                "narrower numbers casts its inputs itself, and returns real ones"
            )

    def shape(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at these sizes.

        Raises:
            UsageError: a size is negative or no whole number.
        """
        sizes = tuple(expressions.evaluate(_number(text), dims) for text in self.dims.split())
        for text, size in zip(self.dims.split(), sizes, strict=True):
            if size != int(size) or size < 0:
                raise UsageError(f"{text!r} is {size} at {dict(dims)}: sizes are whole numbers of at least 0")
        return tuple(int(size) for size in sizes)

    def count(self, dims: Mapping[str, int]) -> int:
        """The number of elements at these sizes."""
        return math.prod(self.shape(dims))

    def possible(self, dims: Mapping[str, int]) -> bool:
        """Whether any number can be drawn: of integers from 0 to below 0, none can."""
        low, high = (expressions.evaluate(end, dims) for end in (self.low, self.high))
        return self.kind != "integers" or high > low

    def drawn(self, dims: Mapping[str, int], rng: np.random.Generator) -> Any:
        """A NumPy array: floats in float64, integers in int32, masks in bool, keys as two uint32."""
        shape = self.shape(dims)
        low, high = (expressions.evaluate(end, dims) for end in (self.low, self.high))
        if self.kind == "normal":
            return low + high * rng.standard_normal(shape)
        if self.kind == "uniform":
            return rng.uniform(low, high, shape)
        if self.kind == "integers":
            return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(np.int32)
        if self.kind == "mask":
            return rng.random(shape) < low
        if self.kind == "key":
            return rng.integers(0, 2**32, 2, dtype=np.uint32)
        return np.full(shape, float(low))


def _number(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def normal(
    dims: str, *, scale: str | float = 1.0, mean: str | float = 0.0, gradient: bool = True, dtype: str = ""
) -> Draw:
    """Normal numbers.

    Args:
        dims: the shape, such as ``"T H"``.
        scale: standard deviation: a number, or an expression of dims such as ``"H**-0.5"``.
        mean: the mean: also a number or an expression of dims.
        gradient: whether the input gets a gradient.
        dtype: ``float32`` for an input that stays in float32 where the others are bfloat16.

    Example::

        inputs={"x": normal("T H"), "weight": normal("V H", scale="H**-0.5"), "gain": normal("H", dtype="float32")}
    """
    return Draw(dims, "normal", mean, scale, gradient, dtype)


def uniform(dims: str, low: str | float = 0.0, high: str | float = 1.0, *, gradient: bool = True) -> Draw:
    """Uniformly distributed numbers between `low` and `high`; other arguments as for `normal`.

    Example::

        inputs={"decay": uniform("T H", 0.9, 1.0)}
    """
    return Draw(dims, "uniform", low, high, gradient)


def integers(dims: str, *, below: str | int, low: str | int = 0) -> Draw:
    """Whole numbers of `low` … `below` − 1, int64 in PyTorch and int32 in JAX: data, without a gradient.

    Args:
        dims: the shape.
        below, low: numbers or expressions of dims. Sizes at which no number is possible are left out.

    Example::

        inputs={"labels": integers("T", below="V")}
    """
    return Draw(dims, "integers", low, below, False)


def mask(dims: str, *, share: float = 0.5) -> Draw:
    """Booleans, a `share` (0 to 1) of them true: data, without a gradient.

    Example::

        inputs={"real": mask("B T", share=0.9)}
    """
    return Draw(dims, "mask", share, 1.0, False)


def constant(value: float, dims: str = "", *, gradient: bool = True) -> Draw:
    """The same floating number everywhere, `value`; a scalar unless `dims` are given.

    Example::

        inputs={"epsilon": constant(1e-6, gradient=False)}
    """
    return Draw(dims, "constant", value, 1.0, gradient)


def key(*, typed: bool = False) -> Draw:
    """A key of JAX's random numbers: both functions get the same key.

    Args:
        typed: whether it is a typed key, as `jax.random.key` makes, and not two uint32.

    Not for: PyTorch, where `Pair.random` seeds the global generator.

    Example::

        inputs={"x": normal("T H"), "dropout": key()}
    """
    return Draw("2", "key", 0.0, 1.0, False, "typed" if typed else "")


def typed(words: Any) -> Any:
    """The typed key with these two uint32."""
    import jax

    return jax.random.wrap_key_data(jax.numpy.asarray(words))
