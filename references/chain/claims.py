"""What the methods promise of memory and work: the thesis' claims with their source, and what is added here.

Measured on uniform chains whose values are large beside the parameters. Bytes beside those of one layer are what the
laws are about, and a constant besides the power of N is fitted, so that short chains show them.
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
    "host": "XLA for CPUs drops the barriers that order a rematerialised program before it schedules it, and so runs "
    "recomputation early and products for weights late; its bytes are no schedule's"
}
SIZES = {"jax": (4, 9, 16, 25, 36), "torch": (9, 25, 64, 144, 324)}
POWERS = {"jax": (3, 7, 15, 31, 63), "torch": (15, 31, 63, 127, 255)}
"""With the head, a power of 2 stages: halving leaves no remainder, nor a step at one size only."""
QUADRATIC = {"jax": (3, 6, 12, 18, 24), "torch": (4, 8, 16, 32, 64)}


def _memory(framework: str, statement: str, source: str, exponent: float, **settings: Any) -> Claim:
    return memory_law(
        "memory_law", statement, source, variable="layers", sizes=settings.pop("sizes", SIZES[framework]),
        exponent=exponent, spec=FLAT[framework],
        not_by=NOT_BY if framework == "jax" and exponent < 1 else None, **settings,
    )  # fmt: skip


def _work(framework: str, statement: str, source: str, exponent: float, **settings: Any) -> Claim:
    return work_law(
        "work_law", statement, source, variable="layers", sizes=settings.pop("sizes", SIZES[framework]),
        exponent=exponent, spec=FLAT[framework], **settings,
    )  # fmt: skip


def _of(framework: str) -> dict[str, tuple[Claim, ...]]:
    return {
        "backprop": (
            _memory(framework, "temporary memory grows linearly with N: everything is stored", "§2.4.3", 1,
                    bound="equal"),
            _work(framework, "its FLOPs grow linearly with N", "§2.4.3", 1),
        ),
        "sqrt_n": (
            _memory(framework, "temporary memory grows like √N", "§2.5.1", 0.5, bound="equal"),
            _work(framework, "its FLOPs grow linearly with N: one forward more at most", "§2.5.1", 1),
        ),
        "recursive": (
            _memory(framework, "temporary memory grows like log N, slower than N^0.3", "§2.5.2", 0.3,
                    sizes=POWERS[framework]),
        ),
        "recompute_all": (
            _memory(framework, "temporary memory does not grow with N", "§2.5.2", 0, sizes=QUADRATIC[framework]),
            _work(framework, "its FLOPs grow like N²", "§2.5.2", 2, sizes=QUADRATIC[framework], bound="at most"),
        ),
        "revolve": (
            _memory(framework, "with ⌈log₂ N⌉ values, temporary memory grows like log N, slower than N^0.3", "§2.5.3",
                    0.3, sizes=POWERS[framework]),
        ),
    }  # fmt: skip


SOLVER = (
    figure(
        "optimal", "computes as little as the shortest path over all persistent lazy schedules, on 200 random chains "
        "of up to 5 stages", "§3.1", printed=1.0, measured=f"{FIGURES}:lazy_gap", unit="times the least compute",
        tolerance=0.0,
    ),
    figure(
        "optimal_steady", "on 100 random chains whose recordings keep as much as their stages' inputs, no persistent "
        "schedule in whatever order computes less", "§3.1", printed=1.0, measured=f"{FIGURES}:persistent_gap",
        unit="times the least compute", tolerance=0.0,
    ),
    figure(
        "optimal_of_all", "no schedule at all computes less in the budget: 'the truly optimal checkpointing policy'",
        "abstract", printed=1.0, measured=f"{FIGURES}:free_gap", unit="times the least compute", tolerance=0.0,
        expected="refuted",
        declared_reason="to drop a stored value and make it again can be cheaper: 1.21 times on a chain of four layers",
    ),
)  # fmt: skip

BUDGET = figure(
    "budget", "its measured peak is within the budget, from the least to everything saved, on varied chains: the "
    "largest ratio of measured to given", "§3.1.4", printed=1.0, measured=f"{FIGURES}:largest_share",
    unit="of the budget", bound="at most", tolerance=0.0,
)  # fmt: skip

CLOSE = figure(
    "simulated", "its simulated peak is at most 5% above the measured one", "§3.2.4", printed=1.05,
    measured=f"{FIGURES}:largest_excess", unit="times the measured peak", bound="at most", tolerance=0.0,
)  # fmt: skip

WITHIN = memory_law(
    "memory_law", "within a budget that does not grow with N, temporary memory does not", "§3.1.4",
    variable="layers", sizes=(12, 18, 24, 36, 48), exponent=0, spec=FLAT["torch"], options={"budget": 120_000},
)  # fmt: skip
"""That of any method given a budget, whoever wrote it; `BUDGET` and `CLOSE` are about the reference's own executor."""

BOUNDED: dict[str, dict[str, tuple[Claim, ...]]] = {
    "jax": {"precise_dp": SOLVER},
    "torch": {
        "uniform_dp": (WITHIN, *errata.UNIFORM),
        "precise_dp": (*SOLVER, BUDGET, CLOSE, WITHIN, errata.FALLBACK, *errata.PRECISE),
    },
}
PROMISES = {name: joined(_of(name), bounded, counted(name)) for name, bounded in BOUNDED.items()}
"""Framework -> method -> its claims about memory, work and counts."""
