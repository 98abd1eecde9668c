"""The gradient of a gradient raises if a checkpoint policy has moved a value to the host."""

import sys

import jax
import jax.numpy as jnp

policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
function = jax.checkpoint(lambda x: jnp.sum(jnp.sin(jnp.sin(x) @ x)), policy=policy)
x = jnp.ones((2, 2))
print("first derivative", jax.grad(function)(x)[0])
print("its derivative, forward over reverse", jax.jvp(jax.grad(function), (x,), (x,))[1][0])
try:
    print("its derivative, reverse over reverse", jax.grad(lambda x: jnp.sum(jax.grad(function)(x)))(x))
except ValueError as error:
    print("its derivative, reverse over reverse:", error)
    sys.exit(0)
sys.exit(1)
