"""Implicit gradients of jaxopt have about five digits in float64: conjugate gradients stop at tol=1e-5."""

import sys

import jax
import jax.numpy as jnp
import jaxopt

jax.config.update("jax_enable_x64", True)
w = jnp.tanh(jax.random.normal(jax.random.key(0), (6, 6))) / 60
c = jnp.arange(1.0, 7.0)
right = jnp.linalg.solve((jnp.eye(6) - w).T, c)
for solve in (None, jaxopt.linear_solve.solve_lu):
    solver = jaxopt.FixedPointIteration(lambda x, b: w @ x + b, maxiter=60, tol=1e-16, implicit_diff_solve=solve)
    gradient = jax.grad(lambda b, solver=solver: c @ solver.run(jnp.zeros(6), b).params)(jnp.ones(6))
    error = float(jnp.linalg.norm(gradient - right) / jnp.linalg.norm(right))
    print("by default" if solve is None else "solve_lu", "relative error", error)
    first = error if solve is None else first
sys.exit(0 if first > 1e-9 > error else 1)
