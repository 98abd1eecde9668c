# /// script
# dependencies = ["torchdiffeq==0.2.5"]
#
# [tool.gradgate]
# home = "https://github.com/rtqichen/torchdiffeq"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "torchdiffeq._impl.misc:_StitchGradient" = "it reroutes the gradient to another input, as its name says"
# "torchdiffeq._impl.rk_common:_UncheckedAssign" = "an assignment in place; the part that is overwritten keeps its gradient, and the solver never asks for it"
# ///
"""Adjoints of torchdiffeq."""

import torch
from torchdiffeq import odeint, odeint_adjoint, odeint_event

torch.manual_seed(0)


class Field(torch.nn.Linear):
    def forward(self, t, x):
        return torch.tanh(super().forward(x))


field = Field(3, 3).double()
x = torch.randn(3, dtype=torch.float64, requires_grad=True)
t = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
odeint(field, x, t, method="dopri5")
odeint_adjoint(field, x, t, method="rk4", options={"step_size": 0.25})
odeint_event(lambda t, x: torch.ones_like(x), x, t[0], event_fn=lambda t, x: t - 0.3, odeint_interface=odeint)
