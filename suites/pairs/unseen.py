"""Inputs that take sides of decisions which no draw has taken: changes of what is drawn, each the name of a regime.

A name is the change, its number if it has one, and the input if only one is changed: ``unseen: times -30 in x``. A
semicolon separates several changes. So a Spec repeats such a problem. Inputs that are drawn as `normal` about 0 are
changed, because every number is possible there; a mean says where the numbers are meant to be. So are those whose draw
says which numbers are legal (`draws.LEGAL`): a change gives the legal numbers next to it. Of integers, one change is
tried: all are equal, as no index is drawn twice where there are many.

What refutes is made simpler (`engine.simpler`), and its numbers are then in the name: ``unseen: is 30 0 0 in x``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PREFIX = "unseen: "
"""What the names of these regimes begin with; no regime of a pair's own has such a name."""


def _first(x: Any, value: float) -> Any:
    """The array with its first number replaced."""
    changed = x.copy()
    changed.ravel()[:1] = value
    return changed


def _numbers(x: Any, values: tuple[float, ...]) -> Any:
    """An array of the same shape with these numbers in order; they repeat if they are fewer."""
    return np.resize(np.array(values, np.float64), x.shape)


def _two_equal(x: Any, value: float) -> Any:
    """The array with its second number replaced by its first one; along the first axis, with its second row."""
    changed = np.array(x, ndmin=1)
    changed[1:2] = changed[:1]
    changed.ravel()[1:2] = changed.ravel()[:1]
    return changed.reshape(x.shape)


def _largest_twice(x: Any, value: float) -> Any:
    """The array with its second largest number replaced by its largest one."""
    changed = x.copy()
    order = np.argsort(x, axis=None)
    changed.ravel()[order[-2:]] = x.max(initial=-np.inf)
    return changed


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "first": _first,
    "is": _numbers,
    "two equal": _two_equal,
    "largest twice": _largest_twice,
    "times": lambda x, value: value * x,
    "plus": lambda x, value: x + value,
    "all": lambda x, value: 0 * x + value,
    "not negative": lambda x, value: np.maximum(x, 0),
    "negative": lambda x, value: -abs(x),
    "equal": lambda x, value: 0 * x + x.ravel()[:1].sum(),
    "sorted": lambda x, value: np.sort(x, axis=None).reshape(x.shape),
    "one-hot": lambda x, value: 0.0 * x + (np.arange(x.size).reshape(x.shape) % max(1, (x.shape or (1,))[-1]) == 0),
}
"""Name -> function of a drawn array and of the number in the regime's name (0 if it has none)."""
USUAL = (
    *("first 0", "largest twice", "two equal", "times 30", "times -30", "times 1000", "times 1e+08", "times 0.001"),
    *("times 1e-08", "not negative", "negative", "all 0", "equal", "sorted", "one-hot"),
)
"""Changes that are tried for every pair, in this order."""
TINY = "times 1e-40"
"""The change of all inputs at once whose numbers are subnormal in float32, to which all drawn numbers are rounded."""
OF_TWO = ("first 0", "two equal", "times 1000", "times -30", "times 1e-08", "all 0")
"""Changes of which two inputs get one each."""


def scaled(exponents: Mapping[str, int]) -> str:
    """The regime in which inputs are multiplied by powers of two; "" for none.

    >>> scaled({"x": 3, "w": 0, "b": -1})
    'unseen: times 8 in x; times 0.5 in b'
    """
    parts = [regime("times", 2.0**power, leaf).removeprefix(PREFIX) for leaf, power in exponents.items() if power]
    return PREFIX + "; ".join(parts) if parts else ""


def regime(change: str, value: float | None = None, leaf: str = "") -> str:
    """The name of a regime.

    >>> regime("times", -30.0, "x"), regime("sorted")
    ('unseen: times -30 in x', 'unseen: sorted')
    """
    number = "" if value is None else f" {written(value)}"
    return f"{PREFIX}{change}{number}" + (f" in {leaf}" if leaf else "")


def written(value: float) -> str:
    """A number as the name of a regime has it, which gives the same number again."""
    return str(int(value)) if value == int(value) and abs(value) < 1e6 else repr(float(value))


def simplified(name: str, numbers: Mapping[str, Sequence[float]], pair: Any) -> str:
    """The regime with the numbers of some inputs in place of what it changes there.

    >>> from gradgate.suites.pairs.pair import Pair
    >>> from gradgate.suites.pairs.draws import normal
    >>> inputs = {"x": normal("N"), "w": normal("N")}
    >>> pair = Pair("a:f", "a:g", inputs=inputs, dims={"N": (2,)}, framework="torch")
    >>> simplified("unseen: times 30 in x; sorted in w", {"x": (30.0, 0.0)}, pair)
    'unseen: sorted in w; is 30 0 in x'
    """
    left = set(free(pair)) - set(numbers)
    parts = [part for part in _split(name) if (leaf := _parts(part)[2]) not in numbers and (leaf or left)]
    parts += [f"is {' '.join(map(written, values))} in {leaf}" for leaf, values in numbers.items()]
    return PREFIX + "; ".join(parts)


def free(pair: Any) -> tuple[str, ...]:
    """Paths of the inputs that may be changed."""
    return tuple(path for path, draw in pair.leaves.items() if draw.searched)


def indices(pair: Any) -> tuple[str, ...]:
    """Paths of the inputs that are integers."""
    return tuple(path for path, draw in pair.leaves.items() if draw.kind == "integers")


def usual(pair: Any) -> Iterator[str]:
    """The regimes that are tried for every pair: each change of each input alone, and of all if there are several."""
    leaves = free(pair)
    for change in USUAL if leaves else ():
        yield from (f"{PREFIX}{change} in {leaf}" for leaf in leaves if len(leaves) > 1)
        yield f"{PREFIX}{change}"
        if change == "times 1e-08":
            yield PREFIX + TINY


def of_two(pair: Any) -> Sequence[str]:
    """The regimes in which two inputs are changed at once, in an order without pattern.

    >>> from gradgate.suites.pairs.pair import Pair
    >>> from gradgate.suites.pairs.draws import normal
    >>> inputs = {"x": normal("N"), "w": normal("N")}
    >>> names = of_two(Pair("a:f", "a:g", inputs=inputs, dims={"N": (2,)}, framework="torch"))
    >>> len(names) == len(set(names)) == len(OF_TWO) ** 2, names[0].count(";")
    (True, 1)
    """
    pairs = [
        f"{PREFIX}{one} in {first}; {other} in {second}"
        for first, second in itertools.combinations(free(pair), 2)
        for one, other in itertools.product(OF_TWO, OF_TWO)
    ]
    return random.Random(0).sample(pairs, len(pairs))


def known(pair: Any, name: str) -> bool:
    """Whether a name is that of such a regime of a pair."""
    if not name.startswith(PREFIX):
        return False
    changes = [_parts(part) for part in _split(name)]
    leaves = (*([""] if free(pair) else []), *free(pair))
    return all(
        leaf in (*leaves, *indices(pair)) if change == "equal" else change in CHANGES and leaf in leaves
        for change, _, leaf in changes
    )


def changed(pair: Any, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Path -> array, changed as the regime's name says."""
    for part in _split(name):
        change, value, only = _parts(part)
        leaves = [only] if only else free(pair)
        arrays = {path: CHANGES[change](leaf, value) if path in leaves else leaf for path, leaf in arrays.items()}
    return arrays


def _split(name: str) -> list[str]:
    return name.removeprefix(PREFIX).split("; ")


def _parts(part: str) -> tuple[str, Any, str]:
    """Change, number or numbers, and leaf of one change; the change is "" if it is not understood."""
    words, _, leaf = part.partition(" in ")
    if words in CHANGES:
        return words, (0.0,) if words == "is" else 0.0, leaf
    change, _, number = words.rpartition(" ")
    try:
        if words.startswith("is "):
            return "is", tuple(map(float, words.split()[1:])), leaf
        return change, float(number), leaf
    except ValueError:
        return "", 0.0, leaf
