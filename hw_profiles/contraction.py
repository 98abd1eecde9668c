"""Sums of products: how many products a matrix product or a convolution has, and how many sums they form.

A sum of n terms has n − 1 additions. So a product of matrices (m, k) and (k, n) takes m·n·(2k − 1) operations. An outer
product, k = 1, has no addition, and for k = 0 nothing is computed. Papers, compilers and peak rates count 2·m·n·k
instead, as if every sum began with an addition to zero; this is `Contraction.nominal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple


@dataclass(frozen=True)
class Contraction:
    """The products and sums of one operation.

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
        """The sum of both, for two operations one after the other."""
        return Contraction(self.products + other.products, self.sums + other.sums)

    def operations(self, product: int = 1, addition: int = 1) -> int:
        """The number of real operations, if one product takes `product` of them and one addition takes `addition`."""
        return self.products * product + (self.products - self.sums) * addition

    def nominal(self, product: int = 1, addition: int = 1) -> int:
        """The same number by the convention of papers, compilers and peak rates: one addition for every product."""
        return self.products * (product + addition)


class Axis(NamedTuple):
    """One axis of a window that moves over an input; padding and the holes of a dilation are not in the input.

    Attributes:
        pairs: number of pairs (position of the window, position within it) that lie on an element of the input.
        results: number of positions of the window that cover at least one element of the input.
        inputs: number of elements of the input that the window covers at one position or more.
        taps: number of positions within the window that ever lie on an element of the input.
    """

    pairs: int
    results: int
    inputs: int
    taps: int


@lru_cache(maxsize=4096)
def axis(size: int, window: int, results: int, stride: int = 1, low: int = 0, hole: int = 1, spread: int = 1) -> Axis:
    """Count the elements that a window covers along one axis.

    Args:
        size: elements of the input.
        window: elements of the window.
        results: number of positions of the window.
        stride: distance between two positions.
        low: elements of padding in front of the input; negative if the input is cropped.
        hole: distance between two elements of the input; above 1 in a transposed convolution.
        spread: distance between two elements of the window; above 1 in a dilated convolution.

    Cost: about `size` + `window` + `results` steps, once for each set of arguments.
    """
    # At position o, tap k lies on element p if o·stride + k·spread − low = p·hole. Any two of o, k, p give the third.
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
        batch: number of samples of the result.
        inputs: number of channels of the input, in all groups together.
        outputs: number of channels of the result.
        groups: number of groups of channels; channels of different groups are not multiplied.
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
        """Products and sums of the convolution."""
        return self._sums(self.batch * self.outputs * prod(each.results for each in self.axes))

    @property
    def input_gradient(self) -> Contraction:
        """Products and sums of the gradient with respect to the input, which is the transposed convolution."""
        return self._sums(self.batch * self.inputs * prod(each.inputs for each in self.axes))

    @property
    def kernel_gradient(self) -> Contraction:
        """Products and sums of the gradient with respect to the kernel."""
        return self._sums(self.outputs * (self.inputs // self.groups) * prod(each.taps for each in self.axes))

    def _sums(self, sums: int) -> Contraction:
        return Contraction(self.products, sums if self.products else 0)
