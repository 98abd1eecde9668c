# /// script
# dependencies = ["pytorch_wavelets==1.3.0", "pywavelets==1.8.0", "six==1.17.0", "setuptools==80.9.0"]
#
# [tool.gradgate]
# home = "https://github.com/fbcotter/pytorch_wavelets"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.findings."pytorch_wavelets.dwt.lowlevel:SFB2D"]
# cause = "The backward pass computes nothing if the lowpass input requires no gradient, so the highpass input, which requires one, gets none."
# script = "findings/pytorch_wavelets_highpass.py"
#
# [tool.gradgate.findings."pytorch_wavelets.dwt.lowlevel:SFB1D"]
# cause = "The backward pass computes nothing if the lowpass input requires no gradient, so the highpass input, which requires one, gets none."
# script = "findings/pytorch_wavelets_highpass.py"
# ///
"""Wavelets and scattering layers of pytorch_wavelets."""

import torch
from pytorch_wavelets import DTCWTForward, DTCWTInverse, DWT1DForward, DWT1DInverse, DWTForward, DWTInverse
from pytorch_wavelets import ScatLayer, ScatLayerj2
from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

torch.manual_seed(0)
low, high = DWTForward(J=1, wave="db2", mode="zero")(torch.randn(1, 1, 8, 6, requires_grad=True))
DWTInverse(wave="db2", mode="zero")((low, high)).sum().backward()
low, high = DWT1DForward(J=1, wave="db2", mode="zero")(torch.randn(1, 2, 8, requires_grad=True))
DWT1DInverse(wave="db2", mode="zero")((low, high)).sum().backward()
low, high = DTCWTForward(J=2)(torch.randn(1, 1, 8, 8, requires_grad=True))
DTCWTInverse()((low, high)).sum().backward()
for biort in ("near_sym_a", "near_sym_b_bp"):
    ScatLayer(biort=biort)(torch.randn(1, 1, 4, 4, requires_grad=True)).sum().backward()
for biort, qshift in (("near_sym_a", "qshift_a"), ("near_sym_b_bp", "qshift_b_bp")):
    ScatLayerj2(biort=biort, qshift=qshift)(torch.randn(1, 1, 8, 8, requires_grad=True)).sum().backward()
SmoothMagFn.apply(torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True), 0.01)
