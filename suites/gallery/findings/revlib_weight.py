"""A weight changed between the passes: plain autograd raises, revlib returns another gradient without an error."""

import revlib
import torch

torch.manual_seed(0)
parts, grads, x = [torch.nn.Linear(2, 2) for _ in range(3)], [], torch.randn(5, 4, requires_grad=True)
for changed in (1, 3):
    out = revlib.ReversibleSequential(*parts)(x)
    parts[0].weight.grad = None
    cotangent = out.detach().clone()
    parts[2].weight.detach().mul_(changed)
    out.backward(cotangent)
    grads.append(parts[0].weight.grad.clone())
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("relative error after a weight was changed in place:", error)
raise SystemExit(0 if error > 0.1 else 1)
