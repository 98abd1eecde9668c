"""The thesis' figures next to ours, and comparisons that the thesis lacks.

Figures 4.1 to 4.3 show results of solver and simulator, in the thesis and here. Networks are profiled at 224 pixels on
PyTorch's meta device, which gives the bytes and FLOPs of the CPU. What is executed runs on narrow networks and small
images.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from gradgate.references.chain.paper import (
    autograd_facts,
    peers,
    said_layers,
    text_figures,
    tradeoff,
    wrapping,
)
from gradgate.references.chain.problem import ChainSpec
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import BudgetTooSmall, minimum_budget, precise_dp
from gradgate.references.published import Published, at_most, equal, more_than, unexplained, upheld

MB = 2**20
LENGTHS = (20, 40, 100)
K80 = 12 * 2**30
"""Bytes of one GPU of the K80 on which the thesis ran; the thesis does not state the budgets of its figures."""


def uniform_curves(most: int = 60) -> dict[str, list[Any]]:
    """Least compute over slots of uniform networks (Fig. 4.1), in operations; plain backprop takes 2N."""
    slots = list(range(4, most + 1))
    return {"slots": slots} | {f"N = {N}": [_uniform(N, m) for m in slots] for N in LENGTHS}


def uniform_overhead(stages: int, few: int, many: int) -> float:
    """By how many percent the compute with few slots exceeds that with many."""
    least, most = _uniform(stages, few), _uniform(stages, many)
    if least is None or most is None:
        raise LookupError(f"{stages} stages do not fit {few} slots")
    return 100 * (least / most - 1)


def _uniform(stages: int, slots: int) -> float | None:
    try:
        costs = Costs.uniform(stages)
        return simulate(precise_dp(costs, slots, slot=1), costs).compute
    except BudgetTooSmall:
        return None


def chain_of(network: str, batch: int, size: int, narrow: int = 1, device: str = "cpu") -> tuple[tuple[Any, ...], Any]:
    """The layers of a network, its channels divided by `narrow`, with a loss at their end, and an input for it."""
    import torch

    from gradgate.references.chain.paper import networks

    make = {"resnet50": (networks.resnet50, 64), "densenet121": (networks.densenet121, 32)}[network]
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        layers = [*make[0](1000, make[1] // narrow), networks.Loss(torch.randint(1000, (batch,)))]
        return tuple(layers), torch.randn(batch, 3, size, size)


@functools.lru_cache(maxsize=32)
def planned(network: str, batch: int) -> Costs:
    """Bytes and FLOPs of a network at 224 pixels."""
    from gradgate.references.chain.in_torch.checkpoint import costs_of

    return costs_of(*chain_of(network, batch, 224, device="meta"), compute="flops")


@functools.lru_cache(maxsize=2)
def small(network: str) -> peers.Network:
    """A network that is run: a quarter of the channels, 16 images of 64 pixels."""
    from gradgate.references.chain.in_torch.checkpoint import costs_of

    layers, x = chain_of(network, 16, 64, narrow=4)
    return peers.Network(layers, x, costs_of(layers, x, compute="flops"))


def _half(costs: Costs) -> int:
    return simulate(classic.save_all(costs.stages), costs).peak // 2


@functools.lru_cache(maxsize=16)
def _bucketed(megabytes: float) -> tuple[float, float]:
    """FLOPs of the schedule for DenseNet-121 with such slots, and the solver's seconds."""
    costs = planned("densenet121", 32)
    start = time.perf_counter()
    try:
        schedule = precise_dp(costs, _half(costs), int(megabytes * MB))
    except BudgetTooSmall as error:
        raise LookupError(str(error)) from None
    return simulate(schedule, costs).compute, time.perf_counter() - start


def bucket_cost(megabytes: float) -> float:
    """FLOPs with slots of so many megabytes over those with slots of half a megabyte."""
    return _bucketed(megabytes)[0] / _bucketed(0.5)[0]


def bucket_seconds(megabytes: float) -> float:
    """Seconds of the solver."""
    return _bucketed(megabytes)[1]


BATCHES = (40, 80, 120, 140, 160, 240, 320, 480, 560, 640)


def batch_curves(budget: int = K80) -> dict[str, list[Any]]:
    """Compute over plain backprop's, and peaks over the budget, of ResNet-50 until nothing fits (Fig. 4.3)."""
    curves: dict[str, list[Any]] = {"batch": [], "compute / plain": [], "peak / budget": [], "plain peak / budget": []}
    for batch in BATCHES:
        costs = planned("resnet50", batch)
        plain = simulate(classic.save_all(costs.stages), costs)
        try:
            found = simulate(precise_dp(costs, budget), costs)
            row: list[float | None] = [found.compute / plain.compute, found.peak / budget]
        except BudgetTooSmall:
            row = [None, None]
        for values, value in zip(curves.values(), [batch, *row, plain.peak / budget], strict=True):
            values.append(value)
    return curves


def largest_batch(recompute: bool, budget: int = K80) -> float:
    """The batch at which ResNet-50 needs the budget, on the line through two batches: bytes are affine in it."""

    def need(batch: int) -> int:
        costs = planned("resnet50", batch)
        return minimum_budget(costs) if recompute else simulate(classic.save_all(costs.stages), costs).peak

    low, high = (320, 640) if recompute else (80, 160)
    return low + (budget - need(low)) * (high - low) / (need(high) - need(low))


def batch_ratio() -> float:
    """The largest batch with recomputation over that without."""
    return largest_batch(True) / largest_batch(False)


@functools.lru_cache(maxsize=64)
def _way(network: str, share: float, uniform_compute: bool, uniform_memory: bool) -> tuple[float, float]:
    """FLOPs over plain backprop's and peak over the budget, both measured, of a step by the schedule from such costs.

    `share` is where the budget lies between the least, 0, and plain backprop's peak, 1.
    """
    chosen = small(network)
    costs = chosen.costs
    least, most = minimum_budget(costs), simulate(classic.save_all(costs.stages), costs).peak
    budget = int(least + share * (most - least))
    try:
        schedule = precise_dp(costs.flattened(uniform_compute, uniform_memory), budget)
    except BudgetTooSmall as error:
        raise LookupError(f"the solver that knows means only finds no schedule: {error}") from None
    found = _executed(network, schedule)
    return found.flops / _executed(network, classic.save_all(costs.stages)).flops, found.peak / budget


@functools.lru_cache(maxsize=64)
def _executed(network: str, schedule: Any) -> peers.Measured:
    return small(network).run(schedule)


def way_flops(network: str, share: float, uniform_compute: bool, uniform_memory: bool) -> float:
    """FLOPs over plain backprop's, measured."""
    return _way(network, share, uniform_compute, uniform_memory)[0]


def way_peak(network: str, share: float, uniform_compute: bool, uniform_memory: bool) -> float:
    """The peak over the budget, measured."""
    return _way(network, share, uniform_compute, uniform_memory)[1]


@functools.lru_cache(maxsize=16)
def _peer(network: str, name: str) -> peers.Measured:
    return peers.torch_peer(name, small(network))


def peer_peak(network: str, name: str) -> float:
    """The peer's measured peak over plain backprop's."""
    return _peer(network, name).peak / _peer(network, "plain backprop").peak


def peer_flops(network: str, name: str) -> float:
    """The peer's measured FLOPs over plain backprop's."""
    return _peer(network, name).flops / _peer(network, "plain backprop").flops


def ours_at_peer(network: str, name: str) -> float:
    """Measured FLOPs of the solver's schedule within the peer's measured peak, over plain backprop's."""
    found = peers.at_equal_peak(_peer(network, name), small(network))
    return found.flops / _peer(network, "plain backprop").flops


JAX_CHAIN = ChainSpec(dtype="float32", layers=24, width=128, batch=16384, profile="varied")


@functools.lru_cache(maxsize=8)
def _jax_peer(name: str, profile: str) -> peers.Measured:
    return peers.jax_peer(name, JAX_CHAIN, profile)


def jax_flops(name: str, profile: str) -> float:
    """FLOPs of a JAX peer over plain backprop's."""
    return _jax_peer(name, profile).flops / _jax_peer("backprop", profile).flops


def jax_peak(name: str, profile: str) -> float:
    """Temporary bytes of a JAX peer over plain backprop's."""
    return _jax_peer(name, profile).peak / _jax_peer("backprop", profile).peak


def ours_at_jax(name: str, profile: str) -> float:
    """FLOPs of the solver's program within the JAX peer's bytes, over plain backprop's."""
    found = peers.jax_at_equal_peak(_jax_peer(name, profile), JAX_CHAIN, profile)
    return found.flops / _jax_peer("backprop", profile).flops


def revolve_ratio(package: str, stages: int, values: int) -> float:
    """Forwards of our REVOLVE over those of another package's."""
    return sum(classic.revolve(stages, values).runs()) / peers.revolve_forwards(package, stages, values)


def sqrt_drawing() -> str:
    """The schedule of √N segments for 9 stages, as Fig. 2.20 draws one."""
    return classic.sqrt_n(9).drawing()


def resnet_drawing() -> str:
    """The solver's schedule for ResNet-50 at 224 pixels, batch 32, within a quarter of plain backprop's peak."""
    costs = planned("resnet50", 32)
    return precise_dp(costs, max(_half(costs) // 2, minimum_budget(costs))).drawing()


HERE, DERIVED = "gradgate.references.chain.paper.rows", "gradgate.references.derived"
SMALL = "a quarter of the channels, 16 images of 64 pixels"
PROFILE = "nvidia-p100"
PEERS = (
    "checkpoint_sequential, √N segments",
    "torch.compile, memory budget 0.25",
    "torch.compile, memory budget 0.5",
    "torch.compile, memory budget 0.75",
    "checkpoint-schedules, Revolve, 5",
    "rockmate",
)
BELOW_STAGES = (
    "the compiler chooses single operations, our solver whole stages: norms, activations and copies that the compiler "
    "runs again count as no FLOPs"
)
JAX_PEERS = ("jax.checkpoint, each layer", "jax.checkpoint, √N segments", "jax.checkpoint, dots saveable")


def _drawings() -> list[Published]:
    place = "Fig. 2.20, schedules drawn: ─ forward, ● recorded, ◄ backward, | before a stage whose input stays"
    return [
        Published(place, "√N segments", "9 stages", "", f"{HERE}:sqrt_drawing"),
        Published(
            place,
            "precise DP",
            "ResNet-50, 224 pixels, batch 32, a quarter of plain backprop's peak",
            "",
            f"{HERE}:resnet_drawing",
        ),
    ]


SMALLEST = upheld(equal(0.01, "slots of just under 1 MB are the origin, and slots of half a MB cost as much"))
LITTLE = upheld(equal(0.01, "'little over 1%' of compute, to a percent"))
LARGEST = unexplained(equal(0.05, "1235 to 1900 ms are two numbers of three digits, read off a plot"), instead=1.033)
BUCKETS = {
    0.5: (None, ""),
    1: ((1.0, SMALLEST), "26 minutes"),
    2: (None, ""),
    5: ((1.01, LITTLE), "7 minutes"),
    10: (None, ""),
    25: ((1.53, LARGEST), "under a minute"),
}
"""Megabytes of a slot -> compute with its expectation, and the solver's time, as far as they are printed."""
COARSE = (
    "tried: budgets from 15% to 50% of plain backprop's peak (the thesis states none) give 1.03 to 1.12 times; lower "
    "budgets are refused, because the slots no longer fit"
)
FASTER = "theirs is a loop in Python on a Xeon of 2.3 GHz, ours runs whole rows at a time in NumPy on another machine"


def _figure_4_2() -> list[Published]:
    place, budget = "Fig. 4.2, DenseNet-121, 224 pixels, batch 32", "half of plain backprop's peak"
    rows = []
    for size, (cost, seconds) in BUCKETS.items():
        told = {"megabytes": size}
        printed, expects = cost or (None, None)
        rows += [
            Published(
                place,
                f"compute, {budget}",
                size,
                "times",
                f"{HERE}:bucket_cost",
                told,
                printed,
                COARSE if size == 25 else "",
                expects=expects,
            ),
            Published(
                f"{place}: solver",
                "seconds",
                size,
                "s",
                f"{HERE}:bucket_seconds",
                told,
                None,
                f"printed are {seconds}; {FASTER}" if seconds else "",
            ),
        ]
    quotient = {"over": f"{place}: solver / seconds / 5", "under": f"{place}: solver / seconds / 1", "take": "last"}
    rows.append(
        Published(
            f"{place}: solver",
            "seconds, slots of 5 MB / of 1 MB",
            "",
            "times",
            f"{DERIVED}:quotient",
            quotient,
            0.25,
            "by slots of 5 MB the tables have a fifth of the entries; that whole rows are computed at once hides part "
            "of it here, as a row takes its fixed time however short it is. Not tested is a loop over entries",
            expects=unexplained(equal(0.1, "'dropped 75%', from 26 to 7 minutes"), instead=0.438, spread=0.2),
        )
    )
    return rows


def _figure_4_3() -> list[Published]:
    place = "Fig. 4.3, ResNet-50, 224 pixels, 12 GiB"
    return [
        Published(place, "curves", "batch", "times", f"{HERE}:batch_curves", drawn=True),
        Published(
            f"{place}: largest batch",
            "with recomputation over without",
            "",
            "times",
            f"{HERE}:batch_ratio",
            {},
            1.4,
            "not because values and recordings are separate here: with what a layer saves as its value (§3.2.2) the "
            "least budget is still 3.7 times below plain backprop's peak; the thesis states neither its budget nor "
            "what failed",
            expects=unexplained(equal(0.1, "140 and 'just under 100' are read off a plot"), instead=3.63),
        ),
    ]


def _four_ways() -> list[Published]:
    rows = []
    for network in ("resnet50", "densenet121"):
        for share in (0.05, 0.2, 0.5):
            for compute in (False, True):
                for memory in (False, True):
                    series = f"{'uniform' if compute else 'measured'} compute, {'uniform' if memory else 'measured'} "
                    told = {"network": network, "share": share, "uniform_compute": compute, "uniform_memory": memory}
                    for what, unit, name in (
                        ("FLOPs", "times plain backprop's", "way_flops"),
                        ("peak", "times the budget", "way_peak"),
                    ):
                        place = f"§4.3, executed: {what} of {network}, {SMALL}"
                        rows.append(Published(place, series + "memory", share, unit, f"{HERE}:{name}", told))
    return sorted(rows, key=lambda row: row.place)


def _better_than_uniform() -> list[Published]:
    """The abstract's comparison, from the executed schedules: all three budgets must show it, so the least counts."""
    place, rows = "§4.3, executed, in words", []
    cheaper = upheld(more_than("'better policies than what a uniform-cost solver could possibly find': more FLOPs"))
    for network in ("resnet50", "densenet121"):
        flops, peak = (f"§4.3, executed: {what} of {network}, {SMALL}" for what in ("FLOPs", "peak"))
        rows += [
            Published(
                place,
                f"FLOPs of {network}, uniform compute / measured, memory measured in both",
                "least of 3 budgets",
                "times",
                f"{DERIVED}:quotient",
                {
                    "over": f"{flops} / uniform compute, measured memory",
                    "under": f"{flops} / measured compute, measured memory",
                    "take": "least",
                },
                1.0,
                expects=cheaper,
            ),
            Published(
                place,
                f"peak of {network}, uniform compute and memory",
                "least of 3 budgets",
                "times the budget",
                f"{DERIVED}:value",
                {"of": f"{peak} / uniform compute, uniform memory", "take": "least"},
                1.0,
                expects=upheld(more_than("'it simply thinks': without the sizes it does not satisfy the budget")),
            ),
            Published(
                place,
                f"peak of {network}, both measured",
                "largest of 3 budgets",
                "times the budget",
                f"{DERIVED}:value",
                {"of": f"{peak} / measured compute, measured memory", "take": "largest"},
                1.0,
                expects=upheld(at_most("'satisfy the budget'")),
            ),
        ]
    return rows


def _side_by_side() -> list[Published]:
    rows = []
    for network in ("resnet50", "densenet121"):
        for name in PEERS:
            place, told = f"Side by side: {network}, {SMALL}", {"network": network, "name": name}
            reason = BELOW_STAGES if name.startswith("torch.compile") else ""
            rows += [
                Published(place, "peak measured", name, "times plain backprop's", f"{HERE}:peer_peak", told),
                Published(place, "FLOPs measured", name, "times plain backprop's", f"{HERE}:peer_flops", told),
                Published(
                    place,
                    "FLOPs of precise DP within that peak",
                    name,
                    "times plain backprop's",
                    f"{HERE}:ours_at_peer",
                    told,
                    None,
                    reason,
                ),
            ]
    for name in JAX_PEERS:
        place, told = f"Side by side: JAX, 24 varied layers, {PROFILE}", {"name": name, "profile": PROFILE}
        rows += [
            Published(place, "temporary bytes", name, "times plain backprop's", f"{HERE}:jax_peak", told),
            Published(place, "FLOPs", name, "times plain backprop's", f"{HERE}:jax_flops", told),
            Published(
                place,
                "FLOPs of precise DP within those bytes",
                name,
                "times plain backprop's",
                f"{HERE}:ours_at_jax",
                told,
            ),
        ]
    for package in ("checkpoint-schedules", "pyrevolve"):
        for stages, values in ((10, 3), (100, 5), (200, 12)):
            series, x = f"ours over {package}", f"{stages} stages, {values} values"
            asked: dict[str, Any] = {"package": package, "stages": stages, "values": values}
            rows.append(
                Published(
                    "Forwards of REVOLVE",
                    series,
                    x,
                    "times",
                    f"{HERE}:revolve_ratio",
                    asked,
                    1.0,
                    expects=upheld(equal(0.0, "numbers of forwards are whole")),
                )
            )
    return rows


PUBLISHED = (
    *text_figures.ROWS,
    *said_layers.ROWS,
    *autograd_facts.ROWS,
    *wrapping.ROWS,
    *_drawings(),
    *tradeoff.ROWS,
    *_figure_4_2(),
    *_figure_4_3(),
    *_four_ways(),
    *_better_than_uniform(),
    *_side_by_side(),
)
