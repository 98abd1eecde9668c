"""Runs a schedule in PyTorch through the usual `loss.backward()`, which the thesis gave up in its §3.2.3 and §3.2.4.

The thesis' executor drove the backward pass by hand, and its stack frames kept every cotangent alive. Here autograd
drives. The chain appears in the caller's graph as one small node per stage, linked through placeholders of no size; the
node of stage l performs the operations of the schedule up to "backward l", and hands the cotangent back to the engine,
which frees it once the next node has used it. So

* cotangents live as long as the simulator says, no longer;
* gradients of parameters reach their accumulators stage by stage, in the order of plain backprop, hence with the
  same bits, also where stages share parameters;
* `torch.autograd.grad`, hooks, and a larger model around the chain work as usual.

A node hands the gradients of its parameters back together. Where they become ``grad``, or results of
`torch.autograd.grad`, they stay in memory in any case. Where a ``grad`` already exists, to which they are added, plain
backprop holds one gradient at a time. The node then does the same: it runs a backward pass of its own, which ends in
the parameters' accumulators (`_accumulable`). A parameter that is also used outside the chain then gets its terms added
one after another, not as one sum, as with PyTorch's reentrant checkpoint. A stage still hands its gradients back
together if it shares a parameter with another stage, if parameters have hooks, or if the process is distributed. The
profiler counts the first case (`Costs.backward_peak`, and `Costs.gradient` while they wait). In the other two cases a
stage's gradients can come on top of the budget.

A stage that is run again finds what its first run found: random states, autocast, global flags, and which modules train
(`replay`). Norms update their running statistics in the first run only. Where a stage cannot be run again as it
ran first, because a tensor or anything else it reads has changed, the backward pass raises (`guard`). Forward
hooks on modules run in every run of their stage.

A second backward pass is refused, as by autograd, unless the first one had ``retain_graph=True``. The first pass then
keeps every recording that it has used. After it, as many bytes are held as plain backprop holds.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from gradgate.references.chain.in_torch.guard import (
    CheckValues,
    Doubts,
    Held,
    check_version,
    refuse_course,
    versions_of,
)
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings, in_modes, statistics_kept
from gradgate.references.chain.in_torch.stages import Recording, Stage, Value, each, parts, plain, record
from gradgate.references.chain.schedules.schedule import Operation, Schedule
from gradgate.references.contract import NotComposable, UsageError


def execute(stages: Sequence[Stage], schedule: Schedule, x: Any, device: torch.device | None = None) -> Any:
    """x_0 -> x_N with the chain's graph behind it, whose backward pass follows the schedule.

    Args:
        stages: N of them.
        schedule: of N stages, nested or not.
        x: x_0, one tensor or a tuple of any number; it may need a gradient or not.
        device: where the stages compute; None: where x_0 is.

    Returns:
        x_N, one tensor or a tuple, as the last stage gives it; `backward` and `torch.autograd.grad` work on it as
        usual.

    Raises:
        UsageError: another number of stages; a stage that is not tensor to tensor, that overwrites its input, or that
            changes its own buffers while the schedule runs it more than once.
        NotComposable: called under a transformation of torch.func; or the backward pass has ``create_graph=True``.
        RuntimeError: in the backward pass, if a stage cannot be run again as it ran first; in a second backward pass,
            if the first one did not retain the graph.

    Source:
        Beyond the thesis, which gives this up in its §3.2.3 and §3.2.4.

    Stores:
        What `schedules.simulate` says, operation by operation.

    Computes:
        The operations of the schedule.
    """
    if schedule.stages != len(stages):
        raise UsageError(f"the schedule has {schedule.stages} stages, the chain has {len(stages)}")
    refuse_transforms()
    run = Run(stages, schedule, x, device)
    run.advance(schedule.turn)
    links = parts(x)
    for number, stage in enumerate(stages, 1):
        first, others = (links[0], links[1:]) if links else (None, ())
        links = parts(_Node.apply(run, number, first, len(others), *others, *stage.parameters))
    return links if run.gives_tuple else links[0]


def refuse_transforms() -> None:
    """Raise NotComposable within a transformation of torch.func."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotComposable(
            "a checkpointed chain cannot run under torch.func or vmap: its backward pass recomputes by hand; "
            "use plain backprop there, or the JAX form, which composes"
        )


@dataclass(frozen=True)
class FirstRun:
    """What the first run of a stage found and returned, kept for its further runs.

    Attributes:
        random: the states of the generators that it drew from.
        training: of each of its modules, whether it trained.
        held: the tensors that it read.
        output: the check values of its output.
    """

    random: RandomState
    training: tuple[bool, ...]
    held: Held
    output: CheckValues

    @contextlib.contextmanager
    def again(self, stage: Stage) -> Iterator[None]:
        """A scope for a further run; raises RuntimeError if the stage would read other tensors."""
        if stage.rebuilt():
            raise RuntimeError(
                f"{stage.name} cannot be run again: modules within have been exchanged since the forward"
            )
        with in_modes(stage.modules, self.training):
            self.held.check(stage.name, stage.parameters, stage.modules)
            with self.random.again(), statistics_kept(stage.modules):
                yield


class Run:
    """One forward and backward pass of a chain: what it holds, and how far it is in the schedule.

    Attributes:
        performed: the operations done so far.
    """

    def __init__(
        self, stages: Sequence[Stage], schedule: Schedule, x: Value, device: torch.device | None = None
    ) -> None:
        self.stages, self.schedule = stages, schedule
        self.device = device or (parts(x)[0].device if parts(x) else torch.get_default_device())
        self.surroundings = Surroundings.now(self.device)
        uses = Counter(id(p) for stage in stages for p in stage.parameters)
        self.shares = [any(uses[id(p)] > 1 for p in stage.parameters) for stage in stages]
        self.again = [count > 1 for count in schedule.runs()]
        self.needs_input_grad = any(t.requires_grad for t in parts(x))
        self.values: dict[int, Any] = {0: each(torch.Tensor.detach, x)}
        self.versions = {0: versions_of(x)}
        self.recordings: dict[int, tuple[Recording, Held]] = {}
        self.first: dict[int, FirstRun] = {}
        self.doubts = Doubts()
        self.shapes: dict[int, list[tuple[torch.Size, torch.dtype]]] = {}
        self.output: Any = None
        self.gives_tuple = False
        self.placeholder = torch.zeros(2, device=self.device, dtype=torch.float64)
        self.performed: list[Operation] = []

    def advance(self, stop: int) -> None:
        """Perform the operations before number `stop`, none of them a backward one."""
        while len(self.performed) < stop:
            op = self.schedule.operations[len(self.performed)]
            if op.kind == "drop":
                del self.values[op.index]
            else:
                self._forward(op)
            self.performed.append(op)

    def backward(
        self,
        number: int,
        cotangents: Sequence[torch.Tensor | None],
        accumulable: Sequence[torch.Tensor] | None,
        retain: bool,
    ) -> tuple[tuple[torch.Tensor | None, ...], dict[int, torch.Tensor]]:
        """Run up to "backward `number`", from the cotangents of x_l: those of x_{l-1}, and the parameters' by id.

        The gradients of `accumulable` parameters are added to their ``grad`` at once, and not returned; None: all are
        returned. With `retain` the recording is kept for a further backward pass.
        """
        position = self.schedule.backwards[number - 1]
        if position >= len(self.performed):
            self.advance(position)
            self.performed.append(self.schedule.operations[position])
        recording, held = self.recordings[number] if retain else self.recordings.pop(number)
        held.check_storages(self.stages[number - 1].name)
        if accumulable is None:
            return recording.backward(cotangents, retain=retain)
        return recording.accumulate(cotangents, accumulable, retain), {}

    def _forward(self, op: Operation) -> None:
        number, stage, x = op.index, self.stages[op.index - 1], self.values[op.index - 1]
        first, version = self.first.get(number), self.versions[number - 1]
        check_version(f"the input of {stage.name}", x, version)
        with self.surroundings.again():
            if first is not None:
                with first.again(stage):
                    y = self._perform(op, x)
                again = CheckValues.of(y, x)
                refuse = functools.partial(refuse_course, stage.name, first.output, again)
                self.doubts.add(first.output.differs(again), refuse)
            elif self.again[number - 1]:
                y = self._perform_first(op, x)
            else:
                y = self._perform(op, x)
        if versions_of(x) != version:
            raise UsageError(
                f"{stage.name} overwrites its input, which may be needed again; put it into one stage with the layer "
                "before it, as checkpoint.checkpointed does"
            )
        self.values[number], self.versions[number] = y, versions_of(y)
        if number == len(self.stages) and self.output is None:
            self.output, self.gives_tuple = y, isinstance(y, tuple)
        self.shapes.setdefault(number, [(t.shape, t.dtype) for t in parts(y)])

    def _perform(self, op: Operation, x: torch.Tensor) -> torch.Tensor:
        number, stage = op.index, self.stages[op.index - 1]
        if op.kind == "save":
            y, recording = record(stage, x, number > 1 or self.needs_input_grad)
            self.recordings[number] = recording, Held.now(recording.parameters)
        else:
            y = plain(stage, x)
        return y

    def _perform_first(self, op: Operation, x: torch.Tensor) -> torch.Tensor:
        """Perform the first of several runs of a stage, and keep what the further runs need to give the same result."""
        stage = self.stages[op.index - 1]
        training = tuple(m.training for m in stage.modules)
        before = RandomState.now(self.device, stage.modules)
        held = Held.now(stage.parameters, stage.modules)
        y = self._perform(op, x)
        held.refuse_own_changes(stage.name)
        random = before.moved(RandomState.now(self.device, stage.modules))
        self.first[op.index] = FirstRun(random, training, held, CheckValues.of(y, x))
        return y


class _Node(torch.autograd.Function):
    """Stage l in the caller's graph."""

    @staticmethod
    def forward(ctx: Any, run: Run, number: int, link: Any, more: int, *tensors: torch.Tensor) -> Any:
        """`tensors` are `more` further links, and the parameters."""
        ctx.run, ctx.number, ctx.parameters = run, number, tensors[more:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(run.placeholder)  # so that autograd refuses a second pass as it does everywhere
        if number == len(run.stages):
            given, run.output = run.output, None
        else:
            given = tuple(run.placeholder.view(dtype)[0].expand(shape) for shape, dtype in run.shapes[number])
        gives = run.stages[number - 1].gives
        if gives is not None:
            ctx.mark_non_differentiable(*(t for t, needs in zip(given, gives, strict=True) if not needs))
        return given

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if torch.is_grad_enabled():
            raise NotComposable(
                "a checkpointed chain gives first derivatives only: create_graph would need a graph of the "
                "recomputation itself; use the plain sequence for second derivatives"
            )
        _ = ctx.saved_tensors  # raises if they are freed
        retain = torch._C._autograd._get_current_graph_task_keep_graph()
        accumulable = None if ctx.run.shares[ctx.number - 1] else _accumulable(ctx.parameters)
        arrived, gradients = ctx.run.backward(ctx.number, cotangents, accumulable, retain)
        first, others = (arrived[0], arrived[1:]) if arrived else (None, ())
        return (None, None, first, None, *others, *(gradients.get(id(p)) for p in ctx.parameters))


def _accumulable(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Those to whose existing ``grad`` the current pass will add; None if any gradient has to be handed back.

    To be called in the backward pass of a node that has all of them as inputs.
    """
    needing = [p for p in parameters if p.requires_grad]
    if not all(p.is_leaf for p in needing) or all(p.grad is None for p in needing):
        return None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return None
    if not all(p.is_leaf and not p._backward_hooks and not p._post_accumulate_grad_hooks for p in needing):
        return None
    try:
        return [p for p in needing if torch._C._will_engine_execute_node(get_gradient_edge(p).node)]
    except RuntimeError:  # torch.autograd.grad captures its inputs; the accumulator of such a leaf never runs
        return None
