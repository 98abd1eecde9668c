# /// script
# dependencies = ["lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/lineax"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
# ///
"""Norms of lineax that are safe at zero."""

import jax
import jax.numpy as jnp
import lineax

x = jnp.array([0.5, -1.2, 2.0])
for norm in (lineax.internal.two_norm, lineax.internal.rms_norm, lineax.internal.max_norm):
    jax.grad(norm)(x)
