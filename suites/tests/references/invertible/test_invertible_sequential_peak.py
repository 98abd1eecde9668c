"""The peak bytes of `InvertibleSequential` in its backward pass: no halves are joined between two couplings."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gradgate.in_torch import (  # noqa: E402 - after the check that PyTorch is there
    AdditiveCoupling,
    AffineCoupling,
    InvertibleSequential,
    Keep,
)
from gradgate.references.chain.in_torch.profile import LiveBytes  # noqa: E402
from gradgate.references.invertible.in_torch import steps  # noqa: E402

nn = torch.nn
DEPTH, WIDTH, ROWS = 6, 32, 512
HALF = ROWS * WIDTH // 2 * 4
"""Bytes of a half."""


def net(coupling: Any = AdditiveCoupling, dims: tuple[int, ...] = (1,)) -> Any:
    torch.manual_seed(0)
    wide = WIDTH // 2 * (2 if coupling is AffineCoupling else 1)
    made = [
        coupling(nn.Linear(WIDTH // 2, wide), nn.Linear(WIDTH // 2, wide), dim=dims[i % len(dims)])
        for i in range(DEPTH)
    ]
    return InvertibleSequential(*made, check=False)


def halves_at_peak(net: Any) -> float:
    """The largest number of bytes made in the backward pass and alive at once, in halves; without gradients."""
    x = torch.randn(ROWS, WIDTH).requires_grad_()
    y, h = net(x), torch.randn(ROWS, WIDTH)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    with LiveBytes() as meter:
        torch.autograd.backward(y, h)
    return float(meter.peak / HALF)


def test_halves_are_not_joined_between_couplings(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = halves_at_peak(net())
    kept = steps.CouplingStep._halves

    def joined(self: Any, first: Any, second: Any) -> Any:
        return steps.whole(kept(self, first, second))

    monkeypatch.setattr(steps.CouplingStep, "_halves", joined)
    assert lean < 7.5 < 12 < halves_at_peak(net())


@pytest.mark.parametrize("coupling", [AdditiveCoupling, AffineCoupling])
@pytest.mark.parametrize("between", ["another axis", "kept layer", "nothing"])
def test_gradients_are_those_of_joined_halves(coupling: Any, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> list[Any]:
        torch.manual_seed(1)
        layers: list[Any] = [coupling(*(nn.Linear(4, 8 if coupling is AffineCoupling else 4) for _ in "fg"), dim=1)]
        if between == "another axis":
            layers.append(coupling(*(Rows(coupling is AffineCoupling) for _ in "fg"), dim=0))
        if between == "kept layer":
            layers.append(Keep(nn.Tanh()))
        layers.append(coupling(*(nn.Linear(4, 8 if coupling is AffineCoupling else 4) for _ in "fg"), dim=-1))
        made = InvertibleSequential(*layers).double()
        x = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
        made(x).square().sum().backward()
        return [x.grad, *(p.grad for p in made.parameters())]

    found = gradients()
    kept = steps.CouplingStep._halves
    monkeypatch.setattr(steps.CouplingStep, "_halves", lambda self, *two: steps.whole(kept(self, *two)))
    assert all(torch.equal(a, b) for a, b in zip(found, gradients(), strict=True))


class Rows(nn.Module):
    """A function of a half whose first axis was split."""

    def __init__(self, affine: bool) -> None:
        super().__init__()
        self.affine, self.inner = affine, nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        return torch.cat([x, x * 0.5], 0) if self.affine else x
