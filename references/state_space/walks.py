"""How the T(T + 1)/2 pairs of a token and a token that it reaches are divided among instances that run at once.

A walk takes one token t to the tokens i = t, …, 1, one after another, because each step advances the adjoint state by
one A. The walks of two tokens are joined, so that all joined walks have equal length: t and T + 1 − t make T + 1 steps;
for an odd T, t and T − t make T steps, and token T is alone. So no walk waits for another, and no step is wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Walks:
    """The walks through one layer.

    Attributes:
        steps: pairs of each walk.
        number: walks; ``steps * number`` is T(T + 1)/2.
        length: T.
    """

    steps: int
    number: int
    length: int

    @classmethod
    def of(cls, length: int) -> Walks:
        """The walks through a sequence of T = `length` tokens.

        >>> Walks.of(4), Walks.of(5)
        (Walks(steps=5, number=2, length=4), Walks(steps=5, number=3, length=5))
        """
        return cls(length + 1, length // 2, length) if length % 2 == 0 else cls(length, (length + 1) // 2, length)

    def second(self, first: int) -> int:
        """The token whose walk is the second part of the walk that begins with token `first`; 0: none."""
        return self.steps - first

    def groups(self, instances: int) -> Sequence[range]:
        """The first tokens of the walks that are taken at once, group after group; only the last may be smaller.

        >>> [list(group) for group in Walks.of(6).groups(2)]
        [[6, 5], [4]]
        """
        last = self.length - self.number
        return [range(top, max(top - instances, last), -1) for top in range(self.length, last, -instances)]
