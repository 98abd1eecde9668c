"""A weight changed between the passes: plain autograd raises, memcnn returns another gradient without an error."""

import memcnn
import torch
from torch import nn

torch.manual_seed(0)
f, g = (nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2))
coupling, grads = memcnn.AdditiveCoupling(f, g), []
for changed in (1, 3):
    x = torch.ones(3, 4, requires_grad=True) + 0
    x.retain_grad()
    y = memcnn.InvertibleModuleWrapper(coupling, keep_input=False)(x)
    g[0].weight.detach().mul_(changed)
    y.square().sum().backward()
    grads.append(f[0].weight.grad.clone())
    f[0].weight.grad = None
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("relative error after a weight was changed in place:", error)
raise SystemExit(0 if error > 0.1 else 1)
