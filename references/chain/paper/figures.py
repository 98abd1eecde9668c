"""Figures that claims are judged by: how far the solver is from the optimum, and the executor from its budget."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from gradgate.references.chain.problem import ChainSpec
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.search import Class, least_compute
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp

NARROW = Costs.of([4, 1, 3, 2], [0] * 4, [4, 2, 3, 4, 4], [1, 0, 4, 0], saves_output=True)
"""A chain on which dropping a stored value and making it again is cheaper, at a budget of 22."""


def random_costs(seed: int, longest: int = 5) -> Costs:
    """Small whole costs of a random chain: with transients, cotangents unlike their values, and sizes of 0."""
    rng = random.Random(seed)
    N = rng.randint(1, longest)

    def sizes(count: int) -> list[int]:
        return [rng.randint(0, 6) for _ in range(count)]

    output, saved = sizes(N + 1), sizes(N)
    gradient = [x if rng.random() < 0.8 else rng.randint(0, 6) for x in output]
    least = [max(0, gradient[n] - gradient[n + 1] - saved[n]) for n in range(N)]
    return Costs(
        tuple(1 + f for f in sizes(N)),
        tuple(sizes(N)),
        tuple(output),
        tuple(gradient),
        tuple(saved),
        tuple(rng.random() < 0.6 for _ in range(N)),
        tuple(rng.random() < 0.5 for _ in range(N)),
        tuple(output[n + 1] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        tuple(output[n + 1] + saved[n] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        tuple(least[n] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        rng.choice((0, 3)),
    )


def random_uniform_costs(seed: int, longest: int = 7) -> Costs:
    """Costs of a random chain whose stages all cost the same, and whose values are all of one size."""
    drawn, stages = random_costs(seed, 1), random.Random(seed).randint(1, longest)
    fields = {field.name: getattr(drawn, field.name) for field in dataclasses.fields(drawn)}
    output = max(drawn.output)
    every: dict[str, Any] = {name: value[-1:] * stages for name, value in fields.items() if isinstance(value, tuple)}
    every |= dict.fromkeys(("output", "gradient"), (output,) * (stages + 1))
    every |= {"forward_peak": (max(output, *drawn.forward_peak),) * stages}
    every |= {"save_peak": (max(output + drawn.saved[0], *drawn.save_peak),) * stages}
    return Costs(**every, fixed=drawn.fixed)


def random_steady_costs(seed: int) -> Costs:
    """Costs of a random steady chain: inputs kept, cotangents as large as values."""
    costs = random_costs(seed, 4)
    return dataclasses.replace(
        costs, gradient=costs.output, saves_input=(True,) * costs.stages, backward_peak=costs.output[:-1]
    )


def gap(costs: Costs, budget: int, schedules: Class) -> float:
    """Compute of the solver's schedule over the least of the class: 1 if the solver is as good.

    Infinite if the schedule exceeds the budget, or if a search over the class misses what the solver finds.
    """
    least = least_compute(costs, budget, schedules)
    found = simulate(precise_dp(costs, budget, slot=1), costs)
    return math.inf if found.peak > budget or found.compute < least else found.compute / least


def lazy_gap(profile: str = "", drawn: int = 500) -> float:
    """The largest `gap` to lazy schedules on 500 random chains of up to 7 stages."""
    return max(_random_gap(random_costs(seed, 7), seed, "lazy") for seed in range(drawn))


def uniform_gap(profile: str = "", drawn: int = 200) -> float:
    """The largest `gap` to lazy schedules on 200 random chains of up to 7 equal stages."""
    return max(_random_gap(random_uniform_costs(seed), seed, "lazy") for seed in range(drawn))


def persistent_gap(profile: str = "") -> float:
    """The largest `gap` to persistent schedules on 100 random steady chains."""
    return max(_random_gap(random_steady_costs(seed), seed, "persistent") for seed in range(100))


CALLED = tuple(
    ChainSpec(dtype="float32", layers=layers, width=width, batch=48, profile=profile)
    for layers, width in ((2, 2), (4, 1), (5, 2))
    for profile in ("uniform", "varied")
)


def gap_in_jax(profile: str, method: Callable[..., Any]) -> float:
    """The largest compute of the method's forwards, counted in its programs, over the least of any lazy schedule.

    There are six chains of up to 6 stages. Each has three budgets: the least one, and a third and two thirds of the way
    from there to what saving everything takes. The least compute comes from a search, not from the solver.
    """
    import jax

    from gradgate.hw_profiles import call_count

    def evaluations(problem: Any, budget: int) -> dict[str, float]:
        counted = problem.counted(lambda *_: None)
        found = call_count.count(jax.make_jaxpr(functools.partial(method, budget=budget))(counted))
        return {net: calls.evaluations for net, calls in found.calls.items()}

    return max(_called("jax", evaluations))


def gap_in_torch(profile: str, method: Callable[..., Any]) -> float:
    """The same in PyTorch, counted while the method runs."""

    def evaluations(problem: Any, budget: int) -> dict[str, float]:
        told: dict[str, float] = collections.defaultdict(float)

        def tell(net: str, kind: str, number: int) -> None:
            told[net] += number if kind == "evaluations" else 0

        method(problem.counted(tell), budget=budget)
        return told

    return max(_called("torch", evaluations))


def _called(
    framework: Literal["jax", "torch"], evaluations: Callable[[Any, int], Mapping[str, float]]
) -> Iterator[float]:
    for spec in CALLED:
        costs = importlib.import_module(f"gradgate.references.chain.in_{framework}.methods").costs_of(spec)
        most, least = simulate(classic.save_all(costs.stages), costs).peak, minimum_budget(costs)
        weights = {**{f"layer[{n}]": each for n, each in enumerate(costs.forward[:-1])}, "head": costs.forward[-1]}
        for share in range(3):
            budget = least + (most - least) * share // 3
            found = evaluations(spec.build(framework), budget)
            best = least_compute(costs, budget) - sum(costs.backward)
            yield sum(weights[net] * number for net, number in found.items()) / best


def free_gap(profile: str = "") -> float:
    """The `gap` to all schedules on `NARROW`."""
    return gap(NARROW, 22, "free")


def _random_gap(costs: Costs, seed: int, schedules: Class) -> float:
    rng = random.Random(-seed)
    return gap(costs, max(1, minimum_budget(costs) + rng.choice((0, 1, rng.randint(2, 20)))), schedules)


def largest_share(profile: str = "") -> float:
    """The largest measured peak over its budget, in PyTorch."""
    return max(measured / budget for budget, _, measured in _peaks())


def largest_difference(profile: str = "") -> float:
    """The larger of the simulated and the measured peak over the smaller, where the two differ most, in PyTorch."""
    return max(max(one) / min(one) for _, *one in _peaks())


def _peaks() -> list[tuple[int, int, int]]:
    """Budget, simulated peak, measured peak, x_0 in all of them; varied chains of 6 and 13 layers, four budgets each.

    Gradients of parameters that a stage has handed over do not count towards the budget; here they are small compared
    with the values.
    """
    import torch

    from gradgate.references.backends import tree_map
    from gradgate.references.chain.in_torch import methods as torch_impl
    from gradgate.references.chain.in_torch.executor import execute
    from gradgate.references.chain.in_torch.profile import LiveBytes

    rows = []
    for layers in (6, 13):
        spec = ChainSpec(dtype="float32", layers=layers, width=8, batch=512)
        costs, problem = torch_impl.costs_of(spec), spec.build("torch")
        most, least = simulate(classic.save_all(costs.stages), costs).peak, minimum_budget(costs)
        for share in range(4):
            budget = least + (most - least) * share // 3
            schedule = precise_dp(costs, budget)
            params = tree_map(lambda p: p.detach().requires_grad_(), problem.params)
            for p in params["layers"]:
                for leaf in p.values():
                    leaf.grad = torch.zeros_like(leaf)
            with LiveBytes() as meter:
                execute(torch_impl.stages(problem, params), schedule, problem.x).backward()
            rows.append((budget, simulate(schedule, costs).peak, meter.peak + costs.output[0]))
    return rows


JAX_CHAINS = tuple(
    ChainSpec(dtype="float32", layers=6, width=width, batch=16384, profile=profile)
    for profile, width in (("uniform", 64), ("varied", 32))
)


def uniform_share(profile: str, method: Callable[..., Any]) -> float:
    """The largest share of its budget that a uniform method takes in JAX, as compiled."""
    return _jax_share(method, profile, lambda costs: simulate(classic.uniform_least(costs), costs).peak)


def precise_share(profile: str, method: Callable[..., Any]) -> float:
    """The largest share of its budget that a method takes in JAX, as compiled."""
    return _jax_share(method, profile, minimum_budget)


def _jax_share(method: Callable[..., Any], profile: str, least_of: Callable[[Costs], int]) -> float:
    """Temporary bytes and x_0 over the budget, the largest of three budgets each: the least, the middle, all saved.

    Raises LookupError where the compiler is the host's, because its order of operations follows no schedule.
    """
    from gradgate.hw_profiles.profile import load
    from gradgate.references.chain.claims import NOT_BY
    from gradgate.references.chain.in_jax import methods as jax_impl
    from gradgate.references.chain.paper import peers

    compiler = load(profile).compiler
    if compiler in NOT_BY:
        raise LookupError(f"{profile}: {NOT_BY[compiler]}")
    shares = []
    for spec in JAX_CHAINS:
        costs = jax_impl.costs_of(spec)
        most = simulate(classic.save_all(costs.stages), costs).peak
        least = least_of(costs)
        for budget in (least, (least + most) // 2, most):
            found = peers.jax_step(functools.partial(method, budget=budget), spec, profile)
            shares.append((found.peak + costs.output[0]) / budget)
    return max(shares)
