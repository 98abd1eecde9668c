"""Liger-Kernel 0.8.5: a second backward pass of SwiGLU and GEGLU gives another gradient, without an error."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.language as tl
from liger_kernel.ops import geglu, swiglu

swiglu.float = type("Scalar", (float,), {"to": lambda self, kind: self})  # what Triton's interpreter lacks
geglu.tanh = lambda x: 2 * tl.sigmoid(2 * x) - 1
a, b = torch.randn(2, 3, 8, generator=torch.manual_seed(0)).requires_grad_().unbind()
worst = []
for function in (swiglu.LigerSiLUMulFunction, geglu.LigerGELUMulFunction):
    loss = function.apply(1 * a, 1 * b).sum()
    first, second = (torch.autograd.grad(loss, a, retain_graph=True)[0].clone() for _ in range(2))
    worst.append(((first - second).abs().max() / first.abs().max()).item())
print("SwiGLU, GEGLU: change of the gradient", worst)
sys.exit(0 if min(worst) > 1e-2 else 1)
