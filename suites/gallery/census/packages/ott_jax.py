# /// script
# dependencies = ["ott-jax==0.6.0", "jaxopt==0.8.5", "lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/ott-jax/ott"
# framework = "jax"
# no-deps = true
# seconds = 120
# limit = 900
# ///
"""Norms, soft minima, Lambert's function and roots of matrices of OTT."""

import jax
import jax.numpy as jnp
from ott.math import matrix_square_root, utils

x = jax.random.normal(jax.random.PRNGKey(0), (3, 5))
jax.grad(lambda x: utils.norm(x, axis=-1).sum())(x)
jax.grad(lambda x: utils.logsumexp(x, axis=1).sum())(x)
jax.grad(lambda x, b: utils.logsumexp(x, 1, False, b).sum(), (0, 1))(x, jnp.exp(-x))
jax.grad(lambda x: utils.softmin(x, 0.5, 1).sum())(x)
jax.grad(lambda z: utils.lambertw(z).sum())(jnp.array([0.3, 1.7, 20.0]))
spd = x @ x.T + jnp.eye(3)
for root in (matrix_square_root.sqrtm_only, matrix_square_root.inv_sqrtm_only):
    jax.grad(lambda m: root(m).sum())(spd)
jax.grad(lambda m: sum(part.sum() for part in matrix_square_root.sqrtm(m)[:2]))(spd)
