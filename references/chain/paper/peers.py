"""Other ways to save memory in PyTorch and JAX, run next to the solver's schedules: compute at equal measured bytes.

A peer need not be installed: `LookupError` names one that is not.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import LETTER, Operation, Schedule
from gradgate.references.chain.schedules.solver import BudgetTooSmall, precise_dp

Scope: TypeAlias = Callable[[], contextlib.AbstractContextManager[Any]]
"""Makes a scope in which all that PyTorch does is measured; may be entered several times."""


@dataclass(frozen=True)
class Measured:
    """A training step.

    Attributes:
        peak: the most bytes at once, the input included; parameters and what becomes their ``grad`` do not count.
        flops: of products of matrices and convolutions.
    """

    peak: int
    flops: int


@dataclass(frozen=True)
class Network:
    """A network with a loss at its end, an input for it, and what its stages cost in bytes and FLOPs."""

    layers: tuple[Any, ...]
    x: Any
    costs: Costs

    def run(self, schedule: Schedule) -> Measured:
        """A training step by this schedule."""
        from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential

        module = CheckpointedSequential(self.layers, schedule, self.x, self.costs)
        return step_of(module, self.x, list(module.parameters()))


def step_of(
    module: Callable[[Any], Any],
    x: Any,
    parameters: Sequence[Any],
    within: Callable[[Scope], Any] = lambda scope: scope(),
) -> Measured:
    """Measure a training step, after a first step in which compilation happens.

    Args:
        module: x -> loss.
        x: its input.
        parameters: those that get gradients.
        within: how the scope that measures is put around what the module runs; compiled code needs another way.
    """
    from gradgate.hw_profiles.torch_work import flop_counter

    def train(scope: Scope) -> None:
        for p in parameters:
            p.grad = None
        with within(scope):
            module(x).backward()

    flops = 0

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        nonlocal flops
        with flop_counter() as counter:  # which begins anew in every scope
            yield
        flops += counter.get_total_flops()

    train(contextlib.nullcontext)
    meter = _ledger()
    train(lambda: meter)
    peak = meter.peak_without([p.grad for p in parameters if p.grad is not None])
    train(counted)  # a run of its own: the counter's hooks keep values alive
    return Measured(peak + x.nbytes, flops)


def _ledger() -> Any:
    """A `LiveBytes` that can say afterwards what the peak was without some tensors."""
    from gradgate.references.chain.in_torch.profile import LiveBytes

    class Ledger(LiveBytes):
        def __init__(self) -> None:
            super().__init__()
            self.changes: list[tuple[int, int]] = []
            self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

        def _count(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            if storage not in self._seen:
                number = self.numbers[storage] = len(self.changes)
                self.changes.append((number, storage.nbytes()))
                weakref.finalize(storage, self.changes.append, (number, -storage.nbytes()))
            super()._count(tensor)

        def peak_without(self, tensors: Sequence[Any]) -> int:
            """Bytes, as if these had taken none."""
            left_out = {self.numbers.get(tensor.untyped_storage()) for tensor in tensors}
            counted = [change for number, change in self.changes if number not in left_out]
            return max(itertools.accumulate(counted), default=0)

    return Ledger()


def torch_peer(name: str, network: Network) -> Measured:
    """A peer of PyTorch on a network.

    Args:
        name: ``checkpoint_sequential, √N segments``; ``torch.compile, memory budget 0.5`` or another share; or
            ``checkpoint-schedules, Revolve, 5`` or another number of values.
        network: what it runs on.

    Raises:
        LookupError: it is not installed.
    """
    import torch

    plain = torch.nn.Sequential(*network.layers)
    parameters = list(plain.parameters())
    kind, last = name.split(",")[0], name.split()[-1]
    if kind == "plain backprop":
        return step_of(plain, network.x, parameters)
    if kind == "checkpoint_sequential":
        from torch.utils.checkpoint import checkpoint_sequential

        count = round(len(plain) ** 0.5)
        return step_of(lambda x: checkpoint_sequential(plain, count, x, use_reentrant=False), network.x, parameters)
    if kind == "torch.compile":
        run, within = _compiled(plain, float(last), network.x)
        return step_of(run, network.x, parameters, within)
    if kind == "checkpoint-schedules":
        return network.run(checkpoint_schedules_revolve(network.costs.stages, int(last)))
    if kind == "rockmate":
        return step_of(rockmate(plain, network.x), network.x, parameters)
    raise LookupError(f"no peer is called {name!r}")


def at_equal_peak(peer: Measured, network: Network) -> Measured:
    """Run the solver's schedule of least FLOPs within the peer's measured peak.

    Raises:
        LookupError: no schedule fits; states the least peak that does.
    """
    try:
        return network.run(precise_dp(network.costs, peer.peak))
    except BudgetTooSmall as error:
        raise LookupError(f"this peer is below any schedule of whole stages: {error}") from None


def _compiled(module: Any, share: float, x: Any) -> tuple[Callable[[Any], Any], Callable[[Scope], Any]]:
    """The module compiled under PyTorch's activation memory budget, and how a scope is put around what runs.

    Dynamo compiles nothing while a dispatch mode is on, so the scope is entered by the compiled graphs themselves. They
    run operator by operator: the budget decides the partition, and no code is generated.
    """
    import torch
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config

    scopes: list[Scope] = [contextlib.nullcontext]

    def interpreted(graph: Any, example: Any) -> Any:
        def run(arguments: list[Any]) -> Any:
            with scopes[-1]():
                return torch.fx.Interpreter(graph).boxed_run(arguments)  # frees each value after its last use

        run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd's mark: the list may be emptied
        return run

    @contextlib.contextmanager
    def within(scope: Scope) -> Iterator[None]:
        scopes.append(scope)
        try:
            yield
        finally:
            scopes.pop()

    backend = aot_autograd(
        fw_compiler=interpreted,
        bw_compiler=interpreted,
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        keep_inference_input_mutations=True,  # running statistics are updated before backward saves what it needs
    )
    torch._dynamo.reset()
    with config.patch(activation_memory_budget=share):
        compiled = torch.compile(module, backend=backend, fullgraph=True)
        compiled(x).backward()
    return compiled, within


def checkpoint_schedules_revolve(stages: int, values: int) -> Schedule:
    """The REVOLVE schedule of the package checkpoint-schedules, with so many values stored at once.

    Raises:
        LookupError: it is not installed.
    """
    try:
        import checkpoint_schedules as package
    except ImportError:
        raise LookupError("checkpoint-schedules is not installed") from None
    operations: list[Operation] = []
    stored, held = set[int](), {0}

    def run(letter: str, index: int) -> None:
        operations.append(Operation(LETTER[letter], index))
        if letter in "FS":
            held.add(index)
            if index - 1 not in stored:
                run("D", index - 1)
        elif letter == "D":
            held.remove(index)

    for action in package.Revolve(stages, min(values, stages)):
        if isinstance(action, package.Forward):
            if action.write_ics:
                stored.add(action.n0)
            for stage in range(action.n0 + 1, action.n1 + 1):
                run("S" if action.write_adj_deps else "F", stage)
            if action.write_adj_deps:
                run("D", action.n1)
        elif isinstance(action, package.Move):
            stored.discard(action.n)
        elif isinstance(action, package.Reverse):
            for stage in range(action.n1, action.n0, -1):
                run("B", stage)
        elif isinstance(action, package.EndReverse):
            break
    return Schedule(stages, tuple(operations))


def revolve_forwards(package: str, stages: int, values: int) -> int:
    """Unrecorded and recorded forwards of REVOLVE as another package counts them.

    Raises:
        LookupError: it is not installed.
    """
    if package == "checkpoint-schedules":
        return sum(checkpoint_schedules_revolve(stages, values).runs())
    try:
        from pyrevolve.crevolve import numforw
    except ImportError:
        raise LookupError("pyrevolve is not installed") from None
    return int(numforw(stages, values)) + stages


def rockmate(module: Any, x: Any) -> Callable[[Any], Any]:
    """The module under rockmate's schedule.

    Raises:
        LookupError: it cannot be imported. rockmate 2.0.0 needs parts of rkgb that its package lacks; 1.0.1 needs a
            commercial solver.
    """
    try:
        import rockmate as package
    except ImportError as error:
        raise LookupError(f"rockmate cannot be imported: {error}") from None
    found: Callable[[Any], Any] = package.Rockmate(module, x, x.nbytes * 100)
    return found


def jax_peer(name: str, spec: Any, profile: str) -> Measured:
    """Bytes and FLOPs of a derivative by JAX, compiled for a profile.

    Args:
        name: ``jax.checkpoint, each layer``, ``jax.checkpoint, √N segments``, or ``jax.checkpoint, dots saveable`` (the
            whole chain, its products of matrices kept).
        spec: of a `ChainProblem`.
        profile: the one whose compiler gives the bytes.

    Raises:
        LookupError: the compiler is not there, or gives no bytes; says why.
    """
    import jax

    def gradient(problem: Any) -> Any:
        layers = problem.layers
        if name == "jax.checkpoint, each layer":
            layers = [jax.checkpoint(layer) for layer in layers]
        size = round(len(layers) ** 0.5) if name == "jax.checkpoint, √N segments" else len(layers)

        def segment(x: Any, params: Any, start: int) -> Any:
            for layer, p in zip(layers[start : start + size], params, strict=True):
                x = layer(p, x)
            return x

        if name == "jax.checkpoint, √N segments":
            segment = jax.checkpoint(segment, static_argnums=2)
        elif name == "jax.checkpoint, dots saveable":
            segment = jax.checkpoint(segment, static_argnums=2, policy=jax.checkpoint_policies.dots_saveable)

        def loss(params: Any) -> Any:
            x = problem.x
            for start in range(0, len(layers), size):
                x = segment(x, params["layers"][start : start + size], start)
            return problem.head(x)

        return jax.value_and_grad(loss)(problem.params)

    return jax_step(gradient, spec, profile)


def jax_at_equal_peak(peer: Measured, spec: Any, profile: str, shares: int = 12) -> Measured:
    """The solver's program of least FLOPs whose compiled bytes are within the peer's, of several planned budgets.

    Raises:
        LookupError: no program is within them; states the fewest bytes.
    """
    from gradgate.references.chain.in_jax import methods as jax_impl
    from gradgate.references.chain.schedules.simulate import simulate
    from gradgate.references.chain.schedules.solver import minimum_budget

    costs = jax_impl.costs_of(spec)
    least, most = minimum_budget(costs), simulate(classic.save_all(costs.stages), costs).peak
    tried: dict[Schedule, Measured] = {}
    for n in range(shares, -1, -1):
        schedule = precise_dp(costs, least + (most - least) * n // shares)
        if schedule in tried:
            continue
        found = tried[schedule] = jax_step(functools.partial(jax_impl.by_schedule, schedule=schedule), spec, profile)
        if found.peak <= peer.peak:
            return found
    raise LookupError(f"this peer takes {peer.peak} bytes, the solver's programs {min(m.peak for m in tried.values())}")


def jax_step(gradient: Callable[[Any], Any], spec: Any, profile: str) -> Measured:
    """Temporary bytes of the compiled program, and FLOPs of its text."""
    from gradgate.hw_profiles import work
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes

    problem: Any = shapes(spec)
    found = measure(gradient, (problem,), profile)
    if found.temp_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return Measured(found.temp_bytes, work.of(gradient, (problem,)).flops)
