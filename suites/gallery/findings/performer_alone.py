"""If the input requires no gradient, the parameters of performer-pytorch's reversible layers get none."""

import torch
from performer_pytorch.reversible import ReversibleSequence
from torch import nn

f, g, last = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)
last(ReversibleSequence(nn.ModuleList([nn.ModuleList([f, g])]))(torch.ones(1, 3, 2))).sum().backward()
print("last layer:", last.weight.grad, "reversible layers:", f.weight.grad, g.weight.grad)
raise SystemExit(0 if last.weight.grad is not None and f.weight.grad is None else 1)
