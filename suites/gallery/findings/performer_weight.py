"""A weight changed between the passes: plain autograd raises, performer-pytorch's reversible layers do not notice."""

import torch
from performer_pytorch.reversible import ReversibleSequence
from torch import nn

torch.manual_seed(0)
f, g, grads = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh()), []
for changed in (1, 3):
    out = ReversibleSequence(nn.ModuleList([nn.ModuleList([f, g])]))(torch.ones(1, 3, 2, requires_grad=True))
    f.weight.grad = None
    cotangent = out.detach().clone()
    g[0].weight.detach().mul_(changed)
    out.backward(cotangent)
    grads.append(f.weight.grad.clone())
error = float((grads[1] - grads[0]).norm() / grads[0].norm())
print("relative error after a weight was changed in place:", error)
raise SystemExit(0 if error > 0.1 else 1)
