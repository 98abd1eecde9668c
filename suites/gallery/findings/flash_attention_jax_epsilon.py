"""flash_attention adds 1e-10 to the sum of each row, so rows of weights do not sum to 1 in float64."""

import sys

import jax
import jax.numpy as jnp
from flash_attention_jax import causal_flash_attention, flash_attention

jax.config.update("jax_enable_x64", True)
x = jnp.zeros((1, 1, 1, 4), jnp.float64)
masked = 1 - flash_attention(x, x, x + 1, jnp.ones((1, 1), bool))[0, 0, 0, 0]
causal = 1 - causal_flash_attention(x, x, x + 1)[0, 0, 0, 0]
print("1 minus the mean of a single 1:", float(masked), "causal:", float(causal))
sys.exit(0 if min(masked, causal) > 5e-11 else 1)
