"""Liger-Kernel 0.8.5: cross entropy of logits that are not contiguous returns the logits as their gradient."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

torch.manual_seed(0)
logits, labels = torch.randn(4, 3), torch.tensor([0, 3, 1])
found = logits.clone().requires_grad_()
LigerCrossEntropyFunction.apply(found.T, labels, None)[0].backward()
plain = logits.clone().requires_grad_()
torch.nn.functional.cross_entropy(plain.T, labels).backward()
print("gradient", found.grad.flatten()[:4].tolist(), "plain", plain.grad.flatten()[:4].tolist())
print("logits", logits.flatten()[:4].tolist())
sys.exit(0 if (found.grad - plain.grad).abs().max() > 1e-2 else 1)
