"""A layer norm whose masked lanes count in the variance: they are loaded as 0, and the mean is subtracted from them."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl


@triton.jit
def norm(x, y, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + place, mask=place < n, other=0.0)
    row = row - tl.sum(row, 0) / n
    tl.store(y + tl.program_id(0) * n + place, row / tl.sqrt(tl.sum(row * row, 0) / n + 1e-5), mask=place < n)


errors = {}
for n in (32, 31, 17):
    x = torch.randn(4, n, generator=torch.Generator().manual_seed(0)) + 1.0
    norm[(4,)](x, y := torch.empty_like(x), n, BLOCK=32)
    errors[n] = float((y - torch.layer_norm(x, (n,))).abs().max())
print("largest error of the output, by width:", errors)
sys.exit(not (errors[32] < 1e-5 and errors[31] > 1e-2 and errors[17] > 1e-1))
