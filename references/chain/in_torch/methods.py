"""Gradients of the chain problem in PyTorch: one executor, `executor.execute`, and a schedule for each method.

The stages are the layers and the head: N + 1 of them. Each method that checkpoints has an attribute ``module``, a
function of an `nn.Sequential` and a sample of its input. It makes the module that trains by the method's schedule; a
method that takes a budget gets the least that suffices.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and N is the number of
layers.
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
from gradgate.references.chain.schedules.solver import minimum_budget
from gradgate.references.chain.schedules.solver import precise_dp as solve
from gradgate.references.contract import Spec, Tree


def backprop(problem: ChainProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by plain reverse-mode differentiation.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.1.4: what every other method is compared with.

    Stores:
        The recordings of all n stages: memory grows linearly with N.

    Computes:
        n evaluations of stages and n VJPs.

    Not for:
        Chains whose recordings do not fit in memory. Use `precise_dp` with a budget.
    """
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads


def _scheduled(
    name: str, make: Callable[[int], Schedule], documentation: str
) -> Callable[[ChainProblem], tuple[Any, Tree]]:
    def method(problem: ChainProblem) -> tuple[torch.Tensor, Tree]:
        return by_schedule(problem, make(problem.spec.layers + 1))

    def module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
        costs = costs_of_sequence(sequence, sample, compute="flops")
        return CheckpointedSequential(sequence, make(costs.stages), sample, costs)

    method.__name__ = method.__qualname__ = name
    method.module = module  # type: ignore[attr-defined]
    method.__doc__ = documentation
    return method


sqrt_n = _scheduled(
    "sqrt_n",
    classic.sqrt_n,
    """Loss and gradient with about √N segments: each is run again and recorded when its turn comes.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §2.5.1; Chen et al. (2016).

    Stores:
        With k = round(√n) segments, the k − 1 values between segments and the recordings of one segment, ⌈n/k⌉ stages.
        Both grow like √N.

    Computes:
        2n − ⌈n/k⌉ evaluations of stages, because only the last segment runs once, and n VJPs.

    Not for:
        Layers of very unequal size or cost: segments are equal in length, not in bytes. Use `precise_dp`.
    """,
)
recursive = _scheduled(
    "recursive",
    classic.recursive,
    """Loss and gradient by halving: the right half of a segment runs backward first, then the left half runs again.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §2.5.2, k = 1.

    Stores:
        ⌈log2 n⌉ values at most, the value in passing and the recordings of one stage: memory grows like log N.

    Computes:
        n + n·log2(n)/2 evaluations of stages if n is a power of two (`counts.recursive` has every n), and n VJPs.

    Not for:
        Any use but comparison: `revolve` stores as many values and never runs more stages.
    """,
)
recompute_all = _scheduled(
    "recompute_all",
    classic.recompute_all,
    """Loss and gradient with x_0 alone stored: every stage is run again from there.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §2.5.2.

    Stores:
        x_0, the value in passing and the recordings of one stage: memory does not grow with N.

    Computes:
        n + n(n − 1)/2 evaluations of stages and n VJPs.

    Not for:
        Chains of more than a few stages: FLOPs grow like N². Use `revolve`.
    """,
)
revolve = _scheduled(
    "revolve",
    lambda stages: classic.revolve(stages, classic.usual_checkpoints(stages)),
    """Loss and gradient with the fewest forwards that ⌈log2 n⌉ stored values allow, by REVOLVE.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §2.5.3; Griewank and Walther (2000).

    Stores:
        s = ⌈log2 n⌉ values, at least one, x_0 among them, the value in passing and the recordings of one stage: memory
        grows like log N.

    Computes:
        n + r·n − C(s + r, s + 1) evaluations of stages, with the least r for which C(s + r, s) ≥ n, and n VJPs.

    Not for:
        Layers of very unequal size or cost: it counts values, not bytes. Use `precise_dp`.
    """,
)


def uniform_dp(problem: ChainProblem, *, budget: int) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by the cheapest uniform policy whose peak is within a budget of bytes.

    The policy of Gruslys et al. stores a given number of values at once: its slots. Among the numbers of slots whose
    peak, as profiled, is within the budget, the one of least FLOPs is used.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        budget: bytes, an integer of at least 1 that suffices for the chain. It holds values, recordings and cotangents,
            x_0 among them, but not parameters and their gradients.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        IllegalOption: `budget` is not an integer of at least 1, or is too small; the message states what suffices.
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §2.5.5, Alg. 2.1, with t bounded by N.

    Stores:
        At most `budget` bytes of values, recordings and cotangents, as profiled.

    Computes:
        The fewest evaluations of stages that m slots allow (`counts.least_forwards`), and one VJP per stage. Once per
        shape, stages are profiled; once per shape and budget, a schedule per number of slots is made and simulated.

    Not for:
        Layers of very unequal cost: it counts stages, not FLOPs. Use `precise_dp`.
    """
    refuse_transforms()
    costs = costs_of(problem.spec)
    return by_schedule(problem, classic.uniform_within(costs, budget))


def precise_dp(problem: ChainProblem, *, budget: int) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by the persistent lazy schedule of least FLOPs whose peak is within a budget of bytes.

    Args:
        problem: any `ChainProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        budget: bytes, an integer of at least 1 that suffices for the chain. It holds values, recordings and cotangents,
            x_0 among them, but not parameters and their gradients.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Its bits
        are those of `backprop`.

    Raises:
        IllegalOption: `budget` is not an integer of at least 1, or is too small; the message states what suffices.
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.

    Source:
        §3.1, Alg. 3.4, corrected (`schedules.solver`).

    Stores:
        At most `budget` bytes of values, recordings and cotangents, as profiled.

    Computes:
        The least FLOPs of any persistent lazy schedule within the budget, and one VJP per stage. Once per shape, stages
        are profiled; once per shape and budget, the solver takes N³/6 additions per slot of the budget.

    Not for:
        Chains of hundreds of layers whose shape or budget changes at every call: the solver then takes longer than the
        gradient. Use `revolve`.
    """
    refuse_transforms()
    return by_schedule(problem, _solved(problem.spec.static(), budget))


def _uniform_module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
    costs = costs_of_sequence(sequence, sample, compute="flops")
    return CheckpointedSequential(sequence, classic.uniform_least(costs), sample, costs)


def _precise_module(sequence: nn.Sequential, sample: torch.Tensor) -> CheckpointedSequential:
    costs = costs_of_sequence(sequence, sample, compute="flops")
    return CheckpointedSequential(sequence, solve(costs, minimum_budget(costs)), sample, costs)


uniform_dp.module = _uniform_module  # type: ignore[attr-defined]
precise_dp.module = _precise_module  # type: ignore[attr-defined]


def by_schedule(problem: ChainProblem, schedule: Schedule) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by any schedule, nested or not.

    Args:
        problem: any `ChainProblem` of PyTorch tensors.
        schedule: of N + 1 stages: the layers and the head.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotComposable: called under torch.func or vmap, or the gradient is differentiated again.
        UsageError: the schedule has another number of stages.

    Stores:
        What `schedules.simulate` says of the schedule.

    Computes:
        The forwards of the schedule, and one VJP per stage.
    """
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
    """The costs of the stages of a chain, as profiled; the same for every Spec of one shape.

    Args:
        spec: any `ChainSpec`.

    Returns:
        Costs of N + 1 stages: recordings and values in bytes, as measured; compute in FLOPs, as counted.

    Computes:
        Runs every stage a few times, once per shape: the result is kept.
    """
    return _costs(spec.static())


@functools.lru_cache(maxsize=256)
def _costs(spec: Any) -> Costs:
    problem = spec.build("torch")
    params = tree_map(lambda p: p.detach().requires_grad_(), problem.params)
    return profile(stages(problem, params), problem.x, "flops")


@functools.lru_cache(maxsize=256)
def _solved(spec: Any, budget: Any) -> Schedule:
    return solve(_costs(spec), budget)
