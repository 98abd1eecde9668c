"""Random keys and bits: data, the same for every program that draws them.

A key is one element of an object array, so that arrays of keys are reshaped, sliced and chosen like any others. Bits of
Threefry, JAX's default, are computed in NumPy; those of other generators by JAX itself.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.keys import array_of
from gradgate.suites.exact.on_jax.rules import Run, rule


def _words(keys: Any) -> Any:
    """(…, words) of an array of keys."""
    rows = [key.words for key in keys.ravel().tolist()]
    return np.array(rows, np.uint32).reshape(*keys.shape, -1)


_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(keys: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """The hash of two words each under keys (…, 2), broadcast (Salmon et al. 2011, 20 rounds)."""
    first, second = keys[..., 0], keys[..., 1]
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    one, other = high + schedule[0], low + schedule[1]
    for block in range(5):
        for turn in _TURNS[block % 2]:
            one = one + other
            other = ((other << np.uint32(turn)) | (other >> np.uint32(32 - turn))) ^ one
        one = one + schedule[(block + 1) % 3]
        other = other + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return one, other


def _counted(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The numbers of the elements, upper and lower word."""
    numbers = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)


def _generator(atom: Any) -> Any:
    """The generator of an array of keys.

    Raises:
        Unknown: it is not Threefry with JAX's default way of counting.
    """
    impl = atom.aval.dtype._impl
    if impl.name != "threefry2x32" or not jax.config.values["jax_threefry_partitionable"]:
        raise balls.Unknown(f"random keys of {impl.name}")
    return impl


def _seeded(seeds: Any) -> Any:
    """Words (…, 2) of integer seeds; for narrow integers the upper word is zero."""
    wide = seeds.astype(np.dtype(f"u{seeds.dtype.itemsize}")).astype(np.uint64)
    return np.stack([(wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)], -1)


@rule("random_seed")
def seed(equation: Any) -> Run:
    """Keys made from integers."""
    _generator(equation.outvars[0])
    return lambda seeds: array_of(_seeded(seeds))


@rule("random_wrap")
def wrap(equation: Any) -> Run:
    """Keys made from their words."""
    return array_of


@rule("random_unwrap")
def unwrap(equation: Any) -> Run:
    """The words of keys."""
    return _words


@rule("random_split")
def split(equation: Any) -> Run:
    """Several keys made from each key."""
    _generator(equation.invars[0])
    shape = tuple(equation.params["shape"])
    high, low = _counted(shape)
    return lambda keys: array_of(np.stack(threefry(_spread(keys, len(shape)), high, low), -1))


def _spread(keys: Any, rank: int) -> Any:
    """Words of keys, with new dimensions for the numbers that are drawn from each key."""
    words = _words(keys)
    return words.reshape(keys.shape + (1,) * rank + words.shape[-1:])


@rule("random_fold_in")
def fold_in(equation: Any) -> Run:
    """Keys made from keys and integers."""
    _generator(equation.invars[0])

    def run(keys: Any, numbers: Any) -> Any:
        counted = _seeded(numbers.astype(np.uint32))
        return array_of(np.stack(threefry(_words(keys), counted[..., 0], counted[..., 1]), -1))

    return run


@rule("random_bits")
def bits(equation: Any) -> Run:
    """Bits drawn from each key."""
    _generator(equation.invars[0])
    shape, width = tuple(equation.params["shape"]), equation.params["bit_width"]
    dtype = equation.outvars[0].aval.dtype
    high, low = _counted(shape)

    def run(keys: Any) -> Any:
        one, other = threefry(_spread(keys, len(shape)), high, low)
        if width == 64:
            return (one.astype(np.uint64) << np.uint64(32)) | other.astype(np.uint64)
        return (one ^ other).astype(dtype)

    return run


@rule("threefry2x32")
def hashed(equation: Any) -> Run:
    """The hash itself."""
    return lambda first, second, high, low: list(threefry(np.stack(np.broadcast_arrays(first, second), -1), high, low))
