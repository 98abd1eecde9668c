"""Every check, by name. A check judges one case and returns, or raises Refuted, Fault or Inapplicable.

The module of a check is imported when the check first runs.
"""

from __future__ import annotations

from gradgate.suites.checks.base import Case, Check

HERE = "gradgate.suites.checks"
CHECKS: dict[str, Check] = {
    "tree": Check(f"{HERE}.form:tree", share=0.03),
    "value": Check(f"{HERE}.form:value", share=0.25),
    "refusal": Check(f"{HERE}.form:refusal", share=0.03),
    "gradient_exact": Check(f"{HERE}.exact:gradient", draws="cells"),
    "second_order_exact": Check(f"{HERE}.exact:second_order", share=0.1, draws="cells"),
    "memory_safe": Check(f"{HERE}.kernels:memory_safe", share=0.12, draws="cells"),
    "order_free": Check(f"{HERE}.kernels:order_free", share=0.12, draws="cells"),
    "gradient": Check(f"{HERE}.gradient:gradient", together=True),
    "convergence": Check(f"{HERE}.approximate:convergence", share=0.25),
    "options": Check(f"{HERE}.gradient:options", share=0.12),  # of 100 examples: every shape of the largest vocabulary
    "upstream": Check(f"{HERE}.gradient:upstream", share=0.2),
    "stability": Check(f"{HERE}.gradient:stability", draws="stress"),
    "deterministic": Check(f"{HERE}.hygiene:deterministic", share=0.02, fewest=2),
    "same_bits": Check(f"{HERE}.hygiene:same_bits"),
    "pure": Check(f"{HERE}.hygiene:pure", share=0.02, fewest=2),
    "jit": Check(f"{HERE}.composition:jit", share=0.02, fewest=2),
    "compile": Check(f"{HERE}.composition:torch_compile", share=0.03),
    "vmap": Check(f"{HERE}.composition:vmap", share=0.02, fewest=2),
    "second_order": Check(f"{HERE}.composition:second_order", share=0.02, fewest=2),
    "refuses": Check(f"{HERE}.composition:refuses", share=0.03),
    "counts": Check(f"{HERE}.counts:counts", share=0.06),
    "own_layers": Check(f"{HERE}.counts:own_layers", share=0.03),
    "inverses": Check(f"{HERE}.inverses:inverses", share=0.2),
    "vijp": Check(f"{HERE}.inverses:vijp", share=0.2),
    "refuses_problem": Check(f"{HERE}.inverses:refuses_problem", share=0.03),
    "taylor": Check(f"{HERE}.oracles:taylor", share=0.25),
    "oracles_agree": Check(f"{HERE}.oracles:oracles_agree", share=0.36, draws="cells"),
    "memory_law": Check(f"{HERE}.sweeps:growth", draws="profile"),
    "work_law": Check(f"{HERE}.sweeps:growth", draws="profile"),
    "per_device": Check(f"{HERE}.sweeps:share", draws="profile"),
    "figure": Check(f"{HERE}.sweeps:figure", draws="profile"),
    "of_reference": Check(f"{HERE}.sweeps:of_reference", draws="profile"),
    "protocol": Check(f"{HERE}.protocol:protocol", share=0.03),
    "outputs": Check(f"{HERE}.outputs:outputs", share=0.25),
    "outputs_together": Check(f"{HERE}.outputs:outputs", together=True, share=0.25),  # of the workloads of a court
    "cotangents": Check(f"{HERE}.outputs:cotangents", share=0.12),
    "not_finite": Check(f"{HERE}.outputs:not_finite", share=0.03),
    "donation": Check(f"{HERE}.donation:donation", share=0.03),
    "layouts": Check(f"{HERE}.eager:layouts", share=0.12),
    "each_leaf_alone": Check(f"{HERE}.eager:each_leaf_alone", share=0.12),
    "each_leaf_alone_in_jax": Check(f"{HERE}.differentiation:each_leaf_alone", share=0.02, fewest=2),
    "forward_mode": Check(f"{HERE}.differentiation:forward_mode", share=0.02, fewest=2),
    "autograd": Check(f"{HERE}.eager:autograd", share=0.12),
    "module_protocol": Check(f"{HERE}.modules:module_protocol", share=0.25),
    "unbiased": Check(f"{HERE}.statistics:unbiased", share=0.03),
    "rival_gradcheck": Check(f"{HERE}.rivals.of_torch:gradcheck", share=0.03),
    "rival_check_grads": Check(f"{HERE}.rivals.of_jax:check_grads", share=0.03),
    "rival_check_vjp": Check(f"{HERE}.rivals.of_jax:check_vjp", share=0.03),
    "rival_assert_allclose": Check(f"{HERE}.rivals.comparisons:assert_allclose", share=0.03),
    "rival_assert_close": Check(f"{HERE}.rivals.comparisons:assert_close", share=0.03),
    "rival_isapprox": Check(f"{HERE}.rivals.comparisons:isapprox", share=0.03),
    "rival_gradbench": Check(f"{HERE}.rivals.comparisons:gradbench", share=0.03),
}

__all__ = ["CHECKS", "Case", "Check"]
