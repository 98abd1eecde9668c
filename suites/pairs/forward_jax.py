"""The forward pass of a function of JAX as a plain function: what its own derivative must be the derivative of.

Where a pair names no reference, the function is judged against itself. The program of its forward pass is traced, the
custom derivatives in it are taken away, and every Pallas kernel is replaced by a loop over its grid that JAX can
differentiate. The derivative of that program is the reference. So what is judged is the derivative of what the forward
pass computes, and not whether it computes what it should.

Custom derivatives of JAX's own functions without a kernel, such as `jax.nn.relu`, stay: they belong to JAX.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxprs_in_params

from gradgate.hw_profiles import trip_count
from gradgate.suites.exact.on_jax import RULES, pallas
from gradgate.suites.exact.on_jax.block import kernel_line, source_line
from gradgate.suites.exact.on_jax.rules import kind_of
from gradgate.suites.judging.subject import Inapplicable

FILL = 0.6180339887
"""What memory that nobody wrote holds: a right kernel does not depend on it, and no function has an edge there."""
CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_vmap_call": "call",
}
"""Calls that are replaced by their body -> the parameter that holds it."""
CUSTOM = ("custom_jvp_call", "custom_vjp_call")
"""Calls with a derivative of their own; ``call_jaxpr`` is what they compute."""
LOOPS = ("scan", "while", "cond")
OWN = str(pathlib.Path(jax.__file__).parent)


def forward_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same arguments and outputs, whose derivative is that of its forward pass.

    Args:
        function: takes trees of arrays; whatever is no array is passed as it is.

    Raises:
        Unknown: when it is called, if JAX cannot discharge a kernel; the message names it.
    """

    @functools.wraps(function)
    def forward(*args: Any, **options: Any) -> Any:
        flat, tree = jax.tree.flatten((args, options))
        places = [i for i, leaf in enumerate(flat) if isinstance(leaf, (jax.Array, np.ndarray))]

        def called(*arrays: Any) -> Any:
            given = dict(zip(places, arrays, strict=True))
            own, keywords = jax.tree.unflatten(tree, [given.get(i, leaf) for i, leaf in enumerate(flat)])
            return function(*own, **keywords)

        arrays = [flat[i] for i in places]
        closed, shape = jax.make_jaxpr(called, return_shape=True)(*arrays)
        found = _run(closed.jaxpr, closed.consts, arrays, None)
        return jax.tree.unflatten(jax.tree.structure(shape), list(map(jnp.asarray, found)))

    return forward


@dataclass(frozen=True)
class _Place:
    """The program of a grid that runs: its place and the grid's lengths, without axes of vmap."""

    index: Sequence[Any]
    lengths: Sequence[Any]


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], place: _Place | None) -> list[Any]:
    """The outputs of a jaxpr; integers that depend on no argument are computed in NumPy, and stay known."""
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(atom: Any) -> Any:
        if not isinstance(atom, Literal):
            return known[atom]
        aval: Any = atom.aval
        return np.asarray(atom.val, aval.dtype)

    for equation in jaxpr.eqns:
        found = _step(equation, [read(atom) for atom in equation.invars], place)
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(equation: Any, values: list[Any], place: _Place | None) -> Sequence[Any]:
    """The outputs of an equation."""
    name, params = equation.primitive.name, equation.params
    if name == "pallas_call":
        return _kernel(equation, values)
    if name in ("program_id", "num_programs") and place is not None:
        return [(place.index if name == "program_id" else place.lengths)[params["axis"]]]
    if name in CALLS or (name in CUSTOM and not _of_jax(equation)):
        body = params[CALLS.get(name, "call_jaxpr")]
        return _run(*_parts(body), values, place)
    if name in LOOPS and (found := _loop(equation, values, place)) is not None:
        return found
    whole = all(kind_of(atom.aval.dtype) in "iub" for atom in (*equation.invars, *equation.outvars))
    if whole and name in RULES and all(map(_is_known, values)):
        answer = RULES[name](equation)(*values)
        many = answer if equation.primitive.multiple_results else [answer]
        return [np.asarray(one, v.aval.dtype) for one, v in zip(many, equation.outvars, strict=True)]
    with equation.ctx.manager:
        made = equation.primitive.bind(*map(jnp.asarray, values), **equation.primitive.get_bind_params(params))
    return made if equation.primitive.multiple_results else [made]


def _is_known(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _parts(body: Any) -> tuple[Any, Sequence[Any]]:
    return (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())


def _of_jax(equation: Any) -> bool:
    """Whether JAX's own code declares this call and its derivative, and it is no kernel."""
    jaxpr = _parts(equation.params["call_jaxpr"])[0]
    if any(each.primitive.name == "pallas_call" for each in pallas.equations(jaxpr)):
        return False
    return str(jaxpr.debug_info.func_src_info).partition(" at ")[2].startswith(OWN)


def _changes(jaxpr: Any, place: _Place | None) -> bool:
    """Whether a jaxpr has something that must be replaced."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "pallas_call" or (name in CUSTOM and not _of_jax(equation)):
            return True
        if place is not None and name in ("program_id", "num_programs"):
            return True
        if any(_changes(inner, place) for inner in jaxprs_in_params(equation.params)):
            return True
    return False


def _loop(equation: Any, values: list[Any], place: _Place | None) -> list[Any] | None:
    """The outputs of a loop or branch; None if JAX can run it as it is."""
    name, params = equation.primitive.name, equation.params
    changes = any(_changes(inner, place) for inner in jaxprs_in_params(params))
    if name == "cond":
        branches = params["branches"]
        if _is_known(values[0]):
            index = min(max(int(values[0]), 0), len(branches) - 1)
            return _run(*_parts(branches[index]), values[1:], place)
        if not changes:
            return None
        runs = [lambda *given, body=body: _arrays(_run(*_parts(body), given, place)) for body in branches]
        return list(jax.lax.switch(values[0], runs, *map(jnp.asarray, values[1:])))
    if name == "while":
        return _while(equation, values, place)
    return _scan(params, values, place) if changes else None


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(value) for value in values]


def _while(equation: Any, values: list[Any], place: _Place | None) -> list[Any]:
    """A loop; turn by turn where its condition is known, because JAX does not differentiate other loops in reverse."""
    params = equation.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def holds(values: Sequence[Any]) -> Any:
        return _run(*_parts(params["cond_jaxpr"]), [*values[:first], *values[second:]], place)[0]

    def turn(values: Sequence[Any]) -> list[Any]:
        return [*values[:second], *_run(*_parts(params["body_jaxpr"]), values[first:], place)]

    if _is_known(on := holds(values)) and not on.ndim:
        while on:
            values = turn(values)
            on = holds(values)
        return values[second:]

    def refused(_: Any, __: Any) -> Any:
        raise Inapplicable(
            "the forward pass has a loop whose length depends on numbers, and JAX differentiates none of these in "
            f"reverse (while, {source_line(equation) or 'unknown line'}); give a plain function as the reference"
        )

    @jax.custom_vjp
    def loop(*values: Any) -> Any:
        return jax.lax.while_loop(holds, lambda values: _arrays(turn(values)), _arrays(values))[second:]

    loop.defvjp(lambda *values: (loop(*values), None), refused)
    return list(loop(*values))


def _scan(params: Any, values: list[Any], place: _Place | None) -> list[Any]:
    consts, carries = trip_count.passed_to_scan(params)

    def turn(carry: Sequence[Any], row: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        found = _arrays(_run(*_parts(params["jaxpr"]), [*values[:consts], *carry, *row], place))
        return found[:carries], found[carries:]

    start, rows = _arrays(values[consts : consts + carries]), _arrays(values[consts + carries :])
    carry, stacked = jax.lax.scan(turn, start, rows, params["length"], params["reverse"])
    return [*carry, *stacked]


# Kernels --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """How the blocks of one operand lie in its padded array: see `pallas.Window`."""

    sizes: tuple[int, ...]
    scale: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    index: ClosedJaxpr

    def start(self, place: _Place, scalars: Sequence[Any]) -> list[Any]:
        """The first element of the block in every dimension."""
        found = _run(self.index.jaxpr, self.index.consts, [*place.index, *scalars], None)
        return [jnp.asarray(i, jnp.int32) * s for i, s in zip(found, self.scale, strict=False)]

    def padded(self, array: Any) -> Any:
        """The array, with what blocks reach beyond it."""
        return (
            jnp.pad(array, self.pads, constant_values=_filled((), array.dtype)) if any(map(any, self.pads)) else array
        )


def _window(mapping: Any) -> _Window:
    from jax._src.state import discharge  # as in `pallas`

    sizes, scale, _, shape = pallas.block_of(mapping)
    pads = []
    for size, length, dimension in zip(sizes, mapping.array_aval.shape, mapping.block_shape, strict=True):
        low, high = getattr(dimension, "padding", (0, 0))
        pads.append((low, high + -(low + length + high) % size))
    return _Window(sizes, scale, tuple(pads), shape, discharge.discharge_state(mapping.index_map_jaxpr))


def _filled(shape: tuple[int, ...], dtype: Any) -> Any:
    return jnp.full(shape, FILL if kind_of(dtype) in "fc" else 0, dtype)


def _kernel(equation: Any, values: list[Any]) -> list[Any]:
    """A pallas_call as a loop over its grid: a scan, or turn by turn where a loop within depends on the place."""
    params = equation.params
    mapping = params["grid_mapping"]
    body, scratch = pallas.discharged(equation)
    count, bounds = mapping.num_index_operands, iter(values[: mapping.num_dynamic_grid_bounds])
    grid = [size if isinstance(size, int) else next(bounds) for size in mapping.grid]
    if not all(isinstance(size, int) or _is_known(size) for size in grid):
        raise pallas.balls.Unknown(f"the grid of the kernel {kernel_line(equation)} depends on an argument")
    rest = values[mapping.num_dynamic_grid_bounds :]
    scalars, inputs = rest[:count], rest[count:]
    windows = [_window(each) for each in mapping.block_mappings]
    outputs = [_filled(each.array_aval.shape, each.array_aval.dtype) for each in mapping.block_mappings_output]
    for place, output in params["input_output_aliases"]:
        outputs[output] = rest[place]
    padded = [window.padded(each) for window, each in zip(windows, [*inputs, *outputs], strict=True)]
    constant, state = padded[: len(inputs)], padded[len(inputs) :]
    state += [_filled(each.shape, each.dtype) for each in scratch]
    seen = [axis for axis in range(len(grid)) if axis not in mapping.vmapped_dims]

    def turn(state: Sequence[Any], index: Sequence[Any]) -> list[Any]:
        whole = _Place(index, [np.asarray(size, np.int32) for size in grid])
        inner = _Place([index[axis] for axis in seen], [whole.lengths[axis] for axis in seen])
        starts = [window.start(whole, scalars) for window in windows]
        arrays, memory = [*constant, *state[: len(outputs)]], state[len(outputs) :]
        blocks = [
            jax.lax.dynamic_slice(array, start, window.sizes).reshape(window.shape)
            for window, array, start in zip(windows, arrays, starts, strict=True)
        ]
        found = _run(body.jaxpr, body.consts, [*scalars, *blocks, *memory], inner)[len(scalars) + len(inputs) :]
        written = [
            jax.lax.dynamic_update_slice(array, jnp.reshape(block, window.sizes), start)
            for window, array, start, block in zip(
                windows[len(inputs) :], state, starts[len(inputs) :], found, strict=False
            )
        ]
        return _arrays([*written, *found[len(outputs) :]])

    places = list(itertools.product(*(range(int(size)) for size in grid)))
    state = _arrays(state)
    if any(one.primitive.name == "while" for one in pallas.equations(body.jaxpr)):
        for each in places:
            state = turn(state, [np.asarray(i, np.int32) for i in each])
    elif places:
        rows = [jnp.asarray(column, jnp.int32) for column in zip(*places, strict=True)]
        state = jax.lax.scan(lambda state, row: (turn(state, row), None), state, rows, len(places))[0]
    return [
        jax.lax.slice(
            array,
            [low for low, _ in window.pads],
            [low + n for (low, _), n in zip(window.pads, each.array_aval.shape, strict=True)],
        )
        for window, array, each in zip(windows[len(inputs) :], state, mapping.block_mappings_output, strict=False)
    ]
