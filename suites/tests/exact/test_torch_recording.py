"""A recorded PyTorch program gives for other inputs what a call gives, and what cannot be recorded is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("flint")

from gradgate.suites.exact import balls, decisions  # noqa: E402
from gradgate.suites.exact.on_torch import evaluate, evaluate_again, recording  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # from PyTorch's first jvp
Inputs = list[Any]


def drawn(seed: int) -> Inputs:
    numbers = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(3, 4, generator=numbers, dtype=torch.float64) for _ in range(2))
    y = y.T.contiguous().T  # in another order in memory
    return [x, y, torch.randint(0, 3, (5,), generator=numbers), torch.rand(3, 4, generator=numbers) > 0.5]


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where((x > -1) & ~(x >= 1), grad, torch.zeros_like(grad))


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, *others: Any) -> Any:
        leaf = x.detach().requires_grad_()
        value = function(leaf, *others)
        return [value.detach(), *torch.autograd.grad(value.sum(), leaf)]

    return run


def in_place(x: Any, y: Any, at: Any, mask: Any) -> Any:
    made = torch.zeros(3, 4, dtype=torch.float64)
    made[1] = x[0] * 2
    made.add_(y).t()[2].mul_(3)
    made[mask] = 0.5
    x.sub_(made)  # an input
    return [made, x]


def booleans_in_place(x: Any, y: Any, at: Any, mask: Any) -> Any:
    found = torch.zeros(3, 4, dtype=torch.bool)
    found[0] = x[0] > 0
    found |= y > x
    found.logical_and_(mask)
    return [found.double() * x, found, found.sum()]


def moved(x: Any, y: Any, at: Any, mask: Any) -> Any:
    taken = x[at] + torch.cat([y, x[:2]])
    return [
        taken.index_add(0, at, taken),
        torch.stack([x, y]).flip(0),
        torch.nn.functional.pad(x, (1, 2), value=0.3),
        y.masked_fill(mask, 7.0),
        torch.roll(x, 1, 0).expand(2, 3, 4),
        x.gather(1, x.argsort(1)),
    ]


def ranked(x: Any, y: Any, at: Any, mask: Any) -> Any:
    most, places = x.max(1)
    return [most, places, *x.sort(0), *y.topk(2), torch.maximum(x, y).amin(1), x.cummax(1).values]


def forward_mode(x: Any, y: Any, at: Any, mask: Any) -> Any:
    def loss(a: Any) -> Any:
        return (a[at] * y[:1]).sin().sum() + a.new_zeros(()) * a.sum()

    zeros = torch._efficientzerotensor(tuple(x.shape), dtype=x.dtype)  # forward mode makes them for what is constant
    copied = zeros.to(torch.float32) + 0.0
    copied[0] += x[0].float()
    derivatives = [*torch.func.jvp(torch.func.grad(loss), (x,), (y,)), *torch.func.vjp(loss, x)[1](x.sum())]
    return [*derivatives, zeros * x + y, copied, zeros + copied]


def shifted(x: Any, y: Any, at: Any, mask: Any) -> Any:
    bits = (at * 40503 ^ (at >> 1)) & 1
    at <<= 1  # an input
    return [torch.where(bits > 0, x[bits, 0], y[bits, 1]), bits, at, at[bits]]


def systems(x: Any, y: Any, at: Any, mask: Any) -> Any:
    a, b = x.T @ x + torch.eye(4, dtype=x.dtype), y[:, :3] + 4 * torch.eye(3, dtype=x.dtype)
    return [
        torch.linalg.solve(a, y.T),
        torch.linalg.solve(b.T, x),
        torch.linalg.inv(b),
        torch.linalg.det(b),
        *torch.linalg.slogdet(a),
        torch.linalg.lu_factor(a)[0],
    ]


def shapes_alone(x: Any, y: Any, at: Any, mask: Any) -> Any:
    shape = torch.nn.functional.pad(x.to("meta").expand(2, *x.shape), (1, 1)).sum(0).shape
    return [x.new_ones(shape).cumsum(0)[:, 1:-1] * x]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a gradient": gradient(lambda x, y, at, mask: (torch.softmax(x * y, 1) * x.exp()).sum(0) / (1 + y.abs().mean())),
    "a function of autograd": gradient(lambda x, y, at, mask: Clipped.apply(x) * Clipped.apply(y)),
    "constants of formulas": gradient(lambda x, y, at, mask: torch.erf(x) + torch.nn.functional.gelu(x) * x.var()),
    "a norm": gradient(lambda x, y, at, mask: x / torch.linalg.vector_norm(x, dim=1, keepdim=True)),
    "where": gradient(lambda x, y, at, mask: torch.where(x > y, x, 0.1 * y) + (x > 0).double() * y),
    "taken apart": gradient(lambda x, y, at, mask: torch.nn.functional.huber_loss(x, y) + torch.logaddexp(x, y)),
    "a layer": gradient(lambda x, y, at, mask: torch.nn.functional.layer_norm(x, (4,)) @ y.T),
    "under vmap": lambda x, y, at, mask: torch.func.vmap(torch.func.grad(lambda a, b: (a * b).relu().sum()))(x, y),
    "in place": in_place,
    "booleans in place": booleans_in_place,
    "moved": moved,
    "ranked": ranked,
    "forward mode": forward_mode,
    "shapes alone": shapes_alone,
    "shifted": shifted,
    "systems": systems,
    "the gradient of a system": gradient(lambda x, y, at, mask: torch.linalg.solve(x.T @ x + torch.eye(4), y.T)),
}
OUTSIDE = torch.ones(4, dtype=torch.float64)


def report(run: Callable[[Any], Any]) -> tuple[Any, list[tuple[str, str]], decisions.Decisions]:
    """Outputs with their radii, operations with their lines, and decisions."""
    operations: list[tuple[str, str]] = []
    found: decisions.Decisions = {}
    outputs: list[Any] = []

    def watched(watch: Any) -> None:
        def one(operation: str, line: str, value: Any) -> None:
            operations.append((operation, line))
            watch(operation, line, [value])

        outputs.extend(run(one).outputs)

    decisions.recorded(watched, found)
    with balls.digits(60):
        written = [
            [ball.str(70, more=True) for ball in leaf.ravel().tolist()] if balls.is_balls(leaf) else leaf.tolist()
            for leaf in outputs
        ]
    return written, operations, found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recording_gives_what_a_call_gives(name: str) -> None:
    program, calls = PROGRAMS[name], []
    recordings: Any = {}

    def again(seed: int) -> Any:
        inputs = drawn(seed)

        def call() -> Any:
            calls.append(seed)
            return program(*inputs)

        return report(lambda watch: evaluate_again(call, inputs, recordings, watch=watch))

    for seed in (0, 1, 2, 0):
        inputs = drawn(seed)
        wanted = report(lambda watch, inputs=inputs: evaluate(lambda: program(*inputs), watch=watch))
        assert again(seed) == wanted
    assert calls == [0]


def doubled(place: int) -> Callable[[str, str, Any], Any]:
    """A watch that puts twice its value in the place of what an operation gives."""
    count = -1

    def watch(operation: str, line: str, value: Any) -> Any:
        nonlocal count
        count += 1
        return value * balls.exact(2) if count == place and balls.is_balls(value) else None

    return watch


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_is_replaced_in_a_recording_as_in_a_call(name: str) -> None:
    program, inputs = PROGRAMS[name], drawn(0)
    recordings: Any = {}
    written: list[Any] = []
    evaluate_again(lambda: program(*inputs), inputs, recordings)
    with balls.digits(60):
        for place in range(10):
            called = evaluate(functools.partial(program, *drawn(0)), watch=doubled(place)).outputs
            played = evaluate_again(lambda: pytest.fail("it is called"), drawn(0), recordings, watch=doubled(place))
            written.append(text := [str(balls.floats(leaf).tolist()) for leaf in called])
            assert [str(balls.floats(leaf).tolist()) for leaf in played.outputs] == text
    assert any(text != written[0] for text in written)


def _read(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x * y[0, 0].item()


def _decided(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x if (y > 0).all() else y


def _listed(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x if all((y[0] > 0).tolist()) else y


def _selected(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x[x > 0].sum() + torch.masked_select(y, mask).sum()


def _kept(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x * OUTSIDE


def _written(x: Any, y: Any, at: Any, mask: Any) -> Any:
    OUTSIDE.copy_(x[0])
    return x * 2


def _compared(x: Any, y: Any, at: Any, mask: Any) -> Any:
    return x if torch.equal(x, y) else y


CALLED: dict[str, Callable[..., Any]] = {
    "a number that is read": _read,
    "an if": _decided,
    "booleans in a list": _listed,
    "as many as are true": _selected,
    "a tensor from outside": _kept,
    "a tensor outside that is written": _written,
    "torch.equal": _compared,
    "random numbers": lambda x, y, at, mask: x * torch.rand(4, dtype=torch.float64),
    "numbers drawn in place": lambda x, y, at, mask: x + torch.empty(4, dtype=torch.float64).uniform_(),
    "memory": lambda x, y, at, mask: x + torch.from_numpy(y.numpy()),
    "complex numbers": lambda x, y, at, mask: torch.fft.fft(x).abs(),
    "other bits": lambda x, y, at, mask: x + (y.view(torch.int64) & 1).double(),
    "a rule that reads floats": lambda x, y, at, mask: torch.linalg.qr(torch.cat([x, y]))[1],
}


@pytest.mark.parametrize("name", CALLED)
def test_what_may_go_another_way_is_called_each_time(name: str) -> None:
    calls: list[int] = []
    recordings: Any = {}
    for seed in range(3):
        inputs = drawn(seed)

        def call(seed: int = seed, inputs: Inputs = inputs) -> Any:
            calls.append(seed)
            return CALLED[name](*inputs)

        evaluate_again(call, inputs, recordings)
    assert calls == [0, 1, 2]


def test_other_shapes_and_other_digits_are_called() -> None:
    calls: list[str] = []
    recordings: Any = {}
    for name, x, digits in (("first", 3, 60), ("again", 3, 60), ("longer", 4, 60), ("finer", 3, 120), ("last", 3, 120)):
        inputs = [torch.arange(1.0, x + 1, dtype=torch.float64)]

        def call(name: str = name, inputs: Inputs = inputs) -> Any:
            calls.append(name)
            return inputs[0].log()

        found = evaluate_again(call, inputs, recordings, digits).outputs[0]
        assert found.shape == (x,)
        assert float(found[1].rad()) < 10.0**-digits
    assert calls == ["first", "longer", "finer"]


def test_a_tie_in_a_recording_is_told_as_in_a_call() -> None:
    recordings: Any = {}
    errors = []
    for number in (2.0, 3.0):
        x = torch.tensor([number], dtype=torch.float64)

        def run(x: Any = x) -> Any:
            return (x.sqrt() * x.sqrt() > 3).double()

        for how in (evaluate, lambda call, x=x: evaluate_again(call, [x], recordings)):
            try:
                how(run)
            except balls.Undecided as error:
                errors.append(str(error))
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert errors[0].startswith("aten.gt.Scalar: ")


def test_a_long_program_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LONGEST", 3)
    recordings: Any = {}
    x = torch.ones(2, dtype=torch.float64)
    evaluate_again(lambda: x + 1 + 1 + 1 + 1, [x], recordings)
    assert recordings == {balls.DIGITS: None}
