# /// script
# dependencies = [
#     "tfp-nightly==0.26.0.dev20261027",
#     "decorator==5.2.1",
#     "gast==0.7.0",
#     "dm-tree==0.1.9",
#     "six==1.17.0",
# ]
#
# [tool.gradgate]
# home = "https://github.com/tensorflow/probability"
# framework = "jax"
# judges = "tfp-nightly"
# no-deps = true
# seconds = 60
# limit = 1500
# ///
"""Special functions of TensorFlow Probability, its JAX substrate."""

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates.jax import math as tfp

x, y, z = jnp.array([0.3, 0.8, 1.7]), jnp.array([1.2, 2.1, 0.6]), jnp.array([0.2, 0.5, 0.9])


def call(function, *arguments):
    jax.grad(lambda given: function(*given).sum())(arguments)


for function in (tfp.erfcx, tfp.lambertw, tfp.log_cosh, tfp.special.dawsn):
    call(function, x)
for function in (
    tfp.bessel_iv_ratio,
    tfp.bessel_ive,
    tfp.bessel_kve,
    tfp.log_bessel_ive,
    tfp.log_bessel_kve,
    tfp.owens_t,
    tfp.lbeta,
    tfp.log_gamma_difference,
    tfp.igammainv,
    tfp.igammacinv,
):
    call(function, *((x, y) if "inv" not in function.__name__ else (y, z)))
for function in (tfp.betainc, tfp.special.betaincinv):
    call(function, x, y, z)
tfp.round_exponential_bump_function(z)
