"""A small relative error in any one leaf is refuted by the claims in floats alone, with the settings of `verify`."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.claims import contract_claims
from gradgate.references.contract import Method
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task

torch = pytest.importorskip("torch", reason="the planted method is PyTorch's")

LEAVES = ["embedding", "head", *(f"layers.{net}.{leaf}" for net in "ABC" for leaf in ("w0", "b0"))]
SIZES = {"float64": 1e-10, "float32": 1e-5}


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("leaf", LEAVES)
def test_an_error_in_one_leaf_is_refuted_and_that_leaf_is_named(leaf: str, dtype: str) -> None:
    def planted(problem: Any) -> Any:
        grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
        *path, last = leaf.split(".")
        node = grads
        for key in path:
            node = node[key]
        node[last] = node[last] * (1 + SIZES[dtype])
        return loss, grads

    declared = Method("state_space", "planted", "torch", "", contract_claims())
    claim = declared.claim(f"gradient_{dtype}")
    verdict = judge(Task.of(declared, claim), Subject(declared, planted), Run(examples=100))
    assert verdict.verdict == "refuted", verdict
    assert leaf.rpartition("layers.")[2] in verdict.leaf, verdict
