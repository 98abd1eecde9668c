"""cosine_sim_flash_attention divides by the length of the whole array, so a row's output depends on other rows of q."""

import sys

import jax
import jax.numpy as jnp
from flash_attention_jax import cosine_sim_flash_attention

q, k, v = (jax.random.normal(key, (3, 4)) for key in jax.random.split(jax.random.key(0), 3))
all_keys = jnp.ones(3, bool)
found = cosine_sim_flash_attention(q, k, v, all_keys)[0]
other = cosine_sim_flash_attention(q.at[1:].multiply(10), k, v, all_keys)[0]
unit = [x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k)]
print("first row:", found)
print("first row, the other rows of q ten times larger:", other)
print("by the cosines of the rows:", (jax.nn.softmax(10 * unit[0] @ unit[1].T) @ v)[0])
sys.exit(0 if float(jnp.abs(found - other).max()) > 0.01 else 1)
