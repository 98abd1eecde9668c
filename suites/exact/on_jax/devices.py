"""shard_map and collectives: the body runs for all devices in lockstep, on one host."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.choices import LARGER, SMALLER
from gradgate.suites.exact.on_jax.rules import inexact, lockstep


def _axes_of(spec: Any, rank: int) -> list[tuple[str, ...]]:
    """Mesh axes that divide each dimension."""
    if getattr(spec, "unreduced", None):
        raise balls.Unknown("shard_map with unreduced values")
    entries = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec]
    return entries + [()] * (rank - len(entries))


def _part(value: Any, axes: list[tuple[str, ...]], place: dict[str, int], sizes: dict[str, int]) -> Any:
    """The part of an array that one device has."""
    where = []
    for dimension, names in enumerate(axes):
        index, count = 0, 1
        for name in names:
            index, count = index * sizes[name] + place[name], count * sizes[name]
        length = value.shape[dimension] // count
        where.append(slice(index * length, (index + 1) * length))
    return value[tuple(where)] if where else value


def _joined(parts: list[Any], places: list[dict[str, int]], axes: list[tuple[str, ...]], sizes: dict[str, int]) -> Any:
    """The array whose parts the devices have; if several devices have the same part, the first one's is taken."""
    counts = [int(np.prod([sizes[name] for name in names], dtype=int)) for names in axes]
    shape = [n * count for n, count in zip(parts[0].shape, counts, strict=True)]
    if not shape:
        return parts[0]
    result = np.empty(shape, parts[0].dtype)
    for part, place in reversed(list(zip(parts, places, strict=True))):
        view = _part(result, axes, place, sizes)
        view[...] = part
    return result


@lockstep("shard_map")
def shard_map(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """The body once for every device of the mesh, on its parts."""
    params = equation.params
    mesh, manual = params["mesh"], params.get("newly_manual_axes")
    names = [name for name in mesh.axis_names if manual is None or name in manual]
    own = {name: mesh.shape[name] for name in names}
    block, _ = compiled(params["jaxpr"]).block(needed)
    inputs = [_axes_of(s, len(v.aval.shape)) for s, v in zip(params["in_specs"], equation.invars, strict=True)]
    outputs = [_axes_of(s, len(v.aval.shape)) for s, v in zip(params["out_specs"], equation.outvars, strict=True)]
    coordinates = [dict(zip(names, at, strict=True)) for at in itertools.product(*(range(own[n]) for n in names))]
    wanted = [i for i, use in enumerate(needed) if use]

    def run_on(lanes: list[list[Any]], run: Any) -> list[list[Any]]:
        sizes = {**run.sizes, **own}
        places = [{**outer, **inner} for outer in run.places for inner in coordinates]
        given = [
            [_part(value, axes, place, sizes) for value, axes in zip(values, inputs, strict=True)]
            for values, group in zip(lanes, _groups(places, len(lanes)), strict=True)
            for place in group
        ]
        found = _groups(block(given, replace(run, places=places, sizes=sizes)), len(lanes))
        results = []
        for parts in found:
            row: list[Any] = [np.zeros(0)] * len(needed)
            for place, index in enumerate(wanted):
                row[index] = _joined([each[place] for each in parts], coordinates, outputs[index], own)
            results.append(row)
        return results

    return run_on


def _groups(values: list[Any], count: int) -> list[list[Any]]:
    """A list, split into `count` lists of equal length."""
    length = len(values) // count
    return [values[i * length : (i + 1) * length] for i in range(count)]


def _names(params: Any) -> tuple[Any, ...]:
    found = params.get("axes", params.get("axis_name"))
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def together(equation: Any) -> Callable[[Any], list[list[int]]]:
    """Run -> the groups of devices that a collective joins, each in the order of its axes."""
    names, subsets = _names(equation.params), equation.params.get("axis_index_groups")

    def groups(run: Any) -> list[list[int]]:
        found: dict[Any, list[tuple[int, int]]] = {}
        for lane, place in enumerate(run.places):
            rest = tuple(sorted((k, v) for k, v in place.items() if k not in names))
            found.setdefault(rest, []).append((_rank(names, place, run.sizes), lane))
        rows = [[lane for _, lane in sorted(pairs)] for pairs in found.values()]
        return rows if subsets is None else [[row[i] for i in subset] for row in rows for subset in subsets]

    return groups


def _rank(names: tuple[Any, ...], place: dict[str, int], sizes: dict[str, int]) -> int:
    """The number of a device along some axes, the last of which counts fastest."""
    rank = 0
    for name in names:
        rank = rank * sizes[name] + place[name]
    return rank


def _collective(equation: Any, combine: Callable[[list[Any]], list[Any]]) -> Any:
    """A collective: `combine` makes the result of every device of a group from the values of all of them."""
    groups, many = together(equation), equation.primitive.multiple_results

    def run_on(lanes: list[list[Any]], run: Any) -> list[Any]:
        results: list[Any] = [[] for _ in lanes]
        for group in groups(run):
            for values in zip(*(lanes[i] for i in group), strict=True):
                for lane, value in zip(group, combine(list(values)), strict=True):
                    results[lane].append(value)
        return results if many else [row[0] for row in results]

    return run_on


def _folded(function: Any) -> Callable[[list[Any]], list[Any]]:
    def combine(values: list[Any]) -> list[Any]:
        found = values[0]
        for value in values[1:]:
            found = function(found, value)
        return [found] * len(values)

    return combine


@lockstep("psum", "psum_invariant", "pmax", "pmin")
def reduced(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """Sum or extreme over devices."""
    name, exact = equation.primitive.name, inexact(equation.invars[0])
    if any(isinstance(axis, int) for axis in _names(equation.params)):
        raise balls.Unknown(f"{name} over a dimension of the array")
    function = {"pmax": LARGER if exact else np.maximum, "pmin": SMALLER if exact else np.minimum}.get(name, np.add)
    return _collective(equation, _folded(function))


@lockstep("all_gather", "all_gather_invariant")
def all_gather(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """The arrays of all devices, concatenated or stacked."""
    params = equation.params
    axis, tiled = params["all_gather_dimension"], params["tiled"]
    join: Callable[..., Any] = np.concatenate if tiled else np.stack
    return _collective(equation, lambda values: [join(values, axis)] * len(values))


@lockstep("reduce_scatter")
def reduce_scatter(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """The sum over devices; each device keeps its part of the sum."""
    axis, tiled = equation.params["scatter_dimension"], equation.params["tiled"]

    def combine(values: list[Any]) -> list[Any]:
        parts = np.split(_folded(np.add)(values)[0], len(values), axis)
        return parts if tiled else [part.reshape(part.shape[:axis] + part.shape[axis + 1 :]) for part in parts]

    return _collective(equation, combine)


@lockstep("all_to_all")
def all_to_all(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """Each device sends a part to every other."""
    params = equation.params
    split, concat, tiled = params["split_axis"], params["concat_axis"], params["tiled"]

    def combine(values: list[Any]) -> list[Any]:
        pieces = [np.split(value, len(values), split) for value in values]
        if tiled:
            return [np.concatenate([row[i] for row in pieces], concat) for i in range(len(values))]
        flat = [[piece.reshape(piece.shape[:split] + piece.shape[split + 1 :]) for piece in row] for row in pieces]
        return [np.stack([row[i] for row in flat], concat) for i in range(len(values))]

    return _collective(equation, combine)


@lockstep("ppermute")
def permute(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """Each device sends its array to another; a device that receives nothing gets zeros."""
    senders = {target: source for source, target in equation.params["perm"]}

    def combine(values: list[Any]) -> list[Any]:
        empty = values[0]
        zero = balls.full(empty.shape, 0) if empty.dtype == object else np.zeros_like(empty)
        return [values[senders[i]] if i in senders else zero for i in range(len(values))]

    return _collective(equation, combine)


@lockstep("axis_index")
def axis_index(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """The number of each device along an axis."""
    names = _names(equation.params)
    return lambda lanes, run: [np.asarray(_rank(names, place, run.sizes), np.int32) for place in run.places]
