# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/pytorch/pytorch"
# framework = "torch"
# judges = "torch"
# seconds = 160
# notes = "torch.utils.checkpoint; reentrant checkpoints are judged by backward(), the only way that they allow"
# ///
"""PyTorch 2.13.0, torch.utils.checkpoint: recomputation against the same layers in plain autograd."""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import gradgate
from gradgate import normal

WEIGHTS = {"x": normal("T H"), "w": normal("L H H", scale="H**-0.5"), "b": normal("L H")}
SIZES = {"T": (1, 3, 17), "H": (1, 8), "L": (1, 4)}
AT = {"T": 64, "H": 32, "L": 8}
CHANGED = (
    "the second run uses the weights and the mode that the module has then; plain autograd refuses a changed weight"
)


def layer(x, w, b):
    """A residual layer; x: (T, H)."""
    return x + torch.tanh(torch.nn.functional.gelu(x @ w + b))


def plain_layers(x, w, b):
    """Layers one after another; w: (L, H, H), b: (L, H)."""
    for place in range(len(w)):
        x = layer(x, w[place], b[place])
    return x


def checkpointed(x, w, b, early=True):
    """Each layer is run again in the backward pass."""
    with set_checkpoint_early_stop(early):
        for place in range(len(w)):
            x = checkpoint(layer, x, w[place], b[place], use_reentrant=False)
    return x


def reentrant(x, w, b):
    """The same with the older implementation."""
    for place in range(len(w)):
        x = checkpoint(layer, x, w[place], b[place], use_reentrant=True)
    return x


def keep_products(context, operation, *arguments, **keywords):
    """A policy: products of matrices are kept, everything else is run again."""
    kept = operation in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def selective(x, w, b):
    """Products of matrices are kept, everything else is run again."""
    contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
    for place in range(len(w)):
        x = checkpoint(layer, x, w[place], b[place], use_reentrant=False, context_fn=contexts)
    return x


class Layers(nn.Module):
    """Four layers with dropout."""

    def __init__(self, width):
        super().__init__()
        parts = [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * width, width))]
        parts += [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()) for _ in range(3)]
        self.layers = nn.Sequential(*parts)

    def forward(self, x):
        """(T, H) to (T, H)."""
        return self.layers(x)


class Segments(Layers):
    """The same layers in segments, which are run again."""

    def __init__(self, width, segments):
        super().__init__(width)
        self.segments = segments

    def forward(self, x):
        """(T, H) to (T, H)."""
        return checkpoint_sequential(self.layers, self.segments, x, use_reentrant=False)


class Normed(nn.Module):
    """A linear layer and a batch norm without parameters."""

    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width, affine=False)

    def forward(self, x):
        """(T, H) to (T, H)."""
        return torch.tanh(self.norm(self.linear(x)))


class NormedAgain(Normed):
    """The same with the norm under a checkpoint."""

    def forward(self, x):
        """(T, H) to (T, H)."""
        return torch.tanh(checkpoint(self.norm, self.linear(x), use_reentrant=False))


recomputed = gradgate.Pair(
    checkpointed,
    reference=plain_layers,
    name="checkpoint",
    inputs=WEIGHTS,
    dims=SIZES,
    options={"early": (True, False)},
    composes=("compile",),
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5, at=AT)],
)
by_reentry = gradgate.Pair(
    reentrant,
    reference=plain_layers,
    name="checkpoint_reentrant",
    inputs=WEIGHTS,
    dims=SIZES,
    by_backward=True,
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5, at=AT)],
)
by_policy = gradgate.Pair(
    selective,
    reference=plain_layers,
    name="checkpoint_selective",
    inputs=WEIGHTS,
    dims=SIZES,
    claims=[gradgate.at_most("residual_bytes", of_reference=0.8, at=AT)],
)
sequential = gradgate.module_pair(
    lambda H, segments: Segments(H, segments),
    lambda H: Layers(H),
    {"x": normal("T H")},
    {"T": (1, 3, 17), "H": (1, 8)},
    name="checkpoint_sequential",
    options={"segments": (2, 1, 4)},
    random=True,
    expected={"module_protocol": CHANGED},
    claims=[gradgate.at_most("residual_bytes", of_reference=0.7, at={"T": 64, "H": 32})],
)
batch_norm = gradgate.module_pair(
    lambda H: NormedAgain(H),
    lambda H: Normed(H),
    {"x": normal("T H")},
    {"T": (3, 17), "H": (1, 8)},
    name="checkpoint_batch_norm",
    expected={"module_protocol": "the second run updates the running statistics again"},
)
