"""Optimal checkpointing of an unchanged model: `checkpointed`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch import fingerprint
from gradgate.references.chain.in_torch.executor import refuse_transforms
from gradgate.references.chain.in_torch.graph import Otherwise, Surrounding
from gradgate.references.chain.in_torch.plan import Plan, make
from gradgate.references.chain.schedules.budget import Budget, best_within, check_budget, in_bytes
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.contract import UsageError, check_integer

Counts = Literal["activations", "step"]
Compute = Literal["time", "flops"]
_SHARED = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
PLANS = 32
"""The most plans that are kept; beyond them the oldest is dropped."""


def checkpointed(
    model: nn.Module,
    example_inputs: Any = None,
    *,
    budget: Budget,
    counts: Counts = "activations",
    optimizer_state: int = 0,
    compute: Compute = "time",
) -> CheckpointedModel:
    """A model that trains within a budget of bytes, at the least recomputation, with the bits of plain training.

    The model's forward pass is recorded, cut into stages where few tensors cross, and each stage is profiled. The
    optimal persistent schedule for these costs says what is kept and what is run again. A plan is valid for one kind of
    call: its shapes, dtypes, modes, autocast and attributes of modules. Another kind of call, such as the smaller last
    batch of an epoch, gets its own plan when it first occurs.

    Args:
        model: any `nn.Module`, in training mode or not, on one device. It is shared, not copied.
        example_inputs: what it will be called with: a tensor, a tuple of arguments, or a dict of keyword arguments;
            None: the first plan is made by the first call.
        budget: bytes, an integer; or a share, a float above 0 and at most 1, of what plain training is profiled to
            need; or ``least``, the least with which any schedule works. A share is at least as many bytes as it was for
            an earlier kind of call, so that a smaller last batch fits. The budget covers what is alive between the
            call of the model and the end of its backward pass: values that are kept, recordings, values in passing, and
            cotangents. It does not cover what was in memory before, such as parameters and inputs, nor gradients that
            parameters or inputs keep, nor what a loss outside of the model takes, nor the output after its own
            stage has run backward.
        counts: ``activations``; or ``step``: the budget also holds parameters, buffers, a gradient for each parameter,
            and `optimizer_state`.
        optimizer_state: bytes, such as twice the parameters' for Adam; with ``step`` only.
        compute: what recomputation costs: ``time``, measured; or ``flops``, counted, the same in every run.

    Returns:
        A module with the model's parameters, names, `state_dict` and attributes. Its outputs, gradients, buffers and
        the state of random generators are those of the model, to the bit. `plans` shows what was planned.

    Raises:
        UsageError: the forward pass cannot be recorded, or has no place to be cut; it names the place and the remedy.
        BudgetTooSmall: states the least bytes that suffice.
        NotComposable: under torch.func, and if second derivatives are requested.

    Source:
        §3.1, Alg. 3.4, corrected (`schedules.solver`); §3.2, Listings 3.2–3.4, for models that are not sequences.

    Stores:
        At most `budget` bytes, as profiled. Values that several stages read and that need no gradient, such as masks,
        are kept throughout.

    Computes:
        Once per kind of call: the model runs once, every stage a few times, and the solver makes a schedule. Per step:
        the forwards of that schedule, and one VJP per stage.

    Not for:
        A step that fits in memory anyway. A forward pass that branches by what it computes. Use with torch.compile: the
        compiled model runs this one eagerly.
    """
    return CheckpointedModel(model, example_inputs, budget, counts, optimizer_state, compute)


class CheckpointedModel(nn.Module):
    """What `checkpointed` returns; its arguments are documented there.

    Where no gradient is needed it runs the model plainly. Copies and pickles contain no plans.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any = None,
        budget: Budget = 1.0,
        counts: Counts = "activations",
        optimizer_state: int = 0,
        compute: Compute = "time",
    ) -> None:
        super().__init__()
        _check(model, budget, counts, compute)
        self.__dict__.update({name: vars(model)[name] for name in _SHARED if name in vars(model)})
        self._held = (model,)
        self.training = model.training
        self.budget, self.counts, self.compute = budget, counts, compute
        self.optimizer_state = check_integer("optimizer_state", optimizer_state, 0)
        self._plans: dict[Any, list[Plan]] = {}
        self._allowed = 0  # the most bytes that a share was so far
        if example_inputs is not None:
            self.plan(example_inputs)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans that have been made and are kept, the newest last."""
        return tuple(plan for plans in self._plans.values() for plan in plans)

    def plan(self, example_inputs: Any) -> Plan:
        """The plan for such inputs, made now if there is none; arguments and errors are those of `checkpointed`."""
        with torch.enable_grad():  # a plan is for steps with a gradient, wherever it is made
            return self._find(*_arguments(example_inputs), make_only=True)[0]

    def __getattr__(self, name: str) -> Any:
        """An attribute of the model, such as its configuration."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_held" not in self.__dict__ or name.startswith("__"):
                raise
            return getattr(self._held[0], name)

    def __getstate__(self) -> dict[str, Any]:
        """Without plans: they are made anew."""
        return {**self.__dict__, "_plans": {}, "_allowed": 0}

    def __deepcopy__(self, memo: dict[int, Any]) -> CheckpointedModel:
        """A copy of the model, checkpointed in the same way."""
        model = copy.deepcopy(self._held[0], memo)
        model.training = self.training
        copied = CheckpointedModel(model, None, self.budget, self.counts, self.optimizer_state, self.compute)
        memo[id(self)] = copied
        return copied

    @torch._disable_dynamo
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output; raises as `checkpointed` where a plan has to be made."""
        model = self._held[0]
        model.training = self.training
        if not torch.is_grad_enabled():
            return model.forward(*args, **kwargs)
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        around = Surrounding.of(model)
        if not any(t.requires_grad for t in (*around.parameters(), *given)):
            return model.forward(*args, **kwargs)
        refuse_transforms()
        plan, around, env = self._find(args, kwargs, around=around)
        return plan.run(around, env)

    def _find(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        make_only: bool = False,
        around: Surrounding | None = None,
    ) -> tuple[Plan, Any, Any]:
        """The plan for a call, and what comes before its chain; with `make_only`, the plan alone."""
        model = self._held[0]
        around = around or Surrounding.of(model)
        device = _device(around, args, kwargs)
        about = fingerprint.of_model(around.modules, device)
        key = (fingerprint.of_arguments(args, kwargs), about)
        for plan in self._plans.get(key, ()):
            if make_only:
                return plan, None, None
            try:
                return (plan, *plan.begin(around, args, kwargs))
            except Otherwise:
                continue
        plan = make(model, args, kwargs, device, self.compute, self._solve)
        around = Surrounding.of(model)
        now = fingerprint.of_model(around.modules, device)
        if now != about:
            raise UsageError(
                f"the model's forward changes {fingerprint.difference(about, now)}: the plan of one step would not "
                "hold for the next. Keep such a count outside of the forward, or in a buffer that nothing in it reads"
            )
        self._plans.setdefault(key, []).append(plan)
        while len(self.plans) > PLANS:
            oldest = next(iter(self._plans))
            del self._plans[oldest]
        return (plan, None, None) if make_only else (plan, *plan.begin(around, args, kwargs))

    def _solve(self, costs: Sequence[Costs]) -> tuple[int, Schedule]:
        """The index of the costs with the best schedule for the budget, and that schedule."""
        beside = self._beside() if self.counts == "step" else 0
        budget = in_bytes(costs, self.budget, beside, self._allowed)
        found = best_within(costs, budget, beside)
        if isinstance(self.budget, float):
            self._allowed = int(budget)
        return found

    def _beside(self) -> int:
        """Bytes of parameters, their gradients, buffers and the optimiser's state."""
        model = self._held[0]
        parameters = sum(p.nbytes * (1 + p.requires_grad) for p in model.parameters())
        return int(parameters + sum(b.nbytes for b in model.buffers()) + self.optimizer_state)


def _check(model: Any, budget: Any, counts: Any, compute: Any) -> None:
    if not isinstance(model, nn.Module):
        more = ": put the layers into torch.nn.Sequential(*layers)" if isinstance(model, (list, tuple)) else ""
        raise UsageError(f"the model must be an nn.Module, not {type(model).__name__}{more}")
    if isinstance(model, CheckpointedModel):
        raise UsageError("the model is checkpointed already")
    if type(model).__name__ in ("OptimizedModule", "ScriptModule", "RecursiveScriptModule", "DistributedDataParallel"):
        raise UsageError(
            f"give the model itself, not {type(model).__name__}: compile or distribute what `checkpointed` returns"
        )
    check_budget(budget)
    if counts not in ("activations", "step"):
        raise UsageError(f"counts must be 'activations' or 'step', not {counts!r}")
    if compute not in ("time", "flops"):
        raise UsageError(f"compute must be 'time' or 'flops', not {compute!r}")


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def _device(around: Surrounding, args: Any, kwargs: Any) -> torch.device:
    """The one device of parameters and arguments."""
    tensors = [*around.parameters(), *(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))]
    found = {t.device for t in tensors}
    if len(found) > 1:
        raise UsageError(
            f"the model and its inputs are on several devices, {', '.join(sorted(map(str, found)))}; legal is one"
        )
    return found.pop() if found else torch.get_default_device()
