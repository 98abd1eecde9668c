# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/deep-spin/entmax"
# framework = "torch"
# judges = "torch"
# notes = "a flat layout"
# ///
"""entmax: sparse alternatives of softmax against plain formulas with a sort."""

import entmax
import torch

import gradgate
from gradgate import normal


def sparse(x):
    """Sparsemax over the last axis, by a sort."""
    return entmax.sparsemax(x, dim=-1)


def plain_sparse(x):
    """The reference for `sparse`: of all candidates for the threshold, the largest."""
    ordered = x.sort(-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    return (x - ((ordered.cumsum(-1) - 1) / count).amax(-1, keepdim=True)).clamp(min=0)


def bisected(x):
    """Sparsemax by bisection."""
    return entmax.root_finding.entmax_bisect(x, alpha=2, dim=-1)


def exact_15(x):
    """Entmax with alpha = 1.5, by a sort."""
    return entmax.entmax15(x, dim=-1)


def bisected_15(x):
    """Entmax with alpha = 1.5, by bisection."""
    return entmax.root_finding.entmax_bisect(x, alpha=1.5, dim=-1)


X = {"x": normal("B T V")}
SIZES = {"B": (1, 3), "T": (2, 1), "V": (4, 2, 16)}
PEAKED = {"peaked": lambda given: given | {"x": 30 * given["x"]}}
RAISES = {"not_finite": "the size of the support of a NaN is 0, and the threshold is read at the index before it"}
sparsemax = gradgate.Pair(sparse, reference=plain_sparse, inputs=X, dims=SIZES, regimes=PEAKED, expected=RAISES)
bisection = gradgate.Pair(
    bisected, reference=plain_sparse, inputs=X, dims=SIZES, regimes=PEAKED, approximates=gradgate.within(1e-4)
)
both_15 = gradgate.Pair(
    exact_15, reference=bisected_15, inputs=X, dims=SIZES, approximates=gradgate.within(1e-4), expected=RAISES
)
