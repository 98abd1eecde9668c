"""The flash attention of memory-efficient-attention-pytorch raises in float64, and in the backward pass in bfloat16."""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

raised = []
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    q, k, v = (torch.randn(1, 2, 4, 3, dtype=dtype, requires_grad=True) for _ in range(3))
    try:
        FlashAttentionFunction.apply(q, k, v, None, False, 2, 2).sum().backward()
    except RuntimeError as error:
        raised.append(dtype)
        print(dtype, "raises:", error)
raise SystemExit(0 if raised[:1] == [torch.float64] else 1)
