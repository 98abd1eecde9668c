"""Two memory modes of revlib raise in the backward pass of linear layers, because fewer tensors are saved again."""

import revlib
import torch

words = {}
for mode in ("autograd_graph", "checkpoint"):
    net = revlib.ReversibleSequential(*(torch.nn.Linear(2, 2) for _ in range(3)), memory_mode=revlib.MemoryModes[mode])
    try:
        net(torch.randn(5, 4, requires_grad=True)).sum().backward()
    except RuntimeError as error:
        words[mode] = str(error).splitlines()[0]
print(words)
raise SystemExit(0 if len(words) == 2 else 1)
