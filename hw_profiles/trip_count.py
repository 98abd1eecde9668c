"""Trip counts of while loops, computed from the program's text: from a counter, a constant step and a known bound."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor
from typing import Any, NamedTuple

_SCALAR: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "neg": operator.neg,
    "convert_element_type": lambda value: value,
    "copy": lambda value: value,
    "stop_gradient": lambda value: value,
}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}


class Trips(NamedTuple):
    """How often a loop's body runs; an upper bound unless `exact`."""

    number: int
    exact: bool


def is_literal(var: Any) -> bool:
    """Whether an operand is written into the program instead of being a variable."""
    return hasattr(var, "val")


def propagate(eqn: Any, values: dict[Any, float]) -> None:
    """Add the equation's result to ``values`` if it is a scalar that follows from known scalars."""
    rule = _SCALAR.get(eqn.primitive.name)
    if rule is None or getattr(eqn.outvars[0].aval, "shape", None) != ():
        return
    operands = [_value(var, values) for var in eqn.invars]
    if all(operand is not None for operand in operands):
        values[eqn.outvars[0]] = rule(*operands)


def passed_to_scan(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan are the same in every turn, and how many are carried; the others are read by row.

    JAX before 0.11 says two numbers, and since then a tree of three parts.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carries, _ = params["ft_in"].unpack()
    return len(constants), len(carries)


def bind(inner: Sequence[Any], outer: Sequence[Any], values: Mapping[Any, float]) -> dict[Any, float]:
    """The known scalars, under the names that an inner program gives them."""
    pairs = ((name, _value(var, values)) for name, var in zip(inner, outer, strict=True))
    return {name: value for name, value in pairs if value is not None}


def of_while(eqn: Any, values: Mapping[Any, float]) -> Trips | None:
    """Return the trip count of a while equation, or None if the text does not determine it.

    The trip count is known under these conditions: the loop goes on as long as a comparison of a carried counter with a
    bound holds; the body adds a constant to the counter; the start and the bound are known, and the body does not
    change the bound. If the loop has further conditions, joined by ``and``, the counter gives an upper bound.
    """
    body, cond = eqn.params["body_jaxpr"].jaxpr, eqn.params["cond_jaxpr"].jaxpr
    body_consts, cond_consts = eqn.params["body_nconsts"], eqn.params["cond_nconsts"]
    start = eqn.invars[cond_consts + body_consts :]
    carried, updated = body.invars[body_consts:], body.outvars

    fixed = bind(cond.invars[:cond_consts], eqn.invars[:cond_consts], values)
    places = {var: place for place, var in enumerate(cond.invars[cond_consts:])}
    for var, at in places.items():
        value = _value(start[at], values)
        if value is not None and updated[at] is carried[at]:
            fixed[var] = value
    body_known = bind(body.invars[:body_consts], eqn.invars[:body_consts], values)

    comparisons, complete = _comparisons(cond)
    found: list[int | None] = []
    for name, left, right in comparisons:
        if _value(right, fixed) is None:
            name, left, right = _SWAPPED[name], right, left
        place, bound = None if is_literal(left) else places.get(left), _value(right, fixed)
        if place is None or bound is None:
            continue
        first = _value(start[place], values)
        step = _step(body, carried[place], updated[place], body_known)
        if first is not None and step is not None:
            found.append(_number(name, first, bound, step))
    numbers = [number for number in found if number is not None]
    if not numbers:
        return None
    return Trips(min(numbers), exact=complete and len(numbers) == len(comparisons))


def _value(var: Any, values: Mapping[Any, float]) -> float | None:
    if not is_literal(var):
        return values.get(var)
    return var.val.item() if hasattr(var.val, "item") and getattr(var.val, "size", 1) == 1 else _plain(var.val)


def _plain(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _comparisons(cond: Any) -> tuple[list[tuple[str, Any, Any]], bool]:
    """The comparisons that must all hold for the loop to go on, and whether they are the whole condition."""
    made_by = {eqn.outvars[0]: eqn for eqn in cond.eqns}
    found: list[tuple[str, Any, Any]] = []
    complete, todo = True, [cond.outvars[0]]
    while todo:
        var = todo.pop()
        eqn = None if is_literal(var) else made_by.get(var)
        name = eqn.primitive.name if eqn is not None else ""
        if eqn is not None and name in ("and", "convert_element_type"):
            todo.extend(eqn.invars)
        elif eqn is not None and name in _SWAPPED:
            found.append((name, *eqn.invars))
        else:
            complete = False
    return found, complete


def _step(body: Any, carried: Any, updated: Any, known: Mapping[Any, float]) -> float | None:
    """Return the constant that the body adds to a counter."""
    for eqn in body.eqns:
        if eqn.outvars[0] is updated and eqn.primitive.name in ("add", "sub"):
            left, right = eqn.invars
            sign = 1 if eqn.primitive.name == "add" else -1
            if left is carried:
                step = _value(right, known)
                return None if step is None else sign * step
            if right is carried and sign == 1:
                return _value(left, known)
    return None


def _number(name: str, first: float, bound: float, step: float) -> int | None:
    if name == "ne":
        ends = step != 0 and (bound - first) / step >= 0 and (bound - first) % step == 0
        return int((bound - first) // step) if ends else None
    distance = (bound - first) if name in ("lt", "le") else (first - bound)
    pace = step if name in ("lt", "le") else -step
    inside = distance > 0 if name in ("lt", "gt") else distance >= 0
    if not inside:
        return 0
    if pace <= 0:
        return None
    return ceil(distance / pace) if name in ("lt", "gt") else floor(distance / pace) + 1
