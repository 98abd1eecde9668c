"""The mode, or a weight, changed between the passes: checkpoint_wrapper returns another gradient without an error."""

import torch
from fairscale.nn.checkpoint import checkpoint_wrapper
from torch import nn

found = {}
for change in ("nothing", "eval", "weight"):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2))
    y = checkpoint_wrapper(net)(torch.ones(9, 2, requires_grad=True)).sum()
    net.train(change != "eval")
    net[2].weight.detach().mul_(3 if change == "weight" else 1)
    y.backward()
    found[change] = net[0].weight.grad
errors = [float((found[name] - found["nothing"]).norm() / found["nothing"].norm()) for name in ("eval", "weight")]
print("relative errors after eval(), and after a weight was changed in place:", errors)
raise SystemExit(0 if min(errors) > 0.1 else 1)
