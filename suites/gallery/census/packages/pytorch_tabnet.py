# /// script
# dependencies = ["pytorch_tabnet==4.1.0"]
#
# [tool.gradgate]
# home = "https://github.com/dreamquark-ai/tabnet"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Sparse softmaxes of pytorch-tabnet."""

import torch
from pytorch_tabnet import sparsemax

torch.manual_seed(0)
for rule in (sparsemax.SparsemaxFunction, sparsemax.Entmax15Function):
    rule.apply(torch.randn(3, 5, requires_grad=True), -1)
sparsemax.Entmoid15.apply(torch.randn(3, 5, requires_grad=True))
