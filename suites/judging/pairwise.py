"""A small covering array: few choices of option values in which every two values that can meet do meet.

Every value of every option occurs at every place where it is legal, and every two values of different options occur
together at some place where both are. Most wrong formulas that depend on options need no more than two of them; every
combination would be the product of all lists. Greedy, so not the fewest possible, and the same for the same lists.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Value = tuple[str, str]
"""An option and `repr` of one of its values, which tells True from 1 and needs no hash."""
Pair = tuple[Value, Value]


def rows(
    lists: Sequence[Mapping[str, Sequence[Any]]], least: Sequence[int], costly: Sequence[bool] = ()
) -> list[list[dict[str, Any]]]:
    """For every place, the choices of one value of every option that are to be tried there.

    Args:
        lists: of each place, option -> its legal values, the simplest first; the same options in the same order.
        least: rows of each place at least.
        costly: places that get no row for a pair that can meet elsewhere; none unless told.

    Returns:
        The rows of each place; the first has the first value of every option.

    Cost: of the order of rows × options × values × options.
    """
    search = _Search(lists)
    for place, legal in enumerate(lists):
        search.add(place, {name: values[0] for name, values in legal.items()})
        while search.values[place] or len(search.found[place]) < least[place]:
            search.add(place, search.row(place, {}))
    while search.pairs:
        pair = next(iter(search.pairs))
        places = search.pairs[pair]
        cheap = [place for place in places if not (costly and costly[place])] or places
        ways = [(place, search.row(place, search.start(place, pair))) for place in cheap]
        search.add(*max(ways, key=lambda way: search.gain(way[1])))  # the first of the best
    return search.found


class _Search:
    """What is still to be tried, and what has been.

    Attributes:
        values: of each place, values that have not occurred there.
        pairs: pair that has not occurred -> the places where it can; in the order in which they first can.
        left: value -> pairs of `pairs` that it is in.
    """

    def __init__(self, lists: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        self.lists = lists
        self.found: list[list[dict[str, Any]]] = [[] for _ in lists]
        self.values = [{(name, repr(v)) for name, values in legal.items() for v in values} for legal in lists]
        self.pairs: dict[Pair, list[int]] = {}
        for place, legal in enumerate(lists):
            for (one, ones), (two, twos) in itertools.combinations(legal.items(), 2):
                for v, w in itertools.product(ones, twos):
                    self.pairs.setdefault(((one, repr(v)), (two, repr(w))), []).append(place)
        self.left = Counter(value for pair in self.pairs for value in pair)

    def start(self, place: int, pair: Pair) -> dict[str, Any]:
        """The two values of a pair, as they are listed."""
        return {name: next(v for v in self.lists[place][name] if repr(v) == text) for name, text in pair}

    def row(self, place: int, start: Mapping[str, Any]) -> dict[str, Any]:
        """`start` and a value of every other option: what is new here first, then what makes the most new pairs."""
        legal, chosen = self.lists[place], dict(start)
        for name, values in legal.items():
            if name not in chosen:
                chosen[name] = max(values, key=lambda value: self._worth(place, name, value, chosen))
        return {name: chosen[name] for name in legal}

    def gain(self, row: Mapping[str, Any]) -> int:
        """Pairs that a row would try for the first time."""
        return sum(pair in self.pairs for pair in _pairs(row))

    def add(self, place: int, row: dict[str, Any]) -> None:
        """Take a row; nothing that it tries is to be tried again."""
        self.found[place].append(row)
        self.values[place] -= {(name, repr(value)) for name, value in row.items()}
        for pair in _pairs(row):
            if self.pairs.pop(pair, None):
                self.left.subtract(pair)

    def _worth(self, place: int, name: str, value: Any, chosen: Mapping[str, Any]) -> tuple[int, int, int, int]:
        me, met = (name, repr(value)), [(other, repr(v)) for other, v in chosen.items()]
        new = sum((me, one) in self.pairs or (one, me) in self.pairs for one in met)
        used = sum(repr(row[name]) == repr(value) for row in self.found[place])
        return int(me in self.values[place]), new, self.left[me], -used


def _pairs(row: Mapping[str, Any]) -> list[Pair]:
    return list(itertools.combinations([(name, repr(value)) for name, value in row.items()], 2))
