"""How often the methods run the stages of a chain forward and back: the formulas of their claims about counts.

A chain of N layers and a head has n = N + 1 stages. A call is one run of one stage. Every method runs each stage
backward once. Every method except `backprop` runs again forward what it has not stored. None of these numbers comes
from a schedule: they come from closed forms, from a dynamic program (the fewest forwards with s slots) and from
shortest paths (the least compute within a budget).
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

from gradgate.hw_profiles.calls import Calls
from gradgate.references.contract import Claim, IllegalOption, check_integer
from gradgate.references.counts import claim

HERE = "gradgate.references.chain.counts"
SHORT = (1, 2, 3, 4, 5, 6, 7)
"""Numbers of layers, up to 8 stages, for which a search over all schedules finds the least compute in a second."""


def _stages(spec: Any, forwards: int) -> dict[str, Calls]:
    """Calls for so many forwards of all stages; the head, last forward and first backward, takes one of them."""
    return {"layer": Calls(forwards - 1, 0, spec.layers), "head": Calls(1, 0, 1)}


def plain(spec: Any, **_: Any) -> dict[str, Calls]:
    """Every stage runs forward once."""
    return _stages(spec, spec.layers + 1)


def sqrt_n(spec: Any, **_: Any) -> dict[str, Calls]:
    """Every stage runs twice, except those of the last segment, which is recorded at once.

    There are k = round(√n) segments. The last one is the longest and has ⌈n/k⌉ stages.
    """
    n = spec.layers + 1
    segments = max(1, round(math.sqrt(n)))
    return _stages(spec, 2 * n - math.ceil(n / segments))


# Halving n stages runs the left ⌈n/2⌉ forward: E(n) = ⌈n/2⌉ + E(⌈n/2⌉) + E(⌊n/2⌋), E(1) = 0. The same recursion with n
# in place of ⌈n/2⌉ has the solution n⌈log₂ n⌉ − 2^⌈log₂ n⌉ + n. With ⌊n/2⌋ in that place, its solution is the number of
# ones in the binary forms of 0 … n − 1. E is the difference of the two. For a power of two that is n log₂(n)/2, as
# §2.5.2 says.
def recursive(spec: Any, **_: Any) -> dict[str, Calls]:
    """The n forwards of plain backprop and E(n) more, by halving."""
    n = spec.layers + 1
    depth = (n - 1).bit_length()
    more = n * depth - 2**depth + n - sum(k.bit_count() for k in range(n))
    return _stages(spec, n + more)


def recompute_all(spec: Any, **_: Any) -> dict[str, Calls]:
    """Stage l runs once for each of the stages l … n: n(n − 1)/2 forwards more than plain backprop (§2.5.2)."""
    n = spec.layers + 1
    return _stages(spec, n + n * (n - 1) // 2)


def least_forwards(stages: int, slots: int) -> int:
    """The fewest forwards, recorded ones included, that reverse a chain with `slots` stored values, x_0 among them.

    To reverse n stages with s slots, run k of them forward, store x_k in a slot, reverse the n − k on its right with
    the s − 1 slots that are left, give the slot back and reverse the k on the left:

        t(n, s) = min over k of k + t(n − k, s − 1) + t(k, s),    t(1, s) = 0,    t(n, 1) = n(n − 1)/2

    is the number of forwards that are not recorded (Griewank and Walther, 2000). Cost: stages² · slots.

    Raises:
        IllegalOption: `stages` or `slots` is not an integer of at least 1.
    """
    stages, slots = check_integer("stages", stages, 1), check_integer("slots", slots, 1)
    return stages + _extra(stages, min(slots, stages))[stages]


@functools.lru_cache(maxsize=64)
def _extra(stages: int, slots: int) -> tuple[int, ...]:
    """t(0 … stages, slots)."""
    if slots == 1:
        return tuple(n * (n - 1) // 2 for n in range(stages + 1))
    fewer, found = _extra(stages, slots - 1), [0, 0]
    for n in range(2, stages + 1):
        found.append(min(k + fewer[n - k] + found[k] for k in range(1, n)))
    return tuple(found[: stages + 1])


def revolve(spec: Any, **_: Any) -> dict[str, Calls]:
    """The least forwards with ⌈log₂ n⌉ values stored (§2.5.3)."""
    n = spec.layers + 1
    return _stages(spec, least_forwards(n, max(1, math.ceil(math.log2(n)))))


def optimal(spec: Any, *, slots: int) -> dict[str, int]:
    """The fewest forwards of the layers with `slots` values stored at once, x_0 among them; the head runs once."""
    return {"layer": least_forwards(spec.layers + 1, slots) - 1, "head": 1}


# The number of slots that a budget in bytes allows depends on the sizes of the chain's values. So the simulator decides
# which uniform schedules fit, and which of these costs least. The number of forwards does not come from the simulator.
def uniform_dp(spec: Any, *, framework: str, budget: int) -> dict[str, Calls]:
    """The fewest forwards with the number of slots that is cheapest within the budget (§2.5.5)."""
    from gradgate.references.chain.schedules import classic
    from gradgate.references.chain.schedules.simulate import simulate

    costs, n = _costs(spec, framework), spec.layers + 1
    tried = []
    for slots in range(1, n + 1):
        found = simulate(classic.uniform_dp(n, slots), costs)
        if found.peak <= budget:
            tried.append((found.compute, found.peak, slots))
    if not tried:
        raise IllegalOption(f"no number of slots fits a budget of {budget} bytes")
    return _stages(spec, least_forwards(n, min(tried)[2]))


def least_compute(spec: Any, *, framework: str, budget: int) -> dict[str, float]:
    """FLOPs of all forwards together, of the cheapest persistent lazy schedule within the budget.

    By shortest paths over everything that the chain's machine can hold (`search`), not by the solver. Cost: exponential
    in the number of layers; half a second for 7.
    """
    from gradgate.references.chain.schedules.search import least_compute as search

    costs = _costs(spec, framework)
    return {"compute": search(costs, budget) - sum(costs.backward)}


def forward_flops(spec: Any, *, framework: str, **_: Any) -> dict[str, float]:
    """Net -> FLOPs of one evaluation."""
    *layers, head = _costs(spec, framework).forward
    return {**{f"layer[{i}]": flops for i, flops in enumerate(layers)}, "head": head}


def _costs(spec: Any, framework: str) -> Any:
    return importlib.import_module(f"gradgate.references.chain.in_{framework}.methods").costs_of(spec)


def claims(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claims about counts."""

    def counted(formula: str, statement: str, source: str) -> tuple[Claim, ...]:
        return (claim("counts", statement, source, formula=f"{HERE}:{formula}", given={"framework": framework}),)

    return {
        "backprop": counted("plain", "runs every stage forward once", "§2.1.4"),
        "sqrt_n": counted("sqrt_n", "runs every stage forward twice, those of the last of √n segments once", "§2.5.1"),
        "recursive": counted("recursive", "runs n log₂(n)/2 forwards more than plain ones, by halves", "§2.5.2"),
        "recompute_all": counted("recompute_all", "runs n(n − 1)/2 forwards more than plain ones", "§2.5.2"),
        "revolve": counted("revolve", "runs the least forwards that ⌈log₂ n⌉ stored values allow", "§2.5.3"),
        "uniform_dp": counted("uniform_dp", "runs the least forwards that its slots allow", "§2.5.5"),
        "precise_dp": (
            claim(
                "counts",
                "runs every stage back once",
                "§3.1",
                formula=f"{HERE}:plain",
                kinds=("jvps", "vjps"),
                given={"framework": framework},
            ),
            claim(
                "compute",
                "its forwards cost no more than any persistent lazy schedule's within the budget",
                "§3.1",
                formula=f"{HERE}:least_compute",
                kinds=("evaluations",),
                weights=f"{HERE}:forward_flops",
                given={"framework": framework},
                where={"layers": SHORT},
            ),
        ),
    }
