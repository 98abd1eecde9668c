"""How the inputs of a pair are drawn: from named dims and a seed, never element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.contract import UsageError
from gradgate.suites.pairs import expressions

WIDTHS = ("bfloat16", "float16", "float32", "float64")
"""Dtypes, the narrowest first."""
FLOAT8 = {"float8_e4m3fn": (4, -6, 448.0), "float8_e5m2": (3, -14, 57344.0)}
"""Dtypes of data alone -> significant bits, the least exponent of a normal number, the largest number."""


LEGAL = ("positive", "between", "simplex", "spd", "distinct")
"""Kinds that say which numbers are legal; the search for unseen sides of decisions tries others of these."""
SMALLEST = 1e-8
"""The smallest positive number that is tried for an input that is positive."""
CONDITION = 1e-6
"""The smallest eigenvalue, relative to the largest, that is tried for a positive definite matrix."""
GAP = 2.0**-10
"""Distance of numbers that have to differ, relative to the largest, where a change made them equal."""


@dataclass(frozen=True)
class Draw:
    """One input, or one leaf of an input.

    Attributes:
        dims: the shape: dims, numbers and products of them, with blanks between, such as ``"T 2*H"``; ``""`` is a
            scalar.
        kind: ``normal``, ``uniform``, ``positive``, ``between``, ``simplex``, ``spd``, ``distinct``, ``integers``,
            ``mask``, ``constant`` or ``key``.
        low, high: the parameters of the kind: numbers or expressions of dims.
        gradient: whether it is a floating input that gets a gradient.
        dtype: the functions get a floating input in this dtype or a wider one; "" if it has the dtype of the other
            inputs, as nearly all have. Weights that stay in float32 while activations are in bfloat16 have ``float32``.
            ``float8_e4m3fn`` and ``float8_e5m2`` are of data, and stay.
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
        return self.kind in ("normal", "uniform", "constant", *LEGAL)

    @property
    def searched(self) -> bool:
        """Whether numbers that no draw has may be tried: the draw says which are legal, or all numbers about 0 are."""
        return self.kind in LEGAL or (self.kind == "normal" and self.low in (0, "0"))

    def check(self, dims: Iterable[str], what: str) -> None:
        """Check that it names declared dims only.

        Raises:
            UsageError: it does not.
        """
        if not isinstance(self.dims, str):
            raise UsageError(f"{what}: dims are a string such as 'T H', not {self.dims!r}")
        for text in (*self.dims.split(), self.low, self.high):
            expressions.check(text, dims, what)
        if self.floating and self.dtype not in ("", *WIDTHS, *FLOAT8):
            raise UsageError(
                f"{what}: no numbers of {self.dtype} are drawn; legal: {', '.join((*WIDTHS, *FLOAT8))}. A function of "
                "complex numbers casts its inputs itself, and returns real ones"
            )
        if self.kind == "simplex" and not self.dims.split():
            raise UsageError(f"{what}: a simplex has at least one dim, along which its numbers add up to 1")
        if self.kind == "spd" and (len(self.dims.split()) < 2 or len(set(self.dims.split()[-2:])) > 1):
            raise UsageError(f"{what}: the matrices of spd are square, such as 'B N N', not {self.dims!r}")
        if self.dtype in FLOAT8 and self.gradient:
            raise UsageError(
                f"{what}: numbers of {self.dtype} are data: gradient=False. Their scale is an input of its own, which "
                "may get a gradient"
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
            numbers = low + high * rng.standard_normal(shape)
            return _in_eight_bits(numbers, *FLOAT8[self.dtype]) if self.dtype in FLOAT8 else numbers
        if self.kind in ("uniform", "between"):
            return rng.uniform(low, high, shape)
        if self.kind == "positive":
            return high * np.exp(rng.standard_normal(shape))
        if self.kind == "simplex":
            return self.legal(rng.exponential(size=shape), dims)
        if self.kind == "spd":
            factor = rng.standard_normal(shape)
            return high * (factor @ np.swapaxes(factor, -1, -2) / shape[-1] + 0.1 * np.eye(shape[-1]))
        if self.kind == "distinct":
            count = math.prod(shape)
            return high * (rng.permutation(count) - (count - 1) / 2).reshape(shape) / max(1.0, count / 4)
        if self.kind == "integers":
            return rng.integers(int(low), max(int(high), int(low) + 1), shape).astype(np.int32)
        if self.kind == "mask":
            return rng.random(shape) < low
        if self.kind == "key":
            return rng.integers(0, 2**32, 2, dtype=np.uint32)
        return np.full(shape, float(low))

    def legal(self, array: Any, dims: Mapping[str, int]) -> Any:
        """The legal numbers next to an array's: itself, unless the kind says what is legal."""
        if self.kind == "between":
            low, high = (float(expressions.evaluate(end, dims)) for end in (self.low, self.high))
            return np.clip(array, low, high)
        if self.kind == "positive":
            return np.maximum(abs(array), SMALLEST)
        if self.kind == "simplex":
            weights = abs(array)
            total = weights.sum(-1, keepdims=True)
            return np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / max(1, array.shape[-1]))
        if self.kind == "spd" and array.size:
            values, vectors = np.linalg.eigh((array + np.swapaxes(array, -1, -2)) / 2)
            least = CONDITION * np.maximum(values.max(-1, keepdims=True), SMALLEST)
            made = (vectors * np.maximum(values, least)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
            return (made + np.swapaxes(made, -1, -2)) / 2
        if self.kind == "distinct" and len(np.unique(array)) < array.size:
            ranks = np.empty(array.size)
            ranks[np.argsort(array, axis=None, kind="stable")] = np.arange(array.size)
            return array + GAP * max(abs(array).max(initial=0.0), SMALLEST) * ranks.reshape(array.shape)
        return array


def _in_eight_bits(numbers: Any, bits: int, least: int, largest: float) -> Any:
    """The nearest numbers of a float8, halves to even; those beyond the largest become the largest."""
    exponents = np.maximum(np.frexp(numbers)[1] - 1, least)
    step = np.ldexp(1.0, exponents - (bits - 1))
    return np.clip(np.rint(numbers / step) * step, -largest, largest)


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
        dtype: ``float32`` for an input that stays in float32 where the others are bfloat16; ``float8_e4m3fn`` or
            ``float8_e5m2`` for data in eight bits, with ``gradient=False``.

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


def positive(dims: str, *, scale: str | float = 1.0, gradient: bool = True) -> Draw:
    """Positive numbers: `scale` times the exponential of normal ones; other arguments as for `normal`.

    Inputs that no draw has are tried as well, as for `normal`, and stay positive.

    Example::

        inputs={"rate": positive("T")}
    """
    return Draw(dims, "positive", 0.0, scale, gradient)


def between(dims: str, low: str | float, high: str | float, *, gradient: bool = True) -> Draw:
    """Numbers between `low` and `high`, drawn uniformly; other arguments as for `normal`.

    Unlike `uniform`, it says that every number between them is legal, `low` and `high` included, so all are tried.

    Example::

        inputs={"temperature": between("", 0.1, 10.0)}
    """
    return Draw(dims, "between", low, high, gradient)


def simplex(dims: str, *, gradient: bool = True) -> Draw:
    """Numbers that are not negative and add up to 1 along the last dim, drawn uniformly; for example probabilities.

    Rows of zeros and one 1, and rows of equal numbers, are tried as well.

    Example::

        inputs={"target": simplex("T V", gradient=False)}
    """
    return Draw(dims, "simplex", 0.0, 1.0, gradient)


def spd(dims: str, *, scale: str | float = 1.0, gradient: bool = True) -> Draw:
    """Symmetric positive definite matrices over the last two dims; other arguments as for `normal`.

    Matrices with a condition of up to 10⁶ are tried as well. A gradient is that with respect to every entry by itself.

    Example::

        inputs={"covariance": spd("B N N")}
    """
    return Draw(dims, "spd", 0.0, scale, gradient)


def distinct(dims: str, *, scale: str | float = 1.0, gradient: bool = True) -> Draw:
    """Different numbers, evenly spaced and in random order; other arguments as for `normal`.

    For functions that are not defined at ties, such as a sort whose gradient is a permutation.

    Example::

        inputs={"scores": distinct("T")}
    """
    return Draw(dims, "distinct", 0.0, scale, gradient)


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
