# /// script
# dependencies = ["optax==0.2.8"]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/optax"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "optax._src.utils:_scale_gradient" = "it scales the gradient, as its name says"
# ///
"""Projections and losses of optax."""

import jax

import optax

x = jax.random.normal(jax.random.key(0), (5,))
jax.grad(lambda x: (x * optax.projections.projection_simplex(x)).sum())(x)
jax.grad(lambda x: optax.losses.safe_softmax_cross_entropy(x, jax.nn.softmax(2 * x)).sum())(x)
jax.grad(lambda x: optax.losses.poly_loss_cross_entropy(x, jax.nn.softmax(2 * x)).sum())(x)
jax.grad(lambda x: optax.scale_gradient(x, 0.5).sum())(x)
