"""The few combinations of sizes, options and regimes on which a pair is judged: every two values occur together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_NUMBERS = 2**22
"""Most numbers of all inputs together. A larger combination is not tried, unless all are larger."""
MOST_COMBINATIONS = 20_000
"""Largest number of combinations that are considered."""


def combinations(factors: Mapping[str, Sequence[Any]], legal: Any, cost: Any) -> list[dict[str, Any]]:
    """A few choices of one value of every factor, the cheapest first: every two values that can occur together do.

    Args:
        factors: name -> values.
        legal: choice -> whether it is legal.
        cost: choice -> its cost; a choice that costs more than MOST_NUMBERS is left out, unless all do.

    Returns:
        The choices; none if none is legal. The cheapest choice is always among them.

    Cost: of the order of choices × pairs of values, at most some seconds at MOST_COMBINATIONS.
    """
    every = _every(factors, legal)
    costs = [cost(choice) for choice in every]
    affordable = [(c, i) for i, c in enumerate(costs) if c <= MOST_NUMBERS] or [(c, i) for i, c in enumerate(costs)]
    ranked = [every[i] for _, i in sorted(affordable)]
    if not ranked:
        return []
    chosen, left = [], {pair for choice in ranked for pair in _pairs(choice)}
    following = ranked[0]
    while True:
        chosen.append(following)
        left -= _pairs(following)
        if not left:
            break
        following = max(ranked, key=lambda choice: len(_pairs(choice) & left))  # the cheapest of the best
    return sorted(chosen, key=lambda choice: (cost(choice), ranked.index(choice)))


def _every(factors: Mapping[str, Sequence[Any]], legal: Any) -> list[dict[str, Any]]:
    names = list(factors)
    found: Iterable[tuple[Any, ...]] = itertools.product(*factors.values())
    total = math.prod(len(values) for values in factors.values())
    if total > MOST_COMBINATIONS:  # evenly spread: a stride that shares no factor with the product visits all places
        step = next(s for s in itertools.count(total // MOST_COMBINATIONS) if math.gcd(s, total) == 1)
        found = (_at(factors, i * step % total) for i in range(MOST_COMBINATIONS))
    choices = [dict(zip(names, values, strict=True)) for values in found]
    return [choice for choice in choices if legal(choice)]


def _at(factors: Mapping[str, Sequence[Any]], place: int) -> tuple[Any, ...]:
    found = []
    for values in factors.values():
        place, rest = divmod(place, len(values))
        found.append(values[rest])
    return tuple(found)


def _pairs(choice: Mapping[str, Any]) -> set[frozenset[tuple[str, str]]]:
    """Every two values of a choice, and every single one."""
    items = [(name, repr(value)) for name, value in choice.items()]
    return {frozenset(two) for two in itertools.combinations(items, 2)} | {frozenset([item]) for item in items}
