"""Pallas kernels in sixty digits: right ones are upheld, and the smallest faults are refuted at the first problem."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import gradgate
from gradgate import normal
from gradgate.references import registry
from gradgate.suites.engine.search import judge
from gradgate.suites.exact import balls, on_jax
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task
from gradgate.suites.tests.exact.pallas_kernels import KERNELS, attention, plain_attention
from gradgate.suites.tests.pairs.verdicts import judged

EXACT = ("gradient_exact",)


def _pair(name: str, fault: str = "", **how: Any) -> gradgate.Pair:
    kernel = KERNELS[name]
    settings = {"reference": kernel.plain, "dims": kernel.dims, **how}
    return gradgate.Pair(
        kernel.make(fault), inputs=kernel.inputs, dtypes=("float64",), framework="jax", name=name, **settings
    )


def _verdict(name: str, fault: str = "", **how: Any) -> Any:
    return judged(_pair(name, fault, **how), EXACT, 1)["gradient_exact"]


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_upheld(name: str) -> None:
    assert _verdict(name).verdict == "upheld"


FAULTS = [(name, fault) for name, kernel in KERNELS.items() for fault in ("term", "ulp", *kernel.faults)]


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_is_refuted_at_the_first_problem(name: str, fault: str) -> None:
    found = _verdict(name, fault)
    assert (found.verdict, found.examples) == ("refuted", 1), found.reason


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("gate", "tail", "output 0[8, 0] of the kernel backward_kernel, pallas_kernels.py:"),
        ("gate", "tail", "is written by no program"),
        ("norm", "uninitialised", "depends on what no program wrote"),
        ("product", "stale", "depends on what no program wrote"),
        ("gate", "map", "at backward_kernel, pallas_kernels.py:"),
        ("softmax", "ulp", "at backward_kernel, pallas_kernels.py:"),
        ("scan", "term", "at backward_kernel, pallas_kernels.py:"),
    ],
)
def test_a_refutation_names_the_kernel(name: str, fault: str, words: str) -> None:
    assert words in _verdict(name, fault).reason


def _loop() -> float:
    """The processor time of a fixed loop."""
    start, total = time.process_time(), 0
    for number in range(3_000_000):
        total += number * number % 7
    return time.process_time() - start


def _least(loops: float, judge: Callable[[], Any]) -> float:
    """The least processor time of at most three runs that are upheld, in those of a fixed loop run before and after.

    Seconds alone would judge the machine: a run that takes less than 2 of them on one takes 2.7 to 3.4 on another.
    Thirteen loops take two seconds where one takes 0.15.
    """
    found: list[float] = []
    while not found or (found[-1] >= loops and len(found) < 3):
        before, start = _loop(), time.process_time()
        assert judge().verdict == "upheld"
        took = time.process_time() - start
        found.append(2 * took / (before + _loop()))
    return min(found)


def _one_problem(pair: gradgate.Pair, **sizes: int) -> Any:
    """The verdict on one problem, without the search for inputs that take other sides of decisions."""
    method = pair.lowered
    try:
        spec = registry.spec_class(method.family)(**sizes).to_json()
        task = Task.of(method, method.claim("gradient_exact"))
        return judge(task, Subject(method, pair), Run(spec=spec, options={}))
    finally:
        registry.forget(method.family)


@pytest.mark.parametrize("name", ["gate", "norm", "softmax", "product", "scan"])
def test_a_verdict_at_64_by_64_is_cheap(name: str) -> None:
    """The search for problems that take other sides of decisions is part of it."""
    assert _least(13, lambda: _verdict(name, dims=dict.fromkeys(KERNELS[name].dims, (64,)))) < 13


@pytest.mark.parametrize("name", ["gate", "norm", "softmax", "product", "scan"])
def test_sixty_digits_at_64_by_64_are_cheap(name: str) -> None:
    assert _least(13, lambda: _one_problem(_pair(name), **dict.fromkeys(KERNELS[name].dims, 64))) < 13


def test_sixty_digits_in_attention_are_cheap() -> None:
    pair = gradgate.Pair(
        attention(),
        reference=plain_attention,
        inputs={name: normal("T D") for name in "qkv"},
        dims={"T": (65,), "D": (16,)},
        dtypes=("float64",),
        framework="jax",
        name="attention",
    )
    assert _least(65, lambda: judged(pair, EXACT, 1)["gradient_exact"]) < 65


# What kernels are made of ---------------------------------------------------------------------------------------------

SHAPE = jax.ShapeDtypeStruct


def _evaluated(function: Any, *args: Any) -> tuple[Any, list[str]]:
    """The first output in floats, and the notes."""
    program = on_jax.trace(function, *args)
    found = program.evaluate(*args)[0]
    return (balls.floats(found) if balls.is_balls(found) else found), program.notes


def _as_interpreted(call: Any, *args: Any) -> None:
    """Fail unless balls and JAX's interpreter compute the same."""
    found, notes = _evaluated(call(False), *args)
    with jax.enable_x64(True):
        np.testing.assert_allclose(found, call(True)(*args), rtol=1e-12)
    assert not notes


X = np.linspace(-1.0, 2.0, 12).reshape(6, 2)


def test_scalars_that_are_fetched_in_advance_choose_blocks() -> None:
    def kernel(order: Any, x: Any, y: Any) -> None:
        y[...] = x[...] * (1 + order[pl.program_id(0)])

    def call(interpret: bool) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(3,),
            in_specs=[pl.BlockSpec((2, 2), lambda i, order: (order[i], 0))],
            out_specs=pl.BlockSpec((2, 2), lambda i, order: (i, 0)),
        )
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=SHAPE(X.shape, X.dtype), interpret=interpret)

    _as_interpreted(call, np.array([2, 0, 1], np.int32), X)


def test_a_grid_whose_length_is_an_argument() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] + pl.num_programs(0)

    def call(length: Any, x: Any) -> Any:
        block = pl.BlockSpec((2, 2), lambda i: (i, 0))
        return pl.pallas_call(
            kernel, grid=(length,), in_specs=[block], out_specs=block, out_shape=SHAPE(x.shape, x.dtype)
        )(x)

    found, notes = _evaluated(call, np.int32(2), X)
    np.testing.assert_allclose(found[:4], X[:4] + 2)
    assert np.isnan(found[4:]).all()
    assert "output 0[4, 0]" in notes[0]
    assert "written by no program" in notes[0]


def test_an_output_in_the_memory_of_an_input() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] * 2

    def call(interpret: bool) -> Any:
        block = pl.BlockSpec((2, 2), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            grid=(2,),
            in_specs=[block],
            out_specs=block,
            out_shape=SHAPE(X.shape, X.dtype),
            input_output_aliases={0: 0},
            interpret=interpret,
        )

    _as_interpreted(call, X)


def test_a_kernel_under_vmap_without_a_grid_and_with_a_squeezed_dimension() -> None:
    def whole(x: Any, y: Any) -> None:
        y[...] = jnp.cumsum(x[...], 0)

    def row(x: Any, y: Any) -> None:
        y[...] = x[...] * pl.program_id(0)

    def call(interpret: bool) -> Any:
        line = pl.BlockSpec((None, 2), lambda i: (i, 0))
        shape = SHAPE((3, 2), X.dtype)
        first = pl.pallas_call(whole, out_shape=shape, interpret=interpret)
        second = pl.pallas_call(row, out_shape=shape, grid=(3,), in_specs=[line], out_specs=line, interpret=interpret)
        return lambda x: jax.vmap(lambda each: second(first(each)))(x.reshape(2, 3, 2))

    _as_interpreted(call, X)


def test_a_kernel_reads_and_writes_single_numbers() -> None:
    def scaled(x: Any, factor: Any, out: Any, total: Any) -> None:
        out[...] = x[...] * factor[...]
        total[...] = jnp.sum(out[...])

    def function(x: Any, factor: Any) -> Any:
        shapes = jax.ShapeDtypeStruct((4,), x.dtype), jax.ShapeDtypeStruct((), x.dtype)
        return jax.vmap(pl.pallas_call(scaled, out_shape=shapes, interpret=True))(x, factor)

    x, factor = np.arange(8.0).reshape(2, 4), np.array([0.5, -3.0])
    out, total = on_jax.trace(function, x, factor).evaluate(x, factor)
    assert np.array_equal(balls.floats(out), x * factor[:, None])
    assert np.array_equal(balls.floats(total), (x * factor[:, None]).sum(1))


def test_blocks_that_overlap() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...].sum(0, keepdims=True)

    def call(interpret: bool) -> Any:
        spec = pl.BlockSpec((pl.Element(3), pl.Element(2)), lambda i: (i, 0))
        return pl.pallas_call(
            kernel,
            grid=(4,),
            in_specs=[spec],
            out_specs=pl.BlockSpec((1, 2), lambda i: (i, 0)),
            out_shape=SHAPE((4, 2), X.dtype),
            interpret=interpret,
        )

    _as_interpreted(call, X)


def _rowwise(kernel: Any, block: int = 4, scratch: Any = (), **how: Any) -> Any:
    """A kernel over ragged blocks of four of the six rows."""
    spec = pl.BlockSpec((block, 2), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(2,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=SHAPE(X.shape, X.dtype),
        scratch_shapes=scratch,
        **how,
    )


def test_a_comparison_of_the_ragged_tail_that_is_not_stored_is_right() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = jnp.where(x[...] > 0, x[...], 0)

    found, notes = _evaluated(_rowwise(kernel), X)
    np.testing.assert_allclose(found, np.maximum(X, 0))
    assert not notes


def test_a_comparison_does_not_hide_that_memory_was_never_written() -> None:
    def kernel(x: Any, y: Any, total: Any) -> None:
        y[...] = jnp.where(total[...] > 0, x[...], x[...] + 1)

    found, notes = _evaluated(_rowwise(kernel, scratch=[pltpu.VMEM((4, 2), X.dtype)]), X)
    assert np.isnan(found).all()
    assert "depends on what no program wrote" in notes[0]


def test_whole_numbers_that_nobody_wrote_are_no_numbers() -> None:
    def kernel(x: Any, y: Any, count: Any) -> None:
        y[...] = x[...] * count[...]

    found, notes = _evaluated(_rowwise(kernel, scratch=[pltpu.VMEM((4, 2), jnp.int32)]), X)
    assert np.isnan(found).any()
    assert notes


def test_a_block_outside_its_array_is_not_moved_inside() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...]

    def call(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            grid=(3,),
            in_specs=[pl.BlockSpec((2, 2), lambda i: (i + 1, 0))],
            out_specs=pl.BlockSpec((2, 2), lambda i: (i, 0)),
            out_shape=SHAPE(X.shape, X.dtype),
        )(x)

    found, notes = _evaluated(call, X)
    np.testing.assert_allclose(found[:4], X[2:])
    assert np.isnan(found[4:]).all()
    assert notes


def _summed(x: Any, **how: Any) -> Any:
    """The sum of rows, each by a program of its own that adds to one output."""

    def kernel(row: Any, out: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += row[...]

    return pl.pallas_call(
        kernel,
        grid=(6,),
        in_specs=[pl.BlockSpec((1, 2), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, 2), lambda i: (0, 0)),
        out_shape=SHAPE((1, 2), X.dtype),
        **how,
    )(x)


def test_a_sum_over_programs_is_right_in_order_and_a_race_on_a_gpu() -> None:
    found, notes = _evaluated(functools.partial(_summed, compiler_params=pltpu.CompilerParams()), X)
    np.testing.assert_allclose(found, X.sum(0, keepdims=True), atol=1e-15)
    assert not notes
    found, notes = _evaluated(functools.partial(_summed, compiler_params=pltriton.CompilerParams()), X)
    assert np.isnan(found).all()
    assert notes


def test_two_programs_of_a_gpu_that_write_different_numbers_leave_none() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...]

    def call(same: bool, x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            grid=(3,),
            in_specs=[pl.BlockSpec((2, 2), lambda i: (0 if same else i, 0))],
            out_specs=pl.BlockSpec((2, 2), lambda i: (0, 0)),
            out_shape=SHAPE((2, 2), X.dtype),
            compiler_params=pltriton.CompilerParams(),
        )(x)

    np.testing.assert_allclose(_evaluated(functools.partial(call, True), X)[0], X[:2])
    assert np.isnan(_evaluated(functools.partial(call, False), X)[0]).all()


def test_atomics_and_masked_accesses_of_a_gpu() -> None:
    def kernel(x: Any, start: Any, y: Any) -> None:
        lanes = jnp.arange(4)
        place = pl.program_id(0) * 4 + lanes
        part = pltriton.load(x.at[pl.ds(pl.program_id(0) * 4, 4)], mask=place < 6, other=0.0)
        pltriton.atomic_add(y, (pl.ds(0, 1),), part.sum()[None])

    def call(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            grid=(2,),
            out_shape=SHAPE((1,), X.dtype),
            input_output_aliases={1: 0},
            compiler_params=pltriton.CompilerParams(),
        )(jnp.pad(x[:, 0], (0, 2)), jnp.zeros(1, x.dtype))

    found, notes = _evaluated(call, X)
    np.testing.assert_allclose(found, [X[:, 0].sum()])
    assert not notes


def test_copies_and_semaphores_of_a_tpu() -> None:
    def kernel(x: Any, y: Any, buffer: Any, done: Any) -> None:
        copy = pltpu.make_async_copy(x, buffer, done)
        copy.start()
        copy.wait()
        y[...] = buffer[...] * 3

    def call(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            out_shape=SHAPE(X.shape, X.dtype),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            scratch_shapes=[pltpu.VMEM(X.shape, X.dtype), pltpu.SemaphoreType.DMA],
        )(x)

    found, notes = _evaluated(call, X)
    np.testing.assert_allclose(found, 3 * X)
    assert not notes


def test_an_operation_without_a_rule_is_named_with_the_kernels_line() -> None:
    def kernel(x: Any, y: Any) -> None:
        y[...] = pltpu.prng_random_bits(x.shape).astype(x.dtype)

    program = on_jax.trace(lambda x: pl.pallas_call(kernel, out_shape=SHAPE(X.shape, X.dtype))(x), X)
    with pytest.raises(balls.Unknown, match=r"prng_random_bits.*test_pallas_exact.py"):
        program.evaluate(X)
