"""Every rule against PyTorch in float64, and its derivatives against finite differences of it, to thirty digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")

from gradgate.suites.exact import balls  # noqa: E402
from gradgate.suites.exact.on_torch import evaluate  # noqa: E402
from gradgate.suites.exact.on_torch.rules import RULES, Rule  # noqa: E402
from gradgate.suites.tests.exact.torch_cases_axes import AXES, PIECEWISE  # noqa: E402
from gradgate.suites.tests.exact.torch_cases_numbers import NUMBERS  # noqa: E402
from gradgate.suites.tests.exact.torch_cases_structure import STRUCTURE  # noqa: E402
from gradgate.suites.tests.exact.torch_inputs import made  # noqa: E402

SMOOTH = {**NUMBERS, **STRUCTURE, **AXES}

pytestmark = pytest.mark.filterwarnings("ignore:torch.*deprecated", "ignore:Using padding")


def cases(table: dict[str, Any]) -> list[Any]:
    found = []
    for name, entry in table.items():
        many = entry if isinstance(entry, list) else [entry]
        found += [pytest.param(name, *case, id=f"{name}-{i}" if i else name) for i, case in enumerate(many)]
    return found


def test_every_rule_has_a_case() -> None:
    assert set(RULES) == set(SMOOTH) | set(PIECEWISE)


LOOSE = {"polygamma": 1e-8, "hardsigmoid_backward": 1e-7}  # PyTorch itself is no more accurate


def watched(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of a rule."""
    calls: list[str] = []
    rule = RULES[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return rule.function(*args, **kwargs)

    monkeypatch.setitem(RULES, name, Rule(function, rule.kind))
    return calls


def near(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    if balls.is_balls(found):
        found = balls.floats(found)
    np.testing.assert_allclose(found, wanted.detach().numpy(force=True), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "function", "specs"), cases(SMOOTH) + cases(PIECEWISE))
def test_a_rule_gives_what_pytorch_gives(
    name: str, function: Callable[..., Any], specs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    calls = watched(name, monkeypatch)
    if name.endswith("_backward") and name in SMOOTH:
        evaluate(lambda: gradient(weighted(function, []), inputs))
    found = evaluate(function, *inputs)
    near(found.outputs[0], function(*inputs), LOOSE.get(name, 1e-11))
    assert calls
    assert not found.exits


def weighted(function: Callable[..., Any], weights: list[Any]) -> Callable[..., Any]:
    def scalar(*inputs: Any) -> Any:
        answer = function(*inputs)
        while len(weights) < 1:
            weights.append(torch.from_numpy(np.random.default_rng(1).standard_normal(tuple(answer.shape))))
        return (answer * weights[0]).sum()

    return scalar


def gradient(scalar: Callable[..., Any], inputs: list[Any], create: bool = False) -> list[Any]:
    return list(torch.autograd.grad(scalar(*inputs), inputs, create_graph=create, materialize_grads=True))


STEP = flint.arb(2.0**-66)


@pytest.mark.parametrize(("name", "function", "specs"), cases(SMOOTH))
def test_a_derivative_is_what_differences_say(name: str, function: Callable[..., Any], specs: Any) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    directions = made(specs, seed=8)
    scalar = weighted(function, [])
    scalar(*inputs)
    found = evaluate(lambda: gradient(scalar, inputs))
    for output, wanted in zip(found.outputs, gradient(scalar, inputs), strict=True):
        near(output, wanted, 1e-8 if name == "digamma" else 1e-11)  # PyTorch's trigamma has ten digits
    with balls.digits(60):
        slope = sum(
            balls.whole(g * balls.exact(v.numpy())).sum() for g, v in zip(found.outputs, directions, strict=True)
        )
        values = []
        for sign in (1, -1):
            moved = [
                (t, balls.exact(t.detach().numpy()) + sign * STEP * balls.exact(v.numpy()))
                for t, v in zip(inputs, directions, strict=True)
            ]
            values.append(evaluate(lambda: scalar(*inputs), given=moved).outputs[0][()])
        difference = (values[0] - values[1]) / (2 * STEP)
        assert abs(difference - slope) < 1e-30 * (1 + abs(slope))


TWICE = (
    "tanh",
    "pow",
    "mul",
    "div",
    "gelu",
    "silu",
    "softplus",
    "_softmax",
    "_log_softmax",
    "convolution",
    "mm",
    "bmm",
    "addmm",
    "_linalg_solve_ex",
    "linalg_inv_ex",
    "var",
    "prod",
    "cumprod",
    "logsumexp",
    "amax",
    "elu",
    "gather",
    "index_put",
    "embedding",
    "avg_pool2d",
    "_fft_r2c",
    "linalg_cholesky_ex",
    "where",
    "linalg_vector_norm",
    "cumsum",
)


@pytest.mark.parametrize(("name", "function", "specs"), cases({name: SMOOTH[name] for name in TWICE}))
def test_a_second_derivative_is_pytorchs(name: str, function: Callable[..., Any], specs: Any) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    scalar = weighted(lambda *given: function(*given) ** 2, [])

    def second() -> list[Any]:
        first = gradient(scalar, inputs, create=True)
        return gradient(lambda *_: sum((g * g.detach()).sum() for g in first), inputs)

    for output, wanted in zip(evaluate(second).outputs, second(), strict=True):
        near(output, wanted, 1e-9)
