"""Modules that train by a schedule: which layers form a stage, what is measured, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.solver import BudgetTooSmall
from gradgate.references.contract import IllegalOption, UsageError

torch = pytest.importorskip("torch")

from gradgate.references.chain.in_torch.checkpoint import (  # noqa: E402
    CheckpointedSequential,
    checkpointed,
    costs_of,
    stages_of,
)

nn = torch.nn


def test_leading_layers_without_gradients_run_once_and_are_no_stages(nets: Any) -> None:
    module, x = nets.dense(4), torch.randn(4, 16)
    for p in [*module[0].parameters(), *module[2].parameters()]:
        p.requires_grad_(False)
    calls: list[int] = []
    module[0].register_forward_hook(lambda *_: calls.append(1))
    N = len(stages_of(module, x))
    assert len(module) - 4 == N
    wrapped = CheckpointedSequential(copy.deepcopy(module), classic.recompute_all(N), x)
    calls.clear()

    def trained(m: Any) -> list[Any]:
        m.zero_grad()
        nets.Loss()(m(x)).backward()
        return [p.grad for p in m.parameters() if p.requires_grad]

    assert all(torch.equal(a, b) for a, b in zip(trained(wrapped), trained(module), strict=True))
    assert len(calls) == 2  # one per model


def test_layers_in_place_and_views_join_the_stage_before_them(nets: Any) -> None:
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    assert [s.name for s in stages_of(module, x)] == [
        "stage 1 (Linear, ReLU, Flatten)",  # the first ReLU is a leading layer: it needs no gradient
        "stage 2 (Linear)",
    ]
    assert stages_of(module, x.clone().requires_grad_())[0].name == "stage 1 (ReLU)"
    before = x.clone()
    wrapped = CheckpointedSequential(module, classic.recompute_all(2), x)
    nets.assert_same(nets.step(wrapped, x), nets.step(copy.deepcopy(module), x.clone()))
    assert torch.equal(x, before)


def test_profiling_leaves_no_trace(nets: Any) -> None:
    module, x = nets.image(), torch.randn(4, 3, 16, 16)
    before = [t.clone() for t in module.state_dict().values()]
    state = torch.get_rng_state()
    costs_of(module, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before, module.state_dict().values(), strict=True))
    assert all(p.grad is None for p in module.parameters())


def test_the_profiler_knows_what_a_layer_saves() -> None:
    x = torch.randn(2, 64, requires_grad=True)
    cases = {  # 2 × 64 numbers of 4 bytes are recorded: keeps input, keeps output, further bytes
        nn.Linear(64, 64): (True, False, 0),
        nn.ReLU(): (False, True, 0),
        nn.Tanh(): (False, True, 0),
        nn.GELU(): (True, False, 0),
        nn.Dropout(0.5): (False, False, 128),
    }
    layers = list(cases)
    costs = costs_of([nn.Linear(64, 64), *layers], x, compute="flops")
    found = list(zip(costs.saves_input, costs.saves_output, costs.saved, strict=True))[1:]
    assert found[:4] == list(cases.values())[:4]
    assert found[4][:2] == (False, False)
    assert 0 < found[4][2] <= 512 + 128  # a mask of floats or of booleans
    assert costs.output == (512,) * 7


def test_flops_time_uniform_and_given_costs(nets: Any) -> None:
    module, x = nets.dense(2), torch.randn(8, 16)
    flops = costs_of(module, x, compute="flops")
    assert flops.forward == (8 * 32 * (2 * 16 - 1), 0, 8 * 48 * (2 * 32 - 1), 0)
    assert all(second > 0 for second in costs_of(module, x, compute="time").forward)
    uniform = costs_of(module, x, compute="uniform", memory="uniform")
    assert len(set(uniform.forward)) == len(set(uniform.output)) == 1
    given = costs_of(module, x, compute=[(1, 2)] * 4, memory=flops)
    assert (given.forward, given.output) == ((1,) * 4, flops.output)
    with pytest.raises(UsageError, match="4 pairs"):
        costs_of(module, x, compute=[(1, 2)])
    with pytest.raises(UsageError, match="time, flops, uniform"):
        costs_of(module, x, compute="fast")  # type: ignore[arg-type]


def test_a_budget_too_small_says_the_least_that_suffices(nets: Any) -> None:
    module, x = nets.dense(), torch.randn(8, 16)
    with pytest.raises(BudgetTooSmall) as error:
        checkpointed(module, x, 100, compute="flops")
    wrapped = checkpointed(module, x, error.value.minimum, compute="flops")
    assert wrapped.simulation.peak <= error.value.minimum
    assert str(error.value.minimum) in str(error.value)


class Pair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, x


def test_what_is_no_sequence_is_refused_in_words() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(UsageError, match="Linear is not a sequence"):
        checkpointed(nn.Linear(4, 4), x, 1000)
    with pytest.raises(UsageError, match="layer 1, Pair, gives tuple, not one tensor"):
        checkpointed([nn.Linear(4, 4), Pair()], x, 1000)
    with pytest.raises(UsageError, match="at least one layer"):
        checkpointed([], x, 1000)
    with pytest.raises(UsageError, match="needs a gradient"):
        checkpointed([nn.ReLU()], x, 1000)


def test_an_input_of_another_shape_or_need_is_refused_in_words(nets: Any) -> None:
    module, x = nets.dense(2), torch.randn(8, 16)
    wrapped = checkpointed(module, x, 10**6, compute="flops")
    for other in (torch.randn(4, 16), x.double()):
        with pytest.raises(UsageError, match="planned for an input of"):
            wrapped(other)
    with pytest.raises(UsageError, match="the sample did not"):
        wrapped(x.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(wrapped(torch.ones(4, 16)), module(torch.ones(4, 16)))


def test_a_schedule_of_another_length_is_refused(nets: Any) -> None:
    with pytest.raises(UsageError, match="3 stages, this sequence 4"):
        CheckpointedSequential(nets.dense(2), classic.sqrt_n(3), torch.randn(8, 16))


def test_wrong_types_are_refused_in_words(nets: Any) -> None:
    module, x = nets.dense(2), torch.randn(8, 16)
    wrapped = checkpointed(module, x, 10**6, compute="flops")
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: checkpointed(None, x, 1000), "None is not a sequence"),  # type: ignore[arg-type]
        (lambda: checkpointed(module, [1], 1000), "sample must be one tensor, not list"),  # type: ignore[arg-type]
        (lambda: checkpointed(module, x[:, :3], 1000), "layer 0, Linear, cannot run"),
        (lambda: checkpointed(module, x, "2GB"), "budget must be an integer"),  # type: ignore[arg-type]
        (lambda: checkpointed(module, x, 1000, compute=None), "compute must be time"),  # type: ignore[arg-type]
        (lambda: checkpointed(module, x, 1000, compute=[1] * 4), "4 pairs"),  # type: ignore[list-item]
        (lambda: checkpointed(module, x, 1000, memory=Costs.uniform(3)), "Costs of 4 stages"),
        (lambda: checkpointed(module, x, 10**4, slot=0), "slot must be an integer"),
        (lambda: CheckpointedSequential(module, "S1 B1", x), "must be a Schedule"),  # type: ignore[arg-type]
        (lambda: wrapped([1.0]), "input must be one tensor, not list"),
        (lambda: wrapped.append(nn.ReLU())(x), "planned with 4 layers and now has 5"),
    ]
    for call, says in refused:
        with pytest.raises((UsageError, IllegalOption), match=says):
            call()


def test_a_wrapped_module_is_copied_pickled_and_loaded_like_any_other(nets: Any) -> None:
    import io

    module, x = nets.dense(2), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.recompute_all(4), x)
    wanted = nets.step(module, x)
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    for other in (copy.deepcopy(wrapped), torch.load(file, weights_only=False)):
        kept = [p.detach().clone() for p in module.parameters()]
        with torch.no_grad():
            for p in module.parameters():
                p.zero_()
        nets.assert_same(nets.step(other, x), wanted)
        with torch.no_grad():
            for p, value in zip(module.parameters(), kept, strict=True):
                p.copy_(value)
    fresh = nets.dense(2)
    wrapped.load_state_dict(fresh.state_dict(keep_vars=True), assign=True)
    nets.assert_same(nets.step(wrapped, x), nets.step(fresh, x))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def test_a_layer_whose_state_a_second_run_would_change_is_refused() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), Counting(), nn.Linear(4, 4)), torch.randn(2, 4)
    with pytest.raises(UsageError, match=r"changes its buffer Counting\.calls"):
        CheckpointedSequential(module, classic.recompute_all(3), x)(x)
    assert CheckpointedSequential(module, classic.save_all(3), x)(x).shape == (2, 4)
