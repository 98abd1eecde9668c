"""Under checkpoint_wrapper, a forward pass does not update running statistics; the backward pass does."""

import torch
from fairscale.nn.checkpoint import checkpoint_wrapper

norm = torch.nn.BatchNorm1d(2)
y = checkpoint_wrapper(torch.nn.Sequential(norm))(torch.ones(9, 2, requires_grad=True))
after = [norm.num_batches_tracked.item()]
y.sum().backward()
after.append(norm.num_batches_tracked.item())
print("batches tracked after the forward pass and after the backward pass:", after)
raise SystemExit(0 if after == [0, 1] else 1)
