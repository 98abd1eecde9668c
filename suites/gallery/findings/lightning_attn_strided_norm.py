"""lightning-attn 0.0.5: the gradient of its RMS norm is wrong for an input that is not contiguous."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from lightning_attn.ops.triton.srmsnorm import _SrmsNorm

torch.manual_seed(0)
x = torch.randn(4, 3)
found, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
_SrmsNorm.apply(found.T, 1e-6)[:, 0].sum().backward()
rows = plain.T
(rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6))[:, 0].sum().backward()
print("gradient", found.grad.flatten()[:4].tolist(), "plain", plain.grad.flatten()[:4].tolist())
sys.exit(0 if not (found.grad - plain.grad).abs().max() < 1e-2 else 1)
