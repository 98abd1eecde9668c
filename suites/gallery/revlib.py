# /// script
# dependencies = ["revlib==1.7.2"]
#
# [tool.gradgate]
# home = "https://github.com/clashluke/revlib"
# framework = "torch"
# no-deps = true
# seconds = 260
# notes = "gradients of parameters appear only in .grad, so it is judged by backward()"
# ///
"""revlib 1.7.2: ReversibleSequential in its memory modes against the same couplings in plain PyTorch."""

import revlib
import torch
from torch import nn

import gradgate
from gradgate import normal

ALONE = "the parameters are no inputs of its autograd.Function; if x requires no gradient, no parameter gets one"
CHANGED = "the inverse uses the weights that the module has then, so a weight changed in between is not noticed"
COUPLING = "gradients are passed on as if the coupling were a sum, whatever coupling is given"
MODES = "the second run saves fewer tensors than the first, because its input requires no gradient"
EXPECTED = {"each_leaf_alone": ALONE, "autograd": CHANGED, "module_protocol": CHANGED}
CRASHES = (
    "tree",
    "gradient_exact",
    "gradient_float64",
    "gradient_float32",
    "gradient_bfloat16",
    "cotangents",
    "upstream",
    "not_finite",
    "deterministic",
    "pure",
    "layouts",
    "each_leaf_alone",
    "autograd",
    "module_protocol",
)
WRONG = ("gradient_exact", "gradient_float64", "gradient_float32", "gradient_bfloat16")


class Plain(nn.Module):
    """Layers of a reversible net: (x0, x1) becomes (x1, x0 + f(x1))."""

    def __init__(self, width):
        super().__init__()
        parts = [nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width)) for _ in range(4)]
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for part in self.parts:
            first, second = second, first + part(second)
        return torch.cat([first, second], 1)


class PlainMomentum(Plain):
    """The same with revlib's example of another coupling: x0 becomes 0.9·x0 + 0.1·f(x1)."""

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for part in self.parts:
            first, second = second, 0.9 * first + 0.1 * part(second)
        return torch.cat([first, second], 1)


class Reversible(nn.Module):
    """The same by revlib."""

    def __init__(self, width, mode, **how):
        super().__init__()
        self.parts = Plain(width).parts
        self.held = [revlib.ReversibleSequential(*self.parts, memory_mode=revlib.MemoryModes[mode], **how)]

    def forward(self, x):
        """(T, 2·H) to the same."""
        return self.held[0](x)


def momentum(H):
    """A custom coupling, as in revlib's README."""

    def forward(other, change):
        return 0.9 * other + 0.1 * change

    def inverse(output, change):
        return (output - 0.1 * change) / 0.9

    return Reversible(H, "autograd_function", coupling_forward=[forward], coupling_inverse=[inverse])


def _pair(function, reference, name, **how):
    law = gradgate.at_most("residual_bytes", of_reference=0.4, at={"T": 64, "H": 32})
    return gradgate.module_pair(
        function,
        reference,
        {"x": normal("T 2*H")},
        {"T": (3, 1, 17), "H": (4, 1, 3)},
        name=name,
        claims=[law],
        by_backward=True,
        modes=("train",),
        **how,
    )


function_mode = _pair(
    lambda H: Reversible(H, "autograd_function"), lambda H: Plain(H), "revlib_autograd_function", expected=EXPECTED
)
graph_mode = _pair(
    lambda H: Reversible(H, "autograd_graph"),
    lambda H: Plain(H),
    "revlib_autograd_graph",
    expected=dict.fromkeys(CRASHES, MODES),
)
checkpoint_mode = _pair(
    lambda H: Reversible(H, "checkpoint"),
    lambda H: Plain(H),
    "revlib_checkpoint",
    expected=dict.fromkeys(CRASHES, MODES),
)
coupling = _pair(
    momentum,
    lambda H: PlainMomentum(H),
    "revlib_momentum_coupling",
    expected=EXPECTED | dict.fromkeys(WRONG, COUPLING),
)
