"""Operations that PyTorch decomposes: layers, losses and optimisers, against PyTorch and against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")

from gradgate.suites.exact import balls  # noqa: E402
from gradgate.suites.exact.on_torch import evaluate  # noqa: E402

F = torch.nn.functional
STEP = flint.arb(2.0**-66)
CLASSES = torch.tensor([2, 0, 1])


def recurrent(kind: str) -> Callable[..., Any]:
    torch.manual_seed(4)
    layer = getattr(torch.nn, kind)(2, 3, num_layers=2, batch_first=True, dtype=torch.float64)
    return lambda x: layer(x)[0]


def attended(x: Any) -> Any:
    torch.manual_seed(4)
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    return layer(x, x, x)[0]


def batch_norm_twice(x: Any) -> Any:
    layer = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    layer(torch.arange(15.0, dtype=x.dtype).reshape(5, 3) ** 2 / 7)
    layer.eval()
    return layer(x) * layer.running_var


COMPOUNDS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), [(2, 3), (3,), (3,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), [(2, 6, 3), (6,), (6,)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [(7, 3), (3,), (3,)]),
    "batch_norm at rest": (
        lambda x, w, b: F.batch_norm(x, torch.ones(3, dtype=x.dtype) / 3, torch.full((3,), 0.7, dtype=x.dtype), w, b),
        [(2, 3), (3,), (3,)],
    ),
    "batch_norm that keeps moments": (batch_norm_twice, [(5, 3)]),
    "instance_norm": (lambda x: F.instance_norm(x), [(2, 3, 5)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), [(2, 3), (3,)]),
    "mse_loss": (F.mse_loss, [(7,), (7,)]),
    "l1_loss": (F.l1_loss, [(7,), (7,)]),
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.3), [(7,), (7,)]),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, delta=0.3), [(7,), (7,)]),
    "binary_cross_entropy": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), [(7,), (7,)]),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, [(7,), (7,)]),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(0), y.softmax(0), reduction="batchmean"), [(7,), (7,)]),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, torch.tensor([1.0, -1.0, 1.0])), [(3,)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1), [(3, 3)]),
    "cross_entropy with weights": (
        lambda x: F.cross_entropy(x, CLASSES, torch.tensor([0.1, 0.2, 0.4], dtype=x.dtype), ignore_index=1),
        [(3, 3)],
    ),
    "hardswish": (lambda x: F.hardswish(3 * x), [(9,)]),
    "hardsigmoid": (lambda x: F.hardsigmoid(3 * x), [(9,)]),
    "mish": (F.mish, [(9,)]),
    "glu": (F.glu, [(8,)]),
    "prelu": (F.prelu, [(9,), (1,)]),
    "selu": (F.selu, [(9,)]),
    "softshrink": (lambda x: F.softshrink(x, 0.3), [(9,)]),
    "hardshrink": (lambda x: F.hardshrink(x, 0.3), [(9,)]),
    "tanhshrink": (F.tanhshrink, [(9,)]),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y), [(2, 3), (2, 3)]),
    "normalize": (lambda x: F.normalize(x), [(2, 3)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(1, 2, 3, 2)] * 3),
    "attention of several heads": (attended, [(1, 3, 4)]),
    "einsum": (lambda x, y: torch.einsum("abc,cd->bad", x, y), [(2, 3, 4), (4, 2)]),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), [(3, 2), (3, 4), (2, 2, 4)]),
    "lstm": (recurrent("LSTM"), [(1, 3, 2)]),
    "gru": (recurrent("GRU"), [(1, 3, 2)]),
    "fold": (lambda x: F.fold(F.unfold(x, 2), (3, 4), 2), [(1, 2, 3, 4)]),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2, 1, 1), [(1, 2, 5)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), [(1, 1, 2, 3)]),
    "interpolate linearly": (lambda x: F.interpolate(x, size=(3, 5), mode="bilinear"), [(1, 1, 2, 3)]),
    "dropout": (lambda x: torch.manual_seed(1) and F.dropout(x, 0.3), [(9,)]),
    "repeat_interleave": (lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0), [(3, 2)]),
    "logdet": (lambda x: torch.logdet(x @ x.T + torch.eye(3, dtype=x.dtype)), [(3, 3)]),
    "pinv of a tall one": (lambda x: torch.linalg.lstsq(x.T @ x, x.T @ x[:, :1]).solution, [(4, 2)]),
    "sums of lists": (lambda x, y: torch.stack(torch._foreach_add([x, y], [y, x], alpha=0.3)), [(3,), (3,)]),
}

UNKNOWN = {"pinv of a tall one", "interpolate linearly"}
SIXTH = {"hardsigmoid": 1e-7}  # PyTorch's constant 1/6 has only float32 digits


def inputs_of(shapes: list[tuple[int, ...]], seed: int = 5) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [torch.from_numpy(generator.standard_normal(shape)).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("name", [name for name in COMPOUNDS if name not in UNKNOWN])
def test_a_compound_and_its_derivative_agree_with_pytorch_and_with_differences(name: str) -> None:
    function, shapes = COMPOUNDS[name]
    inputs, directions = inputs_of(shapes), inputs_of(shapes, seed=8)
    weight = torch.from_numpy(np.random.default_rng(1).standard_normal(tuple(function(*inputs).shape)))

    def scalar() -> Any:
        return (function(*inputs) * weight).sum()

    def both() -> Any:
        value = scalar()
        return [value, *torch.autograd.grad(value, inputs, materialize_grads=True)]

    found = evaluate(both).outputs
    for one, other in zip(found, both(), strict=True):
        tolerance = SIXTH.get(name, 1e-11)
        np.testing.assert_allclose(balls.floats(one), other.detach().numpy(), rtol=tolerance, atol=tolerance)
    with balls.digits(60):
        slope = sum((g * balls.exact(v.detach().numpy())).sum() for g, v in zip(found[1:], directions, strict=True))
        values = []
        for sign in (1, -1):
            pairs = zip(inputs, directions, strict=True)
            moved = [(t, balls.exact(t.detach()) + sign * STEP * balls.exact(v.detach())) for t, v in pairs]
            values.append(evaluate(scalar, given=moved).outputs[0][()])
        assert abs((values[0] - values[1]) / (2 * STEP) - slope) < 1e-30 * (1 + abs(slope))


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_what_has_no_rule_is_unknown_by_its_name(name: str) -> None:
    function, shapes = COMPOUNDS[name]
    with pytest.raises(balls.Unknown, match=r"aten\.\w+.* has no rule"):
        evaluate(lambda *x: function(*x).sum().backward(), *inputs_of(shapes))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("foreach", [True, False])
def test_steps_of_an_optimiser_are_followed(kind: str, foreach: bool) -> None:
    def train() -> Any:
        torch.manual_seed(0)
        p = torch.linspace(0.1, 1.0, 3, dtype=torch.float64).requires_grad_()
        q = torch.full((2,), 0.3, dtype=torch.float64, requires_grad=True)
        optimiser = getattr(torch.optim, kind)([p, q], lr=0.1, foreach=foreach)
        for _ in range(2):
            optimiser.zero_grad()
            (p.square().sum() * q.exp().sum()).backward()
            optimiser.step()
        return [p, q]

    found = evaluate(train)
    for one, other in zip(found.outputs, train(), strict=True):
        np.testing.assert_allclose(balls.floats(one), other.detach().numpy(), rtol=1e-12, atol=1e-14)
        assert all(not ball.is_exact() and ball.rad() < 1e-50 for ball in one)
    assert not found.exits
