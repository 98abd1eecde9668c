"""A plan: the stages of a model for one kind of call, what they cost, and the schedule that fits the budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch.cuts import Cutting, Part, cut
from gradgate.references.chain.in_torch.executor import execute
from gradgate.references.chain.in_torch.graph import Graph, Surrounding, last_reads, run
from gradgate.references.chain.in_torch.profile import LiveBytes, graded, profile, restore, snapshot
from gradgate.references.chain.in_torch.recorder import record_model
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings
from gradgate.references.chain.in_torch.stages import Stage, record
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

    def begin(self, model: nn.Module, args: Any, kwargs: Any) -> tuple[Surrounding, Env]:
        """The inputs, and what is computed once before the chain; raises Otherwise if a decision has changed."""
        around = Surrounding.of(model, self.graph.constants)
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
    layers = [around.modules[name] for name in names]
    modules = {id(m): m for layer in layers for m in layer.modules()}
    for name in (name for call in part.calls for name in call.owners):
        modules.setdefault(id(around.modules[name]), around.modules[name])
    read: list[torch.Tensor] = [p for layer in layers for p in layer.parameters()]
    read += [around.state[name] for call in part.calls for name in call.states()]
    parameters = tuple({id(p): p for p in (*read, *sides.values())}.values())
    done = last_reads(part.calls, part.passes)

    def forward(x: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        held = {**sides, **dict(zip(part.takes, x, strict=True))}
        del x
        run(part.calls, done, around, held)
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
    finally:
        restore(kept)
        state.put_back()
    return _best(dataclasses.replace(graph, calls=[]), measured, solve)


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
    held = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for n, t in env.items() if n in cutting.retained}
    costs = dataclasses.replace(costs, fixed=costs.fixed + sum(held.values()), first_peak=meter.peak)
    return Measured(cutting, needs, costs, other_bits)


def _best(
    graph: Graph,
    measured: Sequence[Measured],
    solve: Callable[[Sequence[Costs]], tuple[int, Schedule]],
) -> Plan:
    """The plan of the cutting that the solver chooses."""
    chosen, schedule = solve([each.costs for each in measured])
    best = measured[chosen]
    return Plan(graph, best.cutting, best.needs, best.costs, schedule, best.graded)


def _needs(graph: Graph, cutting: Cutting, around: Surrounding, env: Env) -> dict[int, bool]:
    """Which tensors that cross a cut need a gradient: of those that might, those that get a graph when recorded."""
    needs = {n: tensor.needs for n, tensor in enumerate(graph.tensors)}
    value: Any = ()
    for number, part in enumerate(cutting.parts, 1):
        value, recording = record(stage_of(number, part, around, env, needs), value)
        needs |= {n: exit is not None for n, exit in zip(part.passes, recording.exits, strict=True)}
    return needs
