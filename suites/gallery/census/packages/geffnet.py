# /// script
# dependencies = ["geffnet==1.0.2"]
#
# [tool.gradgate]
# home = "https://github.com/rwightman/gen-efficientnet-pytorch"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Activations of geffnet that keep only their input."""

import torch
from geffnet.activations import activations_me as me

torch.manual_seed(0)
for rule in (me.SwishJitAutoFn, me.MishJitAutoFn, me.HardSigmoidJitAutoFn, me.HardSwishJitAutoFn):
    rule.apply(2 * torch.randn(3, 5, requires_grad=True)).sum().backward()
