# /// script
# dependencies = ["monai==1.6.1"]
#
# [tool.gradgate]
# home = "https://github.com/Project-MONAI/MONAI"
# framework = "torch"
# no-deps = true
# seconds = 30
# limit = 900
#
# [tool.gradgate.by-design]
# "monai.visualize.gradient_based:_AutoGradReLU" = "guided backpropagation, which also drops negative upstream gradients"
# ///
"""Memory-efficient swish and guided backpropagation of MONAI."""

import torch
from monai.networks.blocks.activation import MemoryEfficientSwish
from monai.visualize.gradient_based import _GradReLU

torch.manual_seed(0)
for module in (MemoryEfficientSwish(), _GradReLU()):
    module(torch.randn(3, 5, requires_grad=True))
