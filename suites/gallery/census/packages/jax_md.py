# /// script
# dependencies = [
#     "jax_md==0.2.29",
#     "dm-haiku==0.0.17",
#     "jraph==0.0.6.dev0",
#     "jmp==0.0.4",
#     "ml_collections==1.1.0",
#     "e3nn_jax==0.20.8",
#     "frozendict==2.4.6",
# ]
#
# [tool.gradgate]
# home = "https://github.com/jax-md/jax-md"
# framework = "jax"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "jax_md.space:transform" = "the gradient stays in real space, as its docstring says"
# "jax_md.rigid_body:_quaternion_rotate" = "the gradient is projected onto the tangent space of unit quaternions"
# ///
"""Boxes, rotations and safe roots of jax-md."""

import jax
import jax.numpy as jnp
from jax_md import rigid_body, space
from jax_md.mm_forcefields.reaxff import reaxff_helper

x = jax.random.normal(jax.random.key(0), (4, 3))
jax.grad(lambda x: (x * space.transform(2 * jnp.eye(3), x)).sum())(x)
q = jnp.array([0.5, 0.5, -0.5, 0.5])
jax.grad(lambda q: rigid_body._quaternion_rotate(q, x[0]).sum())(q)
jax.grad(lambda x: reaxff_helper.safe_sqrt(x).sum())(jnp.abs(x))
