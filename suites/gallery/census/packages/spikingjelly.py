# /// script
# dependencies = ["spikingjelly==2.0.0"]
#
# [tool.gradgate]
# home = "https://github.com/fangwei123456/spikingjelly"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "spikingjelly.activation_based.surrogate:*" = "a spike is a step, and its derivative is a surrogate's"
# ///
"""Surrogate gradients of spikingjelly."""

import torch
from spikingjelly.activation_based import surrogate

torch.manual_seed(0)
x = torch.randn(3, 5)
names = (
    "piecewise_quadratic",
    "piecewise_exp",
    "sigmoid",
    "soft_sign",
    "super_spike",
    "atan",
    "nonzero_sign_log_abs",
    "erf",
    "q_pseudo_spike",
    "fake_numerical_gradient",
    "log_tailed_relu",
    "rect",
)
for name in names:
    getattr(surrogate, name).apply(x.clone().requires_grad_(), 2.0)
surrogate.piecewise_leaky_relu.apply(x.clone().requires_grad_(), 1.0, 0.01)
surrogate.squarewave_fourier_series.apply(x.clone().requires_grad_(), 2, 8.0)
surrogate.s2nn.apply(x.clone().requires_grad_(), 4.0, 1.0)
surrogate.leaky_k_relu.apply(x.clone().requires_grad_(), 0.0, 1.0)
surrogate.deterministic_pass.apply(x.clone().requires_grad_())
