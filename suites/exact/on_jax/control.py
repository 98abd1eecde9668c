"""Loops and branches: they run their bodies as often as the program's own numbers say, for all devices at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradgate.hw_profiles import trip_count
from gradgate.suites.exact import balls, decisions
from gradgate.suites.exact.on_jax.block import Block, Flat, boxed, source_line
from gradgate.suites.exact.on_jax.rules import blank, lockstep, rule


@lockstep("scan")
def scan(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A loop over the leading dimension; carries and outputs that nothing needs are left out."""
    params = equation.params
    consts, carries = trip_count.passed_to_scan(params)
    flat: Flat = compiled(params["jaxpr"])
    mask = _needed_of_scan(flat, needed, consts, carries)
    block, used = flat.block(mask)
    loop = _Loop(equation, block, used, mask, needed)
    return lambda lanes, run: loop(lanes, run)


def _needed_of_scan(flat: Flat, needed: Sequence[bool], consts: int, carries: int) -> list[bool]:
    """Which outputs of a scan's body are needed: a carry also where another needed output reads it."""
    mask = list(needed)
    while True:
        used = flat.used_inputs(mask)
        wider = [m or used[consts + i] for i, m in enumerate(mask[:carries])] + mask[carries:]
        if wider == mask:
            return mask
        mask = wider


class _Loop:
    """A scan, ready to run."""

    def __init__(self, equation: Any, block: Block, used: list[bool], mask: list[bool], needed: list[bool]) -> None:
        params = equation.params
        self.line = functools.partial(source_line, equation)
        self.block, self.used, self.mask = block, used, mask
        self.consts, self.carries = trip_count.passed_to_scan(params)
        self.length, self.backwards = params["length"], params["reverse"]
        self.avals = [variable.aval for variable in equation.outvars]
        self.kept = [i for i, keep in enumerate(mask[: self.carries]) if keep]
        self.stacked = [i for i, keep in enumerate(mask) if keep and i >= self.carries]

    def __call__(self, lanes: list[list[Any]], run: Any) -> list[list[Any]]:
        first = self.consts + self.carries
        states = [list(values[self.consts : first]) for values in lanes]
        columns: list[list[list[Any]]] = [[[] for _ in self.stacked] for _ in lanes]
        decisions.turned(self.line, self.length)
        for turn in range(self.length - 1, -1, -1) if self.backwards else range(self.length):
            given: list[Sequence[Any]] = [
                [*values[: self.consts], *state, *self._row(values[first:], turn)]
                for values, state in zip(lanes, states, strict=True)
            ]
            for lane, outputs in enumerate(self.block(given, run)):
                for place, value in zip(self.kept, outputs, strict=False):
                    states[lane][place] = value
                for column, value in zip(columns[lane], outputs[len(self.kept) :], strict=True):
                    column.append(value)
        return [self._outputs(state, column) for state, column in zip(states, columns, strict=True)]

    def _row(self, arrays: Sequence[Any], turn: int) -> list[Any]:
        """The inputs of one turn; those that nothing reads are skipped."""
        used = self.used[self.consts + self.carries :]
        return [boxed(array[turn]) if use else None for array, use in zip(arrays, used, strict=True)]

    def _outputs(self, state: list[Any], columns: list[list[Any]]) -> list[Any]:
        result: list[Any] = [*state, *([None] * (len(self.avals) - self.carries))]
        for place, column in zip(self.stacked, columns, strict=True):
            result[place] = _stacked(column[::-1] if self.backwards else column, self.avals[place])
        return [np.zeros(0) if value is None else value for value in result]


def _stacked(values: list[Any], aval: Any) -> Any:
    """Arrays as one, with a dimension in front."""
    if not values:
        return blank(aval)
    result = np.empty((len(values), *values[0].shape), values[0].dtype)
    for place, value in enumerate(values):
        result[place] = value if value.ndim else value[()]
    return result


@lockstep("while")
def while_loop(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A loop that runs while a condition holds; devices that have finished wait for the others.

    Under vmap the condition is an array, one element for each lane. The loop runs while any lane goes on, and the state
    of a lane that has finished stays as it is.
    """
    params = equation.params
    condition, _ = compiled(params["cond_jaxpr"]).block()
    body, _ = compiled(params["body_jaxpr"]).block()
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def loop(lanes: list[list[Any]], run: Any) -> list[list[Any]]:
        states = [list(values[second:]) for values in lanes]
        going = list(range(len(lanes)))
        turns = -1
        while going:
            turns += 1
            inner = _only(run, going)
            held = condition([[*lanes[i][:first], *states[i]] for i in going], inner)
            holds = {i: on for i, found in zip(going, held, strict=True) if (on := np.asarray(found[0], bool)).any()}
            going = list(holds)
            if going:
                results = body([[*lanes[i][first:second], *states[i]] for i in going], _only(run, going))
                for i, result in zip(going, results, strict=True):
                    states[i] = [_where(holds[i], *pair) for pair in zip(result, states[i], strict=True)]
        decisions.turned(functools.partial(source_line, equation), turns)
        return states

    return loop


def _where(holds: Any, new: Any, old: Any) -> Any:
    """The new array in the lanes, which are its first axes, whose condition holds."""
    return new if holds.ndim == 0 else np.where(holds.reshape(holds.shape + (1,) * (new.ndim - holds.ndim)), new, old)


def _only(run: Any, which: Sequence[int]) -> Any:
    """The run of some of the devices."""
    return run if len(which) == len(run.places) else replace(run, places=[run.places[i] for i in which])


@lockstep("cond")
def cond(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """One of several branches, for the outputs that are needed; devices that take the same branch run together."""
    branches = [compiled(branch) for branch in equation.params["branches"]]
    wanted = [i for i, use in enumerate(needed) if use]

    def choose(lanes: list[list[Any]], run: Any) -> list[list[Any]]:
        indices = [min(max(int(values[0]), 0), len(branches) - 1) for values in lanes]
        results: list[list[Any]] = [[] for _ in lanes]
        for index in sorted(set(indices)):
            which = [i for i, taken in enumerate(indices) if taken == index]
            block, _ = branches[index].block(needed)
            found = block([list(lanes[i][1:]) for i in which], _only(run, which))
            for i, outputs in zip(which, found, strict=True):
                results[i] = [_NOTHING] * len(needed)
                for place, value in zip(wanted, outputs, strict=True):
                    results[i][place] = value
        balls.selected(np.array(indices) == len(branches) - 1)  # at the end, or it would count as the branch's own
        return results

    return choose


_NOTHING = np.zeros(0)
"""A placeholder for an output that is not needed."""


@rule("platform_index")
def platform(equation: Any) -> Any:
    """The branch for a CPU, or the one for all platforms."""
    for place, names in enumerate(equation.params["platforms"]):
        if names is None or "cpu" in names:
            return lambda *_: np.asarray(place, np.int32)
    return lambda *_: np.asarray(0, np.int32)
