"""Every case in `cases/` has its outcome, and its twin the other one."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from gradgate import Pair
from gradgate.suites.judging.explain import explain
from gradgate.suites.pairs.declared import DeclaredPair
from gradgate.suites.tests.pairs.verdicts import judged

CASES: dict[str, dict[str, str]] = {
    "aux_scaler": {
        "aux_bug": "gradient_exact: wrong gradient of x (497%) and router",
        "aux_twin": "",
        "aux_loss_legit": "gradient_exact: a part of the gradient does not depend on the upstream gradient",
        "aux_loss_twin": "",
    },
    "custom_bwd_f16": {
        "amp_bug": "module_protocol: under autocast, with an upstream gradient of the size 1e+06",
        "amp_twin": "",
    },
    "jax_accumulate_bf16": {"accumulate_bug": "gradient_bfloat16: wrong gradient of w", "accumulate_twin": ""},
    "jax_batching_rule": {"batching_bug": "vmap: vmap over x, the other inputs not batched", "batching_twin": ""},
    "jax_donation": {"donation_bug": "donation: not donated", "donation_twin": ""},
    "jax_noise": {"with_noise": ""},
    "jax_perturbed": {"perturbed_bug": "each_leaf_alone: w alone is differentiated", "perturbed_twin": ""},
    "jax_softplus_zero": {
        "softplus_bug": "gradient_exact: at inputs that no draw has",
        "softplus_twin": "",
        "softplus_regime_bug": "gradient_exact: wrong gradient of x",
        "softplus_regime_twin": "",
    },
    "jvp_drop": {"jvp_bug": "forward_mode: in forward mode: wrong gradient of output (200%)", "jvp_twin": ""},
    "leak": {"leak_bug": "autograd: overwritten before the backward pass", "leak_twin": ""},
    "legit_torch": {
        "complex_legit": "",
        "complex_conj_bug": "gradient_exact: wrong gradient",
        "half_legit": "",
        "library_legit": "",
        "topk_legit": "",
        "nested_legit": "",
        "nested_output_legit": "",
        "packed_legit": "",
        "implicit_legit": "gradient_exact: another function: its loss is 0.2270956862, not 0.2270956902",
        "implicit_twin": "",
        "implicit_direct_legit": "gradient_exact: wrong gradient of w (1.6e-37 of its size)",
        "implicit_direct_twin": "",
        "implicit_expected_legit": "gradient_exact: another function: its loss is 0.2270956862",
        "reversal_legit": "",
        "norms_legit": "layouts: module.norm.weight alone makes it so",
        "norms_twin": "",
        "sparse_legit": "autograd: the gradient of values has no graph, so it counts as a constant",
        "sparse_twin": "",
        "masked_mean_legit": "",
    },
    "saved_output": {"output_bug": "autograd: output output overwritten before the backward pass", "output_twin": ""},
    "scatter_prod": {
        "scatter_bug": "gradient_exact: at inputs that no draw has",
        "scatter_twin": "",
        "scatter_relu_bug": "gradient_exact: wrong gradient of src",
        "scatter_relu_twin": "",
    },
    "vmap_jac": {"jac_bug": "vmap: it raises", "jac_twin": ""},
    "where_branch": {"branch_bug": "gradient_exact: wrong gradient of points", "branch_legit": ""},
}
"""Module -> pair -> "" if it is right, else a claim that is refuted and a part of the reason."""
GRADIENT = ("gradient_exact", "gradient_float64", "gradient_float32")
ALONE = (
    "half_legit",
    "library_legit",
    "topk_legit",
    "nested_legit",
    "nested_output_legit",
    "reversal_legit",
    "masked_mean_legit",
    "with_noise",
)
"""Right functions without a twin in their module: one whose gradient is a thousandth too large is made here."""
REMEDIES = {
    "aux_loss_legit": "let the reference add that part in the same way",
    "implicit_legit": "approximates=gradgate.within(1e-06)",
    "implicit_direct_legit": "approximates=gradgate.within(1e-35)",
}
"""Pair that is right in its way -> what its failure says to do."""
EXAMPLES = {"accumulate_bug": 40}


def pair_of(module: str, name: str) -> Any:
    pytest.importorskip("jax" if module.startswith("jax_") else "torch")
    return getattr(importlib.import_module(f"gradgate.suites.tests.pairs.cases.{module}"), name)


def spoiled(pair: Any, module: str) -> Any:
    """The pair of a function whose gradient is a thousandth too large, and whose values are the same."""
    function = pair.loaded["function"]
    if module.startswith("jax_"):
        from jax.lax import stop_gradient as constant
        from jax.tree_util import tree_map
    else:
        from torch import Tensor
        from torch.utils._pytree import tree_map

        constant = Tensor.detach

    def more(out: Any) -> Any:
        floating = hasattr(out, "dtype") and "float" in str(out.dtype)
        return out + 0.001 * (out - constant(out)) if floating else out

    return dataclasses.replace(
        pair, function=lambda *given, **options: tree_map(more, function(*given, **options)), name="spoiled"
    )


def test_every_case_has_an_outcome_and_is_a_pair() -> None:
    folder = Path(__file__).parent / "cases"
    assert sorted(path.stem for path in folder.glob("*.py")) == sorted(CASES)
    for module, outcomes in CASES.items():
        text = (folder / f"{module}.py").read_text()
        assert [name for name in outcomes if f"\n{name} = " not in text] == []


@pytest.mark.parametrize("module", CASES)
def test_no_pair_of_a_case_is_left_out(module: str) -> None:
    pair_of(module, next(iter(CASES[module])))
    loaded = vars(importlib.import_module(f"gradgate.suites.tests.pairs.cases.{module}"))
    assert {name for name, one in loaded.items() if isinstance(one, DeclaredPair)} == set(CASES[module])


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, outcomes in CASES.items() for name in outcomes]
)
def test_a_case_has_its_outcome(module: str, name: str) -> None:
    pair, outcome = pair_of(module, name), CASES[module][name]
    claim, _, reason = outcome.partition(": ")
    verdicts = judged(pair, (claim,) if outcome else (), EXAMPLES.get(name, 4))
    if not outcome:
        against = {one: f"{v.verdict}: {v.reason}" for one, v in verdicts.items() if v.verdict in ("refuted", "error")}
        assert not against
        assert any(verdicts[one].verdict == "upheld" for one in GRADIENT if one in verdicts)
        return
    assert verdicts[claim].verdict == "refuted", verdicts[claim]
    assert reason in verdicts[claim].reason
    assert REMEDIES.get(name, "") in explain(dataclasses.replace(verdicts[claim])).remedy


@pytest.mark.parametrize("name", ALONE)
def test_the_twin_of_a_right_function_has_a_gradient_that_is_a_thousandth_too_large(name: str) -> None:
    module = next(module for module, outcomes in CASES.items() if name in outcomes)
    pair: Pair = spoiled(pair_of(module, name), module)
    verdicts = judged(pair, GRADIENT, 4)
    assert "refuted" in {verdict.verdict for verdict in verdicts.values()}, verdicts
