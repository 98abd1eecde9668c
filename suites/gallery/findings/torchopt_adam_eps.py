"""The backward pass of torchopt's accelerated Adam leaves out eps: another gradient than the plain Adam's."""

import torch
import torchopt

grads = []
for accelerated in (False, True):
    g = torch.tensor([1e-3, 2e-3], dtype=torch.float64, requires_grad=True)
    optimizer = torchopt.adam(1.0, eps=1e-2, use_accelerated_op=accelerated)
    theta = {"w": torch.zeros(2, dtype=torch.float64)}
    updates, state = optimizer.update({"w": g}, optimizer.init(theta), inplace=False)
    updates, _ = optimizer.update({"w": 3 * g}, state, inplace=False)
    grads.append(torch.autograd.grad(updates["w"].sum(), g)[0])
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("gradients:", grads, "relative error:", error)
raise SystemExit(0 if error > 0.01 else 1)
