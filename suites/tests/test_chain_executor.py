"""The PyTorch executor: the schedule's operations, its bytes, plain backprop's bits, inside whatever surrounds it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gradgate.references.chain import classic
from gradgate.references.chain.costs import Costs
from gradgate.references.chain.schedule import Operation, Schedule
from gradgate.references.chain.simulate import simulate
from gradgate.references.chain.solver import BudgetTooSmall, minimum_budget, precise_dp
from gradgate.references.contract import IllegalOption, NotComposable, UsageError

torch = pytest.importorskip("torch")

from gradgate.references.chain import torch_executor  # noqa: E402 - after the check that PyTorch is there
from gradgate.references.chain.torch_checkpoint import (  # noqa: E402
    CheckpointedSequential,
    checkpointed,
    costs_of,
    stages_of,
)
from gradgate.references.chain.torch_profile import LiveBytes  # noqa: E402

nn = torch.nn
RANDOM_STATE = 5056
"""Bytes of a CPU random state, which the simulator counts and the meter does not see."""


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Loss(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x * x).mean()


def dense(depth: int = 6, width: int = 16) -> Any:
    widths = [width * (1 + n % 3) for n in range(depth + 1)]
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers)


def image() -> Any:
    """Everything at once: norms, dropout, layers in place, a view, a change of resolution."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, padding=1),
        nn.Dropout(0.3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.InstanceNorm2d(16, True, True),
        nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (dense, (8, 16)),
    "image": (image, (4, 3, 16, 16)),
}


def budgets(costs: Costs) -> list[int]:
    least, all_saved = minimum_budget(costs), simulate(classic.save_all(costs.stages), costs).peak
    return [least, (3 * least + all_saved) // 4, (least + all_saved) // 2, all_saved]


def step(module: Any, x: Any, loss: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """One training step from a fixed random state: loss, gradients, buffers, measured peak beside what was there."""
    torch.manual_seed(7)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    x.grad = None
    with LiveBytes() as meter:
        value = (loss or Loss())(module(x))
        value.backward()
    return {
        "loss": value.detach(),
        "grads": [p.grad.clone() for p in module.parameters()] + ([x.grad] if x.requires_grad else []),
        "buffers": [b.clone() for b in module.buffers()],
        "random": torch.get_rng_state(),
        "peak": meter.peak,
    }


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert torch.equal(found["loss"], wanted["loss"])
    for kind in ("grads", "buffers"):
        assert all(torch.equal(a, b) for a, b in zip(found[kind], wanted[kind], strict=True)), kind
    assert torch.equal(found["random"], wanted["random"])


@pytest.mark.parametrize("needs_input_grad", [False, True])
@pytest.mark.parametrize("net", NETS)
def test_gradients_statistics_and_random_state_are_those_of_plain_backprop_to_the_bit(
    net: str, needs_input_grad: bool
) -> None:
    make, shape = NETS[net]
    module, x = make(), torch.randn(shape).requires_grad_(needs_input_grad)
    costs = costs_of(module, x, compute="flops")
    wanted, N = step(copy.deepcopy(module), x), costs.stages
    schedules = [precise_dp(costs, budget) for budget in budgets(costs)]
    schedules += [classic.sqrt_n(N), classic.recursive(N), classic.recompute_all(N), classic.revolve(N, 2)]
    for schedule in schedules:
        assert_same(step(CheckpointedSequential(copy.deepcopy(module), schedule, x), x), wanted)


@pytest.mark.parametrize("net", NETS)
def test_the_measured_peak_is_within_the_budget_and_close_to_the_simulated_one(net: str) -> None:
    make, shape = NETS[net]
    module, x = nn.Sequential(*make(), Loss()), torch.randn(shape, requires_grad=True)
    costs = costs_of(module, x, compute="flops")
    for budget in budgets(costs):
        wrapped = CheckpointedSequential(module, precise_dp(costs, budget), x, costs)
        measured = step(wrapped, x, loss=lambda y: y)["peak"] + costs.output[0]
        simulated = wrapped.simulation.peak
        assert measured <= simulated <= budget
        unseen = costs.fixed // RANDOM_STATE * RANDOM_STATE
        assert measured + unseen >= 0.95 * simulated


def test_bytes_follow_the_simulator_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = nn.Sequential(*dense(), Loss()), torch.randn(8, 16, requires_grad=True)
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
    scalars = 2 * costs.output[-1]  # the loss and the 1 that its backward starts from, counted before they are there
    assert len(seen) > 2 * len(module)
    assert all(0 <= held[number] - live - costs.output[0] <= scalars for number, live in seen)


def test_the_operations_performed_are_those_of_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = dense(), torch.randn(4, 16)
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
    Loss()(wrapped(x)).backward()
    assert tuple(runs[0].performed) == schedule.operations
    assert calls == schedule.runs()


def test_a_schedule_that_no_plan_describes_runs_too() -> None:
    module, x = dense(3)[:3], torch.randn(4, 16, requires_grad=True)
    text = "F1 S2 F1 F2 S3 S1 D2 D1 D3 B3 B2 D0 B1"  # records 2, makes x_2 twice, records 1 before running 3 backward
    schedule = Schedule.from_json(f'{{"stages": 3, "operations": "{text}"}}')
    with pytest.raises(UsageError, match="not nested"):
        schedule.plan()
    assert_same(step(CheckpointedSequential(module, schedule, x), x), step(module, x))


def test_it_works_inside_a_larger_model_whose_layers_share_its_parameters() -> None:
    shared = nn.Linear(16, 16)
    chain = nn.Sequential(shared, nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), shared, nn.Sigmoid())

    class Outer(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.before, self.inner, self.after = nn.Linear(8, 16), inner, nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            return self.after(self.inner(y) + y) * 2

    plain, x = Outer(chain), torch.randn(5, 8)
    wanted = step(plain, x)
    sample = torch.randn(5, 16, requires_grad=True)
    wrapped = copy.deepcopy(plain)
    costs = costs_of(chain, sample, compute="flops")
    wrapped.inner = checkpointed(wrapped.inner, sample, minimum_budget(costs), compute="flops")
    assert sum(wrapped.inner.schedule.runs()) > costs.stages
    assert_same(step(wrapped, x), wanted)
    assert list(wrapped.state_dict()) == list(plain.state_dict())


def test_two_chains_in_a_row_and_one_twice() -> None:
    first, second, x = dense(2), dense(2)[:2], torch.randn(4, 16)
    sample = torch.randn(4, 16, requires_grad=True)
    middle = nn.Linear(48, 16)
    a = CheckpointedSequential(first, classic.recompute_all(4), sample)
    b = CheckpointedSequential(second, classic.recompute_all(2), sample)
    back = nn.Linear(32, 16)

    def model(f: Any, g: Any) -> Any:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.f, self.g, self.middle, self.back = f, g, middle, back

            def forward(self, x: Any) -> Any:
                y = self.back(self.g(self.middle(self.f(x))))
                return self.back(self.g(y))

        return Model()

    a(x)  # a forward pass that is never run backward leaves nothing behind
    assert_same(step(model(a, b), x), step(model(first, second), x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_holds_in_recomputation_outside_its_scope(dtype: Any) -> None:
    module, x = image(), torch.randn(4, 3, 16, 16)

    def loss_of(m: Any) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            with torch.autocast("cpu", dtype=dtype):
                return m(x)

        return run

    class Casting(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return loss_of(self.inner)(x).float()

    with torch.autocast("cpu", dtype=dtype):
        costs = costs_of(module, x, compute="flops")
        wrapped = CheckpointedSequential(copy.deepcopy(module), precise_dp(costs, minimum_budget(costs)), x, costs)
    assert sum(wrapped.schedule.runs()) > costs.stages
    assert_same(step(Casting(wrapped), x), step(Casting(copy.deepcopy(module)), x))


def test_leading_layers_without_gradients_run_once_and_are_no_stages() -> None:
    module, x = dense(4), torch.randn(4, 16)
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
        Loss()(m(x)).backward()
        return [p.grad for p in m.parameters() if p.requires_grad]

    assert all(torch.equal(a, b) for a, b in zip(trained(wrapped), trained(module), strict=True))
    assert len(calls) == 2  # one per model


def test_layers_in_place_and_views_join_the_stage_before_them() -> None:
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    assert [s.name for s in stages_of(module, x)] == [
        "stage 1 (Linear, ReLU, Flatten)",  # the first ReLU leads and needs no gradient
        "stage 2 (Linear)",
    ]
    assert stages_of(module, x.clone().requires_grad_())[0].name == "stage 1 (ReLU)"
    before = x.clone()
    wrapped = CheckpointedSequential(module, classic.recompute_all(2), x)
    assert_same(step(wrapped, x), step(copy.deepcopy(module), x.clone()))
    assert torch.equal(x, before)


def test_profiling_leaves_no_trace() -> None:
    module, x = image(), torch.randn(4, 3, 16, 16)
    before = [t.clone() for t in module.state_dict().values()]
    state = torch.get_rng_state()
    costs_of(module, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before, module.state_dict().values(), strict=True))
    assert all(p.grad is None for p in module.parameters())


def test_the_profiler_knows_what_a_layer_saves() -> None:
    x = torch.randn(2, 64, requires_grad=True)
    cases = {  # recordings of 2 × 64 numbers of 4 bytes: keeps input, keeps output, bytes besides
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
    assert 0 < found[4][2] <= 512 + 128  # a mask, of numbers or of booleans
    assert costs.output == (512,) * 7


def test_flops_time_uniform_and_given_costs() -> None:
    module, x = dense(2), torch.randn(8, 16)
    flops = costs_of(module, x, compute="flops")
    assert flops.forward == (2 * 8 * 16 * 32, 0, 2 * 8 * 32 * 48, 0)
    assert all(second > 0 for second in costs_of(module, x, compute="time").forward)
    uniform = costs_of(module, x, compute="uniform", memory="uniform")
    assert len(set(uniform.forward)) == len(set(uniform.output)) == 1
    given = costs_of(module, x, compute=[(1, 2)] * 4, memory=flops)
    assert (given.forward, given.output) == ((1,) * 4, flops.output)
    with pytest.raises(UsageError, match="4 pairs"):
        costs_of(module, x, compute=[(1, 2)])
    with pytest.raises(UsageError, match="time, flops, uniform"):
        costs_of(module, x, compute="fast")  # type: ignore[arg-type]


def test_a_budget_too_small_says_the_least_that_suffices() -> None:
    module, x = dense(), torch.randn(8, 16)
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


def test_an_input_of_another_shape_or_need_is_refused_in_words() -> None:
    module, x = dense(2), torch.randn(8, 16)
    wrapped = checkpointed(module, x, 10**6, compute="flops")
    for other in (torch.randn(4, 16), x.double()):
        with pytest.raises(UsageError, match="planned for an input of"):
            wrapped(other)
    with pytest.raises(UsageError, match="the sample did not"):
        wrapped(x.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(wrapped(torch.ones(4, 16)), module(torch.ones(4, 16)))


def test_a_schedule_of_another_length_is_refused() -> None:
    with pytest.raises(UsageError, match="3 stages, this sequence 4"):
        CheckpointedSequential(dense(2), classic.sqrt_n(3), torch.randn(8, 16))


def test_wrong_types_are_refused_in_words() -> None:
    module, x = dense(2), torch.randn(8, 16)
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


def test_a_wrapped_module_is_copied_pickled_and_loaded_like_any_other() -> None:
    import io

    module, x = dense(2), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.recompute_all(4), x)
    wanted = step(module, x)
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    for other in (copy.deepcopy(wrapped), torch.load(file, weights_only=False)):
        kept = [p.detach().clone() for p in module.parameters()]
        with torch.no_grad():
            for p in module.parameters():
                p.zero_()
        assert_same(step(other, x), wanted)
        with torch.no_grad():
            for p, value in zip(module.parameters(), kept, strict=True):
                p.copy_(value)
    fresh = dense(2)
    wrapped.load_state_dict(fresh.state_dict(keep_vars=True), assign=True)
    assert_same(step(wrapped, x), step(fresh, x))


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


def test_second_derivatives_a_second_backward_and_torch_func_are_refused_in_words() -> None:
    module, x = dense(2), torch.randn(8, 16, requires_grad=True)
    wrapped = CheckpointedSequential(module, classic.sqrt_n(4), x)
    with pytest.raises(NotComposable, match="first derivatives only"):
        torch.autograd.grad(wrapped(x).sum(), x, create_graph=True)
    loss = wrapped(x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    with pytest.raises(NotComposable, match=r"torch\.func"):
        torch.func.grad(lambda x: wrapped(x).sum())(x)


def test_gradients_of_some_parameters_only_and_hooks() -> None:
    module, x = dense(3), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.revolve(6, 2), x)
    wanted = torch.autograd.grad(Loss()(module(x)), module[4].weight)[0]
    assert torch.equal(torch.autograd.grad(Loss()(wrapped(x)), module[4].weight)[0], wanted)
    order: list[int] = []
    for n in (0, 2, 4):
        module[n].weight.register_post_accumulate_grad_hook(lambda _, n=n: order.append(n))
    Loss()(wrapped(x)).backward()
    assert order == [4, 2, 0]


def test_a_hook_on_a_parameter_runs_once_whatever_it_returns() -> None:
    module, x, seen = dense(2), torch.randn(8, 16), []
    module[0].weight.register_hook(lambda g: (seen.append(g.clone()), 2 * g)[1])
    wanted, plain = step(module, x), seen.pop()
    found = step(CheckpointedSequential(module, classic.recompute_all(4), x), x)
    assert len(seen) == 1  # nor does profiling or recomputing run it
    assert torch.equal(seen[0], plain)
    assert_same(found, wanted)


def test_gradients_are_added_to_those_there_one_by_one_and_in_plain_backprops_bits() -> None:
    module, x = image(), torch.randn(4, 3, 16, 16)
    wrapped = CheckpointedSequential(copy.deepcopy(module), classic.recompute_all(len(stages_of(module, x))), x)

    def twice(m: Any) -> list[Any]:
        calls: list[int] = []
        for n, p in enumerate(m[0].parameters()):
            p.register_post_accumulate_grad_hook(lambda _, n=n: calls.append(n))
        torch.manual_seed(3)
        for _ in range(2):
            Loss()(m(x)).backward()
        assert sorted(calls) == [0, 0, 1, 1]
        return [p.grad for p in m.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(twice(wrapped), twice(module), strict=True))


class Wide(nn.Module):
    """A stage of many parameters beside whose gradients its values are nothing."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(count)])

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_a_stages_parameter_gradients_are_never_alive_together() -> None:
    one = 4 * 64 * 64
    module = nn.Sequential(nn.Linear(64, 64), Wide(64, 5), nn.Tanh(), Wide(64, 5), Loss())
    x = torch.randn(2, 64)
    costs = costs_of(module, x, compute="flops")
    least = minimum_budget(costs)
    wrapped = CheckpointedSequential(module, precise_dp(costs, least), x, costs)
    assert one < step(wrapped, x, loss=lambda y: y)["peak"] + costs.output[0] <= least < 2 * one
    module[3].inner[0].weight = module[1].inner[0].weight  # one of each is shared: the stage waits for the other
    assert minimum_budget(costs_of(module, x, compute="flops")) > 4 * one


def test_accumulating_into_some_parameters_leaves_the_others_alone() -> None:
    module, x = dense(3), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.revolve(6, 2), x)
    step(wrapped, x)
    wanted = [2 * p.grad if n == 2 else p.grad.clone() for n, p in enumerate(module.parameters())]
    Loss()(wrapped(x)).backward(inputs=[list(module.parameters())[2]])
    assert all(torch.equal(p.grad, w) for p, w in zip(module.parameters(), wanted, strict=True))
    kept = [p.grad.clone() for p in module.parameters()]
    torch.autograd.grad(Loss()(wrapped(x)), list(module.parameters()))
    assert all(torch.equal(p.grad, k) for p, k in zip(module.parameters(), kept, strict=True))


def test_training_goes_as_without_checkpointing() -> None:
    x = torch.randn(4, 3, 16, 16)

    def train(module: Any) -> list[float]:
        torch.manual_seed(1)
        optimizer, losses = torch.optim.Adam(module.parameters(), 1e-2), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = Loss()(module(x))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    module = image()
    plain = train(copy.deepcopy(module))
    least = minimum_budget(costs_of(module, x, compute="flops"))
    assert train(checkpointed(module, x, least, compute="flops")) == plain
