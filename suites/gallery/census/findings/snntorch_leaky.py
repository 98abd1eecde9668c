"""snntorch 1.0.0: the leaky spike operator cannot be differentiated, and its wrapper calls another operator."""

import sys

import torch
from snntorch import surrogate

raised = 0
try:
    surrogate.LeakySpikeOperator.apply(torch.randn(3, requires_grad=True), 0.1).sum().backward()
except RuntimeError as error:
    raised += "incorrect number of gradients" in str(error)
    print(error)
try:
    surrogate.LSO()(torch.randn(3, requires_grad=True))
except TypeError as error:
    raised += 1
    print(error)
sys.exit(raised != 2)
