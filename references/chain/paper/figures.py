"""Figures that claims are judged by: how far the solver is from the optimum, and the executor from its budget."""

from __future__ import annotations

import dataclasses
import random

from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.search import Class, least_compute
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp

NARROW = Costs.of([4, 1, 3, 2], [0] * 4, [4, 2, 3, 4, 4], [1, 0, 4, 0], saves_output=True)
"""A chain on which dropping a stored value and making it again is cheaper, at a budget of 22."""


def random_costs(seed: int, longest: int = 5) -> Costs:
    """Costs of a random chain with transients, unlike cotangents and sizes of nothing; small whole numbers."""
    rng = random.Random(seed)
    N = rng.randint(1, longest)

    def sizes(count: int) -> list[int]:
        return [rng.randint(0, 6) for _ in range(count)]

    output, saved = sizes(N + 1), sizes(N)
    gradient = [x if rng.random() < 0.8 else rng.randint(0, 6) for x in output]
    least = [max(0, gradient[n] - gradient[n + 1] - saved[n]) for n in range(N)]
    return Costs(
        tuple(1 + f for f in sizes(N)), tuple(sizes(N)), tuple(output), tuple(gradient), tuple(saved),
        tuple(rng.random() < 0.6 for _ in range(N)), tuple(rng.random() < 0.5 for _ in range(N)),
        tuple(output[n + 1] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        tuple(output[n + 1] + saved[n] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        tuple(least[n] + rng.choice((0, rng.randint(0, 6))) for n in range(N)),
        rng.choice((0, 3)),
    )  # fmt: skip


def random_steady_costs(seed: int) -> Costs:
    """Costs of a random steady chain: inputs kept, cotangents as large as values."""
    costs = random_costs(seed, 4)
    return dataclasses.replace(
        costs, gradient=costs.output, saves_input=(True,) * costs.stages, backward_peak=costs.output[:-1]
    )


def gap(costs: Costs, budget: int, schedules: Class) -> float:
    """Compute of the solver's schedule over the least of the class, at most 1 if the solver is as good."""
    least = least_compute(costs, budget, schedules)
    return simulate(precise_dp(costs, budget, slot=1), costs).compute / least


def lazy_gap(profile: str = "") -> float:
    """The largest `gap` to lazy schedules on 200 random chains."""
    return max(_random_gap(random_costs(seed), seed, "lazy") for seed in range(200))


def persistent_gap(profile: str = "") -> float:
    """The largest `gap` to persistent schedules on 100 random steady chains."""
    return max(_random_gap(random_steady_costs(seed), seed, "persistent") for seed in range(100))


def free_gap(profile: str = "") -> float:
    """The `gap` to all schedules on `NARROW`."""
    return gap(NARROW, 22, "free")


def _random_gap(costs: Costs, seed: int, schedules: Class) -> float:
    rng = random.Random(-seed)
    return gap(costs, max(1, minimum_budget(costs) + rng.choice((0, 1, rng.randint(2, 20)))), schedules)


def largest_share(profile: str = "") -> float:
    """The largest measured peak over its budget, in PyTorch."""
    return max(measured / budget for budget, _, measured in _peaks())


def largest_excess(profile: str = "") -> float:
    """The largest simulated peak over the measured one, in PyTorch."""
    return max(simulated / measured for _, simulated, measured in _peaks())


def _peaks() -> list[tuple[int, int, int]]:
    """Budget, simulated peak, measured peak, x_0 in all of them; varied chains of 6 and 13 layers, four budgets each.

    Gradients of parameters that a stage has handed over are beside the budget; here they are few beside the values.
    """
    import torch

    from gradgate.references.backends import tree_map
    from gradgate.references.chain.in_torch import methods as torch_impl
    from gradgate.references.chain.in_torch.executor import execute
    from gradgate.references.chain.in_torch.profile import LiveBytes
    from gradgate.references.chain.problem import ChainSpec
    from gradgate.references.chain.schedules import classic

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
