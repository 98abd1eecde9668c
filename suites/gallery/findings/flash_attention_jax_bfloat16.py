"""The forward pass takes bfloat16; the backward pass raises TypeError, because a carry of its loop becomes float32."""

import sys

import jax
import jax.numpy as jnp
from flash_attention_jax import flash_attention

x = jnp.ones((1, 1, 2, 4), jnp.bfloat16)
run = lambda x: jnp.sum(flash_attention(x, x, x, jnp.ones((1, 2), bool)))  # noqa: E731
print("value", run(x), flash_attention(x, x, x, jnp.ones((1, 2), bool)).dtype)
try:
    print("gradient", jax.grad(run)(x))
except TypeError as error:
    print("gradient: TypeError:", str(error).splitlines()[0])
    sys.exit(0)
sys.exit(1)
