# /// script
# dependencies = ["pyro_ppl==1.9.2", "pyro-api==0.1.2"]
#
# [tool.gradgate]
# home = "https://github.com/pyro-ppl/pyro"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "pyro.distributions.relaxed_straight_through:*" = "a straight-through estimator, as its name says"
# "pyro.distributions.*" = "an estimator of the gradient of an expectation, not the derivative of one sample"
# ///
"""Reparametrised samples of pyro."""

import pyro.distributions as dist
import torch
from pyro.ops.special import safe_log

torch.manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, requires_grad=True)


def positive(*shape):
    return (torch.rand(*shape) + 0.5).requires_grad_()


safe_log(positive(5))
dist.OMTMultivariateNormal(normal(3), torch.randn(3, 3).tril().add(2 * torch.eye(3)).requires_grad_()).rsample()
dist.AVFMultivariateNormal(normal(3), torch.eye(3).requires_grad_(), normal(2, 1, 3)).rsample()
dist.MixtureOfDiagNormals(normal(2, 3), positive(2, 3), normal(2)).rsample()
dist.MixtureOfDiagNormalsSharedCovariance(normal(2, 3), positive(3), normal(2)).rsample()
dist.GaussianScaleMixture(positive(3), normal(2), positive(2)).rsample()
dist.RelaxedBernoulliStraightThrough(torch.tensor(0.5), logits=normal(3)).rsample()
dist.RelaxedOneHotCategoricalStraightThrough(torch.tensor(0.5), logits=normal(3)).rsample()
