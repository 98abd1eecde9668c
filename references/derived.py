"""What a paper says about a whole curve, as one number. It comes from measured figures; nothing is measured again.

"Always below", "grows linearly" and "nearly constant" have no printed number, but they can be wrong. A row of
``paper/rows.py`` turns such words into a figure with an expectation::

    Published(
        "Fig. 2, memory", "III, iter. over PS", "largest", "times", quotient_of,
        {"over": "Fig. 2, memory / III, iter.", "under": "Fig. 2, memory / III, PS", "take": "largest"},
        1.0, expects=upheld(at_most('§4.1: "while consuming much less memory"')),
    )

with ``quotient_of = "gradgate.references.derived:quotient"``. There are `value`, `quotient`, `span` and `growth`; and
`spans` and `growths` of several curves.

A curve is named by the beginning of its figures' names, ``place / series / x``, up to the end of a word. If a figure is
measured as a dict of lists, each list is named ``place / series / x / name of the list``, and ``place / series / x``
names all of them. The argument ``between`` keeps the points whose x lies between its two numbers.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references.errors import UsageError, unknown
from gradgate.references.published import Published

CURVES = ("of", "over", "under")
"""Arguments that name a curve."""
TAKE: dict[str, Callable[[Sequence[float]], float]] = {
    "least": min,
    "largest": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "mean": statistics.mean,
    "middle": statistics.median,
}
"""How one number is taken from several."""


@dataclass(frozen=True)
class Point:
    """A point of a curve: its place, the measured number, the day on which it was measured, and the list it is in."""

    x: Any
    y: float
    date: str
    curve: str = ""


Curve = Sequence[Point]
_SAME_WORD = re.compile(r"\w|[.,]\d")


def value(of: Curve, take: str) -> float:
    """A value of a curve, or of several: the least, the largest, the first, the last, or the mean."""
    return _taken([point.y for point in of], take)


def quotient(over: Curve, under: Curve, take: str) -> float:
    """One of the quotients of two curves at equal x. Two single figures are divided whatever their x is.

    Raises:
        UsageError: a curve has two points at the same x.
        LookupError: the two have no x in common.
    """
    if len(over) == len(under) == 1:
        return over[0].y / under[0].y
    above, below = _by_x(over), _by_x(under)
    common = [x for x in above if x in below]
    if not common:
        raise LookupError("the two curves have no x in common")
    return _taken([above[x] / below[x] for x in common], take)


def span(of: Curve) -> float:
    """The largest value over the smallest: 1 for a constant curve."""
    values = [point.y for point in of]
    return max(values) / min(values)


def growth(of: Curve) -> float:
    """The exponent p of y ~ x^p, by least squares of the logarithms.

    Raises:
        LookupError: there are fewer than two places, or an x or y is not positive.
    """
    points = _by_x(of)
    if len(points) < 2 or any(not isinstance(x, (int, float)) or x <= 0 or y <= 0 for x, y in points.items()):
        raise LookupError("an exponent takes two points or more, with positive x and y")
    return statistics.linear_regression([math.log(x) for x in points], [math.log(y) for y in points.values()]).slope


def spans(of: Curve, take: str) -> float:
    """One of the spans of several curves, the lists of one figure; see `span`."""
    return _taken([span(curve) for curve in _apart(of)], take)


def growths(of: Curve, take: str) -> float:
    """One of the exponents of several curves, the lists of one figure; see `growth`."""
    return _taken([growth(curve) for curve in _apart(of)], take)


FUNCTIONS: dict[str, Callable[..., float]] = {
    one.__name__: one for one in (value, quotient, span, growth, spans, growths)
}


def is_derived(row: Published) -> bool:
    """Whether a figure is computed from others, and is not measured itself."""
    return row.measured.partition(":")[0] == __name__


def derive(row: Published, listed: Iterable[Published], results: Mapping[str, Mapping[str, Any]]) -> tuple[float, str]:
    """The number of a figure that is computed from others, and the day of the latest of them.

    Args:
        row: the figure.
        listed: the figures of the same paper.
        results: key -> what is kept of a figure: `ours` and `date`.

    Raises:
        UsageError: there is no such function or curve; the message lists them.
        LookupError: a curve is not measured; says which.
    """
    name = row.measured.partition(":")[2]
    if name not in FUNCTIONS:
        raise unknown(f"function of {row.name}", name, FUNCTIONS)
    given = dict(row.arguments)
    low, high = given.pop("between", (-math.inf, math.inf))
    others = [one for one in listed if not is_derived(one)]
    curves = {key: _curve(given.pop(key), others, results, row.name) for key in CURVES if key in given}
    if low > -math.inf or high < math.inf:
        curves = {
            key: [point for point in curve if isinstance(point.x, (int, float)) and low <= point.x <= high]
            for key, curve in curves.items()
        }
    if empty := [key for key, curve in curves.items() if not curve]:
        raise LookupError(f"{empty[0]}: {row.arguments[empty[0]]}: no point has a number")
    try:
        found = FUNCTIONS[name](**curves, **given)
    except TypeError as error:
        raise UsageError(f"{row.name}: {error}") from None
    except ZeroDivisionError:
        raise LookupError("a figure below the line of a quotient is 0") from None
    return float(found), max(point.date for curve in curves.values() for point in curve)


def _taken(values: Sequence[float], take: str) -> float:
    if take not in TAKE:
        raise unknown("number to take", take, TAKE)
    return TAKE[take](values)


def _apart(points: Curve) -> list[Curve]:
    return [[point for point in points if point.curve == name] for name in dict.fromkeys(p.curve for p in points)]


def _by_x(curve: Curve) -> dict[Any, float]:
    found = {point.x: point.y for point in curve}
    if len(found) < len(curve):
        raise UsageError("several curves are named where one is asked for: give the series too")
    return found


def _curve(
    start: str, listed: Sequence[Published], results: Mapping[str, Mapping[str, Any]], where: str
) -> list[Point]:
    """The points that the beginning of a name selects: numbers of figures, or a list in a dict of lists."""
    chosen = [one for one in listed if begins(one.name, start) or begins(start, one.name)]
    if not chosen:
        raise unknown(f"curve of {where}", start, {f"{one.place} / {one.series}" for one in listed})
    points: list[Point] = []
    for one in chosen:
        kept = results.get(one.key, {})
        ours, date = kept.get("ours"), kept.get("date", "")
        if ours is None:
            raise LookupError(f"{one.name}: {kept.get('problem') or 'not measured yet'}")
        if isinstance(ours, dict):
            points += _listed_points(one.name, start, ours, date)
        elif isinstance(ours, (int, float)) and begins(one.name, start):
            points.append(Point(one.x, ours, date))
    return points


def _listed_points(name: str, start: str, ours: Mapping[str, Any], date: str) -> list[Point]:
    places, *_ = (values for values in ours.values() if isinstance(values, list))
    lists = {f"{name} / {key}": (key, values) for key, values in list(ours.items())[1:]}
    if start not in (*lists, name):
        raise unknown("curve", start, lists)
    points = []
    for key, values in lists.values() if start == name else [lists[start]]:
        if isinstance(values, list):
            points += [Point(x, y, date, key) for x, y in zip(places, values, strict=True) if _is_number(y)]
        elif _is_number(values):
            points.append(Point(key, values, date, key))
    return points


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def begins(name: str, start: str) -> bool:
    """Whether a name begins with `start`, which must end where a word ends.

    >>> begins("Table 1 / bytes", "Table 1"), begins("Table 10 / bytes", "Table 1"), begins("Table 1.5", "Table 1")
    (True, False, False)
    """
    return name.startswith(start) and not _SAME_WORD.match(name, len(start))
