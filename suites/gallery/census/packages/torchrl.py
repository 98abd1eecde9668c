# /// script
# dependencies = ["torchrl==0.14.1", "tensordict==0.14.0", "pyvers==0.2.2", "orjson==3.11.4"]
#
# [tool.gradgate]
# home = "https://github.com/pytorch/rl"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "torchrl.modules.distributions.utils:_SafeaTanh*" = "beyond its bound the forward pass is constant, and the gradient is that at the bound"
# ///
"""Bounded hyperbolic tangents of torchrl."""

import torch
from torchrl.modules.distributions import utils

torch.manual_seed(0)
utils._SafeTanh.apply(torch.randn(3, 5, requires_grad=True), 1e-4)
utils._SafeTanhNoEps.apply(torch.randn(3, 5, requires_grad=True))
utils._SafeaTanh.apply((1.8 * torch.rand(3, 5) - 0.9).requires_grad_(), 1e-4)
utils._SafeaTanhNoEps.apply((1.8 * torch.rand(3, 5) - 0.9).requires_grad_())
