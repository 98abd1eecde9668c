"""Liger-Kernel 0.8.5: by default, the backward pass of RMSNorm overwrites the cotangent that it is given."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.language as tl
from liger_kernel.ops import rms_norm

scalar = type("Scalar", (float,), {"to": lambda self, kind: self})  # what Triton's interpreter lacks
rms_norm.rsqrt = lambda x: 1 / tl.sqrt(x)
torch.manual_seed(0)
x, weight, cotangent = torch.randn(3, 8).requires_grad_(), torch.randn(8), torch.randn(3, 8)
before = cotangent.clone()
rms_norm.LigerRMSNormFunction.apply(x, weight, scalar(1e-6), scalar(0)).backward(cotangent)
print("cotangent before", before[0, :3].tolist(), "after", cotangent[0, :3].tolist())
sys.exit(0 if (cotangent - before).abs().max() > 1e-2 else 1)
