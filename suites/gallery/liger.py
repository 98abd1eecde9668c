# /// script
# dependencies = ["liger-kernel==0.8.5"]
#
# [tool.gradgate]
# home = "https://github.com/linkedin/Liger-Kernel"
# framework = "torch"
# no-deps = true
# seconds = 300
# limit = 1500
# notes = "kernels of Triton, judged in its interpreter"
# ///
"""Kernels of Liger-Kernel 0.8.5 against plain PyTorch, in Triton's interpreter."""

from typing import Any

import torch
from torch.nn import functional

import gradgate
from gradgate import integers, normal
from gradgate.suites.gallery import kernels
from gradgate.suites.judging.subject import Inapplicable

VERSION = "0.8.5"
WHERE: dict[str, Any] = {"devices": ("interpreter",), "framework": "torch"}
ROWS = {"T": (1, 3, 17), "H": (1, 8, 33)}
"""Numbers of tokens and widths, even and odd, so that tiles are full, partly full, or hold a single number."""
TOKENS = {"T": (64, 128, 256, 512, 1024), "V": (64, 128, 256, 512, 1024)}
"""Sizes at which bytes are counted; no kernel runs for this."""
LONG = {"T": (256, 512, 1024, 2048, 4096)}
LINEAR = gradgate.grows("residual_bytes", T=1, sizes=LONG, at={"H": 64})
OF_LOGITS = gradgate.grows("residual_bytes", T=1, sizes=LONG, at={"V": 64})
"""What is kept between the passes grows no faster than the number of tokens."""
AFTER = ("deterministic", "layouts", "each_leaf_alone", "autograd")
RETAINED = "with retain_graph, a second backward pass reads what the first one has overwritten, without an error"


def of(module):
    """A module of ``liger_kernel.ops``."""
    return kernels("liger-kernel", VERSION, f"liger_kernel.ops.{module}")


def cross_entropy(logits, labels, reduction="mean", smoothing=0.0):
    """Cross entropy; logits: (T, V), labels: (T,). The kernel writes the gradient over the logits, hence the copy."""
    run = of("cross_entropy").LigerCrossEntropyFunction.apply
    return run(logits.clone(), labels, None, -100, 0.0, smoothing, reduction)[0]


def plain_cross_entropy(logits, labels, reduction="mean", smoothing=0.0):
    """The reference for `cross_entropy`."""
    return functional.cross_entropy(logits, labels, reduction=reduction, label_smoothing=smoothing)


def fused_linear_cross_entropy(x, weight, labels, reduction="mean"):
    """Cross entropy of x @ weight.T; x: (T, H), weight: (V, H)."""
    run = of("fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction.apply
    return run(x, weight, labels, None, None, -100, 0.0, 0.0, reduction)[0]


def plain_linear_cross_entropy(x, weight, labels, reduction="mean"):
    """The reference for `fused_linear_cross_entropy`."""
    return functional.cross_entropy(x @ weight.T, labels, reduction=reduction)


def swiglu(a, b):
    """silu(a)·b. The kernel writes the gradients over a and b, hence the copies."""
    return of("swiglu").LigerSiLUMulFunction.apply(a.clone(), b.clone())


def geglu(a, b):
    """gelu(a)·b, gelu by tanh; with copies, as in `swiglu`."""
    return of("geglu").LigerGELUMulFunction.apply(a.clone(), b.clone())


def plain_geglu(a, b):
    """The reference for `geglu`."""
    return functional.gelu(a, approximate="tanh") * b


def rms_norm(x, weight):
    """RMS norm that does not overwrite the cotangent."""
    return of("rms_norm").LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False)


def rms_norm_in_place(x, weight):
    """RMS norm as it is by default: the gradient is written over the cotangent."""
    return of("rms_norm").LigerRMSNormFunction.apply(x, weight, 1e-6)


def plain_rms_norm(x, weight):
    """The reference for `rms_norm`."""
    return functional.rms_norm(x, weight.shape, weight, 1e-6)


def layer_norm(x, weight, bias):
    """Layer norm over the last axis."""
    return of("layer_norm").LigerLayerNormFunction.apply(x, weight, bias, 1e-6)


def plain_layer_norm(x, weight, bias):
    """The reference for `layer_norm`."""
    return functional.layer_norm(x, weight.shape, weight, bias, 1e-6)


def rope(q, k, angles):
    """Rotary positions as in Hugging Face; q, k: (B, heads, T, 2·D), angles: (T, D).

    The kernel writes the gradient over the cotangent. Therefore the outputs are multiplied by 1.
    """
    both = torch.cat([angles, angles], -1)[None]
    turned = of("rope").LigerRopeFunction.apply(q.clone(), k.clone(), both.cos(), both.sin())
    return tuple(1.0 * leaf for leaf in turned)


def plain_rope(q, k, angles):
    """The reference for `rope`."""
    both = torch.cat([angles, angles], -1)
    half = angles.shape[-1]

    def turned(x):
        return x * both.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * both.sin()

    return turned(q), turned(k)


def kl_div(logits, target, reduction="batchmean"):
    """KL divergence of softmax(logits) from softmax(target)."""
    run = of("kl_div").LigerKLDivLossFunction.apply
    return run(logits.log_softmax(-1), target.softmax(-1), reduction, False, 1e-10)


def plain_kl_div(logits, target, reduction="batchmean"):
    """The reference for `kl_div`."""
    return functional.kl_div(logits.log_softmax(-1), target.softmax(-1), reduction=reduction)


def softmax(x):
    """Softmax over the last axis."""
    return of("softmax").LigerSoftmaxFunction.apply(x)


def tanh_norm(x, alpha, gain, bias):
    """Dynamic tanh: gain·tanh(alpha·x) + bias."""
    if not torch.cuda.is_available():
        raise Inapplicable("its backward pass needs the number of multiprocessors of the device; a CPU has none")
    return of("dyt").LigerDyTFunction.apply(x, alpha, gain, bias)


def ignored(given):
    """The inputs with the second label, if there is one, replaced by the one that is ignored."""
    labels = given["labels"].copy()
    labels[1:2] = -100
    return given | {"labels": labels}


LOGITS = {"logits": normal("T V"), "labels": integers("T", below="V")}
ce = gradgate.Pair(
    cross_entropy,
    reference=plain_cross_entropy,
    inputs=LOGITS,
    dims={"T": (1, 3, 17), "V": (2, 33)},
    options={"reduction": ("mean", "sum"), "smoothing": (0.0, 0.1)},
    dtypes=("float32",),
    **WHERE,
    regimes={"confident": lambda given: given | {"logits": 30 * given["logits"]}, "ignored": ignored},
    expected={
        "layouts": "logits that are not contiguous are copied; requires_grad is then read from the copy, where it is "
        "False, so the logits are returned in place of their gradient",
        "autograd": RETAINED,
    },
    claims=[OF_LOGITS],
)
flce = gradgate.Pair(
    fused_linear_cross_entropy,
    reference=plain_linear_cross_entropy,
    options={"reduction": ("mean", "sum")},
    inputs={"x": normal("T H"), "weight": normal("V H", scale="H**-0.5"), "labels": integers("T", below="V")},
    dims={"T": (1, 3, 17), "H": (1, 8), "V": (2, 33)},
    dtypes=("float32",),
    regimes={"ignored": ignored},
    **WHERE,
    expected={
        "each_leaf_alone": "the weight gets a gradient only where x requires one too",
        "autograd": RETAINED,
    },
    claims=[
        gradgate.grows("temp_bytes", T=1, never="T*V", sizes=TOKENS, at={"H": 64, "V": 1024}),
        gradgate.at_most("residual_bytes", of_reference=0.25, at={"T": 1024, "H": 64, "V": 1024}),
    ],
)
swiglu_pair = gradgate.Pair(
    swiglu,
    reference=lambda a, b: functional.silu(a) * b,
    inputs={"a": normal("T H"), "b": normal("T H")},
    dims=ROWS,
    dtypes=("float32",),
    expected={"autograd": RETAINED},
    claims=[LINEAR],
    **WHERE,
)
geglu_pair = gradgate.Pair(
    geglu,
    reference=plain_geglu,
    inputs={"a": normal("T H"), "b": normal("T H")},
    dims=ROWS,
    dtypes=("float32",),
    expected={"autograd": RETAINED},
    claims=[LINEAR],
    **WHERE,
)
rms = gradgate.Pair(
    rms_norm,
    reference=plain_rms_norm,
    inputs={"x": normal("T H"), "weight": normal("H")},
    dims=ROWS,
    dtypes=("float32",),
    **WHERE,
    claims=[LINEAR, gradgate.at_most("residual_bytes", of_reference=0.05, at={"T": 256, "H": 64})],
)
rms_in_place = gradgate.Pair(
    rms_norm_in_place,
    reference=plain_rms_norm,
    inputs={"x": normal("T H"), "weight": normal("H")},
    dims=ROWS,
    dtypes=("float32",),
    **WHERE,
    expected={
        "pure": "the gradient is written over the cotangent, which another function may still need",
        **dict.fromkeys(AFTER, "so the next call has another cotangent"),
    },
)
layer = gradgate.Pair(
    layer_norm,
    reference=plain_layer_norm,
    dims=ROWS,
    dtypes=("float32",),
    claims=[LINEAR],
    **WHERE,
    inputs={"x": normal("T H"), "weight": normal("H"), "bias": normal("H")},
)
ROPE: dict[str, Any] = {
    "inputs": {"q": normal("B N T 2*D"), "k": normal("B 1 T 2*D"), "angles": normal("T D", gradient=False)},
    "dtypes": ("float32",),
    **WHERE,
}
STRIDE = "the stride of an axis of one token is that of one head, so all examples after the first are read elsewhere"
WRONG = ("outputs", "gradient_exact", "gradient_float32", "cotangents", "memory_safe")
UNSEEN = "its backward pass writes where autograd cannot see it, so its second derivative is wrong"
rotary = gradgate.Pair(
    rope,
    reference=plain_rope,
    dims={"B": (1, 2), "N": (3, 4), "T": (1, 3, 5), "D": (4, 6)},
    **ROPE,
    valid=lambda B, N, T, D: B == 1 or T > 1,
    expected={"autograd": UNSEEN},
    claims=[gradgate.grows("residual_bytes", T=1, sizes=LONG, at={"B": 1, "N": 3, "D": 4})],
)
rotary_of_one_token = gradgate.Pair(
    rope,
    reference=plain_rope,
    dims={"B": (2, 3), "N": (3, 4), "T": (1,), "D": (4, 6)},
    name="rope_of_one_token",
    expected={**dict.fromkeys(WRONG, STRIDE), "autograd": UNSEEN},
    **ROPE,
)
kl = gradgate.Pair(
    kl_div,
    reference=plain_kl_div,
    dims={"T": (1, 3), "V": (2, 33)},
    dtypes=("float32",),
    **WHERE,
    inputs={"logits": normal("T V"), "target": normal("T V", gradient=False)},
    options={"reduction": ("batchmean", "sum", "none")},
    claims=[OF_LOGITS],
)
soft = gradgate.Pair(
    softmax,
    reference=lambda x: x.softmax(-1),
    inputs={"x": normal("T H")},
    dims=ROWS,
    dtypes=("float32",),
    claims=[LINEAR],
    **WHERE,
)
dyt = gradgate.Pair(
    tanh_norm,
    reference=lambda x, alpha, gain, bias: gain * torch.tanh(alpha * x) + bias,
    dims=ROWS,
    inputs={"x": normal("T H"), "alpha": normal("1"), "gain": normal("H"), "bias": normal("H")},
    dtypes=("float32",),
    **WHERE,
)
