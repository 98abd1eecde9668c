"""What the methods promise about memory and work: the paper's claims with their source, and the claims added here.

JAX programs are compiled and not run, so they have the sizes of the paper's configuration IV: s = 3, d_model = 1024, 16
heads, L up to 16384. PyTorch runs what it measures, so its problems are small.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import Claim
from gradgate.references.counts import joined
from gradgate.references.laws import figure, memory_law, work_law
from gradgate.references.performer.counts import claims as counted

PAPER = "gradgate.references.performer.paper.rows"
DEPTH = "gradgate.references.performer.paper.depth"
OURS = "beyond the paper"
LARGE = {"layers": 3, "heads": 16, "head_width": 64, "expansion": 4, "vocabulary": 256}
EAGER = {"layers": 2, "heads": 2, "head_width": 16, "expansion": 2, "vocabulary": 16}
LONG = (256, 512, 1024, 4096, 16384)
SHORT = (16, 32, 64, 128, 256)


def quarter(spec: Any) -> dict[str, Any]:
    """C = L/4, so that a sweep over L is one over C."""
    return {"chunk": spec.length // 4, "prefix_sum": "block"}


def _memory(name: str, statement: str, sizes: tuple[int, ...], exponent: float, **settings: Any) -> Claim:
    source = settings.pop("source", "§3.3, Table 1")
    return memory_law(name, statement, source, variable="length", sizes=sizes, exponent=exponent, **settings)


def _laws(sizes: tuple[int, ...], spec: dict[str, Any], chunk: int, chunked: tuple[int, ...]) -> tuple[Claim, ...]:
    return (
        _memory(
            "memory_law",
            f"at a chunk of {chunk} its temporary memory does not grow with L, which only the tokens do",
            sizes,
            0,
            spec=spec,
            options={"chunk": chunk},
        ),
        _memory(
            "memory_law_chunk",
            "its temporary memory grows linearly with C at most, here C = L/4",
            chunked,
            1,
            spec=spec,
            options="gradgate.references.performer.claims:quarter",
        ),
        work_law(
            "work_law",
            "at a fixed chunk its FLOPs grow linearly with L",
            "§3.4",
            variable="length",
            sizes=sizes,
            exponent=1,
            spec=spec,
            options={"chunk": chunk},
        ),
    )


def _full(sizes: tuple[int, ...], spec: dict[str, Any]) -> tuple[Claim, ...]:
    return (
        _memory(
            "memory_law",
            "temporary memory grows linearly with L: every activation is stored",
            sizes,
            1,
            bound="equal",
            spec=spec,
            source="Table 1",
        ),
        work_law(
            "work_law",
            "its FLOPs grow linearly with L",
            "Table 1",
            variable="length",
            sizes=sizes,
            exponent=1,
            spec=spec,
        ),
    )


def _checkpointed(sizes: tuple[int, ...], spec: dict[str, Any], chunk: int) -> tuple[Claim, ...]:
    """Of methods that run a slice's layers again, or undo them."""
    return (
        _memory(
            "memory_law",
            f"at a chunk of {chunk} its temporary memory does not grow with L",
            sizes,
            0,
            spec=spec,
            options={"chunk": chunk},
            source="§5",
        ),
    )


STATES = "2·s·d_model·(M+1) numbers hold 𝓑 and 𝓖, in percent of what they are"
WORK = "no more work than two forward passes, one backward pass and L·s·M·(d+1)·k additions, in percent of that,"
SHARED = (
    figure(
        "states_printed",
        f"{STATES}, at M = d = 64, d_model = 1024, s = 3",
        "§3.4",
        printed=100,
        measured=f"{PAPER}:states_square",
        unit="%",
        tolerance=1e-6,
    ),
    figure(
        "states_printed_general",
        f"{STATES}, at M = 16, d = 64, d_model = 1024, s = 3",
        "§3.4",
        printed=100,
        measured=f"{PAPER}:states_favor",
        unit="%",
        tolerance=1e-6,
        expected="refuted",
        declared_reason="D1 = M(d+1)k of §3.1 gives 2·s·M·(d_model + k); d_model·(M+1) is that where M = d only",
    ),
)


def _depth(name: str, statement: str, source: str, printed: float, measured: str) -> Claim:
    """A claim about parallel time, the longest chain of operations: what a second doubling adds over the first."""
    return figure(
        name,
        f"{statement}: what a second doubling adds to the longest chain of operations, over the first",
        source,
        printed=printed,
        measured=f"{DEPTH}:{measured}",
        unit="times",
        tolerance=0.01,
    )


LINEAR, LEVELS = 2.0, 1.0
"""What a second doubling adds over the first: for linear growth, and for logarithmic growth."""
PARALLEL = (
    _depth("depth", "in parallel its time grows linearly with L at a fixed C", "Table 1", LINEAR, "doubling_slim"),
    _depth("depth_one_token", "in parallel at C = 1 its time is O(L)", "Table 1", LINEAR, "doubling_slim_at_1"),
    _depth("depth_of_a_slice", "in parallel the time of a slice is O(log C)", "§3.2", LEVELS, "doubling_chunk"),
)

JAX: dict[str, tuple[Claim, ...]] = {
    "full": (
        *_full(LONG, LARGE),
        _depth("depth", "in parallel its time is O(log L)", "Table 1", LEVELS, "doubling_full"),
    ),
    "full_iterative": _full(LONG, LARGE),
    "slim": (
        *_laws(LONG, LARGE, 64, LONG),
        *SHARED,
        *PARALLEL,
        figure(
            "discrepancy",
            "in float32 its gradient at C = 64 is the full algorithm's but for 1e-5, here at configuration I",
            "§4.2, Fig. 2",
            printed=1e-5,
            measured=f"{PAPER}:discrepancy_at_64",
            unit="relative",
            bound="at most",
        ),
        figure(
            "memory_one_token",
            "at C = 1, L = 16384 its bytes are those of a run of length 1 and two states, to within 10%, in percent",
            "§3.4",
            printed=100,
            measured=f"{PAPER}:one_token",
            unit="%",
            bound="at most",
            tolerance=0.1,
        ),
        figure(
            "work",
            f"{WORK} at C = 512, L = 4096, d_model = 1024",
            "§3.4",
            printed=100,
            measured=f"{PAPER}:work_at_512",
            unit="%",
            bound="at most",
            tolerance=0.01,
        ),
        figure(
            "work_one_token",
            f"{WORK} at C = 1 too",
            "§3.4",
            printed=100,
            measured=f"{PAPER}:work_at_1",
            unit="%",
            bound="at most",
            tolerance=0.01,
        ),
    ),
    "slim_checkpointed": _checkpointed(LONG, LARGE, 64),
    "slim_kept": (
        _memory(
            "memory_law",
            "with a chunk of 64 and every state kept, memory grows with L, by s·D1 numbers per slice",
            LONG,
            1,
            spec=LARGE,
            options={"chunk": 64, "every": 1},
            source=OURS,
        ),
    ),
}

TORCH: dict[str, tuple[Claim, ...]] = {
    "full": _full(SHORT, EAGER),
    "full_iterative": _full(SHORT, EAGER),
    "slim": _laws(SHORT, EAGER, 4, (128, 256, 512, 1024, 2048)),
    "slim_checkpointed": _checkpointed(SHORT, EAGER, 4),
    "slim_reversible": _checkpointed(SHORT, {**EAGER, "residual": "reversible"}, 4),
    "slim_kept": (
        _memory(
            "memory_law",
            "with a chunk of 4 and every state kept, memory grows with L, by s·D1 numbers per slice",
            SHORT,
            1,
            spec=EAGER,
            options={"chunk": 4, "every": 1},
            source=OURS,
        ),
    ),
}

PROMISES = {"jax": joined(JAX, counted("jax")), "torch": joined(TORCH, counted("torch"))}
"""Framework -> method -> its claims about memory, work and counts."""
