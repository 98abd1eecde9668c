"""gpytorch 1.15.2: below -1, log_normal_cdf and its gradient are no derivative of each other, and neither is exact."""

import sys

import torch
from gpytorch.functions import log_normal_cdf

z = torch.tensor([-1.01, -1.5, -2.0, -4.0], dtype=torch.float64, requires_grad=True)
value = log_normal_cdf(z)
(own,) = torch.autograd.grad(value.sum(), z)
step = 1e-6
with torch.no_grad():
    slope = (log_normal_cdf(z + step) - log_normal_cdf(z - step)) / (2 * step)
print("value, relative error   ", (value / torch.special.log_ndtr(z) - 1).tolist())
print("gradient / its own slope", (own / slope - 1).tolist())
sys.exit(not (own / slope - 1).abs().max() > 1e-4)
