"""A plan: the stages of a model for one kind of call, what they cost, and the schedule that fits the budget."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch.cuts import Cutting, Part, cut, joined
from gradgate.references.chain.in_torch.executor import Run, execute
from gradgate.references.chain.in_torch.graph import Graph, Surrounding, last_reads, run
from gradgate.references.chain.in_torch.profile import LiveBytes, graded, ones, profile, restore, snapshot, wait
from gradgate.references.chain.in_torch.recorder import record_model
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings
from gradgate.references.chain.in_torch.stages import Stage, record
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.simulate import Simulation, simulate

Env = dict[int, torch.Tensor]


@dataclass(frozen=True)
class Measured:
    """A way to cut a model; the fields are those of `Plan`."""

    cutting: Cutting
    needs: Mapping[int, bool]
    costs: Costs
    graded: tuple[bool, ...]


@dataclass(frozen=True)
class Plan:
    """How one kind of call is run. It holds no parameter and no module, only their names.

    Attributes:
        graph: the recorded forward pass, without its calls.
        cutting: its stages.
        needs: of every tensor that crosses a cut, whether it needs a gradient.
        costs: of the stages.
        schedule: one that fits the budget.
        graded: of every stage, `Stage.graded`.
    """

    graph: Graph
    cutting: Cutting
    needs: Mapping[int, bool]
    costs: Costs
    schedule: Schedule
    graded: tuple[bool, ...]

    @property
    def simulation(self) -> Simulation:
        """Compute and peak of a training step, by step."""
        return simulate(self.schedule, self.costs)

    @property
    def stages(self) -> list[str]:
        """Each stage by its first and its last call in the model."""
        return [part.name for part in self.cutting.parts]

    def begin(self, around: Surrounding, args: Any, kwargs: Any) -> tuple[Surrounding, Env]:
        """The inputs, and what is computed once before the chain; raises Otherwise if a decision has changed."""
        around = Surrounding(around.modules, around.state, self.graph.constants)
        return around, begun(self.graph, self.cutting, around, args, kwargs)

    def run(self, around: Surrounding, env: Env) -> Any:
        """The model's output, with the chain's graph behind it."""
        chain = chain_of(self.cutting, around, env, self.needs, self.graded)
        given = execute(chain, self.schedule, (), self.graph.device)
        env = env | dict(zip(self.cutting.parts[-1].passes, given, strict=True))
        leaves = [around.look_up(leaf, env) for leaf in self.graph.outputs]
        return pytree.tree_unflatten(leaves, self.graph.spec)


def begun(graph: Graph, cutting: Cutting, around: Surrounding, args: Any, kwargs: Any) -> Env:
    """The inputs by number, and those results of the first calls that the chain or the output reads."""
    given = [n for n, tensor in enumerate(graph.tensors) if tensor.given]
    found = {id(leaf): leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
    env = dict(zip(given, found.values(), strict=True))
    kept = {*given, *cutting.retained}
    with torch.no_grad():
        run(cutting.first, last_reads(cutting.first, sorted(kept)), around, env)
    return env


def stage_of(
    number: int, part: Part, around: Surrounding, env: Env, needs: Mapping[int, bool], graded: bool = False
) -> Stage:
    """One stage, on the modules and parameters as they are now, and on the tensors that are kept throughout."""
    sides = {n: env[n] for n in part.sides}
    names = dict.fromkeys(call.module for call in part.calls if call.module is not None)
    modules = {id(m): m for name in names for m in around.within(name)}
    read: list[torch.Tensor] = [p for m in modules.values() for p in m._parameters.values() if p is not None]
    for name in (name for call in part.calls for name in call.owners):
        modules.setdefault(id(around.modules[name]), around.modules[name])
    read += [around.state[name] for call in part.calls for name in call.states()]
    parameters = tuple({id(p): p for p in (*read, *sides.values())}.values())

    def forward(x: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        held = {**sides, **dict(zip(part.takes, x, strict=True))}
        del x
        run(part.calls, part.done, around, held)
        return tuple(held[n] for n in part.passes)

    return Stage(
        forward,
        parameters,
        tuple(modules.values()),
        f"stage {number} ({part.name})",
        needs=tuple(needs[n] for n in part.takes),
        gives=tuple(needs[n] for n in part.passes),
        graded=graded,
    )


def chain_of(
    cutting: Cutting, around: Surrounding, env: Env, needs: Mapping[int, bool], graded: Sequence[bool]
) -> list[Stage]:
    """All stages."""
    return [
        stage_of(number, part, around, env, needs, each)
        for number, (part, each) in enumerate(zip(cutting.parts, graded, strict=True), 1)
    ]


def make(
    model: nn.Module,
    args: Any,
    kwargs: Any,
    device: torch.device,
    compute: Literal["time", "flops"],
    solve: Callable[[Sequence[Costs]], tuple[int, Schedule]],
) -> Plan:
    """The plan of one kind of call. Runs the model once and every stage a few times; leaves no trace.

    Stages that the best schedule never parts are made one stage, which takes less time: something is done around each
    run of a stage. That is another way to cut the model, so it is measured and solved for too.

    `solve` takes the costs of each way to cut the model; it returns the number of one way, and a schedule for it.
    """
    everything = Stage(lambda x: x, modules=tuple(model.modules()))
    kept, state, surroundings = (
        snapshot([everything]),
        RandomState.now(device, everything.modules),
        Surroundings.now(device),
    )
    try:
        with surroundings.again():
            graph = record_model(model, args, kwargs, device)
        around = Surrounding.of(model, graph.constants)
        measured = [_measured(graph, cutting, around, args, kwargs, compute) for cutting in cut(graph)]
        chosen, schedule = solve([each.costs for each in measured])
        groups = schedule.groups()
        if len(groups) < schedule.stages:
            fewer = joined(measured[chosen].cutting, groups)
            measured.append(_measured(graph, fewer, around, args, kwargs, compute))
            chosen, schedule = solve([each.costs for each in measured])
    finally:
        restore(kept)
        state.put_back()
    best = measured[chosen]
    graph = dataclasses.replace(graph, calls=[])
    return Plan(graph, best.cutting, best.needs, best.costs, schedule, best.graded)


def _measured(
    graph: Graph, cutting: Cutting, around: Surrounding, args: Any, kwargs: Any, compute: Literal["time", "flops"]
) -> Measured:
    """A cutting, and what was found out about it."""
    with LiveBytes() as meter:
        env = begun(graph, cutting, around, args, kwargs)
    needs = _needs(graph, cutting, around, env)
    chain = chain_of(cutting, around, env, needs, [False] * len(cutting.parts))
    other_bits = graded(chain, (), graph.device)
    chain = chain_of(cutting, around, env, needs, other_bits)
    costs = profile(chain, (), compute, repeats=3, device=graph.device)
    if compute == "time":
        costs = _with_overhead(chain, costs, graph.device)
    held = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for n, t in env.items() if n in cutting.retained}
    costs = dataclasses.replace(costs, fixed=costs.fixed + sum(held.values()), first_peak=meter.peak)
    return Measured(cutting, needs, costs, other_bits)


def _with_overhead(chain: Sequence[Stage], costs: Costs, device: torch.device) -> Costs:
    """Costs in seconds, with a share for every run of a stage of what is done around it.

    What a stage needs to run again is kept and compared. For a small stage this takes longer than the stage, so a
    schedule of many small stages would look cheaper than it is.
    """
    schedule = classic.revolve(len(chain), max(1, math.isqrt(len(chain))))
    seconds = min(_seconds(chain, schedule, device) for _ in range(3))
    extra = max(0.0, seconds - simulate(schedule, costs).compute) / sum(schedule.runs())
    return dataclasses.replace(costs, forward=tuple(each + extra for each in costs.forward))


def _seconds(chain: Sequence[Stage], schedule: Schedule, device: torch.device) -> float:
    """The time of a forward and a backward pass, in which no hook of a parameter runs and no gradient is kept."""
    wait(device)
    start = time.perf_counter()
    run = Run(chain, schedule, (), device)
    run.advance(schedule.turn)
    cotangents: Sequence[torch.Tensor | None] = ones(chain[-1], run.output)
    run.output = None
    for number in reversed(range(1, len(chain) + 1)):
        cotangents, _ = run.backward(number, cotangents, None, retain=False)
    wait(device)
    return time.perf_counter() - start


def _needs(graph: Graph, cutting: Cutting, around: Surrounding, env: Env) -> dict[int, bool]:
    """Which tensors that cross a cut need a gradient: of those that might, those that get a graph when recorded."""
    needs = {n: tensor.needs for n, tensor in enumerate(graph.tensors)}
    value: Any = ()
    for number, part in enumerate(cutting.parts, 1):
        value, recording = record(stage_of(number, part, around, env, needs), value)
        needs |= {n: exit is not None for n, exit in zip(part.passes, recording.exits, strict=True)}
    return needs
