"""With fix_random_seed=True, revtorch leaves PyTorch's global generator at a seed of its own."""

import random

import torch
from revtorch.revtorch import ReversibleBlock, ReversibleSequence

block = ReversibleBlock(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), fix_random_seed=True)
sequence, drawn = ReversibleSequence(torch.nn.ModuleList([block])), []
for seed in (1, 2):
    torch.manual_seed(seed)
    random.seed(0)
    sequence(torch.ones(3, 4))
    drawn.append(torch.rand(()).item())
print("drawn after the call, under two seeds of PyTorch:", drawn)
raise SystemExit(0 if drawn[0] == drawn[1] else 1)
