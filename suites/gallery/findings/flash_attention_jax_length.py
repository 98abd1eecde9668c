"""flash_attention of 1,025 tokens returns 2,048 rows, and the first 1,025 are not those of softmax attention."""

import sys

import jax
import jax.numpy as jnp
from flash_attention_jax import flash_attention

q, k, v = (jax.random.normal(key, (1, 1, 1025, 4)) for key in jax.random.split(jax.random.key(0), 3))
found = flash_attention(q, k, v, jnp.ones((1, 1025), bool))
right = jax.nn.softmax(q @ k.swapaxes(2, 3) / 2) @ v
print("shape", found.shape, "in place of", right.shape)
error = float(jnp.abs(found[:, :, :1025] - right).max())
print("largest difference in the first 1025 rows", error)
sys.exit(0 if found.shape != right.shape else 1)
