"""Pallas kernels: the kernel's body runs on balls once for every place of its grid, as the hardware's memory has it.

A kernel may be declared for a TPU, for a GPU or for JAX's interpreter, and none of them is needed: JAX discharges its
references into values (`kernel_to_hlo_jaxpr`), and the blocks are cut out and put back here. This differs from JAX's
interpreter in what the interpreter is kinder about than the hardware:

- Memory that nobody wrote holds no number: an output or a scratch buffer before its first write, and the part of a
  block that lies outside its array. A result that depends on it is not a number, and the run notes it.
- A block outside its array is not moved inside; what a kernel writes there is lost.
- On a TPU, an output block to which the grid returns after another block does not hold its earlier numbers. On a GPU,
  a program does not see what other programs write, unless the kernel uses atomics.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from flint import arb
from jax.extend.core import ClosedJaxpr, jaxprs_in_params

from gradgate.suites.exact import balls, tiles
from gradgate.suites.exact.on_jax.block import Block, Run, kernel_line
from gradgate.suites.exact.on_jax.rules import kind_of, lockstep
from gradgate.suites.exact.tiles import Tiles

UNWRITTEN = arb.nan()
"""The one object that stands for a number that nobody wrote. What is computed from it is another NaN."""
FILLS = (UNWRITTEN, arb(1.6180339887e9), arb(-1.6180339887e9))
"""What unwritten memory is taken for in turn, where a comparison could hide that it was read."""
HIDING = frozenset(
    {
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "eq_to",
        "le_to",
        "lt_to",
        "is_finite",
        "sign",
        "argmax",
        "argmin",
        "sort",
        "top_k",
        "convert_element_type",
    }
)
"""Primitives whose result can be a number although an operand is not."""

_IS = np.frompyfunc(operator.is_, 2, 1)
_NAN = np.frompyfunc(lambda ball: ball.is_nan(), 1, 1)
_SAME = np.frompyfunc(
    lambda one, other: (
        one is other or (one.is_nan() and other.is_nan()) or (one.mid() == other.mid() and one.rad() == other.rad())
    ),
    2,
    1,
)

NOTHING: Any = arb.nan()
"""The result of what read unwritten memory."""


def _where(test: Any, *arrays: Any) -> Any:
    """Where a test of elements holds, as booleans."""
    return np.asarray(test(*arrays), bool)


@dataclass(frozen=True)
class Window:
    """How the blocks of one operand lie in its array.

    Attributes:
        sizes: lengths of a block, 1 where the kernel does not see the dimension.
        scale: what the index map's numbers are multiplied by, to give the first element of the block.
        low: elements of padding in front of the array.
        shape: the block's shape in the kernel.
        index: the index map: places of the grid, and scalars that are fetched in advance -> block indices.
    """

    sizes: tuple[int, ...]
    scale: tuple[int, ...]
    low: tuple[int, ...]
    shape: tuple[int, ...]
    index: Block

    def start(self, place: Sequence[int], scalars: Sequence[Any], run: Run) -> tuple[int, ...]:
        """The first element of the block at a place of the grid, in every dimension; it may lie outside."""
        given = [*(np.asarray(i, np.int32) for i in place), *scalars]
        found = self.index([given], run)[0][: len(self.sizes)]
        return tuple(int(i) * s - low for i, s, low in zip(found, self.scale, self.low, strict=True))

    def inside(self, start: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where the array and the block overlap, in the array and in the block."""
        ends = [
            (max(s, 0), max(min(s + n, length), max(s, 0)))
            for s, n, length in zip(start, self.sizes, shape, strict=True)
        ]
        return (
            tuple(slice(a, b) for a, b in ends),
            tuple(slice(a - s, b - s) for (a, b), s in zip(ends, start, strict=True)),
        )

    def cut(self, array: Any, start: tuple[int, ...], fill: Any) -> Any:
        """A copy of the block, with `fill` where it lies outside the array."""
        there, here = self.inside(start, array.shape)
        part = array[(*there, ...)]  # an array for shape (), too
        if part.shape == self.sizes:
            return part.copy().reshape(self.shape)
        block = np.empty(self.sizes, array.dtype)
        block[...] = fill
        if part.size:
            block[here] = part
        return block.reshape(self.shape)


def discharged(equation: Any) -> Any:
    """The kernel as a function of values: scalars, blocks and scratch -> the same, as the kernel leaves them.

    Raises:
        Unknown: JAX cannot discharge one of the kernel's operations.
    """
    from jax._src.pallas import hlo_interpreter  # the public API has no way from a kernel to a function of values

    wide = any(atom.aval.dtype.itemsize == 8 for atom in (*equation.invars, *equation.outvars))
    try:
        with equation.ctx.manager, jax.enable_x64(wide):
            jaxpr, consts, scratch = hlo_interpreter.kernel_to_hlo_jaxpr(
                equation.params["jaxpr"], (), equation.params["grid_mapping"]
            )
    except Exception as error:  # whatever JAX does not support raises its own
        words = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise balls.Unknown(f"JAX cannot discharge the kernel {kernel_line(equation)}: {words}") from error
    return ClosedJaxpr(jaxpr, consts), scratch


def target(equation: Any) -> str:
    """``tpu`` or ``gpu``, from the parameters for a compiler; "" if the kernel gives none."""
    module = type(equation.params.get("compiler_params")).__module__
    return "gpu" if ".triton" in module or ".mosaic_gpu" in module else "tpu" if ".mosaic" in module else ""


Sizes = tuple[int, ...]


def block_of(mapping: Any) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Lengths of a block, factors of the index map, padding in front, and the block's shape in the kernel.

    Raises:
        Unknown: a kind of block without a rule.
    """
    from jax._src.pallas import core

    sizes, scale, low, shape = [], [], [], []
    for dimension in mapping.block_shape:
        match dimension:
            case core.Squeezed():
                size, step, before = 1, 1, 0
            case core.Element():
                size, step, before = dimension.block_size, 1, dimension.padding[0]
            case core.Blocked():
                size, step, before = dimension.block_size, dimension.block_size, 0
            case _:
                raise balls.Unknown(f"a block of {type(dimension).__name__}")
        sizes.append(size)
        scale.append(step)
        low.append(before)
        shape += [] if isinstance(dimension, core.Squeezed) else [size]
    return tuple(sizes), tuple(scale), tuple(low), tuple(shape)


def _window(mapping: Any, compiled: Callable[[Any], Any]) -> Window:
    from jax._src.state import discharge

    block, _ = compiled(discharge.discharge_state(mapping.index_map_jaxpr)).block()
    return Window(*block_of(mapping), block)


class Kernel:
    """A pallas_call, ready to run.

    Attributes:
        windows: how blocks of the inputs, and then of the outputs, lie in their arrays.
        target: see `target`.
        atomic: whether programs change numbers of each other on purpose.
        hides: whether reading unwritten memory may give a number, so that the kernel runs for all `FILLS`.
    """

    def __init__(self, equation: Any, compiled: Callable[[Any], Any]) -> None:
        params = equation.params
        mapping = params["grid_mapping"]
        body, self.scratch = discharged(equation)
        self.body: Block = compiled(body).block()[0]
        self.windows = [_window(each, compiled) for each in mapping.block_mappings]
        self.inputs = len(self.windows) - mapping.num_outputs
        self.outputs = [each.array_aval for each in mapping.block_mappings_output]
        self.grid, self.mapped = mapping.grid, mapping.vmapped_dims
        self.dynamic, self.scalars = mapping.num_dynamic_grid_bounds, mapping.num_index_operands
        self.aliases = {output: place - self.scalars for place, output in params["input_output_aliases"]}
        self.name, self.target = kernel_line(equation), target(equation)
        self.atomic = any("atomic" in each.primitive.name for each in equations(params["jaxpr"]))
        whole = [aval for aval in (*self.outputs, *self.scratch) if kind_of(aval.dtype) not in "fc"]
        self.hides = bool(whole) or any(map(_hides, equations(body.jaxpr)))

    def __call__(self, values: list[Any], run: Run) -> list[Any]:
        """The outputs of one device. What depends on unwritten memory is NaN, and is noted in the run."""
        first = self._run(values, run, FILLS[0])
        if self.hides:
            for fill in FILLS[1:]:
                with balls.comparing():  # what unwritten memory is compared with is no decision
                    again = self._run(values, replace(run, watch=None), fill)
                first = [_agreed(one, other) for one, other in zip(first, again, strict=True)]
        given = [value for value in values if balls.is_balls(value)]
        whole = not any(ball.is_nan() for array in given for ball in array.flat)
        for number, array in enumerate(first):
            run.notes.extend(self._notes(number, array, whole))
        return first

    def _notes(self, number: int, array: Any, whole: bool) -> Iterator[str]:
        """What is to be said about an output; `whole`: no input has a NaN."""
        if not balls.is_balls(array):
            return
        missing = _where(_IS, array, UNWRITTEN)
        empty = _where(_NAN, array) & ~missing
        for mask, words in ((missing, "is written by no program"), (empty, "depends on what no program wrote")):
            if mask.any() and (whole or mask is missing):
                place = ", ".join(map(str, np.argwhere(mask)[0])) if mask.ndim else ""
                yield f"output {number}[{place}] of the kernel {self.name}, {words}"

    def _count(self, into: Tiles, starts: Sequence[tuple[int, ...]], arrays: Sequence[Any]) -> None:
        """Count how the blocks of one program lie in their arrays.

        A block that has the whole array, or one element, in every dimension says nothing: it cannot be ragged.
        """
        for number, (window, start, array) in enumerate(zip(self.windows, starts, arrays, strict=True)):
            if any(size not in (1, length) for size, length in zip(window.sizes, array.shape, strict=True)):
                part = window.inside(start, array.shape)[0]
                lengths = [piece.stop - piece.start for piece in part]
                way = tiles.FULL if tuple(lengths) == window.sizes else tiles.RAGGED if all(lengths) else tiles.EMPTY
                operand = f"input {number}" if number < self.inputs else f"output {number - self.inputs}"
                tiles.note(into, tiles.BLOCK, f"{operand} of {self.name}", way)

    def _run(self, values: list[Any], run: Run, fill: Any) -> list[Any]:
        """The outputs, with unwritten memory taken for `fill`."""
        bounds, rest = iter(values[: self.dynamic]), values[self.dynamic :]
        grid = [size if isinstance(size, int) else int(next(bounds)) for size in self.grid]
        scalars, inputs = rest[: self.scalars], list(rest[self.scalars :])
        arrays = [_blank(aval, fill) for aval in self.outputs]
        for output, place in self.aliases.items():
            if place < 0:
                raise balls.Unknown("an output in the memory of a scalar")
            inputs[place] = arrays[output] = inputs[place].copy()  # one memory
        memory = _Memory(self, arrays, fill)
        scratch = [_blank(aval, fill) for aval in self.scratch]
        seen = [axis for axis in range(len(grid)) if axis not in self.mapped]
        for place in itertools.product(*map(range, grid)):
            own = {f"{GRID}{axis}": place[at] for axis, at in enumerate(seen)}
            sizes = {f"{GRID}{axis}": grid[at] for axis, at in enumerate(seen)}
            inner = replace(
                run, brief=run.watch is not None, places=[{**run.places[0], **own}], sizes={**run.sizes, **sizes}
            )
            starts = [window.start(place, scalars, inner) for window in self.windows]
            if fill is FILLS[0]:
                self._count(run.tiles, starts, [*inputs, *arrays])
            pairs = zip(self.windows, inputs, starts, strict=False)
            blocks = [window.cut(array, start, _number(fill, array.dtype)) for window, array, start in pairs]
            before = memory.blocks(starts[self.inputs :])
            found = self.body([[*scalars, *blocks, *before, *scratch]], inner)[0]
            end = len(found) - len(scratch)
            memory.write(starts[self.inputs :], before, found[end - len(before) : end])
            scratch = found[end:]
        return arrays


class _Memory:
    """The arrays of a kernel's outputs while its grid runs."""

    def __init__(self, kernel: Kernel, arrays: list[Any], fill: Any) -> None:
        self.kernel, self.arrays, self.fill = kernel, arrays, fill
        self.windows = kernel.windows[kernel.inputs :]
        self.apart = kernel.target == "gpu" and not kernel.atomic
        self.initial = [array.copy() for array in arrays] if self.apart else arrays
        self.written = [np.zeros(array.shape, bool) for array in arrays] if self.apart else []
        self.last: list[tuple[int, ...] | None] = [None] * len(arrays)
        self.visited: list[set[tuple[int, ...]]] = [set() for _ in arrays]

    def blocks(self, starts: Sequence[tuple[int, ...]]) -> list[Any]:
        """What a program finds in the blocks of its outputs."""
        found = []
        for number, (window, start) in enumerate(zip(self.windows, starts, strict=True)):
            array = self.initial[number]
            number_of = _number(self.fill, array.dtype)
            block = window.cut(array, start, number_of)
            back = start in self.visited[number] and start != self.last[number]
            if back and self.kernel.target == "tpu" and number not in self.kernel.aliases:
                block = np.full(block.shape, number_of, block.dtype)
            found.append(block)
        return found

    def write(self, starts: Sequence[tuple[int, ...]], before: Sequence[Any], after: Sequence[Any]) -> None:
        """Write the blocks of a program's outputs."""
        for number, (window, start) in enumerate(zip(self.windows, starts, strict=True)):
            self.last[number] = start
            self.visited[number].add(start)
            there, here = window.inside(start, self.arrays[number].shape)
            old, new = (block.reshape(window.sizes)[(*here, ...)] for block in (before[number], after[number]))
            if self.apart and old.dtype == object:
                self._write_apart(number, there, old, new)
            else:
                self.arrays[number][there] = new

    def _write_apart(self, number: int, there: tuple[slice, ...], old: Any, new: Any) -> None:
        """Write what one of several simultaneous programs changed; two that disagree leave no number."""
        changed = ~_where(_IS, old, new)
        where: Any = (*there, ...)
        target, written = self.arrays[number][where], self.written[number][where]
        clash = changed & written & ~_where(_SAME, target, new)
        target[changed] = new[changed]
        target[clash] = NOTHING
        written |= changed


def _number(fill: Any, dtype: Any) -> Any:
    """What unwritten memory of a dtype holds."""
    if dtype.kind == "O":
        return fill
    if dtype.kind == "b":
        return fill is not UNWRITTEN
    limits = np.iinfo(dtype)
    return limits.min if fill is UNWRITTEN else 1 if fill > 0 else limits.max


def _blank(aval: Any, fill: Any) -> Any:
    """Unwritten memory; semaphores begin at zero."""
    from jax._src.pallas.core import SEMAPHORE_INTERPRET_DTYPE

    kind = np.dtype(object if kind_of(aval.dtype) in "fc" else aval.dtype)
    return np.full(aval.shape, 0 if kind == np.dtype(SEMAPHORE_INTERPRET_DTYPE) else _number(fill, kind), kind)


def _agreed(one: Any, other: Any) -> Any:
    """The numbers that are the same in both; NaN elsewhere.

    Raises:
        Unknown: whole numbers differ, which have no NaN.
    """
    if one.dtype == object:
        same = _where(_SAME, one, other)
        return one if same.all() else np.where(same, one, NOTHING)
    if not np.array_equal(one, other):
        raise balls.Unknown("whole numbers of an output that no program wrote, or that depend on what none wrote")
    return one


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those of loops and branches too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def _hides(equation: Any) -> bool:
    """Whether an equation may give a number although an operand is not one."""
    if equation.primitive.name not in HIDING or kind_of(equation.invars[0].aval.dtype) not in "fc":
        return False
    return not (equation.primitive.name == "convert_element_type" and kind_of(equation.outvars[0].aval.dtype) in "fc")


@lockstep("pallas_call")
def pallas_call(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A Pallas kernel, for all places of its grid in order."""
    kernel = Kernel(equation, compiled)
    return lambda lanes, run: [
        kernel(list(values), replace(run, places=[place])) for values, place in zip(lanes, run.places, strict=True)
    ]


GRID = "axis of the grid "
"""What the axes of a kernel's grid are called among the axes of a mesh."""


@lockstep("program_id", "num_programs")
def program_id(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A program's place along an axis of the grid, or the length of that axis."""
    axis, place = f"{GRID}{equation.params['axis']}", equation.primitive.name == "program_id"
    return lambda lanes, run: [np.asarray((one if place else run.sizes)[axis], np.int32) for one in run.places]
