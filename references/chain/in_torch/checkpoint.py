"""From a sequence of layers and a budget to a module that trains within it: Listings 3.2–3.4 in one call.

    model = checkpointed(sequence, sample, budget=2 * 10**9)
    loss_of(model(x)).backward()

or in steps, whose results are values that can be kept, changed and shown:

    costs = costs_of(sequence, sample, compute="flops")
    schedule = precise_dp(costs, budget)                  # or any other of `classic` and `solver`
    model = CheckpointedSequential(sequence, schedule, sample)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from gradgate.references.chain.in_torch.executor import execute
from gradgate.references.chain.in_torch.profile import graded, profile, restore, snapshot
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings
from gradgate.references.chain.in_torch.stages import Stage, plain
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.simulate import Simulation, simulate
from gradgate.references.chain.schedules.solver import precise_dp
from gradgate.references.contract import UsageError

Compute = Literal["time", "flops", "uniform"]
Memory = Literal["measured", "uniform"]


class CheckpointedSequential(nn.Sequential):
    """A sequence that trains by a schedule. Else it is the sequence it was made from, with the same `state_dict`.

    Where no gradient is needed (`torch.no_grad`, or nothing that requires one) it runs plainly.

    Args:
        sequence: an `nn.Sequential`, or layers in order. Each takes what the one before gives: one tensor. The layers
            are shared, not copied.
        schedule: of as many stages as the sequence has (`stages_of`).
        sample: an input of the shape, dtype and device that every input will have.
        costs: of the stages, to simulate with; None: there is no simulation.

    Raises:
        UsageError: not a sequence, or a schedule of another length.

    Stores:
        What `schedules.simulate` says of the schedule.

    Computes:
        The forwards of the schedule, and one VJP per stage.
    """

    def __init__(
        self, sequence: Iterable[nn.Module], schedule: Schedule, sample: torch.Tensor, costs: Costs | None = None
    ) -> None:
        layers = _named(sequence)
        super().__init__()
        for name, layer in layers:
            self.add_module(name, layer)
        self._division = _divided([layer for _, layer in layers], sample)
        if not isinstance(schedule, Schedule):
            raise UsageError(f"schedule must be a Schedule, not {type(schedule).__name__}")
        stages = len(self._division.groups)
        if schedule.stages != stages:
            raise UsageError(
                f"the schedule has {schedule.stages} stages, this sequence {stages}: layers that "
                "overwrite or view their input belong to the stage before; leading ones without gradients to no stage"
            )
        if costs is not None and costs.stages != stages:
            raise UsageError(f"the costs are of {costs.stages} stages, this sequence has {stages}")
        self.schedule, self.costs = schedule, costs
        self._expected = (tuple(sample.shape), sample.dtype, sample.device)
        self._input_grad = sample.requires_grad

    @property
    def simulation(self) -> Simulation:
        """Compute and peak of a training step, by step; raises UsageError if no costs were given."""
        if self.costs is None:
            raise UsageError("give costs to simulate with: CheckpointedSequential(sequence, schedule, sample, costs)")
        return simulate(self.schedule, self.costs)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The sequence's output.

        Raises:
            UsageError: `input` is no tensor, or has another shape, dtype or device than the sample, so that the
                schedule's bytes would not be those planned; or it needs a gradient though the sample did not; or layers
                were added or removed.
        """
        if not isinstance(input, torch.Tensor):
            raise UsageError(f"the input must be one tensor, not {type(input).__name__}")
        needed = any(p.requires_grad for p in self.parameters()) or input.requires_grad
        if not (torch.is_grad_enabled() and needed):
            return super().forward(input)
        found = (tuple(input.shape), input.dtype, input.device)
        if found != self._expected:
            raise UsageError(
                f"this chain was planned for an input of (shape, dtype, device) {self._expected}, not {found}; plan it "
                "anew with a sample of that kind, or keep one module per shape: they can share layers"
            )
        if input.requires_grad and not self._input_grad:
            raise UsageError("the input needs a gradient, the sample did not: plan with sample.requires_grad_()")
        prefix, stages = self._division.of(list(self._modules.values()))  # anew: layers may have been exchanged
        if prefix is not None:
            with torch.no_grad():
                input = prefix.run(input)
        return execute(stages, self.schedule, input)


def checkpointed(
    sequence: Iterable[nn.Module],
    sample: torch.Tensor,
    budget: int,
    *,
    compute: Compute | Sequence[tuple[float, float]] = "time",
    memory: Memory | Costs = "measured",
    slot: int | None = None,
) -> CheckpointedSequential:
    """The sequence as a module whose training step stays within `budget` bytes, at the least compute.

    Args:
        sequence: an `nn.Sequential`, or layers in order. Each takes what the one before gives: one tensor.
        sample: an input of the shape, dtype and device that every input will have, with `requires_grad` as theirs.
        budget: bytes for all values, recordings and cotangents of the chain, its input among them. Parameters, buffers
            and the gradients that parameters keep are not among them.
        compute: ``time``, measured; ``flops``, counted; ``uniform``; or a pair (forward, backward) for every stage.
        memory: ``measured``; ``uniform``, the mean of what is measured, as §4.3 compares (the budget then holds only as
            far as sizes are equal); or Costs, whose compute is ignored.
        slot: bytes per slot of the solver, or None (`precise_dp`).

    Returns:
        A module that shares the layers of the sequence and has its `state_dict`.

    Raises:
        UsageError: not a sequence; a layer that cannot be run again; costs of another number of stages.
        BudgetTooSmall: no schedule fits; the message states the least budget that suffices.

    Source:
        §3.2.1, Listings 3.2–3.4.

    Stores:
        At most `budget` bytes in a training step, as profiled.

    Computes:
        Once: the profiler runs each stage a few times, and the solver makes a schedule (`precise_dp`). Per step: the
        forwards of that schedule, and one VJP per stage.
    """
    layers = _named(sequence)
    costs = costs_of([layer for _, layer in layers], sample, compute=compute, memory=memory)
    return CheckpointedSequential(sequence, precise_dp(costs, budget, slot), sample, costs)


def costs_of(
    sequence: Iterable[nn.Module],
    sample: torch.Tensor,
    *,
    compute: Compute | Sequence[tuple[float, float]] = "time",
    memory: Memory | Costs = "measured",
) -> Costs:
    """The costs of the stages of a sequence: measured, uniform or given.

    Args:
        sequence: an `nn.Sequential`, or layers in order. Each takes what the one before gives: one tensor.
        sample: an input of the shape, dtype and device that every input will have, with `requires_grad` as theirs.
        compute: ``time``, measured; ``flops``, counted; ``uniform``; or a pair (forward, backward) for every stage.
        memory: ``measured``; ``uniform``, the mean of what is measured, as §4.3 compares (the budget then holds only as
            far as sizes are equal); or Costs, whose compute is ignored.

    Returns:
        Costs of as many stages as `stages_of` gives.

    Raises:
        UsageError: not a sequence; a layer that cannot be run again; costs of another number of stages.

    Computes:
        Runs each stage a few times, unless both bytes and compute are given.
    """
    if compute not in ("time", "flops", "uniform") and (isinstance(compute, str) or not isinstance(compute, Sequence)):
        raise UsageError(f"compute must be time, flops, uniform or a pair per stage, not {compute!r}")
    if memory not in ("measured", "uniform") and not isinstance(memory, Costs):
        raise UsageError(f"memory must be measured, uniform or Costs, not {memory!r}")
    layers = [layer for _, layer in _named(sequence)]
    prefix, stages = _divided(layers, sample).of(layers)
    if isinstance(memory, Costs) and memory.stages != len(stages):
        raise UsageError(f"memory must be Costs of {len(stages)} stages, one per stage, not of {memory.stages}")
    if isinstance(memory, Costs) and not isinstance(compute, str):
        costs = memory
    else:
        value = sample
        if prefix is not None:
            with torch.no_grad():
                value = prefix.run(sample)
        measured = profile(stages, value, "time" if compute == "time" else "flops")
        costs = measured
        if isinstance(memory, Costs):
            costs = _with_compute(memory, list(zip(measured.forward, measured.backward, strict=True)))
    if not isinstance(compute, str):
        costs = _with_compute(costs, compute)
    return costs.flattened(compute=compute == "uniform", memory=memory == "uniform")


def stages_of(sequence: Iterable[nn.Module], sample: torch.Tensor) -> list[Stage]:
    """The stages that schedules of this sequence count: its layers, except those that overwrite or view their input."""
    layers = [layer for _, layer in _named(sequence)]
    return _divided(layers, sample).of(layers)[1]


def _with_compute(costs: Costs, compute: Sequence[tuple[float, float]]) -> Costs:
    pairs = [tuple(pair) if isinstance(pair, Sequence) else (pair,) for pair in compute]
    if len(pairs) != costs.stages or any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"compute must hold {costs.stages} pairs (forward, backward), one per stage, not {pairs}")
    return dataclasses.replace(costs, forward=tuple(p[0] for p in pairs), backward=tuple(p[1] for p in pairs))


def _named(sequence: Any) -> list[tuple[str, nn.Module]]:
    if isinstance(sequence, nn.Sequential):
        layers = [(name, module) for name, module in sequence._modules.items() if module is not None]  # repeats too
    elif isinstance(sequence, nn.Module) and not isinstance(sequence, nn.ModuleList):
        raise UsageError(
            f"{type(sequence).__name__} is not a sequence: give an nn.Sequential or a list of layers, each taking the "
            "one tensor that the one before gives; what branches and merges becomes one layer"
        )
    elif not isinstance(sequence, Iterable):
        raise UsageError(f"{sequence!r} is not a sequence: give an nn.Sequential or a list of layers")
    else:
        layers = [(str(n), layer) for n, layer in enumerate(sequence)]
    if not layers or not all(isinstance(layer, nn.Module) for _, layer in layers):
        raise UsageError("a sequence holds at least one layer, and every layer is an nn.Module")
    return layers


@dataclasses.dataclass(frozen=True)
class Division:
    """Which layers of a sequence, by their numbers, make up which stage; numbers only, so that modules can be copied.

    Attributes:
        layers: of the sequence.
        prefix: leading layers without anything to differentiate.
        groups: the layers of each stage.
        clone: whether the first of all layers overwrites its input.
        graded: of each stage, `Stage.graded`.
    """

    layers: int
    prefix: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    clone: bool
    graded: tuple[bool, ...] = ()

    def of(self, layers: Sequence[nn.Module]) -> tuple[Stage | None, list[Stage]]:
        """The prefix, or None, and the stages, of these layers; UsageError if they are more or fewer."""
        if len(layers) != self.layers:
            raise UsageError(
                f"this chain was planned with {self.layers} layers and now has {len(layers)}: plan it anew"
            )
        chosen = [[layers[n] for n in group] for group in self.groups]
        stages = [
            Stage.of(group, _name(n, group), clone=self.clone and not self.prefix and n == 0)
            for n, group in enumerate(chosen)
        ]
        if self.graded:
            stages = [dataclasses.replace(s, graded=each) for s, each in zip(stages, self.graded, strict=True)]
        prefix = [layers[n] for n in self.prefix]
        return (Stage.of(prefix, "prefix", clone=self.clone) if prefix else None), stages


def _divided(layers: Sequence[nn.Module], sample: torch.Tensor) -> Division:
    """The stages of a sequence.

    A stage's output must be a storage of its own. A layer that overwrites its input or gives a view of it therefore
    joins the layer before, and if it is the first, the layer after. Runs every layer once; leaves no trace.
    """
    if not isinstance(sample, torch.Tensor):
        raise UsageError(f"the sample must be one tensor, not {type(sample).__name__}")
    groups: list[list[int]] = []
    whole = Stage.of(layers, "the sequence")
    kept, surroundings = snapshot([whole]), Surroundings.now(sample.device)
    state = RandomState.now(sample.device, whole.modules)
    overwrites_input = False
    try:
        value = sample.detach().clone()
        alone = True
        for number, layer in enumerate(layers):
            version, storage = value._version, value.untyped_storage()._cdata
            try:
                with surroundings.again():
                    result = plain(Stage(layer), value)
            except (RuntimeError, TypeError) as error:
                told = f"{tuple(value.shape)}, {value.dtype}, {value.device}"
                raise UsageError(
                    f"layer {number}, {type(layer).__name__}, cannot run on what reaches it from the sample, a tensor "
                    f"of {told}: {error}"
                ) from error
            if not isinstance(result, torch.Tensor):
                raise UsageError(
                    f"layer {number}, {type(layer).__name__}, gives {type(result).__name__}, not one tensor: the model "
                    "is not sequential there; put what passes several values into one layer"
                )
            changed = value._version != version
            joins = changed or result.untyped_storage()._cdata == storage
            overwrites_input |= number == 0 and changed
            if groups and (joins or not alone):
                groups[-1].append(number)
                alone = alone or not joins
            else:
                groups.append([number])
                alone = not joins or changed  # a view of x_0 is not yet a storage of its own
            value = result
    finally:
        restore(kept)
        state.put_back()
    needed = [any(p.requires_grad for n in group for p in layers[n].parameters()) for group in groups]
    first = 0 if sample.requires_grad else next((n for n, need in enumerate(needed) if need), len(groups))
    if first == len(groups):
        raise UsageError("nothing in the sequence needs a gradient: neither its parameters nor the sample")
    prefix = tuple(n for group in groups[:first] for n in group)
    division = Division(len(layers), prefix, tuple(map(tuple, groups[first:])), overwrites_input)
    leading, stages = division.of(layers)
    value = sample
    if leading is not None:
        with torch.no_grad(), surroundings.again():
            value = leading.run(sample)
        restore(kept)
        state.put_back()
    return dataclasses.replace(division, graded=graded(stages, value))


def _name(number: int, group: Sequence[nn.Module]) -> str:
    return f"stage {number + 1} ({', '.join(type(layer).__name__ for layer in group)})"
