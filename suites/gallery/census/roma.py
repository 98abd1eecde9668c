# /// script
# dependencies = ["roma==1.8.0"]
#
# [tool.gradgate]
# home = "https://github.com/naver/roma"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Procrustes problems of roma."""

import roma
import torch

torch.manual_seed(0)
M = torch.randn(2, 3, 3, dtype=torch.float64)
roma.procrustes(M.clone().requires_grad_())
roma.special_procrustes(M.clone().requires_grad_())
roma.procrustes(M.clone().requires_grad_(), regularization=0.1)
roma.mappings._HornEigenvectorManualDerivatives.apply(M.clone().requires_grad_(), 1e-5)
