"""If `gradgate.in_torch.checkpointed` cannot do something, its error names the place and the remedy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.contract import IllegalOption, NotComposable, UsageError

torch = pytest.importorskip("torch")

from gradgate.in_torch import checkpointed  # noqa: E402 - after the check that PyTorch is there
from gradgate.references.chain.in_torch import cuts  # noqa: E402

nn = torch.nn
X, ELSEWHERE = torch.ones(3, 4), torch.ones(3, 4)


class Does(nn.Module):
    """A model with the given forward function."""

    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.one, self.two, self.how = nn.Linear(4, 4), nn.Linear(4, 4), [forward]
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Any) -> Any:
        return self.how[0](self, x)


def branches(m: Any, x: Any) -> Any:
    x = m.one(x)
    return m.two(x) if x.sum() > 0 else x


def counts(m: Any, x: Any) -> Any:
    m.calls += 1
    return m.two(m.one(x).tanh())


def counts_in_a_buffer(m: Any, x: Any) -> Any:
    m.count += 1
    return m.two(m.one(x).tanh())


def overwrites(m: Any, x: Any) -> Any:
    return m.two(m.one(x.mul_(2)).tanh())


def draws(m: Any, x: Any) -> Any:
    return m.two(m.one(x) * random.random())


def lists(m: Any, x: Any) -> Any:
    return m.two(m.one(x) * x.numpy().sum())


def gives_an_object(m: Any, x: Any) -> Any:
    return {"y": m.two(m.one(x).tanh()), "self": m}


def reads_from_nowhere(m: Any, x: Any) -> Any:
    return m.two(m.one(x) + ELSEWHERE)


REFUSED = {
    branches: r": __bool__: the forward pass branches by the numbers of a tensor that the model .* torch\.where",
    counts: r"the model's forward changes attribute 'calls' of the model: the plan of one step",
    counts_in_a_buffer: r"the model's own forward changes a parameter, a buffer .* a module of its own",
    overwrites: r": mul_ overwrites input .*: copy it before",
    draws: r"the model's own forward draws from Python's or NumPy's generator",
    lists: r": numpy hands the numbers of a tensor to Python",
    gives_an_object: r"the model gives a Does, .* use_cache=False",
    reads_from_nowhere: r"reads a tensor of shape \(3, 4\) that is neither an input, a parameter, .* register it",
}


@pytest.mark.parametrize("forward", REFUSED, ids=lambda forward: forward.__name__)
def test_a_forward_that_cannot_be_planned_is_refused(forward: Any) -> None:
    with pytest.raises(UsageError, match=REFUSED[forward]):
        checkpointed(Does(forward), X, budget="least", compute="flops")


def test_the_same_forward_without_the_fault_is_planned() -> None:
    assert checkpointed(Does(lambda m, x: m.two(m.one(x).tanh())), X, budget="least", compute="flops").plans


def test_a_model_without_a_cut_is_refused_and_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"there is no cut: the model is 1 call\(s\), from 0 to 0"):
        checkpointed(nn.Sequential(nn.Linear(4, 4)), X, budget=1.0)
    with pytest.raises(UsageError, match="from the model: linear to the model: linear"):
        checkpointed(nn.Linear(4, 4), X, budget=1.0)
    monkeypatch.setattr(cuts, "CROSSING", 0)
    with pytest.raises(UsageError, match="at most 0 tensors may cross one, and at the best place, after one, 1 do"):
        checkpointed(Does(lambda m, x: m.two(m.one(x).tanh())), X, budget=1.0)


def test_wrong_arguments_are_refused_in_words() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    wrapped = checkpointed(net, X, budget=1.0)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: checkpointed(None, X, budget=1.0), "must be an nn.Module, not NoneType"),  # type: ignore[arg-type]
        (lambda: checkpointed(wrapped, X, budget=1.0), "is checkpointed already"),
        (
            lambda: checkpointed(torch.compile(net, backend="eager"), X, budget=1.0),
            "compile or distribute what `checkpointed` returns",
        ),  # type: ignore[arg-type]
        (lambda: checkpointed(net, X, budget=1.5), "a share, above 0 and at most 1, not 1.5"),
        (lambda: checkpointed(net, X, budget=0), "budget must be an integer"),
        (lambda: checkpointed(net, X, budget="2GB"), "must be an integer .*; or a share .* such as 0.5; or 'least'"),  # type: ignore[arg-type]
        (lambda: checkpointed(net, X, budget=1.0, counts="all"), "counts must be 'activations' or 'step'"),  # type: ignore[arg-type]
        (lambda: checkpointed(net, X, budget=1.0, compute="bytes"), "compute must be 'time' or 'flops'"),  # type: ignore[arg-type]
        (lambda: checkpointed(net, X, budget=1.0, optimizer_state=-1), "optimizer_state must be an integer"),
        (lambda: wrapped(iter([X])), "legal are tensors, numbers, strings, None"),
        (lambda: wrapped(X.to("meta")), "several devices, cpu, meta; legal is one"),
    ]
    for call, says in refused:
        with pytest.raises((UsageError, IllegalOption), match=says):
            call()


def test_transformations_and_second_derivatives_are_refused() -> None:
    wrapped = checkpointed(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), X, budget=1.0)
    with pytest.raises(NotComposable, match=r"torch\.func or vmap"):
        torch.func.grad(lambda x: wrapped(x).sum())(X)
    with pytest.raises(NotComposable, match="first derivatives only"):
        torch.autograd.grad(wrapped(X).sum(), list(wrapped.parameters()), create_graph=True)


def test_a_list_of_layers_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"must be an nn\.Module, not list: put the layers into torch\.nn\.Sequential"):
        checkpointed([nn.Linear(4, 4)] * 3, X, budget="least")


def test_a_plan_may_be_made_where_no_gradient_is_recorded() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))
    with torch.no_grad():
        lean = checkpointed(model, X, budget="least", compute="flops")
        assert torch.equal(lean(X), model(X))
    assert (
        lean.plans[0].schedule.runs()
        == checkpointed(model, X, budget="least", compute="flops").plans[0].schedule.runs()
    )
