# /// script
# dependencies = ["numpyro==0.22.0", "multipledispatch==1.0.0"]
#
# [tool.gradgate]
# home = "https://github.com/pyro-ppl/numpyro"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""A power law that is truncated on both sides, and log(1 - exp(x)), of NumPyro."""

import jax
import jax.numpy as jnp
from numpyro.distributions import DoublyTruncatedPowerLaw
from numpyro.distributions.util import log1mexp

x, alpha = jnp.array([1.3, 2.1, 2.9]), jnp.array([-2.5, -0.3, 1.2])
jax.grad(lambda x: log1mexp(x).sum())(-x)
for name, at in (("log_prob", x), ("cdf", x), ("icdf", x / 4)):

    def value(at, alpha, low, high):
        return getattr(DoublyTruncatedPowerLaw(alpha, low, high), name)(at).sum()

    jax.grad(value, (0, 1, 2, 3))(at, alpha, jnp.full(3, 1.0), jnp.full(3, 3.0))
