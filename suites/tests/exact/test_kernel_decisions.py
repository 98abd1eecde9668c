"""Decisions inside kernels: a fault behind one is found with nothing declared; what no problem reached is listed."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradgate.suites.exact import tiles
from gradgate.suites.tests.exact.kernel_judge import Judge

needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="Triton is not installed: pip install 'gradgate[triton]'",
)
FILE = Path(__file__).parent / "triton_decisions.py"
TEXT = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
EXACT = ("gradient_exact",)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


def line_of(words: str) -> str:
    """``file.py:123`` of the first line of the kernels that has these words."""
    lines = TEXT.splitlines()
    return f"{FILE.name}:{next(place for place, line in enumerate(lines, 1) if words in line)}"


@needs_triton
@pytest.mark.parametrize("name", ["above", "clamped", "tile_above"])
def test_a_fault_behind_a_decision_of_a_kernel(name: str, judge: Judge, tmp_path: Path) -> None:
    """It is found at inputs that no draw has; the twin is upheld, and its decision went both ways."""
    verdict, reason = judge.judge(FILE, EXACT, (name,))[f"{name} gradient_exact"]
    assert verdict == "refuted"
    assert reason.startswith("at inputs that no draw has"), reason
    path = tmp_path / "right.py"
    path.write_text(TEXT.replace("constexpr(1.1)", "constexpr(1.0)"), encoding="utf-8")
    assert judge.judge(path, EXACT, (name,))[f"{name} gradient_exact"][0] == "upheld"
    assert judge.decisions(path, name)["never"] == []


@needs_triton
def test_a_comparison_that_stays_on_one_side_has_the_kernels_line(judge: Judge) -> None:
    """Inputs with a mean are not moved far from it, so nothing is known above 20."""
    found = judge.decisions(FILE, "near_four")
    place = line_of("tl.where(row > 20")
    assert [one for one in found["never"] if one.startswith(f"`… > 20` true at {place} (")], found


@needs_triton
def test_tiles_that_no_problem_has_are_listed_with_the_kernels_line(judge: Judge) -> None:
    words = "row = tl.load(x + at, mask=at < N, other=0.0)\n    tl.store"
    where = f"{FILE.name}:{TEXT[: TEXT.index(words)].count(chr(10)) + 1}"
    full = judge.decisions(FILE, "whole")
    assert f"mask ragged or empty at {where}" in full["never"], full
    assert full["both"] < full["decisions"]
    some = judge.decisions(FILE, "ragged")
    assert some["never"] == [], some
    [counts] = [line for line in some["kernels"] if where in line]
    assert ", 0 empty" in counts
    assert " 0 ragged" not in counts


@needs_triton
def test_turns_of_loops_and_branches_of_kernels(judge: Judge) -> None:
    loop, branch = line_of("for start in range"), line_of("if tl.program_id(0) == 0")
    never = judge.decisions(FILE, "shortest")["never"]
    assert f"loop more than once or not at all at {loop}" in never, never
    assert f"if false at {branch}" in never, never
    assert judge.decisions(FILE, "longer")["never"] == []


def _scaled(k: float, sizes: tuple[int, ...]) -> Any:
    """x + x³ by Pallas kernels; its gradient is wrong above 20 unless k is 1."""
    jax = pytest.importorskip("jax")
    from jax.experimental import pallas as pl

    import gradgate

    xp = jax.numpy

    def forward_kernel(x: Any, y: Any) -> None:
        y[...] = x[...] + x[...] ** 3

    def backward_kernel(x: Any, dy: Any, dx: Any) -> None:
        slope = 1 + 3 * x[...] ** 2
        dx[...] = dy[...] * xp.where(x[...] > 20, k * slope, slope)

    def call(kernel: Any, *given: Any) -> Any:
        block = pl.BlockSpec((4,), lambda i: (i,))
        made = pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(given[0].shape, given[0].dtype),
            grid=(pl.cdiv(len(given[0]), 4),),
            in_specs=[block for _ in given],
            out_specs=block,
        )
        return made(*given)

    @jax.custom_vjp
    def function(x: Any) -> Any:
        return call(forward_kernel, x)

    function.defvjp(lambda x: (call(forward_kernel, x), x), lambda x, dy: (call(backward_kernel, x, dy),))
    return gradgate.Pair(
        lambda x: function(x),
        lambda x: x + x**3,
        inputs={"x": gradgate.normal("N")},
        dims={"N": sizes},
        dtypes=("float64",),
        framework="jax",
        name="scaled",
    )


def _verdict(pair: Any) -> Any:
    from gradgate.suites.tests.pairs.verdicts import judged

    return judged(pair, EXACT)["gradient_exact"]


def test_a_fault_behind_a_decision_of_a_pallas_kernel() -> None:
    wrong = _verdict(_scaled(1.1, (5, 4)))
    assert wrong.verdict == "refuted"
    assert wrong.reason.startswith("at inputs that no draw has"), wrong.reason
    right = _verdict(_scaled(1.0, (5, 4)))
    assert right.verdict == "upheld", right.reason
    assert right.decisions["never"] == [], right.decisions


def test_blocks_that_no_problem_has() -> None:
    full = _verdict(_scaled(1.0, (4, 8))).decisions
    assert any(one.startswith("block ragged or empty at input 1 of backward_kernel, ") for one in full["never"]), full
    assert full["both"] < full["decisions"]


def test_a_comparison_in_a_pallas_kernel_has_the_kernels_line() -> None:
    """Neither the line that declares the kernel, nor that of its call."""
    jax = pytest.importorskip("jax")
    from jax.experimental import pallas as pl

    from gradgate.suites.exact import decisions, on_jax

    def kernel(x: Any, y: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            y[...] = jax.numpy.sign(x[...])

        y[...] += jax.numpy.where(x[...] > 20.0, x[...], 0.0)

    def function(x: Any) -> Any:
        block = pl.BlockSpec((2,), lambda i: (i,))
        made = pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct((4,), x.dtype), grid=(2,), in_specs=[block], out_specs=block
        )
        return made(x)

    x = np.array([1.0, -2.0, 30.0, 4.0])
    program, found = on_jax.trace(function, x), dict[Any, Any]()
    decisions.recorded(lambda watch: program.evaluate(x, watch=watch), found)
    first = kernel.__code__.co_firstlineno
    lines = {operation: line for operation, line, _ in found}
    assert lines["gt"] == f"test_kernel_decisions.py:{first + 5}"
    assert lines["sign"] == f"test_kernel_decisions.py:{first + 3}"
    assert lines["cond"] == f"test_kernel_decisions.py:{first + 1}"


@pytest.mark.parametrize(
    ("kind", "ways", "never"),
    [
        ("mask", {"full": 2}, ("ragged", "empty")),
        ("mask", {"full": 2, "ragged": 1}, ()),
        ("mask of one lane", {"full": 1, "empty": 3}, ()),
        ("mask of one lane", {"full": 1}, ("empty",)),
        ("loop", {"once": 1, "not at all": 1}, ("more than once",)),
        ("loop", {"once": 1, "more than once": 1}, ()),
        ("if", {"true": 4}, ("false",)),
    ],
)
def test_what_a_place_never_was(kind: str, ways: dict[str, int], never: tuple[str, ...]) -> None:
    assert tiles.missing(kind, Counter(ways)) == never


def test_counts_of_evaluations_together() -> None:
    """A line whose masks have one lane at one size and several at another counts as one place."""
    one: tiles.Tiles = {}
    other: tiles.Tiles = {}
    tiles.note_mask(one, tiles.MASK, "k.py:1", np.array([True]))
    tiles.note_mask(other, tiles.MASK, "k.py:1", np.array([True, False]))
    tiles.note_loop(other, "k.py:2", 5)
    assert tiles.united([one, other]) == {
        ("mask", "k.py:1"): Counter({"full": 1, "ragged": 1}),
        ("loop", "k.py:2"): Counter({"more than once": 1}),
    }
    assert one == {("mask of one lane", "k.py:1"): Counter({"full": 1})}
