"""nn.LayerNorm computes the variance as mean(x²) − mean(x)², which cancels where the mean is large."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp

x = jax.random.normal(jax.random.key(0), (1, 8)) + 1000
slow, fast = (nn.LayerNorm(use_fast_variance=fast).init_with_output(jax.random.key(0), x)[0] for fast in (False, True))
print("two passes", slow[0, :3])
print("by default", fast[0, :3])
error = float(jnp.linalg.norm(fast - slow) / jnp.linalg.norm(slow))
print("relative difference", error)
sys.exit(0 if error > 1e-3 else 1)
