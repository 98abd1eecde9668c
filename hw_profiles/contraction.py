"""Sums of products: how many products a matrix product or a convolution makes, and into how many sums they go.

A sum of n terms has n − 1 additions. So a product of matrices (m, k) and (k, n) takes m·n·(2k − 1) operations, an outer
product, k = 1, no addition, and nothing at all is computed where k = 0. Papers, compilers and peak rates count 2·m·n·k
instead, as if every sum began with an addition to zero: `Contraction.nominal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple


@dataclass(frozen=True)
class Contraction:
    """What one operation multiplies and adds up.

    Attributes:
        products: multiplications.
        sums: results that have at least one term.
    """

    products: int
    sums: int

    @classmethod
    def of_matrices(cls, results: int, depth: int) -> Contraction:
        """Each result is a sum of `depth` products."""
        return cls(results * depth, results if depth else 0)

    def __add__(self, other: Contraction) -> Contraction:
        """Both, one after the other."""
        return Contraction(self.products + other.products, self.sums + other.sums)

    def operations(self, product: int = 1, addition: int = 1) -> int:
        """Floating-point operations, with the real operations that one product and one addition take."""
        return self.products * product + (self.products - self.sums) * addition

    def nominal(self, product: int = 1, addition: int = 1) -> int:
        """The same by the convention of papers, compilers and peak rates: one addition for every product."""
        return self.products * (product + addition)


class Axis(NamedTuple):
    """One axis of a window that moves over an input; padding and the holes of a dilation are not in the input.

    Attributes:
        pairs: (place of the window, place within it) that meet an element of the input.
        results: places of the window that meet any.
        inputs: elements of the input that any place of the window meets.
        taps: places within the window that meet any element.
    """

    pairs: int
    results: int
    inputs: int
    taps: int


@lru_cache(maxsize=4096)
def axis(size: int, window: int, results: int, stride: int = 1, low: int = 0, hole: int = 1, spread: int = 1) -> Axis:
    """Count what a window meets along one axis.

    Args:
        size: elements of the input.
        window: elements of the window.
        results: places at which the window is put down.
        stride: between these.
        low: elements of padding in front of the input, negative where it is cut.
        hole: 1, or the distance to which the input's elements are spread out (transposed convolution).
        spread: 1, or that of the window's (dilation).

    Cost: about `size` + `window` + `results` steps, once for each set of arguments.
    """
    # Place o and tap k meet element p where o·stride + k·spread − low = p·hole; any two of them give the third.
    by_tap = [_met(k * spread - low, stride, results, size, hole) for k in range(window)]
    by_place = [_met(o * stride - low, spread, window, size, hole) for o in range(results)]
    last = (window - 1) * spread
    by_element = [_met(p * hole + low - last, spread, window, results, stride) for p in range(size)]
    return Axis(sum(by_tap), *(sum(map(bool, each)) for each in (by_place, by_element, by_tap)))


def _met(start: int, step: int, number: int, size: int, hole: int) -> int:
    """How many of start, start + step, … (`number` of them) are among 0, hole, …, (size − 1)·hole."""
    first = max(0, -(start // step))
    end = min(number, ((size - 1) * hole - start) // step + 1)
    period = hole // gcd(step, hole)
    for i in range(first, min(end, first + period)):
        if (start + i * step) % hole == 0:
            return (end - 1 - i) // period + 1
    return 0


@dataclass(frozen=True)
class Convolution:
    """A convolution and its two gradients, which are sums of the same products.

    Attributes:
        axes: one for every spatial axis.
        batch: samples of the result.
        inputs: channels of the input, of all groups together.
        outputs: channels of the result.
        groups: 1, or the groups of channels that do not meet.
    """

    axes: Sequence[Axis]
    batch: int
    inputs: int
    outputs: int
    groups: int = 1

    @property
    def products(self) -> int:
        """Multiplications, the same for the result and for either gradient."""
        return self.batch * self.outputs * (self.inputs // self.groups) * prod(each.pairs for each in self.axes)

    @property
    def result(self) -> Contraction:
        """Of the convolution."""
        return self._sums(self.batch * self.outputs * prod(each.results for each in self.axes))

    @property
    def input_gradient(self) -> Contraction:
        """Of the gradient by its input, which is the transposed convolution."""
        return self._sums(self.batch * self.inputs * prod(each.inputs for each in self.axes))

    @property
    def kernel_gradient(self) -> Contraction:
        """Of the gradient by its kernel."""
        return self._sums(self.outputs * (self.inputs // self.groups) * prod(each.taps for each in self.axes))

    def _sums(self, sums: int) -> Contraction:
        return Contraction(self.products, sums if self.products else 0)
