"""Random models of real layers whose calls form a graph with skips, for the test of budgets.

``python suites/tests/references/chain/dags.py FIRST LAST`` measures the models of these seeds and prints a summary.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradgate.references.chain.in_torch.profile import LiveBytes
from gradgate.references.chain.schedules.solver import BudgetTooSmall

Shape = tuple[int, ...]
Step = tuple[str | int, int, int]


class Model(nn.Module):
    """Calls that each read one or two earlier results; the mean squares of those that none reads are the loss.

    Attributes:
        given: the shape of the input: images (batch, channels, 16, 16), or tokens (batch, length, width).
        steps: of each call the operation, or the number of its layer, and the numbers of the results that it reads.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.images = rng.random() < 0.5
        self.joined = 1 if self.images else 2
        self.given: Shape = (4, rng.choice((4, 8, 16)), 16, 16)
        if not self.images:
            self.given = (rng.choice((4, 8)), rng.choice((16, 32)), rng.choice((16, 32)))
        self.layers, self.steps = nn.ModuleList(), list[Step]()
        shapes: list[Shape] = [self.given]
        for _ in range(rng.randint(6, 22)):
            shapes.append(self._add(rng, shapes))
        if not self.layers:
            self.layers.append(nn.Linear(shapes[-1][-1], 8))
            self.steps.append((0, len(shapes) - 1, len(shapes) - 1))
        if self.images and rng.random() < 0.3:
            self._tie(rng)

    def _add(self, rng: random.Random, shapes: list[Shape]) -> Shape:
        """Draw one more call; gives the shape of its result."""
        near = len(shapes) - 1 - min(rng.randint(0, 2) * rng.randint(0, 1), len(shapes) - 1)
        shape, roll = shapes[near], rng.random()
        alike = [n for n, other in enumerate(shapes) if n != near and other == shape]
        if alike and roll < 0.25:
            self.steps.append((rng.choice(("add", "mul")), near, rng.choice(alike)))
            return shape
        beside = [n for n, other in enumerate(shapes) if n != near and self._rest(other) == self._rest(shape)]
        if beside and roll < 0.45 and shape[self.joined] <= 32:
            other = rng.choice(beside)
            self.steps.append(("cat", near, other))
            wide = shape[self.joined] + shapes[other][self.joined]
            return (*shape[: self.joined], wide, *shape[self.joined + 1 :])
        what, result = rng.choice(_images(shape, rng) if self.images else _tokens(shape, rng))
        if isinstance(what, str):
            self.steps.append((what, near, near))
        else:
            self.steps.append((len(self.layers), near, near))
            self.layers.append(what())
        return result

    def _rest(self, shape: Shape) -> Shape:
        return (*shape[: self.joined], *shape[self.joined + 1 :])

    def _tie(self, rng: random.Random) -> None:
        """Let two layers have one weight."""
        known: dict[Shape, list[nn.Module]] = {}
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                known.setdefault(tuple(layer.weight.shape), []).append(layer)
        pairs = [layers for layers in known.values() if len(layers) > 1]
        if pairs:
            one, other, *_ = rng.choice(pairs)
            other.weight = one.weight

    def forward(self, x: Any) -> Any:
        """The loss."""
        values = [x]
        for what, first, second in self.steps:
            values.append(self._call(what, values[first], values[second]))
        read = {n for _, first, second in self.steps for n in (first, second)}
        return sum(value.square().mean() for n, value in enumerate(values) if n and n not in read)

    def _call(self, what: str | int, x: Any, y: Any) -> Any:
        if isinstance(what, int):
            return self.layers[what](x)
        if what in ("add", "mul"):
            return getattr(torch, what)(x, y)
        if what == "cat":
            return torch.cat([x, y], self.joined)
        if what == "attention":
            heads = x.unflatten(-1, (4, -1)).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
        return x.softmax(-1) if what == "softmax" else getattr(torch, what)(x)


def _images(shape: Shape, rng: random.Random) -> list[tuple[Callable[[], nn.Module] | str, Shape]]:
    """What may be called on images of this shape, and the shape of its result."""
    B, C, H, W = shape
    out = rng.choice((4, 8, 16))
    found: list[tuple[Callable[[], nn.Module] | str, Shape]] = [
        (lambda: nn.Conv2d(C, out, 3, padding=1), (B, out, H, W)),
        (nn.ReLU, shape),
        (nn.SiLU, shape),
        (lambda: nn.BatchNorm2d(C), shape),
        (lambda: nn.GroupNorm(1, C), shape),
        (lambda: nn.Dropout(0.2), shape),
        ("sigmoid", shape),
        ("tanh", shape),
    ]
    if H > 4:
        found.append((lambda: nn.MaxPool2d(2), (B, C, H // 2, W // 2)))
        found.append((lambda: nn.Conv2d(C, out, 2, stride=2), (B, out, H // 2, W // 2)))
    if H < 32:
        found.append((lambda: nn.Upsample(scale_factor=2), (B, C, 2 * H, 2 * W)))
        found.append((lambda: nn.ConvTranspose2d(C, out, 2, stride=2), (B, out, 2 * H, 2 * W)))
    return found


def _tokens(shape: Shape, rng: random.Random) -> list[tuple[Callable[[], nn.Module] | str, Shape]]:
    """The same of tokens."""
    B, T, D = shape
    out = rng.choice((16, 32, 64))
    found: list[tuple[Callable[[], nn.Module] | str, Shape]] = [
        (lambda: nn.Linear(D, out), (B, T, out)),
        (lambda: nn.LayerNorm(D), shape),
        (nn.GELU, shape),
        (lambda: nn.Dropout(0.1), shape),
        (nn.ReLU, shape),
        ("softmax", shape),
        ("tanh", shape),
    ]
    if D % 4 == 0:
        found.append((lambda: nn.TransformerEncoderLayer(D, 4, 2 * D, batch_first=True), shape))
        found.append(("attention", shape))
    return found


@dataclass(frozen=True)
class Row:
    """One training step of a model within a budget, in bytes.

    Attributes:
        seed: of the model.
        budget: what was asked for.
        simulated: the peak that the plan promises.
        measured: the peak of the step.
        plain: the peak of a step without checkpoints.
        states: at most these bytes are states of random generators, which are in `simulated` alone.
    """

    seed: int
    budget: int
    simulated: int
    measured: int
    plain: int
    states: int


def peak(model: nn.Module, x: Any) -> int:
    """The most bytes at once between the call of a model that gives its loss and the end of its backward pass."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    with LiveBytes() as meter:
        model(x).backward()
    return meter.peak


def rows(seed: int) -> list[Row]:
    """Of one model: the least budget, the middle between it and what plain training takes, and that.

    There are none if nothing in the loss needs a gradient.
    """
    from gradgate.in_torch import checkpointed

    torch.manual_seed(seed)
    model = Model(seed)
    x = torch.randn(model.given)
    if not model(x).requires_grad:
        return []
    plain = peak(model, x)
    drawing = sum(isinstance(m, nn.Dropout | nn.MultiheadAttention) for m in model.modules())
    states = drawing * torch.get_rng_state().nbytes
    found = []
    least = checkpointed(model, x, budget="least", compute="flops")
    minimum = least.plans[0].simulation.peak
    for budget in (minimum, (minimum + plain) // 2, plain):
        try:
            wrapped = least if budget == minimum else checkpointed(model, x, budget=budget, compute="flops")
        except BudgetTooSmall as error:
            assert error.minimum > budget  # noqa: PT017 - the rest of the sweep goes on
            continue
        promised = wrapped.plans[0].simulation.peak
        found.append(Row(seed, budget, promised, peak(wrapped, x), plain, states))
    return found


def main() -> None:
    """Measure and print."""
    started, found = time.process_time(), list[Row]()
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            more = rows(seed)
        except Exception as error:
            print(seed, type(error).__name__, error, flush=True)
            continue
        found += more
        for row in more:
            if row.measured > row.budget or row.measured + row.states < 0.9 * row.simulated:
                print(row, flush=True)
    shares = sorted((row.measured + row.states) / row.simulated for row in found)
    print(
        f"{len({row.seed for row in found})} models, {len(found)} budgets: the largest measured/budget is "
        f"{max(row.measured / row.budget for row in found):.4f}; {sum(share < 0.9 for share in shares)} reach less "
        f"than 90% of what their plan promises, the smallest {shares[0]:.4f}; {time.process_time() - started:.0f} CPU "
        "seconds"
    )


if __name__ == "__main__":
    main()
