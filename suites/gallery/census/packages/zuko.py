# /// script
# dependencies = ["zuko==1.6.0"]
#
# [tool.gradgate]
# home = "https://github.com/probabilists/zuko"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "zuko.utils:GaussLegendre" = "by the limits, the derivative of the integral, not of the quadrature"
# ///
"""Bisection, quadrature and an adjoint of zuko."""

import torch
import zuko

torch.manual_seed(0)
a = torch.rand(3, dtype=torch.float64, requires_grad=True)
zuko.utils.bisection(
    lambda x: x**3 + a * x, torch.rand(3, dtype=torch.float64, requires_grad=True), -2.0, 2.0, n=40, phi=(a,)
)
low, high = (
    torch.zeros(3, dtype=torch.float64, requires_grad=True),
    torch.ones(3, dtype=torch.float64, requires_grad=True),
)
zuko.utils.gauss_legendre(lambda x: torch.exp(a * x), low, high, n=4, phi=(a,))
zuko.utils.odeint(lambda t, x: -a * x, torch.rand(3, dtype=torch.float64, requires_grad=True), 0.0, 1.0, phi=(a,))
