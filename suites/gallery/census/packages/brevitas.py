# /// script
# dependencies = ["brevitas==0.13.4", "dependencies==7.7.0", "unfoldNd==0.2.3"]
#
# [tool.gradgate]
# home = "https://github.com/Xilinx/brevitas"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "brevitas.ops.autograd_ste_ops:*SteFn" = "straight-through estimators, as their names say"
# ///
"""Roundings and clamps of brevitas with straight-through gradients."""

import torch
from brevitas.ops import autograd_ste_ops as ops

torch.manual_seed(0)
x = 2 * torch.randn(3, 5)
low, high = torch.tensor(-1.0), torch.tensor(1.5)
plain = ("RoundToZero", "DPURound", "Ceil", "Floor", "BinarySign", "TernarySign", "Round")
for rule in [*(getattr(ops, f"{name}SteFn") for name in plain), ops.AbsBinarySignGradFn]:
    rule.apply(x.clone().requires_grad_())
ops.ScalarClampSteFn.apply(x.clone().requires_grad_(), -1.0, 1.5)
ops.ScalarClampMinSteFn.apply(x.clone().requires_grad_(), -1.0)
ops.TensorClampSteFn.apply(x.clone().requires_grad_(), low, high)
ops.InplaceTensorClampSteFn.apply(x.clone().requires_grad_() * 1.0, low, high)
