"""FixedPointIteration ends after one step if an element is NaN: the others are finite, and have not converged."""

import sys

import jax.numpy as jnp
import jaxopt

w = jnp.full((2, 2), 0.25)
run = jaxopt.FixedPointIteration(lambda x, b: w @ x + b, maxiter=60, tol=1e-6).run
found, broken = run(jnp.zeros(2), jnp.ones(2)), run(jnp.zeros(2), jnp.array([jnp.nan, 1.0]))
print("b = [1, 1]:", found.params, "after", found.state.iter_num, "steps")
print("b = [nan, 1]:", broken.params, "after", broken.state.iter_num, "steps; the solution is [nan, nan]")
sys.exit(0 if jnp.isfinite(broken.params[1]) else 1)
