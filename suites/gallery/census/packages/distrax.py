# /// script
# dependencies = [
#     "distrax==0.1.9",
#     "tfp-nightly==0.26.0.dev20261027",
#     "chex==0.1.91",
#     "toolz==1.1.0",
#     "decorator==5.2.1",
#     "gast==0.7.0",
#     "dm-tree==0.1.9",
#     "six==1.17.0",
# ]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/distrax"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Products and powers without NaN, and angles of distrax."""

import jax
import jax.numpy as jnp
from distrax._src.distributions import von_mises
from distrax._src.utils import math

x, y = jnp.array([0.5, -1.2, 2.0]), jnp.array([1.5, 0.3, -0.7])
jax.grad(lambda x, y: math.multiply_no_nan(x, y).sum(), (0, 1))(x, y)
jax.grad(lambda x, y: math.power_no_nan(x, y).sum(), (0, 1))(x**2, y)
jax.grad(lambda k: von_mises._von_mises_cdf(x, k, jnp.float32).sum())(jnp.array([1.0, 3.0, 20.0]))
