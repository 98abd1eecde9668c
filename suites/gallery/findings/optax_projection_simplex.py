"""The gradient of projection_simplex raises TypeError in bfloat16; the value and a gradient in float32 are computed."""

import sys

import jax
import jax.numpy as jnp
from optax.projections import projection_simplex

for dtype in (jnp.float32, jnp.bfloat16):
    x = jnp.asarray([0.5, 1.5, -1.0], dtype)
    print(x.dtype, "value", projection_simplex(x))
    try:
        print(x.dtype, "gradient", jax.grad(lambda x: projection_simplex(x)[0])(x))
    except TypeError as error:
        print(x.dtype, "gradient: TypeError:", str(error).splitlines()[0])
        sys.exit(0 if dtype == jnp.bfloat16 else 1)
sys.exit(1)
