"""The thesis' figures and the comparison that it lacks, as functions that return plain rows.

Every row is a dict of numbers and strings. `figure_4_1` only solves; the others profile, solve and, with ``executed``,
run: "measured" columns are then bytes and FLOPs of real training steps, not of the simulator.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradgate.references.chain import classic
from gradgate.references.chain.costs import Costs
from gradgate.references.chain.schedule import Schedule
from gradgate.references.chain.simulate import simulate
from gradgate.references.chain.solver import BudgetTooSmall, minimum_budget, precise_dp, table_bytes

Row = dict[str, Any]
MB = 2**20
NETWORKS = ("densenet121", "resnet50")


def figure_4_1(lengths: Sequence[int] = (20, 40, 100), most: int = 60) -> list[Row]:
    """Least compute over slots of uniform networks: every forward, backward and tensor costs 1.

    ``compute`` is in operations; ``overhead`` is over the 2N of plain backprop.
    """
    rows = []
    for N in lengths:
        costs = Costs.uniform(N)
        for slots in range(minimum_budget(costs), most + 1):
            compute = simulate(precise_dp(costs, slots, slot=1), costs).compute
            rows.append({"N": N, "slots": slots, "compute": compute, "overhead": compute / (2 * N) - 1})
    return rows


def chain_of(network: str, batch: int, size: int = 224, classes: int = 1000) -> tuple[list[Any], Any]:
    """The layers of a network with the loss at their end, from a fixed random state, and an input for it."""
    import torch

    from gradgate.references.chain import networks

    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [*getattr(networks, network)(classes), networks.Loss(torch.randint(classes, (batch,)))]
        return layers, torch.randn(batch, 3, size, size)


def figure_4_2(costs: Costs, budget: int, slots: Sequence[int] = (25 * MB, 10 * MB, 5 * MB, 2 * MB, MB)) -> list[Row]:
    """Least compute and the solver's seconds over the size of its slots, at one budget.

    Args:
        costs: of DenseNet-121, as `torch_checkpoint.costs_of` measures them.
        budget: bytes.
        slots: bytes per slot.
    """
    rows = []
    for slot in slots:
        start = time.perf_counter()
        row: Row = {"slot": slot, "table_bytes": table_bytes(costs.in_slots(slot), budget // slot)}
        try:
            found = simulate(precise_dp(costs, budget, slot), costs)
            row |= {"compute": found.compute, "peak": found.peak, "reason": ""}
        except BudgetTooSmall as error:
            row |= {"compute": None, "peak": None, "reason": str(error)}
        rows.append(row | {"seconds": time.perf_counter() - start})
    return rows


def figure_4_3(
    budget: int, batches: Sequence[int], network: str = "resnet50", size: int = 224, compute: str = "flops"
) -> list[Row]:
    """Compute and peak of one training step within a budget, over the batch, until it fails.

    ``full`` is the peak of plain backprop, ``least`` the least budget that suffices.
    """
    from gradgate.references.chain.torch_checkpoint import costs_of

    rows = []
    for batch in batches:
        costs = costs_of(*chain_of(network, batch, size), compute=compute)  # type: ignore[arg-type]
        full = simulate(classic.save_all(costs.stages), costs)
        row: Row = {"batch": batch, "full": full.peak, "least": minimum_budget(costs)}
        try:
            found = simulate(precise_dp(costs, budget), costs)
        except BudgetTooSmall:
            rows.append(row | {"compute": None, "peak": None, "overhead": None})
            break
        overhead = found.compute / full.compute - 1
        rows.append(row | {"compute": found.compute, "peak": found.peak, "overhead": overhead})
    return rows


def four_way(
    network: str, batch: int, shares: Sequence[float] = (0.0, 0.1, 0.25, 0.5, 0.75), size: int = 224,
    executed: bool = True, compute: str = "flops",
) -> Iterator[Row]:  # fmt: skip
    """§4.3: schedules solved with measured or uniform compute and memory, judged by the true costs, over budgets.

    Args:
        network: of NETWORKS.
        batch: examples.
        shares: where between the least budget and plain backprop's peak the budgets lie.
        size: height and width of the images.
        executed: run a training step by each schedule too.
        compute: the measured compute, ``flops`` or ``time``.

    Yields:
        ``compute_known`` and ``memory_known`` (measured or uniform), ``budget``, ``peak`` and ``overhead`` as simulated
        with the true costs, ``within`` whether that peak is, and if executed ``measured_peak`` and ``measured_flops``
        (over those of plain backprop). A uniform solver that finds no schedule, and one that cannot know that it
        breaks the budget, are what the comparison is about: ``reason`` says which.
    """
    from gradgate.references.chain.torch_checkpoint import costs_of

    layers, x = chain_of(network, batch, size)
    costs = costs_of(layers, x, compute=compute)  # type: ignore[arg-type]
    full, least = simulate(classic.save_all(costs.stages), costs), minimum_budget(costs)
    for share in shares:
        budget = int(least + share * (full.peak - least))
        for flat_compute in (False, True):
            for flat_memory in (False, True):
                row: Row = {
                    "network": network, "batch": batch, "share": share, "budget": budget,
                    "compute_known": "uniform" if flat_compute else "measured",
                    "memory_known": "uniform" if flat_memory else "measured",
                }  # fmt: skip
                try:
                    schedule = precise_dp(costs.flattened(flat_compute, flat_memory), budget)
                except BudgetTooSmall as error:
                    yield row | {"reason": f"no schedule: {error}"}
                    continue
                found = simulate(schedule, costs)
                row |= {
                    "peak": found.peak, "overhead": found.compute / full.compute - 1, "within": found.peak <= budget,
                    "reason": "" if found.peak <= budget else "breaks the budget, unknowing",
                }  # fmt: skip
                yield row | (_run(layers, x, schedule, costs) if executed else {})


def side_by_side(
    network: str, batch: int, shares: Sequence[float] = (0.0, 0.1, 0.25, 0.5), size: int = 224
) -> list[Row]:
    """Compute at measured peak bytes: this solver beside what else PyTorch offers, in one process.

    Peers: `torch.utils.checkpoint.checkpoint_sequential` with √N segments; PyTorch's activation memory budget under
    torch.compile; REVOLVE and uniform DP by this executor. One that is not there or fails says so in ``reason``.
    """
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    from gradgate.references.chain.torch_checkpoint import CheckpointedSequential, costs_of

    layers, x = chain_of(network, batch, size)
    costs = costs_of(layers, x, compute="flops")
    N, least = costs.stages, minimum_budget(costs)
    full = simulate(classic.save_all(N), costs).peak
    plain = torch.nn.Sequential(*layers)
    rows = [{"method": "plain backprop", **step_of(plain, x)}]

    def add(method: str, make: Callable[[], Any]) -> None:
        try:
            rows.append({"method": method, **step_of(make(), x)})
        except Exception as error:  # a peer's failure is a row, not the end
            rows.append({"method": method, "reason": f"{type(error).__name__}: {str(error).splitlines()[0]}"})

    def scheduled(schedule: Schedule) -> Callable[[], Any]:
        return lambda: CheckpointedSequential(plain, schedule, x)

    root = round(N**0.5)
    add(
        f"checkpoint_sequential, {root} segments",
        lambda: lambda x: checkpoint_sequential(plain, root, x, use_reentrant=False),
    )
    named = {"√N": classic.sqrt_n(N), "recursive": classic.recursive(N), "recompute all": classic.recompute_all(N)}
    named |= {f"REVOLVE, {s} values": classic.revolve(N, s) for s in (3, 6, 12)}
    for name, schedule in named.items():
        add(name, scheduled(schedule))
    for share in shares:
        budget = int(least + share * (full - least))
        schedule = precise_dp(costs, budget)
        add(f"precise DP, {budget / MB:.0f} MB", scheduled(schedule))
    for share in (0.0, 0.5):
        add(f"torch.compile, memory budget {share}", functools.partial(_compiled, plain, share))
    return rows


def step_of(module: Callable[[Any], Any], x: Any) -> Row:
    """One training step: peak bytes beside what was there before it, x among them, FLOPs, and seconds of another."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from gradgate.references.chain.torch_profile import LiveBytes

    def train() -> None:
        loss = module(x)
        loss.backward()

    train()  # gradients exist from here on; compilers have compiled
    start = time.perf_counter()
    train()
    seconds = time.perf_counter() - start
    with LiveBytes() as meter:
        train()
    with torch.random.fork_rng(), FlopCounterMode(display=False) as flops:
        train()
    return {"peak": meter.peak + x.nbytes, "flops": flops.get_total_flops(), "seconds": seconds}


def _compiled(module: Any, share: float) -> Any:
    import torch
    import torch._functorch.config as config

    compiled = torch.compile(module, backend="aot_eager_decomp_partition")

    def run(x: Any) -> Any:
        with config.patch(activation_memory_budget=share):
            return compiled(x)

    return run


def _run(layers: Sequence[Any], x: Any, schedule: Schedule, costs: Costs) -> Row:
    from gradgate.references.chain.torch_checkpoint import CheckpointedSequential

    found = step_of(CheckpointedSequential(layers, schedule, x, costs), x)
    return {f"measured_{key}": value for key, value in found.items()}
