"""Liger-Kernel 0.8.5: the second derivative of rope is wrong, without an error."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from liger_kernel.ops.rope import LigerRopeFunction

torch.manual_seed(0)
q, k, angle = torch.randn(1, 2, 3, 4).requires_grad_(), torch.randn(1, 1, 3, 4), torch.randn(1, 3, 2).repeat(1, 1, 2)
cos, sin = angle.cos(), angle.sin()
outs = [LigerRopeFunction.apply(1 * q, 1 * k, cos, sin)[0], q * cos + torch.cat([-q[..., 2:], q[..., :2]], -1) * sin]
second = []
for out in outs:
    (first,) = torch.autograd.grad((out**3).sum(), q, create_graph=True)
    second.append(torch.autograd.grad((first**2).sum(), q)[0])
print("second derivative", second[0].flatten()[:3].tolist(), "plain", second[1].flatten()[:3].tolist())
sys.exit(0 if (second[0] - second[1]).abs().max() > 1e-2 else 1)
