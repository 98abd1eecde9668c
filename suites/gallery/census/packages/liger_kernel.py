# /// script
# dependencies = ["liger-kernel==0.8.5"]
#
# [tool.gradgate]
# home = "https://github.com/linkedin/Liger-Kernel"
# framework = "torch"
# no-deps = true
# seconds = 300
# limit = 1500
# notes = "kernels of Triton, in its interpreter"
# ///
"""Kernels of Liger-Kernel: activations, norms, losses and rotations."""

import importlib
import os

import torch

from gradgate.suites.pairs import triton_interpreter

os.environ["TRITON_INTERPRET"] = "1"
triton_interpreter.prepare()
ops = importlib.import_module("liger_kernel.ops")
torch.manual_seed(0)
x, y = (torch.randn(3, 8, requires_grad=True) for _ in range(2))
w, b = (torch.randn(8, requires_grad=True) for _ in range(2))
for function, given in (
    (ops.LigerSiLUMulFunction, (x, y)),
    (ops.LigerGELUMulFunction, (x, y)),
    (ops.LigerReLUSquaredFunction, (x,)),
    (ops.LigerSoftmaxFunction, (x,)),
    (ops.LigerSparsemaxFunction, (x, -1)),
    (ops.LigerDyTFunction, (x, w[:1], w, b)),
    (ops.LigerLayerNormFunction, (x, w, b, 1e-6)),
    (ops.LigerRMSNormFunction, (x, w, 1e-6)),
    (ops.LigerPolyNormFunction, (x, w[:3], b[:1])),
    (ops.LigerGroupNormFunction, (x.reshape(3, 4, 2), w[:4], b[:4], 4, 2, 1e-6)),
    (ops.LigerKLDivLossFunction, (x.log_softmax(-1), y.softmax(-1).detach())),
    (ops.LigerTVDLossFunction, (x.softmax(-1), y.softmax(-1).detach())),
):
    function.apply(*given)
