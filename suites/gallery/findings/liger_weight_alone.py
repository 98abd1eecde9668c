"""Liger-Kernel 0.8.5: if only the weight requires a gradient, fused linear cross entropy gives it none."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

torch.manual_seed(0)
x, weight, labels = torch.randn(3, 4), torch.randn(5, 4).requires_grad_(), torch.tensor([0, 3, 1])
LigerFusedLinearCrossEntropyFunction.apply(x, weight, labels)[0].backward()
plain = weight.detach().clone().requires_grad_()
torch.nn.functional.cross_entropy(x @ plain.T, labels).backward()
print("gradient", weight.grad, "plain", plain.grad[0].tolist())
sys.exit(0 if weight.grad is None else 1)
