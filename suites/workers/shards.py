"""A share of long work: the same partition on every machine, so that all of it is done, and none of it twice."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
COSTLY = {"jax": 4.0}
"""Cost of a claim, or of a problem, of a framework beside PyTorch's: its programs are compiled."""


@dataclass(frozen=True)
class Shard:
    """One of several shares.

    Attributes:
        index: which, from 1.
        of: how many there are.
    """

    index: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """A share as written on the command line, such as ``2/4``.

        Raises:
            ArgumentTypeError: it is none.
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
            group: what stays together, such as the claims of one method.
            weight: what an item costs; the shares cost about the same.
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
        """As in the documents of a share: which one it is, and how much work there is in all of them."""
        return {"index": self.index, "of": self.of, "total": total}


def cost(framework: str) -> float:
    """What a claim of a framework costs beside PyTorch's."""
    return COSTLY.get(framework, 1.0)
