# /// script
# dependencies = [
#   "performer-pytorch==1.1.4", "local-attention==1.11.2", "hyper-connections==0.4.11",
#   "axial-positional-embedding==0.3.12", "einops==0.8.2",
# ]
#
# [tool.gradgate]
# home = "https://github.com/lucidrains/performer-pytorch"
# framework = "torch"
# no-deps = true
# seconds = 200
# notes = "without its CUDA code; reversible layers are judged by backward()"
# ///
"""performer-pytorch 1.1.4: linear attention and reversible layers against plain PyTorch."""

import contextlib
import io
import warnings

from torch import nn

import gradgate
from gradgate import normal, uniform

with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
    warnings.simplefilter("ignore")
    from performer_pytorch import performer_pytorch as library
    from performer_pytorch.reversible import ReversibleSequence

ALONE = "the layers are no inputs of its autograd.Function; if x requires no gradient, no parameter gets one"
CHANGED = "the inverse uses the weights and the mode that the module has then"


def attention(q, k, v):
    """Attention that is not causal; q, k: (B, 2, T, M) positive features, v: (B, 2, T, D)."""
    return library.linear_attention(q, k, v)


def plain_attention(q, k, v):
    """The reference for `attention`."""
    weights = q @ k.mT
    return weights @ v / weights.sum(-1, keepdim=True)


def causal(q, k, v, chunks=128):
    """Causal attention without CUDA code; `chunks` is the number of chunks."""
    return library.causal_linear_attention_noncuda(q, k, v, chunk_size=chunks)


def plain_causal(q, k, v):
    """The reference for `causal`: 1e-6 is added to every component of the sum of the keys, as there."""
    weights = (q @ k.mT).tril()
    return weights @ v / (weights.sum(-1, keepdim=True) + 1e-6 * q.sum(-1, keepdim=True))


class Plain(nn.Module):
    """Two reversible layers on two copies of x, and their sum."""

    def __init__(self, width):
        super().__init__()

        def part():
            return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width))

        self.f, self.g = (nn.ModuleList(part() for _ in range(2)) for _ in range(2))

    def forward(self, x):
        """(B, T, H) to the same."""
        first = second = x
        for f, g in zip(self.f, self.g, strict=True):
            first = first + f(second)
            second = second + g(first)
        return first + second


class Reversible(nn.Module):
    """The same by the library."""

    def __init__(self, width):
        super().__init__()
        plain = Plain(width)
        self.f, self.g = plain.f, plain.g
        pairs = zip(self.f, self.g, strict=True)
        self.held = [ReversibleSequence(nn.ModuleList(nn.ModuleList(pair) for pair in pairs))]

    def forward(self, x):
        """(B, T, H) to the same."""
        return self.held[0](x)


QKV = {"q": uniform("B 2 T M", 0.1, 1.0), "k": uniform("B 2 T M", 0.1, 1.0), "v": normal("B 2 T D")}
AT = {"B": 1, "M": 4, "D": 3}
SIZES = {"B": (1, 2), "T": (5, 1, 2, 17), "M": (4, 1), "D": (3, 1)}
linear = gradgate.Pair(
    attention,
    reference=plain_attention,
    name="performer_linear_attention",
    inputs=QKV,
    dims=SIZES,
    claims=[gradgate.at_most("residual_bytes", of_reference=0.3, at={"B": 1, "T": 256, "M": 4, "D": 3})],
)
causal_pair = gradgate.Pair(
    causal,
    reference=plain_causal,
    name="performer_causal_without_cuda",
    inputs=QKV,
    dims=SIZES,
    options={"chunks": (128, 1, 2)},
    claims=[gradgate.grows("residual_bytes", T=1, sizes={"T": (512, 1024, 2048, 4096, 8192)}, at=AT)],
)
reversible = gradgate.module_pair(
    lambda H: Reversible(H),
    lambda H: Plain(H),
    {"x": normal("B T H")},
    {"B": (1, 2), "T": (3, 1), "H": (4, 1)},
    name="performer_reversible",
    by_backward=True,
    expected={"each_leaf_alone": ALONE, "autograd": CHANGED, "module_protocol": CHANGED},
    claims=[gradgate.at_most("residual_bytes", of_reference=0.3, at={"B": 4, "T": 64, "H": 32})],
)
