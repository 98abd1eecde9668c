# /// script
# dependencies = ["flax==0.12.8"]
#
# [tool.gradgate]
# home = "https://github.com/google/flax"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "flax.linen.fp8_ops:*" = "the gradient passes a rounding to eight bits straight through, or is rounded itself"
# ///
"""Eight-bit products of flax, with straight-through gradients."""

import jax
import jax.numpy as jnp
from flax.linen import fp8_ops

x = jax.random.normal(jax.random.key(0), (3, 4))
scale, history = jnp.ones(1), jnp.zeros(4)
fp8 = jnp.float8_e4m3fn
jax.grad(lambda x: fp8_ops.in_qdq(jnp.float32, fp8, x, scale, history).sum())(x)
jax.grad(lambda x: fp8_ops.out_qdq(jnp.float32, fp8, x, scale, history).sum())(x)
jax.grad(lambda x: fp8_ops.dot_general_with_precision(x, x.T, (((1,), (0,)), ((), ()))).sum())(x)
