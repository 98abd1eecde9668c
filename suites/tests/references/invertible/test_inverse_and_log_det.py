"""The public inverse and log-determinant of invertible networks, against the whole Jacobian, in both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate.references.contract import UsageError

WIDTH, ROWS = 6, 4


def _weights() -> list[dict[str, Any]]:
    """Of three couplings: matrices of F and G; the second and third are affine."""
    rng = np.random.default_rng(0)
    return [{name: 0.5 * rng.standard_normal((3, 3 * (1 + (n > 0)))) for name in "fg"} for n in range(3)]


def _torch() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    torch = pytest.importorskip("torch")
    from gradgate.in_torch import AdditiveCoupling, AffineCoupling, InvertibleSequential

    class Doubled(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            return 2 * x

        def inverse(self, y: Any) -> Any:
            return y / 2

        def log_det(self, x: Any) -> Any:
            return torch.full(x.shape[:1], WIDTH * np.log(2), dtype=x.dtype)

    def linear(matrix: Any) -> Any:
        made = torch.nn.Linear(*matrix.shape, dtype=torch.float64)
        with torch.no_grad():
            made.weight.copy_(torch.from_numpy(matrix.T))
            made.bias.zero_()
        return torch.nn.Sequential(made, torch.nn.Tanh())

    weights = _weights()
    kinds = (AdditiveCoupling, AffineCoupling, AffineCoupling)
    couplings = [kind(linear(w["f"]), linear(w["g"])) for kind, w in zip(kinds, weights, strict=True)]
    net = InvertibleSequential(couplings[0], InvertibleSequential(couplings[1], Doubled()), couplings[2])

    def numpy(function: Any) -> Callable[..., Any]:
        def called(x: Any) -> Any:
            found = function(torch.from_numpy(x))
            return tuple(t.detach().numpy() for t in found) if isinstance(found, tuple) else found.detach().numpy()

        return called

    return numpy(net), numpy(net.inverse), numpy(net.with_log_det)


def _jax() -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    jax = pytest.importorskip("jax")
    from gradgate import in_jax

    jnp = jax.numpy

    def half(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p)

    doubled = in_jax.invertible_layer(
        lambda p, x: 2 * x, lambda p, y: y / 2, log_det=lambda p, x: jnp.full(x.shape[:1], WIDTH * np.log(2))
    )
    layers = [
        in_jax.additive_coupling(half, half),
        in_jax.affine_coupling(half, half),
        doubled,
        in_jax.affine_coupling(half, half),
    ]
    weights = _weights()
    params = [weights[0], weights[1], {}, weights[2]]

    def wide(function: Any) -> Callable[..., Any]:
        def called(x: Any) -> Any:
            with jax.enable_x64(True):
                return jax.tree.map(np.asarray, function(jax.tree.map(jnp.asarray, params), jnp.asarray(x)))

        return called

    return (
        wide(in_jax.invertible_sequential(layers)),
        wide(lambda p, y: in_jax.inverse_of(layers, p, y)),
        wide(lambda p, x: in_jax.with_log_det(layers, p, x)),
    )


@pytest.mark.parametrize("made", [_torch, _jax], ids=["torch", "jax"])
def test_the_inverse_and_the_log_determinant_are_those_of_the_network(made: Any) -> None:
    forward, inverse, with_log_det = made()
    x = np.random.default_rng(1).standard_normal((ROWS, WIDTH))
    y = forward(x)
    assert np.abs(inverse(y) - x).max() < 1e-12
    again, log_det = with_log_det(x)
    assert np.abs(again - y).max() < 1e-14
    step = 1e-6 * np.eye(WIDTH)
    for n in range(ROWS):
        jacobian = (forward(x[n] + step) - forward(x[n] - step)) / 2e-6
        sign, wanted = np.linalg.slogdet(jacobian)
        assert sign == 1
        assert abs(log_det[n] - wanted) < 1e-7
    assert np.ptp(log_det) > 1e-3  # it depends on the sample


def test_a_layer_without_an_inverse_or_a_log_determinant_is_refused_in_words_in_torch() -> None:
    torch = pytest.importorskip("torch")
    from gradgate.in_torch import AdditiveCoupling, InvertibleSequential, Keep

    nn, x = torch.nn, torch.randn(ROWS, WIDTH)
    net = InvertibleSequential(AdditiveCoupling(nn.Linear(3, 3), nn.Linear(3, 3)), Keep(nn.Linear(6, 6)))
    with pytest.raises(UsageError, match=r"layer 1 \(Keep\) has no inverse"):
        net.inverse(x)
    with pytest.raises(UsageError, match=r"layer 1 \(Keep\): it has no log-determinant"):
        net.with_log_det(x)
    split = InvertibleSequential(AdditiveCoupling(nn.Identity(), nn.Identity(), dim=0))
    with pytest.raises(UsageError, match="splits axis 0"):
        split.with_log_det(x)


def test_a_layer_without_an_inverse_or_a_log_determinant_is_refused_in_words_in_jax() -> None:
    pytest.importorskip("jax")
    from gradgate import in_jax

    x = np.ones((ROWS, WIDTH), np.float32)
    with pytest.raises(UsageError, match="no inverse"):
        in_jax.inverse_of([in_jax.keep(lambda p, x: x)], [{}], x)
    split = in_jax.additive_coupling(lambda p, x: x, lambda p, x: x, axis=0)
    with pytest.raises(UsageError, match="splits axis 0"):
        in_jax.with_log_det([split], [{"f": {}, "g": {}}], x)
    plain = in_jax.invertible_layer(lambda p, x: x, lambda p, y: y)
    with pytest.raises(UsageError, match="no log-determinant"):
        in_jax.with_log_det([plain], [{}], x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_ordinary_autocast_block(dtype: str) -> None:
    """Linear layers give 16 bits there and leave what does not pass through one as it is."""
    torch = pytest.importorskip("torch")
    from gradgate.in_torch import (
        AdditiveCoupling,
        AffineCoupling,
        InvertibleSequential,
        LinearAttention,
        linear_attention,
        selective_scan,
    )

    torch.manual_seed(0)
    nn = torch.nn
    x, decay = torch.randn(2, 12, 6, requires_grad=True), -torch.rand(6, 4)
    step, project = nn.Linear(6, 6), nn.Linear(6, 8)

    def scanned() -> Any:
        b, c = project(x).chunk(2, -1)
        return selective_scan(decay, b, c, x, delta=nn.functional.softplus(step(x)))

    def attended() -> Any:
        return linear_attention(step(x), x, x)

    couplings = AdditiveCoupling(nn.Linear(3, 3), nn.Linear(3, 3)), AffineCoupling(nn.Linear(3, 6), nn.Linear(3, 6))
    layer, net = LinearAttention(6, heads=2), InvertibleSequential(*couplings)
    for function in (scanned, attended, lambda: layer(x), lambda: net(x[:, 0])):
        found = []
        for enabled in (True, False):
            with torch.autocast("cpu", getattr(torch, dtype), enabled=enabled):
                y = function()
            found.append((y.detach().float(), torch.autograd.grad(y.float().square().mean(), x)[0]))
        for one, other in zip(*found, strict=True):
            assert float((one - other).norm() / other.norm()) < 0.05
        with pytest.raises(UsageError, match="one dtype"):  # without autocast dtypes that differ are refused
            selective_scan(decay, x[..., :4].half(), x[..., :4], x, delta=x)
