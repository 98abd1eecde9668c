"""xitorch 0.5.1: an integral whose limits are numbers cannot be differentiated by its parameters."""

import sys

import torch
from xitorch.integrate import quad

one = torch.tensor(1.0, dtype=torch.float64)
a = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
try:
    quad(lambda x, a: torch.sin(a * x), 0.0, one, params=(a,)).sum().backward()
except RuntimeError as error:
    print(error)
    (found,) = torch.autograd.grad(quad(lambda x, a: torch.sin(a * x), 0 * one, one, params=(a,)).sum(), a)
    print("with a tensor:", found.item(), "exact: 0.440397")
    sys.exit("not a Variable" not in str(error))
sys.exit(1)
