"""`InvertibleSequential` as users call it: what it keeps, what it runs again, and which use it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.contract import UsageError
from gradgate.references.invertible.layer import NotInvertible

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip

from gradgate.in_torch import (  # noqa: E402 - after the skip
    AdditiveCoupling,
    AffineCoupling,
    InvertibleSequential,
    Keep,
    check_inverse,
)

METHODS = ("reversible", "moonwalk_mixed", "moonwalk")


def net(width: int = 3, dropout: float = 0.3) -> Any:
    return nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, width))


def blocks(count: int = 3) -> list[Any]:
    torch.manual_seed(0)
    return [AdditiveCoupling(net(), net()) for _ in range(count)]


def pair(method: str, layers: list[Any] | None = None, **more: Any) -> tuple[Any, Any]:
    """The layers with the method, and the same layers with plain backprop; float64, with equal parameters."""
    layers = blocks() if layers is None else layers
    return (
        InvertibleSequential(*copy.deepcopy(layers), method=method, **more).double(),
        nn.Sequential(*copy.deepcopy(layers)).double(),
    )


def start(rows: int = 5) -> Any:
    return torch.linspace(-1, 1, rows * 6, dtype=torch.float64).sin().reshape(rows, 6).requires_grad_()


def gradients(module: Any, x: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    module.zero_grad()
    x.grad = None
    (module(x) ** 3).sum().backward()
    return {"x": x.grad.clone()} | {name: p.grad.clone() for name, p in module.named_parameters()}


def close(one: dict[str, Any], other: dict[str, Any], rtol: float = 1e-9) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(one[n], other[n], rtol=rtol, atol=1e-10) for n in one)


class Linear(nn.Module):
    """A linear layer with an inverse that is off by a factor."""

    def __init__(self, factor: float = 1.0, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.factor = nn.Parameter(torch.tensor(scale)), factor

    def forward(self, x: Any) -> Any:
        return x * self.scale

    def inverse(self, y: Any) -> Any:
        return self.factor * y / self.scale


@pytest.mark.parametrize("method", METHODS)
def test_gradients_and_buffers_are_those_of_plain_backprop(method: str) -> None:
    ours, plain = pair(method)
    assert close(gradients(ours, start()), gradients(plain, start()))
    assert close(dict(ours.named_buffers()), dict(plain.named_buffers()))
    assert int(ours.flat()[0].f[1].num_batches_tracked) == 1


@pytest.mark.parametrize("method", METHODS)
def test_the_backward_pass_leaves_generator_and_mode_as_they_are(method: str) -> None:
    ours, _ = pair(method)
    y = ours(start())
    ours.eval()
    state = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(part.training for part in ours.modules())


def residual_bytes(module: Any, x: Any) -> int:
    from gradgate.hw_profiles.residuals import of_torch

    return of_torch(lambda: module(x), [x, *module.parameters(), *module.buffers()])


def test_what_is_kept_grows_with_depth_for_plain_and_mixed_alone() -> None:
    def growth(make: Callable[[list[Any]], Any]) -> int:
        big = torch.ones(64, 32, requires_grad=True)

        def of(depth: int) -> int:
            layers = [AdditiveCoupling(nn.Linear(16, 16), nn.Linear(16, 16)) for _ in range(depth)]
            return residual_bytes(make(layers), big)

        return (of(6) - of(3)) // 3

    assert growth(lambda layers: nn.Sequential(*layers)) > 64 * 32 * 4
    assert growth(lambda layers: InvertibleSequential(*layers, check=False)) == 0
    assert growth(lambda layers: InvertibleSequential(*layers, method="moonwalk", check=False)) == 0
    mixed = growth(lambda layers: InvertibleSequential(*layers, method="moonwalk_mixed", check=False))
    assert 0 <= mixed < growth(lambda layers: nn.Sequential(*layers))


@pytest.mark.parametrize("method", METHODS)
def test_gradients_go_to_visit_one_layer_after_the_other_and_no_grad_is_set(method: str) -> None:
    ours, plain = pair(method)
    exact = gradients(plain, start())
    found: dict[str, Any] = {}

    def visit(grads: dict[str, Any]) -> None:
        assert not found.keys() & grads.keys()
        assert len({name.partition(".")[0] for name in grads}) == 1
        found.update(grads)
        with torch.no_grad():
            for name in grads:
                ours.get_parameter(name).sub_(0.1 * grads[name])

    ours.visit = visit
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    x = start()
    torch.manual_seed(1)
    (ours(x) ** 3).sum().backward()
    assert close({**found, "x": x.grad}, exact)
    assert all(p.grad is None for p in ours.parameters())
    assert close(dict(ours.named_parameters()), {n: p - 0.1 * exact[n] for n, p in before.items()})


@pytest.mark.parametrize("method", METHODS[:2])
def test_a_layer_that_is_used_twice_gets_the_sum_and_visit_sees_it_once(method: str) -> None:
    torch.manual_seed(0)
    shared = AdditiveCoupling(nn.Linear(3, 3), nn.Linear(3, 3))
    layers = [shared, Linear(scale=1.5), shared]
    ours, plain = pair(method, layers)
    exact = gradients(plain, start())
    assert close(gradients(ours, start()), exact)
    calls: list[str] = []
    ours.visit = lambda grads: calls.extend(grads)
    ours(start()).sum().backward()
    assert sorted(calls) == sorted(dict(ours.named_parameters()))


def test_hooks_of_parameters_run_once_and_forward_hooks_of_functions_twice() -> None:
    ours, _ = pair("reversible", blocks(1), check=False)
    seen: list[str] = []
    ours.flat()[0].f[0].weight.register_hook(lambda grad: seen.append("parameter"))
    ours.flat()[0].register_forward_hook(lambda *given: seen.append("block"))
    ours.flat()[0].f.register_forward_hook(lambda *given: seen.append("F"))
    ours.flat()[0].f.register_full_backward_hook(lambda *given: seen.append("F backward"))
    ours(start()).sum().backward()
    assert sorted(seen) == ["F", "F", "F backward", "block", "parameter"]


@pytest.mark.parametrize("method", METHODS[:2])
def test_autocast_is_that_of_the_forward_pass_and_its_cache_is_left_alone(method: str) -> None:
    torch.manual_seed(0)
    seen: list[Any] = []
    f, g = nn.Linear(3, 3), nn.Linear(3, 3)
    weight: Any = g.weight
    f.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    ours = InvertibleSequential(AdditiveCoupling(f, g), method=method, check=False)
    x = torch.ones(2, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = ours(x)
        again = g(x[:, :3])  # the cast of g's weight must have a graph here
    (y.sum() + again.float().sum()).backward()
    assert seen == [torch.bfloat16, torch.bfloat16]
    plain = weight.grad.clone()
    weight.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        y = ours(x)
    y.sum().backward()
    assert torch.allclose(plain - weight.grad, torch.full((3, 3), 2.0), atol=0.05)
    assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("method", METHODS)
def test_a_second_derivative_is_refused_and_create_graph_alone_is_not(method: str) -> None:
    ours, plain = pair(method)
    x = start()
    torch.manual_seed(1)
    [grad] = torch.autograd.grad((ours(x) ** 3).sum(), x, create_graph=True)
    assert torch.allclose(grad, gradients(plain, start())["x"], rtol=1e-9, atol=1e-10)
    for wanted in (x, next(ours.parameters())):
        with pytest.raises(UsageError, match=r"cannot be differentiated again.*torch\.nn\.Sequential"):
            torch.autograd.grad((grad**2).sum(), wanted, retain_graph=True)


@pytest.mark.parametrize("method", METHODS)
def test_the_graph_can_be_retained(method: str) -> None:
    ours, _ = pair(method)
    x = start()
    y = (ours(x) ** 3).sum()
    [one] = torch.autograd.grad(y, x, retain_graph=True)
    [other] = torch.autograd.grad(y, x)
    assert torch.allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS[:2])
def test_what_was_overwritten_in_between_is_found_by_autograd(method: str) -> None:
    ours, _ = pair(method)
    x = start()
    y = ours(x)
    with torch.no_grad():
        next(ours.parameters()).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    inner = start() * 1
    y = ours(inner)
    with torch.no_grad():
        (y if method == "reversible" else inner).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_buffer_that_was_overwritten_in_between_is_refused() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("factor", torch.ones(3))

        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.factor

    ours = InvertibleSequential(AdditiveCoupling(Scaled(), nn.Linear(3, 3)))
    y = ours(torch.ones(2, 6))
    ours.flat()[0].f.factor.mul_(2)
    with pytest.raises(UsageError, match="its buffer factor was overwritten between the forward and the backward pass"):
        y.sum().backward()


def test_parameters_without_a_gradient_get_none_and_the_others_theirs() -> None:
    ours, plain = pair("reversible")
    for module in (ours, plain):
        for name, p in module.named_parameters():
            p.requires_grad_("f.0" not in name)
    x = start().detach()
    for module in (ours, plain):
        torch.manual_seed(1)
        (module(x) ** 3).sum().backward()
    found, exact = ({n: p.grad for n, p in m.named_parameters() if p.grad is not None} for m in (ours, plain))
    assert close(found, exact)
    assert not [name for name in found if "f.0" in name]


def test_state_dict_optimisers_and_nesting_are_those_of_a_sequential() -> None:
    ours, plain = pair("reversible")
    plain.load_state_dict(ours.state_dict())
    optimisers = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9) for module in (ours, plain)]
    for module in (ours, plain):
        gradients(module, start())
    for optimiser in optimisers:
        optimiser.step()
    assert close(dict(ours.named_parameters()), dict(plain.named_parameters()), 1e-6)
    nested = InvertibleSequential(ours, Linear()).double()
    assert len(nested.flat()) == 4
    assert nested.eval()(start()).shape == (5, 6)
    with torch.no_grad():
        assert torch.allclose(nested(start()), plain.eval()(start()))


def test_a_layer_without_an_inverse_is_refused_and_kept_if_asked() -> None:
    with pytest.raises(UsageError, match=r"layer 1 \(Linear\) has no inverse.*wrap it in Keep"):
        InvertibleSequential(Linear(), nn.Linear(6, 6))
    with pytest.raises(UsageError, match=r"layer 0 \(Linear\) has neither a vijp nor an inverse"):
        InvertibleSequential(nn.Linear(6, 6), method="moonwalk_mixed")
    with pytest.raises(UsageError, match="moonwalk has no reverse phase"):
        InvertibleSequential(Keep(nn.Linear(6, 6)), method="moonwalk")
    for method in METHODS[:2]:
        ours, plain = pair(method, [Linear(), Keep(nn.Linear(6, 5)), Linear(scale=0.5)])
        assert close(gradients(ours, start()), gradients(plain, start()))


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_inverse_is_found_in_the_first_call(method: str) -> None:
    words = "vijp" if method != "reversible" else "inverse"
    wrong = InvertibleSequential(Linear(), Linear(factor=1.1), method=method)
    with pytest.raises(NotInvertible, match=rf"layer 1 \(Linear\): its {words} is off by 0\.1"):
        wrong(torch.ones(2, 6, requires_grad=True))
    InvertibleSequential(Linear(), Linear(factor=1.1), method=method, check=False)(torch.ones(2, 6))


def test_check_inverse_finds_what_is_wrong_or_too_ill_conditioned_and_changes_nothing() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1e6

        def inverse(self, y: Any) -> Any:
            return y - 1e6

    layers = blocks(1)
    before = copy.deepcopy(layers[0].state_dict())
    state = torch.get_rng_state()
    x = start().detach().float()
    assert check_inverse(layers, x) < 1e-6
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(leaf, before[name]) for name, leaf in layers[0].state_dict().items())
    with pytest.raises(NotInvertible, match=r"layer 0 \(Shifted\).*too ill-conditioned for this dtype"):
        check_inverse([Shifted()], x)
    assert check_inverse([Shifted()], x.double()) < 1e-8
    with pytest.raises(NotInvertible, match="not finite"):
        check_inverse([Linear(scale=0.0)], x)


def test_functions_that_do_not_fit_their_half_are_refused() -> None:
    for coupling, wide in ((AdditiveCoupling, 1), (AffineCoupling, 3)):
        legal = r"\(5, 6\), the shift t and then the log-scale s' along axis 1" if wide == 3 else r"\(5, 3\)"
        words = (
            rf"F of {coupling.__name__} returned shape \(5, {wide}\); legal: shape {legal}, because F reads the second"
        )
        with pytest.raises(UsageError, match=words):
            coupling(nn.Linear(3, wide), nn.Linear(3, 3)).double()(start())
    with pytest.raises(UsageError, match=r"splits axis 1, and its input has shape \(5, 1\)"):
        AdditiveCoupling(nn.Linear(1, 1), nn.Linear(1, 1))(torch.ones(5, 1))
    with pytest.raises(UsageError, match=r"F is a function; legal: a torch\.nn\.Module"):
        AdditiveCoupling(lambda x: x, nn.Linear(1, 1))


@pytest.mark.parametrize("gradient", [True, False])
def test_a_function_that_does_not_fit_its_half_is_named_with_its_layer(gradient: bool) -> None:
    fits, wide = nn.Linear(3, 3), nn.Linear(3, 4)
    net = InvertibleSequential(AdditiveCoupling(fits, fits), AdditiveCoupling(fits, wide)).double()
    words = (
        r"layer 1 \(AdditiveCoupling\): G of AdditiveCoupling returned shape \(5, 4\); legal: shape \(5, 3\), because G"
    )
    with torch.set_grad_enabled(gradient), pytest.raises(UsageError, match=words):
        net(start())
    net = InvertibleSequential(AdditiveCoupling(fits, fits), AdditiveCoupling(nn.Linear(6, 6), fits)).double()
    with torch.set_grad_enabled(gradient), pytest.raises(RuntimeError, match="cannot be multiplied") as told:
        net(start())
    assert told.value.__notes__ == [
        "raised by F, which was given the second half, of shape (5, 3), of an input of shape (5, 6) that is split "
        "along axis 1",
        "raised by layer 1 (AdditiveCoupling)",
    ]


@pytest.mark.parametrize(("method", "what"), [("reversible", "inverse"), ("moonwalk_mixed", "vijp")])
def test_an_inverse_or_a_vijp_that_returns_nothing_is_refused(method: str, what: str) -> None:
    class Forgetful(nn.Module):
        def forward(self, x: Any) -> Any:
            return 2 * x

    setattr(Forgetful, what, lambda self, *given: None)
    with pytest.raises(
        NotInvertible, match=rf"layer 0 \(Forgetful\): its {what} returned a NoneType; legal: one tensor"
    ):
        InvertibleSequential(Forgetful(), method=method)(start())


def test_other_wrong_use_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="there are no layers"):
        InvertibleSequential()
    with pytest.raises(UsageError, match="unknown method"):
        InvertibleSequential(Linear(), method="backprop")
    with pytest.raises(UsageError, match="layer 0 is a function"):
        InvertibleSequential(lambda x: x)
    with pytest.raises(UsageError, match=r"the input is torch\.int64"):
        InvertibleSequential(Linear())(torch.ones(2, 6, dtype=torch.int64))
    ours, _ = pair("reversible")
    with pytest.raises(UsageError, match=r"does not work within torch\.func"):
        torch.func.grad(lambda x: ours(x).sum())(start().detach())
    with pytest.raises(UsageError, match=r"0\.f\.1 is a batch norm that trains"):
        InvertibleSequential(*blocks(1), method="moonwalk", coupled=False)(torch.ones(2, 6, requires_grad=True))


def test_a_function_that_changes_its_input_in_place_is_refused() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mul_(2)

        def inverse(self, y: Any) -> Any:
            return y / 2

    with pytest.raises(UsageError, match=r"layer 0 \(Doubled\) changes its input in place"):
        InvertibleSequential(Doubled())((torch.ones(2, 6) * 1).requires_grad_())
