# /// script
# dependencies = ["xitorch==0.5.1"]
#
# [tool.gradgate]
# home = "https://github.com/xitorch/xitorch"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "xitorch.linalg.symeig:symeig_torchfcn" = "the gradient among symmetric matrices: along these it agrees with differences to 1e-10, and the forward pass refuses others"
# "xitorch.optimize.rootfinder:_RootFinder" = "the derivative at the root, to 2e-16, and not of the iteration, which ends 1e-9 away from it"
# "xitorch.integrate.solve_ivp:_SolveIVP" = "the derivative of the equation's solution, to the solver's tolerance, and not of its steps: 2e-6 away from the exact one, and 2e-13 with rtol=1e-12"
#
# [tool.gradgate.findings."xitorch.integrate.quad:_Quadrature"]
# cause = "If a limit is a number and no tensor, the backward pass returns a gradient for it, and raises."
# script = "findings/xitorch_quad_limits.py"
# ///
"""Solvers, eigenvalues and integrals of xitorch."""

import torch
import xitorch
from xitorch.integrate import quad, solve_ivp
from xitorch.linalg import solve, symeig
from xitorch.optimize import rootfinder

torch.manual_seed(0)
m = torch.randn(4, 4, dtype=torch.float64)
A = xitorch.LinearOperator.m((m @ m.mT + 4 * torch.eye(4, dtype=torch.float64)).requires_grad_(), is_hermitian=True)
symeig(A, method="custom_exacteig")
solve(A, torch.randn(4, 1, dtype=torch.float64, requires_grad=True), method="custom_exactsolve")
w = (0.3 * m).requires_grad_()
rootfinder(lambda y, w: y - torch.tanh(w @ y + 1), torch.zeros(4, 1, dtype=torch.float64), params=(w,))
quad(lambda x, a: torch.sin(a * x), 0.0, torch.tensor(1.0, dtype=torch.float64), params=(w[0, :1],))
solve_ivp(
    lambda t, y, w: -w @ y,
    torch.linspace(0, 1, 3, dtype=torch.float64),
    torch.ones(4, dtype=torch.float64),
    params=(w,),
)
