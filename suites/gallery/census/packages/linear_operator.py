# /// script
# dependencies = ["linear_operator==0.6.1"]
#
# [tool.gradgate]
# home = "https://github.com/cornellius-gp/linear_operator"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "linear_operator.functions.*" = "the matrix is symmetric, and its gradient is spread over both triangles; on symmetric matrices it is right"
# ///
"""Solves, roots and products of linear_operator."""

import linear_operator
import torch

torch.manual_seed(0)


def positive():
    a = torch.randn(4, 4, dtype=torch.float64)
    return linear_operator.to_linear_operator((a @ a.mT + 4 * torch.eye(4, dtype=torch.float64)).requires_grad_())


right = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
with linear_operator.settings.fast_computations(False, False, False):
    positive() @ right
    linear_operator.solve(positive(), right)
    linear_operator.inv_quad(positive(), right)
    linear_operator.inv_quad_logdet(positive(), right, logdet=True)
    linear_operator.root_decomposition(positive())
    linear_operator.diagonalization(positive())
    linear_operator.pivoted_cholesky(positive(), rank=3)
    linear_operator.sqrt_inv_matmul(positive(), right, right.mT)
linear_operator.dsmm(torch.eye(4, dtype=torch.float64).to_sparse(), right)
