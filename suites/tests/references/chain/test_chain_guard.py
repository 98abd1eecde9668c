"""The values that are kept from the first run of a stage, and how the second run is compared with them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp
from gradgate.references.contract import UsageError

torch = pytest.importorskip("torch")

from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential, costs_of  # noqa: E402
from gradgate.references.chain.in_torch.guard import CheckValue, Doubts, _apart, _norm_and_sample  # noqa: E402
from gradgate.references.chain.in_torch.replay import RandomState  # noqa: E402

nn = torch.nn
CPU = torch.device("cpu")
TENSORS = {
    "dense": lambda: torch.randn(4, 5),
    "a number": lambda: torch.randn(()),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "part of a storage": lambda: torch.randn(3, 4)[:, 1:3],
    "bfloat16": lambda: torch.randn(3, 4).bfloat16(),
    "bool": lambda: torch.randn(3, 4) > 0,
    "complex": lambda: torch.randn(3, dtype=torch.complex128),
    "large": lambda: torch.randn(1000),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_check_value_sees_any_element_change(kind: str) -> None:
    y = TENSORS[kind]()
    first = CheckValue.of(y)
    assert not first.differs(CheckValue.of(y.clone()))
    for place in range(y.numel()):
        other = y.clone().contiguous()
        flat = other.view(-1)
        flat[place] = ~flat[place] if y.dtype is torch.bool else flat[place] * 2 + 1
        assert first.differs(CheckValue.of(other))


def test_a_check_value_sees_another_shape_and_dtype_and_none_in_what_has_no_bits() -> None:
    y = torch.randn(4, 6)
    assert CheckValue.of(y).differs(CheckValue.of(y.view(6, 4)))
    assert CheckValue.of(y).differs(CheckValue.of(y.double()))
    meta = torch.empty(4, 6, device="meta")
    assert not CheckValue.of(meta).differs(CheckValue.of(meta))
    assert not CheckValue.of(torch.empty(0, 3)).differs(CheckValue.of(torch.empty(0, 3)))


def test_with_another_number_of_threads_outputs_are_compared_up_to_rounding() -> None:
    threads, y = torch.get_num_threads(), torch.randn(100)
    first = CheckValue.of(y)
    torch.set_num_threads(threads + 1)
    try:
        assert not first.differs(CheckValue.of(y * (1 + 1e-7)))
        assert first.differs(CheckValue.of(y * 1.001))
    finally:
        torch.set_num_threads(threads)


def test_on_an_accelerator_outputs_are_compared_up_to_rounding() -> None:
    y = torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last)
    y[0, 0, 0, 0] = torch.nan
    first, tolerance = _norm_and_sample(y), 1e-5
    assert len(first) <= 31
    assert not _apart(first, _norm_and_sample(y * (1 + 1e-7)), tolerance)
    assert _apart(first, _norm_and_sample(y.roll(1, 0)), tolerance)
    assert _apart(first, _norm_and_sample(y * 1.001), tolerance)


def test_doubts_are_settled_when_the_backward_pass_ends() -> None:
    order: list[str] = []
    doubts = Doubts()

    class Doubting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            order.append("asked")
            doubts.add(torch.tensor(True), lambda: order.append("refused"))
            doubts.add(torch.tensor(False), lambda: order.append("never"))
            doubts.add(False, lambda: order.append("never"))
            return cotangent * 2

    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda _: order.append("done"))
    for _ in range(2):
        Doubting.apply(x).sum().backward()
    assert order == ["asked", "done", "refused"] * 2


def test_only_generators_that_moved_are_kept_and_put_back() -> None:
    owner = nn.Identity()
    owner.generator = random.Random(1)  # type: ignore[assignment]
    before = RandomState.now(CPU, [owner])
    assert not before.moved(RandomState.now(CPU, [owner])).parts
    drawn = owner.generator.random(), float(torch.rand(()))
    moved = before.moved(RandomState.now(CPU, [owner]))
    assert len(moved.parts) == 2
    with moved.again():
        assert (owner.generator.random(), float(torch.rand(()))) == drawn
    assert owner.generator.random() != drawn[0]


def test_errors_say_what_has_changed_and_what_to_do() -> None:
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)]
    model, x = nn.Sequential(*layers), torch.randn(3, 4)
    wrapped = CheckpointedSequential(model, classic.recompute_all(3), x)
    changes = {
        lambda: model[0].bias.add_(1): r"modified by an inplace operation.* the Linear.bias of stage 1 .*at version \d",
        lambda: x.add_(1): r"modified by an inplace operation.*the input of stage 1 \(Linear\), is at version",
        lambda: setattr(model[0].bias, "data", torch.ones(4)): r"the data of its Linear.bias has been exchanged",
        lambda: setattr(model[0], "bias", nn.Parameter(torch.ones(4))): r"Linear.bias has been replaced by another",
        lambda: setattr(model[1], "eps", 1.0): r"stage 2 \(BatchNorm1d\), run again for its gradient, gave another out",
    }
    for change, says in changes.items():
        y = wrapped(x).sum()
        with torch.no_grad():
            change()
        with pytest.raises(RuntimeError, match=says):
            y.backward()
    wrapped(x).sum().backward()


def test_a_stage_that_changes_its_own_parameter_is_refused() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                self.weight.sub_(self.weight.mean())
            return super().forward(x)

    model, x = nn.Sequential(Centred(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.randn(3, 4)
    with pytest.raises(UsageError, match=r"changes its parameter Centred\.weight in its forward"):
        CheckpointedSequential(model, classic.recompute_all(3), x)(x)


def test_what_is_kept_for_the_second_run_takes_no_tensor_bytes(nets: Any) -> None:
    module, x = nn.Sequential(*nets.dense(8), nets.Loss()), torch.randn(8, 16)
    costs = costs_of(module, x, compute="flops")
    wrapped = CheckpointedSequential(module, precise_dp(costs, minimum_budget(costs)), x, costs)
    assert nets.step(wrapped, x, loss=lambda y: y)["peak"] + costs.output[0] <= minimum_budget(costs)


def test_retaining_keeps_the_recordings_and_a_last_pass_frees_them(nets: Any) -> None:
    module, x = nets.dense(6), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.recompute_all(12), x)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    with nets.LiveBytes() as meter:
        y = wrapped(x).sum()
        at_start = meter.live
        y.backward(retain_graph=True)
        retained = meter.live
        y.backward()
    assert meter.live <= at_start < retained
