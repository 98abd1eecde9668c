"""What the layers of ResNet-50 and DenseNet-121 cost, and what follows for schedules.

Networks are profiled at 224 pixels on PyTorch's meta device, 32 images, as in `rows.planned`.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any

from gradgate.references.chain.paper import networks, rows
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Plan, Save, Schedule, Split, saved
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp

BATCH = 32
SHARES = (0.05, 0.2, 0.5)
"""Where a budget lies between the least, 0, and plain backprop's peak, 1."""


def _costs(network: str) -> Costs:
    return rows.planned(network, BATCH)


def recorded_bytes(costs: Costs) -> list[int]:
    """Bytes that the recording of each stage keeps alive, its input and output among them: f_l of §3.2.2."""
    return [
        costs.saved[n] + costs.saves_input[n] * costs.output[n] + costs.saves_output[n] * costs.output[n + 1]
        for n in range(costs.stages)
    ]


def flops_spread(network: str) -> float:
    """FLOPs of the most expensive stage, forward, over the mean of all stages: 1 if they were uniform (Fig. 1.4)."""
    forward = _costs(network).forward
    return max(forward) / statistics.mean(forward)


def bytes_spread(network: str) -> float:
    """Bytes that the largest recording keeps over the mean of all stages: 1 if they were uniform (Fig. 1.4)."""
    sizes = recorded_bytes(_costs(network))
    return max(sizes) / statistics.mean(sizes)


def _budgets(costs: Costs) -> list[int]:
    least, most = minimum_budget(costs), simulate(classic.save_all(costs.stages), costs).peak
    return [int(least + share * (most - least)) for share in SHARES]


@functools.lru_cache(maxsize=4)
def _two_solvers(network: str) -> tuple[tuple[Schedule, Schedule], ...]:
    """Per budget the schedule that knows FLOPs and the one for which all stages cost the same."""
    costs = _costs(network)
    uniform = costs.flattened(compute=True)
    return tuple((precise_dp(costs, budget), precise_dp(uniform, budget)) for budget in _budgets(costs))


def uniform_runs(network: str) -> float:
    """Stages that run again by the solver with uniform compute, over those by the solver that knows FLOPs, in all."""
    known, uniform = (sum(map(_again, each)) for each in zip(*_two_solvers(network), strict=True))
    return uniform / known


def uniform_price(network: str) -> float:
    """FLOPs per stage that runs again, by the solver with uniform compute over the one that knows FLOPs."""
    costs = _costs(network)
    known, uniform = (
        sum(_extra(one, costs) for one in each) / sum(map(_again, each))
        for each in zip(*_two_solvers(network), strict=True)
    )
    return uniform / known


def _again(schedule: Schedule) -> int:
    return sum(schedule.runs()) - schedule.stages


def _extra(schedule: Schedule, costs: Costs) -> float:
    return sum((n - 1) * each for n, each in zip(schedule.runs(), costs.forward, strict=True))


def weights_share(network: str) -> float:
    """Bytes of the parameters over those of the stages' tensors that plain backprop holds (Fig. 2.16)."""
    layers, _ = rows.chain_of(network, BATCH, 224, device="meta")
    weights = sum(p.nbytes for layer in layers for p in layer.parameters())
    costs = _costs(network)
    return weights / simulate(classic.save_all(costs.stages), costs).peak


def backward_over_forward(network: str) -> float:
    """The largest quotient of what a backward makes and its stage's output; the loss, of 4 bytes, is left out."""
    return max(_backward_over_output(network))


def _backward_over_output(network: str) -> list[float]:
    costs = _costs(network)
    return [b / f for b, f in zip(costs.backward_peak[:-1], costs.output[1:-1], strict=True)]


def as_one(costs: Costs) -> Costs:
    """The costs as §3.2.2 models them: f_l is the output of a layer, its input if it saves that, and all it saves."""
    each = zip(costs.saved, costs.saves_input, costs.output, costs.output[1:], strict=False)
    sizes = (costs.output[0], *(saved + keeps * x + y for saved, keeps, x, y in each))
    bare = (0,) * costs.stages
    transient = [p - o for p, o in zip(costs.forward_peak, costs.output[1:], strict=True)]
    recorded = [p - o - s for p, o, s in zip(costs.save_peak, costs.output[1:], costs.saved, strict=True)]
    return Costs(
        costs.forward,
        costs.backward,
        sizes,
        costs.gradient,
        bare,
        (False,) * costs.stages,
        (True,) * costs.stages,
        tuple(s + t for s, t in zip(sizes[1:], transient, strict=True)),
        tuple(s + t for s, t in zip(sizes[1:], recorded, strict=True)),
        costs.backward_peak,
        costs.fixed,
    )


def as_one_budget(network: str) -> float:
    """The least budget with values and recordings as one over that with both counted separately."""
    costs = _costs(network)
    return minimum_budget(as_one(costs)) / minimum_budget(costs)


def as_one_flops(network: str) -> float:
    """FLOPs with values and recordings as one over those with both separate, at the least budget of the former."""
    costs = _costs(network)
    one = as_one(costs)
    budget = minimum_budget(one)
    return simulate(precise_dp(one, budget), one).compute / simulate(precise_dp(costs, budget), costs).compute


def greedy(costs: Costs, limit: int) -> Schedule:
    """Chen's heuristic: stages join a segment until what they keep exceeds `limit`; each segment runs again once."""
    bounds, held = [0], 0
    for n, size in enumerate(recorded_bytes(costs)):
        if held + size > limit and n > bounds[-1]:
            bounds.append(n)
            held = 0
        held += size
    plan: Plan = saved(bounds[-1], costs.stages)
    for start, end in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        plan = Split(saved(start, end), plan)
    return Schedule.of(plan)


def _limits(costs: Costs) -> list[int]:
    sizes = recorded_bytes(costs)
    return [max(sizes) + n * (sum(sizes) - max(sizes)) // 60 for n in range(60)]


@functools.lru_cache(maxsize=4)
def _searched(network: str) -> tuple[int, float]:
    """Peak and FLOPs of the best of 60 limits, in even steps, for Chen's heuristic: the least peak."""
    costs = _costs(network)
    found = [simulate(greedy(costs, limit), costs) for limit in _limits(costs)]
    best = min(found, key=lambda one: one.peak)
    return best.peak, best.compute


def greedy_peak(network: str) -> float:
    """The peak of Chen's heuristic, its limit searched for, over the least budget of the solver."""
    return _searched(network)[0] / minimum_budget(_costs(network))


def greedy_flops(network: str) -> float:
    """FLOPs of Chen's heuristic, its limit searched for, over those of the solver within the same peak."""
    peak, compute = _searched(network)
    costs = _costs(network)
    return compute / simulate(precise_dp(costs, peak), costs).compute


def quadratic(schedule: Schedule) -> int:
    """The longest segment, in stages, that a schedule recomputes by running every stage from the segment's start."""
    longest, todo = 1, [schedule.plan()]
    while todo:
        plan = todo.pop()
        if isinstance(plan, Save):
            todo.append(plan.rest)
        elif isinstance(plan, Split):
            longest = max(longest, _peeled(plan))
            todo += [plan.left, plan.right]
    return longest


def _peeled(plan: Plan) -> int:
    """How many stages at the end of a segment are run from its start one by one, the last first."""
    count = 1
    while isinstance(plan, Split) and plan.right.end == plan.right.start + 1:
        count, plan = count + 1, plan.left
    return count


def quadratic_curve(budget: int = rows.K80) -> dict[str, list[Any]]:
    """The longest quadratic segment of ResNet-50's schedules over the batch (§4.3)."""
    found: dict[str, list[Any]] = {"batch": [], "stages": []}
    for batch in rows.BATCHES:
        costs = rows.planned("resnet50", batch)
        if minimum_budget(costs) <= budget:
            found["batch"].append(batch)
            found["stages"].append(quadratic(precise_dp(costs, budget)))
    return found


@functools.lru_cache(maxsize=16)
def _of_batch(batch: int, budget: int) -> tuple[float, int]:
    """FLOPs and peak of the solver's schedule for ResNet-50 at a batch."""
    costs = rows.planned("resnet50", batch)
    found = simulate(precise_dp(costs, budget), costs)
    return found.compute, found.peak


def peak_growth(budget: int = rows.K80) -> float:
    """The simulated peak at batch 80 over that at batch 40, where memory is plentiful (§4.3)."""
    return _of_batch(80, budget)[1] / _of_batch(40, budget)[1]


def peak_at_quadratic(budget: int = rows.K80) -> float:
    """The simulated peak at the first batch with a quadratic segment, over that at the batch before it (§4.3)."""
    found = quadratic_curve(budget)
    first = next(n for n, stages in enumerate(found["stages"]) if stages > 1)
    peak, before = (_of_batch(found["batch"][n], budget)[1] for n in (first, first - 1))
    return peak / before


def later_rate(budget: int = rows.K80) -> float:
    """FLOPs that an image more takes from batch 240 to 480, over those from batch 40 to 80 (§4.3)."""
    early, late = (
        (_of_batch(high, budget)[0] - _of_batch(low, budget)[0]) / (high - low) for low, high in ((40, 80), (240, 480))
    )
    return late / early


def longest_convolution(network: str, profile: str = "nvidia-p100") -> float:
    """The longest convolution forward over the longest other layer, in such seconds (Ch. 1, p. 4)."""
    convolutions, others = _seconds(network, profile)
    return max(convolutions) / max(others)


def _seconds(network: str, profile: str) -> tuple[list[float], list[float]]:
    """Seconds of each convolution and of each other layer, forward.

    A layer takes as long as its FLOPs or as its bytes read and written, whichever is longer.
    """
    import torch

    from gradgate.hw_profiles.profile import load

    device = load(profile)
    bandwidth = device.bandwidth or math.nan
    layers, x = rows.chain_of(network, BATCH, 224, device="meta")
    spent: dict[bool, list[float]] = {True: [], False: []}

    def add_stage(module: Any, given: Any, y: Any) -> None:
        flops, weights = 0.0, sum(p.nbytes for p in module.parameters())
        if is_convolution := isinstance(module, torch.nn.Conv2d):
            flops = 2.0 * y.numel() * module.weight[0].numel()
        moved = (given[0].nbytes + y.nbytes + weights) / bandwidth
        spent[is_convolution].append(max(flops / device.peak["float32"], moved))

    leaves = [m for m in _modules(layers) if not isinstance(m, (torch.nn.Identity, networks.Loss))]
    hooks = [m.register_forward_hook(add_stage) for m in leaves]
    with torch.no_grad():
        for layer in layers[:-1]:
            x = layer(x)
    for hook in hooks:
        hook.remove()
    return spent[True], spent[False]


def _modules(layers: Any) -> list[Any]:
    """The modules of all layers that have no modules inside."""
    return [m for layer in layers for m in layer.modules() if not list(m.children())]


def dense_layers(network: str) -> float:
    """How many layers are fully-connected, over those that are convolutions (§2.4.3)."""
    import torch

    layers, _ = rows.chain_of(network, 1, 224, device="meta")
    dense, filters = (sum(isinstance(m, kind) for m in _modules(layers)) for kind in (torch.nn.Linear, torch.nn.Conv2d))
    return dense / filters


def least_slots(network: str, megabytes: int = 1) -> int:
    """The least budget of the solver, in slots of so many megabytes (§3.1.10)."""
    return math.ceil(minimum_budget(_costs(network)) / (megabytes * rows.MB))


def greedy_runs(network: str) -> int:
    """How often Chen's heuristic runs a stage at most, forward, over all 60 limits."""
    costs = _costs(network)
    return max(max(greedy(costs, limit).runs()) for limit in _limits(costs))
