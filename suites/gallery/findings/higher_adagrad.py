"""In float64, higher computes the decayed rate of Adagrad in float32: the step count is now a float32 tensor."""

import higher
import torch

g = torch.tensor([0.3, -1.0], dtype=torch.float64)
w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
theirs = [w.detach().requires_grad_()]
plain = torch.optim.Adagrad([w], lr=0.1, lr_decay=0.1)
optimizer = higher.get_diff_optim(plain, [w])
for _ in range(2):
    theirs = list(optimizer.step((g * theirs[0]).sum(), params=theirs))
    w.grad = g.clone()
    plain.step()
error = float((theirs[0] - w).detach().norm() / w.detach().norm())
print("relative error of two steps in float64:", error)
raise SystemExit(0 if error > 1e-10 else 1)
