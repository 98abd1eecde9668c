"""lineax.CG returns its start, 0, and reports success if the matrix has a NaN; Cholesky raises an error."""

import sys

import jax.numpy as jnp
import lineax

operator = lineax.MatrixLinearOperator(jnp.diag(jnp.array([jnp.nan, 2.0])), lineax.positive_semidefinite_tag)
found = lineax.linear_solve(operator, jnp.ones(2), lineax.CG(rtol=1e-5, atol=1e-5))
success = bool(found.result == lineax.RESULTS.successful)
print("CG:", found.value, "success:", success, "steps:", found.stats["num_steps"])
other = lineax.linear_solve(operator, jnp.ones(2), lineax.Cholesky(), throw=False)
print("Cholesky:", other.value, "success:", bool(other.result == lineax.RESULTS.successful))
sys.exit(0 if success and bool(jnp.all(found.value == 0)) else 1)
