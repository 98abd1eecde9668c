"""Every check, by name. A check judges one case and returns, or raises Refuted, Fault or Inapplicable."""

from __future__ import annotations

from gradgate.suites.checks import (
    composition,
    counts,
    eager,
    exact,
    form,
    gradient,
    hygiene,
    inverses,
    oracles,
    outputs,
    protocol,
    rivals,
    statistics,
    sweeps,
)
from gradgate.suites.checks.base import Case, Check

CHECKS: dict[str, Check] = {
    "tree": Check(form.tree, share=0.03),
    "value": Check(form.value, share=0.25),
    "refusal": Check(form.refusal, share=0.03),
    "gradient_exact": Check(exact.gradient, draws="cells"),
    "second_order_exact": Check(exact.second_order, share=0.1, draws="cells"),
    "gradient": Check(gradient.gradient, together=True),
    "options": Check(gradient.options, share=0.12),  # of 100 examples: every shape of the largest vocabulary
    "upstream": Check(gradient.upstream, share=0.2),
    "stability": Check(gradient.stability, draws="stress"),
    "deterministic": Check(hygiene.deterministic, share=0.03),
    "same_bits": Check(hygiene.same_bits),
    "pure": Check(hygiene.pure, share=0.03),
    "jit": Check(composition.jit, share=0.03),
    "compile": Check(composition.torch_compile, share=0.03),
    "vmap": Check(composition.vmap, share=0.03),
    "second_order": Check(composition.second_order, share=0.03),
    "refuses": Check(composition.refuses, share=0.03),
    "counts": Check(counts.counts, share=0.06),
    "own_layers": Check(counts.own_layers, share=0.03),
    "inverses": Check(inverses.inverses, share=0.2),
    "vijp": Check(inverses.vijp, share=0.2),
    "refuses_problem": Check(inverses.refuses_problem, share=0.03),
    "taylor": Check(oracles.taylor, share=0.25),
    "oracles_agree": Check(oracles.oracles_agree, share=0.36, draws="cells"),
    "memory_law": Check(sweeps.growth, draws="profile"),
    "work_law": Check(sweeps.growth, draws="profile"),
    "per_device": Check(sweeps.share, draws="profile"),
    "figure": Check(sweeps.figure, draws="profile"),
    "protocol": Check(protocol.protocol, share=0.03),
    "outputs": Check(outputs.outputs, share=0.12),
    "cotangents": Check(outputs.cotangents, share=0.12),
    "not_finite": Check(outputs.not_finite, share=0.03),
    "layouts": Check(eager.layouts, share=0.12),
    "each_leaf_alone": Check(eager.each_leaf_alone, share=0.12),
    "autograd": Check(eager.autograd, share=0.12),
    "unbiased": Check(statistics.unbiased, share=0.03),
    "rival_gradcheck": Check(rivals.gradcheck, share=0.03),
    "rival_check_grads": Check(rivals.check_grads, share=0.03),
    "rival_check_vjp": Check(rivals.check_vjp, share=0.03),
    "rival_assert_allclose": Check(rivals.assert_allclose, share=0.03),
    "rival_assert_close": Check(rivals.assert_close, share=0.03),
    "rival_isapprox": Check(rivals.isapprox, share=0.03),
    "rival_gradbench": Check(rivals.gradbench, share=0.03),
}

__all__ = ["CHECKS", "Case", "Check"]
