"""Work of a program, counted and not timed: FLOPs, bytes moved, and the roofline time that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any

from gradgate.hw_profiles import trip_count, work_rules
from gradgate.hw_profiles.calls import MARKER
from gradgate.hw_profiles.profile import DTYPES, Profile

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "composite": "jaxpr",
    "custom_linear_solve": "jaxprs",
    "shard_map": "jaxpr",
}
"""Equations that only run an inner program: primitive -> the parameter that holds this program."""


COUNTING = "3: n terms take n − 1 additions; a PyTorch program has run before it is counted"
"""The version of the rules of counting. Counts are cached under this name, so that counts by older rules are not
used."""


class WorkError(ValueError):
    """Work that cannot be counted from the program's text: a loop whose trip count depends on values."""


@dataclass(frozen=True)
class Work:
    """What a program does.

    Attributes:
        flops: floating-point operations that are performed: a product of matrices (m, k) and (k, n) has m·n·k
            multiplications and m·n·(k − 1) additions, any other sum of n terms n − 1, and other arithmetic 1 per
            element. Integers, conversions and copies count nothing.
        nominal_flops: the same with 2·m·n·k for the product, as papers, compilers and peak rates count. For a
            comparison with a printed count, and for times at a peak rate.
        transcendentals: calls of exp, log, tanh and the like (one per element), not in ``flops``.
        bytes_moved: memory traffic if every chain of elementwise operations were fused: operands and results of
            products, reductions, slices and the like, and what enters or leaves a fused chain.
        exact: False if a figure is a bound or incomplete; ``notes`` then says why.
        notes: sentences about bounds that were used, and about primitives that have no rule and are not counted.
    """

    flops: int
    nominal_flops: int
    transcendentals: int
    bytes_moved: int
    exact: bool
    notes: tuple[str, ...] = ()


@dataclass
class _Tally:
    flops: int | Fraction = 0  # of one device; a whole number for all devices together
    convention: int = 0  # nominal FLOPs minus flops
    transcendentals: int = 0
    bytes_moved: int = 0
    notes: dict[str, None] = field(default_factory=dict)  # an ordered set

    def add(self, other: _Tally, times: int = 1) -> None:
        self.flops += times * other.flops
        self.convention += times * other.convention
        self.transcendentals += times * other.transcendentals
        self.bytes_moved += times * other.bytes_moved
        self.notes |= other.notes


def of(program: Callable[..., Any], arguments: Sequence[Any], *, x64: bool = False, trips: int | None = None) -> Work:
    """``count`` of ``program(*arguments)``; arguments are trees of arrays or ``jax.ShapeDtypeStruct``."""
    import jax

    with jax.enable_x64(x64):
        return count(jax.make_jaxpr(program)(*arguments), trips=trips)


def count(jaxpr: Any, *, trips: int | None = None) -> Work:
    """Work of a ``ClosedJaxpr``, with loop bodies counted for every iteration and without dead code.

    The body of a scan counts as often as the scan is long. The body of a while loop counts as often as its counter
    says; if the loop may also end early, this is a bound. A cond counts its most expensive branch, and ``shard_map``
    all devices together. jit, remat and custom rules count the programs that they run.

    Args:
        jaxpr: the program, as ``jax.make_jaxpr`` or ``jax.jit(f).trace(…).jaxpr`` give it.
        trips: trip count to assume for a while loop whose trip count is unknown.

    Raises:
        WorkError: a while loop's trip count is unknown and ``trips`` is None.

    Cost: one pass over the equations, independent of the lengths of the loops.
    """
    from jax.interpreters import partial_eval

    # Without the dead results of inlined calls, as after the first pass of the compiler.
    live, _ = partial_eval.dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.jaxpr.outvars), instantiate=True)
    tally = _walk(live, _Surroundings(trips), {})
    notes = tuple(tally.notes)
    flops, nominal = int(tally.flops), int(tally.flops + tally.convention)
    return Work(flops, nominal, tally.transcendentals, tally.bytes_moved, not notes, notes)


@dataclass(frozen=True)
class _Surroundings:
    """The context of a program: trip count to assume for unknown loops, and sizes of the mesh axes that divide it."""

    trips: int | None
    devices: Mapping[Any, int] = field(default_factory=dict)


def _walk(jaxpr: Any, around: _Surroundings, known: Mapping[Any, float]) -> _Tally:
    """Work of one run of a jaxpr; ``known`` holds the scalars whose values the text gives."""
    total = _Tally()
    values = dict(known)
    for eqn in jaxpr.eqns:
        trip_count.propagate(eqn, values)
        name = eqn.primitive.name
        if name == "scan":
            inner = _inner(eqn.params["jaxpr"])
            constants, _ = trip_count.passed_to_scan(eqn.params)
            passed = trip_count.bind(inner.invars[:constants], eqn.invars[:constants], values)
            total.add(_walk(inner, around, passed), eqn.params["length"])
        elif name == "while":
            total.add(_while(eqn, around, values))
        elif name == "cond":
            total.add(_cond(eqn, around, values))
        elif name in CALLS:
            inner = _called(eqn)
            axes = shard_axes(eqn) if name == "shard_map" else {}
            within = replace(around, devices={**around.devices, **axes})
            # A linear solve has the operands of all its four programs.
            passed = {} if name == "custom_linear_solve" else trip_count.bind(inner.invars, eqn.invars, values)
            called = _walk(inner, within, passed)
            if _fuses(eqn):
                called.bytes_moved = 0  # part of a fused chain; its traffic is counted where the chain ends
            total.add(called, prod(axes.values()))
        elif name != MARKER:
            total.flops += work_rules.flops(eqn, around.devices)
            total.convention += work_rules.convention(eqn)
            total.transcendentals += work_rules.transcendentals(eqn)
            if not work_rules.is_known(name):
                total.notes[f"not counted: the primitive {name!r} has no rule"] = None
    total.bytes_moved += _traffic(jaxpr)
    return total


def _while(eqn: Any, around: _Surroundings, values: Mapping[Any, float]) -> _Tally:
    found = trip_count.of_while(eqn, values)
    if found is None:
        if around.trips is None:
            raise WorkError(
                "a while loop runs for a number of steps that the program's text doesn't give; use lax.scan or a "
                "fori_loop with constant bounds, or state the number as trips=…"
            )
        found = trip_count.Trips(around.trips, exact=False)
    total = _Tally()
    for kind, times in (("body", found.number), ("cond", found.number + 1)):
        inner = _inner(eqn.params[f"{kind}_jaxpr"])
        total.add(_walk(inner, around, {}), times)
    if not found.exact:
        total.notes[f"a while loop counts {found.number} steps, an upper bound or the stated number"] = None
    return total


def _cond(eqn: Any, around: _Surroundings, values: Mapping[Any, float]) -> _Tally:
    branches = []
    for branch in eqn.params["branches"]:
        inner = _inner(branch)
        branches.append(_walk(inner, around, trip_count.bind(inner.invars, eqn.invars[1:], values)))
    most = max(branches, key=lambda tally: (tally.flops + tally.transcendentals, tally.bytes_moved))
    if any(
        (b.flops, b.transcendentals, b.bytes_moved) != (most.flops, most.transcendentals, most.bytes_moved)
        for b in branches
    ):
        most.notes["a cond counts its most expensive branch"] = None
    return most


def shard_axes(eqn: Any) -> dict[Any, int]:
    """Size of every mesh axis that a ``shard_map`` divides its program over."""
    sizes = dict(eqn.params["mesh"].shape)
    manual = eqn.params.get("newly_manual_axes", eqn.params.get("manual_axes", sizes))
    return {axis: sizes[axis] for axis in manual}


def _called(eqn: Any) -> Any:
    program = eqn.params.get(CALLS[eqn.primitive.name], eqn.params.get("call_jaxpr"))  # a composite since JAX 0.11
    return _inner(getattr(program, "solve", program))  # a linear solve runs one of its four programs


def _inner(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _fuses(eqn: Any) -> bool:
    """Whether the compiler can fuse the equation with its neighbours into one loop over elements."""
    name = eqn.primitive.name
    if name in CALLS and name != "shard_map":
        return all(_fuses(each) for each in _called(eqn).eqns)
    return name in work_rules.FUSIBLE or name == MARKER


def _runs_inner_program(eqn: Any) -> bool:
    return eqn.primitive.name in CALLS or eqn.primitive.name in ("scan", "while", "cond")


def _traffic(jaxpr: Any) -> int:
    """Bytes that the equations of one jaxpr move; programs inside its loops and calls are counted separately."""
    fused: set[Any] = set()
    read: set[Any] = set()
    written: set[Any] = set()
    total = 0
    for eqn in jaxpr.eqns:
        inputs = [var for var in eqn.invars if not trip_count.is_literal(var)]
        if _fuses(eqn):
            fused.update(eqn.outvars)
            read.update(var for var in inputs if var not in fused)
        else:
            written.update(var for var in inputs if var in fused)
            if not _runs_inner_program(eqn):
                total += _moved(eqn, inputs)
    written.update(var for var in jaxpr.outvars if not trip_count.is_literal(var) and var in fused)
    return total + sum(work_rules.nbytes(var) for var in read | written)


def _moved(eqn: Any, inputs: list[Any]) -> int:
    results = sum(work_rules.nbytes(var) for var in eqn.outvars)
    name = eqn.primitive.name
    if name in work_rules.SLICING:
        return 2 * results
    if name in work_rules.UPDATING:
        update = eqn.invars[1 if name == "dynamic_update_slice" else 2]
        return 2 * work_rules.nbytes(update)
    return results + sum(work_rules.nbytes(var) for var in inputs)


def torch_flops(program: Callable[..., Any], *arguments: Any) -> int:
    """FLOPs of one call of a PyTorch program, including the backward passes inside it. The program is run once.

    Products of matrices, convolutions and attention are counted, with their additions (see `torch_work.flop_counter`).
    Elementwise arithmetic is not counted, and neither is the addition of a bias.
    """
    from gradgate.hw_profiles.torch_work import flop_counter

    with flop_counter() as counter:
        program(*arguments)
    return int(counter.get_total_flops())


def roofline(profile: Profile, flops: float, bytes_moved: float, dtype: str) -> float | None:
    """Least seconds that one device can take.

    This is the longer of two times: arithmetic at the peak rate, and traffic at full bandwidth.

    Args:
        profile: the target; if a chip is two devices, each device has half of the chip's rates.
        flops: nominal FLOPs on this device: a peak rate counts a multiply-add as 2.
        bytes_moved: bytes to and from its memory.
        dtype: the dtype of the arithmetic: float64, float32, tensorfloat32, bfloat16 or float16.

    Returns:
        Seconds, or None if the profile does not have the peak rate or the bandwidth.

    Raises:
        ValueError: the dtype is none of these.
    """
    if dtype not in DTYPES:
        raise ValueError(f"no peak rate is kept for {dtype!r}; legal: {', '.join(DTYPES)}")
    peak = profile.peak.get(dtype)
    if peak is None or profile.bandwidth is None:
        return None
    return profile.devices_per_chip * max(flops / peak, bytes_moved / profile.bandwidth)
