"""A batch norm under a checkpoint updates its running statistics twice in a step."""

import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
x = torch.randn(8, 3, requires_grad=True)
found = {}
for name in ("plain", "checkpoint"):
    norm = torch.nn.BatchNorm1d(3)
    y = norm(x) if name == "plain" else checkpoint(norm, x, use_reentrant=False)
    y.square().sum().backward()
    found[name] = (norm.num_batches_tracked.item(), norm.running_mean[0].item())
print(found)
raise SystemExit(0 if found["plain"][0] == 1 and found["checkpoint"][0] == 2 else 1)
