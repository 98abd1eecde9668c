"""Models for the tests of `checkpointed`, a few training steps, and the comparison of two trainings."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from gradgate.references.chain.in_torch.profile import LiveBytes


class Masked(nn.Module):
    """Nested sequentials, tuples, keyword arguments, a mask that all blocks read, an in-place layer, a dict output."""

    def __init__(self, width: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Linear(8, width), nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(inplace=True)))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * width, width))
            for _ in range(blocks)
        )
        self.exit = nn.Linear(width, 8)
        self.scale = 0.5

    def forward(self, pair: tuple[Any, Any], *, mask: Any = None, double: bool = False) -> dict[str, Any]:
        x = nn.functional.dropout(self.entry(pair[0] + pair[1]), 0.1, self.training)
        if mask is not None and bool(mask.all()):  # depends on an input: each branch has its own plan
            x, mask = x + 1, None
        keep = None if mask is None else mask.to(x.dtype).unsqueeze(-1)
        for block in self.blocks:
            x = x + self.scale * (block(x) if keep is None else block(x) * keep)
        with torch.no_grad():
            usual = self.exit(x).std()
        y = self.exit(x) / (len(x) + usual)
        return {"y": 2 * y if double else y, "size": x.shape[0], "norm": x.detach().norm()}


def inputs(batch: int = 12, seed: int = 0, kept: float = 0.7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for `Masked`."""
    generator = torch.Generator().manual_seed(seed)
    pair = tuple(torch.randn(batch, 8, generator=generator) for _ in range(2))
    return (pair,), {"mask": torch.rand(batch, generator=generator) < kept}


def loss_of(output: Any) -> Any:
    """A loss of any output of a model."""
    if isinstance(output, dict) and "loss" in output:
        return output["loss"]
    value = output["y"] if isinstance(output, dict) else output
    return (value * value).mean()


def train(model: Any, batches: list[Any], steps: int) -> dict[str, Any]:
    """Training steps from a fixed random state: parameters and buffers, losses, random state, largest peak of a step.

    The peak counts the tensors that are made between the call of the model and the end of its backward pass. The
    gradients are allocated before that.
    """
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    losses, peaks = [], []
    for number in range(steps):
        optimizer.zero_grad(set_to_none=False)
        args, kwargs = batches[number % len(batches)]
        with LiveBytes() as meter:
            loss = loss_of(model(*args, **kwargs))
            loss.backward()
        losses.append(loss.item())
        peaks.append(meter.peak)
        del loss
        optimizer.step()
    state = {name: t.detach().clone() for name, t in model.state_dict().items()}
    return {"state": state, "losses": losses, "random": torch.get_rng_state(), "peak": max(peaks)}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether two trainings agree to the bit: parameters, buffers, losses and random state."""
    return (
        found["losses"] == wanted["losses"]
        and found["state"].keys() == wanted["state"].keys()
        and all(torch.equal(t, wanted["state"][name]) for name, t in found["state"].items())
        and torch.equal(found["random"], wanted["random"])
    )


def both(model: Any, batches: list[Any], steps: int = 3, **how: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The results of one training with and without checkpointing (checkpointed first), and the checkpointed model."""
    from gradgate.in_torch import checkpointed

    plain = train(copy.deepcopy(model), batches, steps)
    wrapped = checkpointed(model, None, compute="flops", **how)
    for args, kwargs in batches:  # plan first: planning has its own peak
        wrapped._find(args, kwargs, make_only=True)
    return train(wrapped, batches, steps), plain, wrapped


def torchvision() -> Any:
    """torchvision's models. If its compiled operators do not load, two of them are declared, so the import works."""
    try:
        import torchvision.models
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
        import torchvision.models
    return torchvision.models


_KEPT: list[Any] = []
"""Keeps the libraries alive, because a declaration ends with its library."""
