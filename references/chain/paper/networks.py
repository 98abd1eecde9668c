"""DenseNet-121 and ResNet-50 as sequences, in plain PyTorch: the networks of the thesis' chapter 4.

A sequence passes one tensor from layer to layer. A residual block is one layer. A dense layer joins its input and what
it adds into one tensor, so that a dense block is a chain.
"""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """A bottleneck with its skip connection (He et al. 2016): 1×1 to `inner`, 3×3 with the stride, 1×1 to 4·`inner`."""

    def __init__(self, channels: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            self.skip = nn.Sequential(nn.Conv2d(channels, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, h, w) -> (batch, 4·inner, h/stride, w/stride)."""
        return torch.relu(self.body(x) + self.skip(x))


class DenseLayer(nn.Module):
    """x -> x and `growth` channels more (Huang et al. 2017): norm, 1×1 to 4·growth, norm, 3×3 to growth."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, h, w) -> (batch, channels + growth, h, w)."""
        return torch.cat([x, self.body(x)], dim=1)


def _stem(width: int) -> list[nn.Module]:
    return [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]


def _end(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def resnet50(classes: int = 1000, width: int = 64) -> nn.Sequential:
    """23 layers: stem of 4, 3 + 4 + 6 + 3 residual blocks, and 3 at the end. `width` scales all channels."""
    layers, channels = _stem(width), width
    for stage, (blocks, inner) in enumerate(zip((3, 4, 6, 3), (width, 2 * width, 4 * width, 8 * width), strict=True)):
        for n in range(blocks):
            layers.append(Residual(channels, inner, 2 if n == 0 and stage else 1))
            channels = 4 * inner
    return nn.Sequential(*layers, *_end(channels, classes))


def densenet121(classes: int = 1000, growth: int = 32) -> nn.Sequential:
    """79 layers: stem of 4, dense blocks of 6, 12, 24 and 16, three transitions of 4, and 5 at the end."""
    channels = 2 * growth
    layers = _stem(channels)
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        if stage < 3:
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *_end(channels, classes))


class Loss(nn.Module):
    """Cross-entropy against fixed targets, which move to the device when they are needed (Listing 3.4)."""

    def __init__(self, targets: torch.Tensor) -> None:
        super().__init__()
        self.targets = targets  # no buffer: it stays where it is

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, classes) -> scalar."""
        return nn.functional.cross_entropy(x, self.targets.to(x.device))
