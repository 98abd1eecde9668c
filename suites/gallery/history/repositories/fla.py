# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/fla-org/flash-linear-attention"
# framework = "torch"
# judges = "torch"
# limit = 1200
# notes = "kernels of Triton, in its interpreter; the packages' own imports are left out, as today's Triton refuses some"
# ///
"""flash-linear-attention: kernels and losses against plain PyTorch."""

import importlib
import importlib.util
import sys
import types

import torch
from torch.nn import functional

import gradgate
from gradgate import normal


def of(module):
    """A module, without what the packages above it import."""
    for bare in ("fla", "fla.ops", "fla.modules"):
        if bare not in sys.modules:
            spec = importlib.util.find_spec(bare)
            sys.modules[bare] = types.ModuleType(bare)
            sys.modules[bare].__path__, sys.modules[bare].__spec__ = list(spec.submodule_search_locations), spec
            sys.modules[bare].__version__ = "0"
    return importlib.import_module(module)


def l2wrap(loss, logits):
    """A penalty that is in the gradient alone."""
    return of("fla.modules.l2warp").L2Wrap.apply(loss.sum(), logits, 0.5)


def plain_l2wrap(loss, logits):
    """The reference for `l2wrap`."""
    penalty = 0.25 * (logits.max(-1).values ** 2).mean()
    return loss.sum() + penalty - penalty.detach()


def linear(q, k, v):
    """Linear attention that is divided by the sum of its weights."""
    run = of("fla.ops.linear_attn.fused_recurrent").fused_recurrent_linear_attn
    return run(q.exp(), k.exp(), v, scale=0.5, normalize=True)[0]


def plain_linear(q, k, v):
    """The reference for `linear`."""
    weights = torch.einsum("bihd,bjhd->bhij", q.exp(), k.exp()).tril()
    return torch.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdim=True), v)


def conv(x, weight):
    """A causal convolution of each channel."""
    return of("fla.modules.conv.triton").CausalConv1dFunction.apply(x, weight)[0]


def plain_conv(x, weight):
    """The reference for `conv`."""
    wide = functional.pad(x.mT, (weight.shape[1] - 1, 0))
    return functional.conv1d(wide, weight[:, None], groups=len(weight)).mT


def conv_state(x, weight, state):
    """The same after a state of as many tokens as the filter is long, with the state at the end."""
    run = of("fla.modules.conv.triton").CausalConv1dFunction.apply
    return run(x, weight, None, None, state, True)


def plain_conv_state(x, weight, state):
    """The reference for `conv_state`."""
    wide = torch.cat([state, x.mT], -1)
    y = functional.conv1d(wide[..., 1:], weight[:, None], groups=len(weight)).mT
    return y, wide[..., -weight.shape[1] :]


def gelu(x, bias):
    """gelu(x + bias) by tanh."""
    return of("fla.modules.activations").bias_gelu_impl(x, bias)


def plain_gelu(x, bias):
    """The reference for `gelu`, with the library's constants."""
    x = x + bias
    return 0.5 * x * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def gated_norm(x, gate, weight, bias):
    """Layer norm times swish(gate)."""
    module = of("fla.modules.fused_norm_gate")
    run = getattr(module, "layer_norm_swish_gate_fn", None) or module.layer_norm_swish_gate
    return run(x, gate, weight, bias)


def plain_gated_norm(x, gate, weight, bias):
    """The reference for `gated_norm`."""
    return functional.layer_norm(x, weight.shape, weight, bias, 1e-5) * functional.silu(gate)
