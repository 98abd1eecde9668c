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
"""Stable logarithms of numpyro."""

import jax
import jax.numpy as jnp
from numpyro.distributions import util

jax.grad(lambda x: util.log1mexp(x).sum())(jnp.array([-0.3, -0.9, -2.5]))
