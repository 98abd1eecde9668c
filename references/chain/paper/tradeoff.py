"""Fig. 4.1, compute over slots of uniform networks: what §4.1 reads off it, and the least that such networks can cost.

"The compute and memory costs of every forward and backward tensor is 1." Alg. 3.4, corrected, then states the number of
forwards that REVOLVE takes for N + 1 steps with m − 3 stored values (`least`). No schedule takes fewer.
"""

from __future__ import annotations

import math

from gradgate.references.chain.paper import as_printed
from gradgate.references.chain.schedules import classic
from gradgate.references.published import Published, at_most, equal, less_than, refuted, upheld

HERE = "gradgate.references.chain.paper.tradeoff"
ROWS_HERE = "gradgate.references.chain.paper.rows"
READ = "§4.1: 'read approximately from the graph'"
SAME_CHAIN = (
    "40 and 55 operations: the solver here counts the loss as no stage, and a recording as the input that it keeps. "
    "By Alg. 3.4, corrected, it is 31.7%"
)


def least(stages: int, slots: int) -> int:
    """The least compute of N uniform stages with m slots; it includes N + 1 backwards.

    f_0, the cotangent and the tensor in passing take a slot each; the other m − 3 hold values. Raises LookupError below
    four slots, where nothing fits.
    """
    if slots < 4:
        raise LookupError(f"{slots} slots are too few for a step of a uniform network; it takes at least 4")
    return classic.revolve_forwards(stages + 1, slots - 3)


def overhead(stages: int, few: int, many: int) -> float:
    """By how many percent the least compute with few slots exceeds that with many."""
    return 100 * (least(stages, few) / least(stages, many) - 1)


def late_rise(stages: int, few: int, middle: int, many: int) -> float:
    """How much the compute rises from many slots to a middle number, over its rise from there to few."""
    return (least(stages, middle) - least(stages, many)) / (least(stages, few) - least(stages, middle))


def reduction(few: float, many: float) -> float:
    """Percent of the slots that are taken away from many to leave few."""
    return 100 * (1 - few / many)


def slots_within(stages: int, percent: float, most: int = 60) -> int:
    """The least number of slots with at most so many percent more compute than with `most`."""
    return next(m for m in range(4, most + 1) if overhead(stages, m, most) <= percent)


def extra_forwards(stages: int, slots: int) -> float:
    """Forwards beyond one pass, over the stages: 1 is one more forward pass."""
    return (least(stages, slots) - (2 * stages + 1)) / stages


def corner(stages: int) -> int:
    """The least number of slots with which no stage is recomputed more than once."""
    return 3 + next(s for s in range(1, stages + 2) if math.comb(s + 2, 2) >= stages + 1)


def corner_growth(few: int, many: int) -> float:
    """The power of N with which the slots of `corner`, less three, grow."""
    return math.log((corner(many) - 3) / (corner(few) - 3)) / math.log(many / few)


def quadratic_growth(few: int, many: int) -> float:
    """The power of N with which the least compute grows at four slots, the fewest that fit."""
    return math.log(least(many, 4) / least(few, 4)) / math.log(many / few)


def solver_overhead(stages: int, few: int, many: int) -> float:
    """Like `overhead`, for the compute that Alg. 3.4, corrected, states."""
    costs = _curve(stages, many)
    return 100 * (costs[few] / costs[many] - 1)


def _curve(
    stages: int, most: int, forward: int = 1, backward: int = 1, misprint: as_printed.Misprint | None = None
) -> list[float]:
    ones = [1] * (stages + 2)
    costs = as_printed.Printed(ones, ones, [forward] * (stages + 2), [backward] * (stages + 2))
    return as_printed.curve(costs, most, () if misprint is None else (misprint,))


def readings(stages: int) -> str:
    """A table of what §4.1 reads off: for other tensor sizes than 1, and for each misprint with sizes of 1."""
    tried: list[tuple[int, int, as_printed.Misprint | None]] = [(f, b, None) for f in (1, 2) for b in (1, 2)]
    tried += [(1, 1, misprint) for misprint in as_printed.MISPRINTS]
    lines = ["slots of f, of b, misprint | operations at 60 | 40 to 10 | 60 to 10 | none run again | within 30% of 60"]
    for forward, backward, misprint in tried:
        cost = _curve(stages, 60, forward, backward, misprint)
        full = next((str(m) for m, each in enumerate(cost) if each == 2 * stages + 1), "above 60")
        few = next(m for m, each in enumerate(cost) if each <= 1.3 * cost[60])
        lines.append(
            f"{forward}, {backward}, {misprint or 'none'} | {cost[60]:g} | {_more(cost[10], cost[40])} | "
            f"{_more(cost[10], cost[60])} | from {full} | from {few}"
        )
    return "\n".join(lines)


def _more(cost: float, base: float) -> str:
    return f"+{100 * (cost / base - 1):.1f}%"


def _rows() -> list[Published]:
    place, more = "Fig. 4.1, uniform networks", "% more compute"
    tried = (
        "tried for 20 and 40 stages (see the tables): each misprint of Alg. 3.4 alone changes nothing; an f of two "
        "slots gives 44 slots without recomputation and 93 operations, but 74% in place of 38%; a b of two gives 37%"
    )
    floor = f"less than REVOLVE's number of forwards, the least of any schedule, which the solver reaches; {tried}"
    full = "by the thesis' own Eq. 2.19, N stages need N + 3 slots without recomputation and then cost 2N + 1; " + tried
    rows = [Published(place, "curves", "slots", "operations", f"{ROWS_HERE}:uniform_curves", drawn=True)]
    for N, few, many in ((20, 10, 40), (100, 24, 60), (100, 10, 60)):
        x, told = f"N = {N}, {many} to {few} slots", {"stages": N, "few": few, "many": many}
        read = (38.0, SAME_CHAIN, upheld(equal(0.1, READ))) if N == 20 else (None, "", None)
        rows.append(
            Published(
                place, "this solver", x, more, f"{ROWS_HERE}:uniform_overhead", told, read[0], read[1], expects=read[2]
            )
        )
    for N in (20, 40):
        x = f"N = {N}, other sizes of the tensors, and each misprint alone"
        rows.append(Published(place, "tried", x, "", f"{HERE}:readings", {"stages": N}))
    rows += [
        Published(
            place,
            "least slots of at most one recomputation",
            x,
            "slots",
            f"{HERE}:corner",
            {"stages": N},
            printed,
            expects=upheld(equal(0.15, f"{READ}; {words}")),
        )
        for N, printed, x, words in (
            (20, 9.0, "N = 20, the corner", "'about m = 9'"),
            (40, 11.0, "N = 40, the corner", "'just over 10'"),
        )
    ]
    rows.append(
        Published(
            place,
            "least slots of at most one recomputation",
            "N = 100 to 10,000",
            "power of N",
            f"{HERE}:corner_growth",
            {"few": 100, "many": 10_000},
            0.5,
            expects=upheld(equal(0.05, "'consistent with Chen's Θ(√N)'")),
        )
    )
    rows.append(
        Published(
            place,
            "least compute at four slots",
            "N = 100 to 10,000",
            "power of N",
            f"{HERE}:quadratic_growth",
            {"few": 100, "many": 10_000},
            2.0,
            expects=upheld(equal(0.05, "'quadratic-compute constant-memory'")),
        )
    )
    return [
        *rows,
        Published(
            place,
            "Alg. 3.4 corrected",
            "N = 20, 40 to 10 slots",
            more,
            f"{HERE}:solver_overhead",
            {"stages": 20, "few": 10, "many": 40},
            None,
            f"printed are 38, which this solver takes; {tried}",
        ),
        Published(
            place,
            "least compute",
            "N = 20, 9 slots",
            "extra forward passes",
            f"{HERE}:extra_forwards",
            {"stages": 20, "slots": 9},
            1.0,
            expects=upheld(at_most("§4.1: 2√20 ≈ 9 slots are Chen's optimum, of one recomputation")),
        ),
        Published(
            place,
            "least compute",
            "N = 20, least slots without recomputation",
            "slots",
            f"{HERE}:slots_within",
            {"stages": 20, "percent": 0.0},
            40.0,
            full,
            expects=refuted(equal(0.1, READ), instead=23),
        ),
        Published(
            place,
            "least compute",
            "N = 40, 60 slots",
            "operations",
            f"{HERE}:least",
            {"stages": 40, "slots": 60},
            100.0,
            full,
            expects=refuted(equal(0.1, f"{READ}; 'just under 100'"), instead=81),
        ),
        Published(
            place,
            "least compute",
            "N = 40, least slots within 30% of 60 slots",
            "slots",
            f"{HERE}:slots_within",
            {"stages": 40, "percent": 30.0},
            11.0,
            floor,
            expects=refuted(equal(0.2, f"{READ}; 'just over 10'"), instead=19),
        ),
        Published(
            place,
            "least compute",
            "N = 100, 60 to 24 slots",
            more,
            f"{HERE}:overhead",
            {"stages": 100, "few": 24, "many": 60},
            None,
            "36 of 244 operations, which the axis of the figure, up to 5,151 operations, hardly shows",
        ),
        *(
            Published(
                "§4.1, slots taken away",
                f"{many} to {few} slots",
                "as printed",
                "%",
                f"{HERE}:reduction",
                {"few": few, "many": many},
                printed,
                reason,
                expects=expects,
            )
            for few, many, printed, reason, expects in (
                (
                    10,
                    40,
                    60.0,
                    "a slip of arithmetic: 25 to 10 slots would be 60%",
                    refuted(equal(0.05, "a percentage of two printed numbers"), instead=75.0),
                ),
                (24, 60, 60.0, "", upheld(equal(0.05, "a percentage of two printed numbers"))),
                (10, 60, 83.0, "", upheld(equal(0.05, "a percentage of two printed numbers"))),
            )
        ),
        Published(
            place,
            "rise of the curve",
            "N = 100, 60 to 24 slots / 24 to 10 slots",
            "times",
            f"{HERE}:late_rise",
            {"stages": 100, "few": 10, "middle": 24, "many": 60},
            1.0,
            expects=upheld(
                less_than("'hardly any visible effect', and then 'a similar overhead of 40%': it rises less")
            ),
        ),
        Published(
            place,
            "least compute",
            "N = 100, 60 to 10 slots",
            more,
            f"{HERE}:overhead",
            {"stages": 100, "few": 10, "many": 60},
            40.0,
            floor,
            expects=refuted(equal(0.1, READ), instead=47.1),
        ),
    ]


ROWS = tuple(_rows())
