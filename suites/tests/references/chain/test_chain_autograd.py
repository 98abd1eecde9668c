"""The PyTorch executor together with larger models, autocast, hooks, gradient accumulation and further passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp
from gradgate.references.contract import NotComposable

torch = pytest.importorskip("torch")

from gradgate.references.chain.in_torch.checkpoint import (  # noqa: E402
    CheckpointedSequential,
    checkpointed,
    costs_of,
    stages_of,
)

nn = torch.nn


def test_it_works_inside_a_larger_model_whose_layers_share_its_parameters(nets: Any) -> None:
    shared = nn.Linear(16, 16)
    chain = nn.Sequential(shared, nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), shared, nn.Sigmoid())

    class Outer(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.before, self.inner, self.after = nn.Linear(8, 16), inner, nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            return self.after(self.inner(y) + y) * 2

    plain, x = Outer(chain), torch.randn(50, 8)  # many rows: the gradient of the shared weight waits, and is small
    wanted = nets.step(plain, x)
    sample = torch.randn(50, 16, requires_grad=True)
    wrapped = copy.deepcopy(plain)
    costs = costs_of(chain, sample, compute="flops")
    wrapped.inner = checkpointed(wrapped.inner, sample, minimum_budget(costs), compute="flops")
    assert sum(wrapped.inner.schedule.runs()) > costs.stages
    nets.assert_same(nets.step(wrapped, x), wanted)
    assert list(wrapped.state_dict()) == list(plain.state_dict())


def test_two_chains_in_a_row_and_one_twice(nets: Any) -> None:
    first, second, x = nets.dense(2), nets.dense(2)[:2], torch.randn(4, 16)
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

    a(x)  # a forward pass without a backward pass leaves nothing behind
    nets.assert_same(nets.step(model(a, b), x), nets.step(model(first, second), x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_holds_in_recomputation_outside_its_scope(nets: Any, dtype: Any) -> None:
    module, x = nets.image(), torch.randn(4, 3, 16, 16)

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
    nets.assert_same(nets.step(Casting(wrapped), x), nets.step(Casting(copy.deepcopy(module)), x))


def test_second_derivatives_a_second_backward_and_torch_func_are_refused_in_words(nets: Any) -> None:
    module, x = nets.dense(2), torch.randn(8, 16, requires_grad=True)
    wrapped = CheckpointedSequential(module, classic.sqrt_n(4), x)
    with pytest.raises(NotComposable, match="first derivatives only"):
        torch.autograd.grad(wrapped(x).sum(), x, create_graph=True)
    loss = wrapped(x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    with pytest.raises(NotComposable, match=r"torch\.func"):
        torch.func.grad(lambda x: wrapped(x).sum())(x)


def test_gradients_of_some_parameters_only_and_hooks(nets: Any) -> None:
    module, x = nets.dense(3), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.revolve(6, 2), x)
    wanted = torch.autograd.grad(nets.Loss()(module(x)), module[4].weight)[0]
    assert torch.equal(torch.autograd.grad(nets.Loss()(wrapped(x)), module[4].weight)[0], wanted)
    order: list[int] = []
    for n in (0, 2, 4):
        module[n].weight.register_post_accumulate_grad_hook(lambda _, n=n: order.append(n))
    nets.Loss()(wrapped(x)).backward()
    assert order == [4, 2, 0]


def test_a_hook_on_a_parameter_runs_once_whatever_it_returns(nets: Any) -> None:
    module, x, seen = nets.dense(2), torch.randn(8, 16), []
    module[0].weight.register_hook(lambda g: (seen.append(g.clone()), 2 * g)[1])
    wanted, plain = nets.step(module, x), seen.pop()
    found = nets.step(CheckpointedSequential(module, classic.recompute_all(4), x), x)
    assert len(seen) == 1  # profiling and recomputing do not run it
    assert torch.equal(seen[0], plain)
    nets.assert_same(found, wanted)


def test_gradients_are_added_to_those_there_one_by_one_and_in_plain_backprops_bits(nets: Any) -> None:
    module, x = nets.image(), torch.randn(4, 3, 16, 16)
    wrapped = CheckpointedSequential(copy.deepcopy(module), classic.recompute_all(len(stages_of(module, x))), x)

    def twice(m: Any) -> list[Any]:
        calls: list[int] = []
        for n, p in enumerate(m[0].parameters()):
            p.register_post_accumulate_grad_hook(lambda _, n=n: calls.append(n))
        torch.manual_seed(3)
        for _ in range(2):
            nets.Loss()(m(x)).backward()
        assert sorted(calls) == [0, 0, 1, 1]
        return [p.grad for p in m.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(twice(wrapped), twice(module), strict=True))


def test_accumulating_into_some_parameters_leaves_the_others_alone(nets: Any) -> None:
    module, x = nets.dense(3), torch.randn(8, 16)
    wrapped = CheckpointedSequential(module, classic.revolve(6, 2), x)
    nets.step(wrapped, x)
    wanted = [2 * p.grad if n == 2 else p.grad.clone() for n, p in enumerate(module.parameters())]
    nets.Loss()(wrapped(x)).backward(inputs=[list(module.parameters())[2]])
    assert all(torch.equal(p.grad, w) for p, w in zip(module.parameters(), wanted, strict=True))
    kept = [p.grad.clone() for p in module.parameters()]
    torch.autograd.grad(nets.Loss()(wrapped(x)), list(module.parameters()))
    assert all(torch.equal(p.grad, k) for p, k in zip(module.parameters(), kept, strict=True))
