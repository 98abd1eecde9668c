"""Implicit gradients of jaxopt have about five digits in float64: conjugate gradients stop at tol=1e-5."""

import sys

import jax
import jax.numpy as jnp
import jaxopt

jax.config.update("jax_enable_x64", True)
w = jnp.tanh(jax.random.normal(jax.random.key(0), (6, 6))) / 60
c = jnp.arange(1.0, 7.0)
right = jnp.linalg.solve((jnp.eye(6) - w).T, c)
errors = []
for solve in (None, jaxopt.linear_solve.solve_lu):
    solver = jaxopt.FixedPointIteration(lambda x, b: w @ x + b, maxiter=60, tol=1e-16, implicit_diff_solve=solve)
    gradient = jax.grad(lambda b, solver=solver: c @ solver.run(jnp.zeros(6), b).params)(jnp.ones(6))
    errors.append(float(jnp.linalg.norm(gradient - right) / jnp.linalg.norm(right)))
print("relative errors: by default", errors[0], "with solve_lu", errors[1])
sys.exit(0 if errors[0] > 1e-9 > errors[1] else 1)
