"""xitorch 0.5.1: an integral whose limits are numbers cannot be differentiated by its parameters."""

import sys

import torch
from xitorch.integrate import quad


def integral(limit):
    a = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    value = quad(lambda x, a: torch.sin(a * x), limit, torch.tensor(1.0, dtype=torch.float64), params=(a,))
    return torch.autograd.grad(value.sum(), a)[0].item()


try:
    integral(0.0)
except RuntimeError as error:
    print(error)
    print("with a tensor:", integral(torch.tensor(0.0, dtype=torch.float64)), "exact: 0.440397")
    sys.exit("not a Variable" not in str(error))
