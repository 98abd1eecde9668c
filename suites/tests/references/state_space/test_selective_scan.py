"""`selective_scan` as pairs: upheld without edits, refuted with each bug. Wrong use raises a clear error."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.references.errors import UsageError
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.bugs.entries_state_space import MUTANTS
from gradgate.suites.bugs.entry_pairs import state_space
from gradgate.suites.tests.pairs.verdicts import judged, refuted, upheld

THERE = [framework for framework in FRAMEWORKS if installed(framework)]
USUAL = ("tree", "outputs", "gradient_exact", "gradient_float64", "gradient_bfloat16", "options")
B, T, C, N = 2, 6, 3, 4


def scan(framework: str) -> Any:
    return importlib.import_module(f"gradgate.in_{framework}").selective_scan


def given(framework: str, *shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    xp, rng = importlib.import_module("jax.numpy" if framework == "jax" else "torch"), np.random.default_rng(0)
    return [xp.asarray(rng.uniform(0.1, 0.9, shape).astype(dtype)) for shape in shapes]


def diagonal(framework: str) -> list[Any]:
    return given(framework, (B, T, C, N), (B, T, N), (B, T, N), (B, T, C))


@pytest.mark.parametrize("framework", THERE)
@pytest.mark.parametrize("form", ["diagonal", "scalar", "steps"])
def test_a_pair_is_upheld(form: str, framework: str) -> None:
    upheld(getattr(state_space, f"scan_{form}_{framework}"), USUAL)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if installed(m.framework)], ids=lambda mutant: mutant.name)
def test_a_bug_is_refuted(mutant: EntryMutant) -> None:
    refuted(mutant.broken(), mutant.kill, examples=16)


@pytest.mark.parametrize("framework", THERE)
def test_a_loop_under_autograd_does_not_keep_the_promise_about_bytes(framework: str) -> None:
    right: Any = getattr(state_space, f"scan_diagonal_{framework}")
    plain = state_space.diagonal(framework)[1]

    def loop(*arrays: Any, pack: str = "one", chunk: int | None = None, associative: bool = False) -> Any:
        return plain(*arrays, pack=pack)

    claims = ("residual_bytes_of_reference",)
    assert judged(dataclasses.replace(right, function=loop, name="loop_keeps"), claims)[claims[0]].verdict == "refuted"
    upheld(right, claims)


@pytest.mark.parametrize("framework", THERE)
class TestStates:
    def test_two_halves_are_the_whole(self, framework: str) -> None:
        a, b, c, x = diagonal(framework)
        whole, last = scan(framework)(a, b, c, x, return_state=True)
        half, state = scan(framework)(*(leaf[:, :4] for leaf in (a, b, c, x)), return_state=True)
        rest, after = scan(framework)(*(leaf[:, 4:] for leaf in (a, b, c, x)), state=state, return_state=True)
        assert float(abs(whole[:, :4] - half).max()) < 1e-6
        assert float(abs(whole[:, 4:] - rest).max()) < 1e-6
        assert float(abs(last - after).max()) < 1e-6
        assert float(abs(whole[:, 4:] - scan(framework)(*(leaf[:, 4:] for leaf in (a, b, c, x)))).max()) > 1e-3

    def test_packed_sequences_do_not_see_each_other(self, framework: str) -> None:
        a, b, c, x = diagonal(framework)
        packed = scan(framework)(a, b, c, x, lengths=(4, 2), chunk=3)
        alone = scan(framework)(*(leaf[:, 4:] for leaf in (a, b, c, x)))
        assert float(abs(packed[:, 4:] - alone).max()) < 1e-6
        assert float(abs(scan(framework)(a, b, c, x)[:, 4:] - alone).max()) > 1e-3

    def test_numbers_of_segments_say_the_same_as_lengths(self, framework: str) -> None:
        xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
        a, b, c, x = diagonal(framework)
        by_number = scan(framework)(a, b, c, x, segments=xp.asarray([7, 7, 7, 7, 2, 2]))
        assert float(abs(by_number - scan(framework)(a, b, c, x, lengths=(4, 2))).max()) == 0

    def test_no_tokens_leave_the_state_as_it_was(self, framework: str) -> None:
        a, b, c, x = (leaf[:, :0] for leaf in diagonal(framework))
        (state,) = given(framework, (B, C, N))
        y, after = scan(framework)(a, b, c, x, state=state, return_state=True)
        assert tuple(y.shape) == (B, 0, C)
        assert float(abs(after - state).max()) == 0


@pytest.mark.parametrize("framework", THERE)
class TestRefusals:
    def test_shapes_that_do_not_fit(self, framework: str) -> None:
        a, b, c, x = diagonal(framework)
        with pytest.raises(UsageError, match=r"do not fit \(a first\): a \(2, 6, 3\).*legal for x \(batch, length, ch"):
            scan(framework)(a[..., 0], b, c, x)
        with pytest.raises(UsageError, match=r"x has the shape \(2, 6\); legal shapes are for x \(batch, length"):
            scan(framework)(a, b, c, x[..., 0])

    def test_operands_that_are_no_arrays(self, framework: str) -> None:
        a, b, c, x = diagonal(framework)
        with pytest.raises(UsageError, match="b is a list; legal: "):
            scan(framework)(a, [b], c, x)
        with pytest.raises(UsageError, match="c is a NoneType; legal: "):
            scan(framework)(a, b, None, x)
        with pytest.raises(UsageError, match="state is a tuple; legal: "):
            scan(framework)(a, b, c, x, state=(x, x))

    def test_groups_that_do_not_divide_the_heads(self, framework: str) -> None:
        a, b, x = given(framework, (B, T, 3), (B, T, 2, N), (B, T, 3, 5))
        with pytest.raises(UsageError, match="groups dividing heads"):
            scan(framework)(a, b, b, x)

    def test_integers(self, framework: str) -> None:
        a, b, c, _ = diagonal(framework)
        (whole,) = given(framework, (B, T, C), dtype="int32")
        with pytest.raises(UsageError, match="x is int32; legal: floating numbers"):
            scan(framework)(a, b, c, whole)

    @pytest.mark.parametrize("chunk", [0, -1, 1.5, "all", True])
    def test_a_chunk_that_is_no_number_of_tokens(self, framework: str, chunk: Any) -> None:
        with pytest.raises(UsageError, match="chunk is a whole number of tokens, at least 1, or None"):
            scan(framework)(*diagonal(framework), chunk=chunk)

    @pytest.mark.parametrize("lengths", [(3, 2), (0, 6), (4, 3)])
    def test_lengths_that_do_not_add_up(self, framework: str, lengths: Any) -> None:
        with pytest.raises(UsageError, match=r"legal: numbers of at least 1 that add up to 6"):
            scan(framework)(*diagonal(framework), lengths=lengths)

    def test_lengths_that_are_no_whole_numbers_or_given_twice(self, framework: str) -> None:
        xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
        with pytest.raises(UsageError, match=r"lengths are whole numbers, such as \(5, 3\).*pass segments="):
            scan(framework)(*diagonal(framework), lengths=(2.5, 3.5))
        with pytest.raises(UsageError, match="say the same thing: give one of them"):
            scan(framework)(*diagonal(framework), lengths=(6,), segments=xp.asarray([0] * 6))

    def test_segments_of_another_length_or_dtype(self, framework: str) -> None:
        xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
        with pytest.raises(UsageError, match=r"legal: integers \(length,\) or \(batch, length\), here \(2, 6\)"):
            scan(framework)(*diagonal(framework), segments=xp.asarray([0] * 5))
        with pytest.raises(UsageError, match=r"segments are .*float32"):
            scan(framework)(*diagonal(framework), segments=xp.asarray([0.0] * 6))


def test_lengths_that_jax_traces_are_refused_with_the_way_out() -> None:
    jax = pytest.importorskip("jax")
    run = jax.jit(lambda *given: scan("jax")(*given[:-1], lengths=given[-1]))
    with pytest.raises(UsageError, match=r"where they are traced .* pass segments="):
        run(*diagonal("jax"), jax.numpy.asarray([4, 2]))
