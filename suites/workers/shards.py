"""A share of long work. Every machine makes the same partition, so each part is done, and none is done twice."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
COSTLY = {"jax": 4.0}
"""Framework -> cost of a claim or problem relative to PyTorch. JAX costs more because its programs are compiled."""


@dataclass(frozen=True)
class Shard:
    """One of several shares.

    Attributes:
        index: the number of this share, from 1.
        of: the number of shares.
    """

    index: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """A share as written on the command line, such as ``2/4``.

        Raises:
            ArgumentTypeError: the text is not a share.
        """
        index, slash, of = text.partition("/")
        if not (slash and index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
            raise argparse.ArgumentTypeError(f"is I/N with I from 1 to N, such as 2/4, not {text!r}")
        return cls(int(index), int(of))

    def part(
        self, items: Iterable[Item], group: Callable[[Item], str], weight: Callable[[Item], float] = lambda _: 1.0
    ) -> list[Item]:
        """The items of this share, in their order. Every item is in exactly one of the shares.

        Args:
            items: all of the work.
            group: the group of an item. A group stays together, such as the claims of one method.
            weight: the cost of an item. The shares cost about the same.
        """
        rows = list(items)
        costs: dict[str, float] = {}
        for row in rows:
            costs[group(row)] = costs.get(group(row), 0.0) + weight(row)
        loads = [0.0] * self.of
        place: dict[str, int] = {}
        for name in sorted(costs, key=lambda name: (-costs[name], name)):
            place[name] = loads.index(min(loads))
            loads[place[name]] += costs[name]
        return [row for row in rows if place[group(row)] == self.index - 1]

    def to_dict(self, total: int) -> dict[str, Any]:
        """The share as in its document: which one it is, and how many items there are in all shares together."""
        return {"index": self.index, "of": self.of, "total": total}


def cost(framework: str) -> float:
    """What a claim of a framework costs, relative to PyTorch."""
    return COSTLY.get(framework, 1.0)
