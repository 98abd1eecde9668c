# /// script
# dependencies = ["revtorch==0.2.4"]
#
# [tool.gradgate]
# home = "https://github.com/RobinBruegger/RevTorch"
# framework = "torch"
# no-deps = true
# seconds = 220
# notes = "gradients of parameters appear only in .grad, so it is judged by backward()"
# ///
"""revtorch 0.2.4: reversible blocks against the same blocks in plain PyTorch."""

import random
import sys

import revtorch
import torch
from torch import nn

import gradgate
from gradgate import normal

ALONE = "the blocks are no inputs of its autograd.Function; if x requires no gradient, no parameter gets one"
CHANGED = (
    "the inverse and the second run use the weights and the mode that the module has then, so a change after the "
    "forward pass gives another gradient"
)
SEEDED = "with fix_random_seed=True it leaves PyTorch's global generator at its own seed"


class Plain(nn.Module):
    """Two reversible blocks: y1 = x1 + f(x2), y2 = x2 + g(y1)."""

    def __init__(self, width):
        super().__init__()

        def part():
            return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width))

        self.f, self.g = (nn.ModuleList(part() for _ in range(2)) for _ in range(2))

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for f, g in zip(self.f, self.g, strict=True):
            first = first + f(second)
            second = second + g(first)
        return torch.cat([first, second], 1)


class PlainDropout(Plain):
    """The same with dropout whose masks come from the seeds that revtorch draws."""

    def forward(self, x):
        """(T, 2·H) to the same."""
        source = random.Random(7)

        def dropped(part, x):
            torch.manual_seed(source.randint(0, sys.maxsize))
            return nn.functional.dropout(part(x), 0.3, self.training)

        first, second = x.chunk(2, 1)
        for f, g in zip(self.f, self.g, strict=True):
            first = first + dropped(f, second)
            second = second + dropped(g, first)
        return torch.cat([first, second], 1)


class Reversible(nn.Module):
    """The same by revtorch."""

    def __init__(self, plain, eagerly=True, dropout=0.0):
        super().__init__()
        self.f, self.g, self.fixed = plain.f, plain.g, dropout > 0
        parts = [[nn.Sequential(part, nn.Dropout(dropout)) for part in parts] for parts in (self.f, self.g)]
        pairs = zip(*parts, strict=True)
        blocks = [revtorch.ReversibleBlock(f, g, fix_random_seed=self.fixed) for f, g in pairs]
        self.held = [revtorch.ReversibleSequence(nn.ModuleList(blocks), eagerly_discard_variables=eagerly)]

    def train(self, mode=True):
        """The mode of the blocks, too."""
        self.held[0].train(mode)
        return super().train(mode)

    def forward(self, x):
        """(T, 2·H) to the same. It draws seeds from Python's random numbers, which are left as they were."""
        state = random.getstate()
        random.seed(7)
        try:
            return self.held[0](x)
        finally:
            random.setstate(state)


def _pair(function, reference, name, more=None, **how):
    more = more or {}
    law = gradgate.at_most("residual_bytes", of_reference=0.3, at={"T": 64, "H": 32})
    return gradgate.module_pair(
        function,
        reference,
        {"x": normal("T 2*H")},
        {"T": (3, 1, 17), "H": (4, 1, 3)},
        name=name,
        claims=[law],
        by_backward=True,
        expected={"each_leaf_alone": ALONE, "autograd": CHANGED, "module_protocol": CHANGED, **more},
        **how,
    )


blocks = _pair(
    lambda H, eagerly: Reversible(Plain(H), eagerly), lambda H: Plain(H), "revtorch", options={"eagerly": (True, False)}
)
dropout = _pair(
    lambda H: Reversible(PlainDropout(H), dropout=0.3),
    lambda H: PlainDropout(H),
    "revtorch_dropout",
    random=True,
    more={"pure": SEEDED},
)
