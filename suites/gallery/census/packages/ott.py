# /// script
# dependencies = ["ott-jax==0.6.0", "jaxopt==0.8.5", "lineax==0.1.1", "optimistix==0.1.0"]
#
# [tool.gradgate]
# home = "https://github.com/ott-jax/ott"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Soft minima, norms and matrix roots of ott-jax."""

import jax
import jax.numpy as jnp
from ott.math import matrix_square_root as root
from ott.math import utils

x = jax.random.normal(jax.random.key(0), (3, 4))
jax.grad(lambda x: utils.norm(x, None, -1).sum())(x)
jax.grad(lambda x: utils.logsumexp(x, axis=-1).sum())(x)
jax.grad(lambda x: utils.softmin(x, 0.5, -1).sum())(x)
jax.grad(lambda x: utils.lambertw(x).sum())(jnp.abs(x))
a = x @ x.T + 2 * jnp.eye(3)
for function in (root.sqrtm_only, root.inv_sqrtm_only):
    jax.grad(lambda a: function(a).sum())(a)
jax.grad(lambda a: root.sqrtm(a)[0].sum())(a)
