"""The tools that people check gradients with today, as checks: to compare them with ours on the same mutants.

No method claims these checks. `gradgate selftest` runs them on broken and on correct methods, on the smallest, a medium
and the largest problem of the family's vocabulary, in float64, where they are strongest. Rules of tools for other
languages are restated from the documentation of these tools.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import Claim

LOOSE = 1e-3
"""The relative tolerance of the loose rules."""


def _claim(name: str, check: str, statement: str, source: str, **settings: Any) -> Claim:
    return Claim(name, check, f"{statement} finds nothing", source, settings=settings)


CLAIMS = (
    _claim("gradcheck", "rival_gradcheck", "torch.autograd.gradcheck", "PyTorch", fast=False),
    _claim("gradcheck_fast", "rival_gradcheck", "torch.autograd.gradcheck, fast_mode", "PyTorch", fast=True),
    _claim("check_grads", "rival_check_grads", "jax.test_util.check_grads", "JAX"),
    _claim("check_vjp", "rival_check_vjp", "jax.test_util.check_vjp", "JAX"),
    _claim("assert_allclose", "rival_assert_allclose", "numpy.testing.assert_allclose", "NumPy", arguments={}),
    _claim(
        "assert_allclose_loose",
        "rival_assert_allclose",
        "numpy.testing.assert_allclose at rtol 1e-3",
        "NumPy",
        arguments={"rtol": LOOSE},
    ),
    _claim("assert_close", "rival_assert_close", "torch.testing.assert_close", "PyTorch", arguments={}),
    _claim(
        "assert_close_loose",
        "rival_assert_close",
        "torch.testing.assert_close at rtol 1e-3, atol 0",
        "PyTorch",
        arguments={"rtol": LOOSE, "atol": 0.0},
    ),
    _claim("isapprox", "rival_isapprox", "DifferentiationInterfaceTest's rule, restated", "Julia"),
    _claim("gradbench", "rival_gradbench", "GradBench's rule, restated", "GradBench"),
)
"""One claim per rival: refuted means that it finds something."""
