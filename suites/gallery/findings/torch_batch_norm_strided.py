"""On a CPU, the backward pass of batch norm reads a weight that is not contiguous as if it were contiguous."""

import torch

torch.manual_seed(0)
x, spread = torch.randn(3, 4, requires_grad=True), torch.randn(8)
grads = []
for weight in (spread[::2].clone(), spread[::2]):  # the same numbers
    y = torch.nn.functional.batch_norm(x, None, None, weight, None, True)
    grads.append(torch.autograd.grad(y, x, torch.arange(12.0).reshape(3, 4).sin())[0])
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("relative error with a strided weight:", error)
raise SystemExit(0 if error > 0.01 else 1)
