"""What the methods claim about memory and work: the thesis' claims with their source, and further claims.

They are measured on uniform chains whose values are large compared with the parameters. The laws are about the bytes
beyond those of one layer. A constant is fitted in addition to the power of N, so that short chains show the laws.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.chain import errata
from gradgate.references.chain.counts import claims as counted
from gradgate.references.contract import Claim
from gradgate.references.counts import joined
from gradgate.references.laws import figure, memory_law, work_law

FIGURES = "gradgate.references.chain.paper.figures"
OURS = "beyond the thesis"
FLAT = {"jax": {"width": 128, "batch": 16384}, "torch": {"width": 4, "batch": 512}}
NOT_BY = {
    "host": "XLA for CPUs drops the barriers that order a rematerialised program before it schedules the program; it "
    "then runs recomputation early and products for weights late, so its bytes are those of no schedule"
}
SIZES = {"jax": (4, 9, 16, 25, 36), "torch": (9, 25, 64, 144, 324)}
POWERS = {"jax": (3, 7, 15, 31, 63), "torch": (15, 31, 63, 127, 255)}
"""With the head, the number of stages is a power of 2: halving leaves no remainder, and ⌈log₂ n⌉ grows by 1 each time.
"""
QUADRATIC = {"jax": (3, 6, 12, 18, 24), "torch": (4, 8, 16, 32, 64)}


def _memory(framework: str, statement: str, source: str, exponent: float, **settings: Any) -> Claim:
    return memory_law(
        "memory_law",
        statement,
        source,
        variable="layers",
        sizes=settings.pop("sizes", SIZES[framework]),
        exponent=exponent,
        spec=FLAT[framework],
        not_by=NOT_BY if framework == "jax" and exponent < 1 else None,
        **settings,
    )


def _work(framework: str, statement: str, source: str, exponent: float, **settings: Any) -> Claim:
    return work_law(
        "work_law",
        statement,
        source,
        variable="layers",
        sizes=settings.pop("sizes", SIZES[framework]),
        exponent=exponent,
        spec=FLAT[framework],
        **settings,
    )


FLAT_IN_N = memory_law(
    "memory_law",
    "temporary memory grows with the batch and not with N: no value is kept for a further layer",
    "§2.5.2",
    variable="batch",
    sizes=(16384, 24576, 32768, 49152, 65536),
    exponent=1,
    bound="equal",
    spec={**FLAT["jax"], "batch": 65536, "layers": 6},
    independent_of={"layers": QUADRATIC["jax"]},
    not_by=NOT_BY
    | {
        "tpu": "XLA for TPUs keeps three times the bytes of each layer's weights besides the values, and from 49,152 "
        "rows on it places three values where it placed two"
    },
)
"""The law of `recompute_all` in JAX. XLA for GPUs gives each of the program's N²/2 barriers a table of pointers of 256
bytes. A law in N alone would call these tables growth; the bound on the change over N lets them pass, at 0.05%, and no
kept value, which would be a third of all bytes for each layer."""


def _extra(framework: str, method: str, name: str, law: str, sizes: str, source: str) -> Claim:
    """The claim that a method's FLOPs beyond plain backprop's follow a law, from above and from below."""
    return figure(
        name,
        f"its FLOPs beyond plain backprop's grow like {law} for n stages: the quotient of the two is the same on "
        f"chains of {sizes} layers (measured: the largest over the smallest)",
        source,
        printed=1.0,
        measured=f"gradgate.references.chain.paper.extra_work:{method}_in_{framework}",
        unit="times",
        tolerance=0.05,
    )


def _of(framework: str) -> dict[str, tuple[Claim, ...]]:
    return {
        "backprop": (
            _memory(
                framework, "temporary memory grows linearly with N: everything is stored", "§2.4.3", 1, bound="equal"
            ),
            _work(framework, "its FLOPs grow linearly with N", "beyond the paper; §2.4.3", 1),
        ),
        "sqrt_n": (
            _memory(framework, "temporary memory grows like √N", "§2.5.1", 0.5, bound="equal"),
            _work(framework, "its FLOPs grow linearly with N: one forward more at most", "§2.5.1", 1),
        ),
        "recursive": (
            _memory(
                framework,
                "temporary memory grows like log N, slower than N^0.3",
                "§2.5.2",
                0.3,
                sizes=POWERS[framework],
            ),
            _extra(framework, "recursive", "n_log_n", "n log n", "15, 31 and 63", "§2.5.2"),
        ),
        "recompute_all": (
            FLAT_IN_N
            if framework == "jax"
            else _memory(framework, "temporary memory does not grow with N", "§2.5.2", 0, sizes=QUADRATIC[framework]),
            _work(
                framework, "its FLOPs grow no faster than N²", "§2.5.2", 2, sizes=QUADRATIC[framework], bound="at most"
            ),
            _extra(framework, "recompute_all", "quadratic", "n(n − 1)/2", "6, 12 and 24", "§2.5.2"),
        ),
        "revolve": (
            _memory(
                framework,
                "with ⌈log₂ N⌉ values, temporary memory grows like log N, slower than N^0.3",
                "§2.5.3",
                0.3,
                sizes=POWERS[framework],
            ),
        ),
    }


SOLVER = (
    figure(
        "optimal",
        "its solver computes as little as the shortest path over all persistent lazy schedules, on 500 "
        "random chains of up to 7 stages",
        "§3.1",
        printed=1.0,
        measured=f"{FIGURES}:lazy_gap",
        unit="times the least compute",
        tolerance=0.0,
    ),
    figure(
        "optimal_uniform",
        "its solver computes as little as the shortest path, on 200 random chains of up to 7 equal stages",
        "§3.1",
        printed=1.0,
        measured=f"{FIGURES}:uniform_gap",
        unit="times the least compute",
        tolerance=0.0,
    ),
    figure(
        "optimal_steady",
        "on 100 random chains whose recordings keep as much as their stages' inputs, no persistent "
        "schedule computes less, in whatever order",
        "§3.1",
        printed=1.0,
        measured=f"{FIGURES}:persistent_gap",
        unit="times the least compute",
        tolerance=0.0,
    ),
    figure(
        "optimal_of_all",
        "no other schedule within the budget computes less: 'truly optimal checkpointing policy'",
        "abstract",
        printed=1.0,
        measured=f"{FIGURES}:free_gap",
        unit="times the least compute",
        tolerance=0.0,
        expected="refuted",
        declared_reason="dropping a stored value and computing it again can be cheaper: on a chain of four layers the "
        "solver's schedule computes 1.21 times the least",
    ),
)
"""Claims about the solver on drawn costs. `_called` and `counts` compare what the method runs with the same search."""

BUDGET = figure(
    "budget",
    "its measured peak is within the budget, from the least budget to that of saving everything, on varied "
    "chains (the largest ratio of peak to budget)",
    "§3.1.4",
    printed=1.0,
    measured=f"{FIGURES}:largest_share",
    unit="of the budget",
    bound="at most",
    tolerance=0.0,
)

CLOSE = figure(
    "simulated",
    "its simulated peak is the measured one, to 5%: the larger over the smaller, where they differ most",
    "§3.2.4",
    printed=1.0,
    measured=f"{FIGURES}:largest_difference",
    unit="times the measured peak",
    tolerance=0.05,
)

WITHIN = memory_law(
    "memory_law",
    "within a budget that does not grow with N, temporary memory does not grow either",
    "§3.1.4",
    variable="layers",
    sizes=(12, 18, 24, 36, 48),
    exponent=0,
    spec=FLAT["torch"],
    options={"budget": 120_000},
)
"""A claim about any method that takes a budget. `BUDGET` and `CLOSE` are only about the reference's own executor."""

COMPILED_WITHIN = memory_law(
    "memory_law",
    "within a budget in proportion to the batch, temporary memory grows with the batch and not with N",
    "§3.1.4",
    variable="batch",
    sizes=(4096, 6144, 8192, 12288, 16384),
    exponent=1,
    spec={**FLAT["jax"], "layers": 6},
    options="gradgate.references.chain.claims:budget_of_the_batch",
    independent_of={"layers": (4, 6, 9, 13, 18)},
    not_by=NOT_BY,
)
"""`WITHIN` in JAX. There a program takes a kilobyte more per layer, which a law in N alone would call growth."""


def budget_of_the_batch(spec: Any) -> dict[str, int]:
    """A budget of seven values of 128 numbers per example: one more than the least, which does not depend on N."""
    return {"budget": 7 * 128 * 4 * spec.batch}


def _called(framework: str) -> Claim:
    return figure(
        "optimal_called",
        "the forwards that it runs, counted, cost as little as the shortest path over all persistent "
        "lazy schedules, on six chains of up to 6 stages with three budgets each",
        "§3.1",
        printed=1.0,
        measured=f"{FIGURES}:gap_in_{framework}",
        unit="times the least compute",
        tolerance=1e-9,
    )


def _compiled_budget(method: str) -> Claim:
    return figure(
        "budget",
        "as compiled, its temporary bytes and x_0 are within the budget, for the least budget, for that of "
        "saving everything and for the middle, on uniform and varied chains of 6 layers (the largest share)",
        "§3.1.4",
        printed=1.0,
        measured=f"{FIGURES}:{method}_share",
        unit="of the budget",
        bound="at most",
        tolerance=0.0,
    )


BOUNDED: dict[str, dict[str, tuple[Claim, ...]]] = {
    "jax": {
        "uniform_dp": (_compiled_budget("uniform"), COMPILED_WITHIN),
        "precise_dp": (*SOLVER, _called("jax"), _compiled_budget("precise"), COMPILED_WITHIN),
    },
    "torch": {
        "uniform_dp": (WITHIN, *errata.UNIFORM),
        "precise_dp": (
            *SOLVER,
            _called("torch"),
            BUDGET,
            CLOSE,
            WITHIN,
            errata.FALLBACK,
            errata.PEAKS,
            *errata.PRECISE,
        ),
    },
}
PROMISES = {name: joined(_of(name), bounded, counted(name)) for name, bounded in BOUNDED.items()}
"""Framework -> method -> its claims about memory, work and counts."""
