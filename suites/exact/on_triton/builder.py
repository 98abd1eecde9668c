"""The interpreter's builder on balls: every operation on floats by its definition, without rounding."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.suites.exact import balls, tiles
from gradgate.suites.exact.on_torch.mode import State
from gradgate.suites.exact.on_triton.memory import UNDEFINED, Memory, line

interpreter: Any = importlib.import_module("triton.runtime.interpreter")
language: Any = importlib.import_module("triton.language")
Handle: Any = interpreter.TensorHandle


def divided(one: Any, other: Any) -> Any:
    """The quotient; as IEEE has it, infinite where a number other than zero is divided by zero."""
    if other.is_zero() and one.is_finite():
        balls.divided(other)
        return balls.arb.pos_inf() if one > 0 else balls.arb.neg_inf() if one < 0 else UNDEFINED
    return one / other


def whole_part(ball: Any) -> Any:
    """The number rounded towards zero.

    Raises:
        Undecided: the ball contains a whole number and others.
    """
    return balls.UNARY["ceil" if ball < 0 else "floor"](ball)


def remainder(one: Any, other: Any) -> Any:
    """The remainder with the sign of the dividend, as C's fmod."""
    return one - other * whole_part(one / other)


def _log2(ball: Any) -> Any:
    return balls.UNARY["log"](ball) / balls.arb(2).log()


BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: lambda a, b: balls.whole(a + b),
    np.subtract: lambda a, b: balls.whole(a - b),
    np.multiply: lambda a, b: balls.whole(a * b),
    np.divide: functools.partial(balls.elementwise, divided),
    np.fmod: functools.partial(balls.elementwise, remainder),
    np.minimum: balls.minimum,
    np.fmin: balls.minimum,
    np.maximum: balls.maximum,
    np.fmax: balls.maximum,
}
COMPARISONS = {
    np.less: "lt",
    np.less_equal: "le",
    np.greater: "gt",
    np.greater_equal: "ge",
    np.equal: "eq",
    np.not_equal: "ne",
}
UNARY: dict[Any, Callable[[Any], Any]] = {
    np.negative: balls.UNARY["neg"],
    np.abs: balls.UNARY["abs"],
    np.log2: _log2,
    **{getattr(np, name): balls.UNARY[name] for name in ("cos", "sin", "exp", "exp2", "log", "sqrt", "floor", "ceil")},
}


def floating(handle: Any) -> bool:
    """Whether a handle holds balls."""
    return balls.is_balls(handle.data) or handle.dtype.scalar.is_floating()


def lifted(handle: Any) -> Any:
    """The balls of a handle of floats."""
    return balls.exact(handle.data)


class BallBuilder(interpreter.InterpreterBuilder):
    """Builds values in place of instructions, as the interpreter's own builder; floats are arrays of balls.

    Args:
        memory: the memory of the launch.
        state: the evaluation. It takes the names of the dtypes to which the kernel casts wider floats, and how masks,
            branches and loops go.
    """

    def __init__(self, memory: Memory, state: State) -> None:
        super().__init__()
        self.memory, self.state = memory, state
        self.options: Any = dataclasses.replace(interpreter.InterpreterOptions(), debug=True)  # evaluates assertions

    def __getattr__(self, name: str) -> Any:
        """Refuse an instruction that the interpreter does not have."""
        if name.startswith("create_"):
            raise self._unknown(f"{name.removeprefix('create_')}, which Triton's interpreter lacks")
        raise AttributeError(name)

    def _unknown(self, what: str) -> Exception:
        return balls.Unknown(f"the Triton kernel {self.memory.place()}: {what}")

    # decisions

    def decided(self, operation: str) -> None:
        """Tell who watches that an operation at the kernel's line made all comparisons since the last one."""
        if self.state.watch is not None and balls.compared():
            self.state.watch(operation, line(), _NOTHING)

    def masked(self, mask: Any, shape: tuple[int, ...]) -> Any:
        """The mask of a load or a store as one boolean for each lane; it is counted."""
        handled = isinstance(mask, Handle)  # that of a descriptor is a plain array in Triton 3.7
        inside = np.broadcast_to(mask.data if handled else mask, shape).reshape(-1)
        if not (handled and _NO_MASK in mask.attr):
            tiles.note_mask(self.state.tiles, tiles.MASK, line(), inside)
        return inside

    def branched(self, truth: bool) -> None:
        """Count a condition of the kernel's `if` or `while`; Triton's own conditions are none."""
        if where := line(direct=True):
            tiles.note(self.state.tiles, tiles.BRANCH, where, "true" if truth else "false")

    def looped(self, turns: int) -> None:
        """Count a loop over a range."""
        tiles.note_loop(self.state.tiles, line(), turns)

    # assertions

    def create_assert(self, condition: Any, message: Any) -> None:
        """Note an assertion that fails: on a device it ends the program."""
        if not np.all(condition.data):
            self.memory.traces.faults[f"{self.memory.place()} asserts what is false: {message}"] = None

    def create_assume(self, condition: Any) -> None:
        """As `create_assert`: what the compiler takes for true."""
        self.create_assert(condition, "an assumption")

    # the grid

    def set_grid_dim(self, nx: Any, ny: Any, nz: Any) -> None:
        """The numbers of programs; they run in the order that the launch asks for."""
        super().set_grid_dim(nx, ny, nz)
        numbers = np.arange(int(nx) * int(ny) * int(nz))
        order = self.memory.traces.order
        self._order = {
            "forwards": numbers,
            "backwards": numbers[::-1],
            "shuffled": np.random.Generator(np.random.PCG64(0)).permutation(numbers),
        }[order]

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        """The next program."""
        program = int(self._order[(x * self.grid_dim[1] + y) * self.grid_dim[2] + z])
        self.memory.enter(program)
        super().set_grid_idx(*(int(place) for place in np.unravel_index(program, tuple(map(int, self.grid_dim)))))

    # constants

    def _float(self, value: Any, dtype: Any) -> Any:
        return Handle(balls.exact(np.array([float(value)])), dtype)

    def get_int1(self, value: Any) -> Any:
        """A truth; true is also the mask of an atomic that has none."""
        return Handle(np.array([value], bool), language.int1, {_NO_MASK: True} if value else {})

    def get_fp16(self, value: Any) -> Any:
        """A constant: the number that is written in the kernel."""
        return self._float(value, language.float16)

    def get_bf16(self, value: Any) -> Any:
        """As `get_fp16`."""
        return self._float(value, language.bfloat16)

    def get_fp32(self, value: Any) -> Any:
        """As `get_fp16`."""
        return self._float(value, language.float32)

    def get_fp64(self, value: Any) -> Any:
        """As `get_fp16`."""
        return self._float(value, language.float64)

    def get_null_value(self, type: Any) -> Any:
        """Zero."""
        return self._float(0.0, type) if type.scalar.is_floating() else super().get_null_value(type)

    # memory: `how` and `named` are policies of caches, which differ from version to version and change no number

    def create_load(self, ptr: Any, *how: Any) -> Any:
        """Numbers of an argument's memory, without a mask."""
        return self.create_masked_load(ptr, self._unmasked(ptr), None, *how)

    def create_store(self, ptr: Any, val: Any, *how: Any) -> Any:
        """Write numbers into an argument's memory, without a mask."""
        return self.create_masked_store(ptr, val, self._unmasked(ptr), *how)

    def _unmasked(self, ptr: Any) -> Any:
        return Handle(np.ones(ptr.data.shape, bool), language.int1, {_NO_MASK: True})

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
        """Numbers of an argument's memory."""
        shape, dtype = ptrs.data.shape, ptrs.get_element_ty()
        inside = self.masked(mask, shape)
        parts = self.memory.parts(ptrs.data.reshape(-1), inside, "read")
        for region, _, places in parts:
            self.memory.read(region, places)
        if not dtype.is_floating() and not any(region.shadow is not None for region, _, _ in parts):
            legal = np.zeros(inside.shape, bool)
            for _, lanes, _ in parts:
                legal[lanes] = True
            known = Handle(legal.reshape(shape), language.int1)
            return super().create_masked_load(ptrs, known, other, *how, **named)
        found = np.empty(inside.shape, object)
        if other is None:
            found[:] = UNDEFINED
            if not inside.all():
                self.memory.suspects[line()] = None
        else:
            found[:] = np.broadcast_to(lifted(other), shape).reshape(-1)
            found[inside] = UNDEFINED
        for region, lanes, places in parts:
            self._check(region, dtype)
            values = region.shadow[places]
            if any(ball is UNDEFINED for ball in values.tolist()):
                self.memory.suspects[line()] = None
            found[lanes] = values
        return Handle(found.reshape(shape), dtype)

    def _check(self, region: Any, dtype: Any) -> None:
        if region.shadow is None or region.element != max(1, dtype.primitive_bitwidth // 8):
            raise self._unknown(f"numbers of {region.tensor.dtype} read or written as {dtype}")

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *how: Any) -> Any:
        """Write numbers into an argument's memory."""
        self._write(ptrs, value, self.masked(mask, ptrs.data.shape), False, how)

    def _write(self, ptrs: Any, value: Any, inside: Any, atomic: bool, how: tuple[Any, ...]) -> None:
        shape, dtype = ptrs.data.shape, ptrs.get_element_ty()
        parts = self.memory.parts(ptrs.data.reshape(-1), inside, "write")
        values = np.broadcast_to(value.data, shape).reshape(-1)
        if floating(value):
            values = balls.exact(values)
            for region, lanes, places in parts:
                self._check(region, dtype)
                self.memory.write(region, places, values[lanes], atomic)
            return
        legal = np.zeros(inside.shape, bool)
        for region, lanes, places in parts:
            if region.shadow is not None:
                raise self._unknown("the bits of floats written as whole numbers")
            self.memory.write(region, places, values[lanes], atomic)
            legal[lanes] = True
        super().create_masked_store(ptrs, value, Handle(legal.reshape(shape), language.int1), *how)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Read, combine and write in one step; of floats, lane after lane."""
        shape = ptr.data.shape
        inside = self.masked(mask, shape)
        parts = self.memory.parts(ptr.data.reshape(-1), inside, "write")
        name = rmwOp.name
        if not floating(val):
            legal = np.zeros(inside.shape, bool)
            for region, lanes, places in parts:
                if region.shadow is not None:
                    raise self._unknown("an atomic on the bits of floats")
                self.memory.locked |= name == "XCHG"
                self.memory.write(region, places, val.data, True)
                legal[lanes] = True
            return super().create_atomic_rmw(rmwOp, ptr, val, Handle(legal.reshape(shape), language.int1), sem, scope)
        # the maximum of floats is made of two of integers: their bits are ordered, those of negative ones backwards
        combine = {
            "ADD": lambda a, b: a + b,
            "FADD": lambda a, b: a + b,
            "XCHG": lambda a, b: b,
            "MAX": balls._larger,
            "UMIN": balls._larger,
            "MIN": balls._smaller,
            "UMAX": balls._smaller,
        }.get(name)
        if combine is None:
            raise self._unknown(f"the atomic {name} of floats")
        before = balls.full(inside.shape, 0.0)
        values = np.broadcast_to(lifted(val), shape).reshape(-1)
        for region, lanes, places in parts:
            self._check(region, ptr.get_element_ty())
            for lane, place in zip(lanes.tolist(), places.tolist(), strict=True):
                before[lane] = old = region.shadow[place]
                if old is UNDEFINED:
                    self.memory.suspects[line()] = None
                at = np.array([place])
                self.memory.write(region, at, balls.whole(combine(old, values[lane])).reshape(1), True)
        self.decided(f"atomic {name.lower()}")
        return Handle(before.reshape(shape), val.dtype.scalar)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Compare and swap of whole numbers: a lock."""
        if floating(val) or floating(cmp):
            raise self._unknown("an atomic comparison of floats")
        self.memory.locked = True
        if len(self.memory.parts(ptr.data.reshape(-1), np.ones(ptr.data.size, bool), "write")) != 1:
            raise self._unknown("an atomic comparison outside of every tensor")
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_descriptor_load(self, desc: Any, indices: Any, *how: Any) -> Any:
        """A block of a tensor descriptor; no number of it is rounded to TF32."""
        desc.round_f32_to_tf32 = False
        return super().create_descriptor_load(desc, indices, *how)

    def create_descriptor_reduce(self, kind: Any, desc: Any, value: Any, indices: Any) -> None:
        """An atomic on a block of a tensor descriptor."""
        pointers, mask = desc.materialize_pointers(indices)
        step = getattr(interpreter._ir.ATOMIC_OP, kind.name)
        self.create_atomic_rmw(step, pointers, value, mask, None, None)

    def create_descriptor_gather(self, desc: Any, x_offsets: Any, y_offset: Any, type: Any) -> Any:
        """Rows of a tensor descriptor."""
        how = [None] * (len(inspect.signature(super().create_descriptor_load).parameters) - 2)
        rows = [
            self.create_descriptor_load(desc, [Handle(row, language.int32), y_offset], *how).data
            for row in x_offsets.data
        ]
        return Handle(np.stack([np.asarray(row).reshape(-1) for row in rows]), desc.base.dtype.element_ty)

    # casts

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """To floats without rounding; to whole numbers towards zero."""
        target, source = dst_type.scalar, src.dtype.scalar
        if target.is_floating():
            if source.is_floating() and (target.primitive_bitwidth < min(64, source.primitive_bitwidth)):
                self.state.narrowed.setdefault(_NAMES.get(target.name, target.name), "")
            return Handle(lifted(src), target)
        if not floating(src):
            return super().cast_impl(src, dst_type)
        if not source.is_floating():
            if source.primitive_bitwidth == target.primitive_bitwidth:  # from signed to unsigned: the same bits
                return Handle(src.data, target)
            raise self._unknown("arithmetic on the bits of floats")
        numbers = [int(whole_part(ball).unique_fmpz()) for ball in self._defined(src).ravel().tolist()]
        self.decided("cast")
        return Handle(
            np.array(numbers, object).astype(interpreter._get_np_dtype(target)).reshape(src.data.shape), target
        )

    def _defined(self, src: Any) -> Any:
        """Balls, with zeros in place of undefined numbers: whichever whole number comes of them is as good."""
        return balls.elementwise(lambda ball: ball if ball.is_finite() else balls.arb(0), lifted(src))

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """A cast, which rounds in no mode."""
        return self.cast_impl(src, dst_type)

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        """Bits: pointers and whole numbers as they are; those of floats may only go through memory and back."""
        target = dst_type.scalar
        if balls.is_balls(src.data):
            if src.dtype.scalar.primitive_bitwidth != target.primitive_bitwidth:
                raise self._unknown("the bits of floats")
            return Handle(src.data, target)
        found = super().create_bitcast(src, dst_type)
        if isinstance(target, language.pointer_type) or not target.is_floating():
            return found
        if found.data.dtype.kind != "f":
            raise self._unknown(f"bits as {target}")
        return Handle(balls.exact(found.data), target)

    # arithmetic

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        """An operation on two arrays."""
        if not (floating(lhs) or floating(rhs)):
            return super().binary_op(lhs, rhs, op)
        if not lhs.dtype.scalar.is_floating():
            raise self._unknown("arithmetic on the bits of floats")
        one, other = lifted(lhs), lifted(rhs)
        if op in COMPARISONS:
            found = Handle(balls.compare(COMPARISONS[op], one, other), language.int1)
        else:
            found = Handle(BINARY[op](one, other), lhs.dtype.scalar)
        self.decided(COMPARISONS.get(op, op.__name__))
        return found

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        """A selection, or a number between two bounds."""
        if op is np.where:
            tiles.note_mask(self.state.tiles, tiles.CHOICE, line(), lhs.data)
        if not (floating(rhs) or floating(other)):
            return super().ternary_op(lhs, rhs, other, op)
        if op is np.where:
            balls.selected(lhs.data)
            found = np.where(lhs.data, lifted(rhs), lifted(other))
        else:
            found = balls.minimum(balls.maximum(lifted(lhs), lifted(rhs)), lifted(other))
        self.decided(op.__name__)
        return Handle(found, other.dtype.scalar)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        """A number between two bounds."""
        return self.ternary_op(arg, lo, hi, np.clip)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """X·y + z."""
        return Handle(balls.whole(lifted(x) * lifted(y) + lifted(z)), z.dtype.scalar)

    def unary_op(self, arg: Any, op: Any) -> Any:
        """A function of one number."""
        if not floating(arg):
            return super().unary_op(arg, op)
        return self._each(arg, UNARY[op], "abs" if op is np.abs else op.__name__)

    def _each(self, arg: Any, function: Callable[[Any], Any], operation: str) -> Any:
        found = Handle(balls.elementwise(function, lifted(arg)), arg.dtype.scalar)
        self.decided(operation)
        return found

    def create_fabs(self, arg: Any) -> Any:
        """|x|."""
        return self._each(arg, balls.UNARY["abs"], "abs")

    def create_erf(self, arg: Any) -> Any:
        """The error function."""
        return self._each(arg, balls.UNARY["erf"], "erf")

    def create_rsqrt(self, arg: Any) -> Any:
        """1 / √x."""
        return self._each(arg, balls.UNARY["rsqrt"], "rsqrt")

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        """A·b + d: every input precision is the identity."""
        if not floating(d):
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        return Handle(balls.whole(balls.matmul(lifted(a), lifted(b)) + lifted(d)), d.dtype.scalar)

    def create_dot_scaled(self, *_: Any) -> Any:
        """Refused: its operands are bits."""
        raise self._unknown("tl.dot_scaled, whose operands are bits")

    # shapes

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        """One number, many times."""
        if not floating(arg):
            made = super().create_splat(ret_ty, arg)
            made.attr |= arg.attr
            return made
        found = np.empty(tuple(ret_ty.shape), object)
        found[...] = lifted(arg).reshape(-1)[0]
        return Handle(found, arg.dtype.scalar)

    def create_unsplat(self, arg: Any) -> Any:
        """The one number of a block."""
        return Handle(arg.data.reshape(-1)[:1], arg.dtype.scalar) if floating(arg) else super().create_unsplat(arg)


_NOTHING = np.zeros(0)
_NO_MASK = "no mask"
"""The attribute of the mask of a load, a store or an atomic that has none."""
_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
"""Triton's name of a dtype -> PyTorch's."""
