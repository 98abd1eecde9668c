# /// script
# dependencies = ["snntorch==1.0.0"]
#
# [tool.gradgate]
# home = "https://github.com/jeshraghian/snntorch"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "snntorch.surrogate:*" = "a spike is a step, and its derivative is a surrogate's"
# "snntorch.functional.quant:*" = "quantisation with a straight-through gradient"
#
# [tool.gradgate.findings."snntorch.surrogate:LeakySpikeOperator"]
# cause = "The backward pass returns one gradient for two inputs, and raises; the function LSO that should call it calls another operator, and raises."
# script = "findings/snntorch_leaky.py"
# ///
"""Surrogate gradients of snntorch."""

import torch
from snntorch import surrogate
from snntorch.functional import quant

torch.manual_seed(0)
x = torch.randn(3, 5)
plain = ("straight_through_estimator", "triangular", "fast_sigmoid", "atan", "heaviside", "sigmoid")
for name in plain:
    getattr(surrogate, name)()(x.clone().requires_grad_())
surrogate.SpikeRateEscape.apply(x.clone().requires_grad_(), 1.0, 25.0)
surrogate.StochasticSpikeOperator.apply(x.clone().requires_grad_(), 0.0, 0.2)
surrogate.LeakySpikeOperator.apply(x.clone().requires_grad_(), 0.1)
surrogate.SparseFastSigmoid.apply(x.clone().requires_grad_(), 25.0, 1.0)
surrogate.CustomSurrogate.apply(x.clone().requires_grad_(), lambda a, g, y: g * a.cos())
quant.state_quant(num_bits=4)(x.clone().requires_grad_())
