"""A small covering array: few choices of option values, in which every two values that can occur together do so.

A place is a shape of the problems. Every value of every option occurs at every place where it is legal, and every two
values of different options occur together at some place where both are legal. Most wrong formulas that depend on
options depend on at most two of them. Trying every combination would take the product of all lists. The search is
greedy: it does not find the fewest rows, but it always finds the same rows for the same lists.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Value = tuple[str, str]
"""An option, and `repr` of one of its values: this tells True from 1, and the value needs no hash."""
Pair = tuple[Value, Value]


def rows(
    lists: Sequence[Mapping[str, Sequence[Any]]], least: Sequence[int], costly: Sequence[bool] = ()
) -> list[list[dict[str, Any]]]:
    """For every place, the rows to try there. A row is a choice of one value for every option.

    Args:
        lists: for each place, option -> its legal values, the simplest first; the same options in the same order.
        least: for each place, the least number of rows.
        costly: for each place, whether it gets no row for a pair that can occur elsewhere; by default no place is.

    Returns:
        The rows of each place; the first has the first value of every option.

    Cost: of the order of rows × options × values × options.
    """
    search = _Search(lists)
    for place, legal in enumerate(lists):
        search.add(place, {name: values[0] for name, values in legal.items()})
        while search.values[place] or len(search.rows[place]) < least[place]:
            search.add(place, search.row(place, {}))
    while search.pairs:
        pair = next(iter(search.pairs))
        places = search.pairs[pair]
        cheap = [place for place in places if not (costly and costly[place])] or places
        ways = [(place, search.row(place, search.start(place, pair))) for place in cheap]
        search.add(*max(ways, key=lambda way: search.gain(way[1])))  # the first of the best
    return search.rows


class _Search:
    """What is still to be tried, and what has been.

    Attributes:
        values: for each place, the values that have not occurred there.
        pairs: pair that has not occurred -> the places where it can occur; in the order of the places.
        left: value -> number of pairs in `pairs` that contain it.
    """

    def __init__(self, lists: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        self.lists = lists
        self.rows: list[list[dict[str, Any]]] = [[] for _ in lists]
        self.values = [{(name, repr(v)) for name, values in legal.items() for v in values} for legal in lists]
        self.pairs: dict[Pair, list[int]] = {}
        for place, legal in enumerate(lists):
            for (one, ones), (two, twos) in itertools.combinations(legal.items(), 2):
                for v, w in itertools.product(ones, twos):
                    self.pairs.setdefault(((one, repr(v)), (two, repr(w))), []).append(place)
        self.left = Counter(value for pair in self.pairs for value in pair)

    def start(self, place: int, pair: Pair) -> dict[str, Any]:
        """Option -> value for the two values of a pair; the values as in the lists, not as text."""
        return {name: next(v for v in self.lists[place][name] if repr(v) == text) for name, text in pair}

    def row(self, place: int, start: Mapping[str, Any]) -> dict[str, Any]:
        """`start` and a value for every other option: first one that is new here, else the one with most new pairs."""
        legal, chosen = self.lists[place], dict(start)
        for name, values in legal.items():
            if name not in chosen:
                chosen[name] = max(values, key=lambda value: self._worth(place, name, value, chosen))
        return {name: chosen[name] for name in legal}

    def gain(self, row: Mapping[str, Any]) -> int:
        """The number of pairs that a row would try for the first time."""
        return sum(pair in self.pairs for pair in _pairs(row))

    def add(self, place: int, row: dict[str, Any]) -> None:
        """Add a row, and strike out all values and pairs that it tries."""
        self.rows[place].append(row)
        self.values[place] -= {(name, repr(value)) for name, value in row.items()}
        for pair in _pairs(row):
            if self.pairs.pop(pair, None):
                self.left.subtract(pair)

    def _worth(self, place: int, name: str, value: Any, chosen: Mapping[str, Any]) -> tuple[int, int, int, int]:
        me, met = (name, repr(value)), [(other, repr(v)) for other, v in chosen.items()]
        new = sum((me, one) in self.pairs or (one, me) in self.pairs for one in met)
        used = sum(repr(row[name]) == repr(value) for row in self.rows[place])
        return int(me in self.values[place]), new, self.left[me], -used


def _pairs(row: Mapping[str, Any]) -> list[Pair]:
    return list(itertools.combinations([(name, repr(value)) for name, value in row.items()], 2))
