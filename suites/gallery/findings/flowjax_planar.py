"""Planar of flowjax constrains u otherwise than appendix A.1 of Rezende and Mohamed, 2015, which it cites."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import Planar

w, u = jnp.array([1.0, 0.5]), jnp.array([2.0, 2.0])
planar = eqx.tree_at(lambda p: p.params, Planar(jax.random.key(0), dim=2), jnp.concatenate([w, u, jnp.zeros(1)]))
found = w @ planar.get_planar().get_act_scale()
right = jnp.log1p(jnp.exp(w @ u)) - 1
print("w·û of flowjax", found, "of the appendix", right)
print("log(1 + softplus(w·u)) - 1 is", jnp.log1p(jax.nn.softplus(w @ u)) - 1)
sys.exit(0 if abs(found - right) > 0.1 else 1)
