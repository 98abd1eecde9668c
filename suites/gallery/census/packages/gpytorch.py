# /// script
# dependencies = ["gpytorch==1.15.2", "linear_operator==0.6.1"]
#
# [tool.gradgate]
# home = "https://github.com/cornellius-gp/gpytorch"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "gpytorch.variational.*natural_variational_distribution:*" = "a natural gradient: it is taken by the expectation parameters, as documented"
#
# [tool.gradgate.findings."gpytorch.functions._log_normal_cdf:LogNormalCDF"]
# cause = "Below -1 the forward pass uses an approximation that is accurate only far below: its value is up to 0.1% off, and its slope 0.7% from the gradient."
# script = "findings/gpytorch_log_normal_cdf.py"
# ///
"""Kernels and variational terms of gpytorch."""

import torch
from gpytorch.functions import MaternCovariance, RBFCovariance, log_normal_cdf
from gpytorch.variational import large_batch_variational_strategy as large
from gpytorch.variational import natural_variational_distribution as natural
from gpytorch.variational import tril_natural_variational_distribution as tril

torch.manual_seed(0)
a, b = torch.randn(4, 2), torch.randn(3, 2)


def squared(a, b):
    return (a[:, None] - b[None]).square().sum(-1)


log_normal_cdf(torch.randn(6, requires_grad=True))
scale = torch.tensor([[0.8]], requires_grad=True)
RBFCovariance.apply(a, b, scale, squared)
for nu in (0.5, 1.5, 2.5):
    MaternCovariance.apply(a, b, scale, nu, lambda a, b: squared(a, b).sqrt())
natural._NaturalToMuVarSqrt.apply(torch.randn(3, requires_grad=True), (-torch.eye(3)).requires_grad_())
tril._TrilNaturalToMuVarSqrt.apply(torch.randn(3, requires_grad=True), (0.7 * torch.eye(3)).requires_grad_())
large.QuadFormDiagonal.apply((a[:3] @ a[:3].mT).requires_grad_(), torch.randn(3, 4, requires_grad=True))
