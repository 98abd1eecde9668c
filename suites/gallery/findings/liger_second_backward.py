"""Liger-Kernel 0.8.5: with retain_graph, a second backward pass gives another gradient, without an error."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

torch.manual_seed(0)
x, w, labels = torch.randn(3, 4).requires_grad_(), torch.randn(5, 4), torch.tensor([0, 3, 1])
entropy = LigerCrossEntropyFunction.apply(1 * x, labels, None)[0]
fused = LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)[0]
worst = []
for loss in (2 * entropy, 2 * fused):
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0].clone() for _ in range(2))
    worst.append(((first - second).abs().max() / first.abs().max()).item())
print("cross entropy, fused linear cross entropy: change of the gradient", worst)
sys.exit(0 if min(worst) > 1e-2 else 1)
