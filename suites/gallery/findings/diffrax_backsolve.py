"""The gradient of BacksolveAdjoint is not that of the discrete solution; that of RecursiveCheckpointAdjoint is."""

import sys

import diffrax
import jax

jax.config.update("jax_enable_x64", True)


def last(a, adjoint):  # noqa: D103
    term = diffrax.ODETerm(lambda t, y, a: a * y)
    return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 2.0, 0.5, 1.0, a, adjoint=adjoint).ys[0]


right = jax.grad(lambda a: (1 + a / 2 + a * a / 8) ** 4)(0.75)
backsolve = jax.grad(last)(0.75, diffrax.BacksolveAdjoint())
recursive = jax.grad(last)(0.75, diffrax.RecursiveCheckpointAdjoint())
print("of four steps of Heun", right, "backsolve", backsolve, "recursive", recursive)
sys.exit(0 if abs(backsolve - right) > 1e-3 and abs(recursive - right) < 1e-12 else 1)
