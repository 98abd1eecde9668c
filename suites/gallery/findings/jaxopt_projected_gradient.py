"""ProjectedGradient never calls the solver that it is given as implicit_diff_solve; ProximalGradient does."""

import sys

import jax
import jax.numpy as jnp
import jaxopt


def calls(make, function, count):  # noqa: D103
    solve = lambda a, b: count.append(1) or jaxopt.linear_solve.solve_lu(a, b)  # noqa: E731
    solver = make(lambda x, t: jnp.sum((x - t) ** 2), function, implicit_diff_solve=solve)
    jax.grad(lambda t: jnp.sum(solver.run(jnp.zeros(3), None, t).params))(jnp.ones(3))
    return len(count)


projected = calls(jaxopt.ProjectedGradient, jaxopt.projection.projection_non_negative, [])
proximal = calls(jaxopt.ProximalGradient, jaxopt.prox.prox_none, [])
print("calls of the solver: ProjectedGradient", projected, "ProximalGradient", proximal)
sys.exit(0 if projected == 0 < proximal else 1)
