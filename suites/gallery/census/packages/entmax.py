# /// script
# dependencies = ["entmax==1.3"]
#
# [tool.gradgate]
# home = "https://github.com/deep-spin/entmax"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Sparse softmaxes of entmax and their losses."""

import entmax
import torch

torch.manual_seed(0)
for function in (entmax.sparsemax, entmax.entmax15, entmax.entmax_bisect, entmax.sparsemax_bisect):
    function(torch.randn(3, 5, requires_grad=True), dim=-1)
entmax.entmax_bisect(torch.randn(3, 5, requires_grad=True), torch.tensor(1.7, requires_grad=True))
entmax.normmax_bisect(torch.randn(3, 5, requires_grad=True), alpha=2, dim=-1)
entmax.budget_bisect(torch.randn(3, 5, requires_grad=True), budget=2, dim=-1)
for loss in (entmax.SparsemaxLoss, entmax.Entmax15Loss, entmax.SparsemaxBisectLoss, entmax.EntmaxBisectLoss):
    loss()(torch.randn(3, 5, requires_grad=True), torch.tensor([0, 3, 1]))
