# /// script
# dependencies = ["jaxopt==0.8.5"]
#
# [tool.gradgate]
# home = "https://github.com/google/jaxopt"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "jaxopt._src.implicit_diff:*" = "the solution has its implicit gradient, and the state of the solver, another output, has none"
# ///
"""Projections, isotonic regression and implicit differentiation of jaxopt."""

import jax
import jax.numpy as jnp
import jaxopt

x = jax.random.normal(jax.random.key(0), (5,))
jax.grad(lambda x: (x * jaxopt.projection.projection_simplex(x)).sum())(x)
jax.grad(lambda x: (x * jaxopt.projection.projection_sparse_simplex(x, 3)).sum())(x)
jax.grad(lambda x: (x * jaxopt.projection.projection_l1_ball(x, 0.7)).sum())(x)
jax.grad(lambda c: jaxopt.projection.projection_box_section(x, (jnp.zeros(5), jnp.ones(5), jnp.ones(5), c)).sum())(1.0)


def ridge(w, l2):
    return ((jnp.outer(x, x) @ w + w - x) ** 2).sum() + l2 * (w**2).sum()


jax.grad(lambda l2: jaxopt.GradientDescent(ridge, maxiter=50, tol=1e-12).run(x, l2).params.sum())(0.3)
