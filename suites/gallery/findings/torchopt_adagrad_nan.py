"""torchopt's Adagrad hides a NaN in the gradient: the update is 0."""

import torch
import torchopt

w = torch.zeros(2, requires_grad=True)
w.grad = torch.tensor([float("nan"), 1.0])
optimizer, theirs = torchopt.adagrad(0.1), torch.optim.Adagrad([w], lr=0.1)
updates, _ = optimizer.update({"w": w.grad.clone()}, optimizer.init({"w": w}), inplace=False)
theirs.step()
print("torchopt:", updates["w"], "torch.optim:", w.detach())
raise SystemExit(0 if torch.isfinite(updates["w"]).all() and not torch.isfinite(w).all() else 1)
