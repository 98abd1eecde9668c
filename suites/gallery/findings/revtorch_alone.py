"""If the input requires no gradient, the parameters of revtorch's blocks get none."""

import torch
from revtorch.revtorch import ReversibleBlock, ReversibleSequence

f, g = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
last, block = torch.nn.Linear(4, 1), ReversibleSequence(torch.nn.ModuleList([ReversibleBlock(f, g)]))
last(block(torch.ones(3, 4))).sum().backward()
print("last layer:", last.weight.grad, "block:", f.weight.grad, g.weight.grad)
raise SystemExit(0 if last.weight.grad is not None and f.weight.grad is None else 1)
