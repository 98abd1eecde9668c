# /// script
# dependencies = ["deepinv==0.5.0"]
#
# [tool.gradgate]
# home = "https://github.com/deepinv/deepinv"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Splines and solvers of deepinv."""

import torch
from deepinv.models import deal

torch.manual_seed(0)
knots = torch.arange(2) * 9
for rule in (deal.LinearSplineFunc, deal.LinearSplineDerivativeFunc, deal.QuadraticSplineFunc):
    rule.apply(torch.randn(2, 2, 3, 3, requires_grad=True), torch.randn(18, requires_grad=True), torch.tensor(-2.0), torch.tensor(2.0), 9, knots)
