"""pytorch_wavelets 1.3.0: highpass coefficients get no gradient if the lowpass ones require none."""

import sys

import torch
from pytorch_wavelets import DWT1DInverse, DWTInverse

missing = 0
for inverse, low, high in (
    (DWTInverse(wave="db2", mode="zero"), torch.randn(1, 1, 5, 5), torch.randn(1, 1, 3, 5, 5)),
    (DWT1DInverse(wave="db2", mode="zero"), torch.randn(1, 1, 5), torch.randn(1, 1, 5)),
):
    for frozen in (False, True):
        low, high = low.detach().requires_grad_(not frozen), high.detach().requires_grad_()
        inverse((low, [high])).square().sum().backward()
        print(type(inverse).__name__, "lowpass frozen" if frozen else "both learn", "highpass gradient:", high.grad)
        missing += frozen and high.grad is None
sys.exit(missing != 2)
