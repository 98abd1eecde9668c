"""An input that the search found, and that a claim refutes, made as simple as it can be and still be refuted.

First come fewer numbers: the smaller shapes of the pair. Then simpler numbers, input by input: all of them 0 or 1, else
as many as possible, and numbers of one digit in place of others. Halves are tried before single numbers. Then the
smaller shapes again, with the numbers that are left. Every step is
taken only if the claim is still refuted there, in the same way. The inputs that `unseen` may not change stay as drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.suites.pairs import unseen
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec

EACH = 32
"""Inputs with at most so many numbers are made simpler number by number, because the name of the regime has them."""
SHAPES = 3
"""Most smaller shapes that are tried, the smallest first."""


def _away(x: Any) -> Any:
    """Numbers of one digit, not nearer to zero."""
    size = 10.0 ** np.floor(np.log10(np.where(x == 0, 1.0, abs(x))))
    return np.sign(x) * np.ceil(abs(x) / size) * size


def _nearest(x: Any) -> Any:
    """The nearest numbers of one digit."""
    return np.array([float(f"{number:.0e}") for number in x])


STEPS: tuple[Callable[[Any], Any], ...] = (lambda x: 0 * x, lambda x: 0 * x + 1, _nearest, _away, np.round)
"""What numbers become, in the order in which it is tried."""


@dataclass
class Simpler:
    """The simplest problem so far.

    Attributes:
        refuted: judges a problem: whether the claim is refuted there in the same way.
        numbers: input -> its numbers, if they were made simpler.
        refused: regimes that are not refuted.
    """

    pair: Pair
    spec: PairSpec
    refuted: Callable[[PairSpec], bool]
    numbers: dict[str, Any] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def search(self, shapes: Sequence[Mapping[str, Any]]) -> None:
        """Make the problem simpler.

        Args:
            shapes: those of the pair, the smallest first.

        Cost: as many problems as `refuted` judges.
        """
        self._smaller(shapes)
        for leaf in unseen.free(self.pair):
            array = self._array(leaf)
            for step in STEPS[:2]:
                flat = step(array.ravel())
                if np.array_equal(flat, array.ravel()) or self._taken(leaf, flat):
                    break
            else:
                for step in STEPS if 0 < array.size <= EACH else ():
                    self._some(leaf, 0, array.size, step)
        self._smaller(shapes)

    def _smaller(self, shapes: Sequence[Mapping[str, Any]]) -> None:
        """Take the smallest shape at which the claim is refuted, with those numbers that are not simple."""
        size = self.pair.numbers(self.spec.fields)
        smaller = [dataclasses.replace(self.spec, **{**shape, "regime": self.spec.regime}) for shape in shapes]
        smaller = [spec for spec in smaller if 0 < self.pair.numbers(spec.fields) < size and _like(spec, self.spec)]
        for spec in smaller[:SHAPES]:
            counts = {leaf: self.pair.leaves[leaf].count(spec.sizes) for leaf in self.numbers}
            numbers = {leaf: _heaviest(values, counts[leaf]) for leaf, values in self.numbers.items()}
            name = unseen.simplified(self.spec.regime, numbers, self.pair) if numbers else self.spec.regime
            changed = dataclasses.replace(spec, regime=name)
            if self.refuted(changed):
                self.spec, self.numbers = changed, numbers
                return

    def _array(self, leaf: str) -> Any:
        return self.pair.drawn(self.spec)[leaf]

    def _some(self, leaf: str, start: int, stop: int, step: Callable[[Any], Any]) -> None:
        """Take a step with these numbers of an input, or else with each half of them."""
        now = self._array(leaf).ravel()
        if now.size > EACH:
            return
        tried = now.copy()
        tried[start:stop] = step(now[start:stop])
        better = np.array([_weight(one) < _weight(other) for one, other in zip(tried, now, strict=True)])
        tried = np.where(better, tried, now)
        if not better.any() or self._taken(leaf, tried) or stop - start < 2:
            return
        middle = (start + stop) // 2
        self._some(leaf, start, middle, step)
        self._some(leaf, middle, stop, step)

    def _taken(self, leaf: str, flat: Any) -> bool:
        """Go on with these numbers of an input if they are legal, other ones than now, and still refuted."""
        now = self._array(leaf)
        legal = self.pair.leaves[leaf].legal(flat.reshape(now.shape), self.spec.sizes)
        if not now.size or not np.array_equal(legal.ravel(), flat) or np.array_equal(flat, now.ravel()):
            return False
        short = flat[:1] if (flat == flat[0]).all() else flat
        numbers = {**self.numbers, leaf: short.tolist()}
        spec = dataclasses.replace(self.spec, regime=unseen.simplified(self.spec.regime, numbers, self.pair))
        if spec.regime in self.refused or not self.refuted(spec):
            self.refused.add(spec.regime)
            return False
        self.spec, self.numbers = spec, numbers
        return True


def _heaviest(values: Sequence[float], count: int) -> list[float]:
    """The numbers of which there is most to read, in their order.

    >>> _heaviest([0.0, 30.0, 0.0, 2.5], 2), _heaviest([0.0], 2)
    ([30.0, 2.5], [0.0])
    """
    order = sorted(range(len(values)), key=lambda place: _weight(values[place]), reverse=True)
    return [values[place] for place in sorted(order[:count])]


def _like(spec: PairSpec, other: PairSpec) -> bool:
    """Whether two problems have the same shared options."""
    return all(getattr(spec, name) == getattr(other, name) for name in spec.pair.shared)


def _weight(number: float) -> int:
    """How much there is to read of a number."""
    return {0.0: 0, 1.0: 1}.get(number, 1 + len(unseen.written(number)))
