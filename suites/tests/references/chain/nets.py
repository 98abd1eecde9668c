"""Models, a training step, and the comparison of two steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradgate.references.chain.in_torch.profile import LiveBytes
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget


class Loss(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x * x).mean()


def dense(depth: int = 6, width: int = 16) -> Any:
    widths = [width * (1 + n % 3) for n in range(depth + 1)]
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers)


def image() -> Any:
    """A network with norms, dropout, in-place layers, a view and a change of resolution."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.InstanceNorm2d(16, affine=True, track_running_stats=True),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (dense, (8, 16)),
    "image": (image, (4, 3, 16, 16)),
}


def budgets(costs: Costs) -> list[int]:
    least, all_saved = minimum_budget(costs), simulate(classic.save_all(costs.stages), costs).peak
    return [least, (3 * least + all_saved) // 4, (least + all_saved) // 2, all_saved]


def step(module: Any, x: Any, loss: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """One training step from a fixed random state: loss, gradients, buffers, and the peak of newly allocated bytes."""
    torch.manual_seed(7)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    x.grad = None
    with LiveBytes() as meter:
        value = (loss or Loss())(module(x))
        value.backward()
    return {
        "loss": value.detach(),
        "grads": [p.grad.clone() for p in module.parameters()] + ([x.grad] if x.requires_grad else []),
        "buffers": [b.clone() for b in module.buffers()],
        "random": torch.get_rng_state(),
        "peak": meter.peak,
    }


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert torch.equal(found["loss"], wanted["loss"])
    for kind in ("grads", "buffers"):
        assert all(torch.equal(a, b) for a, b in zip(found[kind], wanted[kind], strict=True)), kind
    assert torch.equal(found["random"], wanted["random"])


RANDOM_STATE = 5056
