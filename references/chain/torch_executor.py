"""Runs a schedule in PyTorch, so that `loss.backward()` just works: what the thesis gave up in its §3.2.3 and §3.2.4.

The thesis' executor drove the backward pass by hand, and its stack frames kept every cotangent alive. Here autograd
drives. The chain appears in the caller's graph as one small node per stage, linked through placeholders of no size; the
node of stage l performs the operations of the schedule up to "backward l", and hands the cotangent back to the engine,
which frees it once the next node has used it. So

* cotangents live as long as the simulator says, no longer;
* gradients of parameters reach their accumulators stage by stage, in the order of plain backprop, hence with the
  same bits, also where stages share parameters;
* `torch.autograd.grad`, hooks, and a larger model around the chain work as usual.

A node hands the gradients of its parameters back together. Where they become ``grad``, or results of
`torch.autograd.grad`, they stay in any case. Where there is a ``grad`` to add to, plain backprop holds one at a time;
so does the node then, by a backward pass of its own that ends in the parameters' accumulators (`_accumulable`). A
parameter that is used outside the chain too then gets the same terms added one after another, in place of their sum, as
with PyTorch's reentrant checkpoint. A stage with a parameter of another stage's, with hooks on parameters, or in a
distributed process still hands back together; the profiler knows of the first (`Costs.backward_peak`), the other two
can cost a stage's gradients beyond the budget.

A stage that is run again finds the random state, the autocast state and the mode of its first run; norms update their
running statistics in the first run only.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from gradgate.references.chain.schedule import Operation, Schedule
from gradgate.references.chain.torch_stages import (
    RandomState,
    Recording,
    Stage,
    Surroundings,
    other_buffers,
    plain,
    random_state,
    record,
    refuse_changed_buffers,
    set_random_state,
    statistics_kept,
)
from gradgate.references.contract import NotComposable, UsageError


def execute(stages: Sequence[Stage], schedule: Schedule, x: torch.Tensor) -> torch.Tensor:
    """x_0 -> x_N with the chain's graph behind it; its backward follows the schedule.

    Args:
        stages: N of them.
        schedule: of N stages, nested or not.
        x: x_0; it may need a gradient or not.

    Raises:
        UsageError: another number of stages; a stage that is not tensor to tensor, that overwrites its input, or that
            changes buffers of its own while the schedule runs it more than once.
        NotComposable: under a transformation of torch.func; and from the backward pass, if asked for a graph of it.
        RuntimeError: from a second backward pass.

    Cost: that of `simulate`, operation by operation.
    """
    if schedule.stages != len(stages):
        raise UsageError(f"the schedule has {schedule.stages} stages, the chain has {len(stages)}")
    refuse_transforms()
    run = Run(stages, schedule, x)
    run.advance(schedule.turn)
    link = x
    for number, stage in enumerate(stages, 1):
        link = _Node.apply(run, number, link, *stage.parameters)
    return link


def refuse_transforms() -> None:
    """Raise NotComposable within a transformation of torch.func."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotComposable(
            "a checkpointed chain cannot run under torch.func or vmap: its backward pass recomputes by hand; "
            "use plain backprop there, or the JAX form, which composes"
        )


class Run:
    """One forward and backward pass of a chain: what it holds, and how far it is in the schedule.

    Attributes:
        performed: the operations done so far.
    """

    def __init__(self, stages: Sequence[Stage], schedule: Schedule, x: torch.Tensor) -> None:
        self.stages, self.schedule = stages, schedule
        self.device, self.surroundings = x.device, Surroundings.now(x.device)
        uses = Counter(id(p) for stage in stages for p in stage.parameters)
        self.shares = [any(uses[id(p)] > 1 for p in stage.parameters) for stage in stages]
        self.again = [count > 1 for count in schedule.runs()]
        self.needs_input_grad = x.requires_grad
        self.values = {0: x.detach()}
        self.recordings: dict[int, Recording] = {}
        self.random: dict[int, RandomState | None] = {}
        self.shapes: dict[int, tuple[torch.Size, torch.dtype]] = {}
        self.output: torch.Tensor | None = None
        self.placeholder = torch.zeros(2, device=x.device, dtype=torch.float64)
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
        self, number: int, cotangent: torch.Tensor, accumulable: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor | None, dict[int, torch.Tensor]]:
        """Up to "backward `number`", which takes this cotangent: that of x_{l-1}, and the parameters' by id.

        The gradients of those that are `accumulable` are added at once, and not given; None: all are given.
        """
        position = self.schedule.backwards[number - 1]
        if position < len(self.performed):
            raise RuntimeError(
                "this chain was run backward already, and what it held is freed; for a second backward pass call the "
                "module again (retain_graph keeps nothing of a checkpointed chain)"
            )
        self.advance(position)
        recording = self.recordings.pop(number)
        if accumulable is None:
            found = recording.backward(cotangent)
        else:
            found = recording.accumulate(cotangent, accumulable), {}
        self.performed.append(self.schedule.operations[position])
        return found

    def _forward(self, op: Operation) -> None:
        number, stage, x = op.index, self.stages[op.index - 1], self.values[op.index - 1]
        version = x._version
        with self._scope(number, stage):
            if op.kind == "save":
                y, self.recordings[number] = record(stage, x, number > 1 or self.needs_input_grad)
            else:
                y = plain(stage, x)
        if x._version != version:
            raise UsageError(
                f"{stage.name} overwrites its input, which may be needed again; put it into one stage with the layer "
                "before it, as torch_checkpoint.checkpointed does"
            )
        self.values[number] = y
        if number == len(self.stages) and self.output is None:
            self.output = y
        self.shapes.setdefault(number, (y.shape, y.dtype))

    @contextlib.contextmanager
    def _scope(self, number: int, stage: Stage) -> Iterator[None]:
        """What the first run of a stage found, for every further one."""
        with self.surroundings.again():
            if number in self.random:
                state, now = self.random[number], None
                if state is not None:
                    now = random_state(self.device)
                    set_random_state(self.device, state)
                try:
                    with statistics_kept(stage):
                        yield
                finally:
                    if now is not None:
                        set_random_state(self.device, now)
            elif not self.again[number - 1]:
                yield
                self.random[number] = None
            else:
                before, buffers = random_state(self.device), other_buffers(stage)
                yield
                refuse_changed_buffers(stage, buffers)
                after = random_state(self.device)
                moved = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
                self.random[number] = before if moved else None


class _Node(torch.autograd.Function):
    """Stage l in the caller's graph."""

    @staticmethod
    def forward(ctx: Any, run: Run, number: int, link: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.run, ctx.number, ctx.parameters = run, number, parameters
        if number == len(run.stages):
            y, run.output = run.output, None
            assert y is not None
            return y
        shape, dtype = run.shapes[number]
        return run.placeholder.view(dtype)[0].expand(shape)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if torch.is_grad_enabled():
            raise NotComposable(
                "a checkpointed chain gives first derivatives only: create_graph would need a graph of the "
                "recomputation itself; use the plain sequence for second derivatives"
            )
        accumulable = None if ctx.run.shares[ctx.number - 1] else _accumulable(ctx.parameters)
        into, gradients = ctx.run.backward(ctx.number, cotangents[0], accumulable)
        return (None, None, into, *(gradients.get(id(p)) for p in ctx.parameters))


def _accumulable(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Those that the pass under way will add to an existing ``grad``; None if any gradient has to be handed back.

    Asked in the backward pass of a node that has all of them as inputs.
    """
    needing = [p for p in parameters if p.requires_grad]
    if all(p.grad is None for p in needing):
        return None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return None
    if not all(p.is_leaf and not p._backward_hooks and not p._post_accumulate_grad_hooks for p in needing):
        return None
    try:
        return [p for p in needing if torch._C._will_engine_execute_node(get_gradient_edge(p).node)]
    except RuntimeError:  # a leaf that torch.autograd.grad asks for is captured, and its accumulator never runs
        return None
