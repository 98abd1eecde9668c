"""Liger-Kernel 0.8.5: rope of one token in a batch of two leaves heads unturned, forwards and backwards."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from liger_kernel.ops.rope import LigerRopeFunction

torch.manual_seed(0)
q, k, angle = torch.randn(2, 2, 1, 4).requires_grad_(), torch.randn(2, 1, 1, 4), torch.randn(1, 1, 2).repeat(1, 1, 2)
cos, sin, weights = angle.cos(), angle.sin(), torch.randn(2, 2, 1, 4)
turned = LigerRopeFunction.apply(1 * q, 1 * k, cos, sin)[0]
plain = q * cos + torch.cat([-q[..., 2:], q[..., :2]], -1) * sin
slopes = [torch.autograd.grad((weights * out).sum(), q)[0] for out in (turned, plain)]
rows = [out.flatten(0, 2).tolist() for out in (turned, plain)]
print("turned", rows[0], "plain", rows[1])
print("gradient", slopes[0].flatten(0, 2).tolist(), "plain", slopes[1].flatten(0, 2).tolist())
wrong = [(one - other).abs().max() for one, other in ((turned, plain), slopes)]
sys.exit(0 if min(wrong) > 1e-2 else 1)
