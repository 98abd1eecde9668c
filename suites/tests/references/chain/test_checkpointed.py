"""`gradgate.in_torch.checkpointed`: a model that can be cut trains within the budget, with the same bits as without."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gradgate.in_torch import checkpointed  # noqa: E402 - after the check that PyTorch is there
from gradgate.references.chain.in_torch import model as entry  # noqa: E402
from gradgate.references.chain.schedules.solver import BudgetTooSmall  # noqa: E402
from gradgate.suites.checks import hazards  # noqa: E402
from gradgate.suites.checks.hazard_table import HAZARDS  # noqa: E402

nn = torch.nn
NAMED = {hazard.name: hazard for hazard in HAZARDS}
REFUSED = {"weight_replaced", "functional_call", "attribute_changed", "second_derivative"}
"""Hazards where plain backprop is right and `checkpointed` raises an error with an explanation."""


def test_masks_tuples_keywords_and_a_smaller_last_batch(models: Any) -> None:
    batches = [models.inputs(12), models.inputs(12, 1), models.inputs(5, 2)]
    found, plain, wrapped = models.both(models.Masked(), batches, steps=6, budget="least")
    assert models.same(found, plain)
    assert len(wrapped.plans) == 2  # one per batch size
    assert all(len(plan.stages) > 10 for plan in wrapped.plans)
    assert found["peak"] <= max(plan.simulation.peak for plan in wrapped.plans)
    assert found["peak"] < 0.6 * plain["peak"]


def test_two_trainings_that_differ_are_told_apart(models: Any) -> None:
    found, plain, _ = models.both(models.Masked(), [models.inputs()], budget="least")
    found["state"]["exit.bias"] = found["state"]["exit.bias"] + 1e-7
    assert not models.same(found, plain)


def test_a_mask_that_changes_the_course_gets_its_own_plan(models: Any) -> None:
    batches = [models.inputs(12), models.inputs(12, kept=1.1)]
    found, plain, wrapped = models.both(models.Masked(), batches, steps=4, budget="least")
    assert models.same(found, plain)
    assert len(wrapped.plans) == 2


def test_other_arguments_modes_and_attributes_are_noticed(models: Any) -> None:
    model = models.Masked()
    plain, wrapped = copy.deepcopy(model), checkpointed(model, None, budget="least", compute="flops")
    args, kwargs = models.inputs()

    def changes() -> Any:
        yield {}
        yield {"double": True}
        for each in (model, plain):
            each.scale = 0.25
        yield {}
        for each in (wrapped, plain):
            each.eval()
        yield {}
        for each in (model, plain):
            each.exit = nn.Sequential(nn.Tanh(), each.exit)
        yield {}

    for more in changes():
        outputs = []
        for each in (wrapped, plain):
            torch.manual_seed(1)
            each.zero_grad()
            outputs.append(each(*args, **kwargs, **more)["y"])
            outputs[-1].sum().backward()
        assert torch.equal(*outputs)
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(wrapped.parameters(), plain.parameters(), strict=True))
    assert len(wrapped.plans) == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_the_model(models: Any, dtype: Any) -> None:
    class Cast(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast("cpu", dtype=dtype):
                return self.inner(*args, **kwargs)

    model = models.Masked()
    plain = models.train(Cast(copy.deepcopy(model)), [models.inputs()], 2)
    found = models.train(Cast(checkpointed(model, None, budget="least", compute="flops")), [models.inputs()], 2)
    assert models.same(found, plain)


def test_autocast_and_no_grad_within_the_model(models: Any) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.one(x)
            with torch.no_grad():
                fixed = self.two(x.float())
            return self.three(x.float() * fixed).sin()

    found, plain, _ = models.both(Inner(), [((torch.randn(5, 6),), {})], budget="least")
    assert models.same(found, plain)


def test_an_input_that_needs_a_gradient_gets_it_and_tied_weights_get_their_sum() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))
            self.middle = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

        def forward(self, x: Any, y: Any) -> Any:
            h = torch.sin(x @ self.weight) + y
            h = self.middle(h).tanh() + y
            return h @ self.weight.t(), h

    model = Tied()
    wrapped = checkpointed(copy.deepcopy(model), None, budget="least", compute="flops")
    given = [torch.randn(4, 6, requires_grad=True) for _ in range(2)]
    found = []
    for each in (model, wrapped):
        first, second = each(*given)
        found.append(torch.autograd.grad((first * first).sum() + second.sum(), [*given, *each.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", NAMED)
def test_every_hazard_of_eager_pytorch_is_right_to_the_bit_or_refused_in_words(name: str) -> None:
    def wrapped(model: Any, sample: Any) -> Any:
        return checkpointed(model, sample, budget="least", compute="flops")

    hazard = NAMED[name]
    found = hazards.outcome(hazard, wrapped)
    assert not found.fault(hazard), found.detail
    assert found.kind == "raises" if name in REFUSED else found.kind == "right" or hazard.plain != "right", found.detail


def test_budgets_in_bytes_in_shares_and_of_the_whole_step(models: Any) -> None:
    model, (args, kwargs) = models.Masked(), models.inputs()
    example = {"pair": args[0], **kwargs}
    with pytest.raises(BudgetTooSmall, match=r"at least \d+ are needed for \d+ stages; saving every") as error:
        checkpointed(model, example, budget=10, compute="flops")
    least = error.value.minimum
    assert checkpointed(model, example, budget=least, compute="flops").plans[0].simulation.peak <= least
    everything = checkpointed(model, example, budget=1.0, compute="flops").plans[0]
    assert set(everything.schedule.runs()) == {1}
    beside = 2 * sum(p.nbytes for p in model.parameters()) + sum(b.nbytes for b in model.buffers()) + 1000
    how: Any = {"counts": "step", "optimizer_state": 1000, "compute": "flops"}
    assert checkpointed(model, example, budget=beside + least, **how).plans[0].simulation.peak <= least
    with pytest.raises(BudgetTooSmall, match=rf"at least {beside + least} .*; {beside} of them are parameters") as step:
        checkpointed(model, example, budget=beside + least - 1, **how)
    assert step.value.minimum == beside + least


def test_a_share_is_enough_for_a_smaller_last_batch_too() -> None:
    # The gradients of the weights are as large for three rows as for eight, so 90% is too little for three rows alone.
    net, (full, last) = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3))), (torch.randn(8, 16), torch.randn(3, 16))
    with pytest.raises(BudgetTooSmall, match=r"at least \d+ are needed for 3 stages"):
        checkpointed(net, last, budget=0.9, compute="flops")
    wrapped = checkpointed(net, full, budget=0.9, compute="flops")
    wrapped(last).square().mean().backward()
    _, second = wrapped.plans
    assert second.simulation.peak <= wrapped._allowed
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(last).square().mean().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(found, net.parameters(), strict=True))


def test_a_model_is_copied_pickled_and_loaded_like_the_plain_one(models: Any) -> None:
    model, batches = models.Masked(), [models.inputs()]
    plain = models.train(copy.deepcopy(model), batches, 2)
    wrapped = checkpointed(model, None, budget="least", compute="flops")
    assert wrapped.scale == 0.5  # an attribute of the model
    assert wrapped.state_dict().keys() == model.state_dict().keys()
    first = copy.deepcopy(wrapped)
    assert models.same(models.train(first, batches, 2), plain)
    fresh = models.Masked()
    other = checkpointed(fresh, None, budget="least", compute="flops")
    other.load_state_dict(wrapped.state_dict())
    assert models.same(models.train(other, batches, 2), plain)
    net = checkpointed(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.ones(2, 4), budget=1.0)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(torch.ones(2, 4)), net(torch.ones(2, 4)))
    assert not copy.deepcopy(net).plans


def test_where_no_gradient_is_asked_for_nothing_is_planned(models: Any) -> None:
    wrapped, (args, kwargs) = checkpointed(models.Masked(), None, budget="least"), models.inputs()
    with torch.no_grad():
        wrapped(*args, **kwargs)
    assert not wrapped.plans


def test_planning_leaves_no_trace(models: Any) -> None:
    model, (args, kwargs) = models.Masked(), models.inputs()
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    checkpointed(model, {"pair": args[0], **kwargs}, budget="least", compute="time")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_torch_compile_around_it_runs_it_eagerly(models: Any) -> None:
    model, (args, kwargs) = models.Masked(), models.inputs()
    wrapped = checkpointed(copy.deepcopy(model), None, budget="least", compute="flops")
    compiled = torch.compile(wrapped, backend="eager")
    found = []
    for each in (model, compiled):
        torch.manual_seed(2)
        models.loss_of(each(*args, **kwargs)).backward()
        found.append([p.grad for p in each.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_old_plans_go(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "PLANS", 2)
    wrapped = checkpointed(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), None, budget=1.0)
    for batch in (1, 2, 3):
        wrapped(torch.ones(batch, 4))
    assert len(wrapped.plans) == 2


def test_distributed_hooks_fire_once_per_parameter(models: Any, tmp_path: Any) -> None:
    dist = torch.distributed
    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("without gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model, batches = models.Masked(), [models.inputs()]
        plain = models.train(copy.deepcopy(model), batches, 2)
        wrapped = checkpointed(model, None, budget="least", compute="flops")
        fired: list[int] = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: fired.append(id(p)))
        parallel = nn.parallel.DistributedDataParallel(wrapped)
        found = models.train(parallel, batches, 2)
        found["state"] = {name.removeprefix("module."): t for name, t in found["state"].items()}
        assert models.same(found, plain)
        assert sorted(fired) == sorted([id(p) for p in model.parameters()] * 2)
    finally:
        dist.destroy_process_group()
