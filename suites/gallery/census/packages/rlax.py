# /// script
# dependencies = [
#     "rlax==0.1.9",
#     "chex==0.1.91",
#     "distrax==0.1.9",
#     "toolz==1.1.0",
#     "dm-env==1.6",
#     "tfp-nightly==0.26.0.dev20261027",
#     "decorator==5.2.1",
#     "gast==0.7.0",
#     "dm-tree==0.1.9",
#     "six==1.17.0",
# ]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/rlax"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "rlax._src.clipping:clip_gradient" = "it clips the gradient, as its name says"
# ///
"""Clipped gradients of rlax."""

import jax
import jax.numpy as jnp
from rlax._src import clipping

x = jnp.array([0.5, -1.2, 2.0])
jax.grad(lambda x: (x * clipping.clip_gradient(x, -1.0, 1.0)).sum())(x)
