"""If the input requires no gradient, the parameters of revlib's layers get none."""

import revlib
import torch

parts, last = [torch.nn.Linear(2, 2) for _ in range(3)], torch.nn.Linear(4, 1)
last(revlib.ReversibleSequential(*parts)(torch.ones(3, 4))).sum().backward()
print("last layer:", last.weight.grad, "reversible layers:", [part.weight.grad for part in parts])
raise SystemExit(0 if last.weight.grad is not None and parts[0].weight.grad is None else 1)
