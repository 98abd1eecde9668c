"""Gradients of the chain problem in PyTorch: one executor, `torch_executor`, and a schedule for each method.

The stages are the layers and the head: N + 1 of them. Each method that checkpoints has an attribute ``module``, a
function of an `nn.Sequential` and a sample of its input. It makes the module that trains by the method's schedule; a
method that takes a budget gets the least that suffices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from gradgate.references.backends import leaves, tree_map
from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential
from gradgate.references.chain.in_torch.checkpoint import costs_of as costs_of_sequence
from gradgate.references.chain.in_torch.executor import execute, refuse_transforms
from gradgate.references.chain.in_torch.profile import profile
from gradgate.references.chain.in_torch.stages import Stage
from gradgate.references.chain.problem import ChainProblem
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget
from gradgate.references.chain.schedules.solver import precise_dp as solve
from gradgate.references.contract import Spec, Tree


def backprop(problem: ChainProblem) -> tuple[torch.Tensor, Tree]:
    """Plain reverse-mode differentiation of the loss: what every other method is compared with.

    Returns:
        The loss, a scalar, and its gradient, shaped and typed like ``problem.params``.

    Source: §2.1.4. Cost: stores the recordings of all N layers, computes one forward and one backward pass.
    """
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads


def _scheduled(name: str, make: Callable[[int], Schedule], text: str) -> Callable[[ChainProblem], tuple[Any, Tree]]:
    def method(problem: ChainProblem) -> tuple[torch.Tensor, Tree]:
        return by_schedule(problem, make(problem.spec.layers + 1))

    def module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
        costs = costs_of_sequence(sequence, sample, compute="flops")
        return CheckpointedSequential(sequence, make(costs.stages), sample, costs)

    method.__name__ = method.__qualname__ = name
    method.module = module  # type: ignore[attr-defined]
    method.__doc__ = f"""{text}

    Returns:
        The loss, a scalar, and its gradient, shaped and typed like ``problem.params``; the bits of `backprop`.

    Raises:
        NotComposable: under torch.func or vmap, or differentiated again.
    """
    return method


sqrt_n = _scheduled("sqrt_n", classic.sqrt_n, classic.sqrt_n.__doc__ or "")
recursive = _scheduled("recursive", classic.recursive, classic.recursive.__doc__ or "")
recompute_all = _scheduled("recompute_all", classic.recompute_all, classic.recompute_all.__doc__ or "")
revolve = _scheduled(
    "revolve",
    lambda stages: classic.revolve(stages, classic.usual_checkpoints(stages)),
    "REVOLVE with as many stored values as the recursive schedule has, ⌈log₂ N⌉, and the least recomputation for them.",
)


def uniform_dp(problem: ChainProblem, *, budget: int) -> tuple[torch.Tensor, Tree]:
    """The uniform policy (Gruslys et al., Alg. 2.1) with the most slots whose true peak is within the budget.

    Args:
        problem: the chain.
        budget: bytes of values, recordings and cotangents, x_0 among them; parameters and their gradients beside it.

    Returns:
        As `sqrt_n`.

    Raises:
        IllegalOption: `budget` is not an integer of at least 1, or is too small; states what suffices.
        NotComposable: under torch.func or vmap, or differentiated again.

    Source: §2.5.5, Alg. 2.1. Cost: N recordings are profiled once per shape; then `classic.uniform_dp`.
    """
    refuse_transforms()
    costs = costs_of(problem.spec)
    return by_schedule(problem, classic.uniform_within(costs, budget))


def precise_dp(problem: ChainProblem, *, budget: int) -> tuple[torch.Tensor, Tree]:
    """The schedule of least compute whose peak is within the budget, by measured bytes and counted FLOPs.

    Arguments, results, errors as `uniform_dp`. Source: Alg. 3.4, mended (`solver`). Cost: profiling and the solver,
    once per shape and budget; then the least FLOPs of any persistent lazy schedule within the budget.
    """
    refuse_transforms()
    return by_schedule(problem, _solved(problem.spec.static(), budget))


def _uniform_module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
    costs = costs_of_sequence(sequence, sample, compute="flops")
    slots = range(1, min(costs.stages, classic.MOST_SLOTS) + 1)
    schedule = min((classic.uniform_dp(costs.stages, n) for n in slots), key=lambda s: simulate(s, costs).peak)
    return CheckpointedSequential(sequence, schedule, sample, costs)


def _precise_module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
    costs = costs_of_sequence(sequence, sample, compute="flops")
    return CheckpointedSequential(sequence, solve(costs, minimum_budget(costs)), sample, costs)


uniform_dp.module = _uniform_module  # type: ignore[attr-defined]
precise_dp.module = _precise_module  # type: ignore[attr-defined]


def by_schedule(problem: ChainProblem, schedule: Schedule) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by any schedule of N + 1 stages."""
    refuse_transforms()
    params = tree_map(lambda p: p.detach().requires_grad_(), problem.params)
    loss = execute(stages(problem, params), schedule, problem.x)
    grads = iter(torch.autograd.grad(loss, [leaf for p in params["layers"] for leaf in p.values()]))
    return loss.detach(), {"layers": [{key: next(grads) for key in p} for p in params["layers"]]}


def stages(problem: ChainProblem, params: Tree) -> Sequence[Stage]:
    """The layers at these parameters, and the head."""
    layers = [
        Stage(functools.partial(layer, p), tuple(leaves(p)), name=f"layer {number}")
        for number, (layer, p) in enumerate(zip(problem.layers, params["layers"], strict=True), 1)
    ]
    return [*layers, Stage(problem.head, name="head")]


def costs_of(spec: Spec) -> Costs:
    """Bytes measured, FLOPs counted; the same for every Spec of one shape."""
    return _costs(spec.static())


@functools.lru_cache(maxsize=256)
def _costs(spec: Any) -> Costs:
    problem = spec.build("torch")
    params = tree_map(lambda p: p.detach().requires_grad_(), problem.params)
    return profile(stages(problem, params), problem.x, "flops")


@functools.lru_cache(maxsize=256)
def _solved(spec: Any, budget: Any) -> Schedule:
    return solve(_costs(spec), budget)
