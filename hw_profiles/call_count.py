"""Calls of marked functions (`calls`) in a JAX program, counted from its text, without compiling and without any float.

A scan multiplies the counts of its body by its length, a while loop by its trip count if a counter determines it, and
``shard_map`` by its number of devices. Which branch of a cond runs is known if it depends only on integers of the
program: constants, values computed from them, the steps of a scan, and the numbers of devices. These integers are
computed during the walk; a scan or ``shard_map`` with such a branch is walked through step by step or device by device.
Counts that depend on values of arguments are reported as uncertain.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gradgate.hw_profiles import trip_count, work
from gradgate.hw_profiles.calls import KINDS, MARKER, Calls

MOST = 4096
"""The most numbers in an array of integers that is computed, and the most steps of a scan that are walked through."""
Known = Any
"""A NumPy array of integers or booleans; None if it is not known."""


@dataclass(frozen=True)
class Count:
    """What was counted.

    Attributes:
        calls: evaluations, JVPs and VJPs of every marked function, by its name.
        uncertain: sentences that say why the text does not determine the counts; if empty, the counts are exact.
    """

    calls: Mapping[str, Calls]
    uncertain: tuple[str, ...] = ()


def of(program: Callable[..., Any], arguments: Sequence[Any]) -> Count:
    """`count` of ``program(*arguments)``; arguments are trees of arrays or ``jax.ShapeDtypeStruct``."""
    import jax

    return count(jax.make_jaxpr(program)(*arguments))


def count(closed: Any) -> Count:
    """Calls in a ``ClosedJaxpr``, without the calls that no result needs.

    Cost: one pass over the equations; for scans in which branches have to be decided, one pass for every step.
    """
    from jax.interpreters import partial_eval

    live, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    walk = _Walk()
    walk.run(live, closed.consts, [None] * len(live.invars), {}, 1)
    calls: dict[str, Calls] = {}
    for (name, kind), number in walk.calls.items():
        setattr(calls.setdefault(name, Calls()), kind, number)
    return Count(calls, tuple(walk.uncertain))


class _Walk:
    """A walk through a program.

    Attributes:
        calls: (name, kind) -> number, so far.
        uncertain: an ordered set of sentences.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.uncertain: dict[str, None] = {}

    def run(
        self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Known], places: Mapping[Any, int], times: int
    ) -> list[Known]:
        """Count `times` runs of a jaxpr.

        Args:
            consts: values of its constants.
            given: what is known of its arguments.
            places: mesh axis -> the number of the device along it.

        Returns:
            What is known of its results.
        """
        values: dict[Any, Known] = dict(zip(jaxpr.constvars, map(_small, consts), strict=True))
        values |= dict(zip(jaxpr.invars, given, strict=True))

        def read(var: Any) -> Known:
            return _small(var.val) if trip_count.is_literal(var) else values.get(var)

        for eqn in jaxpr.eqns:
            found = self._equation(eqn, [read(var) for var in eqn.invars], places, times)
            values |= dict(zip(eqn.outvars, found, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, given: list[Known], places: Mapping[Any, int], times: int) -> Sequence[Known]:
        name, params = eqn.primitive.name, eqn.params
        nothing = [None] * len(eqn.outvars)
        if name == MARKER:
            if params["kind"] in KINDS:
                self.calls[params["name"], params["kind"]] += times * params["weight"]
            return nothing
        if name in ("scan", "while", "shard_map") and not _marked(list(params.values())):
            return nothing
        if name in ("scan", "while", "cond", "shard_map"):
            walk = {"scan": self._scan, "while": self._while, "cond": self._cond, "shard_map": self._shards}[name]
            return walk(eqn, given, places, times) or nothing
        if name in work.CALLS:
            program = params[work.CALLS[name]]
            inner = _open(getattr(program, "solve", program))
            if name == "custom_linear_solve":  # it has the operands of all its four programs
                given = [None] * len(inner[0].invars)
            return self.run(*inner, given, places, times)
        if _marked(list(params.values())):
            self.uncertain[f"how often the primitive {name!r} runs the program within it is not known"] = None
        return _computed(eqn, given, places)

    def _scan(self, eqn: Any, given: list[Known], places: Mapping[Any, int], times: int) -> list[Known] | None:
        params = eqn.params
        body, length = _open(params["jaxpr"]), params["length"]
        first, carried = trip_count.passed_to_scan(params)
        last = first + carried
        if not 0 < length <= MOST or not _decides(body[0]):
            unknown = [None] * (len(given) - first)
            self.run(*body, [*given[:first], *unknown], places, times * length)
            return None
        carry, rows = given[first:last], []
        for turn in reversed(range(length)) if params["reverse"] else range(length):
            row = [None if column is None else column[turn] for column in given[last:]]
            found = self.run(*body, [*given[:first], *carry, *row], places, times)
            carry, made = found[: len(carry)], found[len(carry) :]
            rows.append(made)
        columns = zip(*(rows[::-1] if params["reverse"] else rows), strict=True)
        return [*carry, *(None if any(v is None for v in column) else _small(np.stack(column)) for column in columns)]

    def _while(self, eqn: Any, given: list[Known], places: Mapping[Any, int], times: int) -> None:
        scalars = {
            var: float(value)
            for var, value in zip(eqn.invars, given, strict=True)
            if value is not None and value.ndim == 0 and not trip_count.is_literal(var)
        }
        found = trip_count.of_while(eqn, scalars)
        if found is None or not found.exact:
            self.uncertain["how often a while loop runs depends on values"] = None
            found = trip_count.Trips(1, exact=False)
        for kind, number in (("body", found.number), ("cond", found.number + 1)):
            inner = _open(eqn.params[f"{kind}_jaxpr"])
            self.run(*inner, [None] * len(inner[0].invars), places, times * number)

    def _cond(self, eqn: Any, given: list[Known], places: Mapping[Any, int], times: int) -> list[Known] | None:
        branches = [_open(branch) for branch in eqn.params["branches"]]
        if given[0] is not None:
            taken = branches[min(max(int(given[0]), 0), len(branches) - 1)]
            return self.run(*taken, given[1:], places, times)
        walks = []
        for branch in branches:
            walks.append(_Walk())
            walks[-1].run(*branch, given[1:], places, times)
            self.uncertain |= walks[-1].uncertain
        if any(walk.calls != walks[0].calls for walk in walks):
            self.uncertain["which branch of a cond runs depends on values"] = None
        self.calls += walks[0].calls
        return None

    def _shards(self, eqn: Any, given: list[Known], places: Mapping[Any, int], times: int) -> None:
        body, sizes = _open(eqn.params["jaxpr"]), work.shard_axes(eqn)
        same = [None if any(spec) else value for value, spec in zip(given, eqn.params["in_specs"], strict=True)]
        if not _decides(body[0]):
            self.run(*body, same, places, times * prod(sizes.values()))
            return
        for place in itertools.product(*map(range, sizes.values())):
            self.run(*body, same, {**places, **dict(zip(sizes, place, strict=True))}, times)


def _open(program: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and the values of its constants."""
    return (program.jaxpr, program.consts) if hasattr(program, "consts") else (program, ())


def _programs(value: Any) -> list[Any]:
    """The jaxprs in a parameter of an equation."""
    if isinstance(value, (tuple, list)):
        return [program for item in value for program in _programs(item)]
    jaxpr = getattr(value, "jaxpr", value)
    return [jaxpr] if hasattr(jaxpr, "eqns") else []


def _marked(value: Any) -> bool:
    """Whether a parameter of an equation is a program with a marker, or a sequence with one."""
    return any(
        eqn.primitive.name == MARKER or _marked(list(eqn.params.values()))
        for program in _programs(value)
        for eqn in program.eqns
    )


def _decides(jaxpr: Any) -> bool:
    """Whether a program has a branch in which calls are counted."""
    return any(
        (eqn.primitive.name == "cond" and _marked(eqn.params["branches"]))
        or any(_decides(program) for program in _programs(list(eqn.params.values())))
        for eqn in jaxpr.eqns
    )


def _small(value: Any) -> Known:
    """A value as a NumPy array if it consists of few integers or booleans, or None."""
    if isinstance(value, int) or (_whole(value) and np.size(value) <= MOST):
        return np.asarray(value)
    return None


def _whole(array: Any) -> bool:
    """Whether an array, or its description, is of integers or booleans."""
    return getattr(getattr(array, "dtype", None), "kind", None) in ("i", "u", "b")


def _computed(eqn: Any, given: Sequence[Known], places: Mapping[Any, int]) -> Sequence[Known]:
    """The results of an equation whose operands are few known integers, computed by JAX."""
    nothing = [None] * len(eqn.outvars)
    if eqn.primitive.name == "axis_index":
        axis = eqn.params["axis_name"]
        return [np.int32(places[axis])] if axis in places else nothing
    few = all(getattr(var.aval, "size", MOST + 1) <= MOST for var in eqn.outvars)
    whole = all(_whole(var.aval) for var in eqn.outvars)
    if not few or not whole or eqn.effects or any(value is None for value in given) or "axis_name" in eqn.params:
        return nothing
    import jax

    with jax.enable_x64(any(var.aval.dtype.itemsize == 8 for var in (*eqn.invars, *eqn.outvars))):
        found = eqn.primitive.bind(*map(jax.numpy.asarray, given), **eqn.params)
    return [np.asarray(each) for each in (found if eqn.primitive.multiple_results else [found])]
