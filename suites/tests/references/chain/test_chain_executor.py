"""The PyTorch executor performs the schedule's operations, holds its bytes, and gives the bits of plain backprop."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.schedule import Operation, Schedule
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp
from gradgate.references.contract import UsageError

torch = pytest.importorskip("torch")

from gradgate.references.chain.in_torch import executor as torch_executor  # noqa: E402
from gradgate.references.chain.in_torch.checkpoint import (  # noqa: E402
    CheckpointedSequential,
    checkpointed,
    costs_of,
)
from gradgate.references.chain.in_torch.profile import LiveBytes  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("needs_input_grad", [False, True])
@pytest.mark.parametrize("net", ["dense", "image"])
def test_gradients_statistics_and_random_state_are_those_of_plain_backprop_to_the_bit(
    nets: Any, net: str, needs_input_grad: bool
) -> None:
    make, shape = nets.NETS[net]
    module, x = make(), torch.randn(shape).requires_grad_(needs_input_grad)
    costs = costs_of(module, x, compute="flops")
    wanted, N = nets.step(copy.deepcopy(module), x), costs.stages
    schedules = [precise_dp(costs, budget) for budget in nets.budgets(costs)]
    schedules += [classic.sqrt_n(N), classic.recursive(N), classic.recompute_all(N), classic.revolve(N, 2)]
    for schedule in schedules:
        nets.assert_same(nets.step(CheckpointedSequential(copy.deepcopy(module), schedule, x), x), wanted)


@pytest.mark.parametrize("net", ["dense", "image"])
def test_the_measured_peak_is_within_the_budget_and_close_to_the_simulated_one(nets: Any, net: str) -> None:
    make, shape = nets.NETS[net]
    module, x = nn.Sequential(*make(), nets.Loss()), torch.randn(shape, requires_grad=True)
    costs = costs_of(module, x, compute="flops")
    for budget in nets.budgets(costs):
        wrapped = CheckpointedSequential(module, precise_dp(costs, budget), x, costs)
        measured = nets.step(wrapped, x, loss=lambda y: y)["peak"] + costs.output[0]
        simulated = wrapped.simulation.peak
        assert measured <= simulated <= budget
        unseen = costs.fixed // nets.RANDOM_STATE * nets.RANDOM_STATE
        assert measured + unseen >= 0.95 * simulated


def test_bytes_follow_the_simulator_step_by_step(nets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nn.Sequential(*nets.dense(), nets.Loss()), torch.randn(8, 16, requires_grad=True)
    costs = costs_of(module, x, compute="flops")
    schedule = classic.revolve(costs.stages, 3)
    meter, seen = LiveBytes(), []
    original = torch_executor.Run._forward

    def spy(run: Any, op: Operation) -> None:
        original(run, op)
        seen.append((len(run.performed), meter.live))

    monkeypatch.setattr(torch_executor.Run, "_forward", spy)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    with meter:
        CheckpointedSequential(module, schedule, x)(x).backward()
    held = [s.held for s in simulate(schedule, costs).steps]
    scalars = 2 * costs.output[-1]  # the loss and its cotangent 1: the simulator counts them early
    assert len(seen) > 2 * len(module)
    assert all(0 <= held[number] - live - costs.output[0] <= scalars for number, live in seen)


def test_the_operations_performed_are_those_of_the_schedule(nets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nets.dense(), torch.randn(4, 16)
    runs: list[Any] = []
    original = torch_executor.Run.__init__

    def spy(run: Any, *args: Any) -> None:
        original(run, *args)
        runs.append(run)

    monkeypatch.setattr(torch_executor.Run, "__init__", spy)
    calls = [0] * len(module)
    for n, layer in enumerate(module):
        layer.register_forward_hook(lambda *_, n=n: calls.__setitem__(n, calls[n] + 1))
    schedule = classic.revolve(len(module), 3)
    wrapped = CheckpointedSequential(module, schedule, x)
    calls[:] = [0] * len(module)
    nets.Loss()(wrapped(x)).backward()
    assert tuple(runs[0].performed) == schedule.operations
    assert calls == schedule.runs()


def test_a_schedule_that_no_plan_describes_runs_too(nets: Any) -> None:
    module, x = nets.dense(3)[:3], torch.randn(4, 16, requires_grad=True)
    text = "F1 S2 F1 F2 S3 S1 D2 D1 D3 B3 B2 D0 B1"  # records 2, makes x_2 twice, records 1 before running 3 backward
    schedule = Schedule.from_json(f'{{"stages": 3, "operations": "{text}"}}')
    with pytest.raises(UsageError, match="not nested"):
        schedule.plan()
    nets.assert_same(nets.step(CheckpointedSequential(module, schedule, x), x), nets.step(module, x))


class Wide(nn.Module):
    """A stage with so many parameters that their gradients take more bytes than its values."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(count)])

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_a_stages_parameter_gradients_are_never_alive_together(nets: Any) -> None:
    one = 4 * 64 * 64
    module = nn.Sequential(nn.Linear(64, 64), Wide(64, 5), nn.Tanh(), Wide(64, 5), nets.Loss())
    x = torch.randn(2, 64)
    costs = costs_of(module, x, compute="flops")
    least = minimum_budget(costs)
    wrapped = CheckpointedSequential(module, precise_dp(costs, least), x, costs)
    assert one < nets.step(wrapped, x, loss=lambda y: y)["peak"] + costs.output[0] <= least < 2 * one
    module[3].inner[0].weight = module[1].inner[0].weight  # a shared parameter: now all gradients are held together
    assert minimum_budget(costs_of(module, x, compute="flops")) > 4 * one


def test_training_goes_as_without_checkpointing(nets: Any) -> None:
    x = torch.randn(4, 3, 16, 16)

    def train(module: Any) -> list[float]:
        torch.manual_seed(1)
        optimizer, losses = torch.optim.Adam(module.parameters(), 1e-2), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nets.Loss()(module(x))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    module = nets.image()
    plain = train(copy.deepcopy(module))
    least = minimum_budget(costs_of(module, x, compute="flops"))
    assert train(checkpointed(module, x, least, compute="flops")) == plain
