# /// script
# dependencies = ["roma==1.8.0"]
#
# [tool.gradgate]
# home = "https://github.com/naver/roma"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "roma.mappings:_HornEigenvectorManualDerivatives" = "the gradient is regularised by gradient_eps"
# "roma.mappings:_ProcrustesRegularization" = "an identity whose gradient adds that of a penalty"
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
