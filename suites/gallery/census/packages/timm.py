# /// script
# dependencies = ["timm==1.0.31"]
#
# [tool.gradgate]
# home = "https://github.com/huggingface/pytorch-image-models"
# framework = "torch"
# no-deps = true
# seconds = 30
# limit = 900
# ///
"""Memory-efficient activations of timm."""

import torch
from timm.layers import activations_me

torch.manual_seed(0)
for function in ("swish", "mish", "hard_sigmoid", "hard_swish", "hard_mish"):
    getattr(activations_me, f"{function}_me")(3 * torch.randn(3, 5, requires_grad=True))
