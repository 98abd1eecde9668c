"""A weight or the mode changed between the passes: revtorch returns another gradient without an error."""

import torch
from revtorch.revtorch import ReversibleBlock, ReversibleSequence
from torch import nn

torch.manual_seed(0)
f, g, grads = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), []
sequence, x = ReversibleSequence(nn.ModuleList([ReversibleBlock(f, g, fix_random_seed=True)])), torch.ones(9, 4)
for change in (lambda: None, lambda: g[0].weight.detach().mul_(3), lambda: sequence.eval()):
    torch.nn.init.eye_(g[0].weight)
    y = sequence(x.requires_grad_())
    kept = y.detach().clone()
    change()
    y.square().sum().backward()
    grads.append((f.weight.grad - 2 * kept[:, :2].T @ x[:, 2:].detach()).norm().item())
    f.weight.grad = None
print("norm of what g contributes to the gradient of f: right, weight changed, mode changed:", grads)
raise SystemExit(0 if abs(grads[1] / grads[0] - 1) > 0.1 and abs(grads[2] / grads[0] - 1) > 0.1 else 1)
