"""Right functions that a strict judge may refuse are upheld, and each has a wrong twin that is refuted."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from gradgate.suites.tests.pairs.verdicts import judged, upheld

NAMES = (
    "float32 inside",
    "autocast to float16",
    "reference reads a number",
    "reference without setup_context",
    "guard turns NaN into 0",
    "auxiliary loss",
    "declared error",
    "declared error, wrong gradient",
    "order of convergence",
    "order of convergence, wrong gradient",
    "products in bfloat16",
    "noise drawn in the dtype of the input",
    "loses digits in single calls alone",
)
ONE_FRAMEWORK = {
    ("jax", "reference without setup_context"): "only PyTorch has such Functions",
}
EXAMPLES = {"products in bfloat16": 40, "loses digits in single calls alone": 200}
"""What rounds as bfloat16, or in another way than vectorised runs, is judged on many problems together."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_right_code_is_upheld_and_its_wrong_twin_is_refuted(framework: str, name: str) -> None:
    pytest.importorskip(framework)
    if why := ONE_FRAMEWORK.get((framework, name)):
        pytest.skip(why)
    cases: dict[str, Any] = importlib.import_module(f"gradgate.suites.tests.pairs.right_{framework}").CASES
    (right, wrong), claims = cases[name]
    upheld(right, claims, EXAMPLES.get(name, 6))
    found = {claim: verdict.verdict for claim, verdict in judged(wrong, claims, EXAMPLES.get(name, 6)).items()}
    assert "refuted" in found.values(), found
    assert "error" not in found.values(), found


def test_draws_of_pytorch_in_float64_and_in_float32_are_named_as_the_cause() -> None:
    pytest.importorskip("torch")
    from gradgate.suites.tests.pairs import right_torch

    dims = {"T": (8, 16), "H": (4,)}  # of fewer than 16 numbers, PyTorch draws the same ones in both dtypes
    pair, _ = right_torch.both(right_torch.noising, right_torch.noisy, random=True, dims=dims)
    found = judged(pair, ("gradient_float32",))["gradient_float32"]
    assert found.verdict == "inapplicable", found
    assert "PyTorch draws other ones in float64 than in float32" in found.reason
